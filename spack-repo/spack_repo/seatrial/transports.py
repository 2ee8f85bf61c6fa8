"""Every transport: an MPI and the path its messages take. The one table of their variables.

Standard library only: the recipe mpi-transport reads it inside Spack, and
``seatrial.stack.transports`` reads it for the checks. Not here: where an MPI is installed, and
what only the labs' builds of an MPI need (``seatrial_lab.software.programs``).

Each transport has its variables in groups, by who needs them:

* ``env``: whoever runs a program over this path: shared memory within a node, this path between
  nodes. A module sets these and ``bind``, nothing else.
* ``check_env``: a check only; these replace ``env``. Shared memory is off, so that with several
  ranks on a node all messages take the path under test, and no other path can take its place.
* ``within_env``: a step of a check whose ranks are all on one node; these replace ``check_env``,
  so that their messages take shared memory. None where the path has no shared memory.
* ``lab_env``: a check in a lab, whose nodes share a few cores. A rank that waits spins; Open MPI's
  can give the core away at each turn for next to nothing.
* ``overcommit``: a step whose ranks outnumber the cores. What MPICH and Intel MPI offer sleeps,
  which costs 60 and 30 us of latency on an idle machine, but keeps it at 100 us where it would
  be 1 to 6 ms.
* ``bind``: ties the path to a network; holds ``{interface}``. UCX over verbs names an RDMA port
  instead (``bound``).
* ``report``: makes the MPI name its path, in a line that ``path_report`` (a regular expression)
  finds. Holds ``{report_file}`` or ``{report_fd}``, so that the line does not land in the middle
  of a benchmark's table.

``within_node`` says how the messages of a node's ranks travel, where it is not by shared memory.
The other placeholders are those of ``words`` and ``{pmi2_library}``; ``fill`` fills them in.
"""

from fnmatch import fnmatchcase
from pathlib import Path

#: Spack's name of an MPI -> its name in a transport's
MPI_NAMES = {"openmpi": "openmpi", "mpich": "mpich", "intel-oneapi-mpi": "intelmpi"}

#: Slurm's PMI-2 client library, which Intel MPI must be given; the first that exists.
PMI2_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libpmi2.so.0",
    "/usr/lib64/libpmi2.so.0",
    "/usr/lib64/slurm/libpmi2.so",
    "/opt/slurm/lib/libpmi2.so.0",
)


def pmi2_library():
    """The word for ``{pmi2_library}`` on this machine; empty where it has none."""
    return next((path for path in PMI2_LIBRARIES if Path(path).exists()), "")


#: UCX's names of shared memory. ``env`` adds it, so the site's choice is of the network's only.
UCX_SHARED_MEMORY = {"sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}

#: UCX's transports over verbs, and the names of groups of them (``ucx_info -d``; UCX_TLS)
UCX_VERBS = ("rc", "rc_*", "ud", "ud_*", "dc", "dc_*", "ib", "ib_*")
#: UCX's list of devices: interfaces for TCP, RDMA ports as mlx5_0:1 for verbs
UCX_DEVICES = "UCX_NET_DEVICES"

#: variants of the recipe mpi-transport that ``words`` takes
CHOICES = ("provider", "ucx_tls")


def words(provider="tcp", ucx_tls=("tcp", "self")):
    """The placeholders that depend on the fabric: libfabric's provider, and UCX's transports.

    ``ucx_tls`` is without shared memory. Spack keeps a default of several values as one text with
    commas.
    """
    between_nodes = set(",".join(ucx_tls).split(",")) - UCX_SHARED_MEMORY
    return {
        "provider": provider,
        "ofi_include": "tcp;ofi_rxm" if provider == "tcp" else provider,
        "ucx_tls": ",".join(sorted(between_nodes, reverse=True)),
    }


def with_shared_memory(ucx_tls):
    """A site's own UCX_TLS for users: a list of transports without shared memory gets it."""
    names = ucx_tls.split(",")
    if ucx_tls.startswith("^") or {"all", *UCX_SHARED_MEMORY}.intersection(names):
        return ucx_tls
    return f"{ucx_tls},sm"


def over_verbs(ucx_tls):
    """Whether one of UCX's transports is over verbs. ``ucx_tls`` is as for ``words``."""
    names = ",".join(ucx_tls).split(",")
    return any(fnmatchcase(name, pattern) for name in names for pattern in UCX_VERBS)


def bound(variables, rdma_port):
    """The filled-in variables of ``bind``, of a path over verbs: UCX gets the RDMA port.

    UCX finds no device over verbs by the name of an interface. It chooses one itself where
    ``rdma_port`` is empty, as where the port's name differs from node to node.
    """
    if UCX_DEVICES not in variables:
        return variables
    others = {name: value for name, value in variables.items() if name != UCX_DEVICES}
    return {UCX_DEVICES: rdma_port, **others} if rdma_port else others


def fill(variables, words):
    """``variables`` with their placeholders filled in.

    A variable is left out where one of its words is empty. A placeholder that is none of
    ``words`` stays.
    """
    filled = {}
    for name, value in variables.items():
        used = [word for word in words if f"{{{word}}}" in value]
        if all(words[word] for word in used):
            for word in used:
                value = value.replace(f"{{{word}}}", words[word])
            filled[name] = value
    return filled


_OPENMPI = {"family": "openmpi", "slurm_mpi": "pmix"}
_MPICH = {"family": "mpich", "slurm_mpi": "pmi2"}
#: No BTL of another fabric. The list excludes, because the BTL of shared memory has another name
#: in each series of Open MPI (vader, sm). Under pml ucx and cm only one-sided messages use a BTL.
_OPENMPI_ENV = {"OMPI_MCA_btl": "^openib,uct,usnic,ofi"}
_OPENMPI_BIND = {"OMPI_MCA_btl_tcp_if_include": "{interface}"}
_OPENMPI_LAB = {"OMPI_MCA_mpi_yield_when_idle": "1"}
_OPENMPI_CHECK = {"OMPI_MCA_io": "^romio321"}
_OPENMPI_REPORT = {"OPAL_OUTPUT_STDERR_FD": "{report_fd}"}
_MPICH_OVERCOMMIT = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
_UCX = {
    "bind": {UCX_DEVICES: "{interface}"},
    "report": {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "{report_file}"},
    # UCX 1.13 says "ep_cfg[1]: tag(tcp/eth1)", later ones "inter-node cfg#1 tag(tcp/eth1)"
    "path_report": r"UCX +INFO .*cfg(\[\d+\]:|#\d+) tag\((?!self)",
    "features": ["mpi", "ucx"],
}
_OFI = {"bind": {"FI_TCP_IFACE": "{interface}"}, "features": ["mpi", "ofi"]}

TRANSPORTS = {
    "openmpi-tcp": {
        **_OPENMPI,
        "description": "Open MPI, ob1 over the TCP BTL",
        "env": {**_OPENMPI_ENV, "OMPI_MCA_pml": "ob1"},
        "check_env": {**_OPENMPI_CHECK, "OMPI_MCA_btl": "tcp,self"},
        "within_env": _OPENMPI_ENV,
        "lab_env": _OPENMPI_LAB,
        "bind": _OPENMPI_BIND,
        "report": {**_OPENMPI_REPORT, "OMPI_MCA_btl_base_verbose": "1"},
        "path_report": r"Using tcp btl for send",
        "features": ["mpi", "tcp"],
    },
    "openmpi-ucx": {
        **_OPENMPI,
        **_UCX,
        "description": "Open MPI, UCX",
        "env": {
            **_OPENMPI_ENV,
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_osc": "^ucx",
            # without "any" Open MPI refuses UCX where it finds no InfiniBand
            "OMPI_MCA_opal_common_ucx_tls": "any",
            "OMPI_MCA_opal_common_ucx_devices": "any",
            "UCX_TLS": "{ucx_tls},sm",
        },
        "check_env": {**_OPENMPI_CHECK, "OMPI_MCA_btl": "self", "UCX_TLS": "{ucx_tls}"},
        "within_env": {"UCX_TLS": "{ucx_tls},sm"},
        "lab_env": _OPENMPI_LAB,
        "bind": {**_UCX["bind"], **_OPENMPI_BIND},
    },
    "openmpi-ofi": {
        **_OPENMPI,
        **_OFI,
        "description": "Open MPI, libfabric's tcp provider",
        "within_node": "libfabric, since Open MPI's pml cm has no shared memory",
        "env": {
            **_OPENMPI_ENV,
            "OMPI_MCA_pml": "cm",
            "OMPI_MCA_mtl": "ofi",
            "OMPI_MCA_mtl_ofi_provider_include": "{ofi_include}",
        },
        "check_env": {**_OPENMPI_CHECK, "OMPI_MCA_btl": "self"},
        "lab_env": _OPENMPI_LAB,
        "bind": {**_OFI["bind"], **_OPENMPI_BIND},
        "report": {**_OPENMPI_REPORT, "OMPI_MCA_opal_common_ofi_verbose": "1"},
        # Open MPI 4 says "prov: tcp;ofi_rxm" and then "provider: eth1", 5 "provider: tcp;ofi_rxm"
        "path_report": r"mtl:ofi:prov(ider)?: \S*(tcp|ofi_rxm)",
    },
    "mpich-ucx": {
        **_MPICH,
        **_UCX,
        "description": "MPICH, ch4:ucx",
        "env": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "{ucx_tls},sm"},
        "check_env": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "{ucx_tls}"},
        "within_env": {"MPIR_CVAR_NOLOCAL": "0", "UCX_TLS": "{ucx_tls},sm"},
        "overcommit": _MPICH_OVERCOMMIT,
    },
    "mpich-ofi": {
        **_MPICH,
        **_OFI,
        "description": "MPICH, ch4:ofi",
        "env": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "{provider}"},
        "check_env": {"MPIR_CVAR_NOLOCAL": "1"},
        "within_env": {"MPIR_CVAR_NOLOCAL": "0"},
        "report": {"MPIR_CVAR_DEBUG_SUMMARY": "1"},
        "path_report": r"^libfabric provider: ",
        "overcommit": _MPICH_OVERCOMMIT,
    },
    "mpich-sock": {
        **_MPICH,
        "description": "MPICH, ch3:sock",
        "within_node": "TCP sockets, since ch3:sock has no shared memory",
        "env": {},
        "check_env": {"MPIR_CVAR_NOLOCAL": "1"},
        # ch3:sock reads no interface's name, only the address that each rank is to be reached at
        # (MPICH_INTERFACE_HOSTNAME), which differs from node to node. The task prolog of the
        # recipe mpi-transport finds it by this name.
        "bind": {"MPI_TRANSPORT_INTERFACE": "{interface}"},
        "report": {"MPICH_DBG_IFNAME": "1"},
        "path_report": r"^Found interface name \S+ from MPICH_INTERFACE_HOSTNAME$",
        "features": ["mpi", "tcp"],
    },
    "intelmpi-tcp": {
        **_MPICH,
        **_OFI,
        "description": "Intel MPI, libfabric's tcp provider",
        "env": {
            "I_MPI_PMI": "pmi2",
            "I_MPI_PMI_LIBRARY": "{pmi2_library}",
            "I_MPI_OFI_PROVIDER": "tcp",
        },
        "check_env": {"I_MPI_FABRICS": "ofi"},
        "within_env": {"I_MPI_FABRICS": "shm:ofi"},
        "report": {"I_MPI_DEBUG": "5", "I_MPI_DEBUG_OUTPUT": "{report_file}"},
        "path_report": r"libfabric provider: ",
        "overcommit": {"I_MPI_WAIT_MODE": "1"},
    },
}
