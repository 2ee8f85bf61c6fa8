"""MPI libraries of PyPI as Spack externals: Intel MPI, and MPICH over libfabric.

Unpacks the wheels into the layout that Spack's recipes expect. ``externals`` declares them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.run import run
from seatrial.stack.files import fresh, unpack_wheel_data

#: placeholders of the prefix in Intel's compiler wrappers
_INTEL_PLACEHOLDERS = (
    "I_MPI_SUBSTITUTE_INSTALLDIR",
    "__EXEC_PREFIX_TO_BE_FILLED_AT_INSTALL_TIME__",
)
LAYOUT = 2  #: version of Intel MPI's folder layout: increase it when the code below changes
_VARS = """\
# Spack reads these variables into the modules.
export I_MPI_ROOT="{home}"
export PATH="{home}/bin:$PATH"
export LD_LIBRARY_PATH="{home}/libfabric/lib:{home}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export FI_PROVIDER_PATH="{home}/libfabric/lib/libfabric"
"""


@dataclass(frozen=True)
class External:
    """One external package. ``prefix`` is absolute, or relative to the folder of the externals."""

    package: str
    spec: str
    prefix: str
    links: dict[str, Path] = field(default_factory=dict)
    """path in the prefix -> target of the symbolic link"""


def download(requirement: str, into: Path) -> Path:
    """Download the wheel of ``name==version``. Raises LabError."""
    into.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        sys.executable, "-I", "-m", "pip", "download", "-q", "--disable-pip-version-check",
        "--no-deps", "--only-binary", ":all:", "-d", into, requirement,
    ]  # fmt: skip
    run(command, f"downloading {requirement} from PyPI")
    name, _, version = requirement.partition("==")
    files = sorted(into.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not files:
        raise LabError(f"pip downloaded no wheel of {requirement}")
    return files[0]


def intel_mpi(folder: Path, pins: dict[str, str]) -> External:
    """Intel MPI in the layout of Intel's installer. Raises LabError.

    impi-rt has the libraries, impi-devel the compiler wrappers, headers and Fortran modules. The
    wheels have no libfabric: it is taken from PyPI's MPICH.
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
        (home / "lib/release").symlink_to(".")  # for the wrappers and Spack's recipe
        # mpi.mod of gfortran; without this link mpifc takes that of Intel's compiler
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
    """The folder of the libraries of PyPI's MPICH, with its UCX and libfabric."""
    mpich(folder, pins)
    return folder / "mpich-pypi/lib/mpich"


def mpich(folder: Path, pins: dict[str, str]) -> External:
    """PyPI's MPICH: device ch4:ofi (Debian's is ch4:ucx), without Fortran. Raises LabError."""
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
        new = target / file.relative_to(source)
        if file.is_dir():
            new.mkdir(parents=True, exist_ok=True)
        else:
            new.parent.mkdir(parents=True, exist_ok=True)
            file.replace(new)


def _fill(script: Path, home: Path) -> None:
    """Replace the placeholders of a script by the prefix. A program is not changed."""
    data = script.read_bytes()
    if script.is_symlink() or not data.startswith(b"#!"):
        return
    for placeholder in _INTEL_PLACEHOLDERS:
        data = data.replace(placeholder.encode(), str(home).encode())
    script.write_bytes(data)
    script.chmod(0o755)
