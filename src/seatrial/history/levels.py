"""When the level of a series of nights changed: the statistics of ``seatrial.history.changes``.

Nights are looked at in their order, so that what was found on a night stays found, except that a
few nights later a change is withdrawn if most nights since are of the old level. On each night
the last k figures, for some k from 2 to 150, are compared with all earlier ones since the last
change. The long windows show a slow drift, which an average of a few nights follows in silence.

**Test.** Student's t of two samples with pooled variance: the generalized likelihood ratio test of
D. Siegmund and E. S. Venkatraman, Ann. Statist. 23 (1995) 255, with unknown variance, at one
p-value for each number of nights. The variance is moderated (G. K. Smyth, Stat. Appl. Genet. Mol.
Biol. 3 (2004), article 3): it has ``_PRIOR`` degrees of freedom of what the repeats within nights,
or earlier levels, show. Without them two or three nights could never be distinguished from noise.

**No normal distribution.** A night counts as no farther than ``_CLIP`` standard deviations beyond
both its neighbours. Three nights, or two after ``_MANY``, are a level only if each is farther than
all nights before. Of more, most must be at least half as far (``_MOST_OF``) as their average: two
bad nights of four raise the average of all. Of four to six the farthest counts as the second, and
all but one must be farther than 19 of 20 nights before (``_USUAL``). Averages of four or more must
be ``_BEYOND`` times as far as any earlier average of as many. Nights that resemble the night before
(autocorrelation) widen the error of a mean.

**Load.** Two nights on one side of a change whose case waited longer for a processor than on the
other side, by what may explain a figure, show no level: one more night is needed (``_is_load``).

The misses and false alarms of this, of jumpavg and of ruptures: ``ci/bench/changes.py``, with its
figures in docs/dev/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from seatrial.results import statistics
from seatrial.results.figures import DISTURBED_PERCENT

LEAST = 0.01  # a smaller change, as a fraction, is not worth a sentence
LEAST_SCATTER = 2e-3  # a fraction: figures that happen to agree still have noise
USUAL_SCATTER = 1e-2  # of the nights of a new series, if its repeats show less
_P = 5e-5  # two-sided, of one comparison
_P_FEW = 3e-4  # of two or three nights, which must be farther than all of many before
_MANY = 20
_FEW, _SOME = 3, 6  # nights of a window
_PRIOR = 4  # degrees of freedom
_CARRIED = 10  # most of them that earlier levels give
_CLIP = 3.0
_BEYOND = 2.0
_MOST_OF = 0.5  # of the difference of the averages: how far most nights are at least
_USUAL = 0.95  # part of the nights before that all but one of some nights are farther than
_OUTSIDE = 1.1  # times as far as all nights before
_BEFORE = 2  # least nights of a level
LEAST_NIGHTS = _BEFORE + _FEW  # of a series before a change of it can be seen
_WINDOWS = (2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 40, 55, 75, 100, 150)
_TRIAL_NIGHTS = 6  # after a change was found, in which it may be withdrawn
_FIRST = 8  # nights of a level before its own scatter decides how far a night counts
_LIKELY = 2.0  # logarithm of the likelihood ratio: about a 95 % interval
_INTERDECILE = 2.563  # of a normal distribution, in standard deviations
_GAP = 2  # more shifts that are tried where a slope fits one less
_SLOPE = 5  # least nights of a slope
_TRIED = 16  # begins and ends of a slope
_FEWER = 10  # nights by which an autocorrelation is shrunk
_DISTURBED_NIGHTS = 2  # that show no level if their load explains the figures
LARGEST = 1e100  # of figures: the sum of the squares of a million is a number, too
_LONGER = 1.5  # times as long: the wait of nights whose load explains a difference

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Shift:
    """One change of level. Nights are indices of the series."""

    at: int  # first night of the new level
    found: int  # the night whose figure showed it
    low: int  # first and last night on which the new level may have begun
    high: int
    withdrawn: bool = False  # the next nights were of the old level again


@dataclass(frozen=True)
class Noise:
    """What is known of the noise of a level before it has figures of its own."""

    sigma: float
    freedom: int  # of which sigma is known
    scatter: float  # robust; infinite: unknown


def in_units(values: Array, size: float) -> Array:
    """Figures in units of a size, at most ``LARGEST`` of them."""
    with np.errstate(over="ignore"):
        result: Array = np.clip(values / size, -LARGEST, LARGEST)
    return result


def unknown_noise(scatter: float = 0.0) -> Noise:
    """Of a new series. ``scatter``: standard deviation of the repeats within a night."""
    return Noise(max(scatter, USUAL_SCATTER), _PRIOR, math.inf)


def shifts(values: Array, noise: Noise, waits: Array | None = None) -> list[Shift]:
    """The changes of level, in their order; those that later nights withdrew, too.

    ``values``: a figure for each night, in logarithms (or as fractions of a typical figure).
    ``noise``: ``unknown_noise``, in the same unit. ``waits``: for each night how long the figure's
    case waited for a processor, in per cent of its time; NaN: not on record.
    """
    result: list[Shift] = []
    start = first = 0
    waits = np.full(len(values), np.nan) if waits is None else waits
    while shift := _next(values, waits, start, noise, first):
        if _lasted(values, start, shift):
            result.append(shift)
            noise = noise_of(values[start : shift.at], noise)
            start = first = shift.at
        else:
            result.append(replace(shift, withdrawn=True))
            first = shift.found + _TRIAL_NIGHTS
    return result


def lasting(values: Array, noise: Noise, waits: Array | None = None) -> list[Shift]:
    """The changes that later nights neither withdrew nor levelled."""
    moved = [shift for shift in shifts(values, noise, waits) if not shift.withdrawn]
    result: list[Shift] = []
    for number, shift in enumerate(moved):
        end = moved[number + 1].at if number + 1 < len(moved) else len(values)
        old = values[result[-1].at if result else 0 : shift.at]
        if abs(float(np.median(values[shift.at : end]) - np.median(old))) >= LEAST:
            result.append(shift)
    return result


def _lasted(values: Array, start: int, shift: Shift) -> bool:
    """Whether half of the nights since are nearer to the new level, once there are enough."""
    since = values[shift.at : shift.found + 1 + _TRIAL_NIGHTS]
    if len(since) < shift.found + 1 + _TRIAL_NIGHTS - shift.at:
        return True
    old = float(np.median(values[start : shift.at]))
    new = float(np.median(values[shift.at : shift.found + 1]))
    return int((np.abs(since - new) < np.abs(since - old)).sum()) >= len(since) / 2


def noise_of(x: Array, before: Noise) -> Noise:
    """The noise that a level has shown, with what was known before it."""
    scatter = scatter_of(x) if len(x) >= _FIRST else before.scatter
    rest = np.clip(x - np.median(x), -_CLIP * scatter, _CLIP * scatter)
    freedom = before.freedom + len(x) - 1
    sigma = math.sqrt((before.freedom * before.sigma**2 + float(rest @ rest)) / freedom)
    return Noise(max(sigma, LEAST_SCATTER), min(freedom, _CARRIED), scatter)


def error(nights: int, noise: Noise) -> float:
    """Half the 95 % interval of the median of so many nights."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(noise.freedom, 0.975)) * statistics.median_error(noise.sigma, nights)


def scatter_of(x: Array) -> float:
    """Standard deviation by the interdecile range, which ignores one bad night in ten."""
    low, high = np.quantile(x, (0.1, 0.9))
    return max(float(high - low) / _INTERDECILE, LEAST_SCATTER)


def drifts(x: Array, moved: Sequence[Shift]) -> list[tuple[list[Shift], bool]]:
    """The changes of a series; those that one slope describes better than steps are together.

    Returns for each the shifts, and whether they are a slope.
    """
    result = []
    begins = [shift.at for shift in moved]
    ends = [*begins[1:], len(x)]
    first = begin = 0
    while first < len(moved):
        count, drift = 1, False
        for last in range(first, len(moved)):
            if last - first - count > _GAP:
                break
            part = x[begin : ends[last]]
            if _is_drift(part, [at - begin for at in begins[first : last + 1]]):
                count, drift = last - first + 1, True
        result.append((list(moved[first : first + count]), drift))
        first += count
        begin = begins[first - 1]
    return result


def _is_drift(x: Array, begins: Sequence[int]) -> bool:
    """Whether a slope from one level to another describes figures better than the steps at
    ``begins`` do, by Schwarz's criterion (BIC) and a margin."""
    steps = sum(
        float(((part - part.mean()) ** 2).sum()) for part in np.split(x, begins) if len(part)
    )
    rest = x - x.mean()
    starts = np.unique(np.linspace(0, begins[0] - 1, _TRIED).astype(int))
    ends = np.unique(np.linspace(begins[-1] + 1, len(x) - 1, _TRIED).astype(int))
    slope = math.inf
    for start in starts:
        long = ends[ends >= start + _SLOPE]
        if not len(long):
            continue
        ramps = np.clip((np.arange(len(x)) - start) / (long[:, None] - start), 0, 1)
        ramps -= ramps.mean(axis=1, keepdims=True)
        explained = (ramps @ rest) ** 2 / (ramps**2).sum(axis=1)
        slope = min(slope, float(rest @ rest - explained.max()))
    if slope == math.inf:
        return False
    least = len(x) * LEAST_SCATTER**2
    gain = len(x) / 2 * math.log(max(steps, least) / max(slope, least))
    # Steps have two parameters each and one level; a slope has two levels, begin and end.
    margin = _LIKELY if len(begins) == 1 else 0.0
    return gain > (3 - 2 * len(begins)) / 2 * math.log(len(x)) + margin


def _next(values: Array, waits: Array, start: int, noise: Noise, first: int) -> Shift | None:
    """The first change that a night from ``first`` on shows, of the level that begins at ``start``.

    A block of nights is up to three times as long as all before it, which say how far a night
    counts.
    """
    done, count = 0, len(values) - start
    while done < count:
        stop = min(count, max(_FIRST, 4 * done))
        known = values[start : start + done]
        scatter = scatter_of(known) if done >= _FIRST else noise.scatter
        level = _Level(
            values[start : start + stop], waits[start : start + stop], scatter, noise
        )  # fmt: skip
        night = level.first_shown(max(done, first - start, 2 * _BEFORE - 1))
        if night is not None:
            at, low, high = level.place(night)
            return Shift(start + at, start + night, start + low, start + high)
        done = stop
    return None


def calm(x: Array, scatter: float) -> Array:
    """Figures of which none is farther than ``_CLIP`` standard deviations beyond both beside it."""
    before, after = _beside(x)
    edge = _CLIP * scatter
    result: Array = np.clip(x, np.minimum(before, after) - edge, np.maximum(before, after) + edge)
    return result


def _beside(x: Array) -> tuple[Array, Array]:
    """Of each figure the one before and the one after; of the first and the last the only one."""
    before, after = np.r_[x[:1], x[:-1]], np.r_[x[1:], x[-1:]]
    before[:1], after[-1:] = after[:1], before[-1:]
    return before, after


class _Level:
    """Nights from the begin of a level on, with running sums: each window costs the same."""

    def __init__(self, x: Array, waits: Array, scatter: float, noise: Noise):
        self.noise, self.waits = noise, waits
        self.x = x = x - np.median(x)
        before, _ = _beside(x)
        edge = _CLIP * scatter
        self.clipped = clipped = calm(x, scatter)
        self.newest = np.clip(x, before - edge, before + edge)  # its next night is not known
        self.sum = np.r_[0.0, np.cumsum(clipped)]
        self.square = np.r_[0.0, np.cumsum(clipped**2)]

    def first_shown(self, first: int) -> int | None:
        """The first night from ``first`` on whose figure shows a change."""
        candidates = []
        for window in _WINDOWS:
            nights = np.arange(max(first, window + _BEFORE - 1), len(self.x))
            if not len(nights):
                break
            difference, t = self._compare(nights, window)
            likely = (np.abs(t) > self._limit(nights, window)) & (np.abs(difference) >= LEAST)
            if likely.any():
                chosen = nights[likely]
                shown = chosen[self._is_shown(chosen, window, difference[likely], t[likely])]
                candidates += [
                    night for night in shown.tolist()
                    if not self._is_load(night + 1 - window, night + 1)
                ][:1]  # fmt: skip
        return min(candidates, default=None)

    def _is_load(self, begin: int, end: int) -> bool:
        """Whether the few nights on one side of ``begin`` waited longer for a processor than those
        on the other, by what may explain a figure: one more night is needed."""
        sides = self.waits[:begin], self.waits[begin:end]
        if min(map(len, sides)) > _DISTURBED_NIGHTS or any(np.isnan(side).all() for side in sides):
            return False
        old, new = (float(np.nanmedian(side)) for side in sides)
        few, others = (old, new) if len(sides[0]) <= _DISTURBED_NIGHTS else (new, old)
        return few >= max(DISTURBED_PERCENT, _LONGER * others)

    def place(self, night: int) -> tuple[int, int, int]:
        """Where a new level begins that ``night`` shows: the likeliest, first and last night.

        The last may be ``night`` itself, whose figure is large enough to show the one before, too.
        """
        windows = np.arange(1, night + 2 - _BEFORE)
        nights = np.full(len(windows), night)
        _, t = self._compare(nights, windows)
        freedom = self._freedom(night)
        likelihood = freedom / 2 * np.log1p(t**2 / freedom)
        begins = night + 1 - windows
        likely = begins[likelihood >= likelihood.max() - _LIKELY]
        return int(begins[1:][likelihood[1:].argmax()]), int(likely.min()), int(likely.max())

    def _compare(self, nights: Numbers, window: int | Numbers) -> tuple[Array, Array]:
        """Difference and t of the ``window`` figures that end with a night and all before them."""
        before = nights + 1 - window
        newest = self.newest[nights]
        old, total = self.sum[before], self.sum[nights] + newest
        new = total - old
        mean_old, mean_new = old / before, new / window
        squares = self.square[nights] + newest**2
        within = np.maximum(squares - old * mean_old - new * mean_new, 0)
        freedom = self._freedom(nights)
        variance = (self.noise.freedom * self.noise.sigma**2 + within) / freedom
        variance = np.maximum(variance, LEAST_SCATTER**2)
        difference = mean_new - mean_old
        return difference, difference / np.sqrt(variance * (1 / window + 1 / before))

    def _freedom(self, nights: int | Numbers) -> Any:
        return nights - 1 + self.noise.freedom

    def _limit(self, nights: Numbers, window: int) -> Array:
        freedom = self._freedom(nights)
        limit = _limits(_P, len(self.x))[freedom]
        if window > _FEW:
            return limit
        many = nights + 1 - window >= _MANY
        return np.where(many, _limits(_P_FEW, len(self.x))[freedom], limit)

    def _is_shown(self, nights: Numbers, window: int, difference: Array, t: Array) -> Any:
        """Whether what is no noise of a normal distribution is no other noise either."""
        before = nights + 1 - window
        mean = self.sum[before] / before
        sign = np.sign(difference)
        error = np.sqrt(
            (self._inflation(before, window, mean) / window
             + self._inflation(before, before, mean) / before)
            / (1 / window + 1 / before)
        )  # fmt: skip
        shown = np.abs(t) / error > self._limit(nights, window)
        new = np.sort(sign[:, None] * sliding_window_view(self.x, window)[before], axis=1)
        if window <= _FEW:
            shown &= (before >= _MANY) | (window == _FEW)
            farthest = np.where(
                sign > 0,
                np.maximum.accumulate(self.x)[before - 1],
                -np.minimum.accumulate(self.x)[before - 1],
            )
            centre = sign * mean
            return shown & (new[:, 0] - centre > _OUTSIDE * (farthest - centre))
        middle = new[:, (window - 1) // 2]  # the lower one of two
        shown &= middle - sign * mean >= _MOST_OF * np.abs(difference)
        if window <= _SOME:
            size = np.abs(difference)
            reduced = np.maximum(size - (new[:, -1] - new[:, -2]) / window, 0)
            shown &= np.abs(t) / error * reduced / size > self._limit(nights, window)
            difference = difference * reduced / size
        past = np.minimum(window, np.maximum(before // 2, 1))
        most = np.empty(len(nights))
        for length in np.unique(past).tolist():
            chosen = past == length
            means = (self.sum[length:] - self.sum[:-length]) / length
            at = before[chosen] - length
            high, low = np.maximum.accumulate(means)[at], np.minimum.accumulate(means)[at]
            most[chosen] = np.where(sign[chosen] > 0, high - mean[chosen], mean[chosen] - low)
        shown &= np.abs(difference) > np.maximum(_BEYOND * most, LEAST)
        if window <= _SOME:
            for at in np.flatnonzero(shown):
                usual = np.quantile(sign[at] * self.x[: before[at]], _USUAL)
                shown[at] = new[at, 1] > usual
                if shown[at]:
                    break
        return shown

    def _inflation(self, before: Numbers, count: int | Numbers, mean: Array) -> Array:
        """Variance of a mean of ``count`` figures over that of independent ones: of a process
        whose nights resemble the last with the correlation that the old level shows."""
        products = np.r_[0.0, 0.0, np.cumsum(self.clipped[1:] * self.clipped[:-1])]
        old = self.sum[before]
        ends = self.clipped[0] + self.clipped[before - 1]
        lagged = products[before] - mean * (2 * old - ends) + (before - 1) * mean**2
        square = np.maximum(self.square[before] - old * mean, LEAST_SCATTER**2)
        alike = np.clip(lagged / square, 0, 0.9) * before / (before + _FEWER)
        rest = 1 - alike
        result: Array = 1 + 2 * alike / rest * (1 - (1 - alike**count) / (count * rest))
        return result


@cache
def _all_limits(p: float, most: int) -> Array:
    from scipy.special import stdtrit  # slow to import

    return np.r_[math.inf, -stdtrit(np.arange(1, most), p / 2)]


def _limits(p: float, nights: int) -> Array:
    """|t| at the two-sided ``p`` by degrees of freedom, for a level of so many nights."""
    return _all_limits(p, 1 << (nights + _CARRIED).bit_length())
