"""What the site's own trials say for a job: profile, transport and network by measurement.

The figures are those of the history's index: valid runs, without reruns. A trial with planted
faults, or with a wrong clock, advises nothing. A trial in which other programs disturbed an option
gives no answer; an older one that they did not disturb does. Options are compared only within one
variant and one number of nodes, by the rules of the chapter "What it means" of a trial's report
(``seatrial.analysis.answer``). It compares the same options (``seatrial.analysis.axis.SETTING``).

Which trial: of those that measured enough rounds for an answer, one of the job's own class of
problem, else of the nearest class; of these the newest, whatever the answer is. To look for an
older one until the answer pleases would make chance a reason. If no trial measured enough, as with
one round a night, the newest ones are pooled until there are enough rounds: those with the same
options, under the same versions and settings. Where the size of what was measured is not that of
the job, the advice says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from seatrial.analysis.answer import OfTrial, answer
from seatrial.analysis.axis import SETTING, setting
from seatrial.analysis.conclusion import Unit
from seatrial.analysis.decision import Decision, least_repeats
from seatrial.base import globs
from seatrial.base.errors import InputError, LabError
from seatrial.base.say import Say
from seatrial.history.conditions import NODES
from seatrial.history.index import Index, opened
from seatrial.report.estimates import small_difference, times
from seatrial.report.text import amount, clean
from seatrial.results.figures import DISTURBED_PERCENT, is_valid
from seatrial.results.folder import read_results
from seatrial.results.statistics import Better, median
from seatrial.results.wording import number, some

#: of NPB, from the smallest problem to the largest
CLASSES = "SWABCDEF"
#: conditions in which trials that are pooled may differ: an option is on the same nodes as others
_OTHERS = (NODES, "seatrial")


@dataclass(frozen=True)
class Application:
    """What stands for a job: a check with a glob of its variants, and the metric that compares.

    ``problem_class``: of NPB, what the job runs; "": the variants have no class that matters to it.
    """

    check: str
    variant: str
    metric: str
    stands_for: str = ""  # such as a kind of applications; "": it is the job's own program
    problem_class: str = ""

    def class_of(self, comparison: Comparison) -> str:
        """The class of what a comparison measured; "" if that does not matter."""
        return comparison.variant.rpartition(".")[2] if self.problem_class else ""

    def apart(self, comparison: Comparison) -> int:
        """How many classes a comparison is from the job's own."""
        mine, other = (
            CLASSES.find(problem) for problem in (self.problem_class, self.class_of(comparison))
        )
        return len(CLASSES) if other < 0 else abs(mine - other)


@dataclass(frozen=True)
class Option:
    """``network``: "" where the site measures one only."""

    profile: str
    transport: str
    network: str

    @property
    def name(self) -> str:
        return setting(self.profile, self.transport, self.network)


@dataclass(frozen=True)
class Comparison:
    """The samples of an application in one trial on one number of nodes, by option.

    A sample is the median of a block of runs (``seatrial.analysis.conclusion``), ``per`` what a
    block is. ``runs``: option -> number of valid runs. ``state``: versions and settings, without
    those of Seatrial and the names of nodes. ``older``: the trials that are pooled with this one,
    the newest first.
    """

    trial: str
    started: datetime
    check: str
    variant: str
    nodes: int
    unit: str
    better: Better
    samples: Mapping[Option, Sequence[float]]
    disturbed: Set[Option] = frozenset()  # those that waited for a processor, over all repeats
    nodes_of: Mapping[Option, str] = field(default_factory=dict)
    per: Unit = "round"
    runs: Mapping[Option, int] = field(default_factory=dict)
    state: Mapping[Option, Mapping[str, str]] = field(default_factory=dict)
    older: Sequence[Comparison] = ()

    @property
    def own_samples(self) -> Mapping[Option, Sequence[float]]:
        """Those of this trial alone."""
        pooled = {
            option: sum(len(comparison.samples[option]) for comparison in self.older)
            for option in self.samples
        }
        return {
            option: values[: len(values) - pooled[option]]
            for option, values in self.samples.items()
        }

    @property
    def rounds(self) -> int:
        """The samples of the option with the fewest."""
        return min(map(len, self.samples.values()))

    def is_like(self, other: Comparison) -> bool:
        """Whether the samples of another trial can be pooled with these."""
        return (
            (self.check, self.variant, self.nodes, self.unit, self.better, self.per)
            == (other.check, other.variant, other.nodes, other.unit, other.better, other.per)
        ) and self.state == other.state

    @property
    def application(self) -> str:
        return f"{self.check} {self.variant}".rstrip()


@dataclass(frozen=True)
class Size:
    """Of a problem: what a job runs, or what a trial ran. None or "": it is not known."""

    nodes: int
    ranks: int | None = None
    problem_class: str = ""  # of NPB
    order: int | None = None  # N of HPL


@dataclass(frozen=True)
class Advice:
    """The decision on the options that a job may use, and where it is from."""

    comparison: Comparison
    decision: Decision
    wanted: Application

    @property
    def options(self) -> dict[str, Option]:
        return {sample.name: sample for sample in self.comparison.samples}

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
        comparison, d = self.comparison, self.decision
        where = f"trial {comparison.trial} of {comparison.started:%Y-%m-%d}"
        if comparison.older:
            last = comparison.older[-1]
            where = (
                f"trials {last.trial} of {last.started:%Y-%m-%d} to {comparison.trial} of "
                f"{comparison.started:%Y-%m-%d}, {len(comparison.older) + 1} together"
            )
        what = f"{comparison.application} on {comparison.nodes} nodes"
        if self.wanted.stands_for:
            size = (
                f", class {comparison.variant.rpartition('.')[2]}"
                if comparison.check == "npb"
                else ""
            )
            what += f", which stands for {self.wanted.stands_for}"
            what += f" (another program than the job's{size})"
        if d.answer == "best":
            first = self.options[d.leaders[0]]
            near = min(d.ahead, key=lambda name: d.ahead[name].value)
            value = amount(median(comparison.samples[first]), comparison.unit)
            text = f"{first.name} is the best of {len(comparison.samples)} for {what}: {value}, "
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

    def unlike(self, job: Size, trials: SiteTrials) -> str:
        """A sentence on what of the job's size differs from what was measured, or ""."""
        comparison = self.comparison
        ran = trials.size(comparison, self.wanted.class_of(comparison))
        pairs = [
            ("class {}", ran.problem_class, job.problem_class),
            ("order N = {}", ran.order, job.order),
            ("{} nodes", ran.nodes, job.nodes),
            ("{} ranks", ran.ranks, job.ranks),
        ]
        differ = [
            f"{text.format(theirs)} (the job: {of_job})"
            for text, theirs, of_job in pairs
            if theirs and of_job and theirs != of_job
        ]
        if not differ:
            return ""
        return f"It measured another size: {', '.join(differ)}. The answer for the job may differ."


class SiteTrials:
    """The trials of a site in a folder, newest first. The index is opened at the first question.

    ``say`` gets a sentence if the folder cannot be read: then there are no comparisons.
    """

    def __init__(self, folder: Path, site: str, say: Say):
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
        state: dict[tuple[int, str, int], dict[Option, dict[str, str]]] = defaultdict(dict)
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
                samples[key][option] = point.blocks(series)
                runs[key][option] = len(point.samples)
                nodes_of[key][option] = point.conditions.get(NODES, "")
                state[key][option] = {
                    name: value for name, value in point.conditions.items() if name not in _OTHERS
                }
                if waits.get((point.trial.id, case.id), 0.0) > DISTURBED_PERCENT:
                    disturbed[key].add(option)
        made = []
        for key, of_series in samples.items():
            trial, series = facts[key]
            better: Better = "lower" if series.better == "lower" else "higher"
            per: Unit = "round" if trial.block_runs else "repeat"
            made.append(Comparison(trial.folder.name, trial.started, series.case.check, key[1],
                                   key[2], series.unit, better, of_series, disturbed[key],
                                   nodes_of[key], per, runs[key], state[key]))  # fmt: skip
        return sorted(made, key=lambda comparison: comparison.started, reverse=True)

    def size(self, comparison: Comparison, problem_class: str) -> Size:
        """The size of what a comparison measured, as its runs recorded it."""
        try:
            runs = read_results(self.folder / comparison.trial).runs
        except (InputError, OSError) as error:
            self.say(
                f"warning: trial {comparison.trial}: the size that it measured is not known: "
                f"{error}"
            )
            runs = []
        facts = next(
            (run.facts for run in runs if is_valid(run) and run.case.check == comparison.check
             and run.case.variant == comparison.variant and run.case.nodes == comparison.nodes),
            {},
        )  # fmt: skip
        p, q = (_whole(facts.get(name)) for name in "PQ")  # HPL's grid
        ranks = p * q if p and q else _whole(facts.get("processes"))
        return Size(comparison.nodes, ranks, problem_class, _whole(facts.get("N")))


def _whole(fact: object) -> int | None:
    """A fact that a job user may have written."""
    return fact if isinstance(fact, int) and not isinstance(fact, bool) else None


def advise(
    comparisons: Iterable[Comparison],
    allowed: Callable[[Option], bool],
    nodes: int,
    wanted: Application,
) -> Advice | None:
    """The advice of the newest trial that compared at least two allowed options often enough, and
    undisturbed, with the nearest class of problem.

    Of several comparisons of that trial: the nearest number of nodes, then the most options. If no
    trial has enough repeats, the newest one's, which says so. None if none compared two.
    """
    usable = []
    for comparison in comparisons:
        samples = {
            option: values for option, values in comparison.samples.items() if allowed(option)
        }
        if len(samples) > 1:
            usable.append(
                replace(comparison, samples=samples,
                        disturbed=comparison.disturbed & samples.keys(),
                        runs={option: comparison.runs[option] for option in samples},
                        state={option: comparison.state.get(option, {}) for option in samples})
            )  # fmt: skip
    usable.sort(key=lambda comparison: (abs(comparison.nodes - nodes), -len(comparison.samples)))
    usable.sort(key=lambda comparison: comparison.started, reverse=True)
    usable.sort(key=wanted.apart)
    enough = [
        comparison
        for comparison in usable
        if comparison.rounds >= least_repeats(len(comparison.samples)) and not comparison.disturbed
    ]
    if not usable:
        return None
    chosen = enough[0] if enough else _pooled(usable)
    of_trials = {each.trial: _of_trial(each) for each in (chosen, *chosen.older)}
    lost = "failed or did not count"  # the index has no reason
    return Advice(chosen, answer(of_trials, chosen.better, SETTING, chosen.per, lost), wanted)


def _of_trial(comparison: Comparison) -> OfTrial:
    """What one trial measured. Each option has the same number of planned runs in a trial."""
    most = max(comparison.runs.values())
    return OfTrial(
        {option.name: values for option, values in comparison.own_samples.items()},
        {
            option.name: {nodes}
            for option in comparison.samples
            if (nodes := comparison.nodes_of.get(option))
        },
        {option.name: (most - comparison.runs[option], most) for option in comparison.samples},
        {option.name for option in comparison.disturbed},
    )


def _pooled(usable: Sequence[Comparison]) -> Comparison:
    """The first quiet comparison, with the samples of older trials until there are enough for an
    answer. Trials count from the newest on, whatever they say, but for those that other programs
    disturbed.
    """
    quiet = [comparison for comparison in usable if not comparison.disturbed]
    if not quiet:
        return usable[0]
    first, *others = quiet
    need, pool = least_repeats(len(first.samples)), [first]
    for comparison in others:
        if sum(each.rounds for each in pool) >= need:
            break
        if first.is_like(comparison) and comparison.trial not in {each.trial for each in pool}:
            pool.append(comparison)
    samples = {
        option: [x for comparison in pool for x in comparison.samples[option]]
        for option in first.samples
    }
    return replace(first, samples=samples, older=pool[1:])
