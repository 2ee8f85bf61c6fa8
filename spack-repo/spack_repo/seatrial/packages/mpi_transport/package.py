"""A path for the messages of an MPI, as something to load; see the class."""

import re
from pathlib import Path

from spack_repo.builtin.build_systems.bundle import BundlePackage

from spack.package import (
    EnvironmentModifications,
    InstallError,
    conflicts,
    depends_on,
    join_path,
    license,
    maintainers,
    mkdirp,
    requires,
    run_after,
    set_executable,
    variant,
    version,
)

#: Slurm's PMI-2 client library, which Intel MPI must be told of; the first that there is.
PMI2_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libpmi2.so.0",
    "/usr/lib64/libpmi2.so.0",
    "/usr/lib64/slurm/libpmi2.so",
    "/opt/slurm/lib/libpmi2.so.0",
)

#: For srun --task-prolog: what this prints on a node is set in the environment of its tasks.
SOCK_ADDRESS = """\
#!/bin/sh
# MPICH's ch3:sock takes no interface, only the address at which other ranks reach this one. Every
# node has its own, so no module can set it: Slurm runs this on the node before each task.
[ -n "$MPI_TRANSPORT_INTERFACE" ] || exit 0
address=$(PATH=$PATH:/usr/sbin:/sbin ip -4 -o address show dev "$MPI_TRANSPORT_INTERFACE" |
    sed -n 's|.* inet \\([0-9.]*\\).*|\\1|p' | head -n 1)
# Without one MPICH would take another network and say nothing: this name ends it in MPI_Init.
echo "export MPICH_INTERFACE_HOSTNAME=${address:-no-IPv4-address-on-$MPI_TRANSPORT_INTERFACE}"
"""


def interface_name(text):
    """Whether ``text`` can be a network interface's name (IFNAMSIZ is 16 with the closing NUL)."""
    return re.fullmatch(r"[A-Za-z0-9._:-]{1,15}", text) is not None


class MpiTransport(BundlePackage):
    """One MPI and the path its messages take: the variables that make it go that way, and no
    other. Installs nothing but its module, and for ch3:sock a task prolog that finds the
    address of each node on the interface.

    An MPI is one spec however many paths it has, so the paths are packages of their own:
    `mpi-transport transport=ucx ^openmpi` and `mpi-transport transport=tcp ^openmpi` are two
    modules over one Open MPI. They share a family: only one is loaded at a time. Shared memory is
    off, so that messages between ranks of one node take the path as well.
    """

    homepage = "https://github.com/seatrial/seatrial"

    maintainers("seatrial-developers")

    license("Apache-2.0", checked_by="seatrial-developers")

    version("1.0")

    variant(
        "transport",
        default="tcp",
        values=("tcp", "ucx", "ofi", "sock"),
        multi=False,
        description="tcp: sockets (Intel MPI: libfabric's tcp); sock: MPICH's ch3:sock",
    )
    variant(
        "interface",
        default="none",
        values=interface_name,
        multi=False,
        description="The interface of the network to be tested; none: the MPI chooses",
    )
    variant(
        "ucx_tls",
        default="self,tcp",
        values=lambda text: re.fullmatch(r"[a-z0-9_^]+", text) is not None,
        multi=True,
        when="transport=ucx",
        description="UCX_TLS; InfiniBand for example: rc,ud,self",
    )
    variant(
        "provider",
        default="tcp",
        values=lambda text: re.fullmatch(r"[a-z0-9_]+", text) is not None,
        multi=False,
        when="transport=ofi",
        description="libfabric's provider: tcp, verbs, cxi, psm3, efa ...",
    )

    depends_on("mpi")
    for path in ("ucx", "ofi"):
        requires(
            f"^[virtuals=mpi] openmpi fabrics={path}",
            when=f"transport={path} ^[virtuals=mpi] openmpi",
        )
        requires(
            f"^[virtuals=mpi] mpich device=ch4 netmod={path}",
            when=f"transport={path} ^[virtuals=mpi] mpich",
        )
    requires("^[virtuals=mpi] mpich device=ch3:sock", when="transport=sock ^[virtuals=mpi] mpich")

    conflicts("transport=sock", when="^[virtuals=mpi] openmpi", msg="sock is MPICH's ch3:sock")
    conflicts("transport=tcp", when="^[virtuals=mpi] mpich", msg="MPICH has ucx, ofi and sock")
    for path in ("ucx", "sock", "ofi"):
        conflicts(
            f"transport={path}",
            when="^[virtuals=mpi] intel-oneapi-mpi",
            msg="Intel MPI's path is libfabric: transport=tcp is its tcp provider",
        )

    @property
    def interface(self):
        """The interface to be tied to, or an empty text."""
        chosen = self.spec.variants["interface"].value
        return "" if chosen == "none" else chosen

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        mpi = self.spec["mpi"]
        home = getattr(mpi.package, "component_prefix", mpi.prefix)  # oneAPI's folders
        if home != mpi.prefix:  # oneAPI's libraries have no run path: vars.sh has the variables
            mpi.package.setup_run_environment(env)
        else:
            env.prepend_path("PATH", home.bin)
        settings = {
            "openmpi": self.open_mpi,
            "mpich": self.mpich,
            "intel-oneapi-mpi": self.intel_mpi,
        }.get(mpi.name)
        if settings is None:
            raise InstallError(f"mpi-transport does not know the variables of {mpi.name}")
        for name, value in settings(mpi).items():
            env.set(name, value)

    def open_mpi(self, mpi):
        """MCA parameters, by the framework that each belongs to."""
        path = self.spec.variants["transport"].value
        found = {"SLURM_MPI_TYPE": "pmix", "OMPI_MCA_mpi_yield_when_idle": "1"}
        if mpi.satisfies("@:4"):
            found["OMPI_MCA_io"] = "^romio321"
        if path == "tcp":
            found |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}
            if self.interface:
                found["OMPI_MCA_btl_tcp_if_include"] = self.interface
        elif path == "ucx":
            found |= {"OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "self", "OMPI_MCA_osc": "^ucx"}
            # Without "any" Open MPI refuses UCX where it finds no InfiniBand.
            found |= {"OMPI_MCA_opal_common_ucx_tls": "any"}
            found |= {"OMPI_MCA_opal_common_ucx_devices": "any", **self.ucx()}
        else:
            provider = self.spec.variants["provider"].value
            include = "tcp;ofi_rxm" if provider == "tcp" else provider
            found |= {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_btl": "self"}
            found |= {"OMPI_MCA_mtl_ofi_provider_include": include, **self.ofi()}
        return found

    def mpich(self, mpi):
        path = self.spec.variants["transport"].value
        found = {"SLURM_MPI_TYPE": "pmi2"}
        if path == "sock":
            # MPIR_CVAR_NETWORK_IFACE is of ch3:nemesis; ch3:sock would not read it.
            return {**found, "MPIR_CVAR_NOLOCAL": "1", **self.sock()}
        found |= {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": path}
        if path == "ucx":
            return {**found, **self.ucx()}
        return {**found, "FI_PROVIDER": self.spec.variants["provider"].value, **self.ofi()}

    def intel_mpi(self, mpi):
        found = {
            "SLURM_MPI_TYPE": "pmi2",
            "I_MPI_PMI": "pmi2",
            "I_MPI_FABRICS": "ofi",
            "I_MPI_OFI_PROVIDER": "tcp",
            **self.ofi(),
        }
        library = next((name for name in PMI2_LIBRARIES if Path(name).exists()), None)
        return {**found, "I_MPI_PMI_LIBRARY": library} if library else found

    def ucx(self):
        # A default of several values is kept as one.
        tls = sorted(",".join(self.spec.variants["ucx_tls"].value).split(","), reverse=True)
        tied = {"UCX_NET_DEVICES": self.interface} if self.interface else {}
        return {"UCX_TLS": ",".join(tls), **tied}

    @property
    def task_prolog(self):
        """The script of ch3:sock that finds the node's address."""
        return join_path(self.prefix.libexec, "sock-address")

    def sock(self):
        if not self.interface:
            return {}
        return {"MPI_TRANSPORT_INTERFACE": self.interface, "SLURM_TASK_PROLOG": self.task_prolog}

    @run_after("install")
    def write_task_prolog(self):
        if self.spec.satisfies("transport=sock"):
            mkdirp(self.prefix.libexec)
            Path(self.task_prolog).write_text(SOCK_ADDRESS)
            set_executable(self.task_prolog)

    def ofi(self):
        return {"FI_TCP_IFACE": self.interface} if self.interface else {}
