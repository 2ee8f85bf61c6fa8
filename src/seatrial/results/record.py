"""The records of a trial: one JSON Lines file, ``results.jsonl``, schema version 1.

The lines are, in this order: one ``trial``, a ``run`` for each run of a case, the ``judgement``
lines, and one ``verdict``. A later judgement has its own ``judgement`` lines and ``verdict``
(``seatrial.results.folder`` reads and writes the files). A reader skips unknown kinds of lines only
if the ``trial`` line has a newer schema. A change of the meaning of a field needs a new ``SCHEMA``.

The records of which a trial may have a million are dataclasses with slots: as pydantic models they
take three times the memory, and eight times as long to make.

Units are those of the field's names: ``_us`` microseconds, ``_MB_s`` 10^6 bytes
per second, ``_B`` bytes, ``_GFLOPS`` 10^9 floating-point operations per second,
``_percent`` per cent, ``_mops`` 10^6 operations per second, ``_s`` seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PrivateAttr,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from seatrial.base.nodelists import MOST_NODES

SCHEMA = 1
#: A job user writes what becomes a ``run`` line, and judging takes time with its size. A name of
#: DNS has 253 characters.
NAME_CHARACTERS = 256
LOCATION_CHARACTERS = 2 * NAME_CHARACTERS + 1
MOST_POINTS = 10_000  # of a curve; those of the benchmarks have 40
#: of a run: this many figures, steps and curves of the case as a whole, and so many for each node
#: and each direction of a link. Those of the benchmarks have 30, and 6.
MOST_OF_CASE, MOST_OF_LOCATION = 1000, 32
PLANTED = "fault planted on purpose: "  # begins a note of a trial
#: facts of a trial's host that only a virtual lab has
KERNEL_OF_LAB, QEMU_OF_LAB = OF_LAB = ("kernel of the lab", "QEMU of the lab")
ENDED = "the guest of lab "  # begins a note of a trial whose virtual lab did not live to its end
IN_VIRTUAL_TIME = "figures are in virtual time"  # begins a note of a trial in a virtual lab
#: begins a note of a trial in a virtual lab whose site wants ``processors: own``
NO_OWN_PROCESSORS = "all nodes share one processor, although the site wants one for each"
#: fact of a run: sentences on bandwidths that a shaper's bucket made higher than its rate
BURSTS = "above the egress rate"
_CONFIG = ConfigDict(extra="forbid", ser_json_inf_nan="constants")
_Item = TypeVar("_Item")
#: a list of which validation reports the first wrong element: a million errors take minutes
_Many = Annotated[list[_Item], FailFast()]


def _in_range(time: datetime) -> datetime:
    """A time that can be written in every time zone, and compared with others: without a zone it is
    UTC, as in older records."""
    if not 1900 <= time.year < 9999:
        raise PydanticCustomError("time", "it is not a time from 1900 to 9998")
    return time if time.tzinfo else time.replace(tzinfo=UTC)


Time = Annotated[datetime, AfterValidator(_in_range)]
Name = Annotated[str, Field(max_length=NAME_CHARACTERS)]
Location = Annotated[str, Field(max_length=LOCATION_CHARACTERS)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Record(BaseModel):
    model_config = _CONFIG


def route_of(transport: str, network: str) -> str:
    """The transport, with its network where a site has several."""
    return f"{transport}@{network}" if network else transport


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Case:
    """check x variant x profile x transport x network x nodes."""

    check: Name  # netpipe, links, node_compute ...: the name of a benchmark
    variant: Name = ""  # distinguishes the cases of a check: "atlas", "is.S", ""
    transport: Name  # "openmpi-tcp" ...; "tcp" for plain sockets; "none" for no network
    profile: Name = "default"
    nodes: int = Field(ge=0, le=MOST_NODES)  # number of nodes of a run
    # The rail. Empty: the site measures one network, or the check belongs to none of several.
    network: Name = ""

    @property
    def route(self) -> str:
        """The transport, with its network where a site has several: ``openmpi-tcp@rail2``."""
        return route_of(self.transport, self.network)

    @property
    def id(self) -> str:
        """Stable name, also the folder of its evidence: ``imb.openmpi-tcp.default.2n``, or
        ``imb.openmpi-tcp@rail2.default.2n`` where a site has several networks."""
        check = f"{self.check}-{self.variant}" if self.variant else self.check
        return f"{check}.{self.route}.{self.profile}.{self.nodes}n"


@dataclass(slots=True, kw_only=True, config=_CONFIG)
class Metric:
    """One figure of one run.

    ``location`` is a node (``n3``), a link (``n1-n2``), one direction of a link (``n1>n2``: n1
    sends) or None for the case as a whole.
    """

    metric: Name  # "latency_us", "bandwidth_MB_s", "allreduce_8B_us", ...
    value: float
    unit: Name
    location: Location | None = None
    better: Literal["lower", "higher"]
    # duration of the measurement, if the benchmark reports it
    seconds: Annotated[Finite, Field(ge=0)] | None = None
    impossible: str = ""  # the physical limit that the figure is beyond; its run is an error
    doubt: str = ""  # why the figure decides nothing, such as an uncertain denominator
    # With a doubt: the true value is at most so many times as high or as low; None: unknown.
    doubt_factor: Annotated[float, Field(ge=1)] | None = None
    # Of a link: true: measured again with no other beside it; false: only with others beside it.
    alone: bool | None = None
    step: Location = ""  # of the case as a whole: the step that measured it; empty: all of the run


class Curve(Record):
    """A curve, which is recorded and not judged.

    ``points`` is a list of [x, y] with x ascending; x is a message size in bytes
    unless ``x_unit`` says otherwise.
    """

    name: Location  # "netpipe", "pingpong", "netpipe n1-n2", ...
    x_name: Name = "message size"
    x_unit: Name = "B"
    y_name: Name  # "latency", "bandwidth" or "time"
    y_unit: Name  # "us" or "MB/s"
    points: Annotated[_Many[tuple[float, float]], Field(max_length=MOST_POINTS)]


class RdmaCounters(Record):
    """The counters of one port of an RDMA device, after the run minus before.

    The bytes are None if the device counts packets only. ``source`` is the folder or file that the
    figures come from. ``shared``: the interface counts the same traffic (soft RoCE).
    """

    port: str  # as mlx5_0:1
    rx_bytes: int | None
    tx_bytes: int | None
    rx_packets: int
    tx_packets: int
    source: str
    shared: bool = False


class Counters(Record):
    """The counters of one interface of one node, after the run minus before."""

    node: Name
    interface: Name
    network: Name  # the site's name of the network
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    interrupts: int | None = None  # None: the kernel attributes none to the interface
    rdma: RdmaCounters | None = None  # of the interface's RDMA port, if the site declares one


class WireErrors(Record):
    """Counters of one interface that increased in a run: damaged frames, losses of the link."""

    node: Name
    interface: Name
    counts: dict[str, int]  # the driver's or the kernel's name of the counter -> increase


class PathProof(Record):
    """Whether the traffic crossed the network under test.

    ``required_bytes`` is the least volume that the benchmark must have moved through the
    interface of each node (sum of both directions), derived from its parameters and output.
    ``reported`` is the line in which the MPI names its path, if any. Of the data path ``verbs`` the
    RDMA ports must show the volume.
    """

    network: str
    data_path: str = "kernel"
    required_bytes: int
    counters: _Many[Counters]
    crossed: bool
    reason: str = ""  # why it did not cross, in a sentence
    reported: str = ""

    @property
    def interfaces(self) -> set[str]:
        """The interfaces of the network under test, on all nodes."""
        return {c.interface for c in self.counters if c.network == self.network}


@dataclass(slots=True, kw_only=True, config=_CONFIG)
class Activity:
    """The interrupts and processor time of one node's kernel during one step.

    Percentages are of the time of one core, summed over all cores of the kernel, and may exceed
    100. None: the kernel does not count it. Nodes that share a kernel (as in a native lab) have
    the same counts.
    """

    step: Location  # may name a link
    node: Name
    seconds: Annotated[Finite, Field(gt=0)]  # between the readings
    interrupts_per_s: dict[str, float | None] = Field(default_factory=dict)  # by interface
    net_rx_per_s: float | None = None  # softirqs NET_RX, /proc/softirqs
    softirq_percent: float | None = None  # /proc/stat
    irq_percent: float | None = None
    others_percent: Finite | None = None  # processor time of programs that are not the step's
    # How long the node's first rank waited for a processor, in per cent of the step's time; at
    # most the time in which others used one. (A process also waits because of a CPU quota.)
    waited_percent: Finite | None = None


class NicProof(Record):
    """One verification of a node: whether it had the settings of the run's NIC profile.

    It is made before the node's first step of the job and after its last.
    """

    node: Name
    when: Literal["before", "after"]
    ok: bool
    reason: str = ""  # node, interface, setting, declared and actual value, in a sentence
    job: str = ""  # the job that holds the profile on the node, from the node's journal
    seconds: float | None = None  # duration; not part of the benchmark's time
    #: "eth1 feature.rx-fcs": settings that the node lacks, and the profile does without
    left_out: Annotated[_Many[Location], Field(max_length=MOST_OF_CASE)] = []


class Job(Record):
    id: str = ""
    state: str = ""  # Slurm's state: COMPLETED, FAILED, TIMEOUT, NODE_FAIL, CANCELLED ...
    exit_code: int | None = None
    partition: str = ""
    nodes: Annotated[_Many[Name], Field(max_length=MOST_NODES)] = []
    submitted: Time | None = None
    started: Time | None = None
    ended: Time | None = None
    benchmark_s: float | None = None  # wall time of the benchmark program itself
    # Whether the trial held this job for several cases. ``started``, ``ended`` and ``nodes`` are
    # then those of the case; those of the job are in the trial's ``profiles``.
    held: bool = False


class Allocation(Record):
    """A job in which a trial held nodes under one NIC profile: one switch of the profile."""

    job: Job
    waited_s: float | None = None  # from its submission until every node's Prolog was done
    released_s: float | None = None  # from its cancellation until every node's Epilog was done
    cases: int = 0  # number of runs in it
    reason: str = ""  # why it did not start, or ended early


class ProfileUse(Record):
    """A NIC profile of the trial: its settings, and the jobs that switched it on and off."""

    name: str
    description: str = ""
    feature: str = ""  # the Slurm node feature that requests it
    statements: list[str] = []  # such as the settings that a fabric ignores
    settings: dict[str, dict[str, dict[str, Any]]] = {}  # node -> interface -> setting -> value
    node_settings: dict[str, Any] = {}
    allocations: list[Allocation] = []  # empty: each job requested it by itself


class TransportUse(Record):
    """What the site declares of a transport of the trial, beside what the stack sets."""

    name: str
    base: str = ""  # the stack's transport that it is a variant of
    data_path: str = "kernel"
    env: dict[str, str] = {}
    options: list[str] = []  # srun options

    @property
    def declares(self) -> bool:
        """Whether it differs from the stack's transport of its name."""
        return bool(self.base or self.env or self.options)


class Suspect(Record):
    """A link or node that was worse than the others in its round, and what it is alone.

    ``factor``: by how much it was worse than usual in the rounds; ``alone_factor``: than other
    links that were measured alone (None: it was not). A fault is slow alone, too.
    """

    metric: Name
    location: Location  # node, link or direction of a link
    direction: Literal["", "sends", "receives"] = ""  # of a node: in which it is slow
    factor: Finite
    alone_factor: Finite | None = None
    conclusion: Literal["fault", "load", "unknown"]


class Cost(Record):
    """What the whole machine costs; with a network or profile: as that one needs it."""

    name: str
    usd: float
    date: str  # of the price, YYYY-MM-DD
    includes: str
    network: str = ""
    profile: str = ""


class Power(Record):
    """What the whole machine draws under load, and who says so."""

    watts: float
    source: Literal["meter", "BMC", "declared"]
    load: str


class Machine(Record):
    """What the site file says of the machine beside its network.

    ``nodes``: of the whole machine. ``peaks``: node -> theoretical peak in GFLOPS, of the nodes
    whose clock and operations per cycle are in the site file.
    """

    nodes: int = 0
    peaks: dict[str, float] = {}
    costs: list[Cost] = []
    power: Power | None = None


class Trial(Record):
    record: Literal["trial"] = "trial"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    trial: str  # identifier, also the run folder's name
    site: str
    description: str = ""
    started: Time
    seatrial: str  # version, with the commit where known
    command: list[str] = []
    stack: dict[str, Any] = {}  # source ("distribution" or "spack"), id, versions
    machine: Machine = Machine()
    # kernel, processor, cores, memory, operating system; of a virtual lab also its kernel and QEMU
    host: dict[str, Any] = {}
    repeats: int = Field(default=1, ge=1)  # of each case in a round
    rounds: int = Field(default=1, ge=1)  # passes through all NIC profiles, each in new jobs
    # Whether the clock of the nodes counts instructions, as in a virtual lab: the same work takes
    # the same time in each job.
    virtual_time: bool = False
    # The site's numbers, which the user can change. None: an older version ran it.
    site_repeats: int | None = None
    site_rounds: int | None = None
    site_reruns: int | None = None
    reruns: int = 0  # greatest number of reruns of a case that broke a bound
    cases: list[Case] = []  # all planned cases: a case without a run below did not run
    # Option -> patterns by which the user chose a part of the site's matrix, and what it left out.
    selection: dict[str, list[str]] = {}
    outside: list[Case] = []
    lacking: list[Case] = []  # cases of the site for which the stack has no program or library
    unmeasured: list[str] = []  # sentences on networks of role test without a case
    notes: list[str] = []  # limits of the stack, planted faults ...
    profiles: list[ProfileUse] = []
    transports: list[TransportUse] = []
    # Benchmark -> the settings that decide how it measures, and not what.
    benchmarks: dict[str, dict[str, Any]] = {}
    _by_note: bool = PrivateAttr(default=False)  # ``virtual_time`` is not in the record

    @model_validator(mode="after")
    def _know_virtual_time(self) -> Trial:
        """An older record has no ``virtual_time``, but the note on it."""
        noted = any(note.startswith(IN_VIRTUAL_TIME) for note in self.notes)
        if noted and "virtual_time" not in self.model_fields_set:
            self.virtual_time = self._by_note = True
        return self

    @property
    def lacking_in_record(self) -> str:
        """What a record of an older version does not say, and how it is known; "": nothing."""
        if not self._by_note:
            return ""
        return (
            f"its record is older ({self.seatrial}) and has no virtual_time; by its note "
            f"{IN_VIRTUAL_TIME!r} each repeat counts as a sample"
        )

    @property
    def planted(self) -> list[str]:
        """The notes on faults that were planted in the lab."""
        return [note for note in self.notes if note.startswith(PLANTED)]

    @property
    def read_first(self) -> list[str]:
        """The notes on faults that were planted in the lab, and on the end of the lab."""
        return [note for note in self.notes if note.startswith((PLANTED, ENDED))]

    @property
    def no_baselines(self) -> str:
        """Why the baselines of the site are not of a machine like the trial's; "": they may be."""
        return next((note for note in self.notes if note.startswith(NO_OWN_PROCESSORS)), "")

    def is_rerun(self, run: Run) -> bool:
        """Whether a run was made because a figure of the case broke a bound."""
        return self.reruns > 0 and run.repeat >= self.runs_of_case

    @property
    def runs_of_case(self) -> int:
        """The planned runs of each case, without reruns."""
        return self.repeats * self.rounds


class Run(Record):
    """One run of one case."""

    record: Literal["run"] = "run"
    case: Case
    # from 0, counted through all rounds; those of reruns follow
    repeat: int = Field(default=0, ge=0)
    # from 0; each rerun is a round of its own after the planned ones
    round: int = Field(default=0, ge=0)
    outcome: Literal["ran", "error"]
    phase: str = ""  # of an error: setup, submit, run, sanity, path, limit, profile ...
    reason: str = ""  # a sentence
    job: Job = Job()
    metrics: _Many[Metric] = []
    curves: _Many[Curve] = []
    path: PathProof | None = None
    facts: dict[str, Any] = {}  # BLAS loaded, verification, problem size ...
    nic: dict[str, Any] = {}  # node -> interface -> state before / during / after
    nic_proofs: _Many[NicProof] = []
    wire_errors: _Many[WireErrors] = []
    activity: _Many[Activity] = []
    suspects: list[Suspect] = []
    unmeasured: dict[str, str] = {}  # node or link without figures -> why, beside others that have
    versions: dict[str, str] = {}  # kernel, driver, firmware, MPI, benchmark
    evidence: str = ""  # folder of raw files, relative to results.jsonl

    @model_validator(mode="after")
    def _bounded(self) -> Run:
        """No more figures, steps or curves than the nodes of the case can have."""
        most = MOST_OF_CASE + MOST_OF_LOCATION * self.case.nodes**2
        for name in ("metrics", "curves", "activity", "suspects", "unmeasured"):
            if len(getattr(self, name)) > most:
                text = f"{name} has more than {most} entries, for {self.case.nodes} nodes"
                raise PydanticCustomError("many", "{text}", {"text": text})
        return self

    def nic_before(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Node, interface and its state before the run, of each that is on record."""
        for node, interfaces in self.nic.items():
            for interface, state in interfaces.items() if isinstance(interfaces, dict) else ():
                before = state.get("before") if isinstance(state, dict) else None
                if isinstance(before, dict):
                    yield node, interface, before

    @property
    def hardware(self) -> str:
        """The network under test and its driver on record, such as ``igb (driver igb)``."""
        network = self.path.network if self.path else "?"
        drivers = {
            str(before["driver"])
            for _, _, before in self.nic_before()
            if before.get("network") == network and before.get("driver")
        }
        return f"{network} (driver {', '.join(sorted(drivers))})" if drivers else network


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Requirement:
    """A threshold that was applied (see ``seatrial.results.requirements`` for the file)."""

    id: str  # "file:line" of where it is written
    basis: Literal["contract", "baseline", "relative"]
    text: str  # such as "at most 3.0 x latency_us of netpipe.tcp"


@dataclasses.dataclass(slots=True, kw_only=True)
class Judgement:
    """The verdict on one metric of one case (at one location).

    Its fields are validated when it is read, and not when the judge makes it.
    """

    __pydantic_config__ = _CONFIG

    record: Literal["judgement"] = "judgement"
    case: Case
    metric: str  # "" where the whole case is an error
    location: str | None = None
    verdict: Literal["pass", "fail", "error", "missing", "inconclusive"]
    value: float | None = None  # the statistic over the samples
    unit: str = ""
    statistic: str = "median"
    samples: list[float] = dataclasses.field(default_factory=list)
    disturbed: int = 0  # number of samples that break a bound, perhaps by a wait for a processor
    in_doubt: bool = False  # the samples decide nothing, as their runs say; another run may
    spread: float | None = None  # robust standard deviation of the samples, in ``unit``
    reference: float | None = None
    lower: float | None = None  # least allowed value, in ``unit``; None: unbounded
    upper: float | None = None
    requirement: Requirement | None = None
    # A complete sentence; empty for a pass of which every sample is within the bounds.
    explanation: str


class Waiver(Record):
    """The buyer does not insist on a clause of the contract until a date."""

    id: str  # "file:line" of where it is written
    by: str
    reason: str
    expires: date  # its last day


class Clause(Record):
    """One requirement of the contract, and the conclusion on it.

    ``value``, ``spread``, ``lower``, ``upper`` (in ``unit``), ``case`` and ``location`` are those
    of the worst of its judgements; None where nothing was judged.
    """

    id: str  # "file:line" of where it is written
    source: str
    selects: str  # such as "check netpipe, profile default"
    metric: str
    required: str  # the bound in words
    statistic: str
    status: Literal["met", "met in part", "not met", "inconclusive", "not tested", "waived"]
    reason: str = ""  # of any status but met, a sentence
    hole: bool = False  # not tested, by no choice of the user: the trial is incomplete
    cases: int = 0  # number of cases of the trial that it selects
    outside: int = 0  # number of cases that it selects and the trial's selection leaves out
    lacking: int = 0  # number of cases that it selects and the stack cannot run
    judgements: int = 0
    failed: int = 0  # number of these that failed
    value: float | None = None
    unit: str = ""
    spread: float | None = None
    lower: float | None = None
    upper: float | None = None
    margin: float | None = None  # distance to the bound, a fraction of the bound; below 0: beyond
    case: Case | None = None
    location: str | None = None
    waiver: Waiver | None = None  # in force or expired


class Verdict(Record):
    """The verdict of one judgement of a trial: the trial's own, or a later one."""

    record: Literal["verdict"] = "verdict"
    verdict: Literal["accept", "reject", "incomplete"]
    counts: dict[str, int]  # of judgements, by verdict
    findings: list[str]  # the sentences to read first
    clauses: list[Clause] = []  # the contract, in the order of the requirements file
    scope: str = ""  # the part of the site's matrix that the verdict is of; "": all of it
    ended: Time  # of the trial, also if it was judged later
    number: int = 1  # 1: the trial's own; a later judgement is in judgements/<number>/
    judged: Time | None = None
    user: str = ""
    command: list[str] = []
    seatrial: str = ""  # version, with the commit where known
    requirements: str = ""  # the copy that was judged by, relative to the trial's folder
    requirements_sha256: str = ""

    @property
    def word(self) -> str:
        """The verdict in capitals. An acceptance names its limits."""
        if self.verdict != "accept":
            return self.verdict.upper()
        part = " OF PART" if self.scope else ""
        waived = any(clause.status == "waived" for clause in self.clauses)
        return f"ACCEPT{part}{' WITH WAIVERS' if waived else ''}"


Line = Trial | Run | Judgement | Verdict
