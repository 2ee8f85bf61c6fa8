"""The samples of each metric of a trial, collected from its runs.

This module decides which runs count, and how long each sample waited for a processor. It
compares nothing with a requirement: see ``seatrial.results.judge``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from seatrial.results import statistics
from seatrial.results.locations import End, Locations, natural
from seatrial.results.record import Activity, Case, Metric, Run, Trial
from seatrial.results.statistics import Better

#: Fraction of its step in which a figure is measured, if the benchmark does not report it; the
#: rest is the start and the end of the step, and other figures.
PART_OF_STEP = 0.25
#: A shorter wait for a processor, in per cent of a step's time, explains nothing: the daemons of
#: a node cause less.
DISTURBED_PERCENT = 5.0
#: Units of times, rates and sizes, of which a value that is not above zero was not measured.
#: Percentages and counts (``percent``, ``1/s``) can be zero.
POSITIVE_UNITS = frozenset({"us", "s", "B", "MB/s", "GB/s", "GFLOPS", "Mop/s"})


class Wait(NamedTuple):
    """How long steps waited for a processor that another program used."""

    percent: float  # of the steps' time, on the node with the longest wait
    node: str
    others: float  # processor time of other programs on that node, in per cent of a core
    total: float  # sum over all nodes, whose waits may follow each other, in per cent of the time
    part: float  # fraction of the steps' time in which the figure was measured

    @property
    def most_lost(self) -> float:
        """The most that a figure may have lost by it, in per cent of the figure's time; 0 if it is
        no longer than the waits for a node's daemons."""
        if self.percent <= DISTURBED_PERCENT:
            return 0.0
        return self.total / self.part if self.part else math.inf


@dataclass(slots=True)
class Figure:
    """All samples of one metric of one case at one location, over the valid runs."""

    case: Case
    metric: str
    location: str | None
    unit: str
    better: Better
    values: list[float]
    runs: tuple[int, ...] = ()  # the number of the run of each sample
    known_waits: list[Wait | None] | None = None  # None: no wait of any sample is known
    fault: str = ""  # why the samples cannot be judged
    doubt: str = ""  # why the samples decide nothing; each of them is in doubt
    doubt_factor: float = 1.0  # the highest of those of the samples; infinite: one is unknown
    left_out: tuple[float, ...] = ()  # samples that do not count, and are not among ``samples``
    left_out_in_doubt: int = 0  # how many of these are in doubt
    alone: bool | None = None  # of a link, as in ``Metric``
    _median: float | None = None
    _spread: float | None = None

    @property
    def samples(self) -> list[tuple[int, float]]:
        """Number of the run and value of each sample."""
        return list(zip(self.runs, self.values, strict=True))

    @property
    def waits(self) -> Sequence[Wait | None]:
        """The longest wait for a processor of each sample; None: unknown."""
        return self.known_waits or [None] * len(self.values)

    @property
    def median(self) -> float:
        if self._median is None:
            self._median = statistics.median(self.values)
        return self._median

    @property
    def spread(self) -> float | None:
        """Robust standard deviation of the samples; None for a single one."""
        if self._spread is None and len(self.values) > 1:
            self._spread = statistics.spread(self.values)
        return self._spread


Figures = dict[Case, dict[str, dict[str | None, Figure]]]  # case, metric, location


def is_valid(run: Run) -> bool:
    """Whether the figures of a run count: it ran, and its path proof, if any, succeeded."""
    return run.outcome == "ran" and (run.path is None or run.path.crossed)


def all_cases(trial: Trial, runs: Iterable[Run]) -> list[Case]:
    """The planned cases in their order, then cases that ran without being planned."""
    extra = {run.case for run in runs} - set(trial.cases)
    return [*dict.fromkeys(trial.cases), *sorted(extra, key=lambda case: case.id)]


def case_errors(trial: Trial, runs: Sequence[Run]) -> dict[Case, str]:
    """A sentence for each case that did not run as declared."""
    runs_of: dict[Case, list[Run]] = defaultdict(list)
    for run in _in_order(runs):
        runs_of[run.case].append(run)
    errors = {}
    for case in all_cases(trial, runs):
        of_case = runs_of[case]
        repeats: dict[str, list[int]] = defaultdict(list)  # from 1, by the reason of the failure
        for run in of_case:
            if not is_valid(run):
                repeats[_reason(run)].append(run.repeat + 1)
        failed = sum(map(len, repeats.values()))
        recorded = Counter(run.repeat + 1 for run in of_case)
        if not of_case:
            errors[case] = f"{case.id} was planned and did not run"
        elif repeats:
            reasons = "; ".join(
                f"repeat {', '.join(map(str, numbers))}: {reason}"
                for reason, numbers in repeats.items()
            )
            errors[case] = f"{case.id}: {failed} of {len(of_case)} runs failed ({reasons})"
        elif twice := [str(number) for number, count in recorded.items() if count > 1]:
            errors[case] = f"{case.id}: more than one record of repeat {', '.join(twice)}"
        elif len(of_case) < trial.runs_of_case:
            errors[case] = f"{case.id} ran {len(of_case)} times of the {trial.runs_of_case} planned"
        elif not any(run.metrics for run in of_case):
            errors[case] = f"{case.id} ran and reported no figure"
    return errors


def _reason(run: Run) -> str:
    if run.outcome == "ran" and run.path is not None:
        reason = run.path.reason or "the traffic did not cross the network under test"
        return f"path: {reason}"
    phase = f"{run.phase}: " if run.phase else ""
    return f"{phase}{run.reason or 'no reason recorded'}"


def _in_order(runs: Iterable[Run]) -> list[Run]:
    """The runs in an order that does not depend on their order in the records."""

    def name(run: Run) -> tuple[int, str, str]:
        return run.repeat, run.job.id, run.evidence

    def content(run: Run) -> str:
        figures = [(m.metric, m.location, m.value) for m in run.metrics]
        return f"{run.outcome}{run.reason}{figures}"

    ordered: list[Run] = []
    for _, group in groupby(sorted(runs, key=name), name):
        twins = list(group)
        ordered += sorted(twins, key=content) if len(twins) > 1 else twins
    return ordered


def valid_runs(runs: Iterable[Run]) -> list[Run]:
    """The runs whose figures count, in the order by which ``collect`` numbers them."""
    return _in_order(filter(is_valid, runs))


def collect(trial: Trial, runs: Sequence[Run]) -> Figures:
    """The figures of all valid runs, each with its samples in the order of the repeats.

    A sample in doubt is left out if another run has one that is not, and a sample of a link in its
    round if another run measured the link alone. ``Comparison`` says when they forbid a pass.
    """
    figures: Figures = {case: {} for case in all_cases(trial, runs)}
    locations = Locations(runs)
    ordered = valid_runs(runs)
    certain = _certain(ordered)
    alone = {(r.case, m.metric, m.location) for r in ordered for m in r.metrics if m.alone}
    for number, run in enumerate(ordered):
        of_case = figures[run.case]
        waits = _Waits(run, locations)
        longer: dict[tuple[int, ...], tuple[int, ...]] = {}  # figures share these tuples
        for m in run.metrics:
            at = m.location or None
            alike = of_case.get(m.metric)
            if alike is None:
                alike = of_case[m.metric] = {}
            figure = alike.get(at)
            leave_out = bool(m.doubt) and (run.case, m.metric, at) in certain
            if alone and m.alone is False:
                leave_out = leave_out or (run.case, m.metric, at) in alone
            if figure is None:
                own_values = [] if leave_out else [m.value]
                figure = alike[at] = Figure(run.case, m.metric, at, m.unit, m.better, own_values)
            elif not leave_out:
                figure.values.append(m.value)
            if leave_out:
                figure.left_out = (*figure.left_out, m.value)
                figure.left_out_in_doubt += bool(m.doubt)
                continue
            figure.doubt, figure.alone = m.doubt, m.alone
            if m.doubt:
                figure.doubt_factor = max(figure.doubt_factor, m.doubt_factor or math.inf)
            figure.runs = longer.get(figure.runs) or longer.setdefault(
                figure.runs, (*figure.runs, number)
            )
            if waits.known and figure.known_waits is None:
                figure.known_waits = [None] * (len(figure.values) - 1)
            if figure.known_waits is not None:
                figure.known_waits.append(waits.longest(m))
            if not math.isfinite(m.value):
                figure.fault = f"a sample is {m.value}, which is not a finite number"
            elif m.value <= 0 and m.unit in POSITIVE_UNITS:
                figure.fault = f"a sample is {m.value:g} {m.unit}, and must be above zero"
            elif m.unit != figure.unit:
                figure.fault = f"its unit is '{figure.unit}' in one run and '{m.unit}' in another"
            elif m.better != figure.better:
                figure.fault = "lower is better in one run, higher in another"
    return figures


def slow_alone(runs: Iterable[Run]) -> dict[tuple[Case, str], dict[End, float]]:
    """For each case and metric: the nodes and links (of side "") that most of its valid runs found
    slow in their rounds and alone, and how many times worse than the usual link."""
    valid = [run for run in runs if is_valid(run)]
    counts = Counter(run.case for run in valid)
    factors: dict[tuple[Case, str], dict[End, list[float]]] = defaultdict(dict)
    for run in valid:
        for suspect in run.suspects:
            if suspect.conclusion == "fault" and suspect.alone_factor is not None:
                of_metric = factors[run.case, suspect.metric]
                of_metric.setdefault((suspect.direction, suspect.location), []).append(
                    suspect.alone_factor
                )
    return {
        key: {
            end: statistics.median(values)
            for end, values in own.items()
            if 2 * len(values) >= counts[key[0]]
        }
        for key, own in factors.items()
    }


def _certain(runs: Sequence[Run]) -> set[tuple[Case, str, str | None]]:
    """The figures in doubt that another run has without doubt: case, metric, location."""
    doubted = {(r.case, m.metric, m.location or None) for r in runs for m in r.metrics if m.doubt}
    if not doubted:
        return set()
    return doubted & {
        (r.case, m.metric, m.location or None) for r in runs for m in r.metrics if not m.doubt
    }


class _Sum(NamedTuple):
    """The activity of one node in several steps."""

    seconds: float = 0.0
    waited: float = 0.0  # per cent times seconds
    others: float = 0.0
    steps: int = 0

    def plus(self, activity: Activity) -> _Sum:
        return _Sum(
            self.seconds + activity.seconds,
            self.waited + (activity.waited_percent or 0.0) * activity.seconds,
            self.others + (activity.others_percent or 0.0) * activity.seconds,
            self.steps + 1,
        )


class _Waits:
    """How long the steps of one run waited for a processor.

    Steps are summed up by the nodes that they ran on: a run that measures each link has as many
    steps as links, and each of its figures belongs to a few of them.
    """

    def __init__(self, run: Run, locations: Locations):
        self.locations = locations
        #: metric -> links and ends of links that were slow alone, too
        self.slow_alone = {metric: own for (_, metric), own in slow_alone([run]).items()}
        steps: dict[str, dict[str, Activity]] = defaultdict(dict)
        for activity in run.activity:
            if activity.waited_percent is not None:
                steps[activity.step][activity.node] = activity
        self.known = bool(steps)
        self.steps = steps
        #: nodes of steps -> the sum for each of the nodes
        self.groups: dict[frozenset[str], dict[str, _Sum]] = {}
        #: node, number of nodes -> the groups of so many nodes that it is one of
        self.groups_of: dict[tuple[str, int], list[frozenset[str]]] = defaultdict(list)
        for of_step in steps.values():
            nodes = frozenset(of_step)
            if nodes not in self.groups:
                self.groups[nodes] = dict.fromkeys(of_step, _Sum())
                for node in nodes:
                    self.groups_of[node, len(nodes)].append(nodes)
            sums = self.groups[nodes]
            for node, activity in of_step.items():
                sums[node] = sums[node].plus(activity)
        self.sizes = sorted({len(nodes) for nodes in self.groups})
        #: by the nodes of a figure and its step: many figures are of the same ones
        self.longest_of: dict[tuple[frozenset[str], str], list[tuple[Wait, _Sum]]] = {}

    def _groups_on(self, wanted: frozenset[str]) -> Iterable[frozenset[str]]:
        """The groups of steps that ran on all the wanted nodes; every group if none is wanted."""
        if not wanted:
            return self.groups
        groups = [wanted] if wanted in self.groups else []
        anyone = next(iter(wanted))
        for size in self.sizes:
            if size > len(wanted):
                groups += [nodes for nodes in self.groups_of[anyone, size] if wanted <= nodes]
        return groups

    def longest(self, metric: Metric) -> Wait | None:
        """The longest wait for a processor on the nodes of a figure.

        It covers the run's steps that ran on all the nodes, or every step on all of its nodes if
        the figure has no location; or that of its own step, which steps of another length hide.
        The one that explains more counts. None if no wait is on record, or if the link or its
        node was measured again alone until a wait was no explanation.
        """
        at = metric.location or ""
        slow = self.slow_alone.get(metric.metric, {})
        if slow and any(end in slow for end in self.locations.itself_and_ends(at)):
            return None
        key = frozenset(self.locations.nodes_of(metric.location)), metric.step
        if key not in self.longest_of:
            self.longest_of[key] = self._longest_of(*key)
        longest = self.longest_of[key]
        if metric.seconds is None:
            return longest[0][0] if longest else None
        waits = (
            wait._replace(part=min(1.0, metric.seconds * all_steps.steps / all_steps.seconds))
            for wait, all_steps in longest
        )
        return max(waits, key=_explained, default=None)

    def _longest_of(self, wanted: frozenset[str], step: str) -> list[tuple[Wait, _Sum]]:
        """The longest wait on some nodes and that in one step, each with the steps of the node that
        waited; first the one that explains more. A wait that is not known is left out."""
        by_node: dict[str, list[_Sum]] = defaultdict(list)
        for group in self._groups_on(wanted):
            sums_of = self.groups[group]
            for node in sorted(wanted) or sums_of:
                by_node[node].append(sums_of[node])
        found = [_longest(by_node)]
        if step in self.steps:
            own = self.steps[step].items()
            found.append(_longest({node: [_Sum().plus(activity)] for node, activity in own}))
        known = [wait for wait in found if wait is not None]
        return sorted(known, key=lambda wait: _explained(wait[0]), reverse=True)


def _explained(wait: Wait) -> tuple[float, float]:
    """Orders waits by how much they explain."""
    return wait.most_lost, wait.percent


def _longest(by_node: Mapping[str, Sequence[_Sum]]) -> tuple[Wait, _Sum] | None:
    """The longest wait of some nodes, and the steps of the node that waited; None: unknown."""
    waits = []
    for node, sums in by_node.items():
        seconds, waited, others, steps = (sum(column) for column in zip(*sums, strict=True))
        all_steps = _Sum(seconds, waited, others, int(steps))
        wait = Wait(waited / seconds, node, others / seconds, 0.0, PART_OF_STEP)
        waits.append((wait, all_steps))
    if not waits:
        return None
    wait, all_steps = max(waits)
    return wait._replace(total=sum(node_wait.percent for node_wait, _ in waits)), all_steps


def longest_wait(runs: Iterable[Run]) -> float | None:
    """How long the steps of all runs waited for a processor that another program used, in per cent
    of their time, on the node that waited longest. None: no wait is on record."""
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for run in runs:
        for activity in run.activity:
            if activity.waited_percent is not None:
                sums[activity.node] = sums[activity.node].plus(activity)
    return max((summed.waited / summed.seconds for summed in sums.values()), default=None)


def is_disturbed(run: Run) -> bool:
    """Whether it waited so long for a processor that its figures may be those of the load."""
    return (longest_wait([run]) or 0.0) > DISTURBED_PERCENT


def in_order(by_metric: dict[str, dict[str | None, Figure]]) -> Iterator[list[Figure]]:
    """The figures of each metric of a case: the case as a whole, then n2 before n10."""
    locations = {location for alike in by_metric.values() for location in alike}
    order = sorted(locations, key=_by_name)
    del locations
    for metric in sorted(by_metric):
        alike = by_metric[metric]
        if len(alike) > len(order) // 2:  # most metrics have the same locations
            yield [alike[location] for location in order if location in alike]
        else:
            yield [alike[location] for location in sorted(alike, key=_by_name)]


def _by_name(location: str | None) -> tuple[str | int, ...]:
    return natural(location or "")
