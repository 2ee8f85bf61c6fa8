"""The verdict of a trial from its judgements, and the findings: the sentences to read first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from seatrial.results.figures import all_cases, case_errors, collect, valid_runs
from seatrial.results.judge import out_of_bounds
from seatrial.results.locations import Locations
from seatrial.results.record import Case, Judgement, Run, Trial, Verdict
from seatrial.results.requirements import Requirements
from seatrial.results.wording import number

VERDICTS = ("pass", "fail", "error", "missing", "inconclusive")
MAX_FINDINGS = 20
MAX_NAMED = 3  # requirements without a case that are listed one by one


def conclude(
    trial: Trial,
    runs: Sequence[Run],
    judgements: Sequence[Judgement],
    requirements: Requirements | None = None,
    *,
    ended: datetime | None = None,
) -> Verdict:
    """The trial's verdict and findings.

    Reject if anything failed, even beside errors: a failure is evidence enough. Else incomplete
    if anything is an error, missing or inconclusive, or if nothing was judged. The runs are
    checked as well, so that judgements that omit a run cannot hide it. With ``requirements``,
    the findings include thresholds that match no case of the trial. ``ended`` defaults to now.
    """
    counts = dict.fromkeys(VERDICTS, 0)
    for judgement in judgements:
        counts[judgement.verdict] += 1
    errors = case_errors(trial, runs)
    verdict: Literal["accept", "reject", "incomplete"] = "accept"
    if counts["fail"]:
        verdict = "reject"
    elif errors or not judgements or counts["pass"] < len(judgements):
        verdict = "incomplete"
    findings = _findings(trial, runs, judgements, errors)
    if requirements is not None:
        findings += _unmatched(trial, runs, requirements)
    findings = list(dict.fromkeys(findings))
    if len(findings) > MAX_FINDINGS:
        rest = len(findings) - MAX_FINDINGS
        findings = [*findings[:MAX_FINDINGS], f"and {rest} more"]
    return Verdict(
        verdict=verdict, counts=counts, findings=findings, ended=ended or datetime.now(UTC)
    )


def _unmatched(trial: Trial, runs: Sequence[Run], requirements: Requirements) -> list[str]:
    """Notes on thresholds that select no case of this trial.

    Each contract has a note of its own. A trial of a part of a site's matrix leaves out most of
    the other thresholds, so they share one.
    """
    cases = all_cases(trial, runs)
    unmatched = [
        rule
        for rule in requirements.rules
        if not any(rule.threshold.select.matches_case(case) for case in cases)
    ]
    contracts = [rule for rule in unmatched if rule.threshold.basis == "contract"]
    others = [rule for rule in unmatched if rule.threshold.basis != "contract"]
    named = [*contracts, *(others if len(others) <= MAX_NAMED else ())]
    notes = [
        f"note: the {rule.kind} {rule.id} ({rule.threshold.metric}: {rule.text()}) "
        "selects no case of this trial and was not judged"
        for rule in named
    ]
    if len(others) > MAX_NAMED:
        ids = ", ".join(rule.id for rule in others[:MAX_NAMED])
        notes.append(
            f"note: {len(others)} requirements ({ids} and {len(others) - MAX_NAMED} more) "
            "select no case of this trial and were not judged"
        )
    return notes


def _findings(
    trial: Trial, runs: Sequence[Run], judgements: Sequence[Judgement], errors: dict[Case, str]
) -> list[str]:
    by_verdict: dict[str, list[Judgement]] = {verdict: [] for verdict in VERDICTS}
    for judgement in judgements:
        by_verdict[judgement.verdict].append(judgement)
    findings = _common_nodes(by_verdict["fail"], judgements, Locations(runs))
    findings += [j.explanation for j in sorted(by_verdict["fail"], key=_severity)]
    findings += list(errors.values())
    for verdict in ("error", "inconclusive"):
        findings += [j.explanation for j in by_verdict[verdict]]
    missing: dict[Case, dict[str, None]] = defaultdict(dict)
    for j in by_verdict["missing"]:
        missing[j.case][j.metric] = None
    findings += [
        f"{case.id}: no requirement applies to {', '.join(metrics)}"
        for case, metrics in missing.items()
    ]
    if not judgements:
        findings.append(f"{trial.trial}: nothing was judged")
    return findings + _unconfirmed(trial, runs, by_verdict["pass"])


def _unconfirmed(trial: Trial, runs: Sequence[Run], passed: Iterable[Judgement]) -> list[str]:
    """Notes on figures that broke a bound at first, and passed with the reruns of their case."""
    if not any(map(trial.is_rerun, runs)):
        return []
    figures = collect(trial, runs)
    valid = valid_runs(runs)
    notes = []
    for j in passed:
        numbers = [n for n, _ in figures[j.case][j.metric][j.location].samples]
        beyond = set(out_of_bounds(j))
        reruns = {n for n in numbers if trial.is_rerun(valid[n])}
        broken = [(n, x) for n, x in zip(numbers, j.samples, strict=True) if x in beyond]
        first = [x for n, x in broken if n not in reruns]
        if not first or not reruns:
            continue
        within = reruns - {n for n, _ in broken}
        values = ", ".join(f"{number(x)} {j.unit}".strip() for x in first)
        notes.append(
            f"note: {values} broke a bound, and {len(within)} of {len(reruns)} reruns did not: "
            f"{j.explanation}"
        )
    return notes


def _severity(judgement: Judgement) -> tuple[int, float]:
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
        links_of_node = {
            j.location
            for j in judgements
            if (j.case, j.metric) == (case, metric)
            and j.location
            and node in locations.ends(j.location)
        }
        findings.append(
            f"node {node} is common to all {len(failing)} failing links of {case.id}: {metric} "
            f"({', '.join(failing)}; {len(failing)} of the {len(links_of_node)} links of {node}): "
            f"check this node, its cable and its switch port first"
        )
    return findings
