"""A path for the messages of an MPI, as something to load; see the class."""

import re
from pathlib import Path

from spack_repo.builtin.build_systems.bundle import BundlePackage
from spack_repo.seatrial.transports import (
    CHOICES,
    MPI_NAMES,
    TRANSPORTS,
    bound,
    fill,
    over_verbs,
    pmi2_library,
    words,
)

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
    run_before,
    set_executable,
    variant,
    version,
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
    return re.fullmatch(r"[A-Za-z0-9._-]{1,15}", text) is not None


class MpiTransport(BundlePackage):
    """One MPI and the path its messages take between nodes: the variables that make them go that
    way, and no other. Installs nothing but its module, and for ch3:sock a task prolog that finds
    the address of each node on the interface.

    An MPI is one spec however many paths it has, so the paths are packages of their own:
    `mpi-transport transport=ucx ^openmpi` and `mpi-transport transport=tcp ^openmpi` are two
    modules over one Open MPI. They share a family: only one is loaded at a time. Ranks of one node
    use shared memory where the MPI has it for this path.
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
        "rdma_port",
        default="none",
        values=lambda text: re.fullmatch(r"none|[\w.-]+:[1-9][0-9]*", text) is not None,
        multi=False,
        when="transport=ucx",
        description="The RDMA port for UCX over verbs, as mlx5_0:1; none: UCX chooses, for "
        "example where its name differs from node to node",
    )
    variant(
        "ucx_tls",
        default="self,tcp",
        values=lambda text: re.fullmatch(r"[a-z0-9_]+", text) is not None,
        multi=True,
        when="transport=ucx",
        description="UCX_TLS between nodes; InfiniBand for example: rc,ud,self",
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

    @property
    def over_verbs(self):
        """Whether UCX sends over verbs, and so through an RDMA port."""
        variants = self.spec.variants
        return "ucx_tls" in variants and over_verbs(variants["ucx_tls"].value)

    @property
    def rdma_port(self):
        """The RDMA port to be tied to, or an empty text."""
        variants = self.spec.variants
        chosen = variants["rdma_port"].value if "rdma_port" in variants else "none"
        return "" if chosen == "none" else chosen

    @run_before("install")
    def check_rdma_port(self):
        if self.rdma_port and not self.over_verbs:
            raise InstallError(
                f"rdma_port={self.rdma_port} needs a transport over verbs in ucx_tls, for "
                "example ucx_tls=rc,ud,self"
            )

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        mpi = self.spec["mpi"]
        home = getattr(mpi.package, "component_prefix", mpi.prefix)  # oneAPI's folders
        if home != mpi.prefix:  # oneAPI's libraries have no run path: vars.sh has the variables
            mpi.package.setup_run_environment(env)
        else:
            env.prepend_path("PATH", home.bin)
        for name, value in self.settings(mpi).items():
            env.set(name, value)

    def part(self, mpi):
        """The entry of this path under an MPI in the table of all transports."""
        if mpi.name not in MPI_NAMES:
            raise InstallError(f"mpi-transport does not know the variables of {mpi.name}")
        return TRANSPORTS[f"{MPI_NAMES[mpi.name]}-{self.spec.variants['transport'].value}"]

    @property
    def within_node(self):
        """How messages travel between the ranks of a node, for the help of the module."""
        return self.part(self.spec["mpi"]).get("within_node", "shared memory")

    def settings(self, mpi):
        """The variables of a user's module: those of the path, and of its interface."""
        part, variants = self.part(mpi), self.spec.variants
        fields = words(**{name: variants[name].value for name in CHOICES if name in variants})
        fields.update(interface=self.interface, pmi2_library=pmi2_library())
        found = {"SLURM_MPI_TYPE": part["slurm_mpi"]}
        found.update(fill(part["env"], fields))
        bind = fill(part.get("bind", {}), fields)
        found.update(bound(bind, self.rdma_port) if self.over_verbs else bind)
        if self.spec.satisfies("transport=sock") and self.interface:
            found["SLURM_TASK_PROLOG"] = self.task_prolog
        return found

    @property
    def task_prolog(self):
        """The script of ch3:sock that finds the node's address."""
        return join_path(self.prefix.libexec, "sock-address")

    @run_after("install")
    def write_task_prolog(self):
        if self.spec.satisfies("transport=sock"):
            mkdirp(self.prefix.libexec)
            Path(self.task_prolog).write_text(SOCK_ADDRESS)
            set_executable(self.task_prolog)
