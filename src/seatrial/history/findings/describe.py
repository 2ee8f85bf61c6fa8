"""What a finding is of: its nights, what its series have in common, and what else changed."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.history import places
from seatrial.history.conditions import NODES
from seatrial.history.findings import explanation
from seatrial.history.findings.draft import Draft
from seatrial.history.findings.record import Finding, Scope
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.results.locations import Locations, natural

_OF_PLACE = 0.8  # of the series of a drift that are at a node or link


def described(site: SiteChanges, drafts: Sequence[Draft]) -> list[Finding]:
    """The findings, whole."""
    for draft in drafts:
        draft.finding.changes = sorted(
            (part.change for part in draft.parts),
            key=lambda change: (change.informative, change.gain, change.series.name),
        )
        draft.finding.listed = draft.finding.changes
        _describe(site, draft)
    for night in {draft.night for draft in drafts}:
        of_night = [draft for draft in drafts if draft.night == night and draft.parts]
        pair = _exchanged(of_night, site.table.locations)
        for draft in of_night:
            draft.finding.exchanged = pair
    return [draft.finding for draft in drafts]


def _describe(site: SiteChanges, draft: Draft) -> None:
    """Say between which trials the changes lie, what they have in common, and what else changed
    that night."""
    table, finding, columns = site.table, draft.finding, draft.columns
    finding.first, finding.last = table.trials[draft.night], table.trial_before(draft.night)
    waits = [table.waits.get((finding.first.id, column.series.case.id)) for column in columns]
    finding.waited = max((wait for wait in waits if wait is not None), default=None)
    finding.compared = len(site.compared(draft.night))
    finding.scope = _scope(site, draft)
    if draft.drift:
        finding.drift, end = True, draft.drift.end
        finding.until = table.trials[table.own[end]] if end + 1 < len(table.own) else None
        return
    each = (
        condition
        for part in draft.parts
        for condition in table.changed_for(part.column, draft.night)
    )
    names = {condition.name for condition in draft.rollout}
    finding.conditions = [
        condition for condition in dict.fromkeys(each) if condition.name not in names
    ]
    if draft.rollout:
        finding.conditions = [*draft.rollout, *finding.conditions]
        finding.until = table.trials[draft.until]
    if draft.cause.by == "swap":
        finding.swapped = table.swaps[draft.night]
        if not draft.parts:
            every = table.conditions.by_night(table.nights).get(draft.night, {})
            finding.conditions = [condition for condition in every if condition.name != NODES]


def _scope(site: SiteChanges, draft: Draft) -> Scope:
    table, columns = site.table, draft.columns
    if draft.drift:
        return _scope_of_drift(site, draft)
    if not columns or draft.cause.by != "night":
        return draft.cause.scope
    others = draft.compared(site)
    if nodes := explanation.several_nodes(table, others, columns):
        return Scope("nodes", ", ".join(sorted(nodes, key=natural)))
    return explanation.common(table, others, columns)


def _scope_of_drift(site: SiteChanges, draft: Draft) -> Scope:
    """The node or link that most of the series are at; else what all have in common."""
    table, columns = site.table, draft.columns
    compared = site.compared(min(part.at for part in draft.parts))
    place, _ = explanation.explanation(table, compared, columns, explanation.PLACES)
    if place and sum(table.includes(place, column) for column in columns) >= _OF_PLACE * len(
        columns
    ):
        return place
    return explanation.common(table, compared, columns)


def _exchanged(drafts: Sequence[Draft], locations: Locations) -> tuple[str, str] | None:
    """The nodes that seem to be exchanged, by all changes of a night."""
    located: dict[places.Key, places.Figures] = {}
    for change in (part.change for draft in drafts for part in draft.parts):
        series = change.series
        if series.location and not change.lost:
            verdict = "worse" if change.gain < 0 else "better"
            figures = places.Figures(change.before.value, change.after.value, verdict)
            located[series.case, series.metric, series.location] = figures
    return places.exchanged_nodes(located, locations) if located else None
