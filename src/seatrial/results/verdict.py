"""The verdict of a trial from its judgements and from the clauses of its contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from seatrial.base.memory import no_collections
from seatrial.results.contract import clauses
from seatrial.results.figures import all_cases, case_errors
from seatrial.results.findings import findings, selection_text, unmatched
from seatrial.results.folder import Results
from seatrial.results.record import Clause, Judgement, Run, Trial, Verdict
from seatrial.results.requirements import Requirements
from seatrial.results.wording import plural

VERDICTS = ("pass", "fail", "error", "missing", "inconclusive")
EXCUSABLE = ("fail", "inconclusive")  # by a waiver


@no_collections()
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
            excused[judgement.verdict] += judgement.verdict in EXCUSABLE
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
        findings=sentences + unmatched(requirements, [*cases, *trial.outside], trial.lacking),
        clauses=contract,
        scope=_scope(trial, contract),
        ended=ended or now,
    )


def _scope(trial: Trial, contract: list[Clause]) -> str:
    """The part of the site's matrix and of the contract that was tested; "" if it is all."""
    parts = []
    if trial.outside:
        cases, whole = len(trial.cases), len(trial.cases) + len(trial.outside)
        parts.append(f"{selection_text(trial)}: {cases} of {whole} cases".removeprefix(": "))
    if trial.site_repeats and trial.repeats < trial.site_repeats:
        parts.append(f"{trial.repeats} of {plural(trial.site_repeats, 'repeat')}")
    if trial.site_rounds and trial.rounds < trial.site_rounds:
        parts.append(f"{trial.rounds} of {plural(trial.site_rounds, 'round')}")
    if trial.site_reruns and trial.reruns < trial.site_reruns:
        parts.append(f"at most {trial.reruns} of {plural(trial.site_reruns, 'rerun')}")
    if lacking := [clause for clause in contract if clause.lacking]:
        parts.append(f"{plural(len(lacking), 'clause')} with cases that the stack cannot run")
    return ", ".join(parts)


def contradiction(results: Results) -> str:
    """Why a recorded acceptance cannot be that of its records; "" if it can.

    A verdict that ``conclude`` makes is never contradicted. A file can be edited.
    """
    verdict = results.verdict
    if verdict is None or verdict.verdict != "accept":
        return ""
    waived = {
        (clause.id, clause.required) for clause in verdict.clauses if clause.status == "waived"
    }
    bad = dict.fromkeys(VERDICTS[1:], 0)
    for judgement in results.judgements:
        applied = judgement.requirement
        excused = applied is not None and (applied.id, applied.text) in waived
        if judgement.verdict in bad:
            bad[judgement.verdict] += not (excused and judgement.verdict in EXCUSABLE)
    parts = [f"{plural(count, 'judgement')}: {word}" for word, count in bad.items() if count]
    open_clauses = [c for c in verdict.clauses if c.hole or c.status in ("not met", "inconclusive")]
    parts += [f"{c.source} ({c.id}): {c.status}" for c in open_clauses]
    parts += case_errors(results.trial, results.runs).values()
    return "; ".join(parts) if results.judgements else "nothing was judged"
