"""The interface of a benchmark: settings, variants, steps and parser.

A module of this package that defines a subclass of ``Benchmark`` adds a benchmark to Seatrial.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from pydantic import Field

from seatrial.base.errors import InputError, Problem
from seatrial.base.fields import Model
from seatrial.base.names import NO_TRANSPORT, PLAIN_SOCKETS, PSEUDO_TRANSPORTS
from seatrial.base.suggest import FieldProblem, suggest
from seatrial.benchmarks.limits import Limit
from seatrial.benchmarks.parsing import Parsed

PORT = 5700  # the first TCP port of a benchmark's own server
NODE_PYTHON = ["/usr/bin/python3", "-IS"]  # starts the programs of checks/node

Programs = Mapping[str, list[str]]
#: numbers of nodes of a benchmark that needs at least two
SeveralNodes = list[Annotated[int, Field(ge=2)]]


class Settings(Model):
    """The settings of all benchmarks.

    ``transports``, ``networks`` and ``profiles`` are glob patterns over the names of the site.
    """

    nodes: list[Annotated[int, Field(ge=1)]] = [2]
    transports: list[str] = ["*"]
    networks: list[str] = ["*"]
    profiles: list[str] = ["*"]
    time_limit_s: int = Field(default=60, ge=5, description="of one step of the job")


@dataclass
class Step:
    """One run of a program inside the job's allocation.

    ``tasks_per_node`` ranks on each of ``nodes`` nodes (None: all nodes of the job) run
    ``command``. ``node_numbers`` selects the nodes by their number in the job, from 0; empty: the
    first ``nodes``. ``variant``: the variant that the figures belong to. ``maps``: words separated
    by commas; the wrapper records the mapped files of the program whose names contain one of them.
    """

    name: str
    command: list[str]
    variant: str = ""
    nodes: int | None = None
    tasks_per_node: int = 1
    node_numbers: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    maps: str = ""
    location: str | None = None  # "nodes": the figures belong to the nodes of the step
    setup: list[str] = field(default_factory=list)  # shell lines run before it
    proves_path: bool = True  # the counters must show the volume that it moved
    limit_s: int | None = None  # None: the ``time_limit_s`` of the settings
    # The program goes on when a node fails, and its own record decides and not the exit code. The
    # parser names the nodes and links that it did not measure.
    may_lose_nodes: bool = False
    overcommit: bool = False  # it may have more ranks on a node than the node has cores


@dataclass(frozen=True)
class Rail:
    """How a network is used under the job's profile: by which interface, and the variables.

    ``network``: that of the interface; another one's if the network's own interface is in a bond.
    """

    network: str
    interface: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The facts of a job that its benchmark may use.

    ``programs``: program -> command under the job's transport. ``interface``: the interface under
    test. ``own_interfaces``: network -> its interface, which may be a member of a bond. ``blas``:
    library -> its folder. ``env``: the environment that the transport sets. ``rdma_port``: device
    and port of the network under test, as ``mlx5_0:1``, in which %n is the node's name. ``rails``:
    network -> how it is used, of those that benchmarks use at once. ``within_env``: variables of a
    step on one node; ``within_node``: the way of its messages. ``nodes_share_cores``: in a lab.
    """

    nodes: int
    transport: str
    programs: Programs
    interface: str = ""
    own_interfaces: Mapping[str, str] = field(default_factory=dict)
    blas: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    rdma_port: str = ""
    rails: Mapping[str, Rail] = field(default_factory=dict)
    within_env: Mapping[str, str] = field(default_factory=dict)
    within_node: str = ""
    nodes_share_cores: bool = False

    def program(self, name: str) -> list[str]:
        """The command of a program. Raises InputError if the stack does not have it."""
        if name not in self.programs:
            caller = traceback.extract_stack(limit=2)[0]  # in the module of the benchmark
            message = f"the stack has no program {name!r} for {self.transport}"
            correction = suggest(name, self.programs)
            raise InputError([Problem(caller.filename, caller.lineno, "", message, correction)])
        return list(self.programs[name])

    def pair(self, step: str, server: list[str], client: list[str], port: int) -> list[str]:
        """The command of a step of two ranks: a server and its client.

        ``{address}`` in ``client`` stands for the address of the server on the interface under
        test.
        """
        return [
            *NODE_PYTHON, "pair.py", step, self.interface, str(port),
            *server, "--", *client,
        ]  # fmt: skip


class SiteFacts(Protocol):
    """The part of a site that the settings of a benchmark are checked against."""

    @property
    def test_networks(self) -> list[str]:
        """The names of the networks of role ``test``."""
        ...

    @property
    def node_cores(self) -> int:
        """The cores of the smallest node of the trials."""
        ...

    @property
    def node_memory_MiB(self) -> int:
        """The memory of the smallest node of the trials."""
        ...


def too_many_cores(field: str, cores: int, site: SiteFacts) -> Iterator[FieldProblem]:
    """A problem of a field that needs more cores on a node than the site's nodes have."""
    if cores > site.node_cores:
        yield FieldProblem(
            field,
            f"it needs {cores} cores on each node, but nodes have {site.node_cores}",
            f"at most {site.node_cores} cores for a node",
        )


def unknown_networks(networks: Sequence[str], site: SiteFacts) -> Iterator[FieldProblem]:
    """The problems of a field ``networks``, which lists networks of role test."""
    for index, network in enumerate(networks):
        if network not in site.test_networks:
            yield FieldProblem(
                f"networks.{index}",
                f"{network!r} is not a network of role test",
                suggest(network, site.test_networks),
            )


class DeclaredMetric(NamedTuple):
    """A metric that a benchmark reports: its unit, whether lower or higher values are better, and
    the kind of location that it belongs to: ``direction`` is one direction of a link.

    ``location`` empty: the metric belongs to the case as a whole. ``optional``: not every build of
    the program reports it. ``variants``: those that report it; empty: all.
    """

    unit: str
    better: Literal["lower", "higher"]
    location: Literal["", "node", "link", "direction"] = ""
    optional: bool = False
    variants: tuple[str, ...] = ()


#: the metrics of ``activity_metrics``, which ``seatrial.checks.activity`` computes
ACTIVITY_METRICS = {
    "interrupts_per_s": DeclaredMetric("1/s", "lower", "node"),
    "net_rx_per_s": DeclaredMetric("1/s", "lower", "node"),
    "softirq_percent": DeclaredMetric("percent", "lower", "node"),
    "irq_percent": DeclaredMetric("percent", "lower", "node"),
}

S = TypeVar("S", bound=Settings)


class Benchmark(Generic[S]):
    """One benchmark with the settings of a site.

    A subclass sets the class variables and defines ``steps`` and ``parse``.
    """

    #: the key in a site's ``benchmarks:``, and the name of the check
    name: ClassVar[str]
    Settings: ClassVar[type[Settings]]
    #: the pseudo transport of a benchmark without MPI; empty: it runs under each MPI transport
    pseudo_transport: ClassVar[str] = ""
    #: the program's name in a stack, if the benchmark has one program and no variants
    program: ClassVar[str] = ""
    #: the counters must show the volume that the benchmark reports
    proves_path: ClassVar[bool] = True
    #: it uses its ``networks`` at once and is not repeated for each
    spans_networks: ClassVar[bool] = False
    #: the settings that choose what it measures, and not how; beside those of all benchmarks
    chooses: ClassVar[Collection[str]] = ()
    #: physical limits of the metrics
    limits: ClassVar[tuple[Limit, ...]] = ()
    #: of an application: the metric of its performance, by which NIC profiles are compared
    performance: ClassVar[str] = ""
    #: the interrupts and softirqs of a step are metrics, and not only recorded beside them
    activity_metrics: ClassVar[bool] = False
    #: the metrics that one step reports and others measure, too
    of_several_steps: ClassVar[Collection[str]] = ()

    def __init__(self, settings: S):
        self.settings = settings

    def variants(self) -> list[str]:
        """The variants that the settings ask for, such as ``is.S``; [""] if there are none."""
        return [""]

    @property
    def measured_with(self) -> dict[str, Any]:
        """The settings that decide how it measures: the figures change with them."""
        choosing = {*Settings.model_fields, *self.chooses}
        if self.spans_networks:
            choosing.remove("networks")  # how many it uses at once
        every = self.settings.model_dump(mode="json")
        return {name: value for name, value in every.items() if name not in choosing}

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        """Whether a stack with these programs and BLAS libraries can run a variant."""
        return self.program in programs

    def lacks_library(self, variant: str, blas: Collection[str]) -> bool:
        """Whether a variant cannot run because a stack has no such library."""
        return False

    def not_measured(self, transport: str, programs: Programs) -> str:
        """A part of the settings that a stack cannot measure under a transport, and why."""
        return ""

    def transports(self, names: Iterable[str]) -> list[str]:
        """Select the transports that the benchmark runs under."""
        if self.pseudo_transport:
            return [name for name in names if name == self.pseudo_transport]
        return [name for name in names if name not in PSEUDO_TRANSPORTS]

    def available(
        self, transport: str, programs: Programs, blas: Collection[str] = ()
    ) -> list[str]:
        """The variants whose programs a stack has under a transport."""
        if transport in (PLAIN_SOCKETS, NO_TRANSPORT):
            return self.variants()
        return [name for name in self.variants() if self.has_program(name, programs, blas)]

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        """Yield the errors in the settings that the types of the fields do not show.

        The names of fields begin below the benchmark's key: ``kernels.0``.
        """
        yield from ()

    def metrics(self) -> dict[str, DeclaredMetric]:
        """All metrics that a case can report with these settings, by name."""
        raise NotImplementedError

    def steps(self, job: Job) -> list[Step]:
        """The steps of one job, in order."""
        raise NotImplementedError

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        """The figures of one step, from the files in ``folder``. Raises ParseError."""
        raise NotImplementedError


def output(step: Step, folder: Path) -> str:
    """Standard output of a step. Raises OSError."""
    return (folder / f"{step.name}.out").read_text(errors="replace")


def output_and_errors(step: Step, folder: Path) -> str:
    """Standard output, then standard error of a step. Raises OSError."""
    return "\n".join(
        (folder / f"{step.name}{suffix}").read_text(errors="replace") for suffix in (".out", ".err")
    )


def node_files(folder: Path, step: str) -> list[dict[str, Any]]:
    """The records of the node-side wrapper, one for each node, ordered by node.

    Damaged files are left out; the path proof reports the missing node.
    """
    records = []
    for file in sorted(folder.glob(f"{step}.*.json")):
        try:
            data = json.loads(file.read_text(errors="replace"))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and data.get("step") == step and _complete(data):
            records.append(data)
    return records


def _complete(data: dict[str, Any]) -> bool:
    """Whether a node's record has all fields that are read."""
    sides = [data.get("before"), data.get("after")]
    return isinstance(data.get("mapped"), list) and all(
        isinstance(side, dict)
        and isinstance(side.get("node"), str)
        and isinstance(side.get("interfaces"), dict)
        and all(map(_is_reading, side["interfaces"].values()))
        for side in sides
    )


def _is_reading(interface: Any) -> bool:
    """Whether a job user has not written something else into the reading of an interface."""
    errors = interface.get("errors", {}) if isinstance(interface, dict) else None
    return isinstance(errors, dict) and all(isinstance(count, int) for count in errors.values())
