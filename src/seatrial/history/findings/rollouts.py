"""A version that came to one node after the other: the findings of its nights are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seatrial.history.conditions import is_of_case, value_on, values_of
from seatrial.history.findings.cause import of_condition
from seatrial.history.findings.draft import Draft
from seatrial.history.findings.record import Condition
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.findings.table import SiteTable
from seatrial.results.record import Case


class _Nights:
    """The nights on which versions came to other nodes."""

    def __init__(self, table: SiteTable):
        self._table = table
        self._known: dict[tuple[Case, str, int], list[int]] = {}

    def of(self, case: Case, name: str, until: int) -> list[int]:
        """Those of a version of a case, to the night ``until``, from one value of all nodes to
        another one. []: the last is not such a night."""
        key = case, name, until
        if key not in self._known:
            self._known[key] = self._find(case, name, until)
        return self._known[key]

    def _find(self, case: Case, name: str, until: int) -> list[int]:
        at, nights = self._table.conditions.at, self._table.nights[case]
        end = int(np.searchsorted(nights, until))
        if not 0 < end < len(nights) or nights[end] != until:
            return []
        result: list[int] = []
        both: frozenset[str] = frozenset()
        text = now = at(case, until).get(name, "none")
        for number in range(end, 0, -1):
            before = at(case, int(nights[number - 1])).get(name, "none")
            if before == text:
                if number == end:
                    return []
                continue
            values = values_of(before)
            both = both or values | values_of(text)
            if len(both) != 2 or not values <= both:
                return []
            result.append(int(nights[number]))
            if len(values) == 1:
                return result[::-1] if values_of(now) != values else []
            text = before
        return []


def joined(site: SiteChanges, drafts: Sequence[Draft]) -> list[Draft]:
    """Join the findings of the nights on which a version came to one node after the other."""
    nights = _Nights(site.table)
    result: list[Draft] = []
    for draft in drafts:
        for first in result if draft.parts else ():
            if conditions := _rollout(site.table, nights, first, draft):
                first.parts += draft.parts
                first.rollout, first.until = conditions, max(first.until, draft.night)
                break
        else:
            result.append(draft)
    for draft in result:
        if draft.rollout:
            case, name = draft.parts[0].column.series.case, draft.rollout[0].name
            low = min(part.low for part in draft.parts)
            later = [night for night in nights.of(case, name, draft.until) if night >= low]
            draft.night = min(later or [draft.night])
            _set_version(site, draft, name)
    return result


def _set_version(site: SiteChanges, draft: Draft, name: str) -> None:
    """Let a finding be of all cases in which a version changed that night."""
    changed = site.table.changed_for(draft.parts[0].column, draft.night)
    if begun := next((condition for condition in changed if condition.name == name), None):
        draft.cause = of_condition(site, begun, draft.night)


def _rollout(table: SiteTable, nights: _Nights, first: Draft, later: Draft) -> list[Condition]:
    """The versions that came to other nodes on the night of ``later`` than on that of
    ``first``, from the value of all nodes before. []: there is none, or it is not the cause."""
    if not first.parts or later.night <= first.night or first.is_worse != later.is_worse:
        return []
    conditions = table.conditions
    result: dict[str, list[Condition]] = {}
    known = {condition.name for condition in first.rollout}  # of all its parts, as they were joined
    parts = [
        (draft.night, part)
        for draft in (first, later)
        for part in (() if draft.rollout else draft.parts)
    ]
    for night, part in parts:
        case = part.column.series.case
        for name, text in conditions.at(case, later.night).items():
            if is_of_case(name):
                continue
            at_nights = nights.of(case, name, later.night)
            if first.night in at_nights and night in at_nights and len(at_nights) > 1:
                before = conditions.before(case, min(at_nights)).get(name, "none")
                ends = table.names[part.column]["node"]
                values = {value_on(conditions.at(case, night)[name], node) for node in ends}
                if not values or values - values_of(before):
                    result.setdefault(name, []).append(Condition(name, before, text))
    return [
        conditions_of[-1] for name, conditions_of in result.items()
        if len(conditions_of) == len(parts) and (not known or name in known)
    ]  # fmt: skip
