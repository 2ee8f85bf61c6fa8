"""Which of several options is best, from repeated measurements: one, none, or measure more.

The comparison is distribution-free, because figures of a network have outliers and regimes. The
ratio of two options is estimated by the shift of Hodges and Lehmann between the logarithms of their
samples (the median of all differences), with the exact interval that belongs to the test of Mann,
Whitney and Wilcoxon (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition,
4.2 and 4.3). It assumes that the samples of an option are independent, and that two options scatter
alike.

Of k options each interval has the confidence 1 - 0.05 / (k - 1), by Bonferroni: all intervals
against one option hold together with 95 %. An option that is no better than the others is thus
called the best in at most 5 % of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.analysis.conclusion import CONFIDENCE, Estimate
from seatrial.results import statistics
from seatrial.results.statistics import Better

#: A difference below 3 % changes no choice of a profile, however certain it is.
SMALLEST = 0.03
MOST_REPEATS = 1000  # a larger number of repeats is not proposed
_EXACT = 40  # samples of an option up to which the distribution is exact

Answer = Literal["best", "no difference", "measure more"]


@dataclass(frozen=True)
class Decision:
    """The answer on some options.

    ``leaders``: the best option alone, or the options at the top that are not told apart, the one
    with the highest estimate first. ``worse``: options that are worse than the first leader.
    ``ahead``: option -> how many times better the first leader is. ``margin``: the smallest
    difference that counts, a fraction: 3 %, or the spread of the samples if that is larger.
    ``needs``: repeats of each option for an answer; None if it is there. ``reason``: of "measure
    more". ``refused``: option -> why its samples cannot be compared.
    """

    answer: Answer
    leaders: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    ahead: Mapping[str, Estimate] = field(default_factory=dict)
    margin: float = SMALLEST
    repeats: int = 0  # least number of samples of an option
    needs: int | None = None
    reason: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)


def fault(samples: Sequence[float]) -> str:
    """Why samples have no logarithm, or ""."""
    if len(samples) == 0:
        return "it has no sample"
    for value in samples:
        if not math.isfinite(value):
            return f"a sample is {value}, which is not a finite number"
        if value <= 0:
            return f"a sample is {value:g}, and must be above zero"
    return ""


def least_repeats(options: int) -> int:
    """The number of samples from which the best of so many options can be named.

    The interval of two options of n samples each is finite from the n at which all samples of the
    one exceed all of the other by chance in at most 0.05 / (k - 1) / 2 of experiments.
    """
    return next(n for n in range(1, 100) if 1 / math.comb(2 * n, n) <= _tail(options))


def _tail(options: int) -> float:
    """Probability on each side of an interval."""
    return (1 - CONFIDENCE) / max(1, options - 1) / 2


def ratio(a: Sequence[float], b: Sequence[float], options: int = 2) -> Estimate:
    """How many times larger a is than b; ``options``: the number of options of the decision.

    The interval is from 0 to infinity if there are too few samples. Raises ValueError if a sample
    is not above zero.
    """
    if why := fault(a) or fault(b):
        raise ValueError(why)
    shifts = np.sort(np.subtract.outer(np.log(a), np.log(b)).ravel())
    cut = _cut(len(a), len(b), _tail(options))
    low, high = (shifts[cut - 1], shifts[-cut]) if cut else (-math.inf, math.inf)
    return Estimate(*(float(np.exp(shift)) for shift in (np.median(shifts), low, high)))


def gain(a: Sequence[float], b: Sequence[float], better: Better, options: int = 2) -> Estimate:
    """How many times better a is than b: as ``ratio``, above 1 if a is better."""
    return ratio(a, b, options) if better == "higher" else ratio(b, a, options)


@cache
def _cut(m: int, n: int, tail: float) -> int:
    """The largest c with P(U < c) <= tail, of the statistic U of m and n samples; 0 if none."""
    if max(m, n) > _EXACT:
        # The normal approximation with Kendall's continuity correction.
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 + 0.5 + deviation * NormalDist().inv_cdf(tail)))
    counts = np.ones(1)  # the Gaussian binomial coefficient, by its factors
    for i in range(1, m + 1):
        longer = np.zeros(len(counts) + n + i)
        longer[: len(counts)] += counts
        longer[n + i :] -= counts
        counts = _divided(longer, i)[: i * n + 1]
    below = np.cumsum(counts) / math.comb(m + n, m)
    return int(np.searchsorted(below, tail * (1 + 1e-9), side="right"))


def _divided(counts: NDArray[np.float64], i: int) -> NDArray[np.float64]:
    """The polynomial over 1 - x^i."""
    result = counts.copy()
    for k in range(i, len(result)):
        result[k] += result[k - i]
    return result


def _spread(samples: Sequence[float]) -> float:
    """Relative spread of the samples of an option, a fraction."""
    return statistics.spread([math.log(value) for value in samples]) or 0.0


def decide(options: Mapping[str, Sequence[float]], better: Better) -> Decision:
    """The best of some options, each with the samples of its performance.

    1. Options whose samples have no logarithm are refused; of fewer than two others there is no
       decision.
    2. The leader is the option with the best median. Another option is worse if the whole interval
       of the ratio is on one side of 1 and the difference is at least the margin.
    3. All others are worse: "best". Else the others are leaders, too: "no difference" if each
       interval is at most twice the margin wide, so that a difference that counts would have been
       seen; "measure more" if not, with the number of repeats that should do.
    """
    refused = {name: why for name, samples in options.items() if (why := fault(samples))}
    usable = {name: list(samples) for name, samples in options.items() if name not in refused}
    repeats = min(map(len, usable.values()), default=0)
    k = len(usable)
    if k < 2:
        why = "there is nothing to compare it with" if k else "no option has samples"
        return Decision("measure more", tuple(usable), repeats=repeats, reason=why, refused=refused)
    sign = 1 if better == "higher" else -1
    leader = max(usable, key=lambda name: sign * statistics.median(usable[name]))
    ahead: dict[str, Estimate] = {}
    ties, worse = [leader], []
    open_: dict[str, float] = {}  # option -> width of its interval over that which is allowed
    margins = [SMALLEST]
    for name, samples in usable.items():
        if name == leader:
            continue
        ahead[name] = estimate = gain(usable[leader], samples, better, k)
        margin = max(SMALLEST, _spread(samples), _spread(usable[leader]))
        if estimate.low > 1 and estimate.value >= 1 + margin:
            worse.append(name)
            continue
        ties.append(name)
        margins.append(margin)
        open_[name] = _width(estimate) / (2 * math.log1p(margin))
    made = Decision(
        "best", tuple(ties), tuple(worse), ahead, max(margins), repeats, refused=refused
    )
    if not open_:
        return made
    widest, least = max(open_.values()), least_repeats(k)
    if widest <= 1:
        return replace(made, answer="no difference")
    if repeats < least:
        times = "was measured once" if repeats == 1 else f"has {repeats} repeats"
        why = f"a profile {times}, and {k} profiles need {least} repeats each"
        return replace(made, answer="measure more", needs=least, reason=why)
    needs = max(repeats + 1, min(MOST_REPEATS, math.ceil(repeats * widest**2)))
    why = "the repeats scatter too much to see a difference that counts"
    return replace(made, answer="measure more", needs=needs, reason=why)


def _width(estimate: Estimate) -> float:
    """Width of an interval on the scale of logarithms."""
    return math.log(estimate.high / estimate.low) if estimate.low > 0 else math.inf
