"""The cause that most changes of a night have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from seatrial.history.conditions import NODES
from seatrial.history.findings import explanation
from seatrial.history.findings.difference import moved
from seatrial.history.findings.levels_of_series import Part
from seatrial.history.findings.record import Condition, Scope
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column


@dataclass(frozen=True)
class Cause:
    """What changes of a night have in common. ``by`` "night": nothing that explains them."""

    by: Literal["place", "swap", "version", "kind", "night"]
    scope: Scope
    fits: Callable[[Column], bool]  # whether a finding includes the changes of a series

    @property
    def is_place(self) -> bool:
        return self.by in ("place", "swap")

    @property
    def explains(self) -> bool:
        """Whether it is more than the night. All of a site is a cause."""
        return self.by != "night" or self.scope.kind == "site"


def cause_of(site: SiteChanges, night: int, found: int, parts: Sequence[Part]) -> Cause:
    """What most of the changes have in common, by what was known when ``found`` had run."""
    changed = {part.column for part in parts}
    causes = _causes(site, night, found, changed)
    return next(
        cause for cause in causes
        if sum(map(cause.fits, changed)) >= (2 if cause.by in ("place", "kind") else 1)
    )  # fmt: skip


def _causes(site: SiteChanges, night: int, found: int, changed: set[Column]) -> list[Cause]:
    """What may be the cause, the likeliest first."""
    table, compared = site.table, site.compared(night)
    hits = set(changed)
    versions = {name for column in changed for name in table.changed_for(column, night)}
    if len(changed) > 1 or len(versions) > 1:  # else the others decide nothing
        hits |= moved(compared, changed, night, found)
    place, of_place = explanation.place(table, compared, hits, changed)
    version, of_version = explanation.version(table, compared, hits, changed, night)
    kind, _ = explanation.explanation(table, compared, hits, explanation.KINDS)
    causes = []
    if night in table.swaps:
        swap = new_nodes(table, night)
        of_swap = explanation.divided(
            [(column in hits, ("new",) if swap.fits(column) else ()) for column in compared]
        )[1]
        alone = not version and all(map(swap.fits, changed))
        if alone or (of_swap > of_version and of_swap >= of_place):
            causes.append(swap)
    if place and of_place > of_version:
        causes.append(Cause("place", place, lambda column: table.includes(place, column)))
    if version:
        causes.append(of_condition(site, version, night))
    if kind and len(hits) <= len(compared) / 2:
        causes.append(Cause("kind", kind, lambda column: table.includes(kind, column)))
    common = explanation.common(table, compared, changed)
    causes.append(
        Cause(
            "night", common,
            lambda column: common.kind == "site" or not table.possible_causes(column, night),
        )
    )  # fmt: skip
    return causes


def of_condition(site: SiteChanges, condition: Condition, night: int) -> Cause:
    """What changed with a night in some cases, as the cause."""
    table = site.table
    scope = explanation.scope_of_condition(table, condition, site.compared(night), night)
    return Cause("version", scope, lambda column: condition in table.changed_for(column, night))


def new_nodes(table: SiteTable, night: int) -> Cause:
    """The nodes that took the place of others on a night, as the cause."""
    new = table.swaps[night][1]

    def fits(column: Column) -> bool:
        if nodes := table.names[column]["node"]:
            return not set(nodes).isdisjoint(new)
        return any(condition.name == NODES for condition in table.changed_for(column, night))

    return Cause("swap", Scope("node", new[0]) if len(new) == 1 else Scope(""), fits)
