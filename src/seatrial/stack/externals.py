"""The MPI libraries and the ATLAS of the distribution (and of PyPI) as externals of Spack.

Debian's MPI libraries all live in /usr and share the names mpicc, mpirun and so on: two externals
with that prefix would both be built with whichever the alternatives name. So each gets a folder
of symlinks under its own names. ``write`` makes them and the ``packages.yaml`` that declares them.
It installs nothing of the distribution's.
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
from seatrial.stack import wheels
from seatrial.stack.files import fresh, replace
from seatrial.stack.wheels import External

#: mpic++ too: without it OSU and IMB are built by the alternatives' MPI
PROGRAMS = ("mpicc", "mpicxx", "mpic++", "mpif77", "mpif90", "mpifort", "mpirun", "mpiexec")
LIBRARIES = Path(f"/usr/lib/{platform.machine()}-linux-gnu")


def version_of(package: str) -> str:
    """Upstream version of an installed Debian package; empty where it is not installed."""
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        return ""
    return upstream(found[1]) if len(found) == 2 and found[0] == "installed" else ""


def upstream(debian: str) -> str:
    """1:4.1.4-3+b1 -> 4.1.4; 0.3.21+ds-4 -> 0.3.21 (deb-version(7))."""
    match = re.match(r"(?:\d+:)?([0-9][0-9.]*[0-9a-z]*)", debian)
    return match[1] if match else debian


def programs(flavour: str, binaries: Path = Path("/usr/bin")) -> dict[str, Path]:
    """bin/mpicc -> /usr/bin/mpicc.openmpi and so on, for those that there are.

    Debian's MPICH has no mpic++.mpich: there mpic++ is mpicxx.
    """
    found = {}
    for name in PROGRAMS:
        for candidate in (name, "mpicxx" if name == "mpic++" else name):
            file = binaries / f"{candidate}.{flavour}"
            if file.exists():
                found[f"bin/{name}"] = file
                break
    return found


def openmpi() -> External | None:
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
    """``ucx`` or ``ofi``: what Debian's MPICH was configured with, by its own word."""
    try:
        text = subprocess.run([program], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        text = ""
    match = re.search(r"ch4:(ucx|ofi)", text)
    if not match:
        raise LabError(f"{program} names no ch4 device: install Debian's package mpich")
    return match[1]


def atlas() -> External | None:
    """Debian's libblas.so of ATLAS is whole, as upstream's libsatlas is; Spack asks for that."""
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
    """What an MPI that is built from source may take from the distribution, and what Spack's
    `external find` cannot see as it has no program."""
    wanted = {
        "libfabric": "libfabric-dev",
        "ucx": "libucx-dev",
        "pmix": "libpmix-dev",
        "hwloc": "libhwloc-dev",
        "libevent": "libevent-dev",
        "slurm": "slurm-wlm",
        "autoconf-archive": "autoconf-archive",
    }
    found = ((name, version_of(package)) for name, package in wanted.items())
    return [External(name, f"{name}@{version}", "/usr") for name, version in found if version]


#: PyPI project -> what makes an external of its wheels
FROM_PYPI: dict[str, Callable[[Path, dict[str, str]], External]] = {
    "impi-rt": wheels.intel_mpi,
    "mpich": wheels.mpich,
}


def write(folder: Path, scope: Path, pypi: dict[str, str], say: Callable[[str], None]) -> list[str]:
    """Make the prefixes in ``folder`` and ``packages.yaml`` in ``scope``.

    ``pypi`` are wheels to make externals of, name -> version. Returns the specs. What is there
    already and of the same version stays: a changed prefix would be another hash. Raises LabError.
    """
    found = [part for part in (openmpi(), mpich(), atlas()) if part]
    for part in found:
        _link(part, folder / part.prefix)
    for project, make in FROM_PYPI.items():
        if project in pypi:
            say(f"{project} {pypi[project]} of PyPI")
            found.append(make(folder, pypi))
    found += libraries()
    scope.mkdir(parents=True, exist_ok=True)
    partial = scope / "packages.yaml.partial"
    with partial.open("w") as stream:
        stream.write("# Written by `seatrial stack build`: do not edit.\n")
        YAML().dump({"packages": declared(found, folder)}, stream)
    partial.replace(scope / "packages.yaml")
    return [part.spec for part in found]


def declared(found: list[External], folder: Path) -> dict[str, Any]:
    """The ``packages`` section. Nothing that is external is built in its place."""
    section: dict[str, Any] = {}
    for part in found:
        entry = section.setdefault(part.package, {"buildable": False, "externals": []})
        prefix = part.prefix if part.prefix.startswith("/") else str(folder / part.prefix)
        entry["externals"].append({"spec": part.spec, "prefix": prefix})
    return section


def _link(part: External, prefix: Path) -> None:
    """Make the folder of symlinks, whole or not at all; leave one that is right alone."""
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
