"""QEMU, busybox and the guest's kernel, unpacked from packages of the machine's Debian sources.

It installs nothing: the machine's own emulator and kernel do not change. A virtual lab needs a QEMU
with a model of the igb card. If the machine's Debian has an older QEMU, the package comes from the
backports of that Debian, at the machine's configured mirror. A kernel of another suite comes from
the same mirror.
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
ZSTD = b"\x28\xb5\x2f\xfd"  # first bytes of a frame (RFC 8878)
IGB_VERSION = (8, 0)  # the first QEMU with a model of the igb card
RUN_WITH_USER_VERSION = (9, 1)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Base:
    """The files that start a guest. The versions are versions of Debian packages."""

    qemu: Path
    qemu_version: str
    kernel: Path
    kernel_release: str
    kernel_version: str
    modules: Path
    busybox: Path

    @property
    def runs_with_user(self) -> bool:
        """Whether QEMU has ``-run-with user=``, which replaces ``-runas``."""
        number = re.match(r"(?:\d+:)?(\d+)\.(\d+)", self.qemu_version)
        return number is not None and (int(number[1]), int(number[2])) >= RUN_WITH_USER_VERSION

    @property
    def qemu_folder(self) -> Path:
        """The folder of the unpacked QEMU package."""
        return self.qemu.parents[2]


def provide(folder: Path, suite: str = "", progress: Progress = lambda _: None) -> Base:
    """Return QEMU, kernel and busybox below ``folder``; fetch missing ones. Raises LabError.

    ``suite`` is the Debian suite of the kernel; empty: the machine's release.
    """
    folder = folder.resolve()
    parts = {name: folder / name for name in ("qemu", "kernel", "busybox")}
    if suite:
        parts["kernel"] = folder / f"kernel-{suite}"
    missing = [name for name, part in parts.items() if not (part / "version").is_file()]
    if missing:
        with apt(folder, suite if "kernel" in missing else "") as packages:
            for name in missing:
                progress(f"fetching {name}")
                packages.unpack(name, parts[name])
    modules = _single_entry(_folder(parts["kernel"], "lib/modules"))
    return Base(
        qemu=parts["qemu"] / "usr/bin/qemu-system-x86_64",
        qemu_version=(parts["qemu"] / "version").read_text().strip(),
        kernel=parts["kernel"] / "boot/vmlinux",
        kernel_release=modules.name,
        kernel_version=(parts["kernel"] / "version").read_text().strip(),
        modules=modules,
        busybox=_single_entry(_folder(parts["busybox"], "bin")),
    )


def _folder(package: Path, name: str) -> Path:
    """A folder of an unpacked package: below / in Debian 12, below /usr in Debian 13."""
    return package / name if (package / name).exists() else package / "usr" / name


def _single_entry(folder: Path) -> Path:
    entries = sorted(folder.iterdir())
    if len(entries) != 1:
        raise LabError(f"{folder} has {len(entries)} entries, not one: remove {folder.parent}")
    return entries[0]


@dataclass(frozen=True)
class Apt:
    """apt with package lists of its own: the machine's lists do not change."""

    options: list[str]
    folder: Path
    backports: str
    kernel_suite: str

    def run(self, *command: str, cwd: Path | None = None) -> str:
        return run([command[0], *self.options, *command[1:]], " ".join(command), cwd=cwd)

    def unpack(self, name: str, into: Path) -> None:
        """Fetch and unpack the packages of ``name``; the file ``version`` marks the end."""
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
            if not (into / "lib").exists():  # depmod looks there
                (into / "lib").symlink_to("usr/lib")
            release = _single_entry(into / "lib/modules").name
            # Debian 13 compresses the modules; busybox loads only plain ones.
            for module in (into / "lib/modules" / release).rglob("*.ko.xz"):
                module.with_suffix("").write_bytes(lzma.decompress(module.read_bytes()))
                module.unlink()
            depmod = shutil.which("depmod", path="/usr/sbin:/sbin")
            if not depmod:
                raise LabError("depmod is missing: apt-get install kmod")
            run([depmod, "-b", into, release], "listing the kernel's modules")
            image = into / f"boot/vmlinuz-{release}"
            if not image.exists():  # since 7.0 the image is beside the modules
                image = into / f"lib/modules/{release}/vmlinuz"
            (into / "boot").mkdir(exist_ok=True)
            (into / "boot/vmlinux").write_bytes(uncompressed(image.read_bytes()))
        (into / "version").write_text(next(iter(wanted.values())) + "\n")

    def _qemu(self) -> dict[str, str]:
        """Return name -> version of QEMU's package and its missing dependencies."""
        for suite in ("", self.backports):
            # With NAME/SUITE, apt takes the dependencies of QEMU from the release, not the suite.
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
        """Return name -> version of the packages of QEMU's data files, installed or not."""
        versions = {}
        for name in ("qemu-system-common", "qemu-system-data", "seabios"):
            text = self.run("apt-cache", "show", f"{name}{suite}")
            version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
            if version:
                versions[name] = version[1]
        return versions

    def _kernel(self) -> dict[str, str]:
        """Return name -> version of the kernel's packages.

        Since 7.0 the image's package is empty: it depends on those of the image and the modules.
        """
        suite = f"/{self.kernel_suite}" if self.kernel_suite else ""
        try:
            text = self.run("apt-cache", "show", "--no-all-versions", f"{KERNEL}{suite}")
        except LabError as error:
            raise LabError(
                f"no package source of this machine has {KERNEL}{suite}: {error}"
            ) from None
        image = re.search(r"^Depends:.*?(linux-image-\S+) \(= (\S+)\)", text, re.MULTILINE)
        if not image:
            raise LabError(f"apt knows no {KERNEL}{suite}")
        name, version = image.groups()
        text = self.run("apt-cache", "show", "--no-all-versions", f"{name}={version}")
        depends = re.search(r"^Depends: (.*)", text, re.MULTILINE)
        parts = re.findall(r"(linux-\S+) \(= (\S+)\)", depends[1] if depends else "")
        return {name: version, **dict(parts)}

    def _busybox(self) -> dict[str, str]:
        text = self.run("apt-cache", "show", "--no-all-versions", "busybox-static")
        version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
        if not version:
            raise LabError("apt knows no busybox-static")
        return {"busybox-static": version[1]}


def uncompressed(image: bytes) -> bytes:
    """Return the kernel in a compressed image; an emulated machine takes 10 s to unpack it.

    The format is in Documentation/arch/x86/boot.rst. Raises LabError if it is neither xz (Debian
    12) nor zstd (Debian 13).
    """
    (sectors,) = struct.unpack_from("<B", image, 0x1F1)
    offset, size = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    # The payload ends with the unpacked size, 4 bytes that are not part of the stream.
    payload = image[start : start + size - 4]
    try:
        if payload.startswith(ZSTD):
            done = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, check=True)
            return done.stdout
        return lzma.decompress(payload)
    except FileNotFoundError:
        raise LabError("zstd is missing: apt-get install zstd") from None
    except (lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise LabError(f"the kernel's image cannot be unpacked: {error}") from None


@contextmanager
def apt(folder: Path, kernel_suite: str, sources: bool = False) -> Iterator[Apt]:
    """Return apt with the machine's sources, its backports and ``kernel_suite``; ``sources``: also
    with its source packages."""
    codename = os_release().get("VERSION_CODENAME", "")
    types = "Types: deb deb-src" if sources else "Types: deb"
    stanzas = [text.replace("Types: deb-src", types) for text in required_stanzas(codename)]
    backports = f"{codename}-backports"
    stanzas += [
        re.sub(r"(?m)^Suites: .*$", f"Suites: {suite}", text)
        for suite in dict.fromkeys((backports, kernel_suite))
        for text in stanzas
        if suite and suite != codename and not source_stanzas(suite)
    ]
    state = folder.resolve() / "apt"
    options = private_list_options(state, stanzas)
    try:
        # A mirror without backports is no error here: _qemu checks the version.
        run(["apt-get", *options, "-q", "update"], "reading the package lists", accept_failure=True)
        yield Apt(options, folder, backports, kernel_suite)
    finally:
        shutil.rmtree(state)


def environment(base: Base) -> dict[str, str]:
    """Return the environment of the unpacked QEMU."""
    libraries = base.qemu_folder / "usr/lib/x86_64-linux-gnu"
    # Debian 12 installs a few libraries in /lib, libfuse3 among them.
    folders = (libraries, base.qemu_folder / "lib/x86_64-linux-gnu")
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        "QEMU_MODULE_DIR": str(libraries / "qemu"),
    }


def data_options(base: Base) -> list[str]:
    """Return the options for the firmware folders of the unpacked QEMU."""
    share = base.qemu_folder / "usr/share"
    return [word for name in ("qemu", "seabios") for word in ("-L", str(share / name))]


def qemu_version_line(base: Base) -> str:
    """Return the first line of ``qemu --version``. Raises LabError if QEMU does not start."""
    answer = subprocess.run(
        [base.qemu, "--version"], env=environment(base), capture_output=True, text=True
    )
    if answer.returncode:
        raise LabError(f"the unpacked QEMU does not start: {answer.stderr.strip()[-300:]}")
    return answer.stdout.splitlines()[0]
