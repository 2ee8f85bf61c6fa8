"""The verdict of a trial from its judgements and from the clauses of its contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from seatrial.results.contract import clauses
from seatrial.results.figures import all_cases, case_errors
from seatrial.results.findings import findings, selection_text, unmatched
from seatrial.results.record import Judgement, Run, Trial, Verdict
from seatrial.results.requirements import Requirements

VERDICTS = ("pass", "fail", "error", "missing", "inconclusive")


def conclude(
    trial: Trial,
    runs: Sequence[Run],
    judgements: Sequence[Judgement],
    requirements: Requirements | None = None,
    *,
    ended: datetime | None = None,
    judged: datetime | None = None,
) -> Verdict:
    """The trial's verdict, the conclusion on each clause of the contract, and the findings.

    Reject if a figure failed whose clause is not waived, even beside errors: a failure is evidence
    enough. Else incomplete if anything is an error, missing or inconclusive, if a clause was not
    tested for another reason than the user's selection, or if nothing was judged. The runs are
    checked as well, so that judgements that omit a run cannot hide it.

    ``ended`` is the end of the trial, ``judged`` the time of this judgement, which decides whether
    a waiver has expired. Both default to now.
    """
    now = datetime.now(UTC)
    today = (judged or now).date()
    requirements = requirements or Requirements()
    errors, cases = case_errors(trial, runs), all_cases(trial, runs)
    contract = clauses(trial, cases, errors, judgements, requirements, today)
    waived = {(clause.id, clause.required) for clause in contract if clause.status == "waived"}
    counts = dict.fromkeys(VERDICTS, 0)
    excused = dict.fromkeys(VERDICTS, 0)
    for judgement in judgements:
        counts[judgement.verdict] += 1
        applied = judgement.requirement
        if applied is not None and (applied.id, applied.text) in waived:
            excused[judgement.verdict] += judgement.verdict in ("fail", "inconclusive")
    verdict: Literal["accept", "reject", "incomplete"] = "accept"
    good = counts["pass"] + sum(excused.values())
    if counts["fail"] > excused["fail"] or any(clause.status == "not met" for clause in contract):
        verdict = "reject"
    elif (
        errors
        or not judgements
        or good < len(judgements)
        or any(clause.hole for clause in contract)
    ):
        verdict = "incomplete"
    sentences = findings(trial, runs, judgements, errors, contract, today)
    return Verdict(
        verdict=verdict,
        counts=counts,
        findings=sentences + unmatched(requirements, [*cases, *trial.outside]),
        clauses=contract,
        scope=_scope(trial),
        ended=ended or now,
    )


def _scope(trial: Trial) -> str:
    """The part of the site's matrix that was tested; "" if it is all of it."""
    if not trial.outside:
        return ""
    cases, whole = len(trial.cases), len(trial.cases) + len(trial.outside)
    return f"{selection_text(trial)}: {cases} of {whole} cases".removeprefix(": ")
