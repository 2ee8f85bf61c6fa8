"""The programs that are predicted, built for SMPI: the kernels of NPB, and the ping-pong; and what
counts messages.

IS and EP are by default those of the labs' stack: the C programs of SimGrid's source distribution.
SimGrid's EP computes a part of its loop only, extrapolates, and has one memory for all ranks; here
it computes all in memory of its own, so that its verification holds. All kernels come from the
source of NPB 3.4 itself, where there is one.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.base.run import run
from seatrial.predict.simulation import COUNTER, PINGPONG, WAITALL, compile_c, require
from seatrial.stack.files import unpack_tar
from seatrial.stack.paths import HOME

#: in C, in SimGrid's source distribution
OF_SIMGRID = ("is", "ep")
SUITE = "NPB3.4-MPI"
RECIPE = CHECKOUT / "spack-repo/spack_repo/seatrial/packages/npb/package.py"
#: what stages the source of the recipe (docs/maintain-the-stack.md)
STAGE = "spack stage --path FOLDER seatrial.npb@3.4.3"
#: as the recipe's, but for the compilers; a flag that gfortran has since version 10
_MAKE_DEF = """\
MPIFC = {fortran}
FLINK = $(MPIFC)
FFLAGS = -O3 -fallow-argument-mismatch
FLINKFLAGS = $(FFLAGS)
MPICC = {c}
CLINK = $(MPICC)
CFLAGS = -O3
CLINKFLAGS = $(CFLAGS)
CC = gcc
BINDIR = ../bin
RAND = randi8
"""
#: what another compiler may have left in the source
_MADE = shutil.ignore_patterns("bin", "*.o", "*.mod")
#: of ep.c: what it has, how often, and what it gets
_EDITS = (
    ("SMPI_SAMPLE_GLOBAL(k = 1, k <= np, k++, 0.25 * np, 0.03){", 1, "for (k = 1; k <= np; k++) {"),
    ("SMPI_SHARED_MALLOC", 2, "malloc"),
    ("SMPI_SHARED_FREE", 2, "free"),
    # thousands of operations under the heading Mop/s
    ("/tm/1000;", 1, "/tm/1000000.0;"),
)

# of the output of readelf: what programs of SMPI have, or have not
_SHARED = re.compile(r"^ *Type: +DYN\b", re.M)
_EXECUTABLE = re.compile(r"\(FLAGS_1\).*\bPIE\b")  # glibc loads none as a library
_ENTRY = re.compile(r" (?!UND)\w+ +(?:main|user_main_)$", re.M)
_OF_AN_MPI = re.compile(r"\(NEEDED\).*\[(lib(?:mpi|mpich|mpicxx|mpi_\w+|mpichf\w+)\.so[^\]]*)\]")


class Kernels:
    """The kernels of NPB, each built when it is first needed.

    ``simgrid`` gives SimGrid's archive. ``suite``: the folder of the source of NPB (see
    ``suite_in``). ``own_suite``: IS and EP come from it as well.
    """

    def __init__(
        self,
        folder: Path,
        simgrid: Callable[[], Path],
        suite: Path | None = None,
        own_suite: bool = False,
    ):
        self._folder, self._simgrid, self._suite = folder, simgrid, suite
        self._own_suite = own_suite
        self._copy: Path | None = None
        self._built: dict[str, Path] = {}

    def command(self, variant: str, ranks: int) -> list[str | Path]:
        """How to run a kernel such as ``ft.A``. Raises LabError, InputError without a source."""
        kernel, _, problem_class = variant.partition(".")
        if kernel in OF_SIMGRID and not self._own_suite:
            if kernel not in self._built:
                self._built |= build_npb(self._simgrid(), self._folder)
            return [self._built[kernel], str(ranks), problem_class]
        if self._suite is None:
            raise InputError(without_source(kernel))
        if variant not in self._built:
            if self._copy is None:
                self._copy = shutil.copytree(self._suite, self._folder / SUITE, ignore=_MADE)
            self._built[variant] = build_suite(self._copy, kernel, problem_class)
        return [self._built[variant]]


def without_source(kernel: str) -> str:
    """What to do where there is no source of a kernel."""
    return (
        f"npb-{kernel} is built from the source of NPB 3.4, which Seatrial does not have: fetch it "
        f"with '{STAGE}', or from https://www.nas.nasa.gov/software/npb.html, and name the folder "
        "or the archive by --source"
    )


def check_program(program: Path) -> None:
    """Refuse a program that SMPI cannot load: not built by smpicc, smpicxx or smpif90.

    SMPI loads the program as a shared library, once for each rank, and calls its ``main``, or the
    ``user_main_`` of smpif90 (src/smpi/internals/smpi_global.cpp of SimGrid). Raises InputError
    with the reason and the command that builds it, LabError without readelf.
    """
    if not (why := _not_of_smpi(program)):
        return
    raise InputError(
        f"--program: {program} is not built for SMPI: {why}. Build it with SimGrid's compilers, "
        f"such as 'smpicc -O3 -o {program.name} SOURCE.c' (smpicxx, smpif90), or 'make CC=smpicc'"
    )


def _not_of_smpi(program: Path) -> str:
    """Why SMPI cannot load a program, or ""."""
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return "it is no ELF file, but a script or something else"
    # binutils come with every compiler, and thus with smpicc
    text = run(["readelf", "-W", "-h", "-d", "--dyn-syms", program], f"reading {program}",
               env={"LC_ALL": "C"}, accept_failure=True)  # fmt: skip
    if library := _OF_AN_MPI.search(text):
        return f"it is linked with {library[1]}, another MPI"
    if not _SHARED.search(text) or _EXECUTABLE.search(text) or not _ENTRY.search(text):
        return "it is no shared library with a main, as those that smpicc builds are"
    return ""


def suite_in(source: Path, folder: Path) -> Path:
    """The folder NPB3.4-MPI at or below ``source``, a folder or an archive of NPB 3.4, which is
    unpacked in ``folder``. Raises InputError.
    """
    if source.is_file():
        try:
            top = unpack_tar(source, folder / "npb")
        except (tarfile.TarError, OSError, LabError) as error:
            raise InputError(f"--source {source}: it is no archive: {error}") from None
    elif source.is_dir():
        top = source
    else:
        raise InputError(f"--source {source}: there is no such folder or archive")
    for below in ("", SUITE, f"*/{SUITE}", f"*/*/{SUITE}"):
        for found in sorted(top.glob(below)) if below else [top]:
            if (found / "sys/make.common").is_file() and (found / "IS/is.c").is_file():
                return found
    raise InputError(
        f"--source {source}: there is no {SUITE} of NPB 3.4 in it (sys/make.common, IS/is.c); the "
        "archive NPB3.4.3.tar.gz has one"
    )


def kept_archive(home: Path = HOME) -> Path | None:
    """The archive of NPB 3.4 that Spack has for the stack of this checkout, if it has built it.

    Spack's source cache names an archive by its checksum (``mirrors/layout.py``), which the recipe
    has.
    """
    match = re.search(r'version\("3\.4[^"]*", sha256="(\w+)"', RECIPE.read_text())
    assert match, RECIPE
    folder = home / "sources/_source-cache/archive" / match[1][:2]
    return next(iter(folder.glob(f"{match[1]}*")), None)


def build_suite(suite: Path, kernel: str, problem_class: str) -> Path:
    """Build a kernel of NPB 3.4 in its folder. Raises LabError."""
    for program in ("make", "gfortran"):
        if shutil.which(program) is None:
            raise LabError(
                f"npb-{kernel} is built with {program}, which is not in PATH (apt-get install "
                f"{program})"
            )
    for program in ("smpicc", "smpif90"):
        require(program)
    return make_kernel(suite, kernel, problem_class, "smpif90", "smpicc")


def make_kernel(suite: Path, kernel: str, problem_class: str, fortran: str, c: str) -> Path:
    """Build a kernel of NPB 3.4 in its folder by these compilers. Raises LabError, InputError."""
    (suite / "config/make.def").write_text(_MAKE_DEF.format(fortran=fortran, c=c))
    (suite / "bin").mkdir(exist_ok=True)
    folder = suite / kernel.upper()
    if not (folder / "Makefile").is_file():
        raise InputError(f"--source: {SUITE} has no {kernel.upper()}/Makefile")
    # objects depend on the class, which the makefiles do not see
    run(["make", "-C", folder, "clean"], f"cleaning npb-{kernel}")
    # NPB 3.4.3 chooses how Fortran knows MPI; SimGrid's module is of one version of gfortran
    run(
        ["make", "-C", folder, f"CLASS={problem_class}", "F08=f"],
        f"building npb-{kernel} of class {problem_class} with {fortran}",
    )
    return suite / "bin" / f"{kernel}.{problem_class}.x"


def build_npb(archive: Path, folder: Path) -> dict[str, Path]:
    """Kernel -> program, which takes the number of ranks and the class. Raises LabError."""
    source = unpack_tar(archive, folder, "examples/smpi/NAS") / "examples/smpi/NAS"
    file = source / "ep.c"
    text = file.read_text()
    for old, count, new in _EDITS:
        if text.count(old) != count:
            raise LabError(
                f"ep.c is not the version this was written for: {old!r} occurs {text.count(old)} "
                f"times and not {count}"
            )
        text = text.replace(old, new)
    file.write_text(text)
    return {
        kernel: compile_c([source / f"{kernel}.c", source / "nas_common.c"], folder / kernel)
        for kernel in OF_SIMGRID
    }


def build_pingpong(folder: Path) -> Path:
    """Raises LabError."""
    return compile_c([PINGPONG], folder / "pingpong")


def build_counter(folder: Path) -> Path:
    """The library that counts messages, for ``simulate``; with it many requests are waited for
    faster. Raises LabError."""
    return compile_c([COUNTER, WAITALL], folder / "messages.so", "-shared", "-fPIC")
