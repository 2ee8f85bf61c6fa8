"""Every transport of the stack: which MPI, how Slurm starts it, which path messages take.

Data only. ``{prefix}`` and ``{lib}`` (the multiarch library folder) are filled in when the
stack is provisioned, ``{interface}`` and ``{subnet}`` when a transport is used.

Where a transport differs from the defaults of its MPI there is a reason:

* A rank that waits spins. Open MPI's can give the core away at each turn for next to nothing
  (``mpi_yield_when_idle``). What MPICH and Intel MPI offer sleeps instead, which costs 60 and
  30 us of latency on an idle machine, but keeps it at 100 us where ranks outnumber cores and
  it would be 1 to 6 ms: ``overcommit`` has those settings, for whoever needs them.
* Shared memory is off: with several ranks on a node all messages take the path under test.
"""

from __future__ import annotations

from seatrial.stack.model import Transport

PMIX = ["--mpi=pmix"]
PMI2 = ["--mpi=pmi2"]

_OPENMPI = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_io": "^romio321",
    "PYTHONPATH": "{prefix}/python",
    "MPI4PY_MPIABI": "openmpi",
    # libmpi.so.12 over Open MPI, for programs that come as a binary of the MPICH ABI
    "LD_LIBRARY_PATH": "{prefix}/bridge",
}
_MPICH_ABI = {
    "PYTHONPATH": "{prefix}/python",
    "MPI4PY_MPIABI": "mpich",
}
_MPICH = {
    **_MPICH_ABI,
    "LD_LIBRARY_PATH": "{prefix}/mpich/lib",
    "MPIR_CVAR_NOLOCAL": "1",
    # its requests can be longer than Slurm's PMI server reads (pmi/shorter.c)
    "LD_PRELOAD": "{prefix}/pmi/shorter.so",
}
_MPICH_OVERCOMMIT = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
_UCX_BIND = {"UCX_NET_DEVICES": "{interface}"}
_OFI_BIND = {"FI_TCP_IFACE": "{interface}"}
# What an MPI says of its path must not land in the middle of the benchmark's table, so it goes to
# a file: the node-side wrapper of the checks puts the file's name or descriptor in.
_OPENMPI_REPORT = {"OPAL_OUTPUT_STDERR_FD": "{report_fd}"}
_UCX_REPORT = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "{report_file}"}
# UCX 1.13 says "ep_cfg[1]: tag(tcp/eth1)", later ones "inter-node cfg#1 tag(tcp/eth1)"
_UCX_LINE = r"UCX +INFO .*cfg(\[\d+\]:|#\d+) tag\((?!self)"

TRANSPORTS = (
    Transport(
        name="openmpi-tcp",
        description="Open MPI, ob1 over the TCP BTL",
        family="openmpi",
        launcher=PMIX,
        env={**_OPENMPI, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"},
        bind={"OMPI_MCA_btl_tcp_if_include": "{interface}"},
        report={**_OPENMPI_REPORT, "OMPI_MCA_btl_base_verbose": "1"},
        path_report=r"Using tcp btl for send",
        features=["mpi", "tcp"],
    ),
    Transport(
        name="openmpi-ucx",
        description="Open MPI, UCX over TCP",
        family="openmpi",
        launcher=PMIX,
        # without "any" Open MPI refuses UCX where it finds no InfiniBand
        env={
            **_OPENMPI,
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_btl": "self",
            "OMPI_MCA_osc": "^ucx",
            "OMPI_MCA_opal_common_ucx_tls": "any",
            "OMPI_MCA_opal_common_ucx_devices": "any",
            "UCX_TLS": "tcp,self",
        },
        bind=_UCX_BIND,
        report=_UCX_REPORT,
        path_report=_UCX_LINE,
        features=["mpi", "ucx"],
    ),
    Transport(
        name="openmpi-ofi",
        description="Open MPI, libfabric's tcp provider",
        family="openmpi",
        launcher=PMIX,
        env={
            **_OPENMPI,
            "OMPI_MCA_pml": "cm",
            "OMPI_MCA_mtl": "ofi",
            "OMPI_MCA_btl": "self",
            "OMPI_MCA_mtl_ofi_provider_include": "tcp;ofi_rxm",
        },
        bind=_OFI_BIND,
        report={**_OPENMPI_REPORT, "OMPI_MCA_opal_common_ofi_verbose": "1"},
        # Open MPI 4 says "prov: tcp;ofi_rxm" and then "provider: eth1", 5 "provider: tcp;ofi_rxm"
        path_report=r"mtl:ofi:prov(ider)?: \S*(tcp|ofi_rxm)",
        features=["mpi", "ofi"],
    ),
    Transport(
        name="mpich-ucx",
        description="MPICH, ch4:ucx",
        family="mpich",
        launcher=PMI2,
        env={
            **_MPICH,
            "MPIR_CVAR_CH4_NETMOD": "ucx",
            "UCX_TLS": "tcp,self",
        },
        bind=_UCX_BIND,
        report=_UCX_REPORT,
        path_report=_UCX_LINE,
        overcommit=_MPICH_OVERCOMMIT,
        compilers="{prefix}/mpich/bin",
        features=["mpi", "ucx"],
    ),
    Transport(
        name="mpich-ofi",
        description="MPICH, ch4:ofi",
        family="mpich",
        launcher=PMI2,
        env={**_MPICH, "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
        bind=_OFI_BIND,
        report={"MPIR_CVAR_DEBUG_SUMMARY": "1"},
        overcommit=_MPICH_OVERCOMMIT,
        compilers="{prefix}/mpich/bin",
        path_report=r"^libfabric provider: ",
        features=["mpi", "ofi"],
    ),
    Transport(
        name="mpich-sock",
        description="MPICH, ch3:sock",
        family="mpich",
        launcher=PMI2,
        env=_MPICH,
        # ch3:sock reads no interface's name, only the address that each rank is to be reached at
        # (MPICH_INTERFACE_HOSTNAME), which differs from node to node. The task prolog of the
        # recipe mpi-transport finds it by this name.
        bind={"MPI_TRANSPORT_INTERFACE": "{interface}"},
        report={"MPICH_DBG_IFNAME": "1"},
        path_report=r"^Found interface name \S+ from MPICH_INTERFACE_HOSTNAME$",
        compilers="{prefix}/mpich/bin",
        features=["mpi", "tcp"],
    ),
    Transport(
        name="intelmpi-tcp",
        description="Intel MPI, libfabric's tcp provider",
        family="mpich",
        launcher=PMI2,
        env={
            **_MPICH_ABI,
            "LD_LIBRARY_PATH": "{prefix}/intelmpi/lib:{prefix}/mpich/lib/mpich",
            "FI_PROVIDER_PATH": "{prefix}/mpich/lib/mpich/libfabric",
            "I_MPI_ROOT": "{prefix}/intelmpi",
            "I_MPI_PMI": "pmi2",
            "I_MPI_PMI_LIBRARY": "{lib}/libpmi2.so.0",
            "I_MPI_FABRICS": "ofi",
            "I_MPI_OFI_PROVIDER": "tcp",
        },
        bind=_OFI_BIND,
        report={"I_MPI_DEBUG": "5", "I_MPI_DEBUG_OUTPUT": "{report_file}"},
        overcommit={"I_MPI_WAIT_MODE": "1"},
        path_report=r"libfabric provider: ",
        features=["mpi", "ofi"],
    ),
    # Not MPI: what the pseudo transports of the checks run.
    Transport(
        name="tcp",
        description="TCP sockets, no MPI",
        family="",
        launcher=["--mpi=none"],
        features=["tcp"],
    ),
    Transport(
        name="none",
        description="on each node by itself; Open MPI only starts the program",
        family="",
        launcher=PMIX,
        env={**_OPENMPI, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"},
    ),
)

#: No binary of PyPI or of the distribution has MPICH's older device ch3: only Spack builds it.
SPACK_ONLY = ("mpich-sock",)

#: where the programs are, per MPI ABI; {bench} is the family's folder
_OSU = ["/usr/bin/python3", "{prefix}/osu/run.py"]
_COMMON = {
    "netpipe": ["{bench}/NPmpi"],
    "imb": ["{prefix}/intelmpi/bin/IMB-MPI1"],
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
_SOCKETS = {"nptcp": ["/usr/bin/NPtcp"], "iperf3": ["/usr/bin/iperf3"]}

#: transport name, else family -> program name -> command
PROGRAMS = {
    "openmpi": _COMMON,
    "mpich": _COMMON,
    "tcp": _SOCKETS,
    "none": {"npb_ep": ["{prefix}/bench/openmpi/ep"]},
}

#: program -> where it is from
ORIGINS = {
    "netpipe": "NetPIPE 3.7.2, Debian's source package netpipe, built for each MPI ABI",
    "nptcp": "NetPIPE, Debian's package netpipe-tcp",
    "imb": "Intel MPI Benchmarks, IMB-MPI1 of PyPI's impi-rt 2021.19.0 (a binary of the MPICH "
    "ABI; under Open MPI over the ABI bridge of this stack)",
    "hpcc": "HPC Challenge 1.5.0, Debian's source package hpcc, built for each MPI ABI",
    "npb": "NPB 3.3 IS and EP as MPI C, from PyPI's source distribution of simgrid 4.1",
    "osu": "OSU micro-benchmarks in Python, from PyPI's source distribution of mpi4py 4.1.2",
    "iperf3": "Debian's package iperf3",
}
