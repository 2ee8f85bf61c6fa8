"""MPI libraries of PyPI as externals of Spack: Intel MPI, and MPICH over libfabric.

Unpacks wheels into the folders that Spack's recipes expect of these libraries. It knows nothing
of packages.yaml.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.stack.files import fresh, unpack_wheel_data

#: what Intel's compiler wrappers carry in place of their prefix
_INTEL_PLACEHOLDERS = (
    "I_MPI_SUBSTITUTE_INSTALLDIR",
    "__EXEC_PREFIX_TO_BE_FILLED_AT_INSTALL_TIME__",
)
LAYOUT = 2  #: of Intel MPI's folder; another number makes it anew
_VARS = """\
# Spack reads these variables into the modules.
export I_MPI_ROOT="{home}"
export PATH="{home}/bin:$PATH"
export LD_LIBRARY_PATH="{home}/libfabric/lib:{home}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export FI_PROVIDER_PATH="{home}/libfabric/lib/libfabric"
"""


@dataclass(frozen=True)
class External:
    """One external: Spack's name, its spec, and what its folder holds."""

    package: str
    spec: str
    prefix: str
    links: dict[str, Path] = field(default_factory=dict)
    """path below the prefix -> what it points at"""


def download(requirement: str, into: Path) -> Path:
    """One wheel. Raises LabError."""
    into.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
        "--no-deps", "--only-binary", ":all:", "-d", into, requirement,
    ]  # fmt: skip
    run(command, f"downloading {requirement} from PyPI")
    name, _, version = requirement.partition("==")
    found = sorted(into.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        raise LabError(f"pip downloaded no wheel of {requirement}")
    return found[0]


def intel_mpi(folder: Path, pins: dict[str, str]) -> External:
    """impi-rt (libraries) and impi-devel (compiler wrappers, headers, Fortran modules), laid out
    as Intel's installer does, with the libfabric of PyPI's MPICH: the wheel brings none.
    """
    version = pins["impi-rt"]
    prefix = folder / "intelmpi"
    home = prefix / "mpi" / ".".join(version.split(".")[:2])
    stamp = prefix / ".version"
    wanted = f"layout {LAYOUT} {version} {pins['mpich']} {home}"
    if not stamp.exists() or stamp.read_text() != wanted:
        work = fresh(folder / "work")
        for project in ("impi-rt", "impi-devel"):
            wheel = download(f"{project}=={pins.get(project, version)}", work)
            unpack_wheel_data(wheel, work / project)
        fresh(prefix)
        home.parent.mkdir(parents=True)
        (work / "impi-rt").rename(home)
        _merge(work / "impi-devel", home)
        for script in (home / "bin").iterdir():
            _fill(script, home)
        (home / "lib/release").symlink_to(".")  # where wrappers and Spack's recipe look
        # gfortran's mpi.mod: mpifc would come upon that of Intel's compiler
        (home / "include/gfortran").symlink_to("mpi/gfortran")
        fabric = home / "libfabric/lib"
        fabric.mkdir(parents=True)
        source = mpich_libraries(folder, pins)
        for name in ("libfabric.so.1", "libfabric"):
            (fabric / name).symlink_to(source / name)
        (fabric / "libfabric.so").symlink_to("libfabric.so.1")
        (home / "env").mkdir(exist_ok=True)
        (home / "env/vars.sh").write_text(_VARS.format(home=home))
        fresh(work).rmdir()
        stamp.write_text(wanted)
    spec = f"intel-oneapi-mpi@{version} +generic-names +envmods"
    return External("intel-oneapi-mpi", spec, str(prefix))


def mpich_libraries(folder: Path, pins: dict[str, str]) -> Path:
    """The folder of the libraries inside PyPI's MPICH, UCX and libfabric among them."""
    mpich(folder, pins)
    return folder / "mpich-pypi/lib/mpich"


def mpich(folder: Path, pins: dict[str, str]) -> External:
    """PyPI's MPICH, which has ch4:ofi where Debian's has ch4:ucx. It has no Fortran."""
    version = pins["mpich"]
    prefix = folder / "mpich-pypi"
    stamp = prefix / ".version"
    if not stamp.exists() or stamp.read_text() != version:
        work = fresh(folder / "work-mpich")
        unpack_wheel_data(download(f"mpich=={version}", work), prefix)
        fresh(work).rmdir()
        stamp.write_text(version)
    spec = f"mpich@{version} ~fortran ~hydra device=ch4 netmod=ofi"
    return External("mpich", spec, str(prefix))


def _merge(source: Path, target: Path) -> None:
    for file in source.rglob("*"):
        place = target / file.relative_to(source)
        if file.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)


def _fill(script: Path, home: Path) -> None:
    """Put the prefix into a script; programs stay as they are."""
    data = script.read_bytes()
    if script.is_symlink() or not data.startswith(b"#!"):
        return
    for placeholder in _INTEL_PLACEHOLDERS:
        data = data.replace(placeholder.encode(), str(home).encode())
    script.write_bytes(data)
    script.chmod(0o755)
