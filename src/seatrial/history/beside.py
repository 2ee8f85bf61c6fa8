"""Which place has an effect of its own beside the common effect of a change: the statistics of
``seatrial.history.changes`` for two causes of one night.

A new driver changes all figures, and one node gets a fault on the same night. All series moved, so
the night and the driver are what they have in common. The common effect is the median of the series
that are not of the place, for each group of comparable series; what is left decides.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from seatrial.results import statistics

GAIN = 2.0  # logarithm of the likelihood ratio by which a scope must explain what changed
_TRIED = 20  # places, those furthest from the median first
_ERRORS = 3.0  # standard errors of a difference from the common effect
_PART = 0.5  # of the common effect: a version need not change all series alike
_MOST = 0.8  # of the series of a place that differ, and of the others that do not


class Moved(NamedTuple):
    """By how much one series moved."""

    worse: float  # logarithm, or a fraction of a typical figure; above zero for the worse
    error: float  # standard error
    group: Hashable  # series of one group are comparable: of one case and metric
    names: Sequence[str]  # the places that it is at


class Place(NamedTuple):
    """A place with an effect of its own."""

    name: str
    groups: frozenset[Hashable]  # in which it has one
    common: float  # median of the effect that its series share with the others
    own: float  # median of what is left
    gain: float  # logarithm of the likelihood ratio


def place_beside(moved: Sequence[Moved]) -> Place | None:
    """The place whose series differ most clearly from the common effect; None if none does."""
    groups: dict[Hashable, list[Moved]] = {}
    for column in moved:
        groups.setdefault(column.group, []).append(column)
    places = [_place(name, groups) for name in _candidates(groups)]
    known = [place for place in places if place]
    return max(known, key=lambda place: (round(place.gain, 6), place.own > 0), default=None)


def _candidates(groups: dict[Hashable, list[Moved]]) -> list[str]:
    far: dict[str, list[float]] = {}
    for group in groups.values():
        middle = statistics.median([moved.worse for moved in group])
        for moved in group:
            for name in moved.names:
                far.setdefault(name, []).append(abs(moved.worse - middle))
    return sorted(far, key=lambda name: (-sum(far[name]) / len(far[name]), name))[:_TRIED]


def _place(name: str, groups: dict[Hashable, list[Moved]]) -> Place | None:
    having: dict[Hashable, tuple[float, list[float]]] = {}
    inside = outside = hits = others = 0
    for group, of_group in groups.items():
        at = [moved for moved in of_group if name in moved.names]
        rest = [moved for moved in of_group if name not in moved.names]
        if not at or not rest:
            continue
        common = statistics.median([moved.worse for moved in rest])
        error = statistics.median([moved.error for moved in rest]) / math.sqrt(len(rest))
        left = [moved.worse - common for moved in at if _differs(moved, common, error)]
        if len(left) < _MOST * len(at):
            continue
        having[group] = common, left
        inside, outside = inside + len(at), outside + len(rest)
        hits += len(left)
        others += sum(_differs(moved, common, error) for moved in rest)
    lefts = [effect for _, left in having.values() for effect in left]
    if len(lefts) < 2 or others > (1 - _MOST) * outside:
        return None
    own_effect = statistics.median(lefts)
    if any(effect * own_effect < 0 for effect in lefts):
        return None
    gain = likelihood(hits, inside) + likelihood(others, outside)
    gain -= likelihood(hits + others, inside + outside)
    if gain <= GAIN:
        return None
    common = statistics.median([common for common, _ in having.values()])
    return Place(name, frozenset(having), common, own_effect, gain)


def _differs(moved: Moved, common: float, error: float) -> bool:
    least = max(_PART * abs(common), _ERRORS * math.hypot(moved.error, error))
    return abs(moved.worse - common) >= least


def likelihood(hits: int, count: int) -> float:
    """Logarithm, at the likeliest rate."""
    return sum(n * math.log(n / count) for n in (hits, count - hits) if n)
