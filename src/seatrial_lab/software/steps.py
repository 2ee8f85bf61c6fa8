"""The steps of ``provision`` after the Debian packages, each with a key for its inputs.

A step runs again only if its key changes. The key is a hash of the step's data, of the functions of
``build`` and the files of this package that it uses, and of the versions of the Debian packages
that it builds with.
"""

from __future__ import annotations

import ast
import inspect
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.base.paths import CHECKOUT
from seatrial.stack.files import digest, fresh, unpack_wheel_data, unpack_wheel_packages
from seatrial_lab.software import build, pmi, pypi
from seatrial_lab.software.debian_sources import download_sources
from seatrial_lab.software.packages import SOURCES, Release

HERE = Path(__file__).parent
SYSTEM_PYTHON = "/usr/bin/python3"
_PACKAGES = CHECKOUT / "spack-repo/spack_repo/seatrial/packages"
COMMS = _PACKAGES / "comms/comms.c"
MPI_PAIRS = _PACKAGES / "mpi_pairs/mpi_pairs.c"
MPI_TIME = _PACKAGES / "mpi_time/mpi_time.c"
MPI_BENCH = HERE / "mpbench/mpi_bench.c"
NPB_FILES = ("npb/smpi/mpi.h", "npb/simgrid/instr.h")
HPCC_FILES = (build.SELECT, "hpcc/mpi3.h", "hpcc/Make.seatrial.j2")


@dataclass(frozen=True)
class Step:
    """A download or a build.

    A step is outdated if ``key`` has changed or a file of ``makes`` is missing. ``do`` takes a
    folder for temporary files and raises LabError. ``verb`` is ``fetch`` or ``build``.
    """

    name: str
    what: str
    key: str
    makes: tuple[Path, ...]
    do: Callable[[Path], None] = field(repr=False)
    verb: str = "build"


def system_python() -> str:
    """Return the version, e.g. 3.11, of the Python that runs OSU's programs on the nodes."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([SYSTEM_PYTHON, "-IS", "-c", code], capture_output=True, text=True)
    except FileNotFoundError:
        return platform.python_version().rpartition(".")[0]
    return done.stdout.strip()


def steps(prefix: Path, release: Release, versions: dict[str, str]) -> list[Step]:
    """Return all steps in order. ``versions`` are the versions of installed Debian packages."""
    downloads = [replace(step, verb="fetch") for step in _downloads(prefix, release)]
    builds = [step for family in build.FAMILIES for step in _builds(prefix, family, versions)]
    return [*downloads, *builds, _osu(prefix), _pmi(prefix)]


def _downloads(prefix: Path, release: Release) -> list[Step]:
    python = system_python()
    cache = prefix / "sources"
    pins = {name: pypi.requirement(pypi.WHEELS, name) for name in pypi.pins(pypi.WHEELS)}
    sources = {name: pypi.requirement(pypi.SOURCES, name) for name in pypi.pins(pypi.SOURCES)}

    def data(name: str, place: Path, work: Path) -> None:
        unpack_wheel_data(pypi.download_wheel(name, work, python), place)

    def packages(name: str, place: Path, work: Path) -> None:
        unpack_wheel_packages(pypi.download_wheel(name, work, python), place)

    def archive(name: str, work: Path) -> None:
        cache.mkdir(exist_ok=True)
        file = pypi.download_source(name, work)
        file.replace(cache / f"{name}.tar.gz")

    def debian(work: Path) -> None:
        cache.mkdir(exist_ok=True)
        files = download_sources(list(SOURCES.values()), release.codename, work)
        for name, file in zip(SOURCES, files, strict=True):
            file.replace(cache / f"{name}.tar.gz")

    return [
        Step(
            "mpich", "MPICH from PyPI", digest([pins["mpich"]]),
            (prefix / "mpich/lib/libmpi.so.12",), partial(data, "mpich", prefix / "mpich"),
        ),
        Step(
            "intelmpi", "Intel MPI and IMB from PyPI", digest([pins["impi-rt"]]),
            (prefix / "intelmpi/bin/IMB-MPI1",), partial(data, "impi-rt", prefix / "intelmpi"),
        ),
        Step(
            "mpi4py", f"mpi4py from PyPI for Python {python}", digest([pins["mpi4py"], python]),
            (prefix / "python/mpi4py",), partial(packages, "mpi4py", prefix / "python"),
        ),
        *(
            Step(
                f"source-{name}", f"source of {name} from PyPI", digest([line]),
                (cache / f"{name}.tar.gz",), partial(archive, name),
            )
            for name, line in sources.items()
        ),
        Step(
            "source-debian", f"sources of {' and '.join(SOURCES)} from Debian",
            digest(source.sha256 for source in SOURCES.values()),
            tuple(cache / f"{name}.tar.gz" for name in SOURCES), debian,
        ),
    ]  # fmt: skip


def _builds(prefix: Path, family: str, versions: dict[str, str]) -> list[Step]:
    bench = prefix / "bench" / family
    cache = prefix / "sources"
    blas = build.reference_blas()
    mpi = versions.get("libopenmpi-dev", "") if family == "openmpi" else "mpich"
    base = [family, mpi, str(prefix), _files("pypi.lock.txt")]

    def key(function: Callable[..., Any], *inputs: str | bytes) -> str:
        return digest([*base, code_of(build.mpi), code_of(function), *inputs])

    def netpipe(work: Path) -> None:
        build.netpipe(cache / "netpipe.tar.gz", build.mpi(family, prefix), bench, work)

    def comms(work: Path) -> None:
        build.comms(COMMS, build.mpi(family, prefix), bench, work)

    def mpi_pairs(work: Path) -> None:
        build.mpi_pairs(MPI_PAIRS, build.mpi(family, prefix), bench, work)

    def mpi_time(work: Path) -> None:
        build.mpi_time(MPI_TIME, build.mpi(family, prefix), bench, work)

    def mpbench(work: Path) -> None:
        build.mpbench(MPI_BENCH, build.mpi(family, prefix), bench, work)

    def npb(work: Path) -> None:
        build.npb(cache / "simgrid.tar.gz", build.mpi(family, prefix), bench, work)

    def hpcc(work: Path) -> None:
        build.hpcc(cache / "hpcc.tar.gz", build.mpi(family, prefix), bench, work, blas)

    return [
        Step(
            f"netpipe-{family}", f"NetPIPE with {family}",
            key(build.netpipe, SOURCES["netpipe"].sha256), (bench / "NPmpi",), netpipe,
        ),
        Step(
            f"comms-{family}", f"comms with {family}", key(build.comms, COMMS.read_bytes()),
            (bench / "comms",), comms,
        ),
        Step(
            f"mpi_pairs-{family}", f"mpi_pairs with {family}",
            key(build.mpi_pairs, MPI_PAIRS.read_bytes()), (bench / "mpi_pairs",), mpi_pairs,
        ),
        Step(
            f"mpi_time-{family}", f"the library mpi_time with {family}",
            key(build.mpi_time, MPI_TIME.read_bytes()), (bench / "mpi_time.so",), mpi_time,
        ),
        Step(
            f"mpbench-{family}", f"mpi_bench with {family}",
            key(build.mpbench, MPI_BENCH.read_bytes()), (bench / "mpi_bench",), mpbench,
        ),
        Step(
            f"npb-{family}", f"NPB IS and EP with {family}",
            key(build.npb, _files("pypi-sources.lock.txt", *NPB_FILES)),
            (bench / "is", bench / "ep"), npb,
        ),
        Step(
            f"hpcc-{family}", f"hpcc with {family}",
            key(build.hpcc, SOURCES["hpcc"].sha256, _files(*HPCC_FILES)),
            (bench / "hpcc",), hpcc,
        ),
    ]  # fmt: skip


def _osu(prefix: Path) -> Step:
    return Step(
        "osu",
        "OSU's programs in Python",
        digest([code_of(build.osu), _files("pypi-sources.lock.txt", "osu/run.py")]),
        (prefix / "osu/run.py",),
        lambda work: build.osu(prefix / "sources/mpi4py.tar.gz", prefix / "osu", work),
    )


def _pmi(prefix: Path) -> Step:
    return Step(
        "pmi",
        "the library for MPICH under Slurm's PMI server",
        digest([_files("pmi/__init__.py", "pmi/shorter.c")]),
        (prefix / pmi.LIBRARY,),
        lambda work: pmi.build(prefix, work),
    )


def code_of(function: Callable[..., Any]) -> str:
    """The source of a function, and of what it uses of its module: functions, classes, constants.

    So a new function in a module does not change the keys of the other functions.
    """
    text = Path(inspect.getfile(function)).read_text()
    parts: dict[str, ast.stmt] = {}
    for part in ast.parse(text).body:
        match part:
            case ast.FunctionDef() | ast.ClassDef():
                parts[part.name] = part
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                parts[name] = part
    used: list[str] = []
    left = [function.__name__]
    while left:
        name = left.pop()
        if name in parts and name not in used:
            used.append(name)
            left += [node.id for node in ast.walk(parts[name]) if isinstance(node, ast.Name)]
    return "\n".join(ast.get_source_segment(text, parts[name]) or "" for name in sorted(used))


def _files(*names: str | Path) -> str:
    return digest((HERE / name).read_bytes() for name in names)


def is_done(step: Step, stamps: Path) -> bool:
    """Return whether a step is finished with its present key and its files exist."""
    try:
        stamp = (stamps / step.name).read_text()
    except OSError:
        return False
    return stamp == step.key and all(made.exists() for made in step.makes)


def carry_out(step: Step, stamps: Path, work: Path) -> None:
    """Execute a step and record its key. Raises LabError."""
    stamps.mkdir(parents=True, exist_ok=True)
    stamp = stamps / step.name
    stamp.unlink(missing_ok=True)
    step.do(fresh(work))
    stamp.write_text(step.key)
