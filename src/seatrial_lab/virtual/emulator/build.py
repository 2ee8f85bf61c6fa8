"""Build QEMU with a clock for each processor, once, and save the program.

It installs nothing: sources, libraries' headers and ninja come as packages of the machine's Debian
sources, Meson from PyPI, and all of them are removed after the build. The machine has to have a C
compiler. A lab does not need this QEMU: without it, its hosts share one processor.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial.base.lock import locked
from seatrial.base.run import run
from seatrial.base.say import Say
from seatrial.stack.files import digest, fresh, replace
from seatrial.stack.machine import library_folder
from seatrial_lab.software.packages import SourceArchive
from seatrial_lab.software.pypi import download_wheel, pins
from seatrial_lab.virtual.cache import is_whole, outdated, sum_file
from seatrial_lab.virtual.packages import Apt, apt

HERE = Path(__file__).parent
#: Debian's package has the archive of the project without its firmware ("ds": DFSG, stripped)
SOURCE = SourceArchive(
    "qemu", "10.0.2+ds", "0901da33844a331bf8b3602b9c1fbd178e60b737c8e3ade678255bd090c9b9f1"
)
PATCHES = tuple(HERE / name for name in ("clocks.patch", "wires.patch"))
#: own files -> where they belong in QEMU's source
FILES = {
    "tcg-accel-ops-percpu.c": "accel/tcg",
    "tcg-accel-ops-percpu.h": "accel/tcg",
    "hub-wire.c": "net",
    "hub-wire.h": "net",
    "seatrial.mak": "configs/devices/x86_64-softmmu",
}
WHEELS = HERE / "pypi.lock.txt"
DEVELOPMENT = ("libglib2.0-dev", "zlib1g-dev", "libattr1-dev", "ninja-build", "pkgconf")
OPTIONS = (
    "--target-list=x86_64-softmmu", "--without-default-features", "--without-default-devices",
    "--with-devices-x86_64=seatrial", "--enable-tcg", "--enable-system", "--enable-virtfs",
    "--enable-attr", "--enable-trace-backends=nop", "--disable-fdt", "--disable-docs",
    "--disable-tools", "--disable-install-blobs", "--disable-debug-info", "--disable-werror",
    "--disable-download",
)  # fmt: skip
TARGET = PROGRAM = "qemu-system-x86_64"
WORK = "emulator.work"  # folder of a build
LOCK_FILE = "emulator.lock"  # held by a build
KEPT = 2  # saved builds, of this version of Seatrial and of one before


class NoSource(LabError):
    """The machine's package sources have another version of QEMU only."""


def key() -> str:
    """Return the hash of all that the build is made of."""
    names = [*FILES, *(patch.name for patch in PATCHES), WHEELS.name]
    sources = [(HERE / name).read_bytes() for name in sorted(names)]
    return digest([SOURCE.sha256, *OPTIONS, *sources])


def version() -> str:
    """Return what results call this QEMU."""
    return f"{SOURCE.version} with a clock for each processor, build {key()}"


def saved(folder: Path) -> Path:
    """Return the place of the saved program, built or not."""
    return folder / f"emulator-{key()}" / PROGRAM


def provide(folder: Path, progress: Say) -> Path:
    """Return QEMU with a clock for each processor; build it if it is not saved below ``folder``.

    A saved program that is damaged is built again. One process builds, others wait for it. Raises
    LabError, with the reason, if it can't be built.
    """
    program = saved(folder)
    try:
        with locked(folder / LOCK_FILE, progress):
            if not _is_sound(program, progress):
                _build(folder.resolve(), program, progress)
            shutil.rmtree(folder / WORK, ignore_errors=True)  # of a build that was killed
            for old in outdated(program.parent, "emulator-*", KEPT):
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise LabError(f"QEMU cannot be built: {error}") from None
    return program


def _is_sound(program: Path, progress: Say) -> bool:
    """Return whether the saved program is there and sound; a damaged one is removed."""
    if not program.exists():
        return False
    try:
        _check(program)
        if not is_whole(program):
            raise LabError(f"{program} is not as it was saved")
    except LabError as error:
        progress(f"QEMU is built again: {error}")
        shutil.rmtree(program.parent)
        return False
    return True


def _build(folder: Path, program: Path, progress: Say) -> None:
    for tool in ("cc", "patch"):
        if not shutil.which(tool):
            raise LabError(f"{tool} is missing: apt-get install {'gcc' if tool == 'cc' else tool}")
    work = fresh(folder / WORK)
    try:
        progress("QEMU: fetching its source")
        with apt(work, "", sources=True) as packages:
            archive = _source(packages, work)
            env = _development(packages, fresh(work / "root"))
        python = _meson(work)
        progress("QEMU: configuring")
        run(["tar", "-xf", archive, "-C", work], "unpacking QEMU")
        (source,) = work.glob("qemu-*/")
        _patch(source)
        build = fresh(work / "build")
        version = f"--with-pkgversion={_mark()}"
        command: list[str | Path] = [source / "configure", f"--python={python}", version, *OPTIONS]
        run(command, "configuring QEMU", cwd=build, env=env)
        _compile(build, env, progress)
        done = fresh(work / "done")
        run(["strip", "-o", done / PROGRAM, build / TARGET], "stripping QEMU")
        _check(done / PROGRAM)
        sum_file(done / PROGRAM).write_text(sha256(done / PROGRAM))
        replace(done, program.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _mark() -> str:
    return f"seatrial-{key()}"


def _check(program: Path) -> None:
    """Raises LabError if the program is not the one that was built from these files."""
    text = run([program, "--version"], "the built QEMU")
    upstream = SOURCE.version.partition("+")[0]
    if f"version {upstream} ({_mark()})" not in text:
        raise LabError(f"{program} is not QEMU {upstream} with clocks of processors")


def _source(packages: Apt, work: Path) -> Path:
    """Download the pinned archive, of whichever version of Debian's package has it."""
    text = packages.run("apt-cache", "showsrc", SOURCE.package)
    for block in text.split("\n\n"):
        version = re.search(r"^Version: (\S+)", block, re.MULTILINE)
        if version and SOURCE.sha256 in block:
            break
    else:
        reason = f"no package source of this machine has the source of QEMU {SOURCE.version}"
        if packages.failed_update:
            raise LabError(reason + packages.failed_update)
        raise NoSource(reason)
    packages.run(
        "apt-get", "-q", "source", "--download-only", "--tar-only",
        f"{SOURCE.package}={version[1]}", cwd=work,
    )  # fmt: skip
    for file in work.glob("*.orig.tar.*"):
        if sha256(file) == SOURCE.sha256:
            return file
    raise LabError(f"apt delivered another source than that of QEMU {SOURCE.version}")


def _development(packages: Apt, root: Path) -> dict[str, str]:
    """Unpack what the build needs and the machine lacks. Returns the build's environment."""
    text = packages.run("apt-get", "-s", "-q", "--no-install-recommends", "install", *DEVELOPMENT)
    missing = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", text, re.MULTILINE)
    if missing:
        names = [f"{name}={version}" for name, version in missing]
        packages.run("apt-get", "-q", "download", *names, cwd=root)
    for deb in root.glob("*.deb"):
        run(["dpkg-deb", "-x", deb, root], f"unpacking {deb.name}")
        deb.unlink()
    libraries = root / library_folder().relative_to("/")
    for file in libraries.glob("pkgconfig/*.pc"):
        text = file.read_text().replace("prefix=/usr", f"prefix={root}/usr", 1)
        file.write_text(text.replace("=/usr/", f"={root}/usr/"))
    for link in libraries.glob("*.so"):
        if not link.exists():  # its library is installed
            name = link.readlink().name
            link.unlink()
            link.symlink_to(library_folder() / name)
    return {
        "PATH": f"{root}/usr/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "LD_LIBRARY_PATH": str(libraries),
    }


def _meson(work: Path) -> Path:
    """Return a Python that has Meson: QEMU needs a later one than Debian 12 has."""
    run([sys.executable, "-I", "-m", "venv", work / "venv"], "making a virtual environment")
    python = work / "venv/bin/python3"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheels = [download_wheel(name, work / "wheels", version, WHEELS) for name in pins(WHEELS)]
    run([python, "-I", "-m", "pip", "install", "-q", "--no-index", "--no-deps", *wheels], "Meson")
    return python


def _patch(source: Path) -> None:
    for name, place in FILES.items():
        shutil.copy(HERE / name, source / place / name)
    for patch in PATCHES:
        run(["patch", "-d", source, "-p1", "-F0", "-i", patch], "patching QEMU")


def _compile(build: Path, env: dict[str, str], progress: Say) -> None:
    """Run ninja with progress. Raises LabError with the end of its output."""
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    process = subprocess.Popen(
        ["ninja", jobs, TARGET], cwd=build, env={**os.environ, **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    last: list[str] = []
    try:
        for line in process.stdout:
            last = [*last[-14:], line.rstrip()]
            step = re.match(r"\[(\d+)/(\d+)\]", line)
            if step and (int(step[1]) % 50 == 0 or int(step[1]) == int(step[2]) - 1):
                progress(f"QEMU: building, step {step[1]} of {step[2]}")
        code = process.wait()
    except BaseException:  # Ctrl-C also, which may reach this process alone
        process.terminate()  # ninja ends its compilers
        process.wait()
        raise
    if code:
        raise LabError(f"building QEMU failed: {_why(code, last)}\n" + "\n".join(last))


def _why(code: int, last: Sequence[str]) -> str:
    """One line: the first error in the end of ninja's output, else how ninja ended."""
    if code < 0:
        return f"ninja ended by signal {-code} ({signal.strsignal(-code)})"
    errors = [line for line in last if re.search(r"\berror\b|Killed|No space", line)]
    return next(iter(errors or last[-1:]), f"ninja ended with code {code} and wrote nothing")
