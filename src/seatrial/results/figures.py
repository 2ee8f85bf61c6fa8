"""The samples of each metric of a trial, collected from its runs.

This module decides which runs count, and how long each sample waited for a processor. It
compares nothing with a requirement: see ``seatrial.results.judge``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seatrial.results import statistics
from seatrial.results.locations import Locations, natural
from seatrial.results.record import Activity, Case, Run, Trial
from seatrial.results.statistics import Better

#: Fraction of its step in which a figure is measured, if the benchmark does not report it; the
#: rest is the start and the end of the step, and other figures.
PART_OF_STEP = 0.25
Key = tuple[str, str | None]  # metric, location


class Wait(NamedTuple):
    """How long steps waited for a processor that another program used."""

    percent: float  # of the steps' time, on the node with the longest wait
    node: str
    others: float  # processor time of other programs on that node, in per cent of a core
    total: float  # sum over all nodes, whose waits may follow each other, in per cent of the time
    part: float  # fraction of the steps' time in which the figure was measured


@dataclass
class Figure:
    """All samples of one metric of one case at one location, over the valid runs."""

    case: Case
    metric: str
    location: str | None
    unit: str
    better: Better
    samples: list[tuple[int, float]] = field(default_factory=list)  # number of the run, value
    waits: list[Wait | None] = field(default_factory=list)  # for each sample; None: unknown
    fault: str = ""  # why the samples cannot be judged
    doubt: str = ""  # why the samples decide nothing; each of them is in doubt
    left_out: int = 0  # number of samples that are in doubt and not among ``samples``

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.samples]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


Figures = dict[Case, dict[Key, Figure]]


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
    for run in sorted(runs, key=_run_order):
        runs_of[run.case].append(run)
    errors = {}
    for case in all_cases(trial, runs):
        own = runs_of[case]
        repeats: dict[str, list[int]] = defaultdict(list)  # by the reason of the failure
        for run in own:
            if not is_valid(run):
                repeats[_reason(run)].append(run.repeat)
        failed = sum(map(len, repeats.values()))
        if not own:
            errors[case] = f"{case.id} was planned and did not run"
        elif repeats:
            reasons = "; ".join(
                f"repeat {', '.join(map(str, numbers))}: {reason}"
                for reason, numbers in repeats.items()
            )
            errors[case] = f"{case.id}: {failed} of {len(own)} runs failed ({reasons})"
        elif len(own) < trial.repeats:
            errors[case] = f"{case.id} ran {len(own)} times of the {trial.repeats} planned"
        elif not any(run.metrics for run in own):
            errors[case] = f"{case.id} ran and reported no figure"
    return errors


def _reason(run: Run) -> str:
    if run.outcome == "ran" and run.path is not None:
        reason = run.path.reason or "the traffic did not cross the network under test"
        return f"path: {reason}"
    phase = f"{run.phase}: " if run.phase else ""
    return f"{phase}{run.reason or 'no reason recorded'}"


def _run_order(run: Run) -> tuple[int, str, str, str]:
    """Sort key of runs, independent of their order in the records."""
    figures = [(m.metric, m.location, m.value) for m in run.metrics]
    return run.repeat, run.job.id, run.evidence, f"{run.outcome}{run.reason}{figures}"


def valid_runs(runs: Iterable[Run]) -> list[Run]:
    """The runs whose figures count, in the order by which ``collect`` numbers them."""
    return sorted(filter(is_valid, runs), key=_run_order)


def collect(trial: Trial, runs: Sequence[Run]) -> Figures:
    """The figures of all valid runs, each with its samples in the order of the repeats.

    A sample in doubt is left out if another run has one that is not.
    """
    figures: Figures = {case: {} for case in all_cases(trial, runs)}
    locations = Locations(runs)
    certain = {
        (run.case, (m.metric, m.location or None))
        for run in valid_runs(runs)
        for m in run.metrics
        if not m.doubt
    }
    for number, run in enumerate(valid_runs(runs)):
        for m in run.metrics:
            key = (m.metric, m.location or None)
            figure = figures[run.case].setdefault(
                key, Figure(run.case, *key, unit=m.unit, better=m.better)
            )
            if m.doubt and (run.case, key) in certain:
                figure.left_out += 1
                continue
            figure.samples.append((number, m.value))
            figure.waits.append(longest_wait(run, locations.nodes_of(m.location), m.seconds))
            figure.doubt = m.doubt
            if not math.isfinite(m.value):
                figure.fault = f"a sample is {m.value}, which is not a finite number"
            elif m.unit != figure.unit:
                figure.fault = f"its unit is '{figure.unit}' in one run and '{m.unit}' in another"
            elif m.better != figure.better:
                figure.fault = "lower is better in one run, higher in another"
    return figures


def longest_wait(run: Run, nodes: Iterable[str], measured_s: float | None) -> Wait | None:
    """The longest wait for a processor on the given nodes, for a figure measured ``measured_s`` s.

    It covers the run's steps that ran on all the nodes, or every step on all of its nodes if none
    are given. None if no wait is on record.
    """
    steps: dict[str, dict[str, Activity]] = defaultdict(dict)
    for activity in run.activity:
        if activity.waited_percent is not None:
            steps[activity.step][activity.node] = activity
    wanted = set(nodes)
    by_node: dict[str, list[Activity]] = defaultdict(list)
    for of_step in steps.values():
        if wanted <= of_step.keys():
            for node in wanted or of_step:
                by_node[node].append(of_step[node])
    waits = []
    for node, activities in by_node.items():
        seconds = sum(a.seconds for a in activities)
        waited = sum((a.waited_percent or 0.0) * a.seconds for a in activities)
        others = sum((a.others_percent or 0.0) * a.seconds for a in activities)
        part = PART_OF_STEP
        if measured_s is not None:
            part = min(1.0, measured_s * len(activities) / seconds)
        waits.append(Wait(waited / seconds, node, others / seconds, 0.0, part))
    if not waits:
        return None
    return max(waits)._replace(total=sum(wait.percent for wait in waits))


def key_order(key: Key) -> tuple[str, bool, tuple[tuple[int, int, str], ...]]:
    """Sort key: by metric, the case as a whole before its locations, n2 before n10."""
    metric, location = key
    return metric, location is not None, natural(location or "")
