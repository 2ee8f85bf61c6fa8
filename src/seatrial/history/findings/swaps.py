"""Nodes that were swapped for others, and series that go on at the node in their place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from seatrial.history import places
from seatrial.history.findings.changed_conditions import AROUND, Conditions
from seatrial.history.series import Column, Series
from seatrial.results.locations import Locations
from seatrial.results.record import Case

_STEADY = 2  # nights that a case must have run on the same nodes before one is swapped

#: night -> nodes that a case ran on until then, and the new ones in their place
Swaps = Mapping[int, tuple[list[str], list[str]]]
_Sides = tuple[set[str], set[str]]


@dataclass
class Continued:
    """The series of a site, those of a swapped node continued by those of the node in its place."""

    columns: list[Column]
    followed: dict[Series, Series] = field(default_factory=dict)  # by which series one goes on
    #: series of a node that took the place of one that returned later -> the first night of its own
    begins: dict[Series, int] = field(default_factory=dict)
    #: series of a node that returned -> the nights from which on it was away, and back
    away: dict[Series, tuple[int, int]] = field(default_factory=dict)

    def is_here(self, series: Series, night: int) -> bool:
        """Whether the node of a series is not away, and a series in its place has begun."""
        gone, back = self.away.get(series, (night + 1, night + 1))
        return self.begins.get(series, night) <= night and not gone <= night < back


def find_swaps(
    conditions: Conditions, nights: Mapping[Case, NDArray[np.int64]], nights_of_site: Sequence[int]
) -> Swaps:
    """The swaps of a site. ``nights``: on which each case ran."""
    nodes = {
        case: {night: conditions.nodes(case, night) for night in of_case.tolist()}
        for case, of_case in nights.items()
    }  # fmt: skip
    at_night: dict[int, set[str]] = {}
    for of_case in nodes.values():
        for night, names in of_case.items():
            at_night.setdefault(night, set()).update(names)
    begin: dict[str, int] = {}
    for night in sorted(at_night):
        for node in at_night[night]:
            begin.setdefault(node, night)
    result: dict[int, _Sides] = {}
    returned: dict[int, list[_Sides]] = {}
    for of_case in nodes.values():
        for night, gone, new in _exchanges(of_case):
            if gone & at_night[night]:
                continue
            if all(begin[node] == night for node in new):
                sides = result.setdefault(night, (set(), set()))
                sides[0].update(gone)
                sides[1].update(new)
            else:
                returned.setdefault(night, []).append((gone, new))
    for night, swaps in sorted(returned.items()):
        last = bisect_left(nights_of_site, night) - AROUND
        known = [sides for at, sides in result.items() if bisect_left(nights_of_site, at) <= last]
        for there, back in swaps:
            if night not in result and (back, there) in known:
                result[night] = there, back
    return {night: (sorted(gone), sorted(new)) for night, (gone, new) in sorted(result.items())}


def _exchanges(nodes: Mapping[int, set[str]]) -> list[tuple[int, set[str], set[str]]]:
    """The nights on which a case ran on as many other nodes as it lacks, after it had run on the
    same ones for some nights. ``nodes``: of each night."""
    result = []
    nights = sorted(nodes)
    for at, night in enumerate(nights[_STEADY:], _STEADY):
        before, now = nodes[nights[at - 1]], nodes[night]
        gone, new = before - now, now - before
        steady = all(nodes[nights[at - back]] == before for back in range(2, _STEADY + 1))
        if steady and new and len(gone) == len(new):
            result.append((night, gone, new))
    return result


def continued(columns: Sequence[Column], swaps: Swaps, locations: Locations) -> Continued:
    """Continue the series of each node that was swapped for one other. Nodes that had left with an
    earlier swap return to their own series."""
    result = Continued(list(columns))
    for night, (gone, new) in swaps.items():
        returns = any(at < night and sides == (new, gone) for at, sides in swaps.items())
        if len(gone) == 1 and not returns:
            _continue(result, night, gone[0], new[0], locations)
    return result


def _continue(known: Continued, night: int, gone: str, new: str, locations: Locations) -> None:
    """Continue each series of a node by that of the node in its place. A node that returns later
    has its own series, too: what was said of the other node stays."""
    by_series = {one.series: one for one in known.columns}
    columns = []
    followers = set()
    for column in known.columns:
        series = column.series
        others = map(by_series.get, places.in_place_of(series, gone, new, locations))
        later = next((one for one in others if one and one.at[0] >= night), None)
        cut = int(np.searchsorted(column.at, night))
        if later and cut:
            followers.add(later)
            known.followed[series] = later.series
            if series in known.begins:
                known.begins[later.series] = known.begins[series]
            if cut < len(column.at):
                columns.append(column)
                known.begins[later.series] = night
                known.away[series] = night, int(column.at[cut])
            column = replace(
                later, at=np.r_[column.at[:cut], later.at], samples=column.samples,
                values=np.r_[column.values[:cut], later.values],
            )  # fmt: skip
        columns.append(column)
    known.columns = [one for one in columns if one not in followers]
