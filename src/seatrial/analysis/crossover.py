"""Message times under several NIC profiles: where two curves part or cross, which is the fastest.

The rules of parting are those of seed 002 read as a program: curves part between the last size at
which they are within 10 % of each other and the first from which one stays at least 1.5 times
slower. Curves of one kind only are compared: half round trips with half round trips, and the gap of
a send (MPBench's ``-l``), which is shorter, with gaps.

What is said of two profiles is certain: at each size it names, the interval of the ratio by ranks
is on the right side. The largest size is tested first for "from here on", the smallest for "up to
here", and each other size only after all before it. Such an order needs no correction for the
number of sizes (Maurer, Hothorn and Lehmacher 1995). The error of 5 % is divided among the profiles
and the three questions.

The fastest profile is decided for small, medium and large messages, which share the error of 5 %.
The sample of a run is the geometric mean of its times in that range of sizes: the sizes of one run
are not independent. Nor are the runs of a block, of which the median is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from statistics import geometric_mean, median

from seatrial.analysis.conclusion import (
    CONFIDENCE,
    SAME_NODES,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    other_nodes,
    unit_of,
)
from seatrial.analysis.decision import Decision, decide, withheld
from seatrial.analysis.ranks import hodges_lehmann

TOGETHER = 1.1  # curves within this ratio are the same
APART = 1.5
_QUESTIONS = 3  # together, apart, reversed
TIMES = ("latency", "time")  # names of y axes on which less is better
#: word -> above and up to which size in B
RANGES = {"small": (0, 2**10), "medium": (2**10, 2**16), "large": (2**16, math.inf)}

Points = Mapping[float, float]  # size in B -> time in us


@dataclass(frozen=True)
class Parting:
    """Between which sizes in B two curves part; ``faster`` is the one that is faster from then on.

    ``together`` is None if they are apart from the smallest size on, ``apart`` if they never part
    for good. ``reversed_at``: the last size before at which, as at its neighbour, the other one was
    faster by more than 10 %; None if there is none. Curves with such a size cross.

    Of ``certainly`` each of these holds at all sizes from there on (``apart``) or up to there.
    """

    together: float | None
    apart: float | None
    faster: str = ""
    reversed_at: float | None = None


@dataclass(frozen=True)
class Fastest:
    """The fastest profiles for messages of a range of sizes, in B."""

    word: str
    first: float
    last: float
    decision: Decision


@dataclass(frozen=True)
class Comparison:
    """Message times under the profiles of one check, route and hardware.

    ``partings``: profile -> where it certainly parts from ``reference``, the fastest profile at the
    largest size. ``seem``: the same of the medians. ``knees``: profile -> the size with the largest
    t(2n) / t(n), and that ratio. ``scatter``: median over the points of the relative range of the
    runs, None if each was measured once. ``nodes_differ``: why what profiles seem to do may be
    the nodes' work, or "". ``fault``: why the runs cannot be compared, or "". ``unit``: what a
    sample is of.
    """

    check: str
    route: str
    hardware: str
    nodes: int
    curve: str
    fastest: tuple[Fastest, ...]
    reference: str
    partings: Mapping[str, Parting]
    seem: Mapping[str, Parting]
    knees: Mapping[str, tuple[float, float]]
    scatter: float | None
    inputs: Inputs
    nodes_differ: str = ""
    fault: str = ""
    unit: Unit = "repeat"


def impossible(times: Points, rate_bit_s: float) -> float | None:
    """The smallest size whose time is below that of its bits on the wire, or None.

    Half a round trip cannot be shorter; the gap of a send can, and so can a burst of a shaper.
    """
    return next((n for n in sorted(times) if times[n] < 8e6 * n / rate_bit_s), None)


def parting(a: tuple[str, Points], b: tuple[str, Points]) -> Parting:
    """Where two named curves part. Raises ValueError without a common size or if a time is zero."""
    (name_a, times_a), (name_b, times_b) = a, b
    sizes = sorted(set(times_a) & set(times_b))
    if not sizes:
        raise ValueError("the curves have no size in common")
    if not all(0 < times[n] < math.inf for n in sizes for times in (times_a, times_b)):
        raise ValueError("a time is not above zero")
    ratios = [times_a[n] / times_b[n] for n in sizes]
    faster = name_b
    if ratios[-1] < 1:
        ratios, faster = [1 / ratio for ratio in ratios], name_a
    first = len(sizes)
    while first and ratios[first - 1] >= APART:
        first -= 1
    near = [n for n, r in zip(sizes[:first], ratios, strict=False) if 1 / TOGETHER < r < TOGETHER]
    together = max(near, default=None)
    if first == len(sizes):
        return Parting(together, None)
    pairs = zip(sizes[:first], pairwise(ratios), strict=False)
    behind = [n for n, both in pairs if max(both) <= 1 / TOGETHER]  # of one size: an outlier
    return Parting(together, sizes[first], faster, max(behind, default=None))


def certainly(
    slower: Sequence[Points],
    faster: Sequence[Points],
    name: str,
    sizes: Sequence[float],
    tail: float,
) -> Parting:
    """Where the curves of a profile, one of each block of runs, part from those of another one.

    ``name``: of the other profile, the faster one in the end.

    ``tail``: the probability of a wrong ``together``, ``apart`` or ``reversed_at``, of each.
    """
    ends = {}
    for n in sizes:
        before, after = ([math.log(run[n]) for run in own] for own in (faster, slower))
        _, low, high = hodges_lehmann(before, after, tail)
        ends[n] = (-math.inf, math.inf) if low is None or high is None else (low, high)

    def until(order: Sequence[float], holds: Callable[[float, float], bool]) -> float | None:
        return max(takewhile(lambda n: holds(*ends[n]), order), key=order.index, default=None)

    edge = math.log(TOGETHER)
    together = until(sizes, lambda low, high: -edge < low and high < edge)
    apart = until(sizes[::-1], lambda low, high: low >= math.log(APART))
    reversed_at = until(sizes, lambda low, high: high < 0)
    return Parting(together, apart, name if apart is not None else "", reversed_at)


def knee(times: Points) -> tuple[float, float] | None:
    """The size n with the largest t(2n) / t(n), and that ratio; None without such a pair."""
    pairs = [(times[2 * n] / times[n], n) for n in times if 2 * n in times and times[n] > 0]
    if not pairs:
        return None
    factor, size = max(pairs)
    return size, factor


def comparisons(measured: Iterable[Measured]) -> list[Comparison]:
    """The comparison of each curve that was measured under several profiles."""
    groups: dict[tuple[str, str, str, int, str], dict[str, list[Measured]]] = {}
    for one in measured:
        case = one.run.case
        for curve in one.run.curves:
            # the name of a curve of one link or one call has a space
            if curve.y_name in TIMES and curve.x_unit == "B" and " " not in curve.name:
                key = (case.check, case.route, one.run.hardware, case.nodes, curve.name)
                groups.setdefault(key, {}).setdefault(case.profile, []).append(one)
    complete = {key: comparable(profiles) for key, profiles in groups.items()}
    return [_compared(key, profiles) for key, profiles in complete.items() if len(profiles) > 1]


def _compared(
    key: tuple[str, str, str, int, str], profiles: Mapping[str, Sequence[Measured]]
) -> Comparison:
    name = key[-1]
    runs = [one for own in profiles.values() for one in own]
    curves = {profile: [_points(one, name) for one in own] for profile, own in profiles.items()}
    sizes = sorted(set.intersection(*(set(points) for own in curves.values() for points in own)))
    kinds = {
        f"{curve.y_name} in {curve.y_unit or 'no unit'}"
        for one in runs
        for curve in one.run.curves
        if curve.name == name and curve.y_name in TIMES
    }
    fault = "" if sizes else "its runs have no size with a time in common"
    if len(kinds) > 1:
        fault = f"its runs have {' and '.join(sorted(kinds))}"
    if fault:
        return Comparison(*key, (), "", {}, {}, {}, None, inputs_of(runs, 0), fault=fault)
    middle = {
        profile: {n: median(points[n] for points in own) for n in sizes}
        for profile, own in curves.items()
    }
    reference = min(middle, key=lambda profile: middle[profile][sizes[-1]])
    end = (reference, middle[reference])
    others = {profile: points for profile, points in middle.items() if profile != reference}
    ranges = [
        max(p[n] for p in own) / min(p[n] for p in own) - 1
        for own in curves.values()
        for n in sizes
        if len(own) > 1
    ]
    nodes_differ = other_nodes(runs)
    tail = (1 - CONFIDENCE) / _QUESTIONS / len(others)
    blocks = {profile: _of_blocks(own, curves[profile], sizes) for profile, own in profiles.items()}
    return Comparison(
        *key,
        _fastest(curves, profiles, sizes, nodes_differ),
        reference,
        {
            profile: certainly(blocks[profile], blocks[reference], reference, sizes, tail)
            for profile in others
        },
        {profile: parting((profile, points), end) for profile, points in others.items()},
        {profile: at for profile, points in middle.items() if (at := knee(points))},
        median(ranges) if ranges else None,
        inputs_of(runs, len(sizes) * len(runs)),
        nodes_differ,
        unit=unit_of(runs),
    )


def _of_blocks(
    runs: Sequence[Measured], curves: Sequence[Points], sizes: Sequence[float]
) -> list[Points]:
    """The median of each block of runs at each size."""
    by_size = {
        n: blocks_of((one, p[n]) for one, p in zip(runs, curves, strict=True)) for n in sizes
    }
    return [
        dict(zip(sizes, of_block, strict=True)) for of_block in zip(*by_size.values(), strict=True)
    ]


def _points(one: Measured, name: str) -> Points:
    """The points that are times: others, such as zero, were not measured."""
    curves = [c for c in one.run.curves if c.name == name and c.y_name in TIMES]
    return {n: time for n, time in curves[0].points if 0 < n < math.inf and 0 < time < math.inf}


def _fastest(
    curves: Mapping[str, Sequence[Points]],
    profiles: Mapping[str, Sequence[Measured]],
    sizes: Sequence[float],
    nodes_differ: str,
) -> tuple[Fastest, ...]:
    """``curves``: of the runs of ``profiles``; ``nodes_differ``: as ``other_nodes``."""
    ranges = {
        word: own
        for word, (above, up_to) in RANGES.items()
        if (own := [n for n in sizes if above < n <= up_to])
    }
    result = []
    unit = unit_of(one for runs in profiles.values() for one in runs)
    for word, own in ranges.items():
        samples: dict[str, list[float]] = {}
        for profile, of_runs in curves.items():
            means = [geometric_mean(p[n] for n in own) for p in of_runs]
            samples[profile] = blocks_of(zip(profiles[profile], means, strict=True))
        # each range has its part of the error of 5 %, as each look has where samples grow
        decision = decide(samples, "lower", looks=len(ranges), unit=unit)
        decision = withheld(decision, nodes_differ, SAME_NODES)
        result.append(Fastest(word, own[0], own[-1], decision))
    return tuple(result)
