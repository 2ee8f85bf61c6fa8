"""Compares the figures of a trial with its requirements: one judgement for each pair.

Nothing doubtful passes: an invalid run is an error, a figure without a requirement is missing,
and noise or load that hides the answer is inconclusive. The trial's verdict follows from the
judgements in ``seatrial.results.verdict``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeGuard

from seatrial.base.errors import unexpected
from seatrial.base.memory import no_collections
from seatrial.results import statistics
from seatrial.results.figures import (
    DISTURBED_PERCENT,
    Figure,
    Figures,
    Wait,
    case_errors,
    collect,
    in_order,
    is_valid,
    slow_alone,
)
from seatrial.results.locations import End, Locations, natural
from seatrial.results.record import Case, Judgement, Run, Trial
from seatrial.results.requirements import Requirements, Rule, Threshold
from seatrial.results.statistics import Limit, Statistic
from seatrial.results.wording import Explanation, number, requirement, some

#: Greatest probability that all samples of a sound location break a bound by chance, below which
#: the machine's load does not excuse them.
CHANCE = 0.001
#: So many samples that lie this close together, all so many times worse than the bound, are not
#: excused: other programs do not delay each run by the same large factor.
STEADY_SAMPLES, STEADY_SPREAD, STEADY_FACTOR = 3, 0.05, 10.0
#: The most of its time that a figure is taken to have lost by waits; all of it would be no figure.
MOST_LOST = 0.9


class _OfAll(NamedTuple):
    """What all cases of a trial are judged with."""

    trial: Trial
    figures: Figures
    locations: Locations
    slow: dict[tuple[Case, str], dict[End, float]]  # as ``slow_alone``


class Reference(NamedTuple):
    """The figure that the ratio of a relative requirement is taken of."""

    samples: list[float]
    value: float
    name: str = ""  # empty: the median of the peers
    waits: Sequence[Wait | None] = ()  # for each sample of that figure
    undisturbed: float | None = None  # the value as if it had not waited; None: it did not


@no_collections()
def judge(trial: Trial, runs: Sequence[Run], requirements: Requirements) -> list[Judgement]:
    """One judgement for each figure and each threshold that applies to it.

    In addition one for each case that did not run as declared, for each figure without a
    threshold (``missing``), and for each threshold whose figure was not measured. The order
    of ``runs`` does not matter. The time is proportional to the number of figures.

    Baselines, and relations between cases, do not apply to a trial that says they are of another
    machine (``no_baselines``): with one processor for all nodes more nodes compute no faster.
    """
    if trial.no_baselines:
        kept = [rule for rule in requirements.rules if not _is_of_machine(rule.threshold)]
        requirements = replace(requirements, rules=tuple(kept))
    figures, defects = _collected(trial, runs)
    runs = [run for run in runs if run.case not in defects]
    errors = case_errors(trial, runs)
    of_all = _OfAll(trial, figures, Locations(runs), slow_alone(runs))
    valid = Counter(run.case for run in runs if is_valid(run))
    judgements: list[Judgement] = []
    for case, own in figures.items():
        if case in errors and case not in defects:
            judgements.append(
                Judgement(case=case, metric="", verdict="error", explanation=errors[case])
            )
        before = len(judgements)
        try:
            for alike in in_order(own):
                judgements += _of_metric(alike, requirements, of_all, valid[case])
        except Exception as error:
            # A job user writes the figures, also some that nobody thought of. They must not hide
            # the verdict on the other cases.
            del judgements[before:]
            defects[case] = unexpected(error)
        if case in defects:
            text = f"{case.id} cannot be judged: {defects[case]}"
            judgements += _errors_of(case, None, text, requirements)
    judgements += _not_measured(runs, requirements, figures)
    judgements += _unmeasured_locations(runs, requirements)
    return judgements


def _collected(trial: Trial, runs: Sequence[Run]) -> tuple[Figures, dict[Case, str]]:
    """The figures of the runs, and the cases of which they cannot be collected, with the reason."""
    try:
        return collect(trial, runs), {}
    except Exception:
        defects: dict[Case, str] = {}
        for case in {run.case for run in runs}:
            try:
                collect(trial, [run for run in runs if run.case == case])
            except Exception as error:
                defects[case] = unexpected(error)
        if not defects:
            raise
        figures = collect(trial, [run for run in runs if run.case not in defects])
        return figures | {case: {} for case in defects}, defects


def _of_metric(
    alike: list[Figure], requirements: Requirements, of_all: _OfAll, valid: int
) -> Iterator[Judgement]:
    """The judgements on one metric of one case, of which ``valid`` runs are valid."""
    case, metric = alike[0].case, alike[0].metric
    thresholds = requirements.of(case, metric)
    # Links measured alone are compared with one another: the others had load beside them.
    contexts = {
        alone: _Context(
            of_all.trial,
            of_all.figures,
            _Peers(_comparable(alike, alone)),
            of_all.locations,
            valid,
            of_all.slow.get((case, metric), {}),
        )
        for alone in {figure.alone for figure in alike}
    }
    plain: dict[tuple[int, bool | None], _PlainPasses] = {}  # by the identity of the rule
    for figure in alike:
        rules, context = thresholds.applying(figure.location), contexts[figure.alone]
        for rule in rules:
            key = id(rule), figure.alone
            if key not in plain:
                plain[key] = _PlainPasses(rule, context)
            yield plain[key].judgement(figure) or _Comparison(figure, rule, context).judgement()
        if not rules and not thresholds.is_informative(figure.location):
            yield _missing(figure, _name(figure, of_all.locations), of_all.trial.no_baselines)


def _is_of_machine(threshold: Threshold) -> bool:
    """Whether a bound other than a contract's holds for the machine of the site only."""
    other = threshold.relative_to
    return threshold.basis == "baseline" or (
        threshold.basis == "relative" and other is not None and bool(other.case_keys)
    )


def _comparable(alike: list[Figure], alone: bool | None) -> list[Figure]:
    """The figures that were measured with others beside them, or without, as a figure was.

    The only figure that is left of the rounds has those measured alone as its peers: a round makes
    no link better.
    """
    own = [figure for figure in alike if figure.alone == alone]
    return alike if not alone and len(own) == 1 else own


def _name(figure: Figure, locations: Locations) -> str:
    return f"{figure.case.id}: {figure.metric}{locations.on(figure.location)}"


def _missing(figure: Figure, name: str, no_baselines: str) -> Judgement:
    why = f"; baselines do not: {no_baselines}" if no_baselines else ""
    return Judgement(
        case=figure.case,
        metric=figure.metric,
        location=figure.location,
        verdict="missing",
        unit=figure.unit,
        samples=figure.values,
        value=figure.median if not figure.fault else None,
        spread=figure.spread if not figure.fault else None,
        explanation=f"{name} was measured, but no requirement applies to it{why}",
    )


class _Peers:
    """The figures of one metric of one case at all locations, for comparing each with the others.

    Each list of values is sorted once. The median of the other locations is then one of three
    numbers. It leaves out the judged location: one bad node among three spoils two of the three
    links, and the median of all links would be a bad value.
    """

    def __init__(self, figures: Sequence[Figure]):
        self.figures = [f for f in figures if f.location is not None and not f.fault]
        self.count = max(0, len(self.figures) - 1)  # the others of each
        self._samples = sum(len(f.values) for f in self.figures)
        self._typical: dict[str, list[float]] = {}  # sorted, by statistic
        self._spreads: list[float] = []
        self._chances: dict[Limit, list[float]] = {}

    def typical(self, figure: Figure, statistic: Statistic) -> float:
        """Median of the other locations' typical values; there must be one."""
        return statistics.median_without(
            self.typical_values(statistic), _typical(figure, statistic)
        )

    def typical_values(self, statistic: Statistic) -> list[float]:
        """All locations' typical values, sorted."""
        if statistic not in self._typical:
            self._typical[statistic] = sorted(_typical(f, statistic) for f in self.figures)
        return self._typical[statistic]

    def spreads(self) -> list[float]:
        """All locations' robust standard deviations, sorted."""
        if not self._spreads:
            self._spreads = sorted(f.spread or 0.0 for f in self.figures)
        return self._spreads

    def noise(self, figure: Figure) -> tuple[float, float]:
        """Median of the robust standard deviations at the other locations, and the error of the
        median of all their samples. A difference between locations is the signal; noise is the
        scatter at one location."""
        sigma = statistics.median_without(self.spreads(), figure.spread or 0.0)
        return sigma, statistics.median_error(sigma, self._samples - len(figure.values))

    def chance(self, figure: Figure, limit: Limit) -> float:
        """Probability that all samples of a sound location break the limit.

        Each sample breaks it by chance as often as those of the median location. 1 if there is no
        other location.
        """
        if not self.count:
            return 1.0
        if limit not in self._chances:
            self._chances[limit] = sorted(_chance(f, limit) for f in self.figures)
        one = statistics.median_without(self._chances[limit], _chance(figure, limit))
        return one ** len(figure.values)


def _typical(figure: Figure, statistic: Statistic) -> float:
    """The value of another figure that a bound is taken of: its median.

    For ``best`` it is its best sample. A disturbance only makes a run worse. A requirement that
    takes the least disturbed of its own samples takes the other metric's likewise, and the scatter
    of the disturbed samples says nothing.
    """
    if statistic == "best":
        return statistics.summarize(figure.values, "best", figure.better)
    return figure.median


def _chance(figure: Figure, limit: Limit) -> float:
    broken = sum(limit.excess(x) > 0 for x in figure.values)
    return statistics.chance_of_breaking(broken, len(figure.values))


class _Context(NamedTuple):
    """What the figures of one metric of one case are judged by, besides their requirements."""

    trial: Trial
    figures: Figures
    peers: _Peers
    locations: Locations
    runs: int  # how many runs of the case are valid
    slow: dict[End, float]  # what was slow in its rounds and alone, and by which factor

    def blamed(self, location: str | None) -> tuple[float, str]:
        """By how much the fit over all links found a location slow, or a node of it, and which;
        0: it did not."""
        if not self.slow or not location:
            return 0.0, ""
        ends = self.locations.itself_and_ends(location)
        return max((self.slow.get(end, 0.0), end[1]) for end in ends)


class _PlainPasses:
    """The figures of one metric at locations, against one threshold, as far as they plainly pass.

    Nearly all of a million figures do. Their limits are few: the median of the other locations is
    one of three numbers, and so is the median of their spreads. ``_Comparison`` computes the limits
    once for each of these, and judges every figure that does not plainly pass.
    """

    def __init__(self, rule: Rule, context: _Context):
        self.rule, self.context = rule, context
        self.record, self.unit = rule.record, rule.threshold.unit
        self.statistic = rule.statistic
        self.by_median = rule.statistic in ("median", "majority")
        self.known: dict[tuple[int, ...], tuple[float | None, list[Limit]]] = {}
        self.middles = self.spreads = (0.0, 0.0)  # of the sorted typical values and spreads
        peers, self.form = context.peers, rule.threshold.form
        self.usable = self.form in ("plain", "reference") or (self.form == "peers" and peers.count)
        if self.usable and self.form == "peers":
            half = peers.count // 2
            typical, spreads = peers.typical_values(rule.statistic), peers.spreads()
            self.middles = typical[max(0, half - 1)], typical[half]
            self.spreads = spreads[max(0, half - 1)], spreads[half]

    def judgement(self, figure: Figure) -> Judgement | None:
        """The judgement of a figure that plainly passes; None for any other."""
        if not self.usable or figure.location is None or figure.fault or figure.doubt:
            return None
        if self.form == "peers" and self.context.blamed(figure.location)[0]:
            return None
        if self.unit and self.unit != figure.unit:
            return None
        values, spread = figure.values, figure.spread
        if self.by_median:
            value = figure.median
        else:
            value = statistics.summarize(values, self.statistic, figure.better)
        reference, limits = self._limits(figure, value, spread or 0.0)
        if not limits:
            return None
        lower = upper = None
        for limit in limits:
            if limit.side == "most":
                upper = limit.bound
            else:
                lower = limit.bound
            if not (limit.includes(values) and statistics.is_clear(value, spread or 0.0, limit)):
                return None
        return Judgement(
            case=figure.case,
            metric=figure.metric,
            location=figure.location,
            verdict="pass",
            value=value,
            unit=figure.unit,
            statistic=self.statistic,
            samples=values,
            spread=spread,
            reference=reference,
            lower=lower,
            upper=upper,
            requirement=self.record,
            explanation="",
        )

    def _limits(
        self, figure: Figure, value: float, spread: float
    ) -> tuple[float | None, list[Limit]]:
        """The reference and the limits of a figure; no limits where there can be none."""
        key: tuple[int, ...] = ()
        if self.form == "peers":
            # On which side of the middles it lies decides what the median of the others is.
            typical = figure.median if self.statistic in ("worst", "p99") else value
            low, high = self.middles
            below, above = self.spreads
            key = (
                len(figure.values),
                typical > low,
                typical > high,
                spread > below,
                spread > above,
            )
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = _Comparison(figure, self.rule, self.context).limits()
        return known


class _Comparison:
    """One figure against one threshold."""

    def __init__(self, figure: Figure, rule: Rule, context: _Context):
        self.figure, self.rule, self.context = figure, rule, context
        self.samples = figure.values
        self.reference: Reference | None = None
        self.reference_doubt = ""  # why the figure that it is compared with decides nothing

    @property
    def name(self) -> str:
        return _name(self.figure, self.context.locations)

    def judgement(self) -> Judgement:
        fault = self._fault()
        if not fault and (absent := self._absent_case()):
            text = f"{self.name} decides nothing: {absent}"
            return self._record("inconclusive", text, value=self._value())
        fault = fault or self._set_reference()
        if fault:
            return self._record("error", f"{self.name} cannot be judged: {fault}")
        doubt = self.figure.doubt or self.reference_doubt
        if doubt and not self._passes_in_doubt():
            text = f"{self.name} decides nothing: {doubt}"
            record = self._record("inconclusive", text, value=self._value())
            return replace(record, in_doubt=True)
        if self.rule.threshold.peers and self.reference is None:
            text = f"{self.name} has no peers, which the {requirement(self.rule)} compares it with"
            return self._record("inconclusive", text, value=self._value())
        limits = self._limits()
        verdicts = self._verdicts(limits)
        for verdict in ("fail", "inconclusive"):
            if verdict in verdicts:
                if verdict == "fail" and self._is_of_round_only(limits, verdicts):
                    return self._record("inconclusive", self._of_round(limits, verdicts), limits)
                text = self._explain(verdict, limits[verdicts.index(verdict)])
                return self._record(verdict, text, limits)
        if self._is_slow_beside_slow_peers():
            factor, name = self.context.blamed(self.figure.location)
            names = some(sorted({at for _, at in self.context.slow}, key=natural))
            text = (
                f"{self.name} decides nothing: the fit over all links finds {names} slow, alone "
                f"too ({name} is {number(factor, 2)} times worse than usual), and the "
                f"{requirement(self.rule)} compares it with a median that is as bad: perhaps most "
                "links are slow"
            )
            return self._record("inconclusive", text, limits)
        reporting = len(set(self.figure.runs)) + self.figure.left_out
        if self.figure.location is None and 0 < reporting < self.context.runs:
            text = f"only {reporting} of the {self.context.runs} valid runs reported it"
            return self._record("error", f"{self.name} cannot be passed: {text}", limits)
        is_within = all(limit.includes(self.samples) for limit in limits)
        text = "" if is_within else self._explanation().within(limits)
        if self.figure.doubt:
            text = (
                f"{self._explanation().within(limits)}, even if it is wrong by a factor of "
                f"{number(self.figure.doubt_factor, 3)}: {self.figure.doubt}"
            )
        return self._record("pass", text, limits)

    def _passes_in_doubt(self) -> bool:
        """Whether all samples are within the bounds even with the highest error of the doubt.

        Beside another figure, which varies or is in doubt as well, they never are.
        """
        factor, threshold = self.figure.doubt_factor, self.rule.threshold
        if math.isinf(factor) or threshold.peers or threshold.relative_to is not None:
            return False
        extremes = [x for sample in self.samples for x in (sample / factor, sample * factor)]
        return all(limit.includes(extremes) for limit in self._limits())

    def _is_of_round_only(self, limits: list[Limit], verdicts: list[str]) -> bool:
        """Whether the load of its round may be why a link is too bad: it was not measured alone,
        and neither it nor a node of it was found slow alone."""
        failed = zip(limits, verdicts, strict=True)
        return (
            self.figure.alone is False
            and bool(self.context.locations.ends(self.figure.location or ""))
            and not self.context.blamed(self.figure.location)[0]
            and all(self._is_too_bad(limit) for limit, verdict in failed if verdict == "fail")
        )

    def _of_round(self, limits: list[Limit], verdicts: list[str]) -> str:
        text = self._explain("fail", limits[verdicts.index("fail")])
        return (
            f"{text}. It decides nothing: the link was measured only in a round, beside others; "
            "lower suspect_factor of links in site.yaml, so that such a link is measured alone"
        )

    def _is_slow_beside_slow_peers(self) -> bool:
        """Whether the bound holds beside the peers, and is broken beside the usual link of the fit.

        The median of the peers is that of slow links if more than half of them are slow, as two bad
        nodes of five make them.
        """
        t = self.rule.threshold
        factor = self.context.blamed(self.figure.location)[0] if t.peers else 0.0
        if self.figure.better == "lower":
            return t.at_most is not None and factor > t.at_most
        return t.at_least is not None and factor * t.at_least > 1

    def limits(self) -> tuple[float | None, list[Limit]]:
        """The reference and the limits; no limits if the figure cannot be judged."""
        if self._fault() or self._set_reference():
            return None, []
        reference = self.reference.value if self.reference else self.rule.threshold.reference
        return reference, self._limits()

    def _fault(self) -> str:
        unit = self.rule.threshold.unit
        if self.figure.fault:
            return self.figure.fault
        if unit and unit != self.figure.unit:
            theirs = f"the unit of the {requirement(self.rule)} is '{unit}'"
            return f"its unit is '{self.figure.unit}', while {theirs}"
        return ""

    # The figure that a ratio is taken of.

    def _set_reference(self) -> str:
        """Set ``reference`` for the two relative forms. Returns why it cannot be set, or ""."""
        form = self.rule.threshold.form
        if form == "peers":
            if not self.context.peers.count:
                return ""
            middle = self.context.peers.typical(self.figure, self.rule.statistic)
            if middle <= 0:
                return f"the median of the other locations is {middle:g}, and must be above zero"
            self.reference = Reference([middle], middle)
            return ""
        return self._set_other_metric() if form == "relative" else ""

    def _absent_case(self) -> str:
        """Why a relative bound decides nothing if the trial has no case to compare with."""
        of, trial = self.rule.threshold.relative_to, self.context.trial
        case = of.case(self.figure.case) if of else None
        if of is None or case is None or case in trial.cases or case in self.context.figures:
            return ""
        options = [
            f"--{part} {getattr(case, part)}"
            for part in ("check", "transport", "network", "profile")
            if getattr(case, part)
            if getattr(case, part) not in {getattr(one, part) for one in trial.cases}
        ]
        remedy = f" (add {' '.join(options)})" if options else ""
        return (
            f"the {requirement(self.rule)} compares it with {of.metric} of {case.id}, which this "
            f"trial did not measure{remedy}"
        )

    def _set_other_metric(self) -> str:
        of = self.rule.threshold.relative_to
        assert of is not None
        case = of.case(self.figure.case)
        candidates = self.context.figures.get(case, {}).get(of.metric, {})
        location = of.location if of.location is not None else self.figure.location
        other = candidates.get(location or None)
        if other is None and of.location is None:
            other = candidates.get(None)
        name = f"{of.metric} of {'the same run' if of.same_run else case.id}"
        comparison = f"the {requirement(self.rule)} compares it with {name}, which"
        if other is None:
            return f"{comparison} this trial did not measure"
        if other.fault:
            return f"{comparison} cannot be used: {other.fault}"
        if other.unit != self.figure.unit:
            return f"{comparison} is in '{other.unit}' and not in '{self.figure.unit}'"
        if min(other.values) <= 0:
            return f"{comparison} is not above zero"
        if other.doubt:
            self.reference_doubt = f"{comparison} is in doubt: {other.doubt}"
        if of.same_run:
            return self._pair_by_run(other, name)
        # The bound is taken of the other's best sample, or of its median (``_typical``).
        statistic: Statistic = "best" if self.rule.statistic == "best" else "median"
        quiet = undisturbed(other, other.values, statistic)
        middle = _typical(other, statistic)
        values = [middle] if statistic == "best" else other.values
        self.reference = Reference(values, middle, name, other.waits, quiet)
        return ""

    def _pair_by_run(self, other: Figure, name: str) -> str:
        """Scale each sample to the median of the other metric, run by run.

        A variation of both from run to run (the clock rate, the node) cancels. The bound is then
        one exact number for all samples.
        """
        other_values: dict[int, list[float]] = defaultdict(list)
        for run, value in other.samples:
            other_values[run].append(value)
        missing = [run for run, _ in self.figure.samples if run not in other_values]
        if missing:
            return f"{len(missing)} of its {len(self.samples)} runs did not report {name}"
        middle = other.median
        self.samples = [
            value / statistics.median(other_values[run]) * middle
            for run, value in self.figure.samples
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
        return self.context.peers.noise(self.figure)

    def _verdicts(self, limits: list[Limit]) -> list[str]:
        verdicts: list[str] = [self._verdict(limit) for limit in limits]
        if self.rule.statistic == "majority" and set(verdicts) == {"pass"}:
            # Samples above one bound and samples below the other count together.
            broken = sum(any(limit.excess(x) > 0 for limit in limits) for x in self.samples)
            if 2 * broken >= len(self.samples):
                return ["inconclusive" for _ in limits]
        return verdicts

    def _verdict(self, limit: Limit) -> str:
        """The verdict of ``statistics.decide``, unless other programs may be the cause.

        For ``best``, one sample within its bound is not enough if others break it and reruns can
        decide: of the undisturbed samples more must be within, and two at least.
        """
        verdict = statistics.decide(self.samples, limit, self.rule.statistic, self.figure.better)
        if verdict == "fail" and self._is_excused(limit):
            return "inconclusive"
        if verdict == "pass" and self.rule.statistic == "best" and self.context.trial.reruns:
            broken = [limit.excess(x) > 0 for x in self.samples]
            within = broken.count(False)
            if any(broken) and within < max(2, 1 + sum(broken) - sum(self._disturbed(limit))):
                return "inconclusive"
        if verdict == "pass" and self._is_by_disturbed_reference(limit):
            return "inconclusive"
        return verdict

    def _is_by_disturbed_reference(self, limit: Limit) -> bool:
        """Whether the figure may be within the bound only because other programs made the figure
        worse that the bound is taken of.

        Both are compared as if they had not waited (``undisturbed``). So waits of both cancel.
        """
        reference = self.reference
        if not reference or reference.undisturbed is None or not self._is_too_bad(limit):
            return False
        own = undisturbed(self.figure, self.samples, self.rule.statistic)
        bound = limit.bound / reference.value * reference.undisturbed
        return limit.excess(self._value() if own is None else own, bound) > 0

    def _disturbed(self, limit: Limit) -> list[bool]:
        """For each sample, whether it breaks the bound and waiting for a processor may be why.

        Other programs make a figure worse. For a figure that is too good, the waits of the figure
        that it is compared with count.
        """
        if self._is_too_bad(limit):
            waits = zip(self.samples, self.figure.waits, strict=True)
            return [explains(wait, x, limit) for x, wait in waits]
        others = self.reference.waits if self.reference else ()
        return [
            bool(others) and 2 * sum(explains(wait, x, limit) for wait in others) >= len(others)
            for x in self.samples
        ]

    def _is_too_bad(self, limit: Limit) -> bool:
        return (limit.side == "most") == (self.figure.better == "lower")

    def _is_excused(self, limit: Limit) -> bool:
        """Whether the machine's load may be why samples break a bound.

        It is not if the other locations were measured in the same runs on the same machine: load
        does not affect the same location each time. Nor does it make each sample equally bad.
        """
        disturbed = self._disturbed(limit)
        broken = sum(limit.excess(x) > 0 for x in self.samples)
        if 2 * sum(disturbed) < max(1, broken):
            return False
        return not (self._is_of_location(limit) or self._is_steady(limit))

    def _is_steady(self, limit: Limit) -> bool:
        """Whether all samples are alike, and far beyond the bound."""
        low, high = min(self.samples), max(self.samples)
        if len(self.samples) < STEADY_SAMPLES or low <= 0 or limit.bound <= 0:
            return False
        factor = low / limit.bound if limit.side == "most" else limit.bound / high
        return factor >= STEADY_FACTOR and high - low <= STEADY_SPREAD * statistics.median(
            self.samples
        )

    def _is_of_location(self, limit: Limit) -> bool:
        """Whether every sample breaks the bound, too often to be chance, beside the peers'."""
        if not self.rule.threshold.peers or any(limit.excess(x) <= 0 for x in self.samples):
            return False
        return self.context.peers.chance(self.figure, limit) <= CHANCE

    def _value(self) -> float:
        if self.samples is self.figure.values and self.rule.statistic == "median":
            return self.figure.median
        return statistics.summarize(self.samples, self.rule.statistic, self.figure.better)

    def _spread(self) -> float | None:
        if self.samples is self.figure.values:
            return self.figure.spread
        return statistics.spread(self.samples)

    # The record.

    def _explanation(self) -> Explanation:
        reference, unit = None, self.figure.unit
        if self.reference:
            name = self.reference.name or f"the median of {self.context.peers.count} others"
            reference = (name, self.reference.value)
        return Explanation(self.name, unit, self.samples, self._value(), self.rule, reference)

    def _explain(self, verdict: str, limit: Limit) -> str:
        explanation = self._explanation()
        if verdict == "fail":
            of_location = self._is_of_location(limit)
            return explanation.beyond(limit, self._disturbance(limit), of_location)
        if limit.excess(self._value()) > 0 and self._is_excused(limit):
            return explanation.excused(limit, self._disturbance(limit))
        if self._is_by_disturbed_reference(limit):
            assert self.reference is not None
            return explanation.by_disturbed_reference(limit, self._disturbed_reference())
        return explanation.scattered(limit)

    def _disturbance(self, limit: Limit) -> str:
        """How other programs disturbed the samples that break a bound; "" if they did not."""
        disturbed = self._disturbed(limit)
        if not any(disturbed):
            return ""
        if not self._is_too_bad(limit):
            return self._disturbed_reference()
        waits = zip(self.figure.waits, disturbed, strict=True)
        longest = max(wait for wait, flag in waits if flag and wait)
        return (
            f"in {sum(disturbed)} of {len(self.samples)} samples the step waited for a processor, "
            f"up to {number(longest.percent, 2)} % of its time, while other programs used "
            f"{number(longest.others, 2)} % of a core on {longest.node}"
        )

    def _disturbed_reference(self) -> str:
        assert self.reference is not None
        return f"other programs used the processors while {self.reference.name} was measured"

    def _record(
        self,
        verdict: Literal["pass", "fail", "error", "inconclusive"],
        explanation: str,
        limits: Sequence[Limit] = (),
        value: float | None = None,
    ) -> Judgement:
        lower = upper = None
        disturbed = 0
        for limit in limits:
            if limit.side == "least":
                lower = limit.bound
            else:
                upper = limit.bound
            if not limit.includes(self.samples):
                disturbed = max(disturbed, sum(self._disturbed(limit)))
            elif verdict == "inconclusive" and self._is_by_disturbed_reference(limit):
                disturbed = len(self.samples)
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
            disturbed=disturbed,
            spread=None if self.figure.fault else self._spread(),
            reference=reference,
            lower=lower,
            upper=upper,
            requirement=self.rule.record,
            explanation=explanation,
        )


def explains(wait: Wait | None, sample: float, limit: Limit) -> bool:
    """Whether a wait for a processor may be why a sample breaks a bound.

    A rate at 1/r of the bound, or a time r times as long, has lost 1 - 1/r of its time. No wait
    explains a zero.
    """
    smaller, larger = sorted((sample, limit.bound))
    if limit.excess(sample) <= 0 or smaller <= 0:
        return False
    return wait is not None and wait.most_lost > 100 * (1 - smaller / larger)


def has_waited(wait: Wait | None) -> TypeGuard[Wait]:
    """Whether a wait is known, and too long to be that of a node's daemons."""
    return wait is not None and wait.percent > DISTURBED_PERCENT


def undisturbed(figure: Figure, samples: Sequence[float], statistic: Statistic) -> float | None:
    """The statistic over the samples of a figure, as if they had not waited for a processor.

    A sample is taken to have lost the same share of its time as its step. That is less than a wait
    may explain (``explains``): else a reference whose step waited for a fifth of its time would
    decide nothing, however far the figure is within its bound. With ``best``, it is of the best
    sample alone. None: less than half of the samples that count waited.
    """
    pairs = list(zip(samples, figure.waits, strict=True))
    if statistic == "best":
        pairs = [(max if figure.better == "higher" else min)(pairs, key=lambda pair: pair[0])]
    lost = [min(wait.percent / 100, MOST_LOST) if has_waited(wait) else 0.0 for _, wait in pairs]
    if 2 * sum(part > 0 for part in lost) < len(lost):
        return None
    kept = [(x, 1 - part) for (x, _), part in zip(pairs, lost, strict=True)]
    values = [x / part if figure.better == "higher" else x * part for x, part in kept]
    return statistics.summarize(values, statistic, figure.better)


def out_of_bounds(judgement: Judgement) -> list[float]:
    """The samples of a judgement that break one of its bounds."""
    limits = []
    if judgement.upper is not None:
        limits.append(Limit("most", judgement.upper, 1.0))
    if judgement.lower is not None:
        limits.append(Limit("least", judgement.lower, 1.0))
    return [x for x in judgement.samples if any(limit.excess(x) > 0 for limit in limits)]


def _not_measured(
    runs: Sequence[Run], requirements: Requirements, figures: Figures
) -> list[Judgement]:
    """Thresholds whose figure no run reported.

    A threshold that names its check must find its metric in every case that it selects. One that
    leaves the check open ("every check's latency_us") must find it in one case at least.
    """
    judgements = []
    valid = {run.case for run in runs if is_valid(run)}  # any other case is an error as a whole
    for rule in requirements.rules:
        t = rule.threshold
        cases = [case for case in figures if t.select.matches_case(case) and case in valid]
        lacking = [case for case in cases if not _has_figure(rule, figures[case])]
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
                    requirement=rule.record,
                    explanation=f"{text} (the {rule.kind}); its selection may be too wide",
                )
            )
    return judgements


def _unmeasured_locations(runs: Sequence[Run], requirements: Requirements) -> list[Judgement]:
    """Nodes and links that a run could not measure beside others: one error each.

    One for each contract on the case, too (see ``_errors_of``).
    """
    reasons: dict[tuple[Case, str], str] = {}
    for run in filter(is_valid, runs):
        for location, reason in run.unmeasured.items():
            reasons.setdefault((run.case, location), reason)
    judgements = []
    for (case, location), reason in reasons.items():
        text = f"{case.id}: {location} was not measured: {reason}"
        judgements += _errors_of(case, location, text, requirements)
    return judgements


def _errors_of(
    case: Case, location: str | None, text: str, requirements: Requirements
) -> list[Judgement]:
    """An error of a case or location, and one for each contract on it, so that no clause is met."""
    rules = [rule for rule in requirements.contract if rule.threshold.select.matches_case(case)]
    return [
        Judgement(
            case=case,
            metric=rule.threshold.metric if rule else "",
            location=location,
            verdict="error",
            requirement=rule.record if rule else None,
            explanation=text,
        )
        for rule in (None, *rules)
    ]


def _has_figure(rule: Rule, own: dict[str, dict[str | None, Figure]]) -> bool:
    """Whether a rule that selects the case applies to a figure of it. Peers are not asked of the
    case as a whole, which is no reason to miss them."""
    return any(
        rule.is_at_any(alike) or (rule.threshold.peers and None in alike)
        for metric, alike in own.items()
        if rule.is_for(metric)
    )
