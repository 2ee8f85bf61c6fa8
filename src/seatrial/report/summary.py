"""The summary of a trial, for all formats: headline, counts, and the matrix of cases.

The verdict is the one in the records. An interrupted trial has none and is shown as incomplete.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from seatrial.report.contract import in_words
from seatrial.report.text import (
    SEVERITY,
    STATUSES,
    Status,
    between,
    bound,
    check_name,
    moment,
    quantity,
)
from seatrial.results.folder import Results
from seatrial.results.record import Case, Judgement, Run
from seatrial.results.wording import plural


@dataclass
class CaseView:
    """All records of one case. It is complete before any of its properties is read."""

    case: Case
    runs: list[Run] = field(default_factory=list)
    judgements: list[tuple[int, Judgement]] = field(default_factory=list)  # with index in Results
    planned: bool = False

    @cached_property
    def status(self) -> Status:
        if self.worst:
            return STATUSES[self.worst.verdict]
        if any(run.outcome == "error" for run in self.runs):
            return STATUSES["error"]
        return STATUSES["unjudged" if self.runs else "notrun"]

    @cached_property
    def worst(self) -> Judgement | None:
        """The judgement that gave the case its status."""
        return min((j for _, j in self.judgements), key=lambda j: SEVERITY[j.verdict], default=None)

    @cached_property
    def bad(self) -> list[tuple[int, Judgement]]:
        """The judgements that did not pass."""
        return [row for row in self.judgements if row[1].verdict != "pass"]

    @cached_property
    def by_location(self) -> dict[str, dict[str | None, tuple[int, Judgement]]]:
        """By metric and location; of several judgements on a figure, the worst."""
        by_metric: dict[str, dict[str | None, tuple[int, Judgement]]] = {}
        for row in self.judgements:
            judgement = row[1]
            of_metric = by_metric.setdefault(judgement.metric, {})
            before = of_metric.setdefault(judgement.location, row)
            if SEVERITY[judgement.verdict] < SEVERITY[before[1].verdict]:
                of_metric[judgement.location] = row
        return by_metric

    @property
    def seconds(self) -> float:
        """Total time of the jobs of this case, in s."""
        spans = [between(run.job.started, run.job.ended) for run in self.runs]
        return sum(span.total_seconds() for span in spans if span is not None)

    @property
    def hint(self) -> str:
        """The reason of the status, as text for a hover."""
        lines = [f"{self.case.id}: {self.status.word}"]
        worst = self.worst
        if worst and worst.metric:
            location = f" at {worst.location}" if worst.location else ""
            required = f", required {bound(worst)}" if bound(worst) != "–" else ""
            lines.append(f"{worst.metric}{location}: {quantity(worst.value, worst.unit)}{required}")
        elif worst:
            lines.append(worst.explanation)
        failed = [run for run in self.runs if run.outcome == "error"]
        if failed:
            lines.append(f"{len(failed)} of {len(self.runs)} runs in error: {failed[0].reason}")
        if self.judgements:
            passed = len(self.judgements) - len(self.bad)
            lines.append(f"{passed} of {len(self.judgements)} judgements passed")
        elif not self.runs:
            lines.append("planned, but not run")
        return "\n".join(lines)


def gather(results: Results) -> dict[Case, CaseView]:
    """All cases: the planned ones first, then other cases that were run, then that were judged."""
    views: dict[Case, CaseView] = {}

    def view(case: Case) -> CaseView:
        return views.setdefault(case, CaseView(case))

    for case in results.trial.cases:
        view(case).planned = True
    for run in results.runs:
        view(run.case).runs.append(run)
    of_case, last = None, None
    for index, judgement in enumerate(results.judgements):
        if of_case is None or judgement.case is not last:  # a million have a few cases, in turn
            of_case, last = view(judgement.case), judgement.case
        of_case.judgements.append((index, judgement))
    return views


@dataclass(frozen=True)
class Matrix:
    """Cases by row (check, variant, nodes) and column (transport, profile).

    A transport on several networks has columns for each: ``openmpi-tcp@rail2``.

    The number of nodes belongs to the row: most checks run at one size, and a column per size
    would leave most cells empty.
    """

    columns: list[tuple[str, str]]
    rows: list[tuple[str, list[CaseView | None]]]  # None: no such case

    @property
    def transports(self) -> list[tuple[str, int]]:
        """Each transport with its number of columns."""
        return list(Counter(transport for transport, _ in self.columns).items())


def matrix(views: dict[Case, CaseView]) -> Matrix:
    """The matrix, its rows and columns in the order of the cases."""
    transports: dict[str, dict[str, None]] = {}
    rows: dict[tuple[str, str, int], dict[tuple[str, str], CaseView]] = {}
    for case, view in views.items():
        transports.setdefault(case.route, {})[case.profile] = None
        row = rows.setdefault((case.check, case.variant, case.nodes), {})
        row[case.route, case.profile] = view
    columns = [(t, p) for t, profiles in transports.items() for p in profiles]
    named = []
    for cells in rows.values():
        case = next(iter(cells.values())).case
        name = f"{check_name(case)} · {case.nodes} node{'s' if case.nodes != 1 else ''}"
        named.append((name, [cells.get(column) for column in columns]))
    return Matrix(columns, named)


@dataclass(frozen=True)
class Headline:
    """The verdict in one word and one sentence."""

    key: str  # accept, reject, incomplete
    word: str  # such as ACCEPT, ACCEPT OF PART
    why: str
    ended: datetime | None
    took: timedelta | None
    counts: dict[str, int]  # of judgements by verdict, worst first, those that occur


# The predicate of a sentence about ``n`` judgements with a verdict.
_HAPPENED = {
    "fail": "failed",
    "error": "ended in error",
    "missing": "had no requirement",
    "inconclusive": "could not be decided",
}


def headline(results: Results, views: dict[Case, CaseView]) -> Headline:
    """The headline. It counts the judgements, even if the recorded verdict contradicts them."""
    tally: Counter[str] = Counter(judgement.verdict for judgement in results.judgements)
    counts = {key: tally[key] for key in STATUSES if tally[key]}
    total = len(results.judgements)
    notrun = sum(not view.runs and not view.judgements for view in views.values())
    verdict = results.verdict
    if verdict is None:
        ran = sum(bool(view.runs) for view in views.values())
        key, word = "incomplete", "INCOMPLETE"
        why = (
            f"The trial was interrupted before its verdict: {ran} of {plural(len(views), 'case')} "
            f"had run, with {plural(total, 'judgement')}."
        )
    else:
        key, word = verdict.verdict, verdict.word
        bad = [f"{counts[k]} {_HAPPENED[k]}" for k in counts if k != "pass"]
        if notrun:
            bad.append(f"{plural(notrun, 'planned case')} did not run")
        waived = _waived(results)
        holes = sum(clause.hole for clause in verdict.clauses)
        if key == "incomplete" and holes and not bad:
            why = f"{plural(total, 'judgement')} passed; {plural(holes, 'clause')} not tested."
        elif key != "accept":
            why = f"Of {plural(total, 'judgement')}, {', '.join(bad) or 'none is bad'}"
            rule = "; a trial is accepted only if every judgement passed."
            why += "." if key == "reject" else rule
        elif not bad:
            why = f"All {plural(total, 'judgement')} passed."
        elif waived == total - counts.get("pass", 0) and not notrun:
            why = f"Of {plural(total, 'judgement')}, {', '.join(bad)}, all of waived clauses."
        else:
            # The report shows the recorded verdict, and must not hide the contradiction.
            why = f"The recorded verdict is accept, but of the judgements {', '.join(bad)}."
        contract = in_words(verdict.clauses)
        why += f" Contract of {contract}." if contract else ""
        why += f" Only a part was tested ({verdict.scope})." if verdict.scope else ""
    took = between(results.trial.started, results.ended)
    return Headline(key, word, why, results.ended, took, counts)


def _waived(results: Results) -> int:
    """The number of judgements that failed or were inconclusive on a waived clause."""
    assert results.verdict is not None
    waived = {(c.id, c.required) for c in results.verdict.clauses if c.status == "waived"}
    return sum(
        (j.requirement.id, j.requirement.text) in waived
        for j in results.judgements
        if j.requirement and j.verdict in ("fail", "inconclusive")
    )


def verdict_history(results: Results) -> list[str]:
    """A sentence on each verdict of the trial, if there are several: which, when, by whom."""
    if len(results.verdicts) < 2 and (not results.verdict or results.verdict.number == 1):
        return []
    sentences = []
    for verdict in results.verdicts:
        kind = "the trial's own" if verdict.number == 1 else "judged later"
        here = ", shown here" if verdict is results.verdict else ""
        text = f"Verdict {verdict.number} ({kind}{here}): {verdict.word}"
        text += f", {moment(verdict.judged or verdict.ended)}"
        text += f", by {verdict.user}" if verdict.user else ""
        text += f", seatrial {verdict.seatrial}" if verdict.seatrial else ""
        text += f", with {shlex.join(verdict.command)}" if verdict.command else ""
        if verdict.requirements:
            text += f", requirements {verdict.requirements} (SHA-256 {verdict.requirements_sha256})"
        sentences.append(text)
    return sentences


@dataclass
class Finding:
    """A finding, and what it is about: one judgement, one clause, or else the case it names."""

    sentence: str
    judgement: int | None = None  # index in the results
    clause: int | None = None  # index in the contract
    case: CaseView | None = None


def findings_of(results: Results, views: dict[Case, CaseView]) -> list[Finding]:
    """The findings of the verdict.

    In the records a finding is a sentence. It names a clause by its source and line, ends in the
    explanation of a judgement, or names a case. Any other, such as a note on a requirement that
    selects no case, is about nothing that the page has.
    """
    if results.verdict is None:
        return []
    names = [f"{clause.source} ({clause.id})" for clause in results.verdict.clauses]
    made = [Finding(sentence) for sentence in results.verdict.findings]
    ends: dict[str, list[Finding]] = {}  # the ends of sentences that may be an explanation
    for finding in made:
        named = [index for index, name in enumerate(names) if name in finding.sentence]
        finding.clause = named[0] if named else None
        if not named:
            for end in _ends(finding.sentence):
                ends.setdefault(end, []).append(finding)
    for index, judgement in enumerate(results.judgements if ends else []):
        if judgement.metric:
            for finding in ends.pop(judgement.explanation, ()):
                finding.judgement = index if finding.judgement is None else finding.judgement
    ids = [(view.case.id, view) for view in views.values()]
    for finding in made:
        at = [(finding.sentence.find(id), -len(id), view) for id, view in ids]
        # A sentence begins with the judged case; the case it was compared with follows.
        first = min(
            (found for found in at if found[0] >= 0), key=lambda found: found[:2], default=None
        )
        finding.case = first[2] if first else None
    return made


def _ends(sentence: str) -> list[str]:
    """The sentence, and what follows each colon in it."""
    parts = sentence.split(": ")
    return [": ".join(parts[number:]) for number in range(len(parts)) if parts[-1]]


def slowest(views: dict[Case, CaseView]) -> CaseView | None:
    """The case whose jobs took longest; None if no time is on record."""
    view = max(views.values(), key=lambda v: v.seconds, default=None)
    return view if view and view.seconds > 0 else None
