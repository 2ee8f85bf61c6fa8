"""The changes of level of each series, by ``seatrial.history.levels``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seatrial.history import levels
from seatrial.history.findings.record import Change
from seatrial.history.findings.scale import Array, unknown_noise
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column, KnownTrial
from seatrial.results.record import Case

NEW_LEVEL = 5  # nights at the end of a drift that say how far it went


@dataclass(frozen=True, eq=False)
class Part:
    """A change of one series, as a part of a finding."""

    change: Change
    column: Column
    at: int  # nights
    found: int
    low: int  # the new level began from ``low`` to ``high``
    high: int
    steps: tuple[int, ...] = ()  # indices of the column: begins of new levels. (): it is lost
    size: float = 0.0  # scaled

    def can_be_of(self, night: int) -> bool:
        return self.low <= night <= self.high


def level_changes(table: SiteTable) -> dict[Column, list[Part]]:
    """The changes of each series, in their order."""
    waits = {case: _waits(table, case) for case in table.nights}
    return {
        column: list(_changes(table, column, waits[column.series.case])) for column in table.columns
    }


def _waits(table: SiteTable, case: Case) -> Array:
    """How long a case waited for a processor in each trial, in per cent; NaN: not on record."""
    result = np.full(len(table.trials), math.nan)
    for night in table.nights[case].tolist():
        result[night] = table.waits.get((table.trials[night].id, case.id), math.nan)
    return result


def _changes(table: SiteTable, column: Column, waits: Array) -> Iterator[Part]:
    x, scale = table.scaled[column]
    noise = unknown_noise(column, scale)
    begin = 0
    groups = levels.drifts(x, levels.lasting(x, noise, waits[column.at]))
    for number, (moved, drifts) in enumerate(groups):
        shift = moved[0]
        end = groups[number + 1][0][0].at if number + 1 < len(groups) else len(x)
        noise = levels.noise_of(x[begin : shift.at], noise)
        parts = x[begin : shift.at], x[shift.at : end]
        found = table.trials[column.at[shift.found]]
        change, size = change_of(
            table, column, parts, shift.at, found, noise, drifts=drifts, lasts=end == len(x)
        )
        if column.at[moved[-1].high] >= table.series.begins.get(column.series, 0):
            yield Part(
                change, column, int(column.at[shift.at]), int(column.at[shift.found]),
                int(column.at[shift.low - 1]) + 1, int(column.at[shift.high]),
                tuple(one.at for one in moved), size,
            )  # fmt: skip
        begin = moved[-1].at


def change_of(
    table: SiteTable, column: Column, parts: tuple[Array, Array], at: int, found: KnownTrial,
    noise: levels.Noise, *, drifts: bool, lasts: bool, new_at: int | None = None,
) -> tuple[Change, float]:  # fmt: skip
    """A change from one level to another, and its size as the figures are scaled.

    ``parts``: the figures of the two levels. ``at``: index of the first figure of the new level;
    ``new_at``: of the first one in ``parts``, if it is another."""
    old, new = parts
    figures = table.scaled[column]
    later = new[-NEW_LEVEL:] if drifts else new
    sizes = [float(np.median(part)) for part in (old, later)]
    errors = [levels.error(len(part), noise) for part in (old, later)]
    shown, error = sizes[1] - sizes[0], math.hypot(*errors)
    course = []
    for number in range(len(new)) if drifts else ():
        trial = table.trials[column.at[(at if new_at is None else new_at) + number]]
        if trial.started >= found.started:
            level = float(np.median(new[max(0, number + 1 - NEW_LEVEL) : number + 1]))
            course.append((trial, figures.ratio(level - sizes[0])))
    change = Change(
        column.series, table.trials[column.at[at - 1]], table.trials[column.at[at]], found,
        figures.level(sizes[0], errors[0], len(old)),
        figures.level(sizes[1], errors[1], len(new)),
        figures.ratio(shown), figures.ratio(shown - error), figures.ratio(shown + error),
        drifts, lasts, column.series in table.informative, course=tuple(course),
    )  # fmt: skip
    return change, shown


def noise_between(table: SiteTable, column: Column, begin: int, end: int) -> levels.Noise:
    """The noise of some figures of a series."""
    x, scale = table.scaled[column]
    return levels.noise_of(x[begin:end], unknown_noise(column, scale))
