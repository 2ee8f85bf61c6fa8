"""``history.html``: all trials of a folder in one file that needs no network and no server.

A calendar of verdicts, what changed and when, and a chart of each series. The charts are SVG of
this module, small enough for a thousand of them: a library's would be as large as all figures of a
year. They and all sentences are there without the script, which shows figures under the pointer,
enlarges a chart and searches.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from seatrial.base.files import write_whole
from seatrial.history import levels
from seatrial.history.changes import NEW_LEVEL, Condition, Finding, SiteHistory, sites, untimed
from seatrial.history.conditions import NODES, is_setting
from seatrial.history.index import Index
from seatrial.history.series import UNPROVEN, Column, KnownTrial
from seatrial.report import REPORT_FILE, changes
from seatrial.report.html import environment, packaged, script_hash
from seatrial.report.text import quantity, relative_href
from seatrial.results import later
from seatrial.results.record import Case
from seatrial.results.requirements import Requirements
from seatrial.results.wording import number, plural

NIGHTS = 400  # newest trials of a site that are drawn
SERIES = 1000  # of a site that are drawn
ESSENTIAL = 2  # series of a finding that stand below its headline
LISTED = 50  # all series of a finding that are listed
OPEN = 20  # findings that are not folded
_WIDTH, _HEIGHT = 1000, 300  # units of a chart, which is stretched
_TICK = 45  # of a mark
_PAD = 0.06  # of the range of figures, above and below
_WEEKS = timedelta(days=100)  # longest span with a line for each week
#: verdict of a trial -> style, symbol, word; worst first
_VERDICTS = {
    "reject": ("fail", "✗", "reject"),
    "": ("notrun", "○", "no verdict"),
    "incomplete": ("missing", "?", "incomplete"),
    "accept": ("pass", "✓", "accept"),
}


@dataclass(frozen=True)
class Day:
    """A day of the calendar with trials."""

    style: str
    symbol: str
    title: str
    href: str | None
    changed: bool  # a change of level begins
    unproven: bool  # a trial has no SHA256SUMS


@dataclass(frozen=True)
class Chart:
    """One series."""

    id: str
    name: str  # the location; the metric, of a case as a whole
    picture: Markup
    low: str
    high: str
    newest: str
    words: str  # what a search finds it by
    notes: list[tuple[str, str, str]]  # finding's name, "worse" or "better", sentence


@dataclass
class Group:
    """The locations of one metric of a case, with one scale; or the metrics of a whole case."""

    title: str
    unit: str
    charts: list[Chart] = field(default_factory=list)


@dataclass(frozen=True)
class Listed:
    """A series of a finding, and what it did."""

    anchor: str | None  # of its chart
    name: str
    course: str


@dataclass(frozen=True)
class Shown:
    """A finding with what a reader needs beside it."""

    finding: Finding
    style: str
    word: str
    head: str
    day: str
    when: str  # with the trials
    versions: str
    essential: list[Listed]
    others: list[Listed]
    rest: int
    accepted: str
    notes: str


@dataclass(frozen=True)
class Part:
    """One site."""

    name: str
    summary: str
    months: list[tuple[str, list[Day | None]]]
    shown: list[Shown]
    versions: list[tuple[str, list[str]]]
    groups: list[Group]
    undrawn: int
    begin: str  # day of the first trial that is drawn
    end: str  # of the last; "": it is the same trial
    grid: str  # what the vertical lines are
    quiet: str  # what is said if no level changed
    informative: bool  # a series changed that is not judged
    unproven: bool  # a trial has no SHA256SUMS


def write_history(
    index: Index, path: Path, requirements: Mapping[str, Requirements], **patterns: Sequence[str]
) -> None:
    """Write the page atomically. ``requirements``: site -> its requirements, if they are here.

    ``patterns`` selects series, as in ``Index.series``. Raises OSError.
    """
    parts, data = [], []
    for number_, site in enumerate(sites(index, requirements, **patterns)):
        view = _Site(site, f"s{number_}", path)
        parts.append(view.part())
        data.append(view.data())
    script = packaged("history.js.j2")
    page = environment().get_template("history.html.j2").render(
        parts=parts, verdicts=_VERDICTS, days=range(1, 32), open=OPEN, nights=NIGHTS,
        left_out=[*index.left_out(), *untimed(index.trials())],
        unproven=f"{UNPROVEN}: {later.UNPROVEN}",
        style=packaged("style.css.j2"), script=script,
        script_hash=script_hash(script), plural=plural,
        data=htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False),
    )  # fmt: skip
    write_whole(path, page.encode(errors="replace"))


class _Site:
    """Makes the part of one site. ``key`` begins the anchors of its charts."""

    def __init__(self, site: SiteHistory, key: str, path: Path):
        self.site, self.key = site, key
        of_site = [at for at, trial in enumerate(site.trials) if trial.site == site.site]
        self.drawn = of_site[-NIGHTS:]
        self.first = self.drawn[0]
        self.folder = path.parent
        self.trials = [site.trials[at] for at in self.drawn]
        begin, end = self.trials[0].started, self.trials[-1].started
        self.begin, self.span = begin, max(end - begin, timedelta(hours=1))
        self.weeks = self.span < _WEEKS
        place = {at: self._x(site.trials[at].started) for at in self.drawn}
        self.x = np.full(len(site.trials), -1)
        self.x[list(place)] = list(place.values())
        self.order = {at: number for number, at in enumerate(self.drawn)}
        self.findings = [
            finding for finding in site.findings if finding.found.started >= begin
        ]  # fmt: skip
        self.by_change = {
            (change.series, change.first.id): finding
            for finding in site.findings for change in finding.changes
        }  # fmt: skip
        columns = [column for column in site.columns if column.at[-1] >= self.first]
        changed = {change.series for finding in self.findings for change in finding.listed}
        ranked = sorted(columns, key=lambda column: column.series not in changed)[:SERIES]
        kept = set(ranked)
        self.columns = [column for column in columns if column in kept]
        self.undrawn = len(columns) - len(kept)
        self.anchor = {
            column.series: f"{key}-{number}" for number, column in enumerate(self.columns)
        }
        self.versions = {n: of_night for n, of_night in site.versions().items() if n >= self.first}

    def _x(self, time: datetime) -> int:
        if len(self.trials) == 1:
            return _WIDTH // 2
        return round(_WIDTH * (time - self.begin) / self.span)

    def part(self) -> Part:
        begin, end = (f"{self.trials[at].started:%Y-%m-%d}" for at in (0, -1))
        quiet = "No level changed."
        if len(self.trials) < levels.LEAST_NIGHTS:
            quiet = f"No change of level can be seen before trial {levels.LEAST_NIGHTS}."
        return Part(
            self.site.site, self._summary(), self._months(),
            [self._shown(finding) for finding in reversed(self.findings)],
            [(f"{self.site.trials[night].started:%Y-%m-%d}", list(_words(of_night)))
             for night, of_night in reversed(self.versions.items())],
            self._groups(), self.undrawn, begin, end if len(self.trials) > 1 else "",
            "weeks" if self.weeks else "months", quiet,
            any(change.informative for finding in self.findings for change in finding.listed),
            not all(trial.proven for trial in self.trials),
        )  # fmt: skip

    def data(self) -> dict[str, Any]:
        """What the script shows under the pointer."""
        nights = [
            [self._x(trial.started), f"{trial.started:%Y-%m-%d %H:%M}", trial.folder.name,
             "; ".join([_VERDICTS[trial.verdict][2], *trial.marks])]
            for trial in self.trials
        ]  # fmt: skip
        whole = self.drawn
        series: dict[str, Any] = {}
        for column in self.columns:
            at, values = self._shown_nights(column)
            rounded = [_rounded(value) for value in values]
            missing = at.tolist() != whole
            numbers = [self.order[night] for night in at.tolist()] if missing else 0
            series[self.anchor[column.series]] = [numbers, rounded, column.series.unit]
        versions = {
            self.order[night]: list(_words(of_night)) for night, of_night in self.versions.items()
        }
        grid = [[at, f"{day:%Y-%m-%d}" if self.weeks else f"{day:%Y-%m}"]
                for at, day in self._grid()]  # fmt: skip
        return {"nights": nights, "series": series, "versions": versions, "grid": grid}

    def _shown_nights(self, column: Column) -> tuple[Any, Any]:
        first = int(np.searchsorted(column.at, self.first))
        return column.at[first:], column.values[first:]

    # --- the trials --------------------------------------------------------------------

    def _summary(self) -> str:
        counts = Counter(trial.verdict for trial in self.trials)
        verdicts = ", ".join(
            f"{counts[key]} {word}" for key, (_, _, word) in _VERDICTS.items() if counts[key]
        )
        worse = sum(bool(finding.worse) for finding in self.findings)
        begin, end = (f"{self.trials[at].started:%Y-%m-%d}" for at in (0, -1))
        changed = f"{plural(len(self.findings), 'change')} of level, of which {worse} for the worse"
        return (
            f"{plural(len(self.trials), 'trial')} "
            + (f"of {begin}" if begin == end else f"from {begin} to {end}")
            + f": {verdicts}. {len(self.columns)} series, "
            + (f"{changed}." if self.findings else "no change of level.")
        )

    def _months(self) -> list[tuple[str, list[Day | None]]]:
        """Months, newest first, each with 31 days."""
        of_day: dict[tuple[str, int], list[KnownTrial]] = {}
        for trial in self.trials:
            of_day.setdefault((f"{trial.started:%Y-%m}", trial.started.day), []).append(trial)
        changed = {
            (f"{finding.first.started:%Y-%m}", finding.first.started.day)
            for finding in self.findings
        }
        names = sorted({month for month, _ in of_day}, reverse=True)
        return [
            (name, [
                self._day(of_day[name, day], (name, day) in changed) if (name, day) in of_day
                else None
                for day in range(1, 32)
            ])
            for name in names
        ]  # fmt: skip

    def _day(self, trials: Sequence[KnownTrial], changed: bool) -> Day:
        worst = min(trials, key=lambda trial: list(_VERDICTS).index(trial.verdict))
        style, symbol, _ = _VERDICTS[worst.verdict]
        lines = [
            f"{trial.started:%Y-%m-%d %H:%M} {_VERDICTS[trial.verdict][2]}: {trial.folder.name}"
            + "".join(f"\n{note}" for note in trial.marks)
            for trial in trials
        ]
        lines += ["a change of level begins"] if changed else []
        unproven = not all(trial.proven for trial in trials)
        return Day(style, symbol, "\n".join(lines), self._href(worst), changed, unproven)

    def _href(self, trial: KnownTrial) -> str | None:
        if not (trial.folder / REPORT_FILE).is_file():
            return None
        return relative_href(REPORT_FILE, os.path.relpath(trial.folder, self.folder))

    # --- what changed ------------------------------------------------------------------

    def _shown(self, finding: Finding) -> Shown:
        known = self.site.requirements and self.site.requirements.acceptance(finding.id)
        style, word = (
            ("fail", "worse and better" if finding.better else "worse") if finding.worse
            else ("pass", "better") if finding.better
            else ("unjudged", "informative" if finding.changes else "nothing measured")
        )  # fmt: skip
        first = finding.listed[:ESSENTIAL]
        worse, better = (
            [change for change in finding.listed if changes.word(change) == which]
            for which in ("worse", "better")
        )
        if worse and better:
            first = [worse[0], better[-1]]
        listed = [*first, *(change for change in finding.listed if change not in first)][:LISTED]
        series = [
            Listed(self.anchor.get(change.series), change.series.name, changes.course(change))
            for change in listed
        ]
        text = changes.acceptance(finding, known) if known else ""
        head = f"{changes.subject(finding)}: {changes.effect(finding)}"
        if len(finding.listed) < len(finding.changes):
            head += f"; {len(finding.listed)} of {len(finding.changes)} series shown"
        return Shown(
            finding, style, word, head,
            f"{finding.first.started:%Y-%m-%d}", changes.when(finding),
            changes.circumstances(finding), series[:ESSENTIAL],
            series[ESSENTIAL:], len(finding.listed) - len(series),
            text.removeprefix("accepted "), changes.notes(finding),
        )  # fmt: skip

    # --- the series --------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        alike: dict[tuple[Case, str], list[Column]] = {}
        for column in self.columns:
            series = column.series
            metric = series.metric if series.location else ""
            alike.setdefault((series.case, metric), []).append(column)
        groups = []
        for (case, metric), columns in alike.items():
            series = columns[0].series
            unit = f"{series.unit}, {series.better} is better".lstrip(", ") if metric else ""
            marks = {
                (_kind(condition), int(self.x[night]))
                for night, of_night in self.versions.items()
                for condition, cases in of_night.items() if case in cases
            }  # fmt: skip
            together = [columns] if metric else [[column] for column in columns]
            charts = []
            for several in together:
                scale = _range(self._shown_nights(column)[1] for column in several)
                charts += [self._chart(column, scale, marks) for column in several]
            groups.append(Group(f"{case.id}: {metric}" if metric else case.id, unit, charts))
        return groups

    def _chart(
        self, column: Column, scale: tuple[float, float], marks: Collection[tuple[str, int]]
    ) -> Chart:
        series = column.series
        notes = []
        for _, change in self.site.changes[column]:
            finding = self.by_change.get((series, change.first.id))
            if finding and finding in self.findings:
                word = changes.word(change)
                day = f"{change.first.started:%Y-%m-%d}"
                notes.append((finding.id, word, f"{day}: {changes.brief(change)}"))
        at, values = self._shown_nights(column)
        words = f"{series.name} {series.case.profile} {series.case.transport}".lower()
        return Chart(
            self.anchor[series], series.location or series.metric,
            self._picture(column, at, values, scale, marks), number(scale[0], 3),
            number(scale[1], 3), quantity(float(values[-1]), series.unit), words, notes,
        )  # fmt: skip

    def _picture(
        self, column: Column, at: Any, values: Any, scale: tuple[float, float],
        marks: Collection[tuple[str, int]],
    ) -> Markup:  # fmt: skip
        """The figures as a line, a bar at each level, changes as marks; versions below, and
        settings and nodes above."""
        low, high = map(float, scale)

        def y(value: float) -> int:
            part = (float(value) - low) / ((high - low) or 1.0)  # numpy would warn of huge ones
            return round(_HEIGHT * (1 - min(1.0, max(0.0, part))))

        x = self.x[at]
        grid = "".join(f"M{one} 0V{_HEIGHT}" for one, _ in self._grid())
        line = " ".join(f"{a},{y(b)}" for a, b in zip(x.tolist(), values.tolist(), strict=True))
        lines = [f'<path class="grid" d="{grid}"/>', f'<polyline points="{line}"/>']
        unproven = [n for n, night in enumerate(at.tolist()) if not self.site.trials[night].proven]
        if unproven:
            dots = "".join(f"M{x[n]} {y(values[n])}h0" for n in unproven)
            lines.append(f'<path class="unproven" d="{dots}"/>')
        if len(x) == 1:  # a line of no length that the style draws as a point
            lines.append(f'<path class="dot" d="M{x[0]} {y(values[0])}h0"/>')
        moved = [
            (night, change) for night, change in self.site.changes[column] if night >= self.first
        ]
        for number_, (night, change) in enumerate(moved):
            begin = moved[number_ - 1][0] if number_ else max(self.first, int(column.at[0]))
            end = moved[number_ + 1][0] if number_ + 1 < len(moved) else int(column.at[-1])
            split = int(self.x[night])
            if not number_:
                lines.append(_level(int(self.x[begin]), split, y(change.before.value)))
            if not change.drift and not change.lost:
                lines.append(_level(split, int(self.x[end]), y(change.after.value)))
            lines.append(f'<path class="{changes.word(change)}" d="M{split} 0V{_HEIGHT}"/>')
        for kind, tick in (("version", f"{_HEIGHT}v{-_TICK}"), ("setting", f"0v{_TICK}")):
            if path := "".join(f"M{one} {tick}" for mark, one in sorted(marks) if mark == kind):
                lines.append(f'<path class="{kind}" d="{path}"/>')
        return Markup(
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
            f'aria-hidden="true">{"".join(lines)}</svg>'
        )

    def _grid(self) -> list[tuple[int, datetime]]:
        """Where weeks begin, or months."""
        day = self.begin.replace(hour=0, minute=0, second=0, microsecond=0)
        result = []
        while day <= self.begin + self.span:
            begins = day.weekday() == 0 if self.weeks else day.day == 1
            if begins and day >= self.begin:
                result.append((self._x(day), day))
            day += timedelta(days=1)
        return result[: _WIDTH // 4]


def _kind(condition: Condition) -> str:
    """The style of the mark of what changed."""
    chosen = condition.name == NODES or is_setting(condition.name)
    return "setting" if chosen else "version"


def _level(begin: int, end: int, height: int) -> str:
    return f'<path class="level" d="M{begin} {height}H{end}"/>'


def _range(of_series: Iterable[Any]) -> tuple[float, float]:
    """The least and most figure, with room; far figures of one night in a hundred are cut, but
    not those of a series' newest nights."""
    known = list(of_series)
    values = np.concatenate(known)
    # a quantile, as the sum of two figures for a median may overflow
    newest = [float(np.quantile(values_of[-NEW_LEVEL:], 0.5)) for values_of in known]
    ends = (0.005, 0.995) if len(values) > 100 else (0.0, 1.0)
    low, high = (float(end) for end in np.quantile(values, ends))
    low, high = min(low, *newest), max(high, *newest)
    room = _PAD * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _words(of_night: Mapping[Condition, Sequence[Case]]) -> Iterable[str]:
    for condition, cases in of_night.items():
        yield f"{changes.condition(condition)} ({plural(len(cases), 'case')})"


def _rounded(value: float) -> float:
    """Five digits are enough for a chart. The largest figures would round to infinity."""
    rounded = float(f"{value:.5g}")
    return rounded if math.isfinite(rounded) else float(value)
