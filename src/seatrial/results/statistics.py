"""Robust statistics of few samples, for judging and for baselines.

All functions take finite floats, and return values in the unit of their input. Benchmarks have
outliers on one side (a daemon, a retransmission), hence medians and median deviations instead of
means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Statistic = Literal["median", "best", "worst", "p99", "majority"]
Better = Literal["lower", "higher"]

ROUNDING = 1e-9  # relative error of the arithmetic
MAD_TO_SIGMA = 1.4826  # 1 / Phi^-1(3/4): makes the MAD of a normal distribution its sigma
# Expected range of n normal samples in units of sigma (Tippett 1925; the d2 of control charts).
_RANGE = {2: 1.128, 3: 1.693}
# Small-sample factors that make the MAD unbiased for normal samples: C. Croux and
# P. J. Rousseeuw, "Time-efficient algorithms for two highly robust estimators of scale",
# Computational Statistics 1 (1992), 411-428; n / (n - 0.8) beyond 9 samples.
_MAD = {4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


def median(samples: Sequence[float]) -> float:
    """Middle sample, or the mean of the two middle ones. ValueError if there is none."""
    ordered, half = sorted(samples), len(samples) // 2
    if not ordered:
        raise ValueError("no samples")
    return float(ordered[half] if len(ordered) % 2 else _mean(ordered[half - 1], ordered[half]))


def median_without(ordered: Sequence[float], sample: float) -> float:
    """Median of sorted samples without ``one`` of them. ValueError if no other is left."""
    half, odd = divmod(len(ordered) - 1, 2)
    if half + odd < 1:
        raise ValueError("no samples")

    def other(index: int) -> float:
        return ordered[index if sample > ordered[index] else index + 1]

    return float(other(half) if odd else _mean(other(half - 1), other(half)))


def _mean(a: float, b: float) -> float:
    """Halved first: the sum of two finite values can be infinite."""
    return a / 2 + b / 2


def quantile(samples: Sequence[float], fraction: float) -> float:
    """Smallest sample that at least ``fraction`` of the samples do not exceed.

    The inverse of the empirical distribution (Hyndman and Fan 1996, type 1): always a value
    that was measured, so the 99th percentile of fewer than 100 samples is their maximum.
    """
    ordered = sorted(samples)
    # The subtraction keeps a product such as 0.07 * 100 = 7.000000000000001 from rounding up.
    return ordered[max(0, math.ceil(fraction * len(ordered) - 1e-9) - 1)]


def summarize(samples: Sequence[float], statistic: Statistic, better: Better) -> float:
    """The value that is judged. ``p99`` is the value that 99 % of the samples reach.

    That is the 99th percentile if lower is better, and the 1st if higher is better. For
    ``majority`` it is the median, which lies on the side of a bound where most samples lie.
    """
    if statistic in ("median", "majority"):
        return median(samples)
    low_is_good = better == "lower"
    if statistic == "p99":
        sign = 1 if low_is_good else -1
        return sign * quantile([sign * x for x in samples], 0.99)
    return min(samples) if low_is_good == (statistic == "best") else max(samples)


def spread(samples: Sequence[float]) -> float | None:
    """Robust standard deviation; None for fewer than two samples.

    From four samples on: the median absolute deviation about the median, times 1.4826 and
    the factor that corrects its bias for so few samples. For two and three: range / d2.
    The MAD of three samples is the smaller of their two gaps, which is near zero whenever
    two happen to agree, even on a noisy machine. With so few samples an outlier cannot be
    distinguished from noise, so all of them count. (For two, both formulas are the same.)
    """
    n = len(samples)
    if n < 2:
        return None
    if n in _RANGE:
        return (max(samples) - min(samples)) / _RANGE[n]
    centre = median(samples)
    deviation = median([abs(x - centre) for x in samples])
    return MAD_TO_SIGMA * _MAD.get(n, n / (n - 0.8)) * deviation


def median_error(sigma: float, n: int) -> float:
    """Standard error of the median of ``n`` normal samples: sqrt(pi/2) sigma / sqrt(n).

    The factor is 1 for two samples and 1.16 for three; the asymptotic 1.25 is used
    throughout, which errs towards "not certain" (Kendall and Stuart, vol. 1, 10.14).
    """
    return sigma if n < 2 else math.sqrt(math.pi / 2 / n) * sigma


def median_interval(
    samples: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Distribution-free confidence interval of the median, from order statistics.

    The k-th smallest and k-th largest samples enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics, 7.1). The largest k
    that still gives ``confidence`` is used; None if even k = 1 does not (n < 6 for 95 %).
    """
    ordered, n = sorted(samples), len(samples)
    tail, k = 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n
        if 2 * tail > 1 - confidence:
            break
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else None


def chance_of_breaking(broken: int, samples: int) -> float:
    """Probability that the next sample breaks a bound that ``broken`` of ``samples`` broke.

    Laplace's rule of succession.
    """
    return (broken + 1) / (samples + 2)


@dataclass(frozen=True)
class Limit:
    """One bound and its uncertainty, in the unit of the samples.

    ``width`` is the tolerance: the distance from the reference to the bound. If that is
    zero or there is no reference ("at most 50 us"), it is the bound itself. A bound that
    was measured (a ratio to another metric) has a ``sigma``, the standard ``error`` of its
    median, and ``extreme``: the bound by the most generous of the other metric's samples.
    """

    side: Literal["least", "most"]
    bound: float
    width: float
    sigma: float = 0.0
    error: float = 0.0
    extreme: float | None = None

    def excess(self, x: float, bound: float | None = None) -> float:
        """How far ``x`` lies beyond the bound; zero or negative if it is within."""
        bound = self.bound if bound is None else bound
        distance = x - bound if self.side == "most" else bound - x
        # reference * (1 + fraction) is not exact: a value on the bound is within.
        return distance if abs(distance) > ROUNDING * abs(bound) else 0.0

    def includes(self, samples: Sequence[float]) -> bool:
        """Whether all samples are within the bound."""
        return self.excess(max(samples) if self.side == "most" else min(samples)) <= 0


def is_clear(value: float, spread: float, limit: Limit) -> bool:
    """Whether samples that are all within a bound pass without ``decide``.

    ``value`` is their statistic. ``decide`` then says ``pass``, whatever the statistic is: the
    tests below are its rules 5 and 6 with larger standard deviations.
    """
    distance = abs(value - limit.bound)
    if limit.sigma and distance < spread + limit.error:
        return False
    return spread + limit.sigma <= max(limit.width, distance)


def decide(
    samples: Sequence[float], limit: Limit, statistic: Statistic, better: Better
) -> Literal["pass", "fail", "inconclusive"]:
    """Compare samples with one bound, so that chance decides neither for nor against.

    1. All samples are beyond the bound: fail, however much they scatter.
    2. One sample and an exact bound: the value decides, since there is no spread.
       ``majority``: the side with more than half of the samples decides; inconclusive if neither
       has. It is for figures that take one of few values instead of scattering about one.
       With a bound that was measured itself it is treated as the median.
    3. ``worst`` beyond a bound, or ``best`` within it, is a fact about the samples.
    4. Six samples or more: if the 95 % interval of the median lies on one side of the
       bound, that side decides, however much single samples scatter.
    5. Inconclusive if the value is nearer to the bound than the standard error of the
       median while samples lie on both sides: another set of runs could say the opposite.
    6. Inconclusive if the spread exceeds the tolerance ``width``: always for a
       value beyond; for a value within unless its distance from the bound exceeds the spread.
       (A noisy machine may be three times better than required.)
    7. Else the value decides.

    Worse samples never turn a fail into a pass: a pass needs the value within, and each statistic
    is monotonic in its samples.
    """
    value = summarize(samples, statistic, better)
    beyond = [limit.excess(x) > 0 for x in samples]
    outside = limit.excess(value) > 0
    by_value: Literal["pass", "fail"] = "fail" if outside else "pass"
    extreme = limit.bound if limit.extreme is None else limit.extreme
    if all(beyond) and all(limit.excess(x, extreme) > 0 for x in samples):
        return "fail"
    if len(samples) == 1 and not limit.sigma:
        return by_value
    if statistic == "majority" and not limit.sigma:
        if 2 * sum(beyond) == len(beyond):
            return "inconclusive"
        return by_value
    if not limit.sigma and _is_fact(statistic, limit.side, better, outside):
        return by_value
    if statistic == "median" and not limit.sigma and (ends := median_interval(samples)):
        sides = {limit.excess(end) > 0 for end in ends}
        if sides == {outside}:
            return by_value
    scatter = spread(samples) or 0.0
    sigma = math.hypot(scatter, limit.sigma)
    of_median = statistic in ("median", "majority")
    error = median_error(scatter, len(samples)) if of_median else scatter
    distance = abs(value - limit.bound)
    on_both_sides = len(set(beyond)) == 2 or limit.sigma > 0
    if on_both_sides and distance < math.hypot(error, limit.error) * (1 - ROUNDING):
        return "inconclusive"
    room = limit.width if outside else max(limit.width, distance)
    if sigma > room * (1 + ROUNDING):
        return "inconclusive"
    return by_value


def _is_fact(statistic: Statistic, side: str, better: Better, outside: bool) -> bool:
    """Whether the value is an extreme sample that decides by itself."""
    if statistic not in ("best", "worst"):
        return False
    is_maximum = (statistic == "worst") == (better == "lower")
    nearest_to_bound = is_maximum == (side == "most")
    return outside if nearest_to_bound else not outside
