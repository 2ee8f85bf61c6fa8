"""Series that have no figure any more, while their case is measured on their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.history import levels
from seatrial.history.conditions import NODES
from seatrial.history.findings.levels_of_series import Part, noise_between
from seatrial.history.findings.record import Change, Level, Lost
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column
from seatrial.results.record import Case

_P_LOST = 5e-3  # that so many nights in a row lack a figure, by how many did before
_P_LOST_AGAIN = 5e-5  # the same, where some did: each of many nights is tried


class _Gap(NamedTuple):
    """Nights in a row on which a series has no figure."""

    last: int  # night with a figure
    nights: list[int]
    found: int  # that showed it
    back: int | None  # the first night with a figure again


def lost_series(
    table: SiteTable, changed: Mapping[Column, Sequence[Part]]
) -> dict[Column, list[Part]]:
    """The changes after which each series has no figure. ``changed``: its changes of level."""
    units: dict[tuple[Case, str, str], list[Column]] = {}
    for column in table.columns:
        series = column.series
        units.setdefault((series.case, series.metric, series.location), []).append(column)
    result = {}
    for column in table.columns:
        series = column.series
        alike = [
            other
            for other in units[series.case, series.metric, series.location]
            if other is not column
        ]
        result[column] = [
            _lost(table, column, changed[column], alike, gap) for gap in _gaps(table, column)
        ]
    return result


def _gaps(table: SiteTable, column: Column) -> Iterator[_Gap]:
    """Where a series has no figure on nights on which its case was measured on its nodes.

    By Laplace's rule of succession, of n nights of which a had no figure, the next k have none
    with the chance that the product of (a + 1 + i) / (n + 2 + i) is, i from 0 to k - 1. Two
    nights are enough after 18 with figures. They must be more than ever before.
    """
    nights = table.nights[column.series.case]
    nights = nights[nights >= column.at[0]]
    if len(nights) == len(column.at):
        return
    has = np.isin(nights, column.at)
    has_place = _has_place(table, column, nights) | has
    known, has = nights[has_place].tolist(), has[has_place]
    at = without = longest = 0
    for present, run in groupby(has.tolist()):
        length = len(list(run))
        if not present:
            chance, needed, limit = 1.0, 0, _P_LOST_AGAIN if without else _P_LOST
            while chance > limit and needed < length:
                chance *= (without + 1 + needed) / (at + 2 + needed)
                needed += 1
            needed = max(needed, longest + 1)
            if chance <= limit and needed <= length:
                back = at + length
                yield _Gap(
                    known[at - 1], known[at:back], known[at + needed - 1],
                    known[back] if back < len(known) else None,
                )  # fmt: skip
            without, longest = without + length, max(longest, length)
        at += length


def _has_place(table: SiteTable, column: Column, nights: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the case had the nodes of the series on each night. One that ran on fewer nodes
    than planned may lack these."""
    case = column.series.case
    ends = set(table.names[column]["node"])
    known: dict[str, bool] = {}
    result = []
    for night in nights.tolist():
        text = table.conditions.at(case, night).get(NODES, "")
        if text not in known:
            nodes = set(text.split(", ")) - {""}
            known[text] = ends <= nodes or len(nodes) < case.nodes
        result.append(known[text])
    return np.array(result, dtype=bool)


def _lost(
    table: SiteTable, column: Column, changed: Sequence[Part], alike: Sequence[Column], gap: _Gap
) -> Part:
    """``alike``: the series in other units."""
    night = gap.nights[0]
    series, trials = column.series, table.trials
    cut = int(np.searchsorted(column.at, night))
    begin = max((part.steps[-1] for part in changed if part.steps[-1] < cut), default=0)
    figures = table.scaled[column]
    x = figures.x[begin:cut]
    half = levels.error(len(x), noise_between(table, column, begin, cut))
    units = [one.series.unit for one in alike if night in one.at]
    zeros = table.zeros.get(series, set()) & set(gap.nights)
    few = 2 * len(zeros) <= len(gap.nights)
    lost: Lost = "unit" if units else "missing" if few else "zero"
    change = Change(
        series, trials[gap.last], trials[night], trials[gap.found],
        figures.level(float(np.median(x)), half, len(x)),
        Level(0.0, 0.0, 0.0, len(gap.nights)),
        1.0 if units else 0.0, 0.0, 0.0, drift=False, lasts=gap.back is None,
        informative=bool(units) or series in table.informative, lost=lost,
        back=None if gap.back is None else trials[gap.back], unit=units[0] if units else "",
    )  # fmt: skip
    return Part(change, column, night, gap.found, night, night)
