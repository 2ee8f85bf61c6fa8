"""The contract table: for each clause, what was required, what was measured, and the conclusion.

A clause is a requirement of basis ``contract``. This module draws a conclusion from judgements; it
judges no figure (``seatrial.results.judge``), and does not conclude on the trial
(``seatrial.results.verdict``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from seatrial.results.record import Case, Clause, Judgement, Trial, Waiver
from seatrial.results.requirements import Requirements, Rule, Select, fits
from seatrial.results.wording import plural

NO_CASE = "no case of the site's matrix matches its selection"
NO_FIGURE = "no figure of its cases was judged"
NOT_SELECTED = "the trial's selection leaves out all its cases"
RANKS = {"fail": 0, "error": 1, "missing": 2, "inconclusive": 3, "pass": 4}


def margin(judgement: Judgement) -> float | None:
    """Distance from the value to the nearest bound, as a fraction of the bound.

    Negative if the value breaks the bound. For a bound of zero, the distance in the figure's unit.
    None if there is no value or no bound.
    """
    if judgement.value is None:
        return None
    margins = []
    if judgement.upper is not None:
        margins.append((judgement.upper - judgement.value) / (abs(judgement.upper) or 1.0))
    if judgement.lower is not None:
        margins.append((judgement.value - judgement.lower) / (abs(judgement.lower) or 1.0))
    return min(margins, default=None)


def severity(judgement: Judgement) -> tuple[int, float]:
    """Sort key: fail, error, missing, inconclusive, pass; then the smallest margin first."""
    distance = margin(judgement)
    return RANKS[judgement.verdict], float("inf") if distance is None else distance


@dataclass
class _Tally:
    """What the judgements of one clause come to."""

    judgements: int = 0
    failed: int = 0
    errors: int = 0
    worst: Judgement | None = None
    locations: set[str] = field(default_factory=set)

    def add(self, judgement: Judgement) -> None:
        self.judgements += 1
        self.failed += judgement.verdict == "fail"
        self.errors += judgement.verdict == "error"
        if self.worst is None or severity(judgement) < severity(self.worst):
            self.worst = judgement
        if judgement.verdict != "error":
            self.locations.add(judgement.location or "")


def clauses(
    trial: Trial,
    cases: Sequence[Case],
    errors: Collection[Case],
    judgements: Iterable[Judgement],
    requirements: Requirements,
    today: date,
) -> list[Clause]:
    """The clauses of the contract, in the order of the requirements file.

    ``cases`` are those of the trial, ``errors`` those that did not run as declared. A waiver is in
    force until the end of its last day; ``today`` is the day of the judgement.
    """
    tallies = {rule.key: _Tally() for rule in requirements.contract}
    for judgement in judgements:
        applied = judgement.requirement
        if applied is not None and (tally := tallies.get((applied.id, applied.text))):
            tally.add(judgement)
    return [
        _clause(trial, cases, errors, rule, tallies[rule.key], requirements, today)
        for rule in requirements.contract
    ]


def _clause(
    trial: Trial,
    cases: Sequence[Case],
    errors: Collection[Case],
    rule: Rule,
    tally: _Tally,
    requirements: Requirements,
    today: date,
) -> Clause:
    t = rule.threshold
    selected = [case for case in cases if t.select.matches_case(case)]
    lacking = [case for case in trial.lacking if t.select.matches_case(case)]
    waiver = requirements.waivers.get(rule.key)
    clause = Clause(
        id=rule.id,
        source=t.source,
        selects=t.select.text(),
        metric=t.metric,
        required=rule.text(),
        statistic=rule.statistic,
        status="met",
        cases=len(selected),
        outside=sum(t.select.matches_case(case) for case in trial.outside),
        lacking=len(lacking),
        judgements=tally.judgements,
        failed=tally.failed,
        unit=t.unit or "",
        waiver=waiver,
    )
    if worst := tally.worst:
        clause.value, clause.unit = worst.value, worst.unit
        clause.spread, clause.lower, clause.upper = worst.spread, worst.lower, worst.upper
        clause.margin, clause.case, clause.location = margin(worst), worst.case, worst.location
    failed_cases = [case for case in selected if case in errors]
    void = _void_part(t.select, [*cases, *trial.outside], tally, bool(clause.outside))
    part = _left_out(clause, lacking)
    if worst and worst.verdict == "fail":
        clause.status, clause.reason = "not met", worst.explanation
    elif worst is None and not selected and clause.outside:
        clause.status, clause.reason = "not tested", NOT_SELECTED
    elif worst is None or worst.verdict == "error" or failed_cases:
        clause.status, clause.hole = "not tested", True
        clause.reason = _why_not_tested(selected, failed_cases, lacking, tally)
    elif void:
        clause.status, clause.hole, clause.reason = "not tested", True, void
    elif worst.verdict == "inconclusive":
        clause.status, clause.reason = "inconclusive", worst.explanation
    elif part:
        clause.status, clause.reason = "met in part", part
    if is_in_force(waiver, today) and clause.status in ("not met", "inconclusive"):
        if failed_cases or void:  # a waiver is of figures that were measured
            clause.status, clause.hole = "not tested", True
            clause.reason = void or _why_not_tested(selected, failed_cases, lacking, tally)
        else:
            clause.status = "waived"
            clause.reason = "; ".join(filter(None, (clause.reason, part)))
    return clause


def _left_out(clause: Clause, lacking: list[Case]) -> str:
    """Which cases the trial leaves out or the stack lacks, in a sentence; "" if none."""
    reasons = []
    if clause.outside:
        reasons.append(f"the trial's selection leaves out {clause.outside}")
    if lacking:
        reasons.append(f"the stack cannot run {clause.lacking} ({_names(lacking)})")
    whole = clause.outside + clause.cases + clause.lacking
    return f"of its {plural(whole, 'case')} {', and '.join(reasons)}" if reasons else ""


def _void_part(select: Select, cases: Sequence[Case], tally: _Tally, is_partial: bool) -> str:
    """The first pattern of a list that selects nothing, in a sentence; "" if each selects.

    A clause of which a part was not tested is not met by the other parts. In a partial trial the
    locations of the other cases are not known.
    """
    for key, pattern, part in select.each():
        if key != "location" and not any(map(part.matches_case, cases)):
            return f"no case of the site's matrix matches {key} {pattern!r} of its selection"
        if key != "location" or is_partial:
            continue
        if not any(fits(pattern, location) for location in tally.locations):
            return f"no figure of its cases was judged on location {pattern!r}"
    return ""


def without_waiver(clause: Clause) -> str:
    """The conclusion on a waived clause if it had no waiver."""
    return "not met" if clause.failed else "inconclusive"


def is_in_force(waiver: Waiver | None, today: date) -> bool:
    return waiver is not None and today <= waiver.expires


def _why_not_tested(
    selected: list[Case], failed: list[Case], lacking: list[Case], tally: _Tally
) -> str:
    if not selected and lacking:
        return f"the stack has no program for {_names(lacking)}"
    if not selected:
        return NO_CASE
    if failed:
        return (
            f"{len(failed)} of its {plural(len(selected), 'case')} did not run as declared "
            f"({_names(failed)})"
        )
    if tally.worst is None:
        return NO_FIGURE
    if tally.errors == 1:
        return tally.worst.explanation
    return f"{tally.errors} of its figures cannot be judged, such as: {tally.worst.explanation}"


def _names(cases: list[Case]) -> str:
    return cases[0].id if len(cases) == 1 else f"{cases[0].id} and others"
