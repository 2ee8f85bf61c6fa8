"""Which figures an accepted change of level is of: the new level's, by series and trial.

``seatrial.results.baseline`` makes requirements of them. This module writes nothing. It knows what
a person should see before the level of a fault becomes the baseline; the words are in
``seatrial.report.changes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path

from seatrial.base.errors import InputError
from seatrial.base.suggest import suggest
from seatrial.history.changes import NEW_LEVEL, Change, Finding, findings, worse_of
from seatrial.history.index import Index
from seatrial.history.series import timed
from seatrial.results.record import Case
from seatrial.results.requirements import Accepted, Requirements
from seatrial.results.wording import plural

_MOST = 30  # newest trials of a level that count
Key = tuple[Case, str, str | None]  # case, metric, location
Figures = dict[Key, set[Path]]


@dataclass(frozen=True)
class Part:
    """A metric of a case of which only some locations have the new level."""

    name: str  # of case and metric
    changed: list[str]  # locations
    others: list[str]


@dataclass
class NewLevel:
    """The figures of the level that a finding led to."""

    finding: Finding
    figures: Figures = field(default_factory=dict)  # case, metric, location -> folders of trials
    ended: list[str] = field(default_factory=list)  # series whose level has ended since
    changes: dict[Key, Change] = field(default_factory=dict)  # of the same figures
    parts: list[Part] = field(default_factory=list)
    newest: datetime | None = None  # begin of the newest trial of the site

    @property
    def folders(self) -> list[Path]:
        return sorted({folder for folders in self.figures.values() for folder in folders})


def new_level(
    index: Index, change: str, site: str, requirements: Requirements | None = None
) -> NewLevel:
    """The level of the finding named ``change``, or by the begin of its name.

    ``requirements``: of the site; they say which series are informative.

    Raises InputError if there is no such finding, if it is of another site, or if its level has
    ended.
    """
    known = {site: requirements} if requirements else None
    finding = named(findings(index, known), change)
    if finding.site != site:
        raise InputError(
            f"{finding.id} is a change of site {finding.site!r}, and --site names {site!r}"
        )
    result = NewLevel(finding)
    for one in finding.changes:
        series = one.series
        if not one.lasts or one.lost:
            result.ended.append(series.name)
            continue
        points = [p for p in index.points(series) if p.trial.started >= one.first.started]
        newest = points[-(NEW_LEVEL if one.drift else _MOST) :]
        key = (series.case, series.metric, series.location or None)
        result.figures[key] = {point.trial.folder for point in newest}
        result.changes[key] = one
    if not result.figures:
        lost = any(one.lost for one in finding.changes)
        why = "a series without figures has no level" if lost else (
            "a later change followed" if result.ended else "no figure changed"
        )  # fmt: skip
        raise InputError(f"{finding.id} has no level to accept: {why}")
    result.parts = _parts(index, result)
    result.newest = max(trial.started for trial in timed(index.trials()) if trial.site == site)
    return result


def _parts(index: Index, level: NewLevel) -> list[Part]:
    """The judged metrics of which only some of the locations measured since have the new level."""
    changed: dict[tuple[Case, str], set[str]] = {}
    for (case, metric, location), change in level.changes.items():
        if location and not change.informative:
            changed.setdefault((case, metric), set()).add(location)
    others: dict[tuple[Case, str], list[str]] = {}
    begin = level.finding.first.started
    for series in index.series() if changed else ():
        key = series.case, series.metric
        if (
            series.site == level.finding.site
            and series.location not in changed.get(key, {series.location})
            and any(point.trial.started >= begin for point in index.points(series))
        ):
            others.setdefault(key, []).append(series.location)
    return [
        Part(f"{case.id}: {metric}", sorted(changed[case, metric]), folders)
        for (case, metric), folders in others.items()
    ]


def joined(finding: Finding, accepted: Accepted) -> list[Change]:
    """The changes for the worse of the selected series that are not accepted with the finding.

    A trial showed them only after the newest one of that time, or showed by then much less of their
    drift. An older record has only the day, in UTC.
    """
    known = accepted.newest or datetime.combine(accepted.when, time.max, UTC)
    return [
        change for change in worse_of(finding.listed)
        if change.found.started > known or change.grew_since(known)
    ]  # fmt: skip


def loose(known: Sequence[Finding], requirements: Requirements) -> list[str]:
    """A sentence for each accepted change that is none any more, while the baseline still has its
    level: later trials are of the old one, and the bounds are not. ``known``: all of the site."""
    names, result = {finding.id for finding in known}, []
    for accepted in requirements.accepted:
        baselines = [
            rule for rule in requirements.rules if f"({accepted.change})" in rule.threshold.source
        ]
        if baselines and accepted.change not in names:
            result.append(
                f"{accepted.change} was accepted on {accepted.when} by {accepted.by}, and is no "
                "change any more: "
                "later trials are of the old level; still in force at the accepted one: "
                f"{plural(len(baselines), 'baseline requirement')}"
            )
    return list(dict.fromkeys(result))


def named(known: Sequence[Finding], change: str) -> Finding:
    """The finding of a name, or of the begin of one. Raises InputError if there is not one."""
    matches = [finding for finding in known if finding.id.startswith(change)]
    exact = [match for match in matches if match.id == change]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        names = ", ".join(match.id for match in matches)
        raise InputError(f"{change}: several changes begin so: {names}")
    hint = suggest(change, [finding.id for finding in known])
    raise InputError(f"{change}: no such change; 'seatrial history --changes' shows them ({hint})")
