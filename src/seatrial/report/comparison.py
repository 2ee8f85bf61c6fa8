"""A comparison of two groups of trials as a page and as words. It compares nothing itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from seatrial.base.files import write_whole
from seatrial.history.compare import Comparison, Difference, Row
from seatrial.report.html import environment, packaged
from seatrial.results import statistics
from seatrial.results.wording import MAX_NAMED, number, plural

#: styles of the report's badges
_BADGES = {"worse": "fail", "better": "pass", "can't tell": "inconclusive", "same": "unjudged"}
_WIDTH = 160  # of the picture of an interval
_EDGE = math.log(1.25)  # ratio at its ends; what is beyond is cut


def headline(comparison: Comparison) -> str:
    """Such as ``of 40 series: 3 worse, 1 better, 30 can't tell, 6 same``."""
    counts = [f"{count} {word}" for word, count in comparison.counts.items()]
    return f"of {len(comparison.rows)} series: {', '.join(counts)}"


def ratio(value: float | None) -> str:
    return number(value, 4)


def interval(row: Row) -> str:
    return "–" if row.low is None else f"{ratio(row.low)} to {ratio(row.high)}"


def series_name(row: Row) -> str:
    """The series, and its figures of 0 that must be above it."""
    bad_a, bad_b = row.zeros
    if not (bad_a or bad_b):
        return row.series.name
    if (bad_a, bad_b) == (0, len(row.b)):
        return f"{row.series.name}, fell to 0"
    of_a, of_b = f"{bad_a} of {len(row.a)} in A", f"{bad_b} of {len(row.b)} in B"
    return f"{row.series.name}, figures of 0: {of_a}, {of_b}"


def noise(row: Row) -> str:
    return "–" if row.noise is None else f"{number(100 * row.noise, 2)} %"


def values(counts: Mapping[str, int]) -> str:
    """The values of a condition in a group: such as ``5,5 in 4 trials and 3,3 in 2``."""
    if len(counts) < 2:
        return "".join(counts) or "none"
    (first, number_of_first), *others = counts.items()
    texts = [f"{first} in {plural(number_of_first, 'trial')}"]
    texts += [f"{value} in {count}" for value, count in others]
    last = f"{len(texts) - MAX_NAMED + 1} more" if len(texts) > MAX_NAMED else texts[-1]
    return f"{', '.join(texts[: min(len(texts), MAX_NAMED) - 1])} and {last}"


def condition(difference: Difference, cases: int) -> str:
    """Its name, with the cases in which it differs if it does not in all ``cases``."""
    changed = difference.cases
    if len(changed) == cases:
        return difference.name
    where = changed[0] if len(changed) == 1 else f"{len(changed)} of {cases} cases"
    return f"{difference.name} ({where})"


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the page atomically. Raises OSError."""
    template = environment().get_template("comparison.html.j2")
    page = template.render(
        comparison=comparison, headline=headline(comparison), style=packaged("style.css.j2"),
        badges=_BADGES, plural=plural, ratio=ratio, interval=interval, noise=noise, values=values,
        typical=statistics.median, picture=_picture, condition=condition, series_name=series_name,
    )  # fmt: skip
    write_whole(path, page.encode(errors="replace"))


def _picture(row: Row) -> Markup:
    """The interval on a logarithmic axis with 1 in its middle."""

    def at(value: float) -> float:
        log = math.log(value) if value > 0 else -_EDGE  # infinite: at the edge, too
        return round(_WIDTH / 2 * (1 + max(-1.0, min(1.0, log / _EDGE))), 1)

    span = ""
    if row.low is not None and row.high is not None:
        span = f'<line class="span" x1="{at(row.low)}" x2="{at(row.high)}" y1="8" y2="8"/>'
    return Markup(
        f'<svg class="range" width="{_WIDTH}" height="16" aria-hidden="true">'
        f'<line class="one" x1="{_WIDTH / 2}" x2="{_WIDTH / 2}" y1="0" y2="16"/>{span}'
        f'<circle cx="{at(row.ratio)}" cy="8" r="3.5"/></svg>'
    )
