"""Joins the changes of each night that have a cause in common to a finding.

A finding is made on the night that first shows it, from what was known then: later nights add
series to it and make its levels more certain, and it keeps its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seatrial.history.findings.apart import set_apart
from seatrial.history.findings.cause import cause_of, new_nodes
from seatrial.history.findings.changed_conditions import AROUND
from seatrial.history.findings.draft import Draft, named
from seatrial.history.findings.levels_of_series import Part
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.findings.table import SiteTable

_NEAR = 2  # nights by which the begin of a level is mistaken, beside its interval


def grouped(site: SiteChanges) -> list[Draft]:
    """The findings of all changes of a site, in the order of the nights that showed them."""
    table = site.table
    parts = [part for of_column in site.every.values() for part in of_column]
    drafts: list[Draft] = []
    for found in sorted({part.found for part in parts} | set(table.swaps)):
        rest = [part for part in parts if part.found == found]
        for draft in drafts:
            _correct(site, draft, rest, found)
            while (left := _extended(site, draft, rest, found)) != rest:
                rest = left
        if found in table.swaps:
            drafts.append(_draft(site, found, found, []))
        for draft in _drafts(site, rest, found):
            if swap := next((known for known in drafts if _is_of_swap(table, draft, known)), None):
                swap.parts += draft.parts
            else:
                drafts.append(draft)
        for draft in [*drafts]:
            set_apart(site, draft, drafts, found)
    return drafts


# --- new findings ----------------------------------------------------------------------


def _drafts(site: SiteChanges, parts: list[Part], found: int) -> Iterator[Draft]:
    """Findings of changes that one night showed."""
    while parts:
        night = _night(site.table, parts)
        of_night = [part for part in parts if part.can_be_of(night)]
        parts = [part for part in parts if not part.can_be_of(night)]
        while of_night:
            draft = _draft(site, night, found, of_night)
            taken = set(draft.parts)
            of_night = [part for part in of_night if part not in taken]
            near = {part for part in parts if _is_near(site.table, part, draft)}
            draft.parts += [part for part in parts if part in near]
            parts = [part for part in parts if part not in near]
            yield draft


def _night(table: SiteTable, parts: Sequence[Part]) -> int:
    """The night of most changes; of several the one on which a version changed, or the
    likeliest."""
    likeliest = Counter(part.at for part in parts)

    def key(night: int) -> tuple[int, bool, int, int]:
        of_night = [part for part in parts if part.can_be_of(night)]
        cases = {part.column.series.case for part in of_night}
        versions = any(table.conditions.changed(case, night) for case in cases)
        return len(of_night), versions, likeliest[night], -night

    return max({n for part in parts for n in range(part.low, part.high + 1)}, key=key)


def _draft(site: SiteChanges, night: int, found: int, parts: Sequence[Part]) -> Draft:
    """The finding of as many changes of a night as have something in common. Without changes: that
    of a swap."""
    cause = cause_of(site, night, found, parts) if parts else new_nodes(site.table, night)
    fitting = [part for part in parts if cause.fits(part.column)]
    key = fitting[0].change.series.name if fitting else "swap"
    return Draft(night, found, named(site.table, night, found, key), cause, fitting)


def _is_of_swap(table: SiteTable, draft: Draft, swap: Draft) -> bool:
    """Whether a finding has the changes of the nodes that came in the place of others."""
    if swap.cause.by != "swap" or not draft.cause.is_place:
        return False
    near = abs(table.number(draft.night) - table.number(swap.night)) <= _NEAR
    nodes = table.swaps[swap.night][1]
    return near and (draft.cause.by == "swap" or draft.cause.scope.name in nodes)


# --- findings that are known -----------------------------------------------------------


def _extended(site: SiteChanges, draft: Draft, parts: list[Part], found: int) -> list[Part]:
    """Add the changes that have the night and the cause of a finding. Returns the others."""
    if not draft.parts:  # a swap that changed no figure until now: see _is_of_swap
        return parts
    table = site.table
    possible = [part for part in parts if part.can_be_of(draft.night)]
    possible += [
        part for part in parts
        if not part.can_be_of(draft.night)
        and (_is_at(table, part, draft) or _is_near(table, part, draft))
    ]  # fmt: skip
    if not possible:
        return parts
    # With more nights and more changes, the cause may be another one that has all of them.
    cause = cause_of(site, draft.night, found, [*draft.parts, *possible])
    fits = draft.cause.fits
    if draft.finding.beside or draft.cause.by == "swap":
        pass  # the night may have a common cause, and this place has another one
    elif all(cause.fits(part.column) for part in draft.parts):
        if cause.explains or not draft.cause.explains:
            draft.cause, fits = cause, cause.fits
    elif cause.explains and not draft.cause.explains:
        possible = [part for part in possible if not cause.fits(part.column)]
    taken = {part for part in possible if fits(part.column)}
    draft.parts += [part for part in possible if part in taken]
    return [part for part in parts if part not in taken]


def _is_at(table: SiteTable, part: Part, draft: Draft) -> bool:
    """Whether a change is at the node or link of a finding, and began before that was found:
    of a drift, each series shows another night."""
    if draft.cause.is_place:
        place = draft.cause.fits(part.column)
    else:
        links = [table.names[one.column]["link"] for one in draft.parts]
        place = bool(links) and all(
            link and link == table.names[part.column]["link"] for link in links
        )
    return place and part.low <= draft.found and part.found - draft.found <= AROUND


def _is_near(table: SiteTable, part: Part, draft: Draft) -> bool:
    """Whether a change next to the night of a finding is of its cause, and no other version
    changed when it began."""
    night, low, high = (table.number(n) for n in (draft.night, part.low, part.high))
    return (
        draft.cause.explains and draft.cause.fits(part.column)
        and low - _NEAR <= night <= high + _NEAR
        and not any(table.changed_for(part.column, n) for n in range(part.low, part.high + 1))
    )  # fmt: skip


def _correct(site: SiteChanges, draft: Draft, parts: Sequence[Part], found: int) -> None:
    """Move a finding without a version to a night beside its own, if as many changes or more
    began then, and their cause has all of its own: a version, or any if the finding has none.

    The first night of a new level may show a change together with the night before, if that was
    a little off by chance."""
    table = site.table
    if not draft.parts or draft.cause.by == "version" or draft.night in table.swaps:
        return
    if draft.finding.beside or draft.cause.by == "swap":
        return
    at = table.number(draft.night)
    for night in table.own[max(0, at - _NEAR) : at + _NEAR + 1]:
        of_night = [part for part in parts if part.can_be_of(night)]
        if night == draft.night or len(of_night) < len(draft.parts):
            continue
        cause = cause_of(site, night, found, [*draft.parts, *of_night])
        better = cause.by == "version" if draft.cause.explains else cause.explains
        if better and all(cause.fits(part.column) for part in draft.parts):
            draft.night, draft.cause = night, cause
            return
