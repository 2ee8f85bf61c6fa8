"""Compares the figures of a trial with its requirements: one judgement for each pair.

Nothing doubtful passes: an invalid run is an error, a figure without a requirement is missing,
and noise or load that hides the answer is inconclusive. The trial's verdict follows from the
judgements in ``seatrial.results.verdict``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from seatrial.base.errors import unexpected
from seatrial.base.memory import no_collections
from seatrial.results import statistics
from seatrial.results.comparison import Comparison, Context, name_of
from seatrial.results.figures import (
    Figure,
    Figures,
    case_errors,
    collect,
    in_order,
    is_valid,
    slow_alone,
)
from seatrial.results.locations import End, Locations, natural
from seatrial.results.peers import Peers
from seatrial.results.record import Case, Judgement, Run, Trial
from seatrial.results.requirements import Requirements, Rule, Threshold
from seatrial.results.statistics import Limit
from seatrial.results.wording import some


class _OfAll(NamedTuple):
    """What all cases of a trial are judged with."""

    trial: Trial
    figures: Figures
    locations: Locations
    slow: dict[tuple[Case, str], dict[End, float]]  # as ``slow_alone``
    valid: Counter[Case]  # how many runs are valid
    valid_on: dict[Case, Counter[str]]  # the same for each node that they measured


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
    valid = [run for run in runs if is_valid(run)]
    valid_on: dict[Case, Counter[str]] = defaultdict(Counter)
    for run in valid:
        valid_on[run.case].update(_nodes_of(run) - run.unmeasured.keys())
    of_all = _OfAll(
        trial,
        figures,
        Locations(runs),
        slow_alone(runs),
        Counter(run.case for run in valid),
        valid_on,
    )
    judgements: list[Judgement] = []
    for case, by_metric in figures.items():
        if case in errors and case not in defects:
            judgements.append(
                Judgement(case=case, metric="", verdict="error", explanation=errors[case])
            )
        before = len(judgements)
        try:
            for alike in in_order(by_metric):
                judgements += _of_metric(alike, requirements, of_all)
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


def _nodes_of(run: Run) -> set[str]:
    """The nodes that ran a step, by their names in locations; of an older record those of the job.

    Slurm's account can have other names, more nodes than a step, or none."""
    counters = run.path.counters if run.path else []
    nodes = {each.node for each in run.activity} | {each.node for each in counters}
    return nodes or set(run.job.nodes)


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
    alike: list[Figure], requirements: Requirements, of_all: _OfAll
) -> Iterator[Judgement]:
    """The judgements on one metric of one case."""
    case, metric = alike[0].case, alike[0].metric
    thresholds = requirements.of(case, metric)
    # Links measured alone are compared with one another: the others had load beside them.
    contexts = {
        alone: Context(
            of_all.trial,
            of_all.figures,
            Peers(_comparable(alike, alone)),
            of_all.locations,
            of_all.valid[case],
            of_all.valid_on[case],
            of_all.slow.get((case, metric), {}),
        )
        for alone in {figure.alone for figure in alike}
    }
    plain: dict[tuple[int, bool | None], PlainPasses] = {}  # by the identity of the rule
    for figure in alike:
        rules, context = thresholds.applying(figure.location), contexts[figure.alone]
        for rule in rules:
            key = id(rule), figure.alone
            if key not in plain:
                plain[key] = PlainPasses(rule, context)
            yield plain[key].judgement(figure) or Comparison(figure, rule, context).judgement()
        if not rules and not thresholds.is_informative(figure.location):
            yield _missing(figure, name_of(figure, of_all.locations), of_all.trial.no_baselines)
    measured = {figure.location for figure in alike}
    nodes = of_all.valid_on[case]
    if measured & nodes.keys():
        lacking: dict[int, tuple[Rule, list[str]]] = {}  # by the identity of the rule
        for node in sorted(nodes.keys() - measured, key=natural):
            for rule in thresholds.applying(node):
                lacking.setdefault(id(rule), (rule, []))[1].append(node)
        for rule, without in lacking.values():
            yield _without_figure(case, metric, without, rule)


def _without_figure(case: Case, metric: str, nodes: list[str], rule: Rule) -> Judgement:
    """One error for all nodes without a figure that other nodes of the case have: a job user can
    write figures of many names."""
    return Judgement(
        case=case,
        metric=metric,
        location=nodes[0] if len(nodes) == 1 else None,
        verdict="error",
        unit=rule.threshold.unit or "",
        statistic=rule.statistic,
        requirement=rule.record,
        explanation=f"{case.id}: no run reported {metric} of {some(nodes)}, as of other nodes",
    )


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
    chosen = [figure for figure in alike if figure.alone == alone]
    return alike if not alone and len(chosen) == 1 else chosen


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


class PlainPasses:
    """The figures of one metric at locations, against one threshold, as far as they plainly pass.

    Nearly all of a million figures do. Their limits are few: the median of the other locations is
    one of three numbers, and so is the median of their spreads. ``Comparison`` computes the limits
    once for each of these, and judges every figure that does not plainly pass.
    """

    def __init__(self, rule: Rule, context: Context):
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
        expected = self.context.expected(figure.location)
        if figure.left_out or (expected and len(set(figure.runs)) < expected):
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
            known = self.known[key] = Comparison(figure, self.rule, self.context).limits()
        return known


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


def _has_figure(rule: Rule, by_metric: dict[str, dict[str | None, Figure]]) -> bool:
    """Whether a rule that selects the case applies to a figure of it. Peers are not asked of the
    case as a whole, which is no reason to miss them."""
    return any(
        rule.is_at_any(alike) or (rule.threshold.peers and None in alike)
        for metric, alike in by_metric.items()
        if rule.is_for(metric)
    )
