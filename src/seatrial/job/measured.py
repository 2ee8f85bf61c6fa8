"""What the site's own trials say for a job: profile, transport and network by measurement.

The figures are those of the history's index: valid runs, without reruns. A trial with planted
faults, or with a wrong clock, advises nothing. A trial in which other programs disturbed an option
gives no answer; an older one that they did not disturb does. Options are compared only within one
trial, one variant and one number of nodes, by ``seatrial.analysis.decision``.

Which trial: the newest that measured enough rounds for an answer, whatever the answer is. To look
for an older one until the answer pleases would make chance a reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from seatrial.analysis.conclusion import SAME_NODES, Unit
from seatrial.analysis.decision import Decision, decide, failing, least_repeats, withheld
from seatrial.base import globs
from seatrial.base.errors import LabError
from seatrial.history.entry import NODES
from seatrial.history.index import Index, opened
from seatrial.report.estimates import small_difference, times
from seatrial.report.text import clean, quantity
from seatrial.results.figures import DISTURBED_PERCENT
from seatrial.results.statistics import Better, median
from seatrial.results.wording import number, some


@dataclass(frozen=True)
class Application:
    """What stands for a job: a check with a glob of its variants, and the metric that compares."""

    check: str
    variant: str
    metric: str
    stands_for: str = ""  # a kind of applications; "": it is the job's own program


@dataclass(frozen=True)
class Option:
    """``network``: "" where the site measures one only."""

    profile: str
    transport: str
    network: str

    @property
    def name(self) -> str:
        at = f"@{self.network}" if self.network else ""
        return f"{self.profile} over {self.transport}{at}"


@dataclass(frozen=True)
class Comparison:
    """The samples of an application in one trial on one number of nodes, by option.

    A sample is the median of a block of runs (``seatrial.analysis.conclusion``), ``per`` what a
    block is. ``runs``: option -> number of valid runs.
    """

    trial: str
    started: datetime
    application: str
    nodes: int
    unit: str
    better: Better
    samples: Mapping[Option, Sequence[float]]
    disturbed: Set[Option] = frozenset()  # those that waited for a processor, over all repeats
    nodes_of: Mapping[Option, str] = field(default_factory=dict)
    per: Unit = "round"
    runs: Mapping[Option, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """The decision on the options that a job may use, and where it is from."""

    comparison: Comparison
    decision: Decision
    stands_for: str

    @property
    def options(self) -> dict[str, Option]:
        return {one.name: one for one in self.comparison.samples}

    @property
    def best(self) -> Option | None:
        return self.first if self.decision.answer == "best" else None

    @property
    def first(self) -> Option:
        """The option with the best estimate of those of which none is certainly better."""
        return self.options[self.decision.leaders[0]]

    def is_worse(self, profile: str, transport: str) -> bool:
        """Whether an option with the profile and transport is certainly worse than the first."""
        return any(
            (self.options[name].profile, self.options[name].transport) == (profile, transport)
            for name in self.decision.worse
        )

    def sentence(self) -> str:
        """The trial, its date, the answer and its interval."""
        one, d = self.comparison, self.decision
        where = f"trial {one.trial} of {one.started:%Y-%m-%d}"
        what = f"{one.application} on {one.nodes} nodes"
        if self.stands_for:
            what += f", which stands for {self.stands_for} applications"
        if d.answer == "best":
            first = self.options[d.leaders[0]]
            near = min(d.ahead, key=lambda name: d.ahead[name].value)
            value = quantity(median(one.samples[first]), one.unit)
            text = f"{first.name} is the best of {len(one.samples)} for {what}: {value}, "
            text += f"{times(d.ahead[near])} as good as the next, {near}"
        elif d.answer == "no difference":
            most = number(100 * d.apart, 2)
            text = f"no difference for {what}: {some(d.leaders)} differ by at most {most} %"
            if small := small_difference(d):
                text = f"for {what} {small}; {some(d.leaders)} differ by at most {most} %"
            text += f"; but {d.uneven}" if d.uneven else ""
        else:
            text = f"not enough is known of {what}: {d.reason}"
            if d.needs:
                text += f"; it takes {d.needs} {d.unit}s (seatrial trial --{d.unit}s {d.needs})"
        return clean(f"{text}. {where[0].upper()}{where[1:]}; intervals of 95 %.")


class SiteTrials:
    """The trials of a site in a folder, newest first. The index is opened at the first question.

    ``say`` gets a sentence if the folder cannot be read: then there are no comparisons.
    """

    def __init__(self, folder: Path, site: str, say: Callable[[str], None]):
        self.folder, self.site, self.say = folder, site, say

    def comparisons(self, wanted: Application) -> list[Comparison]:
        """All comparisons of an application, of the newest trial first. Raises InputError."""
        try:
            with opened(self.folder, self.say) as index:
                return self._read(index, wanted)
        except (LabError, OSError) as error:
            self.say(f"warning: the trials in {self.folder} cannot be read: {error}")
            return []

    def _read(self, index: Index, wanted: Application) -> list[Comparison]:
        samples: dict[tuple[int, str, int], dict[Option, Sequence[float]]] = defaultdict(dict)
        facts = {}
        disturbed: dict[tuple[int, str, int], set[Option]] = defaultdict(set)
        nodes_of: dict[tuple[int, str, int], dict[Option, str]] = defaultdict(dict)
        runs: dict[tuple[int, str, int], dict[Option, int]] = defaultdict(dict)
        waits = index.waits()
        for series in index.series(check=[wanted.check], metric=[wanted.metric], site=[self.site]):
            case = series.case
            if series.location or not globs.matcher(wanted.variant)(case.variant):
                continue
            for point in index.points(series):
                if point.trial.notes:
                    continue
                key = (point.trial.id, case.variant, case.nodes)
                facts[key] = (point.trial, series)
                option = Option(case.profile, case.transport, case.network)
                samples[key][option] = point.blocks
                runs[key][option] = len(point.samples)
                nodes_of[key][option] = point.conditions.get(NODES, "")
                if waits.get((point.trial.id, case.id), 0.0) > DISTURBED_PERCENT:
                    disturbed[key].add(option)
        made = []
        for key, own in samples.items():
            trial, series = facts[key]
            better: Better = "lower" if series.better == "lower" else "higher"
            name = f"{series.case.check} {series.case.variant}".rstrip()
            per: Unit = "round" if trial.block_runs else "repeat"
            made.append(Comparison(trial.folder.name, trial.started, name, key[2], series.unit,
                                   better, own, disturbed[key], nodes_of[key],
                                   per, runs[key]))  # fmt: skip
        return sorted(made, key=lambda one: one.started, reverse=True)


def advise(
    comparisons: Iterable[Comparison],
    allowed: Callable[[Option], bool],
    nodes: int,
    stands_for: str = "",
) -> Advice | None:
    """The advice of the newest trial that compared at least two allowed options often enough, and
    undisturbed.

    Of several comparisons of that trial: the nearest number of nodes, then the most options. If no
    trial has enough repeats, the newest one's, which says so. None if none compared two.
    """
    usable = []
    for one in comparisons:
        samples = {option: values for option, values in one.samples.items() if allowed(option)}
        if len(samples) > 1:
            usable.append(
                replace(one, samples=samples, disturbed=one.disturbed & samples.keys(),
                        runs={option: one.runs[option] for option in samples})
            )  # fmt: skip
    usable.sort(key=lambda one: (abs(one.nodes - nodes), -len(one.samples)))
    usable.sort(key=lambda one: one.started, reverse=True)
    enough = [
        one
        for one in usable
        if min(map(len, one.samples.values())) >= least_repeats(len(one.samples))
        and not one.disturbed
    ]
    if not usable:
        return None
    chosen = (enough or usable)[0]
    named = {option.name: values for option, values in chosen.samples.items()}
    decision = decide(named, chosen.better, unit=chosen.per)
    most = max(chosen.runs.values())  # each option has the same number of planned runs
    lost = {option.name: (most - count, most) for option, count in chosen.runs.items()}
    why = failing(decision, lost, "failed or did not count")
    decision = withheld(decision, why, "runs that do not fail")
    if len({chosen.nodes_of.get(option) for option in chosen.samples}) > 1:
        why = "the options were measured on different nodes, from which they cannot be told"
        decision = withheld(decision, why, SAME_NODES)
    if chosen.disturbed:
        names = some(sorted(option.name for option in chosen.disturbed))
        why = f"other programs used the processors while {names} was measured"
        decision = withheld(decision, why, "a trial without other programs on the nodes")
    return Advice(chosen, decision, stands_for)
