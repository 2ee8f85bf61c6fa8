"""QEMU and the guest's kernel, from the machine's own Debian package sources, unpacked and kept.

Nothing is installed: an emulator or a kernel of the machine's own stays as it is. Of QEMU the
first version with a model of the igb card is needed; where the machine's Debian has an older one,
it is taken from that Debian's backports, at the mirror that the machine is configured with.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.stack.machine import os_release
from seatrial_lab.software.debian_sources import (
    private_list_options,
    required_stanzas,
    source_stanzas,
)

KERNEL = "linux-image-amd64"
QEMU = "qemu-system-x86"
IGB_VERSION = (8, 0)  # QEMU's first version with the model
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Base:
    """What a guest is started from. ``version`` is of the Debian package."""

    qemu: Path
    qemu_version: str
    kernel: Path
    kernel_release: str
    kernel_version: str
    modules: Path
    busybox: Path

    @property
    def qemu_folder(self) -> Path:
        """The folder that QEMU's package was unpacked to."""
        return self.qemu.parents[2]


def unpacked(folder: Path, progress: Progress = lambda _: None) -> Base:
    """QEMU, kernel and busybox below ``folder``, fetched where missing. Raises LabError."""
    folder = folder.resolve()
    parts = {name: folder / name for name in ("qemu", "kernel", "busybox")}
    missing = [name for name, part in parts.items() if not (part / "version").is_file()]
    if missing:
        with _apt(folder) as apt:
            for name in missing:
                progress(f"fetching {name}")
                apt.unpack(name, parts[name])
    release = _single_entry(parts["kernel"] / "lib/modules").name
    return Base(
        qemu=parts["qemu"] / "usr/bin/qemu-system-x86_64",
        qemu_version=(parts["qemu"] / "version").read_text().strip(),
        kernel=parts["kernel"] / "boot/vmlinux",
        kernel_release=release,
        kernel_version=(parts["kernel"] / "version").read_text().strip(),
        modules=parts["kernel"] / f"lib/modules/{release}",
        busybox=_single_entry(parts["busybox"] / "bin"),
    )


def _single_entry(folder: Path) -> Path:
    entries = sorted(folder.iterdir())
    if len(entries) != 1:
        raise LabError(f"{folder} has {len(entries)} entries and not one: remove {folder.parent}")
    return entries[0]


@dataclass(frozen=True)
class _Apt:
    """apt with lists of its own, so that the machine's are as they were."""

    options: list[str]
    folder: Path
    backports: str

    def run(self, *command: str, cwd: Path | None = None) -> str:
        return run([command[0], *self.options, *command[1:]], " ".join(command), cwd=cwd)

    def unpack(self, name: str, into: Path) -> None:
        """Fetch and unpack what ``name`` needs; a file ``version`` says that it is complete."""
        wanted = {"qemu": self._qemu, "kernel": self._kernel, "busybox": self._busybox}[name]()
        shutil.rmtree(into, ignore_errors=True)
        debs = into / "debs"
        debs.mkdir(parents=True)
        self.run(
            "apt-get", "-q", "download", *(f"{one}={v}" for one, v in wanted.items()), cwd=debs
        )
        for deb in sorted(debs.glob("*.deb")):
            run(["dpkg-deb", "-x", deb, into], f"unpacking {deb.name}")
        shutil.rmtree(debs)
        if name == "kernel":
            release = _single_entry(into / "lib/modules").name
            depmod = shutil.which("depmod", path="/usr/sbin:/sbin")
            if not depmod:
                raise LabError("depmod is missing: apt-get install kmod")
            run([depmod, "-b", into, release], "listing the kernel's modules")
            image = into / f"boot/vmlinuz-{release}"
            image.with_name("vmlinux").write_bytes(uncompressed(image.read_bytes()))
        (into / "version").write_text(next(iter(wanted.values())) + "\n")

    def _qemu(self) -> dict[str, str]:
        """The package and all that it needs which the machine lacks, with their versions."""
        for suite in ("", self.backports):
            # With NAME/SUITE apt would take from there QEMU alone, and its parts from the release.
            target = ["-t", suite] if suite else []
            try:
                text = self.run(
                    "apt-get", *target, "-s", "-q", "--no-install-recommends", "--reinstall",
                    "install", QEMU,
                )  # fmt: skip
            except LabError:
                continue
            lines = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", text, re.MULTILINE)
            needed = {name: version for name, version in lines if name != QEMU}
            version = dict(lines).get(QEMU, "")
            number = re.search(r"(?:\d+:)?(\d+)\.(\d+)", version)
            if number and (int(number[1]), int(number[2])) >= IGB_VERSION:
                return {QEMU: version, **needed, **self._firmware(f"/{suite}" if suite else "")}
        raise LabError(
            f"no package source of this machine has {QEMU} {IGB_VERSION[0]}.{IGB_VERSION[1]} or "
            f"later, which models the igb card: neither its Debian nor {self.backports}"
        )

    def _firmware(self, suite: str) -> dict[str, str]:
        """Packages that hold QEMU's own files, also where the machine has the same version."""
        versions = {}
        for name in ("qemu-system-common", "qemu-system-data", "seabios"):
            text = self.run("apt-cache", "show", f"{name}{suite}")
            version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
            if version:
                versions[name] = version[1]
        return versions

    def _kernel(self) -> dict[str, str]:
        text = self.run("apt-cache", "show", "--no-all-versions", KERNEL)
        image = re.search(r"^Depends:.*?(linux-image-\S+) \(= (\S+)\)", text, re.MULTILINE)
        if not image:
            raise LabError(f"apt knows no {KERNEL}")
        return {image[1]: image[2]}

    def _busybox(self) -> dict[str, str]:
        text = self.run("apt-cache", "show", "--no-all-versions", "busybox-static")
        version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
        if not version:
            raise LabError("apt knows no busybox-static")
        return {"busybox-static": version[1]}


def uncompressed(image: bytes) -> bytes:
    """The kernel in a compressed image (Documentation/arch/x86/boot.rst): an emulated machine
    takes 10 s to unpack it. Raises LabError where it is not compressed by xz."""
    (sectors,) = struct.unpack_from("<B", image, 0x1F1)
    offset, size = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    try:
        # The payload ends with the size of what is unpacked, 4 bytes that are not xz's.
        return lzma.decompress(image[start : start + size - 4])
    except lzma.LZMAError as error:
        raise LabError(f"the kernel's image cannot be unpacked: {error}") from None


@contextmanager
def _apt(folder: Path) -> Iterator[_Apt]:
    codename = os_release().get("VERSION_CODENAME", "")
    stanzas = [text.replace("Types: deb-src", "Types: deb") for text in required_stanzas(codename)]
    backports = f"{codename}-backports"
    stanzas += [
        re.sub(r"(?m)^Suites: .*$", f"Suites: {backports}", text)
        for text in stanzas
        if not source_stanzas(backports)
    ]
    state = folder.resolve() / "apt"
    options = private_list_options(state, stanzas)
    try:
        # Without backports where the mirror has none: whether that matters is seen later.
        run(["apt-get", *options, "-q", "update"], "reading the package lists", accept_failure=True)
        yield _Apt(options, folder, backports)
    finally:
        shutil.rmtree(state)


def environment(base: Base) -> dict[str, str]:
    """The environment that the unpacked QEMU runs in."""
    libraries = base.qemu_folder / "usr/lib/x86_64-linux-gnu"
    # Debian 12 has a few libraries, libfuse3 among them, in /lib by their packages' lists.
    folders = (libraries, base.qemu_folder / "lib/x86_64-linux-gnu")
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        "QEMU_MODULE_DIR": str(libraries / "qemu"),
    }


def data_options(base: Base) -> list[str]:
    """Options by which the unpacked QEMU finds its firmware."""
    share = base.qemu_folder / "usr/share"
    return [word for name in ("qemu", "seabios") for word in ("-L", str(share / name))]


def probe(base: Base) -> str:
    """The first line of ``qemu --version``. Raises LabError where it does not start."""
    answer = subprocess.run(
        [base.qemu, "--version"], env=environment(base), capture_output=True, text=True
    )
    if answer.returncode:
        raise LabError(f"the unpacked QEMU does not start: {answer.stderr.strip()[-300:]}")
    return answer.stdout.splitlines()[0]
