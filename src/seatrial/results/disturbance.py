"""What waits for a processor, which other programs used, say of a figure and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from seatrial.results import statistics
from seatrial.results.figures import DISTURBED_PERCENT, Figure, Wait
from seatrial.results.statistics import Limit, Statistic

#: The most of its time that a figure is taken to have lost by waits; all of it would be no figure.
MOST_LOST = 0.9


def explains(wait: Wait | None, sample: float, limit: Limit) -> bool:
    """Whether a wait for a processor may be why a sample breaks a bound.

    A rate at 1/r of the bound, or a time r times as long, has lost 1 - 1/r of its time. No wait
    explains a zero.
    """
    smaller, larger = sorted((sample, limit.bound))
    if limit.excess(sample) <= 0 or smaller <= 0:
        return False
    return wait is not None and wait.most_lost > 100 * (1 - smaller / larger)


def has_waited(wait: Wait | None) -> TypeGuard[Wait]:
    """Whether a wait is known, and too long to be that of a node's daemons."""
    return wait is not None and wait.percent > DISTURBED_PERCENT


def undisturbed(figure: Figure, samples: Sequence[float], statistic: Statistic) -> float | None:
    """The statistic over the samples of a figure, as if they had not waited for a processor.

    A sample is taken to have lost the same share of its time as its step. That is less than a wait
    may explain (``explains``): else a reference whose step waited for a fifth of its time would
    decide nothing, however far the figure is within its bound. With ``best``, it is of the best
    sample alone. None: less than half of the samples that count waited.
    """
    pairs = list(zip(samples, figure.waits, strict=True))
    if statistic == "best":
        pairs = [(max if figure.better == "higher" else min)(pairs, key=lambda pair: pair[0])]
    lost = [min(wait.percent / 100, MOST_LOST) if has_waited(wait) else 0.0 for _, wait in pairs]
    if 2 * sum(part > 0 for part in lost) < len(lost):
        return None
    kept = [(x, 1 - part) for (x, _), part in zip(pairs, lost, strict=True)]
    values = [x / part if figure.better == "higher" else x * part for x, part in kept]
    return statistics.summarize(values, statistic, figure.better)
