"""From runs and requirements to judgements, and from judgements to the trial's verdict.

``judge`` holds every figure against the thresholds that apply to it; ``conclude`` says
accept, reject or incomplete and what to read first. Neither runs, parses or writes
anything. What is doubtful is never a pass: an error, a figure without a requirement and
noise that hides the answer each leave a trial incomplete.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from seatrial.results import statistics
from seatrial.results.record import Activity, Case, Judgement, Run, Trial, Verdict
from seatrial.results.requirements import Requirements, Rule, fits
from seatrial.results.statistics import Better, Limit

VERDICTS = ("pass", "fail", "error", "missing", "inconclusive")
MOST_FINDINGS = 20
MOST_NAMED = 3  # requirements without a case that are named one by one
#: Percentage of a step's time: a shorter wait for a processor that another program had explains
#: nothing. A node's own daemons cause less.
DISTURBED_PERCENT = 5.0
#: The part of its step that a figure is measured in, where the benchmark does not say it; the rest
#: is the step's start, its end and other figures.
PART_OF_STEP = 0.25
#: So unlikely must it be that samples of a sound location all break a bound, where the machine's
#: load does not excuse them.
CHANCE = 0.001
Key = tuple[str, str | None]  # metric, location


class Waited(NamedTuple):
    """How long steps waited for a processor that another program had, on the node where longest."""

    percent: float  # of their time
    node: str
    others: float  # processor time of other programs meanwhile, in per cent of a core
    total: float  # the waits of all nodes, which may follow each other, in per cent of the time
    part: float  # of the steps' time, in which the figure was measured


@dataclass
class Figure:
    """All samples of one metric of one case at one location, over the runs that worked."""

    case: Case
    metric: str
    location: str | None
    unit: str
    better: Better
    samples: list[tuple[int, float]] = field(default_factory=list)  # number of the run, value
    waited: list[Waited | None] = field(default_factory=list)  # for each sample
    fault: str = ""  # why the samples cannot be judged

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.samples]

    @property
    def middle(self) -> float:
        return statistics.median(self.values)


class Reference(NamedTuple):
    """What a bound was derived from: a figure that a ratio is taken of."""

    samples: list[float]
    value: float
    name: str
    waited: Sequence[Waited | None] = ()  # for each sample of that figure


Figures = dict[Case, dict[Key, Figure]]


# --- what ran ----------------------------------------------------------------------------


def worked(run: Run) -> bool:
    """Whether a run's figures count: it ran, and where a path was to be proven, it was."""
    return run.outcome == "ran" and (run.path is None or run.path.crossed)


def all_cases(trial: Trial, runs: Iterable[Run]) -> list[Case]:
    """The planned cases in their order, then those that ran without being planned."""
    extra = {run.case for run in runs} - set(trial.cases)
    return [*dict.fromkeys(trial.cases), *sorted(extra, key=lambda case: case.id)]


def case_faults(trial: Trial, runs: Sequence[Run]) -> dict[Case, str]:
    """Why a case did not run as declared, in a sentence; cases without fault are absent."""
    faults = {}
    for case in all_cases(trial, runs):
        own = sorted((run for run in runs if run.case == case), key=_run_order)
        reasons: dict[str, list[int]] = defaultdict(list)
        for run in own:
            if not worked(run):
                reasons[_reason(run)].append(run.repeat)
        bad = sum(map(len, reasons.values()))
        if not own:
            faults[case] = f"{case.id} was planned and did not run"
        elif reasons:
            told = "; ".join(f"repeat {_list(at)}: {why}" for why, at in reasons.items())
            faults[case] = f"{case.id}: {bad} of {len(own)} runs failed ({told})"
        elif len(own) < trial.repeats:
            faults[case] = f"{case.id} ran {len(own)} times of the {trial.repeats} planned"
        elif not any(run.metrics for run in own):
            faults[case] = f"{case.id} ran and reported no figure"
    return faults


def _reason(run: Run) -> str:
    if run.outcome == "ran" and run.path is not None:
        why = run.path.reason or "the traffic did not cross the network under test"
        return f"path: {why}"
    phase = f"{run.phase}: " if run.phase else ""
    return f"{phase}{run.reason or 'no reason recorded'}"


def _run_order(run: Run) -> tuple[int, str, str, str]:
    """Sorts runs the same way in whatever order they come."""
    figures = [(m.metric, m.location, m.value) for m in run.metrics]
    return run.repeat, run.job.id, run.evidence, f"{run.outcome}{run.reason}{figures}"


def collect(trial: Trial, runs: Sequence[Run]) -> Figures:
    """The figures of all runs that worked, each in the order of the repeats."""
    figures: Figures = {case: {} for case in all_cases(trial, runs)}
    locations = Locations(runs)
    for number, run in enumerate(sorted(filter(worked, runs), key=_run_order)):
        for m in run.metrics:
            key = (m.metric, m.location or None)
            figure = figures[run.case].setdefault(
                key, Figure(run.case, *key, unit=m.unit, better=m.better)
            )
            figure.samples.append((number, m.value))
            figure.waited.append(waited(run, locations.nodes_of(m.location), m.seconds))
            if not math.isfinite(m.value):
                figure.fault = f"a sample is {m.value}, which is no figure"
            elif m.unit != figure.unit:
                figure.fault = f"its unit is '{figure.unit}' in one run and '{m.unit}' in another"
            elif m.better != figure.better:
                figure.fault = "lower is better in one run, higher in another"
    return figures


def waited(run: Run, nodes: Iterable[str], measured_s: float | None) -> Waited | None:
    """How long the run's steps on all these nodes waited (all steps where none is named), for a
    figure that was measured so many seconds. None where it is not known."""
    steps: dict[str, dict[str, Activity]] = defaultdict(dict)
    for one in run.activity:
        if one.waited_percent is not None:
            steps[one.step][one.node] = one
    wanted = set(nodes)
    of_node: dict[str, list[Activity]] = defaultdict(list)
    for of_step in steps.values():
        if wanted <= of_step.keys():
            for node in wanted or of_step:
                of_node[node].append(of_step[node])
    found = []
    for node, own in of_node.items():
        seconds = sum(one.seconds for one in own)
        waits = sum((one.waited_percent or 0.0) * one.seconds for one in own)
        others = sum((one.others_percent or 0.0) * one.seconds for one in own)
        part = PART_OF_STEP
        if measured_s is not None:
            part = min(1.0, measured_s * len(own) / seconds)
        found.append(Waited(waits / seconds, node, others / seconds, 0.0, part))
    if not found:
        return None
    return max(found)._replace(total=sum(one.percent for one in found))


def explains(waited: Waited | None, sample: float, limit: Limit) -> bool:
    """Whether a wait for a processor may be why a sample is beyond a bound.

    A rate at 1/r of the bound, or a time r times as long, has lost 1 - 1/r of its time. None makes
    it nothing: a zero is no matter of time.
    """
    least, most = sorted((sample, limit.bound))
    if waited is None or limit.excess(sample) <= 0 or least <= 0:
        return False
    cost = 100 * waited.part * (1 - least / most)
    return waited.percent > DISTURBED_PERCENT and waited.total > cost


# --- judging -----------------------------------------------------------------------------


def judge(trial: Trial, runs: Sequence[Run], requirements: Requirements) -> list[Judgement]:
    """One judgement for each figure and each threshold that applies to it.

    And one for each case that did not run as declared, for each figure without a
    threshold (``missing``), and for each threshold whose figure was not measured. The
    result does not depend on the order of ``runs``.
    """
    figures = collect(trial, runs)
    faults = case_faults(trial, runs)
    locations = Locations(runs)
    judgements: list[Judgement] = []
    for case, own in figures.items():
        if case in faults:
            judgements.append(
                Judgement(case=case, metric="", verdict="error", explanation=faults[case])
            )
        good = sum(run.case == case and worked(run) for run in runs)
        for key in sorted(own, key=_natural):
            judgements += _figure(own[key], requirements, figures, locations, good, trial)
    return judgements + _absent(trial, runs, requirements, figures)


def _figure(
    figure: Figure,
    requirements: Requirements,
    figures: Figures,
    locations: Locations,
    runs: int,
    trial: Trial,
) -> list[Judgement]:
    rules = requirements.applying(figure.case, figure.metric, figure.location)
    if rules:
        return [_Judge(figure, rule, figures, locations, runs, trial).judgement() for rule in rules]
    if requirements.is_informative(figure.case, figure.metric, figure.location):
        return []
    name = f"{figure.case.id}: {figure.metric}{locations.on(figure.location)}"
    return [
        Judgement(
            case=figure.case,
            metric=figure.metric,
            location=figure.location,
            verdict="missing",
            unit=figure.unit,
            samples=figure.values,
            value=figure.middle if not figure.fault else None,
            spread=statistics.spread(figure.values) if not figure.fault else None,
            explanation=f"{name} was measured, but no requirement says what it must be",
        )
    ]


class _Judge:
    """One figure against one threshold."""

    def __init__(
        self,
        figure: Figure,
        rule: Rule,
        figures: Figures,
        locations: Locations,
        runs: int,
        trial: Trial,
    ):
        self.figure, self.rule, self.figures, self.runs = figure, rule, figures, runs
        self.trial = trial
        self.name = f"{figure.case.id}: {figure.metric}{locations.on(figure.location)}"
        self.samples = figure.values
        self.reference: Reference | None = None

    def judgement(self) -> Judgement:
        fault = self._fault() or self._find_reference()
        if fault:
            return self._record("error", f"{self.name} cannot be judged: {fault}")
        if self.rule.threshold.peers and self.reference is None:
            text = f"{self.name} has no peers to be compared with, as the {self._rule()} wants"
            return self._record("inconclusive", text, value=self._value())
        limits = self._limits()
        verdicts = self._verdicts(limits)
        for verdict in ("fail", "inconclusive"):
            if verdict in verdicts:
                limit = limits[verdicts.index(verdict)]
                text = self._beyond(limit) if verdict == "fail" else self._doubt(limit)
                return self._record(verdict, text, limits)
        if (
            self.figure.location is None
            and 0 < len({n for n, _ in self.figure.samples}) < self.runs
        ):
            some = len({n for n, _ in self.figure.samples})
            text = f"only {some} of the {self.runs} runs that worked reported it"
            return self._record("error", f"{self.name} cannot be passed: {text}", limits)
        return self._record("pass", self._within(limits), limits)

    def _fault(self) -> str:
        unit = self.rule.threshold.unit
        if self.figure.fault:
            return self.figure.fault
        if unit and unit != self.figure.unit:
            theirs = f"the {self._rule()} is in '{unit}'"
            return f"it was measured in '{self.figure.unit}', while {theirs}"
        return ""

    # What a ratio is taken of.

    def _find_reference(self) -> str:
        """Set ``reference`` for the two relative forms. Returns why it cannot be, or ""."""
        form = self.rule.threshold.form
        if form == "peers":
            others = [
                self._typical(f)
                for (metric, location), f in self.figures[self.figure.case].items()
                if metric == self.figure.metric and location not in (None, self.figure.location)
                if not f.fault
            ]
            # Always without the judged location itself: of the three links between three nodes
            # a bad node spoils two, and a median of all would be the bad value.
            if others and (middle := statistics.median(others)) <= 0:
                return f"the median of the other locations is {middle:g}, and must be above zero"
            if others:
                self.reference = Reference([middle], middle, f"the median of {len(others)} others")
            return ""
        return self._other() if form == "relative" else ""

    def _other(self) -> str:
        of = self.rule.threshold.relative_to
        assert of is not None
        case = of.case(self.figure.case)
        found = self.figures.get(case, {})
        location = of.location if of.location is not None else self.figure.location
        other = found.get((of.metric, location or None))
        if other is None and of.location is None:
            other = found.get((of.metric, None))
        where = "the same run" if of.same_run else case.id
        name = f"{of.metric} of {where}"
        needs = f"the {self._rule()} compares it with {name}, which"
        if other is None:
            return f"{needs} this trial did not measure"
        if other.fault:
            return f"{needs} cannot be used: {other.fault}"
        if other.unit != self.figure.unit:
            return f"{needs} is in '{other.unit}' and not in '{self.figure.unit}'"
        if min(other.values) <= 0:
            return f"{needs} is not above zero"
        if of.same_run:
            return self._pair_up(other, name)
        if self.rule.statistic == "best":
            best = self._typical(other)
            self.reference = Reference([best], best, name, other.waited)
        else:
            self.reference = Reference(other.values, other.middle, name, other.waited)
        return ""

    def _typical(self, other: Figure) -> float:
        """What of the other figure the bound is taken of: its median, or its best for ``best``.

        What disturbs a run only ever makes it worse. A requirement that looks at the least
        disturbed of its own samples must look at the other metric in the same way, and the
        scatter of the disturbed ones then says nothing.
        """
        if self.rule.statistic == "best":
            return statistics.summarize(other.values, "best", other.better)
        return other.middle

    def _pair_up(self, other: Figure, name: str) -> str:
        """Scale each sample to the median of the other metric, run by run.

        What varies in both from run to run (the clock rate, the node) cancels. The bound
        is then one number for all samples, and exact.
        """
        theirs: dict[int, list[float]] = defaultdict(list)
        for number, value in other.samples:
            theirs[number].append(value)
        missing = [number for number, _ in self.figure.samples if number not in theirs]
        if missing:
            return f"{len(missing)} of its {len(self.samples)} runs did not report {name}"
        middle = other.middle
        self.samples = [
            value / statistics.median(theirs[n]) * middle for n, value in self.figure.samples
        ]
        self.reference = Reference([middle], middle, name)
        return ""

    # Bounds and decision.

    def _limits(self) -> list[Limit]:
        t = self.rule.threshold
        if self.reference is None:
            least, most = t.bounds()
            base, sigma, error = t.reference, 0.0, 0.0
        else:
            base = self.reference.value
            least = None if t.at_least is None else t.at_least * base
            most = None if t.at_most is None else t.at_most * base
            sigma, error = self._reference_noise()
        limits = []
        sides: list[tuple[Literal["most", "least"], float | None]]
        sides = [("most", most), ("least", least)]
        for side, bound in sides:
            if bound is None:
                continue
            width = abs(bound - base) if base is not None else 0.0
            factor, extreme = 1.0, None
            if self.reference is not None:
                factor = bound / self.reference.value
                far = max if side == "most" else min
                extreme = factor * far(self.reference.samples)
            limits.append(
                Limit(side, bound, width or abs(bound), factor * sigma, factor * error, extreme)
            )
        return limits

    def _reference_noise(self) -> tuple[float, float]:
        """Robust standard deviation of the other metric, and the error of its median."""
        assert self.reference is not None
        if self.rule.statistic == "best":
            return 0.0, 0.0
        if not self.rule.threshold.peers:
            sigma = statistics.spread(self.reference.samples) or 0.0
            return sigma, statistics.median_error(sigma, len(self.reference.samples))
        # Scatter between locations is what is looked for; noise is that within a place.
        own = (self.figure.metric, self.figure.location)
        noise = [
            (statistics.spread(f.values) or 0.0, len(f.values))
            for key, f in self.figures[self.figure.case].items()
            if key[0] == own[0] and key[1] not in (None, own[1]) and not f.fault
        ]
        sigma = statistics.median([s for s, _ in noise])
        samples = sum(n for _, n in noise)
        return sigma, statistics.median_error(sigma, samples)

    def _verdicts(self, limits: list[Limit]) -> list[str]:
        verdicts: list[str] = [self._verdict(limit) for limit in limits]
        if self.rule.statistic == "majority" and set(verdicts) == {"pass"}:
            # Some above the one and some below the other bound are no majority within.
            out = sum(any(limit.excess(x) > 0 for limit in limits) for x in self.samples)
            if 2 * out >= len(self.samples):
                return ["inconclusive" for _ in limits]
        return verdicts

    def _verdict(self, limit: Limit) -> str:
        """That of the samples, unless what disturbed them may be the cause.

        Of ``best``, one sample within its bound is not enough where others break it and further
        runs can decide: of those that were not disturbed more must be within, and two at least.
        """
        verdict = statistics.decide(self.samples, limit, self.rule.statistic, self.figure.better)
        if verdict == "fail" and self._is_excused(limit):
            return "inconclusive"
        if verdict == "pass" and self.rule.statistic == "best" and self.trial.reruns:
            broken = [limit.excess(x) > 0 for x in self.samples]
            within = broken.count(False)
            if any(broken) and within < max(2, 1 + sum(broken) - sum(self._disturbed(limit))):
                return "inconclusive"
        return verdict

    def _disturbed(self, limit: Limit) -> list[bool]:
        """Of each sample, whether it breaks the bound and waiting for a processor may be why.

        Other programs make a figure worse. Where it is too good, those count that made the figure
        worse that it is compared with.
        """
        if self._is_too_bad(limit):
            flags = zip(self.samples, self.figure.waited, strict=True)
            return [explains(waited, x, limit) for x, waited in flags]
        theirs = self.reference.waited if self.reference else ()
        return [
            bool(theirs) and 2 * sum(explains(one, x, limit) for one in theirs) >= len(theirs)
            for x in self.samples
        ]

    def _is_too_bad(self, limit: Limit) -> bool:
        return (limit.side == "most") == (self.figure.better == "lower")

    def _is_excused(self, limit: Limit) -> bool:
        """Whether the machine's load may be why samples break a bound.

        Where the other locations were measured in the same runs on the same machine, it is not:
        load does not choose a location each time.
        """
        disturbed = self._disturbed(limit)
        broken = sum(limit.excess(x) > 0 for x in self.samples)
        if 2 * sum(disturbed) < max(1, broken):
            return False
        return not self._is_of_place(limit)

    def _is_of_place(self, limit: Limit) -> bool:
        """Whether a bound is broken here only, and each time: too often to be chance."""
        if not self.rule.threshold.peers or any(limit.excess(x) <= 0 for x in self.samples):
            return False
        others = [
            (sum(limit.excess(x) > 0 for x in f.values), len(f.values))
            for (metric, location), f in self.figures[self.figure.case].items()
            if metric == self.figure.metric and location not in (None, self.figure.location)
            if not f.fault
        ]
        return statistics.chance_of_all(len(self.samples), others) <= CHANCE

    def _value(self) -> float:
        return statistics.summarize(self.samples, self.rule.statistic, self.figure.better)

    # Sentences.

    def _rule(self) -> str:
        return f"{self.rule.kind} ({self.rule.id})"

    def _authority(self) -> str:
        if self.reference is None:
            return f"the {self._rule()}"
        here = f"{number(self.reference.value)} {self.figure.unit}".strip()
        text = f"{self.rule.text()}; {self.reference.name} is {here}"
        return f"the {self.rule.kind} ({self.rule.id}: {text})"

    def _measured(self, *bounds: float) -> tuple[str, list[str]]:
        value, *others = distinct(self._value(), *bounds)
        n, unit = len(self.samples), self.figure.unit
        spread = statistics.spread(self.samples)
        how = "measured once"
        if spread is not None:
            statistic, by = self.rule.statistic, ""
            if statistic == "majority":
                statistic, by = "median", ", the majority decides"
            how = f"{statistic} of {n}, spread {number(spread, 2)}{by}"
        return f"{self.name} {value} {unit} ({how})", [f"{o} {unit}".strip() for o in others]

    def _beyond(self, limit: Limit) -> str:
        head, (bound,) = self._measured(limit.bound)
        word = "above" if limit.side == "most" else "below"
        text = f"{head} is {word} {bound}, the {limit.side} that {self._authority()} allows"
        if not any(self._disturbed(limit)):
            return text
        return f"{text}; {self._disturbance(limit)}, which does not explain it"

    def _within(self, limits: list[Limit]) -> str:
        head, bounds = self._measured(*(limit.bound for limit in limits))
        if len(limits) == 2:
            return f"{head} is between {bounds[1]} and {bounds[0]}, as {self._authority()} requires"
        word = "above" if limits[0].side == "most" else "below"
        allowed = f"the {limits[0].side} that {self._authority()} allows"
        return f"{head} is not {word} {bounds[0]}, {allowed}"

    def _disturbance(self, limit: Limit) -> str:
        """Which other programs ran meanwhile, for a bound that samples break."""
        disturbed = self._disturbed(limit)
        flagged = zip(self.figure.waited, disturbed, strict=True)
        most = max((one for one, flag in flagged if flag and one), default=None)
        if not self._is_too_bad(limit):
            assert self.reference is not None
            return f"other programs had the processors while {self.reference.name} was measured"
        assert most is not None
        return (
            f"in {sum(disturbed)} of {len(self.samples)} samples it waited for a processor, up to "
            f"{number(most.percent, 2)} % of the time, while other programs had "
            f"{number(most.others, 2)} % of one on {most.node}"
        )

    def _doubt(self, limit: Limit) -> str:
        head, (bound,) = self._measured(limit.bound)
        if limit.excess(self._value()) > 0 and self._is_excused(limit):
            word = "above" if limit.side == "most" else "below"
            allowed = f"the {limit.side} that {self._authority()} allows"
            return (
                f"{head} is {word} {bound}, {allowed}, but cannot be judged: "
                f"{self._disturbance(limit)}"
            )
        low, high = distinct(min(self.samples), max(self.samples))
        allowed = f"the {limit.side} that {self._authority()} allows"
        return (
            f"{head} cannot be told apart from {bound}, {allowed}: the samples reach from "
            f"{low} to {high} {self.figure.unit}, so more repeats or a quieter machine must decide"
        )

    def _record(
        self,
        verdict: Literal["pass", "fail", "error", "inconclusive"],
        explanation: str,
        limits: Sequence[Limit] = (),
        value: float | None = None,
    ) -> Judgement:
        bounds = {limit.side: limit.bound for limit in limits}
        reference = self.reference.value if self.reference else self.rule.threshold.reference
        return Judgement(
            case=self.figure.case,
            metric=self.figure.metric,
            location=self.figure.location,
            verdict=verdict,
            value=self._value() if limits else value,
            unit=self.figure.unit,
            statistic=self.rule.statistic,
            samples=self.samples,
            disturbed=max((sum(self._disturbed(limit)) for limit in limits), default=0),
            spread=None if self.figure.fault else statistics.spread(self.samples),
            reference=reference,
            lower=bounds.get("least"),
            upper=bounds.get("most"),
            requirement=self.rule.record(),
            explanation=explanation,
        )


def _absent(
    trial: Trial, runs: Sequence[Run], requirements: Requirements, figures: Figures
) -> list[Judgement]:
    """Thresholds whose figure no run produced.

    One that names its check must find its metric in every case that it selects. One that
    leaves the check open ("every check's latency_us") must find it in one case at least.
    """
    judgements = []
    ran = {run.case for run in runs if worked(run)}  # of the others the whole case is an error
    for rule in requirements.rules:
        t = rule.threshold
        cases = [case for case in figures if t.select.matches_case(case) and case in ran]
        lacking = [
            case
            for case in cases
            if not any(rule.applies(case, *key) for key in figures[case])
            if not (t.peers and any(_whole(rule, key) for key in figures[case]))
        ]
        if t.select.check in (None, "*") and len(lacking) < len(cases):
            continue
        where = f" on location '{t.select.location}'" if t.select.location else ""
        for case in lacking:
            text = f"{case.id}: no run reported {t.metric}{where}, which {rule.id} requires"
            judgements.append(
                Judgement(
                    case=case,
                    metric=t.metric,
                    verdict="error",
                    unit=t.unit or "",
                    statistic=rule.statistic,
                    requirement=rule.record(),
                    explanation=f"{text} (the {rule.kind}); its selection may be too wide",
                )
            )
    return judgements


def _whole(rule: Rule, key: Key) -> bool:
    return key[1] is None and fits(rule.threshold.metric, key[0])


# --- concluding --------------------------------------------------------------------------


def conclude(
    trial: Trial,
    runs: Sequence[Run],
    judgements: Sequence[Judgement],
    requirements: Requirements | None = None,
    *,
    ended: datetime | None = None,
) -> Verdict:
    """The trial's verdict, and the sentences to read first.

    Reject where anything failed, even beside errors: a failure is evidence enough. Else
    incomplete where anything is an error, missing or inconclusive, or nothing was judged.
    The runs are looked at again, so that judgements that leave one out cannot hide it.
    With ``requirements``, thresholds that match no case of the trial are told of too.
    ``ended`` is now unless given.
    """
    counts = dict.fromkeys(VERDICTS, 0)
    for judgement in judgements:
        counts[judgement.verdict] += 1
    faults = case_faults(trial, runs)
    verdict: Literal["accept", "reject", "incomplete"] = "accept"
    if counts["fail"]:
        verdict = "reject"
    elif faults or not judgements or counts["pass"] < len(judgements):
        verdict = "incomplete"
    findings = _findings(trial, runs, judgements, faults)
    if requirements is not None:
        findings += unmatched(trial, runs, requirements)
    findings = list(dict.fromkeys(findings))
    if len(findings) > MOST_FINDINGS:
        rest = len(findings) - MOST_FINDINGS
        findings = [*findings[:MOST_FINDINGS], f"and {rest} more"]
    return Verdict(
        verdict=verdict, counts=counts, findings=findings, ended=ended or datetime.now(UTC)
    )


def unmatched(trial: Trial, runs: Sequence[Run], requirements: Requirements) -> list[str]:
    """Notes on thresholds that select no case of this trial: each contract's, then the others'.

    A trial of a part of a site's matrix leaves out most of the others, so they share a note.
    """
    cases = all_cases(trial, runs)
    idle = [
        rule
        for rule in requirements.rules
        if not any(rule.threshold.select.matches_case(case) for case in cases)
    ]
    contracts = [rule for rule in idle if rule.threshold.basis == "contract"]
    others = [rule for rule in idle if rule.threshold.basis != "contract"]
    named = [*contracts, *(others if len(others) <= MOST_NAMED else ())]
    notes = [
        f"note: the {rule.kind} {rule.id} ({rule.threshold.metric}: {rule.text()}) "
        "selects no case of this trial and was not judged"
        for rule in named
    ]
    if len(others) > MOST_NAMED:
        ids = ", ".join(rule.id for rule in others[:MOST_NAMED])
        notes.append(
            f"note: {len(others)} requirements ({ids} and {len(others) - MOST_NAMED} more) "
            "select no case of this trial and were not judged"
        )
    return notes


def _findings(
    trial: Trial, runs: Sequence[Run], judgements: Sequence[Judgement], faults: dict[Case, str]
) -> list[str]:
    by: dict[str, list[Judgement]] = {verdict: [] for verdict in VERDICTS}
    for judgement in judgements:
        by[judgement.verdict].append(judgement)
    findings = _common_nodes(by["fail"], judgements, Locations(runs))
    findings += [j.explanation for j in sorted(by["fail"], key=_gravity)]
    findings += list(faults.values())
    for verdict in ("error", "inconclusive"):
        findings += [j.explanation for j in by[verdict]]
    without: dict[Case, dict[str, None]] = defaultdict(dict)
    for j in by["missing"]:
        without[j.case][j.metric] = None
    findings += [
        f"{case.id}: no requirement says what {', '.join(metrics)} must be"
        for case, metrics in without.items()
    ]
    if not judgements:
        findings.append(f"{trial.trial}: nothing was judged")
    return findings + _unconfirmed(trial, runs, by["pass"])


def _unconfirmed(trial: Trial, runs: Sequence[Run], passed: Iterable[Judgement]) -> list[str]:
    """Notes on figures that broke a bound at first, and passed after further runs of their case."""
    if not any(map(trial.is_further, runs)):
        return []
    figures = collect(trial, runs)
    counted = sorted(filter(worked, runs), key=_run_order)  # as ``collect`` numbers them
    notes = []
    for j in passed:
        numbers = [number for number, _ in figures[j.case][j.metric, j.location].samples]
        out = set(beyond(j))
        further = {n for n in numbers if trial.is_further(counted[n])}
        broken = [(n, x) for n, x in zip(numbers, j.samples, strict=True) if x in out]
        first = [x for n, x in broken if n not in further]
        if not first or not further:
            continue
        within = further - {n for n, _ in broken}
        values = ", ".join(f"{number(x)} {j.unit}".strip() for x in first)
        notes.append(
            f"note: {values} broke a bound, and {len(within)} of {len(further)} further runs did "
            f"not: {j.explanation}"
        )
    return notes


def beyond(judgement: Judgement) -> list[float]:
    """The samples that are not within the judgement's bounds."""
    limits = []
    if judgement.upper is not None:
        limits.append(Limit("most", judgement.upper, 1.0))
    if judgement.lower is not None:
        limits.append(Limit("least", judgement.lower, 1.0))
    return [x for x in judgement.samples if any(limit.excess(x) > 0 for limit in limits)]


def _gravity(judgement: Judgement) -> tuple[int, float]:
    """Contracts before baselines before relative requirements, then the largest violation first."""
    basis = judgement.requirement.basis if judgement.requirement else "relative"
    violation = 0.0
    if judgement.value is not None:
        if judgement.upper is not None:
            violation = (judgement.value - judgement.upper) / (abs(judgement.upper) or 1.0)
        if judgement.lower is not None:
            below = (judgement.lower - judgement.value) / (abs(judgement.lower) or 1.0)
            violation = max(violation, below)
    return ("contract", "baseline", "relative").index(basis), -violation


def _common_nodes(
    fails: Sequence[Judgement], judgements: Sequence[Judgement], locations: Locations
) -> list[str]:
    """For each metric whose failing links all share one node: that node."""
    links: dict[tuple[Case, str], dict[str, None]] = defaultdict(dict)
    for j in fails:
        if j.location and locations.ends(j.location):
            links[j.case, j.metric][j.location] = None
    findings = []
    for (case, metric), failing in links.items():
        common = set.intersection(*(set(locations.ends(link)) for link in failing))
        if len(failing) < 2 or len(common) != 1:
            continue
        (node,) = common
        all_of_node = {
            j.location
            for j in judgements
            if (j.case, j.metric) == (case, metric)
            and j.location
            and node in locations.ends(j.location)
        }
        findings.append(
            f"node {node} is common to all {len(failing)} failing links of {case.id}: {metric} "
            f"({', '.join(failing)}; {len(failing)} of the {len(all_of_node)} links of {node}): "
            f"look at this node, its cable and its switch port first"
        )
    return findings


class Locations:
    """Tells nodes from links: node names may contain the ``-`` that links are written with."""

    def __init__(self, runs: Iterable[Run]):
        self.nodes: set[str] = set()
        for run in runs:
            self.nodes.update(run.job.nodes)
            self.nodes.update(c.node for c in (run.path.counters if run.path else ()))

    def ends(self, location: str) -> tuple[str, ...]:
        """The two nodes of a link; () for anything else."""
        if location in self.nodes:
            return ()
        parts = location.split("-")
        cuts = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
        known = [cut for cut in cuts if set(cut) <= self.nodes]
        if known or len(cuts) == 1:
            return (known or cuts)[0]
        half = len(parts) // 2  # no names known: two alike names have equally many parts
        return cuts[half - 1] if len(parts) % 2 == 0 and parts[0] == parts[half] else ()

    def nodes_of(self, location: str | None) -> tuple[str, ...]:
        """The nodes of a place: none for a case as a whole, or a place that is no node or link."""
        if not location:
            return ()
        return self.ends(location) or ((location,) if location in self.nodes else ())

    def on(self, location: str | None) -> str:
        """`` on node n3``, `` on link n1-n3``, or nothing."""
        if not location:
            return ""
        return f" on {'link' if self.ends(location) else 'node'} {location}"


# --- words -------------------------------------------------------------------------------


def number(x: float, digits: int = 4) -> str:
    """A figure for people: so many significant digits, and no exponent where avoidable."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    power = math.floor(math.log10(abs(x)))
    if power < -5 or power > 12:
        return f"{x:.{digits}g}"
    text = f"{x:.{max(0, digits - 1 - power)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def distinct(value: float, *others: float) -> list[str]:
    """The figures with as many digits as it takes to tell the first from the others."""
    texts: list[str] = []
    for digits in range(4, 13):
        texts = [number(x, digits) for x in (value, *others)]
        if all(
            text != texts[0] or other == value
            for text, other in zip(texts[1:], others, strict=True)
        ):
            break
    return texts


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _natural(key: Key) -> tuple[str, list[tuple[int, str]]]:
    """Sorts n2 before n10."""
    text, parts = "", []
    for char in key[1] or "":
        if text and char.isdecimal() != text[-1].isdecimal():
            parts.append(text)
            text = ""
        text += char
    parts += [text] if text else []
    return key[0], [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]
