"""Compares one figure with one threshold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from seatrial.results import statistics
from seatrial.results.disturbance import explains, undisturbed
from seatrial.results.figures import Figure, Figures, Wait
from seatrial.results.locations import End, Locations, natural
from seatrial.results.peers import Peers, typical
from seatrial.results.record import Judgement, Trial
from seatrial.results.requirements import Rule
from seatrial.results.statistics import Limit, Statistic
from seatrial.results.wording import Explanation, number, plural, requirement, some

#: Greatest probability that all samples of a sound location break a bound by chance, below which
#: the machine's load does not excuse them.
CHANCE = 0.001
#: So many samples that lie this close together, all so many times worse than the bound, are not
#: excused: other programs do not delay each run by the same large factor.
STEADY_SAMPLES, STEADY_SPREAD, STEADY_FACTOR = 3, 0.05, 10.0


class Reference(NamedTuple):
    """The figure that the ratio of a relative requirement is taken of."""

    samples: list[float]
    value: float
    name: str = ""  # empty: the median of the peers
    waits: Sequence[Wait | None] = ()  # for each sample of that figure
    undisturbed: float | None = None  # the value as if it had not waited; None: it did not


class Context(NamedTuple):
    """What the figures of one metric of one case are judged by, besides their requirements."""

    trial: Trial
    figures: Figures
    peers: Peers
    locations: Locations
    runs: int  # how many runs of the case are valid
    runs_on: Mapping[str, int]  # how many of them had a node, and did not say that it is unmeasured
    slow: dict[End, float]  # what was slow in its rounds and alone, and by which factor

    def expected(self, location: str | None) -> int:
        """How many runs must have a figure of a node, or of the case as a whole. 0: of a link,
        which a run names if it could not measure it."""
        return self.runs if location is None else self.runs_on.get(location, 0)

    def blamed(self, location: str | None) -> tuple[float, str]:
        """By how much the fit over all links found a location slow, or a node of it, and which;
        0: it did not."""
        if not self.slow or not location:
            return 0.0, ""
        ends = self.locations.itself_and_ends(location)
        return max((self.slow.get(end, 0.0), end[1]) for end in ends)


class Comparison:
    """One figure against one threshold."""

    def __init__(self, figure: Figure, rule: Rule, context: Context):
        self.figure, self.rule, self.context = figure, rule, context
        self.samples = figure.values
        self.reference: Reference | None = None
        self.reference_doubt = ""  # why the figure that it is compared with decides nothing

    @property
    def name(self) -> str:
        return name_of(self.figure, self.context.locations)

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
        broken = self._left_out_beyond(limits)
        if broken > len(self.samples):
            text = (
                f"{self.name} decides nothing: {broken} samples that do not count (in doubt, or of "
                "a round beside others) break the bound, and only "
                f"{plural(len(self.samples), 'sample')} that counts is within it"
            )
            return self._record("inconclusive", text, limits)
        reporting = len(set(self.figure.runs)) + len(self.figure.left_out)
        expected = self.context.expected(self.figure.location)
        if 0 < reporting < expected:
            on = f" on {self.figure.location}" if self.figure.location else ""
            text = f"only {reporting} of the {expected} valid runs{on} reported it"
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
            if getattr(case, part) not in {getattr(other, part) for other in trial.cases}
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
        # The bound is taken of the other's best sample, or of its median (``typical``).
        statistic: Statistic = "best" if self.rule.statistic == "best" else "median"
        quiet = undisturbed(other, other.values, statistic)
        middle = typical(other, statistic)
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
        """The verdict of ``statistics.decide``, unless other programs may be the cause."""
        verdict = statistics.decide(self.samples, limit, self.rule.statistic, self.figure.better)
        if verdict == "fail" and self._is_excused(limit):
            return "inconclusive"
        if verdict == "pass" and self._has_few_within(limit):
            return "inconclusive"
        if verdict == "pass" and self._is_by_disturbed_reference(limit):
            return "inconclusive"
        return verdict

    def _left_out_beyond(self, limits: list[Limit]) -> int:
        """How many samples that do not count break a bound.

        Those of rounds have no bound beside peers that were measured alone. One in doubt was slower
        than the factor by which links are suspected, which is tighter than the bound.
        """
        if self.rule.threshold.peers and self.figure.alone:
            return self.figure.left_out_in_doubt
        return sum(any(limit.excess(x) > 0 for limit in limits) for x in self.figure.left_out)

    def _within(self, limit: Limit) -> int:
        return sum(limit.excess(x) <= 0 for x in self.samples)

    def _undisturbed_beyond(self, limit: Limit) -> int:
        return len(self.samples) - self._within(limit) - sum(self._disturbed(limit))

    def _has_few_within(self, limit: Limit) -> bool:
        """Whether too few samples are within the bound for a pass.

        For ``best``, one is not enough if others break it and reruns can decide: of the undisturbed
        samples more must be within, and two at least.
        """
        if self.rule.statistic != "best" or not self.context.trial.reruns:
            return False
        within = self._within(limit)
        return within < len(self.samples) and within < max(2, 1 + self._undisturbed_beyond(limit))

    def _is_by_disturbed_reference(self, limit: Limit) -> bool:
        """Whether the figure may be within the bound only because other programs made the figure
        worse that the bound is taken of.

        Both are compared as if they had not waited (``undisturbed``). So waits of both cancel.
        """
        reference = self.reference
        if not reference or reference.undisturbed is None or not self._is_too_bad(limit):
            return False
        undisturbed_value = undisturbed(self.figure, self.samples, self.rule.statistic)
        bound = limit.bound / reference.value * reference.undisturbed
        return (
            limit.excess(self._value() if undisturbed_value is None else undisturbed_value, bound)
            > 0
        )

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
        if limit.excess(self._value()) <= 0 and self._has_few_within(limit):
            return explanation.by_few_samples(
                limit, self._within(limit), self._undisturbed_beyond(limit)
            )
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


def name_of(figure: Figure, locations: Locations) -> str:
    return f"{figure.case.id}: {figure.metric}{locations.on(figure.location)}"
