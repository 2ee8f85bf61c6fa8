"""Slow drifts, which each series shows on another night, and again when they have gone on.

Findings whose figures one drift describes better than their steps (``seatrial.history.drift``) are
that drift. It has no cause among the versions: a step that it explains is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from seatrial.history import drift, levels
from seatrial.history.findings.difference import moved
from seatrial.history.findings.draft import Draft
from seatrial.history.findings.levels_of_series import (
    NEW_LEVEL,
    Part,
    change_of,
    noise_between,
)
from seatrial.history.findings.record import Change
from seatrial.history.findings.scale import Array
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.series import Column

_AROUND = 150  # nights before and after the changes of a series that say whether it drifts
_APART = 30  # nights between findings of a drift, if it has not lasted longer


class Whole(NamedTuple):
    """The change of a series by a drift, in the place of those that it showed meanwhile."""

    column: Column
    shown: list[Part]
    at: int  # the night from which on it drifts
    change: Change


def joined(site: SiteChanges, drafts: list[Draft]) -> tuple[list[Draft], list[Whole]]:
    """Join the findings that one drift explains better than steps do. Returns all findings, and
    what each drift did to each of its series."""
    count = -1
    tried: set[tuple[int, int, int, int]] = set()  # findings, and how many changes they had
    while count != len(drafts):
        count = len(drafts)
        result: list[Draft] = []
        for draft in drafts:
            for other in result:
                key = (id(other), len(other.parts), id(draft), len(draft.parts))
                if key in tried or not _may_be_one(site, other, draft):
                    continue
                tried.add(key)
                if span := _drift(site, other, draft):
                    other.parts += draft.parts
                    other.drift = span
                    break
            else:
                if not draft.drift and _may_drift(site, draft):
                    draft.drift = _drift(site, draft)
                result.append(draft)
        drafts = result
    return drafts, [
        whole for draft in drafts if draft.drift for whole in _make_whole(site, draft, draft.drift)
    ]


def _may_drift(site: SiteChanges, draft: Draft) -> bool:
    return (
        bool(draft.parts)
        and not draft.rollout
        and draft.night not in site.table.swaps
        and all(part.steps for part in draft.parts)
    )


def _may_be_one(site: SiteChanges, first: Draft, later: Draft) -> bool:
    if not (_may_drift(site, first) and _may_drift(site, later)):
        return False
    number = site.table.number
    ends = [number(int(part.column.at[part.steps[-1]])) for part in first.parts]
    begin = number(min(part.at for part in first.parts))
    near = max(_APART, max(ends) - begin)
    return first.is_worse == later.is_worse and (
        begin - near <= number(later.night) <= max(ends) + near
    )


def _drift(site: SiteChanges, first: Draft, *others: Draft) -> drift.Span | None:
    """The drift that explains the changes of findings; None if steps do it better."""
    table = site.table
    of: dict[Column, list[tuple[int, Part]]] = {}  # with the number of the finding
    several = [first, *others]
    for number, draft in enumerate(several):
        for part in draft.parts:
            of.setdefault(part.column, []).append((number, part))
    for parts in of.values():
        parts.sort(key=lambda item: item[1].at)
    courses = [] if others or first.drift else _others(site, first)
    for column, of_column in of.items():
        whole, end, x = _about(site, column, [part for _, part in of_column])
        begin = max(whole, of_column[0][1].steps[0] - _AROUND)
        end = min(end, of_column[-1][1].steps[-1] + _AROUND)
        x = x[begin - whole : end - whole]
        steps = [
            (table.number(several[number].night if at == part.steps[0] else night),
             table.number(night))
            for number, part in of_column if number or not first.drift
            for at in part.steps for night in [int(column.at[at])]
        ]  # fmt: skip
        scatter = noise_between(table, column, begin, of_column[0][1].steps[0]).scatter
        if not math.isfinite(scatter):
            scatter = levels.USUAL_SCATTER
        drifts = first.drift is not None and any(not number for number, _ in of_column)
        nights = _numbers(site, column, begin, end)
        courses.append(drift.Course(nights, levels.calm(x, scatter), steps, drifts))
    return drift.drift_of(courses, first.drift)


def _numbers(site: SiteChanges, column: Column, begin: int, end: int) -> Array:
    """The numbers of some nights of a series among those of the site."""
    return np.searchsorted(site.table.own, column.at[begin:end]).astype(float)


def _others(site: SiteChanges, draft: Draft) -> list[drift.Course]:
    """The series that moved with those of a finding and do not show it by themselves, until the
    night that showed its last change: a step with all of them, or a drift?"""
    found = max(part.found for part in draft.parts)
    changed = draft.columns
    night = site.table.number(draft.night)
    courses = []
    for column in moved(site.compared(draft.night), changed, draft.night, found) - changed:
        end = int(np.searchsorted(column.at, found, side="right"))
        begins = [part.steps[-1] for part in site.levels[column] if part.steps[0] < end]
        begin = begins[-1] if begins else 0
        if end - begin < drift.LEAST_NIGHTS or column.at[begin] >= draft.night:
            continue
        x = site.table.scaled[column].x[begin:end]
        calm = levels.calm(x, levels.scatter_of(x))
        courses.append(drift.Course(_numbers(site, column, begin, end), calm, [(night, night)]))
    return courses


def _about(site: SiteChanges, column: Column, names: Sequence[Part]) -> tuple[int, int, Array]:
    """First and last index of the figures from the level before some changes of a series to the
    next other one, and the figures without the steps of others among them."""
    every = site.levels[column]
    first, last = every.index(names[0]), every.index(names[-1])
    first, last = min(first, last), max(first, last)
    begin = every[first - 1].steps[-1] if first else 0
    end = every[last + 1].steps[0] if last + 1 < len(every) else len(column.at)
    x = site.table.scaled[column].x[begin:end].copy()
    for other in every[first : last + 1]:
        if other not in names:
            x[other.steps[0] - begin :] -= other.size
    return begin, end, x


def _make_whole(site: SiteChanges, draft: Draft, span: drift.Span) -> list[Whole]:
    """Make one change of those of each series: from before the drift to its newest nights."""
    table = site.table
    draft.night = table.own[min(span.begin + 1, len(table.own) - 1)]
    of: dict[Column, list[Part]] = {}
    for part in draft.parts:
        of.setdefault(part.column, []).append(part)
    draft.parts = []
    result = []
    for column, parts in of.items():
        parts.sort(key=lambda part: part.at)
        begin, end, x = _about(site, column, parts)
        step = parts[0].steps[0] - begin
        cut = int(np.searchsorted(column.at, draft.night)) - begin
        cut = min(max(cut, min(step, NEW_LEVEL)), step)
        change, size = change_of(
            table, column, (x[:cut], x[step:]), begin + cut,
            table.trials[min(part.found for part in parts)],
            noise_between(table, column, begin, begin + cut),
            drifts=True, lasts=end == len(column.at), new_at=begin + step,
        )  # fmt: skip
        draft.parts.append(replace(parts[0], change=change, size=size))
        result.append(Whole(column, parts, int(column.at[begin + cut]), change))
    return result
