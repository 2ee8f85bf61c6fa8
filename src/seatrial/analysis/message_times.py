"""Times of sends and receives as functions of the message size: piecewise linear models.

The model is the one of Tessera, section 4: straight lines with jumps at thresholds; a size that
equals a threshold belongs to the lower line. The paper has up to three lines; an MPI over TCP of
today needs a fourth (one frame, eager limit, pipeline of large messages). Thresholds are searched
over the measured sizes, each line has at least three of them, and the Bayesian information
criterion (Schwarz 1978) chooses the number of lines. A threshold counts as three parameters,
since it is the best of many (Hall, Osborn and Sakkas, The Manchester School 81 (2013), S3,
54-81). The weights are 1 / t^2: relative errors count. Coefficients are not forced to be
positive, since the intercept of an upper line is no latency, and a receive may become shorter at
a threshold. (pwlf, the usual library, fits lines that meet; these do not.)

A threshold has an interval: of all places that the likelihood ratio does not reject, beside the
other thresholds (Hansen, Econometrica 68 (2000), 575-603, equation 14 and theorem 3). Where a
smooth curve, a + b x size^c, describes the times better than lines that part, there is no
threshold. No other curve is tried: a threshold may be a gradual bend, as of the root of a sum of
squares, the larger of two lines, a logarithm, or frames. Errors are taken to be independent: those
that neighbouring sizes share give false thresholds (a straight line, 3 % noise: in 7 % of
simulations at a correlation of 0.6 between neighbours, in 53 % at 0.9).

The points are the medians of a run, so there are no outliers to drop; the paper drops the longest
1 % of the calls of a size and takes the mean of the rest. A run is as a whole faster or
slower than another one, which its sizes do not show: with several runs the intervals are wider by
the scatter of their levels. Not here: prediction.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # quantiles of Student's t; scipy.stats takes long to import

from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Missing,
    blocks_of,
    inputs_of,
)
from seatrial.results.record import Case

Array = NDArray[np.float64]

SIZES_OF_LINE = 3  # least number of sizes
MOST_LINES = 4
#: The criterion's penalty over that of Schwarz. With 15 to 43 sizes, normal noise or outliers, a
#: straight line then has a threshold in at most 4 % of simulations, and with 1 in up to 12 %.
PENALTY = 1.5
SYNCHRONISED = 0.05  # relative difference of send and receive times that are the same
#: Relative error below which residuals are rounding; the criterion has a logarithm of their square.
_EXACT = 1e-6
#: A model that misses a measured time by more than this, relative, describes no times.
POOR = 0.25
CALLS = ("send", "recv")
#: Ratio of the medians of the ranks from which on a time depends on more than the size. A send that
#: follows a short receive takes up to 1.4 times as long as one that follows a long one.
RANKS_APART = 2.0
#: of each size: thresholds of fewer are not to be trusted (of the seed's measurements)
FEWEST_CALLS = 200


@dataclass(frozen=True)
class Line:
    """``intercept`` in us, ``slope`` in us per byte, for sizes up to ``last`` (None: no end)."""

    intercept: Estimate
    slope: Estimate
    last: float | None = None


@dataclass(frozen=True)
class Time:
    """A time in us from a model. ``flaw``: why it means nothing, as a negative time does."""

    us: float
    flaw: str = ""


@dataclass(frozen=True)
class Model:
    """``largest_error``: relative to a measured time. ``measured``: first and last size in B.

    ``between``: for each threshold the two measured sizes around it, together with 95 %.
    ``curved``: whether the curve a + b x size^c describes the times better: then there is no
    threshold.
    """

    lines: tuple[Line, ...]
    measured: tuple[float, float]
    largest_error: float = 0.0
    between: tuple[tuple[float, float], ...] = ()
    curved: bool = False

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Sizes in B up to which each line but the last holds."""
        return tuple(line.last for line in self.lines if line.last is not None)

    @property
    def poor(self) -> bool:
        """Whether its lines describe no times. Its thresholds are still where they change most."""
        return self.largest_error > POOR

    def at(self, size: float) -> Time:
        """The time of a message of ``size`` bytes. A negative time is flagged, and not clipped."""
        line = next(x for x in self.lines if x.last is None or size <= x.last)
        us = line.intercept.value + line.slope.value * size
        if us <= 0:
            return Time(us, "the model is not above zero here")
        low, high = self.measured
        if not low <= size <= high:
            return Time(us, f"no size outside {low:.0f} to {high:.0f} B was measured")
        return Time(us)


def fit(points: Sequence[tuple[float, float]]) -> Model:
    """The model of points (size in B, time in us), ascending in size.

    Raises ValueError with the reason if there are too few sizes or a time is not above zero.
    """
    sizes, times = (np.array(column, dtype=float) for column in zip(*points, strict=True)) \
        if points else (np.zeros(0), np.zeros(0))  # fmt: skip
    if len(sizes) <= SIZES_OF_LINE:
        raise ValueError(f"{len(sizes)} sizes are too few, {SIZES_OF_LINE + 1} are needed")
    if np.any(np.diff(sizes) <= 0):
        raise ValueError("a size occurs twice, or the sizes do not ascend")
    if not np.all(np.isfinite(times)) or np.any(times <= 0):
        raise ValueError("a time is not above zero")
    count = len(sizes)
    best: tuple[float, tuple[int, ...]] | None = None
    squares = {
        (i, j): _squares(sizes[i:j], times[i:j])
        for i in range(count)
        for j in range(i + SIZES_OF_LINE, count + 1)
    }
    # for each end of the last line the least squares of so many lines, and where these end
    paths: dict[int, tuple[float, tuple[int, ...]]]
    paths = {j: (square, (0, j)) for (i, j), square in squares.items() if i == 0}
    for lines in range(1, MOST_LINES + 1):
        if 3 * lines > count:  # more coefficients and thresholds than times would fit anything
            break
        if count in paths:
            total, cuts = paths[count]
            error = max(total / count, _EXACT**2)
            criterion = count * math.log(error) + PENALTY * (5 * lines - 3) * math.log(count)
            if best is None or criterion < best[0]:
                best = criterion, cuts
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for (i, j), square in squares.items():
            if i in paths and (j not in longer or paths[i][0] + square < longer[j][0]):
                longer[j] = paths[i][0] + square, (*paths[i][1], j)
        paths = longer
    assert best is not None
    criterion, cuts = best
    curved = len(cuts) > 2 and _curve(sizes, times) < criterion
    return replace(_model(sizes, times, cuts), between=_places(sizes, squares, cuts), curved=curved)


def _curve(sizes: Array, times: Array) -> float:
    """The criterion of the best curve a + b x size^c; of c are searched 0.1 to 2."""
    count = len(sizes)
    least = min(_squares(sizes**c, times) for c in np.arange(0.1, 2.0, 0.05))
    return count * math.log(max(least / count, _EXACT**2)) + PENALTY * 3 * math.log(count)


def _places(
    sizes: Array, squares: Mapping[tuple[int, int], float], cuts: tuple[int, ...]
) -> tuple[tuple[float, float], ...]:
    """The sizes around each threshold, of all its places that the likelihood ratio allows."""
    inner, count = cuts[1:-1], len(sizes)
    free = max(1, count - 3 * len(inner) - 2)  # without coefficients and thresholds
    total = max(sum(squares[part] for part in pairwise(cuts)), count * _EXACT**2)
    made = []
    for before, at, after in zip(cuts, inner, cuts[2:], strict=False):
        split = squares[before, at] + squares[at, after]
        most = -2 * math.log(1 - math.sqrt(1 - (1 - CONFIDENCE) / len(inner)))
        places = [
            k
            for k in range(before + SIZES_OF_LINE, after - SIZES_OF_LINE + 1)
            if free * (squares[before, k] + squares[k, after] - split) <= most * total
        ]
        made.append((float(sizes[places[0] - 1]), float(sizes[places[-1]])))
    return tuple(made)


def _solve(sizes: Array, times: Array) -> tuple[Array, Array, Array]:
    """Coefficients, residuals and the inverse of the normal matrix, with weights 1 / t^2."""
    rows = np.column_stack([1 / times, sizes / times])
    scale = np.linalg.norm(rows, axis=0)  # sizes are up to 10^7
    inverse = np.linalg.pinv(rows / scale)
    coefficients = inverse @ np.ones(len(times)) / scale
    normal = (inverse @ inverse.T) / np.outer(scale, scale)
    return coefficients, rows @ coefficients - 1, normal


def _squares(sizes: Array, times: Array) -> float:
    return float(np.sum(_solve(sizes, times)[1] ** 2))


def _model(sizes: Array, times: Array, cuts: tuple[int, ...]) -> Model:
    solved = [
        (_solve(sizes[i:j], times[i:j]), float(sizes[j - 1]) if j < len(sizes) else None)
        for i, j in pairwise(cuts)
    ]
    residuals = np.concatenate([part[1] for part, _ in solved])
    freedom = len(sizes) - 2 * len(solved)
    variance = float(np.sum(residuals**2)) / freedom if freedom else math.inf
    factor = stdtrit(freedom, (1 + CONFIDENCE) / 2) if freedom else math.inf
    lines = []
    for (coefficients, _, normal), last in solved:
        halves = factor * np.sqrt(variance * np.diag(normal))
        pair = [
            Estimate(float(x), float(x - half), float(x + half))
            for x, half in zip(coefficients, halves, strict=True)
        ]
        lines.append(Line(pair[0], pair[1], last))
    # a residual is relative to the measured time
    return Model(
        tuple(lines), (float(sizes[0]), float(sizes[-1])), float(np.max(np.abs(residuals)))
    )


@dataclass(frozen=True)
class EagerLimit:
    """Up to which size the MPI sends at once, in B, and who says so.

    ``between``: the measured sizes around the threshold of the model that is next to it."""

    bytes: float
    source: str
    between: tuple[float, float] | None

    @property
    def agrees(self) -> bool:
        return self.between is not None and self.between[0] <= self.bytes <= self.between[1]


@dataclass(frozen=True)
class RanksApart:
    """The ``size`` in B at which the medians of the two ranks differ most: the least and the
    greatest in us."""

    size: float
    low: float
    high: float

    @property
    def is_much(self) -> bool:
        """Whether the time depends on more than the size: such as the interrupt moderation that a
        driver has adapted to the traffic of each node, or the phase of its timer."""
        return self.high >= RANKS_APART * self.low


@dataclass(frozen=True)
class CallTimes:
    """The models of the blocking calls of one case on one hardware, and their ``points``, (size in
    B, us) by call.

    ``eager``: None where the configured limit is not on record. ``synchronised``: whether a send
    takes as long as a receive above the last threshold; None without a threshold. ``calls``: how
    often each size was timed in a run, the fewest of the runs; None where it is not on record.
    ``ranks``: by call, how far the ranks are apart.
    """

    case: Case
    send: Model
    recv: Model
    points: Mapping[str, Sequence[tuple[float, float]]]
    eager: EagerLimit | None
    synchronised: bool | None
    inputs: Inputs
    hardware: str = ""
    calls: int | None = None
    ranks: Mapping[str, RanksApart] = field(default_factory=dict)

    @property
    def few(self) -> bool:
        """Whether the thresholds rest on too few calls, or it is not known on how many."""
        return self.calls is None or self.calls < FEWEST_CALLS


def half_round_trip(send: Model, recv: Model, size: float) -> Time:
    """(send + receive) / 2 in us, flagged if one of them is."""
    a, b = send.at(size), recv.at(size)
    return Time((a.us + b.us) / 2, a.flaw or b.flaw)


def models(measured: Iterable[Measured]) -> tuple[list[CallTimes], list[Missing]]:
    """The models of each case of ``comms``: of the median over its runs and both ranks.

    Runs on other hardware, or with another eager limit, are others.
    """
    groups: dict[tuple[Case, str, str], list[Measured]] = defaultdict(list)
    for sample in measured:
        if sample.run.case.check == "comms":
            limit = repr(sample.run.facts.get("eager_limit_B"))
            groups[sample.run.case, sample.run.hardware, limit].append(sample)
    good, missing = [], []
    for (case, hardware, _), runs in groups.items():
        try:
            points, level = _points(runs)
            send, recv = (_widened(fit(points[call]), level[call]) for call in CALLS)
        except ValueError as error:
            takes = "more sizes (benchmarks.comms.sizes_per_decade), or other runs"
            missing.append(Missing("model of message times", case.id, str(error), takes))
            continue
        count = sum(len(points[call]) for call in CALLS) * len(runs)
        inputs = inputs_of(runs, count)
        eager, same = _eager(runs, send), _synchronised(points, send)
        known = [sample.run.facts.get("repetitions") for sample in runs]
        calls = min((n for n in known if isinstance(n, int)), default=None)
        ranks = {call: apart for call in CALLS if (apart := _ranks_apart(runs, call))}
        good.append(
            CallTimes(case, send, recv, points, eager, same, inputs, hardware, calls, ranks)
        )
    return good, missing


def _points(
    runs: Sequence[Measured],
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, float]]:
    """By call: the median times of the sizes that all runs have, and by how much, relative, the
    level of all runs is uncertain; 0 of one block of runs.

    Raises ValueError if a time is not in us, or the sizes not in bytes.
    """
    times: dict[tuple[str, float], list[list[float]]] = defaultdict(lambda: [[] for _ in runs])
    for i, sample in enumerate(runs):
        for curve in sample.run.curves:
            for call in CALLS:
                if curve.name.startswith(f"comms {call}_us rank "):
                    if (curve.x_unit, curve.y_unit) != ("B", "us"):
                        units = f"{curve.y_unit or 'no unit'} by {curve.x_unit or 'no unit'}"
                        raise ValueError(f"its times are in {units}, and must be in us by B")
                    for size, us in curve.points:
                        times[call, size][i].append(us)
    whole = {
        n for _, n in times if all(all(times[call, n]) for call in CALLS if (call, n) in times)
    }
    sizes = sorted(n for n in whole if all((call, n) in times for call in CALLS))
    points, level = {}, {}
    for call in CALLS:
        medians = {n: [median(of_run) for of_run in times[call, n]] for n in sizes}
        points[call] = [(n, median(x for of_run in times[call, n] for x in of_run)) for n in sizes]
        level[call] = 0.0
        if len(runs) > 1 and all(us > 0 for _, us in points[call]):
            middle = dict(points[call])
            levels = (median(medians[n][i] / middle[n] for n in sizes) for i in range(len(runs)))
            off = blocks_of(zip(runs, levels, strict=True))
            if len(off) > 1:
                factor = float(stdtrit(len(off) - 1, (1 + CONFIDENCE) / 2))
                level[call] = factor * stdev(off) / math.sqrt(len(off))
    return points, level


def _ranks_apart(runs: Sequence[Measured], call: str) -> RanksApart | None:
    """None if not two ranks have times of a size."""
    times: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in runs:
        for curve in sample.run.curves:
            if curve.name.startswith(f"comms {call}_us rank "):
                for size, us in curve.points:
                    times[size][curve.name].append(us)
    made = []
    for size, by_rank in times.items():
        middles = [median(values) for values in by_rank.values()]
        if len(middles) > 1 and min(middles) > 0:
            made.append(RanksApart(size, min(middles), max(middles)))
    return max(made, key=lambda ranks_apart: ranks_apart.high / ranks_apart.low, default=None)


def _widened(model: Model, level: float) -> Model:
    """With the intervals of the coefficients wider by a relative uncertainty of all times."""

    def wider(estimate: Estimate) -> Estimate:
        half = math.hypot(estimate.high - estimate.value, level * estimate.value)
        return Estimate(estimate.value, estimate.value - half, estimate.value + half)

    lines = (Line(wider(line.intercept), wider(line.slope), line.last) for line in model.lines)
    return replace(model, lines=tuple(lines))


def _eager(runs: Sequence[Measured], send: Model) -> EagerLimit | None:
    facts = runs[0].run.facts
    limit, source = facts.get("eager_limit_B"), facts.get("eager_limit_source")
    if not isinstance(limit, int | float) or not isinstance(source, str):
        return None
    if not 0 <= limit < math.inf:
        return None
    between = None
    if send.thresholds and not send.curved:
        between = min(send.between, key=lambda ends: _distance(ends, max(1, limit)))
    return EagerLimit(float(limit), source, between)


def _distance(ends: tuple[float, float], size: float) -> float:
    """Of a size from an interval, on the scale of logarithms; 0 within it."""
    return max(math.log(ends[0] / size), math.log(size / ends[1]), 0.0)


def _synchronised(points: dict[str, list[tuple[float, float]]], send: Model) -> bool | None:
    if not send.thresholds or send.curved:
        return None
    recv = dict(points["recv"])
    above = [(us, recv[size]) for size, us in points["send"] if size > send.thresholds[-1]]
    return all(abs(a - b) < SYNCHRONISED * max(a, b) for a, b in above)
