"""Checks the requirements of a site against its plan, without running anything.

A requirement is wrong if no case of the site's matrix can meet its selection, if its benchmark does
not report the metric in that unit, or if its bound cannot decide anything. ``judged`` lists the
cases that each contract judges. The rules of one entry alone are in
``seatrial.results.requirements``; what a trial did not measure is in ``seatrial.results.judge``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from seatrial.base.errors import Problem
from seatrial.base.suggest import matching, suggest
from seatrial.benchmarks import links
from seatrial.benchmarks.benchmark import ACTIVITY_METRICS, DeclaredMetric
from seatrial.benchmarks.registry import registry
from seatrial.plan.matrix import Matrix, Places
from seatrial.plan.model import Plan
from seatrial.results.record import Case
from seatrial.results.requirements import (
    CASE_KEYS,
    WIDEST,
    Informative,
    Patterns,
    Requirements,
    Rule,
    Select,
    Threshold,
    fits,
)

#: A ratio beyond this, or below its reciprocal, is no bound.
WIDEST_RATIO = 1000.0
#: unit -> smallest and largest bound that a network, a core or a cluster can come near
REASONABLE = {
    "us": (1e-3, 1e7),
    "s": (1e-6, 1e7),
    "B": (1, 1e12),
    "MB/s": (1e-3, 1e7),
    "GB/s": (1e-3, 1e6),
    "Mop/s": (1e-3, 1e12),
    "GFLOPS": (1e-3, 1e10),
    "percent": (0, 1e5),
    "of 1": (0, 1),
    "1/s": (0, 1e12),
}
#: a fraction below this, of a reference, is no bound
LOWEST = -0.95


def problems(requirements: Requirements, matrix: Matrix) -> list[Problem]:
    """All problems of the requirements of a site, in the order of the file."""
    lines = requirements.lines
    assert lines is not None, "requirements from a file have lines"
    entries: list[tuple[str, Rule | Informative]] = [
        *((f"requirements.{i}", rule) for i, rule in enumerate(requirements.rules)),
        *((f"informative.{i}", entry) for i, entry in enumerate(requirements.informative)),
    ]
    return [
        lines.problem(f"{at}.{field}", message, correction)
        for at, entry in entries
        for field, message, correction in _entry(entry, requirements, matrix)
    ]


def bound_problems(requirements: Requirements, matrix: Matrix) -> list[Problem]:
    """The problems of bounds and units alone: no measurement decides by such a bound.

    A selection that matches no case is left to the verdict.
    """
    lines = requirements.lines
    assert lines is not None, "requirements from a file have lines"
    return [
        lines.problem(f"requirements.{i}.{field}", message, correction)
        for i, rule in enumerate(requirements.rules)
        for field, message, correction in _bound(rule.threshold, matrix)
    ]


def judged(
    requirements: Requirements, plan: Plan | Matrix, matrix: Matrix
) -> dict[str, list[Case]]:
    """Contract id -> the cases of a plan that it judges, in their order."""
    planned = Matrix(plan.cases, matrix.metrics, matrix.nodes)
    return {
        rule.id: list(
            dict.fromkeys(
                case
                for case, _, _ in planned.figures(
                    rule.threshold.select, rule.threshold.metric, bool(rule.threshold.peers)
                )
            )
        )
        for rule in requirements.rules
        if rule.threshold.basis == "contract"
    }


def suspect_factor(requirements: Requirements, cases: Iterable[Case]) -> float:
    """Of ``links``: by how much a link must be worse than usual to be measured again alone.

    At most the usual factor, and less than the tightest bound that compares links with their
    peers: between the two a link would break a bound by the figure of a round.
    """
    bounds = [ratio for rule in requirements.rules for _, ratio in _ratios(rule, cases)]
    tightest = min(bounds, default=math.inf)
    return max(links.LEAST_FACTOR, min(links.SUSPECT_FACTOR, tightest**links.PART_OF_BOUND))


def suspect_problems(
    factor: float, requirements: Requirements, cases: Iterable[Case]
) -> list[Problem]:
    """The bounds that are tighter than the site's ``suspect_factor`` of ``links``."""
    lines = requirements.lines
    assert lines is not None, "requirements from a file have lines"
    right = suspect_factor(requirements, cases)
    return [
        lines.problem(
            f"requirements.{number}.{field}",
            f"a link {ratio:.3g} times worse than the others breaks this bound, but only links "
            f"{factor:g} times worse are measured again alone (suspect_factor of links in "
            "site.yaml)",
            f"suspect_factor: {math.floor(100 * right) / 100:g}, or leave it out",
        )
        for number, rule in enumerate(requirements.rules)
        for field, ratio in _ratios(rule, cases)
        if factor > ratio
    ]


def _ratios(rule: Rule, cases: Iterable[Case]) -> Iterator[tuple[str, float]]:
    """Field and ratio by which a bound rejects links that are worse than their peers."""
    t = rule.threshold
    names = [name for name in links.COMPARED if fits(t.metric, name)]
    if not t.peers or not names:
        return
    if not any(case.check == links.Links.name and t.select.matches_case(case) for case in cases):
        return
    if t.at_most is not None and "latency_us" in names:
        yield "at_most", t.at_most
    if t.at_least is not None and names != ["latency_us"]:
        yield "at_least", 1 / t.at_least


#: field below an entry, message and correction of each problem
FieldProblems = Iterator[tuple[str, str, str]]


def _entry(entry: Rule | Informative, requirements: Requirements, matrix: Matrix) -> FieldProblems:
    rule = entry if isinstance(entry, Rule) else None
    select, metric = entry.select, entry.metric
    contract = rule is not None and rule.threshold.basis == "contract"
    if not contract and _is_of_another_benchmark(select, matrix):
        return
    wrong = [*_selection(select, matrix)] or [*_metric(select, metric, matrix, rule)]
    yield from wrong
    if rule and wrong:
        yield from _alone(rule.threshold)
    elif rule:
        yield from _bound(rule.threshold, matrix)
        yield from _peers(rule.threshold, matrix)
        yield from _compared(rule, requirements, matrix)


def _is_of_another_benchmark(select: Select, matrix: Matrix) -> bool:
    """Whether an entry names benchmarks that the site does not run, and no other check.

    A site keeps such entries if it leaves a benchmark out for a while. A contract must be judged.
    """
    checks = [select.check] if isinstance(select.check, str) else select.check or []
    others = set(registry()) - set(matrix.values("check"))
    return bool(checks) and others.issuperset(checks)


# -- the selection


def _selection(select: Select, matrix: Matrix) -> FieldProblems:
    """Patterns that match no case, alone or together."""
    wrong = False
    for key in CASE_KEYS:
        names = matrix.values(key)
        for field, pattern in _patterns(key, getattr(select, key)):
            if not matching([pattern], names):
                wrong = True
                yield f"select.{field}", *_no_match(key, pattern, names)
    if wrong:
        return
    cases = matrix.cases
    for number, key in enumerate(CASE_KEYS):
        patterns = [pattern for _, pattern in _patterns(key, getattr(select, key))]
        if not patterns:
            continue
        here = matrix.values(key, cases)
        cases = [case for case in cases if matching(patterns, [str(getattr(case, key))])]
        if not cases:
            chosen = " and ".join(
                f"{case_key} {_text(getattr(select, case_key))}"
                for case_key in CASE_KEYS[:number]
                if getattr(select, case_key) is not None
            )
            yield (
                f"select.{key}",
                f"no case of {chosen} has {key} {_text(patterns)}",
                f"such cases have {key} {_text(here)}",
            )
            return


def _patterns(key: str, given: Any) -> Iterator[tuple[str, str]]:
    """Field below ``select`` and pattern, for each pattern of a key."""
    if isinstance(given, list):
        yield from ((f"{key}.{i}", str(pattern)) for i, pattern in enumerate(given))
    elif given is not None:
        yield key, str(given)


def _no_match(key: str, pattern: str, names: list[str]) -> tuple[str, str]:
    """Message and correction for a pattern that matches no case."""
    what = {"profile": "NIC profile", "nodes": "number of nodes"}.get(key, key)
    if key == "check" and pattern in registry():
        return (
            f"the site does not run benchmark {pattern!r}",
            "add it to benchmarks: in site.yaml, or remove the requirement",
        )
    return (
        f"{pattern!r} matches no {what} of the site's cases",
        suggest(pattern, (name for name in names if name)),
    )


def _text(given: Any) -> str:
    return " or ".join(repr(str(word)) for word in (given if isinstance(given, list) else [given]))


# -- the metric, its location and unit


def _metric(select: Select, metric: Patterns, matrix: Matrix, rule: Rule | None) -> FieldProblems:
    cases = [case for case in matrix.cases if select.matches_case(case)]
    checks = matrix.values("check", cases)
    lists: dict[str, dict[str, DeclaredMetric]] = {check: {} for check in checks}
    for case in cases:
        lists[case.check].update(matrix.metrics_of(case))
    names = [name for check in checks for name in lists[check]]
    several = isinstance(metric, list)
    wrong = False
    for field, pattern in _patterns("metric", metric):
        if not matching([pattern], names):
            wrong = True
            where = checks[0] if len(checks) == 1 else "the selected checks"
            if len(variants := matrix.values("variant", cases)) == 1 and variants[0]:
                where = f"{where}, {variants[0]}"
            yield field, f"{pattern!r} is not a metric of {where}", suggest(pattern, set(names))
    if wrong:
        return
    # A requirement of named checks must find its metric in each of them.
    open_check = select.check in (None, "*")
    lacking = [check for check in checks if not any(fits(metric, name) for name in lists[check])]
    if lacking and not open_check and not several:
        yield (
            "select.check",
            f"check {lacking[0]!r} has no metric {metric!r}",
            f"leave it out of the selection; its metrics: {', '.join(lists[lacking[0]])}",
        )
        return
    # Of a check that it names, a requirement must find its metric in each case.
    for check in () if open_check or rule is None else checks:
        of_check = [case for case in cases if case.check == check]
        having = [c for c in of_check if any(fits(metric, name) for name in matrix.metrics_of(c))]
        variants = matrix.values("variant", having)
        lacking = [
            variant for variant in matrix.values("variant", of_check) if variant not in variants
        ]
        if lacking:
            have = "has" if len(lacking) == 1 else "have"
            message = f"{', '.join(lacking)} of {check} {have} no metric {metric!r}"
            yield "select", message, f"add variant: {_text(variants)}"
            return
    declared = [
        declared_metric
        for check in checks
        for name, declared_metric in lists[check].items()
        if fits(metric, name)
    ]
    known = list(dict.fromkeys(matrix.places(declared_metric) for declared_metric in declared))
    for field, pattern in _patterns("location", select.location):
        if not any(places.has(pattern) for places in known):
            correction = "remove location: the metric belongs to the case as a whole"
            if any(places.first for places in known):
                correction = _suggest_location(pattern, known)
            message = f"{pattern!r} is not a location of {_text(metric)}"
            yield f"select.{field}", message, correction


def _suggest_location(location: str, known: list[Places]) -> str:
    """The same link by its other name, or the nearest of the first names."""
    same = [name for places in known for name in places.turned(location)]
    if same:
        return suggest(same[0], same)
    return suggest(location, islice(chain.from_iterable(known), 1000))


def _figures(t: Threshold, matrix: Matrix) -> FieldProblems:
    """The unit of a bound, the side on which it is, and its size."""
    declared = {
        name: declared_metric for _, name, declared_metric in matrix.figures(t.select, t.metric)
    }
    wrong = [
        name
        for name, declared_metric in declared.items()
        if t.unit and declared_metric.unit != t.unit
    ]
    if wrong:
        unit = declared[wrong[0]].unit
        yield "unit", f"{wrong[0]} is measured in {unit}, not in {t.unit}", f"unit: {unit}"
        return
    for name, declared_metric in declared.items():
        if problem := _side(t, name, declared_metric) or _size(t, name):
            yield problem
            return


def _side(t: Threshold, name: str, declared: DeclaredMetric) -> tuple[str, str, str] | None:
    """A bound that rejects good figures and accepts each bad one.

    A ratio of two cases may be on either side, because a NIC profile can have its cost. So may a
    bound of an activity, which can prove that a profile has an effect.
    """
    if t.form == "relative" or name in ACTIVITY_METRICS:
        return None
    pairs = ("lower", "upper") if t.reference is not None else ("at_least", "at_most")
    wrong, right = pairs if declared.better == "lower" else reversed(pairs)
    if getattr(t, right) is not None:
        return None
    message = f"{declared.better} values of {name} are better, so this bound accepts each bad one"
    return wrong, message, f"use {right}, or give both"


def _size(t: Threshold, name: str) -> tuple[str, str, str] | None:
    """An absolute bound that no figure comes near.

    A small lower bound beside an upper one does no harm.
    """
    if t.unit not in REASONABLE or t.form in ("relative", "peers"):
        return None
    low, high = REASONABLE[t.unit]
    least, most = t.bounds()
    if most is not None and not low <= most <= high:
        field, bound = "upper" if t.reference == 0 else "at_most", most
    elif least is not None and (least > high or (least < low and most is None)):
        field, bound = "lower" if t.reference == 0 else "at_least", least
    else:
        return None
    return (
        "reference" if t.reference else field,
        f"no figure of {name} comes near a bound of {bound:g} {t.unit}",
        f"a bound from {low:g} to {high:g} {t.unit}",
    )


def _peers(t: Threshold, matrix: Matrix) -> FieldProblems:
    if t.peers and not any(matrix.figures(t.select, t.metric, peers=True)):
        message = f"{t.metric!r} belongs to the case as a whole, which has no peers"
        yield "peers", message, "remove peers, and use relative_to or a plain bound"


# -- the bound


def _bound(t: Threshold, matrix: Matrix) -> FieldProblems:
    """Bounds that no measurement decides by, or that a person hardly meant."""
    yield from [*_alone(t)] or [*_figures(t, matrix)] or _itself(t, matrix)


def _alone(t: Threshold) -> FieldProblems:
    """Bounds that are wrong with any metric."""
    if t.upper is not None and t.reference and t.upper > WIDEST:
        yield (
            "upper",
            f"{t.upper:g} allows {t.upper:+.0%} over the reference",
            f"write {t.upper:g} % as {t.upper / 100:g}, or use at_most for a wide bound",
        )
    if t.lower is not None and t.reference and t.lower < LOWEST:
        message = f"{t.lower:g} allows any figure above {1 + t.lower:.4g} times the reference"
        yield "lower", message, "write 5 % below as -0.05, or use at_least for a wide bound"
    if t.form == "plain" and t.at_least is not None and t.at_least <= 0 and t.at_most is None:
        message = f"every figure is at least {t.at_least:g}"
        yield "at_least", message, "write the least acceptable figure"
    if t.reference == 0 and t.lower is not None and t.upper is None:
        yield "reference", "every figure is at least 0", "write the least acceptable figure"
    if t.form in ("relative", "peers"):
        for name, far in (
            ("at_most", t.at_most is not None and t.at_most > WIDEST_RATIO),
            ("at_least", t.at_least is not None and t.at_least < 1 / WIDEST_RATIO),
        ):
            if far:
                value = getattr(t, name)
                yield (
                    name,
                    f"{value:g} times the other figure is no bound",
                    f"a ratio from {1 / WIDEST_RATIO:g} to {WIDEST_RATIO:g}",
                )


# -- the figure that a ratio is taken of


def _itself(t: Threshold, matrix: Matrix) -> FieldProblems:
    """A ratio that is always 1."""
    of = t.relative_to
    figures = list(matrix.figures(t.select, t.metric))
    if of is None or not figures:
        return
    for case, name, declared in figures:
        if (of.case(case), of.metric) != (case, name):
            return
        if of.location is not None:
            found = matrix.places(declared).matching(t.select.location)
            if list(islice(found, 2)) != [of.location]:
                return
    message = f"{t.metric} is compared with itself"
    yield "relative_to", message, "compare it with another case, location or metric"


def _compared(rule: Rule, requirements: Requirements, matrix: Matrix) -> FieldProblems:
    """A case or metric to compare with that does not exist, where the rule applies."""
    t = rule.threshold
    of = t.relative_to
    if of is None:
        return
    known = set(matrix.cases)
    figures = list(matrix.figures(t.select, t.metric))
    for case, name, declared in figures:
        problem = _comparison(rule, case, name, declared, known, matrix)
        location = matrix.places(declared).first
        if problem and rule in requirements.applying(case, name, location):
            yield problem
            return


def _comparison(
    rule: Rule,
    case: Case,
    name: str,
    declared: DeclaredMetric,
    known: set[Case],
    matrix: Matrix,
) -> tuple[str, str, str] | None:
    """The problem of a requirement that compares a metric of a case; None if there is none."""
    of = rule.threshold.relative_to
    assert of is not None
    other = of.case(case)
    if other not in known:
        return "relative_to", *_no_case(rule, case, other, matrix)
    metrics = matrix.metrics_of(other)
    if of.metric not in metrics:
        message = f"{of.metric!r} is not a metric of {other.check}"
        return "relative_to.metric", message, suggest(of.metric, metrics)
    unit = metrics[of.metric].unit
    if unit != declared.unit:
        message = f"{of.metric} is measured in {unit}, and {name} in {declared.unit}"
        return "relative_to.metric", message, "compare metrics of the same unit"
    places = matrix.places(metrics[of.metric])
    if of.location and of.location not in places:
        message = f"{of.location!r} is not a location of {of.metric} of {other.check}"
        return "relative_to.location", message, _suggest_location(of.location, [places])
    return None


def _no_case(rule: Rule, case: Case, other: Case, matrix: Matrix) -> tuple[str, str]:
    of = rule.threshold.relative_to
    for key in CASE_KEYS:
        value = getattr(of, key)
        if value is not None and str(value) not in matrix.values(key):
            message, correction = _no_match(key, str(value), matrix.values(key))
            return f"{key}: {message}", correction
    return (
        f"{case.id} is compared with {other.id}, which is not a case of the site",
        "narrow the selection, or compare with another case",
    )
