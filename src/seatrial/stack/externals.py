"""The MPI libraries and ATLAS of the distribution, and MPI libraries of PyPI, as Spack externals.

Debian installs all MPI libraries into /usr, and its alternatives decide to which of them mpicc and
mpirun belong. With the prefix /usr, Spack would build for every MPI with the same mpicc. So each
MPI gets a prefix of symbolic links. ``write`` makes the prefixes and the ``packages.yaml`` that
declares them. No Debian package is installed here.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from seatrial.base.errors import LabError
from seatrial.base.files import replacing
from seatrial.base.say import Say
from seatrial.stack import wheels
from seatrial.stack.files import fresh, replace
from seatrial.stack.wheels import External

#: mpic++ too: without it OSU and IMB are built with the MPI that the alternatives select
PROGRAMS = ("mpicc", "mpicxx", "mpic++", "mpif77", "mpif90", "mpifort", "mpirun", "mpiexec")
LIBRARIES = Path(f"/usr/lib/{platform.machine()}-linux-gnu")


def version_of(package: str) -> str:
    """Upstream version of an installed Debian package; empty if it is not installed."""
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package]
    try:
        words = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        return ""
    return upstream(words[1]) if len(words) == 2 and words[0] == "installed" else ""


def upstream(debian: str) -> str:
    """1:4.1.4-3+b1 -> 4.1.4; 0.3.21+ds-4 -> 0.3.21 (deb-version(7))."""
    match = re.match(r"(?:\d+:)?([0-9][0-9.]*[0-9a-z]*)", debian)
    return match[1] if match else debian


def programs(flavour: str, binaries: Path = Path("/usr/bin")) -> dict[str, Path]:
    """Link -> program: bin/mpicc -> /usr/bin/mpicc.openmpi and so on, of the programs that exist.

    Debian has no mpic++.mpich: mpic++ then links to mpicxx.mpich.
    """
    links = {}
    for name in PROGRAMS:
        for candidate in (name, "mpicxx" if name == "mpic++" else name):
            file = binaries / f"{candidate}.{flavour}"
            if file.exists():
                links[f"bin/{name}"] = file
                break
    return links


def openmpi() -> External | None:
    """Debian's Open MPI; None if it is not installed."""
    version = version_of("libopenmpi-dev")
    if not version:
        return None
    home = LIBRARIES / "openmpi"
    return External(
        "openmpi",
        f"openmpi@{version} fabrics=ucx,ofi schedulers=slurm +legacylaunchers"
        if version < "5"
        else f"openmpi@{version} fabrics=ucx,ofi schedulers=slurm",
        "openmpi",
        {**programs("openmpi"), "include": home / "include", "lib": home / "lib"},
    )


def mpich() -> External | None:
    """Debian's MPICH; None if it is not installed."""
    version = version_of("libmpich-dev")
    if not version:
        return None
    libraries = {f"lib/{file.name}": file for file in LIBRARIES.glob("libmpich*.so*")}
    libraries["lib/libmpi.so"] = LIBRARIES / "libmpich.so"
    return External(
        "mpich",
        f"mpich@{version} device=ch4 netmod={mpich_netmod()} ~hydra",
        "mpich",
        {
            **programs("mpich"),
            **libraries,
            "include": Path(f"/usr/include/{platform.machine()}-linux-gnu/mpich"),
        },
    )


def mpich_netmod(program: str = "mpichversion") -> str:
    """The network module of Debian's MPICH, ``ucx`` or ``ofi``, as mpichversion reports it.

    Raises LabError if mpichversion is missing or reports no ch4 device.
    """
    try:
        text = subprocess.run([program], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        text = ""
    match = re.search(r"ch4:(ucx|ofi)", text)
    if not match:
        raise LabError(f"{program} reports no ch4 device: install Debian's package mpich")
    return match[1]


def atlas() -> External | None:
    """Debian's ATLAS; None if it is not installed.

    Spack's recipe expects libsatlas.so, the complete library; Debian's libblas.so of ATLAS is
    complete as well.
    """
    version = version_of("libatlas-base-dev")
    if not version:
        return None
    home = LIBRARIES / "atlas"
    return External(
        "atlas",
        f"atlas@{version} threads=none +shared",
        "atlas",
        {
            "lib/libsatlas.so": home / "libblas.so",
            "lib/libblas.so.3": home / "libblas.so.3",
            "lib/liblapack.so.3": home / "liblapack.so.3",
            "include/cblas.h": Path(f"/usr/include/{platform.machine()}-linux-gnu/cblas-atlas.h"),
        },
    )


def libraries() -> list[External]:
    """Libraries of the distribution for an MPI that Spack builds.

    ``spack external find`` does not find them, because they have no program.
    """
    packages = {
        "libfabric": "libfabric-dev",
        "ucx": "libucx-dev",
        "pmix": "libpmix-dev",
        "hwloc": "libhwloc-dev",
        "libevent": "libevent-dev",
        "slurm": "slurm-wlm",
        "autoconf-archive": "autoconf-archive",
    }
    versions = ((name, version_of(package)) for name, package in packages.items())
    return [External(name, f"{name}@{version}", "/usr") for name, version in versions if version]


#: PyPI project -> the function that makes an external of its wheels
FROM_PYPI: dict[str, Callable[[Path, dict[str, str]], External]] = {
    "impi-rt": wheels.intel_mpi,
    "mpich": wheels.mpich,
}


def write(folder: Path, scope: Path, pypi: dict[str, str], say: Say) -> list[str]:
    """Write the prefixes in ``folder`` and ``packages.yaml`` in ``scope``. Returns the specs.

    ``pypi`` maps a PyPI project to its version. A prefix of the same version is kept. Raises
    LabError.
    """
    parts = [part for part in (openmpi(), mpich(), atlas()) if part]
    for part in parts:
        _link(part, folder / part.prefix)
    for project, make in FROM_PYPI.items():
        if project in pypi:
            say(f"{project} {pypi[project]} of PyPI")
            parts.append(make(folder, pypi))
    parts += libraries()
    scope.mkdir(parents=True, exist_ok=True)
    with replacing(scope / "packages.yaml") as stream:
        stream.write(b"# Written by `seatrial stack build`: do not edit.\n")
        YAML().dump({"packages": declared(parts, folder)}, stream)
    return [part.spec for part in parts]


def declared(parts: list[External], folder: Path) -> dict[str, Any]:
    """The ``packages`` section. Spack must not build a package that is declared here."""
    section: dict[str, Any] = {}
    for part in parts:
        entry = section.setdefault(part.package, {"buildable": False, "externals": []})
        prefix = part.prefix if part.prefix.startswith("/") else str(folder / part.prefix)
        entry["externals"].append({"spec": part.spec, "prefix": prefix})
    return section


def _link(part: External, prefix: Path) -> None:
    """Make the prefix of symbolic links, if it is not there or differs.

    Raises LabError if a target is missing.
    """
    if prefix.is_dir() and _links(prefix) == {k: str(v) for k, v in part.links.items()}:
        return
    partial = fresh(prefix.with_name(prefix.name + ".partial"))
    for name, target in part.links.items():
        if not target.exists():
            raise LabError(f"{target} is missing; {part.spec} needs it")
        link = partial / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    replace(partial, prefix)


def _links(prefix: Path) -> dict[str, str]:
    return {
        str(path.relative_to(prefix)): str(path.readlink())
        for path in prefix.rglob("*")
        if path.is_symlink()
    }
