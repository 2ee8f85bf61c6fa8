"""The shape of ``site-configs/<site>/site.yaml``: one cluster, as data.

Holds names, types and what must agree inside one file. It reads no file (see
``seatrial.site.load``) and knows nothing of ReFrame (see ``seatrial.checks.configuration``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ClusterShell.NodeSet import NodeSet
from pydantic import Field, PrivateAttr, create_model, model_validator

from seatrial.base.fields import (
    Address,
    Interface,
    Model,
    Name,
    NodeList,
    Rate,
    Subnet,
    matching,
)
from seatrial.base.yamlfile import Fault
from seatrial.benchmarks.benchmark import Benchmark
from seatrial.benchmarks.registry import registry
from seatrial.nic.profile import DataPath, NicProfile, default_feature

AbsoluteFolder = Annotated[
    str, *matching(r"/[^\0\n]*", "an absolute path", "write for example /opt/spack")
]
DebianPackage = Annotated[
    str, *matching(r"[a-z0-9][a-z0-9.+-]+", "a Debian package", "write for example mpich")
]
Pinned = Annotated[
    str, *matching(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", "name==version", "as impi-rt==2021.19.0")
]


class Network(Model):
    """A network that the nodes share. Exactly those with role ``test`` are measured."""

    role: Literal["management", "test", "other"]
    interface: Interface = Field(description="its interface on every node, e.g. eth1")
    subnet: Subnet
    mtu: int = Field(default=1500, ge=68, le=65535, description="bytes, as the nodes boot")
    switch_mtu: int | None = Field(
        default=None, ge=68, le=65535, description="the largest that its switches carry"
    )
    line_rate: Rate | None = Field(
        default=None,
        description="of one interface in each direction; a bandwidth above it is an error. Without "
        "it, the link speed that a card reports",
        examples=["100 Gbit/s"],
    )
    fabric: Literal["ethernet", "infiniband", "roce", "slingshot", "efa"] = "ethernet"
    description: str = ""


class Nodes(Model):
    """Nodes that are alike."""

    names: NodeList
    node_class: Name | None = Field(
        default=None, alias="class", description="name for NIC profiles that fit only these nodes"
    )
    cores: int = Field(ge=1, description="cores that Slurm may give to jobs")
    memory_MiB: int = Field(default=1024, ge=64)
    description: str = ""


class Partition(Model):
    """A Slurm partition that trials may use."""

    nodes: NodeList
    options: list[str] = Field(default=[], description="further sbatch options")
    description: str = ""


class Slurm(Model):
    backend: Literal["slurm", "squeue"] = Field(
        default="slurm", description="ReFrame's scheduler: slurm needs accounting"
    )
    options: list[str] = Field(default=[], description="sbatch options of every job")
    jobs_in_queue: int = Field(default=64, ge=1, description="how many jobs to submit at once")
    config: list[str] = Field(default=[], description="lines for the lab's slurm.conf")
    licenses: dict[str, int] = Field(
        default={}, description="Slurm licences of the lab; 0 stands for the machine's cores"
    )


class NicInstall(Model):
    """Where the node side of NIC profiles has its things, the same on every node."""

    state_folder: str = Field(
        default="/var/lib/seatrial-nic",
        pattern=r"^/[A-Za-z0-9._%/-]+$",
        description="local to the node, survives a reboot; %n is the node's short name",
    )
    scontrol: str = Field(
        default="/usr/bin/scontrol",
        pattern=r"^/[A-Za-z0-9._/-]+$",
        description="absolute path; by it the health check gives a reason when it drains a node",
    )
    controllers: list[Address] = Field(
        default=[],
        description="IP addresses of slurmctld's hosts: no interface on the way to them is set",
    )


class Transport(Model):
    """What the site changes in a transport that the stack offers."""

    description: str = ""
    network: Name | None = Field(default=None, description="a network of role test")
    data_path: DataPath = Field(
        default="kernel", description="what moves its messages: the kernel's stack, or user space"
    )
    env: dict[str, str] = {}
    options: list[str] = Field(default=[], description="further srun options")


class ChosenBenchmarks(Model):
    """The benchmarks that a site runs: a key for each of the registry."""

    _order: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: Any, handler: Any) -> Any:
        """Keep the order of the file: it is the order of a trial's cases."""
        made = handler(data)
        if isinstance(data, dict):
            made._order = list(data)
        return made

    def enabled(self) -> list[Benchmark[Any]]:
        """The benchmarks that the site has settings for, in the order of its file."""
        names = [*dict.fromkeys([*self._order, *type(self).model_fields])]
        settings = {name: getattr(self, name, None) for name in names}
        return [registry()[name](one) for name, one in settings.items() if one is not None]


if TYPE_CHECKING:
    Benchmarks = ChosenBenchmarks
else:
    Benchmarks = create_model(
        "Benchmarks",
        __base__=ChosenBenchmarks,
        **{name: (one.Settings | None, None) for name, one in registry().items()},
    )


class TrialDefaults(Model):
    partition: Name | None = Field(
        default=None, description="the partition that trials use, where the site has several"
    )
    repeats: int = Field(default=2, ge=1)
    reruns: int = Field(
        default=0,
        ge=0,
        description="how many more times a case is run whose figures break a bound",
    )
    profiles: list[str] = ["default"]
    transports: list[str] = ["*"]
    time_limit_s: int = Field(default=1800, ge=10, description="of the trial as a whole")


#: cards that the virtual lab's emulated machine can have
NicModel = Literal["igb", "igb-vf", "e1000", "e1000e", "virtio-net", "vmxnet3"]


class Lab(Model):
    """Present only where Seatrial makes the cluster itself."""

    engine: Literal["native", "virtual"]
    accounting: bool = Field(default=True, description="slurmdbd and sacct; native only")
    nics: dict[Name, list[NicModel]] = Field(
        default={},
        description="virtual: class of nodes -> model of their NIC on each test network in turn",
    )
    memory_MiB: int = Field(default=4096, ge=1024, description="virtual: of the guest as a whole")

    @property
    def cores(self) -> int:
        """How many processors all its nodes together have."""
        return 1 if self.engine == "virtual" else os.cpu_count() or 1

    @model_validator(mode="after")
    def _of_its_engine(self) -> Lab:
        if self.engine == "native" and self.nics:
            raise Fault("a native lab has no NICs to choose", "engine: virtual", "nics")
        return self


class Stack(Model):
    """Where the MPI libraries and benchmarks are from. All but ``source`` is for Spack."""

    source: Literal["distribution", "spack"] = "distribution"
    environment: str | None = Field(
        default=None, description="folder of spack.yaml, from this file's; none: spack"
    )
    root: AbsoluteFolder | None = Field(
        default=None, description="a Spack that the site has; none: Seatrial clones its own"
    )
    scopes: list[str] = Field(
        default=[], description="further folders of Spack configuration, from this file's"
    )
    modules: Literal["lmod", "tcl"] = Field(
        default="lmod", description="which of the two module trees `module load` is to find"
    )
    debian_packages: list[DebianPackage] = Field(
        default=[], description="of a lab: what its external MPI libraries are installed from"
    )
    pypi_packages: list[Pinned] = Field(
        default=[], description="of a lab: the same from PyPI, name==version"
    )

    @model_validator(mode="after")
    def _only_for_spack(self) -> Stack:
        """What only Spack reads is an error without it, not something quietly left out."""
        given = self.model_fields_set - {"source"}
        if self.source != "spack" and given:
            raise Fault.several(
                [
                    (f"only a stack of Spack has {name}", "source: spack, or leave it out", name)
                    for name in sorted(given)
                ]
            )
        return self


class Site(Model):
    """One cluster."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    description: str = ""
    lab: Lab | None = None
    stack: Stack = Stack()
    networks: dict[Name, Network]
    nodes: list[Nodes] = Field(min_length=1)
    partitions: dict[Name, Partition] = Field(min_length=1)
    slurm: Slurm = Slurm()
    nic: NicInstall = NicInstall()
    nic_profiles: dict[Name, NicProfile]
    transports: dict[Name, Transport]
    benchmarks: Benchmarks
    trial: TrialDefaults = TrialDefaults()

    @model_validator(mode="after")
    def _features(self) -> Site:
        """Each profile but default, which needs none, gets the feature that asks for it."""
        for name, profile in self.nic_profiles.items():
            if name != "default" and profile.feature is None:
                profile.feature = default_feature(name)
        return self

    @property
    def node_names(self) -> list[str]:
        names = NodeSet()
        for group in self.nodes:
            names.update(group.names)
        return list(names)

    @property
    def trial_partition(self) -> str:
        """The partition that trials use: the one chosen, or the only one there is."""
        return self.trial.partition or next(iter(self.partitions))

    @property
    def test_networks(self) -> list[str]:
        """The names of the networks of role ``test``, in the order of the file."""
        return [name for name, network in self.networks.items() if network.role == "test"]

    @property
    def virtual(self) -> bool:
        """Whether a virtual lab plays it, where the nodes' clock counts instructions."""
        return self.lab is not None and self.lab.engine == "virtual"

    def network_of(self, transport: str) -> str:
        """The network that a transport is tested on (its own, or the site's first of role test)."""
        chosen = self.transports.get(transport)
        if chosen and chosen.network:
            return chosen.network
        return self.test_networks[0]
