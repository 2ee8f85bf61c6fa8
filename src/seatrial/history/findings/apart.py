"""A place that has an effect of its own beside the cause that all changes of a night have."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

from seatrial.history.beside import Moved, place_beside
from seatrial.history.findings.cause import Cause
from seatrial.history.findings.difference import difference
from seatrial.history.findings.draft import Draft, named
from seatrial.history.findings.explanation import PLACES
from seatrial.history.findings.record import Kind, Scope
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.series import Column

_PLACES: tuple[Kind, ...] = (*PLACES, "network")  # that may have a fault of their own


def set_apart(site: SiteChanges, draft: Draft, drafts: list[Draft], found: int) -> None:
    """Take from a finding the changes of a place that has an effect of its own beside what all
    of them have in common, and add a finding of these to ``drafts``, before it."""
    if draft.cause.is_place or all(part.found != found for part in draft.parts):
        return
    if len(draft.parts) < 2:  # of the place, and of the others
        return
    while cause_and_effect := _beside(site, draft, found):
        cause, effect = cause_and_effect
        fitting = [part for part in draft.parts if cause.fits(part.column)]
        if not fitting:
            return
        place = next(
            (
                other
                for other in drafts
                if other.night == draft.night and other.cause.scope == cause.scope
            ),
            None,
        )
        if not place:
            key = f"{cause.scope.kind} {cause.scope.name}"
            finding = named(site.table, draft.night, found, key)
            place = Draft(draft.night, found, finding, cause, [])
            drafts.insert(drafts.index(draft), place)
        place.cause = _either(place.cause, cause)
        place.parts += fitting
        place.finding.beside = draft.finding.id, effect
        draft.parts = [part for part in draft.parts if part not in fitting]
        draft.apart.append(cause)


def _either(cause: Cause, other: Cause) -> Cause:
    """Two causes of the same place, for the series of both."""
    return replace(cause, fits=lambda column: cause.fits(column) or other.fits(column))


def _beside(site: SiteChanges, draft: Draft, found: int) -> tuple[Cause, float] | None:
    """The place with an effect of its own among what fits the cause of a finding, and how large
    that is. None: there is none, or the finding would have nothing else."""
    table = site.table
    moved: dict[Column, tuple[float, float]] = {}
    for column in draft.compared(site):
        size, error = difference(column, draft.night, found)
        if draft.cause.fits(column) and math.isfinite(error):
            moved[column] = -size if column.series.better == "higher" else size, error
    best = None
    for kind in _PLACES:
        groups = {column: _comparable(column, kind) for column in moved}
        place = place_beside(
            [
                Moved(*moved[column], groups[column], names)
                for column in moved
                if (names := table.names[column][kind])
            ]
        )
        if place and (not best or place.gain > best[0].gain):
            best = place, Scope(kind, place.name), groups
    if not best:
        return None
    place, scope, groups = best
    middle = place.common + place.own / 2
    at = {
        one for one in moved
        if table.includes(scope, one) and (
            groups[one] in place.groups if table.names[one][scope.kind]
            else (moved[one][0] > middle) == (place.own > 0)
        )
    }  # fmt: skip
    if all(part.column in at for part in draft.parts):
        return None
    return Cause("place", scope, at.__contains__), place.own


def _comparable(column: Column, kind: Kind) -> Hashable:
    """What the series have in common among which a place is compared with the others."""
    case = column.series.case
    return (replace(case, network="") if kind == "network" else case), column.series.metric
