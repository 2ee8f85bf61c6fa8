"""Which judgements report.html lists one by one, and the groups of the others.

A trial of a thousand nodes has a million judgements. All of them are in results.jsonl; the page
lists the worst of each group, and sums up the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field

from seatrial.report.text import number
from seatrial.results.contract import severity
from seatrial.results.folder import Results
from seatrial.results.record import Case, Judgement
from seatrial.results.wording import plural

LISTED = 1500  # judgements that a page lists at most, apart from those that it must
Row = tuple[int, Judgement]  # index in the results, which is the anchor


@dataclass(frozen=True)
class Rest:
    """The judgements of one verdict, case, metric and requirement that are not listed."""

    case: Case
    metric: str
    verdict: str
    requirement: str
    text: str  # "4032 more, from 1.2 to 1.4 us"


@dataclass
class Listing:
    bad: list[Row] = field(default_factory=list)  # worst first
    passed: list[Row] = field(default_factory=list)
    rest: list[Rest] = field(default_factory=list)
    shown: set[int] = field(default_factory=set)  # indices of the listed judgements


def listing(results: Results, needed: Collection[int] = ()) -> Listing:
    """The listed judgements; ``needed`` are indices that must be among them."""
    groups: dict[tuple[str, Case, str, str], list[int]] = {}
    for index, j in enumerate(results.judgements):
        requirement = j.requirement.id if j.requirement else ""
        groups.setdefault((j.verdict, j.case, j.metric, requirement), []).append(index)
    few = len(results.judgements) <= LISTED
    most = max(1, LISTED // max(1, len(groups)))
    made = Listing()
    for (verdict, case, metric, requirement), members in groups.items():
        listed = members
        if not few and len(members) > most:
            listed = heapq.nsmallest(most, members, key=lambda i: severity(results.judgements[i]))
            listed = sorted({*listed, *(i for i in members if i in needed)})
        rows = [(i, results.judgements[i]) for i in listed]
        (made.passed if verdict == "pass" else made.bad).extend(rows)
        made.shown.update(listed)
        if len(listed) < len(members):
            left = [results.judgements[i] for i in members if i not in made.shown]
            made.rest.append(Rest(case, metric, verdict, requirement, _sum_up(left)))
    made.bad.sort(key=lambda row: severity(row[1]))
    return made


def _sum_up(judgements: list[Judgement]) -> str:
    values = [j.value for j in judgements if j.value is not None]
    text = f"{plural(len(judgements), 'judgement')} more"
    if not values:
        return text
    low, high, unit = number(min(values)), number(max(values)), judgements[0].unit
    return f"{text}, {low} {unit}" if low == high else f"{text}, from {low} to {high} {unit}"
