"""Nodes whose places differ between two groups of trials, or since a night: replaced by others, or
exchanged.

A node that was given another name is no other case than one that was replaced: a trial knows nodes
by their names.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from seatrial.results.locations import Locations
from seatrial.results.record import Case

if TYPE_CHECKING:
    from seatrial.history.series import Series

#: case -> the nodes of each of its trials
Nodes = Mapping[str, Collection[frozenset[str]]]
#: case, metric, location
Key = tuple[Case, str, str]
_FITS = 0.5  # of the logarithm of a change: so near a figure must be to that of the other node


def replaced(a: Nodes, b: Nodes) -> tuple[list[str], list[str]] | None:
    """The nodes of A that B lacks, and as many in their place. None: there are none.

    Only cases count whose nodes are the same in all trials of each group: the nodes of an
    allocation that differs each night say nothing.
    """
    gone: set[str] = set()
    new: set[str] = set()
    for case in a.keys() & b.keys():
        before, after = set(a[case]), set(b[case])
        if len(before) == len(after) == 1:
            old, now = before.pop(), after.pop()
            if len(old) == len(now):
                gone |= old - now
                new |= now - old
    stayed = gone & _all(b) or new & _all(a)
    if not gone or len(gone) != len(new) or stayed:
        return None
    return sorted(gone), sorted(new)


def in_place_of(series: Series, gone: str, new: str, locations: Locations) -> Iterator[Series]:
    """The series that a series of a node can be at the node in its place: a link may have either
    order. Nothing if it is not at the node that went."""
    for location in locations.renamed(series.location, {gone: new}):
        yield replace(series, location=location)


class Figures(NamedTuple):
    """What a series was before and is now."""

    before: float
    now: float
    verdict: str  # "worse", "better", or another word

    @property
    def change(self) -> float:
        """Logarithm; NaN of figures that can be zero."""
        positive = min(self.before, self.now) > 0
        return math.log(self.now / self.before) if positive else math.nan


def exchanged_nodes(located: Mapping[Key, Figures], locations: Locations) -> tuple[str, str] | None:
    """Two nodes of which each has now the figures that the other had before: the one pair that
    explains all series of a location that became worse or better. None: there is none."""
    moved = {
        key: figures for key, figures in located.items() if figures.verdict in ("worse", "better")
    }
    if len({figures.verdict for figures in moved.values()}) < 2:
        return None
    of_moved = {location: locations.nodes_of(location) for _, _, location in moved}
    others = {node for nodes_of in of_moved.values() for node in nodes_of}
    first = next(iter(of_moved.values()))
    pairs = {(min(x, y), max(x, y)) for x in first for y in others - {x}}
    fitting = [pair for pair in sorted(pairs) if _explains(pair, moved, located, locations)]
    return fitting[0] if len(fitting) == 1 else None


def _explains(
    pair: tuple[str, str],
    moved: Mapping[Key, Figures],
    located: Mapping[Key, Figures],
    locations: Locations,
) -> bool:
    x, y = pair
    for (case, metric, location), here in moved.items():
        other = next(
            (
                located[case, metric, name]
                for name in locations.renamed(location, {x: y, y: x})
                if name != location and (case, metric, name) in located
            ),
            None,
        )
        if other is None or {here.verdict, other.verdict} != {"worse", "better"}:
            return False
        if min(here.now, other.before) <= 0 or not math.isfinite(here.change):
            return False
        if abs(math.log(here.now / other.before)) > _FITS * abs(here.change):
            return False
    return True


def sentence(swapped: tuple[list[str], list[str]] | None, pair: Sequence[str] | None) -> str:
    """What ``replaced`` and ``exchanged_nodes`` returned, for people. "": nothing."""
    if swapped:
        gone, new = (", ".join(names) for names in swapped)
        if len(swapped[0]) == 1:
            text = f"node {gone} was replaced by {new}, or has this name now"
            return f"{text}: their series are compared with one another"
        text = f"nodes {gone} were replaced by {new}, or have these names now"
        return f"{text}: which by which is not known, and their series are not compared"
    if pair:
        text = f"nodes {pair[0]} and {pair[1]} seem to be exchanged"
        return f"{text}: in B, each has the figures that the other had in A"
    return ""


def _all(nodes: Nodes) -> set[str]:
    return {node for several in nodes.values() for names in several for node in names}
