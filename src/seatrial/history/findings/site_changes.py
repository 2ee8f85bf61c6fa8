"""All changes of the series of a site, and which series could have changed on a night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.history.findings.levels_of_series import Part, level_changes
from seatrial.history.findings.lost import lost_series
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column


@dataclass(frozen=True)
class SiteChanges:
    """The table of a site, and the changes of each of its series in their order."""

    table: SiteTable
    levels: Mapping[Column, Sequence[Part]]  # changes of level only
    every: Mapping[Column, Sequence[Part]]
    ends: Mapping[Column, int]  # the last night on which a series could have changed

    def compared(self, night: int) -> list[Column]:
        """The series that could have changed on a night."""
        series = self.table.series
        return [
            column for column in self.table.columns
            if column.at[0] < night <= self.ends[column] and series.is_here(column.series, night)
        ]  # fmt: skip


def site_changes(table: SiteTable) -> SiteChanges:
    moved = level_changes(table)
    lost = lost_series(table, moved)
    every = {
        column: sorted([*moved[column], *lost[column]], key=lambda p: p.at)
        for column in table.columns
    }
    ends = {
        column: max([int(column.at[-1]), *(part.high for part in parts[-1:])])
        for column, parts in lost.items()
    }
    return SiteChanges(table, moved, every, ends)
