"""A comparison of two groups of trials as a page and as words. It compares nothing itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from seatrial.base.files import write_whole
from seatrial.history.compare import Comparison, Row
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


def noise(row: Row) -> str:
    return "–" if row.noise is None else f"{number(100 * row.noise, 2)} %"


def values(names: Sequence[str]) -> str:
    """The values of a condition, which may have commas themselves."""
    return " | ".join(names[:MAX_NAMED]) + (" | ..." if len(names) > MAX_NAMED else "")


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the page atomically. Raises OSError."""
    template = environment().get_template("comparison.html.j2")
    page = template.render(
        comparison=comparison, headline=headline(comparison), style=packaged("style.css.j2"),
        badges=_BADGES, plural=plural, ratio=ratio, interval=interval, noise=noise, values=values,
        typical=statistics.median, picture=_picture,
    )  # fmt: skip
    write_whole(path, page.encode(errors="replace"))


def _picture(row: Row) -> Markup:
    """The interval on a logarithmic axis with 1 in its middle."""

    def at(value: float) -> float:
        log = math.log(value) if value > 0 else -_EDGE
        return round(_WIDTH / 2 * (1 + max(-1.0, min(1.0, log / _EDGE))), 1)

    span = ""
    if row.low is not None and row.high is not None:
        span = f'<line class="span" x1="{at(row.low)}" x2="{at(row.high)}" y1="8" y2="8"/>'
    return Markup(
        f'<svg class="range" width="{_WIDTH}" height="16" aria-hidden="true">'
        f'<line class="one" x1="{_WIDTH / 2}" x2="{_WIDTH / 2}" y1="0" y2="16"/>{span}'
        f'<circle cx="{at(row.ratio)}" cy="8" r="3.5"/></svg>'
    )
