"""Times of sends and receives as functions of the message size: piecewise linear models.

The model is the one of seed 004, section 4: straight lines with jumps at thresholds; a size that
equals a threshold belongs to the lower line. The paper has up to three lines; an MPI over TCP of
today needs a fourth (one frame, eager limit, pipeline of large messages). Thresholds are searched
over the measured sizes, each line has at least three of them, and the Bayesian information
criterion (Schwarz 1978) chooses the number of lines. A threshold counts as three parameters,
since it is the best of many (Hall, Osborn and Sakkas, The Manchester School 81 (2013), S3,
54-81). The weights are 1 / t^2: relative errors count. Coefficients are not forced to be
positive, since the intercept of an upper line is no latency, and a receive may become shorter at
a threshold. (pwlf, the usual library, fits lines that meet; these do not.)

The points are the medians of a run, so there are no outliers to drop. Not here: prediction.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # quantiles of Student's t; scipy.stats takes long to import

from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Missing,
    inputs_of,
)
from seatrial.results.record import Case

Array = NDArray[np.float64]

SIZES_OF_LINE = 3  # least number of sizes
MOST_LINES = 4
SYNCHRONISED = 0.05  # relative difference of send and receive times that are the same
#: Relative error below which residuals are rounding; the criterion has a logarithm of their square.
_EXACT = 1e-6
#: A model that misses a measured time by more than this, relative, describes no times.
POOR = 0.25
CALLS = ("send", "recv")
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
    """``largest_error``: relative to a measured time. ``measured``: first and last size in B."""

    lines: tuple[Line, ...]
    measured: tuple[float, float]
    largest_error: float = 0.0

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
    for lines in range(1, MOST_LINES + 1):
        if 3 * lines > count:  # more coefficients and thresholds than times would fit anything
            break
        for inner in combinations(range(SIZES_OF_LINE, count - SIZES_OF_LINE + 1), lines - 1):
            cuts = (0, *inner, count)
            parts = list(pairwise(cuts))
            if any(part not in squares for part in parts):
                continue
            error = max(sum(squares[part] for part in parts) / count, _EXACT**2)
            criterion = count * math.log(error) + (5 * lines - 3) * math.log(count)
            if best is None or criterion < best[0]:
                best = criterion, cuts
    assert best is not None
    return _model(sizes, times, best[1])


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
    residuals = np.concatenate([one[1] for one, _ in solved])
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

    ``between``: the two measured sizes around the threshold of the model that is next to it."""

    bytes: float
    source: str
    between: tuple[float, float] | None

    @property
    def agrees(self) -> bool:
        return self.between is not None and self.between[0] <= self.bytes <= self.between[1]


@dataclass(frozen=True)
class CallTimes:
    """The models of the blocking calls of one case, and their ``points``, (size in B, us) by call.

    ``eager``: None where the configured limit is not on record. ``synchronised``: whether a send
    takes as long as a receive above the last threshold; None without a threshold. ``calls``: how
    often each size was timed in a run, the fewest of the runs; None where it is not on record.
    """

    case: Case
    send: Model
    recv: Model
    points: Mapping[str, Sequence[tuple[float, float]]]
    eager: EagerLimit | None
    synchronised: bool | None
    inputs: Inputs
    calls: int | None = None

    @property
    def few(self) -> bool:
        """Whether the thresholds rest on too few calls, or it is not known on how many."""
        return self.calls is None or self.calls < FEWEST_CALLS


def half_round_trip(send: Model, recv: Model, size: float) -> Time:
    """(send + receive) / 2 in us, flagged if one of them is."""
    a, b = send.at(size), recv.at(size)
    return Time((a.us + b.us) / 2, a.flaw or b.flaw)


def models(measured: Iterable[Measured]) -> tuple[list[CallTimes], list[Missing]]:
    """The models of each case of ``comms``: of the median over its runs and both ranks."""
    by_case: dict[Case, list[Measured]] = defaultdict(list)
    for one in measured:
        if one.run.case.check == "comms":
            by_case[one.run.case].append(one)
    good, missing = [], []
    for case, runs in by_case.items():
        points = {call: _points(runs, call) for call in CALLS}
        try:
            send, recv = (fit(points[call]) for call in CALLS)
        except ValueError as error:
            missing.append(
                Missing(
                    "model of message times",
                    case.id,
                    str(error),
                    "more sizes (benchmarks.comms.sizes_per_decade) and repeats",
                )
            )
            continue
        count = sum(len(points[call]) for call in CALLS) * len(runs)
        inputs = inputs_of(runs, count)
        eager, same = _eager(runs, points["send"], send), _synchronised(points, send)
        known = [one.run.facts.get("repetitions") for one in runs]
        calls = min((n for n in known if isinstance(n, int)), default=None)
        good.append(CallTimes(case, send, recv, points, eager, same, inputs, calls))
    return good, missing


def _points(runs: Sequence[Measured], call: str) -> list[tuple[float, float]]:
    times: dict[float, list[float]] = defaultdict(list)
    for one in runs:
        for curve in one.run.curves:
            if curve.name.startswith(f"comms {call}_us rank "):
                for size, us in curve.points:
                    times[size].append(us)
    return [(size, median(times[size])) for size in sorted(times)]


def _eager(
    runs: Sequence[Measured], points: Sequence[tuple[float, float]], send: Model
) -> EagerLimit | None:
    facts = runs[0].run.facts
    limit, source = facts.get("eager_limit_B"), facts.get("eager_limit_source")
    if not isinstance(limit, int | float) or not isinstance(source, str):
        return None
    if not 0 <= limit < math.inf:
        return None
    between = None
    if send.thresholds:
        sizes = [size for size, _ in points]
        near = min(send.thresholds, key=lambda threshold: abs(math.log(threshold / max(1, limit))))
        at = sizes.index(near)
        between = (sizes[at], sizes[at + 1])
    return EagerLimit(float(limit), source, between)


def _synchronised(points: dict[str, list[tuple[float, float]]], send: Model) -> bool | None:
    if not send.thresholds:
        return None
    recv = dict(points["recv"])
    above = [(us, recv[size]) for size, us in points["send"] if size > send.thresholds[-1]]
    return all(abs(a - b) < SYNCHRONISED * max(a, b) for a, b in above)
