"""What every parser returns and raises, and the strict readers of numbers they share.

A parser is a pure function of a program's output. It returns the whole of it or
raises ParseError: a table that is cut off or damaged is worth nothing in a
dispute. Not here: files, judging, and the proof of the path (``counters``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from seatrial.base.errors import SeatrialError
from seatrial.results.record import Curve, Metric

# float() alone would take "nan", "inf", "1_000" and signs, none of which a benchmark may report.
_DECIMAL = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
# No count has more digits, and int() refuses thousands of them with an error of its own.
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


class ParseError(SeatrialError):
    """The output is not what a complete run of the program prints.

    ``line`` counts from 1; None where the text as a whole is at fault.
    """

    def __init__(self, message: str, line: int | None = None):
        self.line = line
        super().__init__(f"line {line}: {message}" if line else message)


@dataclass(frozen=True)
class Parsed:
    """One output, read whole.

    ``facts``: what was verified, problem size, versions printed. ``moved_bytes``:
    the least number of payload bytes that the interface of each participating
    node carried (sum of both directions), each process set spread over at least
    two nodes; warm-ups are not counted.
    """

    metrics: list[Metric]
    curves: list[Curve] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    moved_bytes: int = 0

    def value(self, metric: str) -> float:
        """The figure of that name. Raises KeyError where the output had none."""
        for one in self.metrics:
            if one.metric == metric:
                return one.value
        raise KeyError(metric)


def lower(name: str, value: float, unit: str) -> Metric:
    """A figure of which less is better."""
    return _metric(name, value, unit, "lower")


def higher(name: str, value: float, unit: str) -> Metric:
    """A figure of which more is better."""
    return _metric(name, value, unit, "higher")


def _metric(name: str, value: float, unit: str, better: Literal["lower", "higher"]) -> Metric:
    return Metric(metric=name, value=value, unit=unit, better=better)


def latency_curve(name: str, points: list[tuple[float, float]]) -> Curve:
    """(bytes, us) points."""
    return Curve(name=name, y_name="latency", y_unit="us", points=points)


def bandwidth_curve(name: str, points: list[tuple[float, float]]) -> Curve:
    """(bytes, 10^6 B/s) points."""
    return Curve(name=name, y_name="bandwidth", y_unit="MB/s", points=points)


def whole(token: str, line: int | None, what: str) -> int:
    """A non-negative integer. Raises ParseError."""
    if not _WHOLE.fullmatch(token):
        raise ParseError(f"expected {what} as a whole number, found {token!r}", line)
    return int(token)


def figure(token: str, line: int | None, what: str, *, zero: bool = False) -> float:
    """A finite positive number (or zero, with ``zero``). Raises ParseError."""
    value = float(token) if _DECIMAL.fullmatch(token) else math.nan
    if not math.isfinite(value):
        raise ParseError(f"expected {what} as a finite number above zero, found {token!r}", line)
    if value == 0 and not zero:
        raise ParseError(f"expected {what} above zero, found {token!r}", line)
    return value


def rounding(token: str) -> float:
    """Half a unit of the last digit that was printed: how far the true value may be."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def agree(
    printed: str, expected: tuple[float, float], line: int | None, what: str, from_what: str
) -> None:
    """Hold a printed number against the range that other columns allow, for damaged digits.

    Raises ParseError where they disagree by more than rounding explains.
    """
    value, half = float(printed), rounding(printed)
    low, high = expected
    slack = 1e-9 * abs(value)
    if not low - half - slack <= value <= high + half + slack:
        raise ParseError(
            f"{what} is {printed}, but {from_what} give {low:.6g} to {high:.6g}: "
            "a number is damaged",
            line,
        )


def spread_of(token: str) -> tuple[float, float]:
    """The range of true values that would have been printed as ``token``."""
    value, half = float(token), rounding(token)
    return max(value - half, 0.0), value + half


def quotient(top: float, bottom: tuple[float, float]) -> tuple[float, float]:
    """``top`` divided by each end of a range; a range that touches zero is open upwards."""
    low, high = bottom
    return top / high, top / low if low > 0 else math.inf


def small_and_large(sizes: Sequence[int]) -> list[int]:
    """The sizes at which collectives are judged: the smallest of at least 8 B, and the largest."""
    small = min((size for size in sizes if size >= 8), default=max(sizes))
    return sorted({small, max(sizes)})
