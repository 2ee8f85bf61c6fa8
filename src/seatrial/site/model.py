"""The shape of ``site-configs/<site>/site.yaml``: one cluster, as data.

Holds names, types and what must agree inside one file. It reads no file (see
``seatrial.site.load``) and knows nothing of ReFrame (see ``seatrial.site.reframe``).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from seatrial.yamlfile import Fault

NAME = r"^[a-z][a-z0-9_-]*$"  # what ReFrame takes as a name
INTERFACE = r"^[A-Za-z0-9._-]{1,15}$"  # IFNAMSIZ is 16 with the closing NUL
SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _nodeset(text: str) -> str:
    try:
        if not NodeSet(text):
            raise Fault("names no node", "write for example n[1-4]")
    except NodeSetException as error:
        raise Fault(f"not a node list: {error}", "write for example n[1-4] or n1,n3") from None
    return text


def _subnet(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise Fault(f"not a network: {error}", "write for example 10.1.0.0/16") from None
    return text


def parse_size(text: str | int) -> int:
    """Bytes in ``text``: a whole number, or one with B, KiB, MiB or GiB behind it.

    Raises Fault, a ValueError.
    """
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", str(text).strip())
    if not match:
        raise Fault("not a size", "write a whole number of bytes, or for example 64 KiB or 4 MiB")
    return int(match[1]) * SIZE_UNITS[match[2] or ""]


Name = Annotated[str, Field(pattern=NAME)]
Interface = Annotated[str, Field(pattern=INTERFACE)]
NodeList = Annotated[str, AfterValidator(_nodeset)]
Subnet = Annotated[str, AfterValidator(_subnet)]
Size = Annotated[str | int, AfterValidator(parse_size)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class Network(Model):
    """A network that the nodes share. Exactly those with role ``test`` are measured."""

    role: Literal["management", "test", "other"]
    interface: Interface = Field(description="its interface on every node, e.g. eth1")
    subnet: Subnet
    mtu: int = Field(default=1500, ge=68, le=65535)
    description: str = ""


class Nodes(Model):
    """Nodes that are alike."""

    names: NodeList
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


class NicProfile(Model):
    """A named set of NIC settings; ``default`` is the node as it boots."""

    description: str
    feature: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.=]+$",
        description="Slurm node feature by which a job asks for it; none for default",
    )


class Transport(Model):
    """What the site changes in a transport that the stack offers."""

    description: str = ""
    network: Name | None = Field(default=None, description="a network of role test")
    env: dict[str, str] = {}
    options: list[str] = Field(default=[], description="further srun options")


class Benchmark(Model):
    """What every benchmark has. ``transports`` are glob patterns over the site's transports."""

    nodes: list[Annotated[int, Field(ge=1)]] = [2]
    transports: list[str] = ["*"]
    profiles: list[str] = ["*"]
    time_limit_s: int = Field(default=60, ge=5, description="of one step of the job")


class NetPIPE(Benchmark):
    max_bytes: Size = 4 << 20
    perturbation_bytes: int = Field(default=0, ge=0, description="NetPIPE's -p")
    repetitions: int | None = Field(
        default=None, ge=1, description="NetPIPE's -n, per size; none: a quarter second per size"
    )
    plain_sockets: bool = Field(default=True, description="also NPtcp, without MPI")


class IMB(Benchmark):
    benchmarks: list[
        Literal[
            "PingPong", "PingPing", "Sendrecv", "Exchange", "Allreduce", "Alltoall", "Bcast",
            "Barrier",
        ]
    ] = ["PingPong", "PingPing", "Sendrecv", "Exchange", "Allreduce", "Alltoall", "Bcast",
         "Barrier"]  # fmt: skip
    max_bytes: Size = 4 << 20
    iterations: int = Field(default=200, ge=10, description="IMB's -iter, for each size")


class OSU(Benchmark):
    tests: list[Literal["latency", "bw", "bibw", "multi_lat"]] = [
        "latency", "bw", "bibw", "multi_lat",
    ]  # fmt: skip
    max_bytes: Size = 1 << 20
    iterations: int = Field(default=200, ge=10, description="per size, of small messages")
    pairs: int = Field(default=2, ge=1, description="of multi_lat")


class HPL(Benchmark):
    blas: list[Name] = ["atlas", "blis", "openblas"]
    size: int = Field(default=1000, ge=64, description="order N of the matrix")
    block: int = Field(default=64, ge=1, description="block size NB")
    ranks_per_node: int = Field(default=1, ge=1)
    threads_per_rank: int = Field(default=1, ge=1)


class NPB(Benchmark):
    kernels: list[Literal["is", "ep"]] = ["is", "ep"]
    problem_class: Literal["S", "W", "A", "B", "C"] = "S"
    ranks_per_node: int = Field(default=1, ge=1)


class Stream(Benchmark):
    """iperf3 over TCP: bandwidth, and CPU use at both ends."""

    seconds: int = Field(default=2, ge=1, description="whole ones: iperf3 takes 0.5 for endless")
    message_bytes: Size = 128 << 10


class Pairs(Benchmark):
    """NetPIPE over plain TCP between all pairs of the nodes, in one allocation."""

    nodes: list[Annotated[int, Field(ge=2)]] = [4]
    max_bytes: Size = 256 << 10
    repetitions: int | None = Field(default=None, ge=1, description="NetPIPE's -n, per size")


class NodeCompute(Benchmark):
    """The same computation on each node by itself, to find a slow one."""

    nodes: list[Annotated[int, Field(ge=1)]] = [4]
    problem_class: Literal["S", "W", "A", "B"] = "S"
    runs: int = Field(default=3, ge=1, description="on each node; the best is taken")


class Benchmarks(Model):
    netpipe: NetPIPE | None = None
    imb: IMB | None = None
    osu: OSU | None = None
    hpl: HPL | None = None
    npb: NPB | None = None
    stream: Stream | None = None
    pairs: Pairs | None = None
    node_compute: NodeCompute | None = None


class TrialDefaults(Model):
    partition: Name | None = Field(
        default=None, description="the partition that trials use, where the site has several"
    )
    repeats: int = Field(default=2, ge=1)
    profiles: list[Name] = ["default"]
    transports: list[str] = ["*"]
    time_limit_s: int = Field(default=1800, ge=10, description="of the trial as a whole")


class Lab(Model):
    """Present only where Seatrial makes the cluster itself."""

    engine: Literal["native"]
    accounting: bool = True


class Stack(Model):
    source: Literal["distribution"] = "distribution"


class Site(Model):
    """One cluster."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    description: str = ""
    login: str = Field(default="", description="host name pattern of the login nodes")
    lab: Lab | None = None
    stack: Stack = Stack()
    networks: dict[Name, Network]
    nodes: list[Nodes] = Field(min_length=1)
    partitions: dict[Name, Partition] = Field(min_length=1)
    slurm: Slurm = Slurm()
    nic_profiles: dict[Name, NicProfile]
    transports: dict[Name, Transport]
    benchmarks: Benchmarks
    trial: TrialDefaults = TrialDefaults()

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

    def network_of(self, transport: str) -> str:
        """The network that a transport is tested on (its own, or the site's first of role test)."""
        chosen = self.transports.get(transport)
        if chosen and chosen.network:
            return chosen.network
        return next(name for name, net in self.networks.items() if net.role == "test")
