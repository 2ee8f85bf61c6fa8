"""Message times of several options: where two curves part or cross, which option is the fastest.

The options are NIC profiles, networks (the fabrics of Sokolowski and Grosu) or transports, while
all else is equal (``seatrial.analysis.axis``). The rules are the same for each.

The rules of parting are those of Sokolowski and Grosu read as a program: curves part between the
last size at which they are within 10 % of each other and the first from which one stays at least
1.5 times slower. Curves of one kind only are compared: half round trips with half round trips, the
gap of a send (MPBench's ``-l``), which is shorter, with gaps, and bandwidths with bandwidths. A
bandwidth is compared as the time that a message takes at that rate. Where it is that of a curve of
times, such as NetPIPE's, the times alone are compared.

What is said of two options is certain: at each size it names, the interval of the ratio by ranks
is on the right side. The largest size is tested first for "from here on", the smallest for "up to
here", and each other size only after all before it. Such an order needs no correction for the
number of sizes (Maurer, Hothorn and Lehmacher 1995). The error of 5 % is divided among the options
and the three questions.

The fastest option is decided for small, medium and large messages, which share the error of 5 %.
The sample of a run is the geometric mean of its times in that range of sizes: the sizes of one run
are not independent. Nor are the runs of a block, of which the median is compared. Of the options
that are within 10 % of the fastest the cheapest is named, if the site file has the price of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from statistics import geometric_mean, median

from seatrial.analysis.answer import NOTHING_LOST, Lost, answer
from seatrial.analysis.axis import NETWORK, PROFILE, Axis, networks_of, prices
from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    other_nodes,
    unit_of,
)
from seatrial.analysis.decision import FEWEST, Decision
from seatrial.analysis.ranks import hodges_lehmann
from seatrial.results.record import Cost, Curve, Run

TOGETHER = 1.1  # curves within this ratio are the same
APART = 1.5
#: A knee is a step from this t(2n) / t(n) on: twice, but for what counts as the same.
STEEP = 2 * TOGETHER
#: Runs agree on a step if the greatest t(2n) / t(n) is at most so many times the least.
AGREE = 1.5
_QUESTIONS = 3  # together, apart, reversed
TIMES = ("latency", "time")  # names of y axes on which less is better
RATE = "bandwidth"
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
class Near:
    """The options that take at most 10 % longer than the fastest, and the cheapest of them.

    ``within``: those that certainly do. ``possible``: those that may or may not. ``cost``: the name
    of the ``prices``, in USD; "" if the site file has not a price of each. ``cheapest``: "" if it
    is not known: without prices, or if one that is only possible costs less (``open``).
    """

    within: tuple[str, ...]
    possible: tuple[str, ...]
    cost: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    cheapest: str = ""

    @property
    def open(self) -> tuple[str, ...]:
        limit = min((self.prices[o] for o in self.within if self.prices), default=math.inf)
        return tuple(o for o in self.possible if self.prices and self.prices[o] < limit)


@dataclass(frozen=True)
class Fastest:
    """The fastest options for messages of a range of sizes, in B.

    ``near``: None if the answer is withheld for how the runs were measured.
    """

    word: str
    first: float
    last: float
    decision: Decision
    near: Near | None = None


@dataclass(frozen=True)
class Knee:
    """The size with the largest t(2n) / t(n) of the medians, in B; that ratio, and its least and
    greatest over the runs. Without a jump or a steeper course beyond the size it is at most 2.

    ``seen_again``: whether several runs show it, or one in virtual time, where runs are alike.
    """

    size: float
    factor: float
    least: float
    most: float
    seen_again: bool = True

    @property
    def is_step(self) -> bool:
        """Whether the time jumps there, and the runs agree on by how much."""
        agree = self.seen_again and self.most <= AGREE * self.least
        return agree and self.least >= STEEP


@dataclass(frozen=True)
class Comparison:
    """Message times of the options of one axis, of one check and number of nodes.

    ``route``, ``profile``: as the axis has them, what the options share. ``hardware``: of networks,
    that of each. ``partings``: option -> where it certainly parts from ``reference``, the fastest
    option at the largest size. ``seem``: the same of the medians, in us. ``rate``: whether the
    curve is one of bandwidth. ``scatter``: median over the points of the relative range of the
    runs, None if each was measured once. ``nodes_differ``: why what options seem to do may be
    the nodes' work, or "". ``fault``: why the runs cannot be compared, or "". ``unit``: what a
    sample is of.
    """

    axis: Axis
    check: str
    route: str
    profile: str
    hardware: str
    nodes: int
    curve: str
    rate: bool
    fastest: tuple[Fastest, ...]
    reference: str
    partings: Mapping[str, Parting]
    seem: Mapping[str, Parting]
    knees: Mapping[str, Knee]
    scatter: float | None
    inputs: Inputs
    medians: Mapping[str, Points] = field(default_factory=dict)
    nodes_differ: str = ""
    fault: str = ""
    unit: Unit = "repeat"


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
    """Where the curves of an option, one of each block of runs, part from those of another one.

    ``name``: of the other option, the faster one in the end.
    ``tail``: the probability of a wrong ``together``, ``apart`` or ``reversed_at``, of each.
    """
    ends = {}
    for n in sizes:
        before, after = ([math.log(run[n]) for run in points] for points in (faster, slower))
        _, low, high = hodges_lehmann(before, after, tail)
        if low is None or high is None or min(len(slower), len(faster)) < FEWEST:
            low, high = -math.inf, math.inf
        ends[n] = (low, high)

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


def near(decision: Decision, cost: str = "", prices: Mapping[str, float] | None = None) -> Near:
    """The options that take at most 10 % longer than the fastest, by a decision on times.

    By its intervals, which hold together: the upper end of an option within, over the lower end of
    each other, is at most 1.1. ``prices``: of each option, or none.
    """
    ends = dict.fromkeys(decision.leaders[:1], (1.0, 1.0))  # of the time over the first leader's
    ends |= {option: (ahead.low, ahead.high) for option, ahead in decision.ahead.items()}
    within, possible = [], []
    for option, (low, high) in ends.items():
        others = [other for name, other in ends.items() if name != option]
        if high <= TOGETHER * min(end[0] for end in others):
            within.append(option)
        elif low <= TOGETHER * min(end[1] for end in others):
            possible.append(option)
    made = Near(tuple(within), tuple(possible), cost, prices or {})
    if not prices or not within or made.open:
        return made
    return replace(made, cheapest=min(within, key=prices.__getitem__))


#: what the options of a comparison share: check, route, profile, hardware, nodes; curve, kind
_Key = tuple[str, str, str, str, int, str, bool]


def comparisons(
    measured: Iterable[Measured],
    axis: Axis = PROFILE,
    costs: Sequence[Cost] = (),
    lost: Lost = NOTHING_LOST,
) -> list[Comparison]:
    """The comparison of each curve that was measured with several options of an axis.

    ``costs``: the prices of the site file. The runs of a case of which others were disturbed may be
    disturbed at single sizes, so it has no knee.
    """
    groups: dict[_Key, dict[str, list[Measured]]] = {}
    for sample in measured:
        case = sample.run.case
        option = axis.option(case)
        for curve in sample.run.curves if option else ():
            if not _is_compared(curve, sample.run):
                continue
            key = (
                case.check, axis.route(case), axis.profile(case), axis.hardware(sample.run),
                case.nodes, curve.name, curve.y_name == RATE,
            )  # fmt: skip
            groups.setdefault(key, {}).setdefault(option, []).append(sample)
    complete = {key: comparable(options) for key, options in groups.items()}
    return [
        _compared(axis, key, options, costs, lost)
        for key, options in complete.items()
        if len(options) > 1
    ]


def _is_compared(curve: Curve, run: Run) -> bool:
    """Whether a curve is of the network as a whole, and says what no other curve of the run does.

    The name of a curve of one link or one call has more words than its benchmark and the pattern.
    """
    first, *more = curve.name.split(" ")
    whole = not more or (first == run.case.check and len(more) == 1 and more[0].isalpha())
    if not whole or curve.x_unit != "B":
        return False
    times = any(other.name == curve.name and other.y_name in TIMES for other in run.curves)
    rate = curve.y_name == RATE and curve.y_unit == "MB/s"
    return curve.y_name in TIMES or (rate and not times)


def _compared(
    axis: Axis,
    key: _Key,
    options: Mapping[str, Sequence[Measured]],
    costs: Sequence[Cost],
    lost: Lost,
) -> Comparison:
    check, route, profile, hardware, nodes, name, rate = key
    runs = [sample for samples in options.values() for sample in samples]
    curves = {
        option: [_points(sample, name, rate) for sample in samples]
        for option, samples in options.items()
    }
    sizes = sorted(
        set.intersection(*(set(points) for of_option in curves.values() for points in of_option))
    )
    kinds = {
        f"{curve.y_name} in {curve.y_unit or 'no unit'}"
        for sample in runs
        for curve in sample.run.curves
        if curve.name == name and _is_kind(curve, rate)
    }
    fault = "" if sizes else "its runs have no size with a time in common"
    if len(kinds) > 1:
        fault = f"its runs have {' and '.join(sorted(kinds))}"
    if axis == NETWORK:
        hardware, changed = networks_of(sample.run for sample in runs)
        fault = fault or changed
    key = (check, route, profile, hardware, nodes, name, rate)
    if fault:
        return Comparison(axis, *key, (), "", {}, {}, {}, None, inputs_of(runs, 0), fault=fault)
    middle = {
        option: {n: median(points[n] for points in of_option) for n in sizes}
        for option, of_option in curves.items()
    }
    reference = min(middle, key=lambda option: middle[option][sizes[-1]])
    end = (reference, middle[reference])
    others = {option: points for option, points in middle.items() if option != reference}
    ranges = [
        max(p[n] for p in of_option) / min(p[n] for p in of_option) - 1
        for of_option in curves.values()
        for n in sizes
        if len(of_option) > 1
    ]
    nodes_differ = other_nodes(runs, axis)
    tail = (1 - CONFIDENCE) / _QUESTIONS / len(others)
    blocks = {
        option: _of_blocks(samples, curves[option], sizes) for option, samples in options.items()
    }
    own_prices = prices(costs, axis, options, runs[0].run.case)
    knees = {
        option: at
        for option, samples in options.items()
        if not any((sample.trial, sample.run.case) in lost.disturbed for sample in samples)
        and (at := _knee(samples, middle[option], curves[option]))
    }
    return Comparison(
        axis,
        *key,
        _fastest(axis, curves, options, sizes, lost, own_prices),
        reference,
        {
            option: certainly(blocks[option], blocks[reference], reference, sizes, tail)
            for option in others
        },
        {option: parting((option, points), end) for option, points in others.items()},
        knees,
        median(ranges) if ranges else None,
        inputs_of(runs, len(sizes) * len(runs)),
        middle,
        nodes_differ,
        unit=unit_of(runs),
    )


def _knee(runs: Sequence[Measured], middle: Points, curves: Sequence[Points]) -> Knee | None:
    """The knee of the medians of some runs. ``curves``: of each run."""
    at = knee(middle)
    if at is None:
        return None
    size, factor = at
    factors = [points[2 * size] / points[size] for points in curves]
    seen_again = len(runs) > 1 or unit_of(runs) == "repeat"
    return Knee(size, factor, min(factors), max(factors), seen_again)


def _of_blocks(
    runs: Sequence[Measured], curves: Sequence[Points], sizes: Sequence[float]
) -> list[Points]:
    """The median of each block of runs at each size."""
    by_size = {
        n: blocks_of((sample, p[n]) for sample, p in zip(runs, curves, strict=True)) for n in sizes
    }
    return [
        dict(zip(sizes, of_block, strict=True)) for of_block in zip(*by_size.values(), strict=True)
    ]


def _is_kind(curve: Curve, rate: bool) -> bool:
    return curve.y_name == RATE if rate else curve.y_name in TIMES


def _points(sample: Measured, name: str, rate: bool) -> Points:
    """Size in B -> time in us; ``rate``: that of the size at the bandwidth, in MB/s.

    Others, such as zero, were not measured.
    """
    curve = next(c for c in sample.run.curves if c.name == name and _is_kind(c, rate))
    points = {n: y for n, y in curve.points if 0 < n < math.inf and 0 < y < math.inf}
    return {n: n / y for n, y in points.items()} if rate else points


def _fastest(
    axis: Axis,
    curves: Mapping[str, Sequence[Points]],
    options: Mapping[str, Sequence[Measured]],
    sizes: Sequence[float],
    lost: Lost,
    own_prices: tuple[str, Mapping[str, float]],
) -> tuple[Fastest, ...]:
    """``curves``: of the runs of ``options``."""
    ranges = {
        word: within
        for word, (above, up_to) in RANGES.items()
        if (within := [n for n in sizes if above < n <= up_to])
    }
    result = []
    unit = unit_of(sample for runs in options.values() for sample in runs)
    for word, within in ranges.items():
        samples = {
            option: [
                (sample, geometric_mean(points[n] for n in within))
                for sample, points in zip(options[option], of_runs, strict=True)
            ]
            for option, of_runs in curves.items()
        }
        # each range has its part of the error of 5 %, as each look has where samples grow
        decision = answer(lost.beside(samples, axis), "lower", axis, unit, looks=len(ranges))
        beside = None if decision.takes else near(decision, *own_prices)
        result.append(Fastest(word, within[0], within[-1], decision, beside))
    return tuple(result)
