"""QEMU, busybox and the guest's kernel, unpacked from packages of the machine's Debian sources.

It installs nothing: the machine's own emulator and kernel do not change. A virtual lab needs a QEMU
with a model of the igb card. If the machine's Debian has an older QEMU, the package comes from the
backports of that Debian, at the machine's configured mirror. A kernel of another suite comes from
the same mirror.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.base.say import Say, say_nothing
from seatrial.stack.machine import os_release
from seatrial_lab.software.debian_sources import (
    private_list_options,
    required_stanzas,
    source_stanzas,
)
from seatrial_lab.virtual import kernels

KERNEL = "linux-image-amd64"
QEMU = "qemu-system-x86"
IGB_VERSION = (8, 0)  # the first QEMU with a model of the igb card
RUN_WITH_USER_VERSION = (9, 1)
UPDATE_TIMEOUT_S, DOWNLOAD_TIMEOUT_S = 600.0, 3600.0  # of apt, on a slow line


@dataclass(frozen=True)
class Base:
    """The files that start a guest. The versions are versions of Debian packages, or name files.

    ``drivers`` are modules that replace the kernel's own.
    """

    qemu: Path
    qemu_version: str
    kernel: Path
    kernel_release: str
    kernel_version: str
    modules: Path
    busybox: Path
    drivers: tuple[Path, ...] = ()

    @property
    def runs_with_user(self) -> bool:
        """Whether QEMU has ``-run-with user=``, which replaces ``-runas``."""
        number = re.match(r"(?:\d+:)?(\d+)\.(\d+)", self.qemu_version)
        return number is not None and (int(number[1]), int(number[2])) >= RUN_WITH_USER_VERSION

    @property
    def qemu_folder(self) -> Path:
        """The folder of the unpacked QEMU package."""
        return self.qemu.parents[2]


def provide(
    folder: Path,
    kernel: str = "",
    drivers: tuple[str, ...] = (),
    progress: Say = say_nothing,
) -> Base:
    """Return QEMU, kernel and busybox below ``folder``; fetch missing ones. Raises LabError.

    ``kernel`` is a Debian suite, the folder of a kernel (``kernels.provide_own``), or empty: of the
    machine's release. ``drivers`` are files of modules that replace the kernel's.
    """
    folder = folder.resolve()
    suite = "" if kernel.startswith("/") else kernel
    parts = {name: folder / name for name in ("qemu", "kernel", "busybox")}
    if kernel:
        parts["kernel"] = (
            folder / f"kernel-{suite}"
            if suite
            else kernels.provide_own(Path(kernel), folder, progress)
        )
    missing = [name for name, part in parts.items() if not (part / kernels.VERSION).is_file()]
    if missing:
        with apt(folder, suite if "kernel" in missing else "") as packages:
            for name in missing:
                progress(f"fetching {name}")
                packages.unpack(name, parts[name])
    modules = kernels.only_entry(kernels.unpacked_folder(parts["kernel"], "lib/modules"))
    own_drivers = tuple(map(Path, drivers))
    return Base(
        qemu=parts["qemu"] / "usr/bin/qemu-system-x86_64",
        qemu_version=(parts["qemu"] / "version").read_text().strip(),
        kernel=parts["kernel"] / "boot/vmlinux",
        kernel_release=modules.name,
        kernel_version=(parts["kernel"] / kernels.VERSION).read_text().strip()
        + kernels.drivers_version(own_drivers),
        modules=modules,
        busybox=kernels.only_entry(kernels.unpacked_folder(parts["busybox"], "bin")),
        drivers=own_drivers,
    )


@dataclass(frozen=True)
class Apt:
    """apt with package lists of its own: the machine's lists do not change.

    ``failed_update``: the end of an error message, with what apt said; empty: it read its lists.
    """

    options: list[str]
    backports: str
    kernel_suite: str
    failed_update: str = ""

    def run(self, *command: str, cwd: Path | None = None) -> str:
        return run(
            [command[0], *self.options, *command[1:]], " ".join(command), cwd=cwd,
            timeout_s=DOWNLOAD_TIMEOUT_S,
        )  # fmt: skip

    def unpack(self, name: str, into: Path) -> None:
        """Fetch and unpack the packages of ``name``; the file ``version`` marks the end."""
        wanted = {"qemu": self._qemu, "kernel": self._kernel, "busybox": self._busybox}[name]()
        shutil.rmtree(into, ignore_errors=True)
        debs = into / "debs"
        debs.mkdir(parents=True)
        self.run(
            "apt-get",
            "-q",
            "download",
            *(f"{package}={v}" for package, v in wanted.items()),
            cwd=debs,
        )
        for deb in sorted(debs.glob("*.deb")):
            run(["dpkg-deb", "-x", deb, into], f"unpacking {deb.name}")
        shutil.rmtree(debs)
        if name == "kernel":
            kernels.prepare(into)
        (into / kernels.VERSION).write_text(next(iter(wanted.values())) + "\n")

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
            + self.failed_update
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
                + self.failed_update
            ) from None
        image = re.search(r"^Depends:.*?(linux-image-\S+) \(= (\S+)\)", text, re.MULTILINE)
        if not image:
            known = "such as bookworm, bookworm-backports or trixie-backports"
            of_site = f": lab.kernel is a suite of Debian, {known}" if suite else ""
            raise LabError(f"apt knows no {KERNEL}{suite}{of_site}")
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
        failed = ""
        try:
            run(
                ["apt-get", *options, "-q", "update"], "reading the package lists",
                timeout_s=UPDATE_TIMEOUT_S,
            )  # fmt: skip
        except LabError as error:
            # A mirror without backports is no error here: _qemu checks the version.
            failed = f"\n{error}"
        yield Apt(options, backports, kernel_suite, failed)
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
