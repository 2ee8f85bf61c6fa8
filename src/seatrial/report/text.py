"""Words, symbols and numbers, as every format of the report writes them.

A verdict is never told by colour alone: each has a symbol (and an ASCII one for
pipes and plain terminals) and a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from seatrial.results.record import Case, Judgement
from seatrial.results.wording import number


@dataclass(frozen=True)
class Status:
    """How a verdict, or a missing one, is shown. ``colour`` is a style of Rich."""

    key: str
    word: str
    symbol: str
    ascii: str
    colour: str
    meaning: str


# Worst first: the status of a case is the first of these that any of its judgements has.
STATUSES = {
    status.key: status
    for status in (
        Status("fail", "fail", "✗", "X", "bold red", "a figure is outside its bound"),
        Status("error", "error", "!", "!", "bold magenta", "did not run as declared"),
        Status("missing", "missing", "?", "?", "yellow", "no requirement applies to a figure"),
        Status(
            "inconclusive",
            "inconclusive",
            "≈",
            "~",
            "yellow",
            "noise or load hides the answer",
        ),
        Status("unjudged", "not judged", "…", ":", "yellow", "ran, but was not judged"),
        Status("notrun", "not run", "○", "o", "yellow", "planned, but did not run"),
        Status("pass", "pass", "✓", ".", "green", "every figure with bounds is within them"),
    )
}
# Of the clauses of a contract, in the order in which a reader needs them.
CLAUSE_STATUSES = {
    status.word: status
    for status in (
        Status("fail", "not met", "✗", "X", "bold red", "a figure breaks the clause"),
        Status("notrun", "not tested", "○", "o", "yellow", "no figure decides on the clause"),
        Status("inconclusive", "inconclusive", "≈", "~", "yellow", "noise hides the answer"),
        Status("missing", "waived", "⚑", "W", "yellow", "not met, or inconclusive, with a waiver"),
        Status("unjudged", "met in part", "◐", ":", "yellow", "met in the cases that ran"),
        Status("pass", "met", "✓", ".", "green", "every figure meets the clause"),
    )
}
SEVERITY = {key: rank for rank, key in enumerate(STATUSES)}

# Control characters: XML forbids them, a terminal executes them, HTML does not show them.
# Lone surrogates cannot be encoded; bidirectional overrides reorder the text beside them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    """``text`` with unprintable characters replaced by U+FFFD, which is visible."""
    return _UNPRINTABLE.sub("\ufffd", text)


def line(text: str) -> str:
    """``text`` on one line of a terminal: as ``clean``, with a line break as ``\\n``."""
    return clean(text.replace("\n", "\\n").replace("\t", "\\t"))


def quantity(value: float | None, unit: str, digits: int = 4) -> str:
    """A number with its unit, or a dash."""
    return number(value) if value is None else f"{number(value, digits)} {unit}".rstrip()


#: unit of time -> seconds, the largest first
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def fitting(value: float, unit: str) -> tuple[str, float]:
    """The unit in which a value has no zeros in front, and the factor to it: of a time s, ms, us or
    ns, else the unit itself."""
    seconds = abs(value) * _TIMES.get(unit, 0.0)
    if not 0 < seconds < math.inf:
        return unit, 1.0
    name = next((one for one, size in _TIMES.items() if seconds >= size), "ns")
    return name, _TIMES[unit] / _TIMES[name]


def amount(value: float, unit: str, digits: int = 3) -> str:
    """A measured value for a reader who compares it with nothing else: ``440 us``, ``34.8 Mop/s``.

    Three significant digits, and a time in a unit that fits.
    """
    name, factor = fitting(value, unit)
    return quantity(value * factor, name, digits)


def bound(judgement: Judgement) -> str:
    """The allowed range in words."""
    return sided(judgement.lower, judgement.upper, judgement.unit)


def sided(low: float | None, high: float | None, unit: str, none: str = "–") -> str:
    """A range that may be open on one side, with its unit; ``none`` if it has no limit."""
    if low is not None and high is not None:
        return f"{number(low)} to {quantity(high, unit)}"
    if high is not None:
        return f"≤ {quantity(high, unit)}"
    if low is not None:
        return f"≥ {quantity(low, unit)}"
    return none


def moment(when: datetime | None) -> str:
    """Date and time to the second, with the zone."""
    return "–" if when is None else when.isoformat(sep=" ", timespec="seconds")


def comparable(when: datetime) -> datetime:
    """``when`` with a time zone: UTC if it has none."""
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def between(start: datetime | None, end: datetime | None) -> timedelta | None:
    """``end - start``; None if either is unknown."""
    return comparable(end) - comparable(start) if start and end else None


def duration(span: timedelta | float | None) -> str:
    """``2 h 05 min``, ``3 min 20 s``, ``12.5 s``; a float is in seconds."""
    if span is None:
        return "–"
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds < 60:
        return f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def check_name(case: Case) -> str:
    """Check and variant: the name of a row of the matrix."""
    return f"{case.check} {case.variant}".rstrip()


def profile_name(case: Case) -> str:
    """The NIC profile of a case, with its network where the site has several."""
    return f"{case.profile}, network {case.network}" if case.network else case.profile


def message_size(size: float) -> str:
    """Bytes, with a binary prefix if that is exact: ``64 Ki``."""
    for unit, name in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if size >= unit and size % unit == 0:
            return f"{size / unit:.0f} {name}"
    return number(size)


def folded(names: Sequence[str]) -> str:
    """Names of nodes, with runs of numbers as ranges: ``n1, n[3-1024]``."""
    parts: list[list[str]] = []  # first and last name of each run
    for name in names:
        match = re.fullmatch(r"(.*?)([0-9]{1,18})", name, re.DOTALL)
        if parts and match:
            before = re.fullmatch(r"(.*?)([0-9]{1,18})", parts[-1][1], re.DOTALL)
            width = len(match[2]) if match[2].startswith("0") else 0
            following = before and f"{before[1]}{int(before[2]) + 1:0{width}}"
            if following == name:
                parts[-1][1] = name
                continue
        parts.append([name, name])
    texts = []
    for first, last in parts:
        stem = re.sub("[0-9]+$", "", first)
        texts.append(
            first if first == last else f"{stem}[{first[len(stem) :]}-{last[len(stem) :]}]"
        )
    return ", ".join(texts)


def slugs(names: Iterable[str]) -> list[str]:
    """One fragment identifier per name, readable and unique within the list."""
    taken: set[str] = set()
    result = []
    for name in names:
        base = slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80] or "_"
        count = 1
        while slug in taken:
            count += 1
            slug = f"{base}-{count}"
        taken.add(slug)
        result.append(slug)
    return result


def relative_href(path: str, base: str = ".") -> str | None:
    """A link to ``path`` in the trial's folder; None if the path leaves it.

    ``base`` leads from the report to the trial's folder.

    The leading ``./`` keeps a path such as ``javascript:x`` from being a URL of its own.
    """
    if not path or path.startswith("/") or "\\" in path or ".." in path.split("/"):
        return None
    lead = "" if base == "." else quote(base, safe="/", errors="replace") + "/"
    return f"./{lead}{quote(path, safe='/', errors='replace')}"
