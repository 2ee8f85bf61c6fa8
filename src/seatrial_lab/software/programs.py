"""The labs' programs: their commands under each MPI, and their environment.

Data only. ``{prefix}`` is the folder of the labs' software. ``{bench}`` is the folder of the
programs built for one MPI ABI.
"""

from __future__ import annotations

from seatrial_lab.software.packages import SOURCES

_PYTHON = {"PYTHONPATH": "{prefix}/python"}
_OPENMPI = {**_PYTHON, "MPI4PY_MPIABI": "openmpi"}
_MPICH_ABI = {**_PYTHON, "MPI4PY_MPIABI": "mpich"}
_MPICH = {
    **_MPICH_ABI,
    "LD_LIBRARY_PATH": "{prefix}/mpich/lib",
    # MPICH's requests can be too long for Slurm's PMI server (pmi/shorter.c)
    "LD_PRELOAD": "{prefix}/pmi/shorter.so",
}
#: transport -> variables in addition to the variables of ``seatrial.stack.transports``
ENV: dict[str, dict[str, str]] = {
    "openmpi-tcp": _OPENMPI,
    "openmpi-ucx": _OPENMPI,
    "openmpi-ofi": _OPENMPI,
    "mpich-ucx": _MPICH,
    "mpich-ofi": _MPICH,
    "intelmpi-tcp": {
        **_MPICH_ABI,
        "LD_LIBRARY_PATH": "{prefix}/intelmpi/lib:{prefix}/mpich/lib/mpich",
        "FI_PROVIDER_PATH": "{prefix}/mpich/lib/mpich/libfabric",
        "I_MPI_ROOT": "{prefix}/intelmpi",
    },
    "none": _OPENMPI,
}
#: transport -> folder of mpicc, if it is not the distribution's mpicc
COMPILERS = {"mpich-ucx": "{prefix}/mpich/bin", "mpich-ofi": "{prefix}/mpich/bin"}

_OSU = ["/usr/bin/python3", "{prefix}/osu/run.py"]
_MPI = {
    "netpipe": ["{bench}/NPmpi"],
    "comms": ["{bench}/comms"],
    "mpi_pairs": ["{bench}/mpi_pairs"],
    "mpi_time": ["{bench}/mpi_time.so"],
    "mpbench": ["{bench}/mpi_bench"],
    # HPL and DGEMM only: hpcc's other tests take ten times as long
    "hpcc": ["/usr/bin/env", "HPCC_TESTS=SingleDGEMM,StarDGEMM,HPL", "{bench}/hpcc"],
    "hpcc_all": ["{bench}/hpcc"],
    "npb_is": ["{bench}/is"],
    "npb_ep": ["{bench}/ep"],
    "osu_latency": [*_OSU, "latency", "-i", "1000", "-x", "100"],
    "osu_bw": [*_OSU, "bw"],
    "osu_bibw": [*_OSU, "bibw"],
    "osu_multi_lat": [*_OSU, "multi_lat", "-i", "1000", "-x", "100"],
}
PERFTEST = ("ib_write_lat", "ib_send_lat", "ib_write_bw")
#: name or family of a transport -> program -> command; the name takes precedence
PROGRAMS = {
    "openmpi": _MPI,
    "mpich": {**_MPI, "imb": ["{prefix}/intelmpi/bin/IMB-MPI1"]},
    "tcp": {"nptcp": ["/usr/bin/NPtcp"], "iperf3": ["/usr/bin/iperf3"]},
    "verbs": {name: [f"/usr/bin/{name}"] for name in PERFTEST},
    "none": {"npb_ep": ["{prefix}/bench/openmpi/ep"]},
}

_NO_MBW_MR = {"osu_mbw_mr": "the OSU programs in Python have no mbw_mr; Spack builds the C program"}
#: family -> benchmark -> the reason why it has no program
LACKS = {
    "openmpi": {
        "imb": "IMB-MPI1 of PyPI is a binary of the MPICH ABI; Spack builds it for Open MPI",
        **_NO_MBW_MR,
    },
    "mpich": _NO_MBW_MR,
}

#: transport -> the components whose versions a run records
INVOLVED = {
    "openmpi-tcp": ("openmpi", "pmix"),
    "openmpi-ucx": ("openmpi", "pmix", "ucx"),
    "openmpi-ofi": ("openmpi", "pmix", "libfabric"),
    "mpich-ucx": ("mpich", "mpich-ucx"),
    "mpich-ofi": ("mpich", "mpich-libfabric"),
    "intelmpi-tcp": ("intelmpi", "mpich-libfabric"),
    "tcp": ("nptcp", "iperf3"),
    "verbs": ("perftest",),
    "none": ("openmpi", "pmix"),
}


def origins(pins: dict[str, str]) -> dict[str, str]:
    """Return program -> its origin. ``pins`` are the versions of PyPI's projects."""
    return {
        "netpipe": f"NetPIPE {SOURCES['netpipe'].version}, Debian's source package netpipe, built "
        "for each MPI ABI",
        "nptcp": "NetPIPE, Debian's package netpipe-tcp",
        "comms": "comms of this project, built for each MPI ABI",
        "mpi_pairs": "mpi_pairs of this project, built for each MPI ABI",
        "mpi_time": "mpi_time of this project, built for each MPI ABI",
        "mpbench": "mpi_bench of this project, by the method of MPBench, built for each MPI ABI",
        "imb": f"Intel MPI Benchmarks, IMB-MPI1 of PyPI's impi-rt {pins['impi-rt']} (a binary of "
        "the MPICH ABI)",
        "hpcc": f"HPC Challenge {SOURCES['hpcc'].version}, Debian's source package hpcc, built for "
        "each MPI ABI",
        "npb": "NPB 3.3 IS and EP as MPI C, from PyPI's source distribution of simgrid "
        f"{pins['simgrid']}",
        "osu": "OSU micro-benchmarks in Python, from PyPI's source distribution of mpi4py "
        f"{pins['mpi4py']}",
        "iperf3": "Debian's package iperf3",
        "perftest": "Debian's package perftest",
    }
