"""The contract table for all formats: its rows, and its counts in words."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date
from pathlib import Path

from seatrial.base.files import regular_below
from seatrial.report.text import CLAUSE_STATUSES, Status, number, quantity, sided
from seatrial.results.contract import is_in_force, without_waiver
from seatrial.results.folder import RESULTS_FILE, Results
from seatrial.results.record import Clause, Judgement
from seatrial.results.wording import plural

WIDEST = 10  # a greater margin, a fraction of the bound, is not shown in digits


@dataclass(frozen=True)
class Row:
    """One clause, as it is shown."""

    clause: Clause
    status: Status
    bound: str  # the worst figure's, in its unit; "" if the required text says the same
    measured: str
    worst_of: str  # "median of 3 runs, worst of 12 figures, n1-n3 of links.tcp.default.4n"
    spread: str
    margin: str
    note: str
    judgement: int | None  # index of the worst judgement in the results


def rows(results: Results) -> list[Row]:
    """The clauses in the order of the requirements file."""
    if results.verdict is None:
        return []
    indices = _indices(results)
    day = (results.verdict.judged or results.verdict.ended).astimezone(UTC).date()
    made = []
    for clause in results.verdict.clauses:
        index = indices.get(_key(clause))
        runs = len(results.judgements[index].samples) if index is not None else 0
        made.append(_row(clause, index, runs, day))
    return made


def in_words(clauses: list[Clause]) -> str:
    """``4 clauses: 1 not met, 3 met``; "" if there is none."""
    if not clauses:
        return ""
    counts: Counter[str] = Counter(clause.status for clause in clauses)
    parts = [f"{counts[word]} {word}" for word in CLAUSE_STATUSES if counts[word]]
    return f"{plural(len(clauses), 'clause')}: {', '.join(parts)}"


def digest(folder: Path) -> str:
    """SHA-256 of results.jsonl in hexadecimal; "" if there is no such file."""
    try:
        with regular_below(folder, Path(RESULTS_FILE)) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def _row(clause: Clause, judgement: int | None, runs: int, day: date) -> Row:
    relative = " x " in clause.required  # its bound was measured, too
    worst_of = f"{clause.statistic} of {plural(runs, 'run')}" if runs else clause.statistic
    if clause.judgements > 1:
        count, kind = (
            clause.failed or clause.judgements,
            "failed figure" if clause.failed else "figure",
        )
        worst_of += f", worst of {plural(count, kind)}"
    if clause.case is not None:
        location = f"{clause.location} of " if clause.location else ""
        worst_of += f", {location}{clause.case.id}"
    return Row(
        clause=clause,
        status=CLAUSE_STATUSES[clause.status],
        bound=sided(clause.lower, clause.upper, clause.unit, "") if relative else "",
        measured=quantity(clause.value, clause.unit),
        worst_of=worst_of if clause.value is not None else "",
        spread="–"
        if clause.spread is None
        else f"{number(clause.spread, 2)} {clause.unit}".rstrip(),
        margin=_margin(clause.margin),
        note=_note(clause, day),
        judgement=judgement,
    )


def _margin(fraction: float | None) -> str:
    if fraction is None:
        return "–"
    if abs(fraction) > WIDEST:
        return f"{'> +' if fraction > 0 else '< -'}{100 * WIDEST} %"
    return f"{'+' if fraction > 0 else ''}{number(100 * fraction, 3)} %"


def _note(clause: Clause, day: date) -> str:
    parts = []
    if clause.failed and clause.judgements > 1:
        parts.append(f"{clause.failed} of {clause.judgements} figures failed")
    if clause.status in ("not tested", "met in part", "inconclusive"):
        parts.append(clause.reason)
    if clause.outside and clause.status not in ("not tested", "met in part"):  # the reason has it
        cases = plural(clause.outside + clause.cases, "case")
        parts.append(f"the trial's selection leaves out {clause.outside} of its {cases}")
    if waiver := clause.waiver:
        until = f"until {waiver.expires}"
        if clause.status == "waived":
            verb = "waived"
        elif is_in_force(waiver, day):
            verb = "a waiver is on record,"
        else:
            verb, until = "a waiver", f"expired on {waiver.expires}"
        parts.append(f"{verb} by {waiver.by} {until}: {waiver.reason}")
    if clause.status == "waived":
        parts.append(f"without the waiver it is {without_waiver(clause)}: {clause.reason}")
    return "; ".join(parts)


def _key(clause: Clause) -> tuple[object, ...]:
    return clause.id, clause.required, clause.case, clause.location, clause.value


def _indices(results: Results) -> dict[tuple[object, ...], int]:
    """Where the worst judgement of each clause is in the results."""
    assert results.verdict is not None
    wanted = {_key(clause) for clause in results.verdict.clauses}
    indices: dict[tuple[object, ...], int] = {}
    for index, j in enumerate(results.judgements):
        if j.requirement is None or j.requirement.basis != "contract":
            continue
        if (key := _judged(j)) in wanted:
            indices.setdefault(key, index)
    return indices


def _judged(j: Judgement) -> tuple[object, ...]:
    assert j.requirement is not None
    return j.requirement.id, j.requirement.text, j.case, j.location, j.value
