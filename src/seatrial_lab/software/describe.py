"""The description of a finished stack, from its data and the machine's packages.

This module builds nothing and writes only a cache of MPICH's versions.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from seatrial.stack.files import digest
from seatrial.stack.machine import library_folder
from seatrial.stack.model import Blas, Stack, Transport
from seatrial.stack.transports import SPACK_ONLY, TRANSPORTS, fill, pmi2_library
from seatrial_lab.software import programs, pypi
from seatrial_lab.software.packages import SOURCES, Release
from seatrial_lab.software.steps import COMMS, MPI_BENCH, MPI_PAIRS, MPI_TIME, steps

# A program of its own, so that this process loads no foreign library.
# fi_version(3): major in the upper 16 bits; ucp_get_version_string is of UCX's public API.
_VERSION_QUERY = """
import ctypes, json, sys
ucp = ctypes.CDLL(sys.argv[1] + "/libucp.so.0")
ucp.ucp_get_version_string.restype = ctypes.c_char_p
fi = ctypes.CDLL(sys.argv[1] + "/libfabric.so.1").fi_version()
print(json.dumps([ucp.ucp_get_version_string().decode(), f"{fi >> 16}.{fi & 0xffff}"]))
"""


def describe(prefix: Path, version: str, release: Release, installed: dict[str, str]) -> Stack:
    """Return the description of the stack in ``prefix``.

    ``installed`` maps the machine's Debian packages to their versions.
    """
    versions = _versions(prefix, release, installed)
    blas = {
        name: Blas(
            folder=str(library_folder() / folder),
            version=installed.get(package, ""),
            package=package,
        )
        for name, (package, folder) in release.blas.items()
    }
    transports = {
        name: in_prefix(part, prefix).model_copy(
            update={"versions": {key: versions[key] for key in programs.INVOLVED[name]}}
        )
        for name, part in TRANSPORTS.items()
        if name not in SPACK_ONLY
    }
    content = {
        "prefix": str(prefix),
        "distribution": f"Debian {version}",
        "versions": versions,
        "origins": programs.origins(_pins()),
        "transports": {name: part.model_dump() for name, part in transports.items()},
        "blas_libraries": {name: library.model_dump() for name, library in blas.items()},
    }
    step_keys = [step.key for step in steps(prefix, release, installed)]
    identity = digest([json.dumps(content, sort_keys=True), *step_keys])
    return Stack.model_validate({"id": identity, **content})


def _versions(prefix: Path, release: Release, installed: dict[str, str]) -> dict[str, str]:
    pins = _pins()
    ucx, libfabric = _bundled_versions(prefix)
    return {
        **{name: installed.get(package, "") for name, package in release.versions.items()},
        **{name: installed.get(package, "") for name, (package, _) in release.blas.items()},
        "mpich": pins["mpich"],
        "mpich-ucx": ucx,
        "mpich-libfabric": libfabric,
        "intelmpi": pins["impi-rt"],
        "mpi4py": pins["mpi4py"],
        **{name: archive.version for name, archive in SOURCES.items()},
        "comms": _version_of(COMMS),
        "mpi_pairs": _version_of(MPI_PAIRS),
        "mpi_time": _version_of(MPI_TIME),
        "mpbench": f"mpi_bench {_version_of(MPI_BENCH)}",
        "imb": f"of impi-rt {pins['impi-rt']}",
        "npb": f"3.3 of simgrid {pins['simgrid']}",
        "osu": f"of mpi4py {pins['mpi4py']}",
    }


def _version_of(source: Path) -> str:
    """Return the version in the source of a program of this project."""
    match = re.search(r'^#define VERSION "(\S+)"', source.read_text(), re.MULTILINE)
    assert match, source
    return match[1]


def _bundled_versions(prefix: Path) -> tuple[str, str]:
    """Return the versions of UCX and libfabric in PyPI's MPICH; empty if it is missing."""
    folder = prefix / "mpich/lib/mpich"
    if not folder.is_dir():
        return "", ""
    stored = folder / "versions.json"
    if not stored.exists():
        done = subprocess.run(
            [sys.executable, "-IS", "-c", _VERSION_QUERY, str(folder)],
            env={"LD_LIBRARY_PATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return "", ""
        stored.write_text(done.stdout)
    ucx, libfabric = json.loads(stored.read_text())
    return ucx, libfabric


def _pins() -> dict[str, str]:
    return {**pypi.pins(pypi.WHEELS), **pypi.pins(pypi.SOURCES)}


def in_prefix(part: Transport, prefix: Path) -> Transport:
    """Return a transport with the commands and environment of the programs in ``prefix``."""
    words = {"prefix": str(prefix), "bench": f"{prefix}/bench/{part.family}"}
    env = {**programs.ENV.get(part.name, {}), **part.env}
    commands = programs.PROGRAMS.get(part.name) or programs.PROGRAMS[part.family]
    return part.model_copy(
        update={
            "env": fill(env, {**words, "pmi2_library": pmi2_library()}),
            "compilers": programs.COMPILERS.get(part.name, "").format_map(words),
            "programs": {
                name: [word.format_map(words) for word in command]
                for name, command in commands.items()
            },
            "lacks": programs.LACKS.get(part.family, {}),
        }
    )
