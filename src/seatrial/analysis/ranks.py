"""The shift between two groups of samples, by ranks: no distribution is assumed.

The estimate of Hodges and Lehmann is the median of all differences. Its interval belongs to the
test of Mann, Whitney and Wilcoxon (Hollander, Wolfe and Chicken, Nonparametric Statistical
Methods, 3rd edition, 4.2 and 4.3). Samples must be independent, and scatter alike in both groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_EXACT = 40  # samples of a group up to which the distribution is exact

Values = Sequence[float] | NDArray[np.float64]


def hodges_lehmann(a: Values, b: Values, tail: float) -> tuple[float, float | None, float | None]:
    """The shift from ``a`` to ``b``, and its interval; None if there are too few samples for one.

    ``tail``: the probability that the shift is beyond the interval, on each side.
    """
    shifts = np.sort(np.subtract.outer(np.asarray(b), np.asarray(a)).ravel())
    shift, cut = float(np.median(shifts)), _cut(len(a), len(b), tail)
    return (shift, float(shifts[cut - 1]), float(shifts[-cut])) if cut else (shift, None, None)


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


def of_median(samples: Values, tail: float) -> tuple[float, float | None, float | None]:
    """The median of a group, and its interval by the sign test; None if there are too few samples.

    The sign test assumes no distribution, not even that the samples scatter alike on both sides
    (Hollander, Wolfe and Chicken, 3.4 to 3.6). Six samples are the fewest for 95 %.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    n, below, cut = len(ordered), 0.0, 0
    while 2 * cut < n and (below := below + math.comb(n, cut) / 2**n) <= tail * (1 + 1e-9):
        cut += 1
    middle = float(np.median(ordered))
    return (middle, float(ordered[cut - 1]), float(ordered[-cut])) if cut else (middle, None, None)
