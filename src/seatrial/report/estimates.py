"""Estimates with their intervals, in words and as bars of a picture.

Apart from ``meaning``, so that a command which prints one does not load the analyses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seatrial.analysis.conclusion import Estimate, scaled
from seatrial.analysis.decision import SMALLEST, Decision
from seatrial.report.text import fitting
from seatrial.results.wording import number


def _texts(estimate: Estimate) -> list[str]:
    """Value, low and high with as many digits as tell the ends from each other and from 1."""
    ends = (estimate.value, estimate.low, estimate.high)
    apart = (
        d
        for d in range(3, 7)
        if number(estimate.low, d) != number(estimate.high, d)
        and all(number(end, d) != "1" or end == 1 for end in (estimate.low, estimate.high))
    )
    digits = next(apart, 3)
    return [number(x, digits) for x in ends]


def bounded(estimate: Estimate) -> bool:
    return math.isfinite(estimate.low) and math.isfinite(estimate.high)


def with_interval(estimate: Estimate, unit: str = "") -> str:
    """``1.34 times (1.30 to 1.38)`` of unit times; without an interval if there is none."""
    if not bounded(estimate):
        return f"{number(estimate.value, 3)}{unit} (too few samples for an interval)"
    value, low, high = _texts(estimate)
    return f"{value}{unit} ({low} to {high})"


def amount_with_interval(estimate: Estimate, unit: str) -> str:
    """As ``with_interval``; a time in a unit that fits: ``440 us (432 to 447)``."""
    name, factor = fitting(estimate.value, unit)
    return with_interval(scaled(estimate, factor), f" {name}".rstrip())


def small_difference(d: Decision) -> str:
    """Of an answer "no difference": the certain ones that are smaller than counts, or ""."""
    if not d.behind:
        return ""
    listed = ", ".join(
        f"than {p} by {number(100 * (d.ahead[p].low - 1), 2)} to "
        f"{number(100 * (d.ahead[p].high - 1), 2)} %"
        for p in d.behind
    )
    why = "less than single runs scatter" if d.margin > SMALLEST else "too little to count"
    return f"{d.leaders[0]} is better {listed}, {why}"


def times(estimate: Estimate) -> str:
    return with_interval(estimate, " times")


def interval_bars(estimates: Sequence[Estimate], colour: str) -> dict[str, Any]:
    """Plotly's error bars over the intervals; none where there is no interval."""
    return {
        "type": "data", "symmetric": False, "color": colour, "thickness": 2,
        "array": [e.high - e.value if bounded(e) else 0.0 for e in estimates],
        "arrayminus": [e.value - e.low if bounded(e) else 0.0 for e in estimates],
    }  # fmt: skip


def percent_with_interval(share: Estimate) -> str:
    """In per cent, with the interval."""
    return with_interval(scaled(share, 100), " %")
