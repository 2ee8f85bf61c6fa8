"""What changed over the nights: the changes of level of all series, one finding for each cause.

``seatrial.history.levels`` says when the figures of a series changed. ``seatrial.history.findings``
joins the changes of one night that have a cause in common (a node, a link, a version, a rail, a NIC
profile ...) to a finding, with all versions, settings and nodes that changed that night. A finding
is made on the night that first shows it, from what was known then: later nights add series to it
and make its levels more certain, and it keeps its name. This module is the entrance to both.

A night shows only a part of the series that a cause changed, and by chance that part may be of one
node. So a series counts for the choice of the cause if its figures since that night have moved, too
(``findings.difference``). A version that changed that night is the cause unless a node or a link
divides better what moved from what did not (``findings.cause``). A place whose series moved by
another amount than the others with that cause is a finding by itself (``findings.apart``).

A slow drift is shown by each series on another night, and again when it has gone on. Findings whose
figures one drift describes better than their steps are that drift (``findings.drifts``). Findings
of the nights on which one version came to one node after the other are joined, too
(``findings.rollouts``).

A series that has no figure any more, while its case is measured on its nodes, is a change: from the
first night without it (``findings.lost``). A figure of 0 that must be above zero counts as none.

What changed that night is no proof of the cause: a finding says what could have been it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from seatrial.history.findings import drifts, rollouts
from seatrial.history.findings.changed_conditions import Under
from seatrial.history.findings.describe import described
from seatrial.history.findings.grouping import grouped
from seatrial.history.findings.levels_of_series import NEW_LEVEL
from seatrial.history.findings.record import (
    Change,
    Condition,
    Finding,
    Level,
    Scope,
    better_of,
    much_more,
    worse_of,
)
from seatrial.history.findings.scale import scatter_of_repeats
from seatrial.history.findings.site_changes import site_changes
from seatrial.history.findings.table import Waits, site_table
from seatrial.history.index import Index
from seatrial.history.series import Column, KnownTrial, Series, in_time, literal, timed
from seatrial.results.record import Case
from seatrial.results.requirements import Requirements

__all__ = [
    "NEW_LEVEL", "Change", "Condition", "Finding", "Level", "Scope", "SiteHistory", "better_of",
    "findings", "much_more", "newest", "scatter_of_repeats", "sites", "untimed", "worse_of",
]  # fmt: skip

#: site -> its requirements
_Requirements = Mapping[str, Requirements]


def untimed(trials: Iterable[KnownTrial]) -> list[str]:
    """A sentence for each trial whose clock was wrong. It has no place among the nights, and no
    change of level counts it."""
    return [
        f"{trial.folder.name}: verdict {trial.verdict or 'interrupted'}, in no change of level: "
        f"{trial.wrong_clock}"
        for trial in trials if trial.wrong_clock
    ]  # fmt: skip


def findings(
    index: Index, requirements: _Requirements | None = None, **patterns: Sequence[str]
) -> list[Finding]:
    """All findings, in the order of the trials that showed them.

    ``requirements`` and ``patterns`` are those of ``sites``.
    """
    result = [
        finding for site in sites(index, requirements, **patterns) for finding in site.findings
    ]
    return sorted(
        result, key=lambda finding: (finding.found.started, finding.first.started, finding.id)
    )


def sites(
    index: Index, requirements: _Requirements | None = None, **patterns: Sequence[str]
) -> list[SiteHistory]:
    """The history of each site, in the order of their names.

    Trials whose clock was wrong do not count: they have no place among the nights.

    ``patterns`` selects series, as in ``Index.series``. A selection changes no cause: that is of
    all series of the site. ``requirements`` says which series are informative.
    """
    trials = timed(index.trials())
    chosen = set(index.series(**patterns))
    of_site: dict[str, list[Column]] = {}
    for column in index.columns(trials, site=sorted({literal(series.site) for series in chosen})):
        of_site.setdefault(column.series.site, []).append(column)
    result = []
    under = index.conditions() if chosen else {}
    waits = index.waits() if chosen else {}
    for name, columns in sorted(of_site.items()):
        site = SiteHistory(name, trials, under, columns, (requirements or {}).get(name), waits)
        if any(column.series not in chosen for column in columns):
            site.select(chosen)
        if site.columns:
            result.append(site)
    return result


def newest(
    index: Index, trials: int = 1, requirements: _Requirements | None = None,
    **patterns: Sequence[str],
) -> list[Finding]:  # fmt: skip
    """The findings that the newest trials of each site showed first, or showed to be worse in
    one more series, or by much more."""
    of_site: dict[str, list[int]] = {}
    for trial in in_time(index.trials()):
        of_site.setdefault(trial.site, []).append(trial.id)
    chosen = {number for numbers in of_site.values() for number in numbers[-trials:]}
    return [
        finding for finding in findings(index, requirements, **patterns)
        if chosen & {
            own.id for own in (
                finding.found, finding.grew, *(change.found for change in worse_of(finding.listed))
            ) if own
        }
    ]  # fmt: skip


class SiteHistory:
    """The series of one site, their changes of level, and the findings that join these.

    ``changes``: of each series, with the position of the first trial of its new level.
    """

    def __init__(
        self, site: str, trials: Sequence[KnownTrial], under: Under, columns: Sequence[Column],
        requirements: Requirements | None = None, waits: Waits | None = None,
    ):  # fmt: skip
        self.site, self.trials, self.requirements = site, trials, requirements
        table = site_table(site, trials, under, columns, requirements, waits or {})
        changes = site_changes(table)
        drafts, wholes = drifts.joined(changes, rollouts.joined(changes, grouped(changes)))
        self.findings = described(changes, drafts)
        self.columns = table.columns
        self.changes = {
            column: [(part.at, part.change) for part in parts]
            for column, parts in changes.every.items()
        }
        for column, shown, at, change in wholes:
            known = {id(part.change) for part in shown}
            rest = [item for item in self.changes[column] if id(item[1]) not in known]
            self.changes[column] = sorted([*rest, (at, change)], key=lambda item: item[0])
        self._table = table
        self._cases = list(table.nights)

    def select(self, chosen: Collection[Series]) -> None:
        """Leave out the series that are not chosen, and the findings with none that is. What a
        finding says of its cause, and of how many series changed, stays."""
        wanted = set(chosen)
        for series in chosen:
            while series in self._table.series.followed:
                series = self._table.series.followed[series]
                wanted.add(series)
        self.columns = [column for column in self.columns if column.series in wanted]
        cases = {column.series.case for column in self.columns}
        self._cases = [case for case in self._cases if case in cases]
        for finding in self.findings:
            finding.listed = [change for change in finding.changes if change.series in wanted]
        self.findings = [finding for finding in self.findings if finding.listed]

    def versions(self) -> dict[int, dict[Condition, list[Case]]]:
        """What changed on which night, as a position, and in which cases."""
        return self._table.conditions.by_night(self._cases)
