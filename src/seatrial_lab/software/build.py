"""The builds: each benchmark program for each MPI ABI.

A build takes unpacked sources and leaves finished files in the prefix. Open MPI's programs are
made with its mpicc's flags; those of the MPICH ABI are linked with PyPI's libmpi.so.12 by path,
so that no search path is left in them and LD_LIBRARY_PATH alone decides which MPI they get.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from seatrial.base.errors import LabError
from seatrial.base.paths import CHECKOUT
from seatrial.base.run import run
from seatrial.stack.files import fresh, replace, unpack_tar
from seatrial.stack.machine import library_folder

HERE = Path(__file__).parent
#: hpcc's choice of tests, a file of the recipe
SELECT = CHECKOUT / "spack-repo/spack_repo/seatrial/packages/hpcc/select.c"
WARNINGS = ["-w", "-std=gnu17"]  # old C: newer compilers would refuse it as C23
FAMILIES = ("openmpi", "mpich")

_WRAPPED = re.compile(r"__wrap_(\w+)\(|X\(\w+, (\w+)\)")


@dataclass(frozen=True)
class Mpi:
    """How to compile and link C with one MPI ABI."""

    family: str
    compile_flags: list[str]
    link_flags: list[str]


def mpi(family: str, prefix: Path) -> Mpi:
    """Raises LabError where the MPI is not there."""
    if family == "mpich":
        home = prefix / "mpich"
        return Mpi(family, [f"-I{home}/include"], [f"{home}/lib/libmpi.so.12"])
    flags = [
        shlex.split(run(["mpicc.openmpi", f"--showme:{kind}"], "asking Open MPI's mpicc"))
        for kind in ("compile", "link")
    ]
    return Mpi(family, *flags)


def reference_blas() -> Path:
    """The libblas.so.3 that programs are linked with; at run time another may take its place."""
    return library_folder() / "blas" / "libblas.so.3"


def netpipe(archive: Path, target: Mpi, bench: Path, work: Path) -> None:
    """NPmpi. Raises LabError."""
    source = unpack_tar(archive, work, "src") / "src"
    _compile(
        [source / "netpipe.c", source / "mpi.c"],
        bench / "NPmpi",
        ["-O2", "-DMPI", f"-I{source}"],
        target,
    )


def comms(source: Path, target: Mpi, bench: Path, work: Path) -> None:
    """The project's own ping-pong, from the C file of its Spack recipe. Raises LabError."""
    copy = work / source.name
    copy.write_bytes(source.read_bytes())
    _compile([copy], bench / "comms", ["-O2"], target, ["-lm"])


def mpi_time(source: Path, target: Mpi, bench: Path, work: Path) -> None:
    """The library that times MPI calls, from the C file of its recipe. Raises LabError."""
    copy = work / source.name
    copy.write_bytes(source.read_bytes())
    _compile([copy], bench / "mpi_time.so", ["-O2", "-shared", "-fPIC"], target)


def mpi_pairs(source: Path, target: Mpi, bench: Path, work: Path) -> None:
    """Pairs of ranks at once, from the C file of its recipe. Raises LabError."""
    copy = work / source.name
    copy.write_bytes(source.read_bytes())
    _compile([copy], bench / "mpi_pairs", ["-O2"], target)


def mpbench(source: Path, target: Mpi, bench: Path, work: Path) -> None:
    """MPI by the method of MPBench, from the C file beside. Raises LabError."""
    copy = work / source.name
    copy.write_bytes(source.read_bytes())
    _compile([copy], bench / "mpi_bench", ["-O2"], target)


def npb(archive: Path, target: Mpi, bench: Path, work: Path) -> None:
    """NPB's IS and EP; each takes ``ranks class`` as arguments. Raises LabError."""
    source = unpack_tar(archive, work, "examples/smpi/NAS") / "examples/smpi/NAS"
    # SimGrid's EP prints thousands of operations under the heading Mop/s; NPB 3.3 has 10^6.
    _edit(source / "ep.c", "/tm/1000;", "/tm/1000000.0;")
    for kernel in ("is", "ep"):
        _compile(
            [source / f"{kernel}.c", source / "nas_common.c"],
            bench / kernel,
            ["-O3", f"-I{HERE / 'npb'}"],
            target,
            ["-lm"],
        )


def hpcc(archive: Path, target: Mpi, bench: Path, work: Path, blas: Path) -> None:
    """hpcc with a choice of tests (``SELECT``), linked with any libblas.so.3.

    Raises LabError.
    """
    source = unpack_tar(archive, work)
    select_object = source / "select.o"
    run(["gcc", "-O2", "-c", SELECT, "-o", select_object], "compiling hpcc's choice of tests")
    template = Environment(undefined=StrictUndefined, autoescape=False).from_string(
        (HERE / "hpcc" / "Make.seatrial.j2").read_text()
    )
    text = template.render(
        compile_flags=" ".join(target.compile_flags),
        link_flags=" ".join(target.link_flags),
        select_object=select_object,
        mpi3=HERE / "hpcc" / "mpi3.h",
        blas=blas,
        wrapped=wrapped_functions(SELECT.read_text()),
    )
    (source / "hpl" / "Make.seatrial").write_text(text + "\n")
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    run(["make", jobs, "arch=seatrial"], f"building hpcc with {target.family}", cwd=source)
    _install(source / "hpcc", bench / "hpcc")


def wrapped_functions(select: str) -> list[str]:
    """The functions of hpcc that select.c stands in front of, read from its text."""
    names = [first or second for first, second in _WRAPPED.findall(select)]
    return sorted({name for name in names if name != "function"} - {"__wrap_"})


def osu(archive: Path, folder: Path, work: Path) -> None:
    """OSU's programs in Python, and the launcher that passes options to them."""
    source = unpack_tar(archive, work, "demo") / "demo"
    partial = fresh(work / "osu")
    for file in [*sorted(source.glob("osu_*.py")), HERE / "osu" / "run.py"]:
        (partial / file.name).write_bytes(file.read_bytes())
    replace(partial, folder)


def _compile(
    sources: list[Path],
    program: Path,
    flags: list[str],
    target: Mpi,
    libraries: Sequence[str] = (),
) -> None:
    partial = sources[0].parent / program.name
    command: list[str | Path] = [
        "gcc", *WARNINGS, *flags, *target.compile_flags, *sources, "-o", partial,
        *target.link_flags, *libraries,
    ]  # fmt: skip
    run(command, f"building {program.name} with {target.family}")
    _install(partial, program)


def _install(built: Path, place: Path) -> None:
    built.chmod(0o755)
    replace(built, place)


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if text.count(old) != 1:
        raise LabError(f"{file.name} is not the version this was written for: no single {old!r}")
    file.write_text(text.replace(old, new))
