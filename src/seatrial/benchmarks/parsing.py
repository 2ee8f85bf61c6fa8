"""The result and the error of all parsers, and their strict readers of numbers.

A parser is a pure function of a program's output. It returns all figures or raises ParseError:
half a table is no evidence. Not here: files, judging, and the path proof
(``seatrial.checks.counters``).
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from seatrial.base.errors import SeatrialError
from seatrial.results.record import Curve, Metric, Suspect

# float() also accepts "nan", "inf", "1_000" and signs. No benchmark may report these.
_DECIMAL = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
# No count has more digits. int() raises its own error for thousands of digits.
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_CRC = re.compile(r"# crc32 ([0-9a-f]{8})")


class ParseError(SeatrialError):
    """The output is not that of a complete run of the program.

    ``line`` counts from 1; None: the error is not in one line.
    """

    def __init__(self, message: str, line: int | None = None):
        self.line = line
        super().__init__(f"line {line}: {message}" if line else message)


@dataclass(frozen=True)
class Parsed:
    """The figures of one output.

    ``facts``: verification, problem size, printed versions. ``moved_bytes``: the least number of
    payload bytes that the interface of each node carried (sum of both directions), if the
    processes are on at least two nodes; warm-ups are not counted. ``moved_beside``: the same of
    further networks that were used at once. ``unmeasured``: node or link without figures -> why;
    ``absent``: the nodes that did not take part to the end.
    """

    metrics: list[Metric]
    curves: list[Curve] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    moved_bytes: int = 0
    moved_beside: dict[str, int] = field(default_factory=dict)
    suspects: list[Suspect] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def value(self, metric: str) -> float:
        """The value of a metric. Raises KeyError if the output has no such metric."""
        for candidate in self.metrics:
            if candidate.metric == metric:
                return candidate.value
        raise KeyError(metric)


def lower(name: str, value: float, unit: str) -> Metric:
    """A metric whose lower values are better."""
    return _metric(name, value, unit, "lower")


def higher(name: str, value: float, unit: str) -> Metric:
    """A metric whose higher values are better."""
    return _metric(name, value, unit, "higher")


def _metric(name: str, value: float, unit: str, better: Literal["lower", "higher"]) -> Metric:
    return Metric(metric=name, value=value, unit=unit, better=better)


def latency_curve(name: str, points: list[tuple[float, float]]) -> Curve:
    """(bytes, us) points."""
    return Curve(name=name, y_name="latency", y_unit="us", points=points)


def bandwidth_curve(name: str, points: list[tuple[float, float]]) -> Curve:
    """(bytes, 10^6 B/s) points."""
    return Curve(name=name, y_name="bandwidth", y_unit="MB/s", points=points)


def sealed_lines(text: str, title: re.Pattern[str], what: str) -> tuple[list[str], int]:
    """The lines from the title to the one of their checksum, and the number of the first.

    ``what`` describes the title. An MPI or a launcher may print other lines before and after.
    Raises ParseError if the checksum (``# crc32 <8 digits>``, zlib's) is missing or wrong.
    """
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if title.fullmatch(line)]
    if len(starts) != 1:
        raise ParseError(f"expected one line {what}, found {len(starts)}")
    start = starts[0]
    for index, line in enumerate(lines[start:], start):
        match = _CRC.fullmatch(line)
        if match and index + 1 < len(lines):  # the line is complete
            block = lines[start:index]
            checksum = zlib.crc32("".join(f"{line}\n" for line in block).encode())
            if checksum != int(match[1], 16):
                raise ParseError(
                    f"expected lines of checksum {match[1]}, found {checksum:08x}: a line between "
                    f"{start + 1} and {index} is damaged, or is of another program",
                    index + 1,
                )
            return block, start + 1
    raise ParseError("expected '# crc32 ...' at the end: the table is cut off", len(lines))


def matching_line(
    lines: Sequence[str], first: int, index: int, pattern: re.Pattern[str], what: str
) -> re.Match[str]:
    """The match of a line, whose number is ``first + index``. Raises ParseError."""
    match = pattern.fullmatch(lines[index]) if index < len(lines) else None
    if match is None:
        printed = repr(lines[index]) if index < len(lines) else "the end"
        raise ParseError(f"expected {what}, found {printed}", first + index)
    return match


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
    """The greatest rounding error of a printed number: half a unit of its last digit."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def agree(
    printed: str, expected: tuple[float, float], line: int | None, what: str, from_what: str
) -> None:
    """Compare a printed number with the range that other columns give, to detect damaged digits.

    Raises ParseError if the difference is larger than the rounding of the number.
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
    """The range of values that are printed as ``token``."""
    value, half = float(token), rounding(token)
    return max(value - half, 0.0), value + half


def quotient(top: float, bottom: tuple[float, float]) -> tuple[float, float]:
    """``top`` divided by the ends of a range. The result has no upper end if the range has 0."""
    low, high = bottom
    return top / high, top / low if low > 0 else math.inf


def small_and_large(sizes: Sequence[int]) -> list[int]:
    """The sizes whose times are metrics of a collective: the smallest from 8 B on, the largest."""
    small = min((size for size in sizes if size >= 8), default=max(sizes))
    return sorted({small, max(sizes)})
