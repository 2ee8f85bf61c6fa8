"""The model of ``site-configs/<site>/site.yaml``, which describes one cluster.

It has the names and types of the fields, and the rules inside one section. The rules between
sections are in ``seatrial.site.validate``. It reads no file (see ``seatrial.site.load``) and does
not depend on ReFrame (see ``seatrial.checks.configuration``).
"""

from __future__ import annotations

import os
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ClusterShell.NodeSet import NodeSet
from pydantic import Field, PrivateAttr, create_model, field_validator, model_validator

from seatrial.base.fields import (
    Address,
    Interface,
    Model,
    Name,
    NodeList,
    Option,
    Rate,
    Size,
    Subnet,
    text_of,
)
from seatrial.base.names import PSEUDO_TRANSPORTS, VERBS
from seatrial.base.suggest import matching
from seatrial.base.yamlfile import InvalidValue
from seatrial.benchmarks.benchmark import Benchmark
from seatrial.benchmarks.registry import registry
from seatrial.nic.profile import DataPath, NicProfile, default_feature

AbsoluteFolder = Annotated[
    str, *text_of(r"/[^\0\n]*", "an absolute path", "write for example /opt/spack")
]
RdmaPort = Annotated[
    str,
    *text_of(r"[A-Za-z0-9_.%-]+:[1-9][0-9]*", "an RDMA device and its port", "as mlx5_0:1"),
]
GuestKernel = Annotated[
    str,
    *text_of(
        r"[a-z]+(-[a-z]+)*|/[^\0\n]*",
        "a Debian suite or an absolute path",
        "write for example trixie-backports or /root/linux-7.3",
    ),
]
DriverFile = Annotated[
    str,
    *text_of(r"/[^\0\n]*\.ko", "the absolute path of a module", "write for example /root/igb.ko"),
]
DebianPackage = Annotated[
    str, *text_of(r"[a-z0-9][a-z0-9.+-]+", "a Debian package", "write for example mpich")
]
ClusterName = Annotated[
    str, *text_of(r"[A-Za-z0-9_-]+", "the name of a cluster", "write ClusterName of slurm.conf")
]
CommandWord = Annotated[
    str, *text_of(r"[^\0]+", "a word of a command", "write for example [mail, -s, Seatrial, ops]")
]
Pinned = Annotated[
    str, *text_of(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", "name==version", "as impi-rt==2021.19.0")
]


class Network(Model):
    """A network of the nodes. Only networks of role ``test`` are measured."""

    role: Literal["management", "test", "other"] = Field(examples=["test"])
    interface: Interface = Field(description="its interface on every node", examples=["eth1"])
    subnet: Subnet = Field(examples=["10.0.1.0/24"])
    mtu: int = Field(default=1500, ge=68, le=65535, description="bytes, after the nodes boot")
    switch_mtu: int | None = Field(
        default=None, ge=68, le=65535, description="largest MTU of its switches"
    )
    line_rate: Rate | None = Field(
        default=None,
        description="of one interface in each direction; a bandwidth above it is an error. Without "
        "it, the link speed that a card reports",
        examples=["100 Gbit/s"],
    )
    cable: bool = Field(
        default=True,
        description="false: its interface has no cable, and jobs never use it",
    )
    fabric: Literal["ethernet", "infiniband", "roce", "slingshot", "efa"] = "ethernet"
    device: RdmaPort | None = Field(
        default=None,
        description="RDMA device and port of the interface, which transports with data_path: verbs "
        "use; %n is the node's short name",
        examples=["mlx5_0:1"],
    )
    description: str = ""

    def rdma_port(self, node: str) -> str:
        """The RDMA device and port of a node, as ``mlx5_0:1``; empty if the network has none."""
        return (self.device or "").replace("%n", node.partition(".")[0])


class Nodes(Model):
    """A group of equal nodes."""

    names: NodeList = Field(examples=['"n[1-64]"'])
    node_class: Name | None = Field(
        default=None, alias="class", description="a name, for profiles that fit only these nodes"
    )
    cores: int = Field(ge=1, description="cores for jobs", examples=["16"])
    sockets: int = Field(default=1, ge=1, description="sockets among which the cores are divided")
    memory_MiB: int = Field(default=1024, ge=64)
    GHz: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="clock of a core for the theoretical peak, nominal or of all cores with turbo",
    )
    flop_per_cycle: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="operations in double precision of a core per cycle, for the peak",
        examples=["16"],
    )
    networks: list[Name] | None = Field(
        default=None, description="the networks that they have an interface of; default: all"
    )
    description: str = ""

    @model_validator(mode="after")
    def _whole_cores(self) -> Nodes:
        if self.cores % self.sockets:
            text = f"{self.cores} cores cannot be divided among {self.sockets} sockets"
            raise InvalidValue(text, "a divisor of cores", "sockets")
        return self

    @model_validator(mode="after")
    def _whole_peak(self) -> Nodes:
        if (self.GHz is None) != (self.flop_per_cycle is None):
            given, lacks = ("GHz", "flop_per_cycle") if self.GHz else ("flop_per_cycle", "GHz")
            raise InvalidValue(f"the peak of a core needs {lacks}, too", f"add {lacks}", given)
        return self

    @property
    def peak_GFLOPS(self) -> float | None:
        """The theoretical peak of a node; None if the site file does not give it."""
        if self.GHz is None or self.flop_per_cycle is None:
            return None
        return self.cores * self.GHz * self.flop_per_cycle


class Cost(Model):
    """A price of the whole machine."""

    name: str = Field(min_length=1, examples=["purchase"])
    usd: float = Field(gt=0, examples=["2490"])
    day: date = Field(alias="date", description="of the price", examples=["2026-11-01"])
    includes: str = Field(min_length=1, examples=["nodes, switch and cables"])
    network: Name | None = Field(
        default=None, description="the price with this network alone; default: with any"
    )
    profile: Name | None = Field(
        default=None, description="the price with what this NIC profile needs; default: with any"
    )


class Power(Model):
    """The power of the whole machine."""

    watts: float = Field(gt=0, examples=["900"])
    source: Literal["meter", "BMC", "declared"] = Field(examples=["meter"])
    load: str = Field(min_length=1, description="under which load", examples=["HPL"])


class Machine(Model):
    """Prices and power of the whole machine, for the chapter on what the figures mean."""

    costs: list[Cost] = []
    power: Power | None = None


class Partition(Model):
    """A Slurm partition that trials may use."""

    nodes: NodeList = Field(examples=['"n[1-64]"'])
    options: list[Option] = Field(default=[], description="more sbatch options")
    description: str = ""


class Slurm(Model):
    backend: Literal["slurm", "squeue"] = Field(
        default="slurm", description="ReFrame's scheduler: slurm needs accounting"
    )
    cluster: ClusterName | None = Field(
        default=None,
        description="ClusterName of slurm.conf; the modules of the stack refuse to load in a job "
        "of another cluster",
        examples=["harbour"],
    )
    options: list[Option] = Field(default=[], description="sbatch options of every job")
    jobs_in_queue: int = Field(default=64, ge=1, description="largest number of submitted jobs")
    config: list[str] = Field(default=[], description="lines for the lab's slurm.conf")
    licenses: dict[str, int] = Field(
        default={}, description="Slurm licenses of the lab; 0: one for each core of the machine"
    )


class NicInstall(Model):
    """Paths of the node side of NIC profiles, the same on every node."""

    state_folder: str = Field(
        default="/var/lib/seatrial-nic",
        pattern=r"^/[A-Za-z0-9._%/-]+$",
        description="local to the node and kept over a reboot; %n is the node's short name",
    )
    scontrol: str = Field(
        default="/usr/bin/scontrol",
        pattern=r"^/[A-Za-z0-9._/-]+$",
        description="absolute path; the health check drains nodes with it",
    )
    controllers: list[Address] = Field(
        default=[],
        description="IP addresses of slurmctld's hosts; an interface to them is never changed",
    )


class Transport(Model):
    """The site's changes of a transport of the stack."""

    description: str = ""
    base: Name | None = Field(
        default=None,
        description="the stack's transport that it is a variant of, with env, options, network and "
        "data_path of its own; its name is that of the base, a hyphen and a word; default: the "
        "stack's of the same name",
    )
    network: Name | None = Field(
        default=None, description="the only network that it uses; default: all of role test"
    )
    data_path: DataPath = Field(
        default="kernel", description="what moves its messages: the kernel, or user space"
    )
    env: dict[str, str] = {}
    options: list[Option] = Field(default=[], description="more srun options")


class ChosenBenchmarks(Model):
    """The benchmarks that a site runs, with a key for each benchmark of the registry."""

    _order: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: Any, handler: Any) -> Any:
        """Keep the order of the file, which is the order of the cases."""
        chosen = handler(data)
        if isinstance(data, dict):
            chosen._order = list(data)
        return chosen

    def enabled(self) -> list[Benchmark[Any]]:
        """The benchmarks in the site's file, in their order."""
        names = [*dict.fromkeys([*self._order, *type(self).model_fields])]
        settings = {name: getattr(self, name, None) for name in names}
        return [
            registry()[name](setting) for name, setting in settings.items() if setting is not None
        ]

    def empty(self) -> list[str]:
        """The names in the site's file that nothing follows."""
        return [name for name in self._order if getattr(self, name, None) is None]


if TYPE_CHECKING:
    Benchmarks = ChosenBenchmarks
else:
    Benchmarks = create_model(
        "Benchmarks",
        __base__=ChosenBenchmarks,
        **{name: (benchmark.Settings | None, None) for name, benchmark in registry().items()},
    )


class Jobs(Model):
    """What the job templates use."""

    transports: list[Name] = Field(
        default=[],
        description="transports of users' jobs in order of preference, where no measurement "
        "decides",
        examples=["[openmpi-tcp]"],
    )


#: of a trial: repeats of a case, rounds, and reruns
MOST_RUNS = 100


class TrialDefaults(Model):
    partition: Name | None = Field(
        default=None, description="partition of the trials, if the site has more than one"
    )
    repeats: int = Field(default=2, ge=1, le=MOST_RUNS, description="runs of each case in a round")
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_RUNS,
        description="how often the trial goes through all NIC profiles, each time in new jobs; a "
        "comparison of profiles needs five, of eight profiles or more six",
    )
    reruns: int = Field(
        default=0,
        ge=0,
        le=MOST_RUNS,
        description="how often a case runs again if its figures break a bound or are inconclusive",
    )
    profiles: list[str] = ["default"]
    transports: list[str] = ["*"]
    networks: list[str] = Field(
        default=["*"],
        description="the networks of role test that are measured, each by itself",
    )
    time_limit_s: int = Field(
        default=1800, ge=10, description="of each round, without the time in Slurm's queue"
    )
    evidence_days: int = Field(
        default=90,
        ge=1,
        description="how long 'seatrial history prune' keeps the raw evidence of a trial",
    )
    notify: list[CommandWord] = Field(
        default=[],
        description="the command of 'seatrial history notify' and its arguments, without a shell; "
        "it reads the text from standard input",
        examples=['[mail, -s, "Seatrial: harbour", ops@example.org]'],
    )


#: of a cable, in bit/s: twice the fastest Ethernet
MAX_WIRE_RATE = 1_600_000_000_000
#: NIC models of the virtual lab's emulated machine
NicModel = Literal["igb", "igb-vf", "e1000", "e1000e", "virtio-net", "vmxnet3"]


class LabSwitch(Model):
    """The switch of a test network of a virtual lab. It stores a frame before it forwards it."""

    queue: Size = Field(
        description="frames that wait for one port occupy this at most; one more is dropped",
        examples=["128 KiB"],
    )
    latency_ns: int = Field(
        default=0, ge=0, le=10**9, description="from a frame's end at the switch to its departure"
    )


class LabWire(Model):
    """The cables of a test network of a virtual lab: one for each card."""

    rate: Rate = Field(description="of a cable in each direction", examples=["1 Gbit/s"])
    delay_ns: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="propagation delay: from card to card, or to the switch; 5 ns a metre",
    )
    switch: LabSwitch | None = Field(
        default=None,
        description="without it, a frame is on a cable once, and is dropped if 16 MiB wait for the "
        "card",
    )
    bus: int = Field(
        default=1,
        ge=1,
        le=9,
        description="number of the host bus that has the cards of this network; each bus has "
        "bus_MB_s",
    )

    @field_validator("rate")
    @classmethod
    def _rate_of_a_cable(cls, rate: int) -> int:
        if rate > MAX_WIRE_RATE:
            raise InvalidValue("no Ethernet is faster than 1.6 Tbit/s", "for example 1 Gbit/s")
        return rate


#: field of a virtual lab -> why a native lab does not have it
_NOT_NATIVE = {
    "nics": "a native lab has no NIC models",
    "memory_MiB": "a native lab has this machine's memory",
    "kernel": "a native lab has this machine's kernel",
    "drivers": "a native lab has this machine's kernel",
    "processors": "a native lab has this machine's processors",
    "wires": "the wires of a native lab have no rate",
    "bus_MB_s": "the nodes of a native lab have no host bus",
    "window_ns": "a native lab has no virtual time",
}


class Lab(Model):
    """A cluster that Seatrial creates on this machine."""

    engine: Literal["native", "virtual"]
    accounting: bool = Field(default=True, description="slurmdbd and sacct; native only")
    nics: dict[Name, list[NicModel]] = Field(
        default={},
        description="virtual: class of nodes -> NIC model on each test network, in their order",
    )
    memory_MiB: int = Field(
        default=4096, ge=1024, le=2**20, description="virtual: memory of the guest"
    )
    kernel: GuestKernel | None = Field(
        default=None,
        description="virtual: the guest's kernel: a Debian suite, or a folder with "
        "boot/vmlinuz-RELEASE and lib/modules/RELEASE; default: the machine's release",
        examples=["trixie-backports"],
    )
    drivers: list[DriverFile] = Field(
        default=[],
        description="virtual: modules built for the guest's kernel, each in the place of the "
        "kernel's own of that name",
        examples=["[/root/igb.ko]"],
    )
    processors: Literal["shared", "own"] = Field(
        default="shared",
        description="virtual: one processor for all nodes, or each node has its own: as many as "
        "its cores, up to four",
    )
    wires: dict[Name, LabWire] = Field(
        default={},
        description="with processors: own: test network -> its cables; others have no speed",
        examples=["{test: {rate: 1 Gbit/s}}"],
    )
    bus_MB_s: float | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="with processors: own: of each host bus of a node, in both directions "
        "together; all cards are on one, but for those of a network with another wires.NAME.bus; "
        "264 is PCI with 32 bit and 66 MHz",
        examples=["264"],
    )
    window_ns: int | None = Field(
        default=None,
        ge=100,
        le=1000,
        description="with processors: own: a processor may be so far ahead of another in virtual "
        "time; default: 1000. Less is right for programs that spin on each other's memory inside "
        "a node, and takes longer",
        examples=["100"],
    )

    @property
    def cores(self) -> int:
        """Number of processors that all nodes share, without ``processors: own``."""
        return 1 if self.engine == "virtual" else os.cpu_count() or 1

    @model_validator(mode="after")
    def _only_what_the_engine_has(self) -> Lab:
        if self.engine == "virtual":
            if self.accounting and "accounting" in self.model_fields_set:
                raise InvalidValue("a virtual lab has no slurmdbd", "engine: native", "accounting")
        else:
            for name, message in _NOT_NATIVE.items():
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise InvalidValue(message, "engine: virtual", name)
        for name in ("wires", "bus_MB_s", "window_ns"):
            if getattr(self, name) and self.processors == "shared":
                raise InvalidValue(
                    "only the emulator of labs whose nodes have their own processors has it",
                    "processors: own",
                    name,
                )
        for name, wire in self.wires.items():
            if self.bus_MB_s is None and wire.bus > 1:
                raise InvalidValue(
                    "a second bus needs a rate", "for example bus_MB_s: 264", f"wires.{name}.bus"
                )
        return self


class Stack(Model):
    """The source of the MPI libraries and benchmarks. Only Spack uses the other fields."""

    source: Literal["distribution", "spack"] = "distribution"
    environment: str | None = Field(
        default=None, description="folder of spack.yaml, relative to this file; default: spack"
    )
    root: AbsoluteFolder | None = Field(
        default=None, description="the site's Spack; without it Seatrial clones Spack"
    )
    scopes: list[str] = Field(
        default=[], description="more folders of Spack configuration, relative to this file"
    )
    modules: Literal["lmod", "tcl"] = Field(
        default="lmod", description="module tree for `module load`"
    )
    debian_packages: list[DebianPackage] = Field(
        default=[], description="lab: Debian packages of its external MPI libraries"
    )
    pypi_packages: list[Pinned] = Field(
        default=[], description="lab: PyPI packages of its external MPI libraries, name==version"
    )

    @model_validator(mode="after")
    def _only_for_spack(self) -> Stack:
        """Fields that only Spack reads are errors for another source."""
        given = self.model_fields_set - {"source"}
        if self.source != "spack" and given:
            raise InvalidValue.several(
                [
                    (f"{name} is for a stack of Spack", f"source: spack, or remove {name}", name)
                    for name in sorted(given)
                ]
            )
        return self


class Site(Model):
    """One cluster."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name = Field(examples=["harbour"])
    description: str = ""
    lab: Lab | None = None
    stack: Stack = Stack()
    networks: dict[Name, Network] = Field(
        examples=["{test: {role: test, interface: eth1, subnet: 10.0.1.0/24}}"]
    )
    nodes: list[Nodes] = Field(min_length=1, examples=['[{names: "n[1-64]", cores: 16}]'])
    partitions: dict[Name, Partition] = Field(
        min_length=1, examples=['{compute: {nodes: "n[1-64]"}}']
    )
    slurm: Slurm = Slurm()
    nic: NicInstall = NicInstall()
    nic_profiles: dict[Name, NicProfile] = Field(
        examples=["{default: {description: the node as it boots}}"]
    )
    transports: dict[Name, Transport] = Field(examples=["{openmpi-tcp: {}}"])
    benchmarks: Benchmarks = Field(examples=["{netpipe: {}}"])
    trial: TrialDefaults = TrialDefaults()
    jobs: Jobs = Jobs()
    machine: Machine = Machine()

    @model_validator(mode="after")
    def _features(self) -> Site:
        """Set the Slurm feature of each profile except default, which needs none."""
        for name, profile in self.nic_profiles.items():
            if name != "default" and profile.feature is None:
                profile.feature = default_feature(name)
        return self

    @model_validator(mode="after")
    def _all_nodes(self) -> Site:
        """Give a benchmark without a number of nodes all nodes of the trials' partition."""
        partition = self.partitions.get(self.trial_partition)
        for benchmark in self.benchmarks.enabled() if partition else ():
            if partition and not benchmark.settings.nodes:
                benchmark.settings.nodes = [len(NodeSet(partition.nodes))]
        return self

    @property
    def node_names(self) -> list[str]:
        names = NodeSet()
        for group in self.nodes:
            names.update(group.names)
        return list(names)

    @property
    def trial_partition(self) -> str:
        """The partition of the trials: the chosen one, or the only one."""
        return self.trial.partition or next(iter(self.partitions))

    @property
    def _trial_groups(self) -> list[Nodes]:
        """The groups of nodes of the partition of the trials."""
        partition = self.partitions.get(self.trial_partition)
        nodes = NodeSet(partition.nodes) if partition else NodeSet()
        return [group for group in self.nodes if NodeSet(group.names) & nodes] or self.nodes

    @property
    def node_cores(self) -> int:
        """The cores of the smallest node of the trials."""
        return min(group.cores for group in self._trial_groups)

    @property
    def node_memory_MiB(self) -> int:
        """The memory of the smallest node of the trials."""
        return min(group.memory_MiB for group in self._trial_groups)

    @property
    def test_networks(self) -> list[str]:
        """The names of the networks of role ``test``, in the order of the file."""
        return [name for name, network in self.networks.items() if network.role == "test"]

    @property
    def rails(self) -> list[str]:
        """The networks that the site's trials measure, in the order of the file."""
        cabled = [name for name in self.test_networks if self.networks[name].cable]
        return matching(self.trial.networks, cabled)

    @property
    def pseudo_transports(self) -> list[str]:
        """The transports of checks without MPI; ``verbs`` if a test network has an RDMA device."""
        rdma = any(self.networks[name].device for name in self.test_networks)
        return [name for name in PSEUDO_TRANSPORTS if name != VERBS or rdma]

    def base_of(self, transport: str) -> str:
        """The transport of the stack that a transport of the site is, or is a variant of."""
        declared = self.transports.get(transport)
        return (declared.base if declared else None) or transport

    def data_path(self, transport: str) -> DataPath:
        """What moves the messages of a transport."""
        declared = self.transports.get(transport)
        return "verbs" if transport == VERBS else declared.data_path if declared else "kernel"

    @property
    def virtual(self) -> bool:
        """Whether it is a virtual lab, in which the clock of the nodes counts instructions."""
        return self.lab is not None and self.lab.engine == "virtual"

    def network_of(self, transport: str) -> str:
        """The network of a transport: its own, or the first that trials measure.

        That of ``verbs`` is the first one with an RDMA device.
        """
        chosen = self.transports.get(transport)
        if chosen and chosen.network:
            return chosen.network
        names = self.rails or self.test_networks
        if transport == VERBS:
            names = [name for name in names if self.networks[name].device] or self.test_networks
        return names[0]
