"""The Debian packages of the labs, by release.

A package that not all releases have, or that has different names, is listed under its release. A
new release is a new entry here and needs no code.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.stack.machine import OS_RELEASE, os_release

#: the same in every release
COMMON = (
    # the batch system
    "slurm-wlm",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "slurmdbd",
    "munge",
    "mariadb-server",
    # MPI and its start by Slurm: Slurm opens libpmix.so, a file of the -dev package
    "openmpi-bin",
    "libopenmpi-dev",
    "libpmix-dev",
    # BLAS libraries, each with its own libblas.so.3
    "libblas3",
    "libblis4-openmp",
    "libopenblas0-openmp",
    # network tools and benchmarks; netbase has the /etc/protocols that NPtcp reads
    "iperf3",
    "netpipe-tcp",
    "ethtool",
    "iproute2",
    "netbase",
    "perftest",  # RDMA in the virtual lab
    "kmod",  # loads the drivers of a virtual lab
    "zstd",  # the guest's kernel of Debian 13 is compressed by it
    "patch",  # of the source of QEMU, for the virtual lab
    # compilers and build tools
    "gcc",
    "g++",
    "gfortran",
    "make",
    "binutils",
    "libc6-dev",
    "ca-certificates",
    "lmod",
    "python3",
)


@dataclass(frozen=True)
class Release:
    """One Debian release, by VERSION_ID of os-release."""

    codename: str
    packages: tuple[str, ...]
    #: BLAS name -> (package, folder below the multiarch library folder)
    blas: dict[str, tuple[str, str]]
    #: component -> the package that has its version
    versions: dict[str, str]


_BLAS = {
    "blis": ("libblis4-openmp", "blis-openmp"),
    "openblas": ("libopenblas0-openmp", "openblas-openmp"),
    "reference": ("libblas3", "blas"),
}
_VERSIONS = {
    "slurm": "slurm-wlm",
    "munge": "munge",
    "openmpi": "openmpi-bin",
    "pmix": "libpmix-dev",
    "libfabric": "libfabric1",
    "ucx": "libucx0",
    "iperf3": "iperf3",
    "nptcp": "netpipe-tcp",
    "perftest": "perftest",
    "lmod": "lmod",
    "gcc": "gcc",
}

RELEASES = {
    "12": Release(
        codename="bookworm",
        packages=(*COMMON, "libpmi2-0", "libatlas3-base"),
        blas={"atlas": ("libatlas3-base", "atlas"), **_BLAS},
        versions=_VERSIONS,
    ),
    # Slurm 24.11, Open MPI 5. ATLAS is gone: libatlas3-base is an empty transitional package.
    "13": Release(
        codename="trixie",
        packages=(*COMMON, "libpmi2-0t64"),
        blas=dict(_BLAS),
        versions=_VERSIONS,
    ),
}


@dataclass(frozen=True)
class SourceArchive:
    """The upstream archive of a Debian source package, the same in releases 12 and 13."""

    package: str
    version: str
    sha256: str


SOURCES = {
    archive.package: archive
    for archive in (
        SourceArchive(
            "netpipe", "3.7.2", "13dac884ff52951636f651c421f5ff4a853218a95aa28a4a852402ee385a2ab8"
        ),
        SourceArchive(
            "hpcc", "1.5.0", "0a6fef7ab9f3347e549fed65ebb98234feea9ee18aea0c8f59baefbe3cf7ffb8"
        ),
    )
}


def supported_release(file: Path = OS_RELEASE) -> tuple[str, Release]:
    """Return this machine's Debian version and its entry in RELEASES.

    Raises LabError on another system, with the list of the packages that it would need.
    """
    system = os_release(file)
    version = system.get("VERSION_ID", "")
    if system.get("ID") != "debian" or version not in RELEASES:
        name = system.get("PRETTY_NAME") or "a system without os-release"
        needed = " ".join(RELEASES[max(RELEASES)].packages)
        raise LabError(
            f"this is {name}; the stack can be provisioned on Debian {' and '.join(RELEASES)}. "
            f"A manual installation needs the equivalents of these Debian packages: {needed}"
        )
    if platform.machine() != "x86_64":
        raise LabError(
            f"this machine is {platform.machine()}; Intel MPI and MPICH on PyPI are for x86_64"
        )
    return version, RELEASES[version]
