"""All links: all pairs of nodes in rounds of disjoint pairs, over plain TCP.

``checks/node/rounds.py`` runs the rounds, and measures suspected links again alone. This module
reads its record, decides which figure of a link counts, and attributes what is slow to a node, to
a link or to the load of the rounds.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.base.fields import Size
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.benchmarks import netpipe
from seatrial.benchmarks.benchmark import (
    NODE_PYTHON,
    PORT,
    Benchmark,
    DeclaredMetric,
    FieldProblem,
    Job,
    Settings,
    SeveralNodes,
    SiteFacts,
    Step,
    too_many_cores,
)
from seatrial.benchmarks.limits import StreamBandwidth
from seatrial.benchmarks.parsing import Parsed, ParseError, higher
from seatrial.results import two_way
from seatrial.results.locations import direction
from seatrial.results.record import Curve, Metric, Suspect

STEP = "links"
START_S = 120  # of the processes on all nodes, as in checks/node/pair.py
CURVES = 32  # of more links, only those that were measured alone have curves
#: suspects measured alone in one job, for each node
ALONE_PER_NODE = 4
DIRECTED = "stream_MB_s"
#: the metrics by which links are compared and measured again alone
COMPARED = ("latency_us", "bandwidth_MB_s", DIRECTED)
SUSPECT_FACTOR = 1.5
#: The usual link of the fit and the median of a link's peers differ a little: of a bound, as a
#: logarithm, so much is the suspect factor. Less would measure links alone that break no bound.
PART_OF_BOUND = 0.9
LEAST_FACTOR = 1.01
UNSURE = "it was slow in its round, and there was no time to measure the link alone"


class LinksSettings(Settings):
    """NetPIPE and a stream in each direction between all pairs of the nodes, in one allocation."""

    nodes: SeveralNodes = Field(
        default=[], description="empty: all nodes of the partition of the trials"
    )
    time_limit_s: int = Field(default=20, ge=5, description="of one pair, in its round or alone")
    max_bytes: Size = 256 << 10
    repetitions: int | None = Field(
        default=100, ge=1, description="NetPIPE's -n, per size; none: a quarter second per size"
    )
    stream_bytes: Size = 64 << 20
    pairs_at_once: int | None = Field(
        default=None, ge=1, description="of a round; none: all, half as many as nodes"
    )
    cores: list[Annotated[int, Field(ge=0)]] = Field(
        default=[],
        description="of each node, from 0; a pair runs on one of them at both ends, the pairs of a "
        "round on all of them in turn. empty: on any core",
    )
    suspect_factor: float | None = Field(
        default=None,
        gt=1,
        description="a link so many times worse than usual is measured alone; none: "
        f"{SUSPECT_FACTOR:g}, or less where requirements with peers are tighter",
    )

    @property
    def factor(self) -> float:
        return self.suspect_factor or SUSPECT_FACTOR

    def at_once(self, nodes: int) -> int:
        """How many pairs of a round run at once."""
        return min(self.pairs_at_once or nodes, nodes // 2)


class Links(Benchmark[LinksSettings]):
    name = "links"
    Settings = LinksSettings
    chooses = ("suspect_factor",)
    pseudo_transport = PLAIN_SOCKETS
    limits = (*netpipe.NetPIPE.limits, StreamBandwidth(DIRECTED))

    def steps(self, job: Job) -> list[Step]:
        settings, rounds = self.settings, job.nodes - 1 + job.nodes % 2
        at_once = settings.at_once(job.nodes)
        batches = math.ceil(job.nodes // 2 / at_once)
        alone = ALONE_PER_NODE * job.nodes
        # What is measured alone takes as long as the rounds, at most. No pair needs its whole limit
        # unless it hangs, so this is more than the step ever takes.
        budget = START_S + 2 * settings.time_limit_s * rounds * batches
        options = {
            "limit_s": settings.time_limit_s,
            "budget_s": budget,
            "at_once": at_once,
            "cores": settings.cores,
            "stream_bytes": int(settings.stream_bytes),
            "suspect_factor": settings.factor,
            "most_alone": alone,
            "two_way": two_way.__file__,
        }
        nptcp = [*job.program("nptcp"), "-P", "{port}", "-u", str(settings.max_bytes), "-p", "0"]
        nptcp += ["-n", str(settings.repetitions)] if settings.repetitions else []
        command = [
            *NODE_PYTHON, "rounds.py", STEP, job.interface, str(PORT), json.dumps(options),
            *nptcp, "-o", "/dev/null",
        ]  # fmt: skip
        return [Step(STEP, command, limit_s=budget + START_S, may_lose_nodes=True)]

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        yield from too_many_cores("cores", max(self.settings.cores, default=0) + 1, site)
        for name in ("stream_bytes", "max_bytes"):
            if int(getattr(self.settings, name)) < 1:
                yield FieldProblem(name, "0 bytes have no rate", "1 or more, as 64 KiB")

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        text = (folder / f"{step.name}.pairs.jsonl").read_text(errors="replace")
        hosts = folder / "job_nodes.txt"
        names = hosts.read_text(errors="replace").split() if hosts.exists() else []
        return parse(text, names, job, self.settings)

    def metrics(self) -> dict[str, DeclaredMetric]:
        metrics = {
            name: metric._replace(location="link") for name, metric in netpipe.METRICS.items()
        }
        return {**metrics, DIRECTED: DeclaredMetric("MB/s", "higher", "direction")}


#: bytes and seconds of a stream
_Received = tuple[Annotated[int, Field(gt=0)], Annotated[float, Field(gt=0)]]


class _Line(BaseModel):
    """A line of the record: nodes, a pair, a note that rounds were left out, or the end."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    nodes: dict[int, str] | None = None
    pair: tuple[int, int] | None = None
    round: int | None = None  # None: alone
    failed: str = ""
    text: str = ""
    seconds: float = Field(default=0.0, ge=0)
    streams: tuple[_Received, _Received] | None = None  # the first from the lower number
    bytes: tuple[dict[str, int], dict[str, int]] | None = None
    stopped: str = ""
    end: bool = False
    absent: dict[int, str] = {}


@dataclass
class _Measured:
    """One measurement of a link."""

    link: tuple[str, str]
    alone: bool
    metrics: list[Metric]
    curves: list[Curve]
    moved_bytes: int


@dataclass
class _Tries:
    """All measurements in rounds, or all alone."""

    failed: dict[str, str] = field(default_factory=dict)  # link -> why, at least once
    lines: dict[str, set[int]] = field(default_factory=dict)  # link -> where it failed
    whole: set[str] = field(default_factory=set)  # links that have all figures from one

    def fail(self, link: str, line: int, why: str) -> None:
        self.lines.setdefault(link, set()).add(line)
        self.failed[link] = why


@dataclass
class _Record:
    """What the record of a step comes to. ``unmeasured``: node or link -> why."""

    names: list[str] = field(default_factory=list)
    measured: list[_Measured] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    in_rounds: _Tries = field(default_factory=_Tries)
    alone: _Tries = field(default_factory=_Tries)
    absent: list[str] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0


def parse(text: str, names: list[str], job: Job, settings: LinksSettings) -> Parsed:
    """Read the record of the rounds; ``names`` are the job's nodes by their number.

    Metrics: those of NetPIPE for each link (``n1-n2``), and ``stream_MB_s`` in each direction
    (``n1>n2``: n1 sends). The figure of a link that was measured alone is the best of those
    measurements, and else that of its round. ``moved_bytes`` is the least of all nodes.

    Raises ParseError if the record is damaged or has no end, or if no link was measured.
    """
    record = _read(text, names, job, settings)
    if not record.measured:
        reasons = "; ".join(f"{at}: {why}" for at, why in list(record.unmeasured.items())[:4])
        raise ParseError(f"no link was measured ({reasons})")
    figures = {measured.link: measured for measured in record.measured if not measured.alone}
    alone: dict[tuple[str, str], list[_Measured]] = defaultdict(list)
    for measured in record.measured:
        if measured.alone:
            alone[measured.link].append(measured)
    metrics: list[Metric] = []
    curves: list[Curve] = []
    moved: dict[str, int] = defaultdict(int)
    for measured in record.measured:
        for node in measured.link:
            moved[node] += measured.moved_bytes
    # A pair that failed in its round, by load or for once, has its figures from alone.
    for link, again in alone.items():
        figures.setdefault(link, again[0])
    for link, figure in figures.items():
        of_link = alone.get(link)
        of_this = _best(of_link) if of_link else figure.metrics
        name = "-".join(link)
        if name in record.alone.failed and name not in record.alone.whole:
            of_this = _doubted(of_this, figure, record.alone.failed[name])
        metrics += of_this
        if of_link or len(figures) <= CURVES:
            curves += (of_link or [figure])[0].curves
    in_rounds = {link: measured for link, measured in figures.items() if not measured.alone}
    suspects, unsure = _suspects(in_rounds, alone, settings.factor)
    metrics = [
        replace(metric, doubt=metric.doubt or UNSURE)
        if (metric.metric, metric.location) in unsure
        else metric
        for metric in metrics
    ]
    facts: dict[str, Any] = {
        "rounds": record.rounds,
        "links": len(figures),
        "links measured alone": len(alone),
        "seconds": round(record.seconds, 1),
    }
    return Parsed(
        metrics=metrics,
        curves=curves,
        facts=facts,
        moved_bytes=min(moved.values()),
        suspects=suspects,
        unmeasured=record.unmeasured,
        absent=record.absent,
    )


def _doubted(metrics: list[Metric], figure: _Measured, why: str) -> list[Metric]:
    """The figures of a link that failed alone, if only once: those of its round are in doubt."""
    doubt = f"the link failed when it was measured alone: {why}"
    sound = [metric for metric in metrics if metric.alone]
    have = {(metric.metric, metric.location) for metric in sound}
    rest = [one for one in figure.metrics if (one.metric, one.location) not in have]
    return sound + [replace(metric, doubt=doubt) for metric in rest]


def _best(own: list[_Measured]) -> list[Metric]:
    """The best figure of each metric and location of a link that was measured alone."""
    best: dict[tuple[str, str | None], Metric] = {}
    for metric in (metric for link in own for metric in link.metrics):
        key = (metric.metric, metric.location)
        kept = best.get(key)
        if kept is None or (metric.value > kept.value) == (metric.better == "higher"):
            best[key] = metric
    return list(best.values())


def _read(text: str, names: list[str], job: Job, settings: LinksSettings) -> _Record:
    record, lines, ended = _Record(), [], False
    for number, line in enumerate(text.splitlines(), 1):
        try:
            lines.append((number, _Line.model_validate_json(line)))
        except ValidationError as error:
            what = error.errors(include_url=False)[0]
            where = ".".join(map(str, what["loc"])) or "the line"
            raise ParseError(
                f"expected a line of the record: {where}: {what['msg']}", number
            ) from None
    record.names = [f"node {number}" for number in range(job.nodes)]
    record.names[: len(names)] = [name.split(".")[0] for name in names[: job.nodes]]
    for number, record_line in lines:
        if not all(0 <= at < job.nodes for at in (*(record_line.pair or ()), *record_line.absent)):
            raise ParseError(f"it names a node beyond the {job.nodes} of the job", number)
        if record_line.nodes:
            for at, name in record_line.nodes.items():
                if not 0 <= at < job.nodes:
                    raise ParseError(f"it names a node beyond the {job.nodes} of the job", number)
                record.names[at] = name
        elif record_line.end:
            ended, record.seconds = True, record_line.seconds
            record.absent = [record.names[at] for at in record_line.absent]
            for at, reason in record_line.absent.items():
                record.unmeasured[record.names[at]] = reason
        elif record_line.pair:
            _read_pair(record_line, number, record, job, settings)
    if not ended:
        raise ParseError("the record of the rounds has no end", len(lines) or None)
    _complete(record)
    return record


def _read_pair(
    line: _Line, number: int, record: _Record, job: Job, settings: LinksSettings
) -> None:
    """Add a measured pair, or why it was not measured."""
    assert line.pair is not None
    low, high = (record.names[at] for at in line.pair)
    first, second = sorted((low, high))
    link = f"{first}-{second}"
    tries = record.alone if line.round is None else record.in_rounds
    if line.round is not None:
        record.rounds = max(record.rounds, line.round + 1)
    if line.streams is None or line.bytes is None:
        why = line.failed or "its record has no figures"
        tries.fail(link, number, tries.failed.get(link, why))
        return
    table = Parsed(metrics=[])
    try:
        if line.failed:
            raise ParseError(line.failed)
        table = netpipe.parse(line.text, int(settings.max_bytes))
    except ParseError as error:
        # The streams are figures all the same, and the failure is on record.
        tries.fail(link, number, f"NetPIPE: {error}")
    moved = table.moved_bytes + sum(count for count, _ in line.streams)
    for node, carried in zip((low, high), line.bytes, strict=True):
        if carried.get(job.interface, 0) < moved:
            others = ", ".join(
                f"{name} {n}" for name, n in carried.items() if name != job.interface
            )
            why = (
                f"{node}: {job.interface} carried {carried.get(job.interface, 0)} of {moved} bytes "
                f"(others: {others or 'none'}): the network under test did not carry the traffic"
            )
            tries.fail(link, number, why)
            return
    beside = False if settings.at_once(job.nodes) > 1 else None
    alone = True if line.round is None else beside
    streams = [
        replace(
            higher(DIRECTED, count / seconds / 1e6, "MB/s"),
            location=direction(*ends),
            seconds=seconds,
            alone=alone,
        )
        for (count, seconds), ends in zip(line.streams, ((low, high), (high, low)), strict=True)
    ]
    record.measured.append(
        _Measured(
            link=(first, second),
            alone=line.round is None,
            metrics=[
                *(replace(metric, location=link, alone=alone) for metric in table.metrics),
                *streams,
            ],
            curves=[
                curve.model_copy(update={"name": f"{curve.name} {link}"}) for curve in table.curves
            ],
            moved_bytes=moved,
        )
    )
    if table.metrics:
        tries.whole.add(link)


def _complete(record: _Record) -> None:
    """Name the links without all figures. Those of a node that was left out are named by the node,
    and so are those of a node without a measured link: its interface carried nothing.

    A pair that failed in its round, by load or for once, may have its figures from alone. Nothing
    excuses one that fails alone more than once.
    """
    failed = {**record.alone.failed, **record.in_rounds.failed}
    whole = record.in_rounds.whole | record.alone.whole

    def reason(first: str, second: str) -> str:
        return failed.get("-".join(sorted((first, second))), "the time of the step was over")

    present = sorted(set(record.names) - set(record.absent))
    linked = {node for measured in record.measured for node in measured.link}
    for node in [node for node in present if node not in linked]:
        others = (other for other in present if other != node)
        reasons = dict.fromkeys(reason(node, other) for other in others)
        record.absent.append(node)
        record.unmeasured[node] = f"none of its links was measured ({'; '.join(reasons)})"
    present = [node for node in present if node in linked]
    for at, first in enumerate(present):
        for second in present[at + 1 :]:
            link = f"{first}-{second}"
            if link not in whole:
                record.unmeasured[link] = reason(first, second)
            elif link not in record.alone.whole and len(record.alone.lines.get(link, ())) > 1:
                record.unmeasured[link] = f"measured alone: {record.alone.failed[link]}"


# -- what is slow


Cell = tuple[tuple[str, str], str]  # link, location
Groups = tuple[tuple[str, str], ...]


def _cells(link: _Measured) -> Iterator[tuple[str, Cell, float, Groups]]:
    """Metric, cell, badness and groups of the figures that are compared, of a measurement."""
    for metric in link.metrics:
        location = metric.location or ""
        if metric.metric == DIRECTED:
            sender, receiver = location.split(">")
            groups: Groups = (("sends", sender), ("receives", receiver))
        elif metric.metric in COMPARED:
            groups = tuple(("", node) for node in link.link)
        else:
            continue
        yield (
            metric.metric,
            (link.link, location),
            two_way.badness(metric.value, metric.better),
            groups,
        )


def _suspects(
    figures: dict[tuple[str, str], _Measured],
    alone: dict[tuple[str, str], list[_Measured]],
    factor: float,
) -> tuple[list[Suspect], set[tuple[str, str]]]:
    """What was worse than usual by ``factor`` in its round, and what it is alone.

    The fit over the rounds attributes it to a node or to a link. Alone it is compared with the
    links that were measured alone and were not suspected. The set has metric and location of
    figures that were neither measured alone nor are explained by a node that is slow alone.
    """
    suspects: list[Suspect] = []
    unsure: set[tuple[str, str]] = set()
    tables: dict[str, dict[Cell, tuple[float, Groups]]] = defaultdict(dict)
    for figure in figures.values():
        for metric, cell, value, groups in _cells(figure):
            tables[metric][cell] = value, groups
    again: dict[str, dict[Cell, float]] = defaultdict(dict)
    for link in (measured for several in alone.values() for measured in several):
        for metric, cell, value, _ in _cells(link):
            again[metric][cell] = min(value, again[metric].get(cell, value))
    limit = math.log(factor)
    for metric, cells in tables.items():
        fitted = two_way.fit(cells)
        excess = {cell: value - fitted.overall for cell, (value, _) in cells.items()}
        good = [value for cell, value in again[metric].items() if excess.get(cell, 9e9) <= limit]
        usual = median(good or again[metric].values()) if again[metric] else 0.0
        by_location: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for cell, (_, groups) in cells.items():
            if excess[cell] <= limit:
                continue
            explaining = [group for group in groups if fitted.effects[group] > limit]
            if explaining and fitted.residuals[cell] <= limit:
                kind, node = max(explaining, key=lambda group: fitted.effects[group])
                by_location[node, kind].append(cell)
            elif cell in again[metric]:
                by_location[cell[1], ""].append(cell)
            else:
                unsure.add((metric, cell[1]))
        for (location, kind), suspected in by_location.items():
            ratios = [again[metric][cell] - usual for cell in suspected if cell in again[metric]]
            slow = median(ratios) if ratios else None
            suspects.append(
                Suspect(
                    metric=metric,
                    location=location,
                    direction=kind,
                    factor=math.exp(median(excess[cell] for cell in suspected)),
                    alone_factor=None if slow is None else math.exp(slow),
                    conclusion="unknown" if slow is None else "fault" if slow > limit else "load",
                )
            )
            if suspects[-1].conclusion != "fault":
                unsure.update((metric, cell[1]) for cell in suspected if cell not in again[metric])
    return suspects, unsure
