"""The records of a trial: one JSON Lines file, ``results.jsonl``, schema version 1.

Lines, in this order: one ``trial``, then a ``run`` for each time that a case was
run, then the ``judgement`` lines, then one ``verdict``. A reader skips kinds it
does not know; a writer never changes the meaning of a field without raising
``SCHEMA``. This module defines and reads the lines; it measures and judges
nothing.

Units are those of the field's names: ``_us`` microseconds, ``_MB_s`` 10^6 bytes
per second, ``_B`` bytes, ``_GFLOPS`` 10^9 floating-point operations per second,
``_percent`` per cent, ``_mops`` 10^6 operations per second, ``_s`` seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from seatrial.base.errors import InputError, Problem

SCHEMA = 1
RESULTS_FILE = "results.jsonl"


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


class Case(Record):
    """check x variant x profile x transport x nodes: what is judged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str  # netpipe, imb, osu, hpl, npb, stream (iperf3), pairs, nodes ...
    variant: str = ""  # what distinguishes cases of one check: "atlas", "is.S", ""
    transport: str  # "openmpi-tcp" ...; "tcp" for checks that use plain sockets; "none"
    profile: str = "default"
    nodes: int  # how many nodes one run uses

    @property
    def id(self) -> str:
        """Stable name, also the folder of its evidence: ``imb.openmpi-tcp.default.2n``."""
        check = f"{self.check}-{self.variant}" if self.variant else self.check
        return f"{check}.{self.transport}.{self.profile}.{self.nodes}n"


class Metric(Record):
    """One figure of one run. ``location`` names the part it was taken on, where there are several.

    ``location`` is a node (``n3``), a link (``n1-n2``) or None for the case as a whole.
    """

    metric: str  # "latency_us", "bandwidth_MB_s", "allreduce_8B_us", ...
    value: float
    unit: str
    location: str | None = None
    better: Literal["lower", "higher"]
    seconds: float | None = None  # how long it was measured, where the benchmark says so


class Curve(Record):
    """A whole curve, kept beside the figures that are judged.

    ``points`` is a list of [x, y] with x ascending; x is a message size in bytes
    unless ``x_unit`` says otherwise.
    """

    name: str  # "netpipe", "pingpong", "allreduce", ...
    x_name: str = "message size"
    x_unit: str = "B"
    y_name: str  # "latency", "bandwidth" or "time"
    y_unit: str  # "us" or "MB/s"
    points: list[tuple[float, float]]


class Counters(Record):
    """What one interface of one node counted during the run (after minus before)."""

    node: str
    interface: str
    network: str  # the site's name of the network
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    interrupts: int | None = None  # None: the kernel does not attribute any to the interface


class PathProof(Record):
    """Whether the traffic crossed the network under test.

    ``required_bytes`` is the least volume that the benchmark must have moved
    through each node's interface (sum of both directions), derived from its own
    parameters and output. ``reported`` is the line by which the MPI itself named
    its path, where it has one.
    """

    network: str
    required_bytes: int
    counters: list[Counters]
    crossed: bool
    reason: str = ""  # why not, in a sentence
    reported: str = ""


class Activity(Record):
    """What one node's kernel did while one step ran, for the interrupts it took.

    The percentages are of one core's time, over all cores of the kernel, so they can exceed 100.
    None: the kernel does not count it. Nodes that share a kernel (a native lab's) count alike.
    """

    step: str
    node: str
    seconds: float  # between the two looks
    interrupts_per_s: dict[str, float | None] = {}  # by interface
    net_rx_per_s: float | None = None  # softirqs NET_RX, /proc/softirqs
    softirq_percent: float | None = None  # /proc/stat
    irq_percent: float | None = None
    others_percent: float | None = None  # processor time of programs that are not the step's
    # How long the node's first rank waited for a processor, in per cent of the step's time, and no
    # longer than others had one. (A quota of the kernel makes a process wait as well.)
    waited_percent: float | None = None


class NicProof(Record):
    """Whether one node had the settings of the run's NIC profile: before its first step of the
    job, or after its last."""

    node: str
    when: Literal["before", "after"]
    ok: bool
    reason: str = ""  # node, interface, setting, wanted and found, in a sentence
    job: str = ""  # the job that holds the profile on the node, by the node's own journal
    seconds: float | None = None  # what the look took, outside of the benchmark's time


class Job(Record):
    id: str = ""
    state: str = ""  # Slurm's word: COMPLETED, FAILED, TIMEOUT, NODE_FAIL, CANCELLED ...
    exit_code: int | None = None
    partition: str = ""
    nodes: list[str] = []
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    benchmark_s: float | None = None  # wall time of the benchmark program itself
    # Whether the trial held this job for several cases. ``started``, ``ended`` and ``nodes`` are
    # then the case's own; the job's are in the trial's ``profiles``.
    held: bool = False


class Allocation(Record):
    """A job by which a trial held nodes under one NIC profile: one switch of the profile."""

    job: Job
    waited_s: float | None = None  # from its submission until every node's Prolog was done
    released_s: float | None = None  # from its cancellation until every node's Epilog was done
    cases: int = 0  # runs of cases in it
    reason: str = ""  # why it could not be had, or ended early


class ProfileUse(Record):
    """A NIC profile of the trial: what it sets, and by which jobs it was put on and taken off."""

    name: str
    description: str = ""
    feature: str = ""  # the Slurm node feature that asks for it
    statements: list[str] = []  # what a fabric ignores of it ...
    settings: dict[str, dict[str, dict[str, Any]]] = {}  # node -> interface -> setting -> value
    node_settings: dict[str, Any] = {}
    allocations: list[Allocation] = []  # none: each job asked for it by itself


class Trial(Record):
    record: Literal["trial"] = "trial"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    trial: str  # identifier, also the run folder's name
    site: str
    description: str = ""
    started: datetime
    seatrial: str  # version, with the commit where known
    command: list[str] = []
    stack: dict[str, Any] = {}  # source ("distribution" or "spack"), id, versions
    host: dict[str, Any] = {}  # kernel, cpu, cores, memory, operating system
    repeats: int = 1
    reruns: int = 0  # how many more runs a case may have that broke a bound
    cases: list[Case] = []  # all that were planned: what is absent below did not run
    notes: list[str] = []  # what the stack cannot offer, faults planted on purpose ...
    profiles: list[ProfileUse] = []

    def is_further(self, run: Run) -> bool:
        """Whether a run was made because a figure broke a bound: it was not drawn by chance."""
        return self.reruns > 0 and run.repeat >= self.repeats


class Run(Record):
    """One time that one case was run."""

    record: Literal["run"] = "run"
    case: Case
    repeat: int = 0
    outcome: Literal["ran", "error"]
    phase: str = ""  # where an error came up: setup, submit, run, sanity, path, profile ...
    reason: str = ""  # a sentence
    job: Job = Job()
    metrics: list[Metric] = []
    curves: list[Curve] = []
    path: PathProof | None = None
    facts: dict[str, Any] = {}  # BLAS loaded, verification, problem size ...
    nic: dict[str, Any] = {}  # node -> interface -> state before / during / after
    nic_proofs: list[NicProof] = []
    activity: list[Activity] = []
    versions: dict[str, str] = {}  # kernel, driver, firmware, MPI, benchmark
    evidence: str = ""  # folder of raw files, relative to results.jsonl


class Requirement(Record):
    """A threshold as it was applied (see ``seatrial.results.requirements`` for the file)."""

    id: str  # "file:line" of where it is written
    basis: Literal["contract", "baseline", "relative"]
    text: str  # for people: "at most 3.0 x latency_us of netpipe.tcp"


class Judgement(Record):
    """The verdict on one metric of one case (at one location)."""

    record: Literal["judgement"] = "judgement"
    case: Case
    metric: str  # "" where the whole case is an error
    location: str | None = None
    verdict: Literal["pass", "fail", "error", "missing", "inconclusive"]
    value: float | None = None  # the statistic over the samples
    unit: str = ""
    statistic: str = "median"
    samples: list[float] = []
    disturbed: int = 0  # of the samples: a wait for a processor may be why they break a bound
    spread: float | None = None  # robust standard deviation of the samples, in ``unit``
    reference: float | None = None
    lower: float | None = None  # least allowed value, in ``unit``; None: unbounded
    upper: float | None = None
    requirement: Requirement | None = None
    explanation: str  # a sentence that stands by itself


class Verdict(Record):
    record: Literal["verdict"] = "verdict"
    verdict: Literal["accept", "reject", "incomplete"]
    counts: dict[str, int]  # of judgements, by verdict
    findings: list[str]  # the sentences to read first; each names its place
    ended: datetime


Line = Annotated[Trial | Run | Judgement | Verdict, Field(discriminator="record")]
_LINE: TypeAdapter[Trial | Run | Judgement | Verdict] = TypeAdapter(Line)
KINDS = {"trial", "run", "judgement", "verdict"}


class Results(BaseModel):
    """A whole ``results.jsonl`` in memory. ``verdict`` is None for a trial that was cut off."""

    trial: Trial
    runs: list[Run] = []
    judgements: list[Judgement] = []
    verdict: Verdict | None = None
    folder: Path = Path()


def dump_line(line: Record) -> str:
    """One line of the file, without the newline."""
    return line.model_dump_json(by_alias=True, exclude_defaults=False)


def write_results(path: Path, lines: Iterable[Record]) -> None:
    """Write the file whole: to a temporary neighbour, then renamed, so that no half file stays."""
    temporary = path.with_suffix(".partial")
    with temporary.open("w", encoding="utf-8") as stream:
        for line in lines:
            stream.write(dump_line(line) + "\n")
    temporary.replace(path)


def read_lines(path: Path) -> Iterator[Trial | Run | Judgement | Verdict]:
    """Yield the lines of a file.

    Raises InputError naming file and line where a line is not of the schema.
    """
    import json

    with path.open(encoding="utf-8") as stream:
        for number, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                data = json.loads(text)
            except ValueError as error:
                raise InputError(
                    [Problem(path, number, "", f"not a line of JSON: {error}")]
                ) from None
            if isinstance(data, dict) and data.get("record") not in KINDS and "record" in data:
                continue
            try:
                yield _LINE.validate_python(data)
            except ValidationError as error:
                first = error.errors()[0]
                field = ".".join(str(part) for part in first["loc"])
                raise InputError([Problem(path, number, field, first["msg"])]) from None


def read_results(path: Path) -> Results:
    """Read a run folder or its ``results.jsonl``.

    Raises InputError where the file is missing, damaged, or has no ``trial`` line.
    """
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            [
                Problem(
                    file,
                    None,
                    "",
                    "no such results file",
                    "name a trial's folder, or its results.jsonl",
                )
            ]
        )
    trial: Trial | None = None
    runs: list[Run] = []
    judgements: list[Judgement] = []
    verdict: Verdict | None = None
    for line in read_lines(file):
        if isinstance(line, Trial):
            trial = line
        elif isinstance(line, Run):
            runs.append(line)
        elif isinstance(line, Judgement):
            judgements.append(line)
        else:
            verdict = line
    if trial is None:
        raise InputError([Problem(file, 1, "record", "the file has no 'trial' line")])
    return Results(
        trial=trial, runs=runs, judgements=judgements, verdict=verdict, folder=file.parent
    )
