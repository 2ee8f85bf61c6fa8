"""Whether changes of level of several series are one drift: the statistics of
``seatrial.history.changes`` for a slow change that each series shows on another night.

One series of a slow drift looks like a step, and like another one some weeks later. All series
together say which it is. Two models of the same figures are compared by Schwarz's criterion
(G. Schwarz, Ann. Statist. 6 (1978) 461):

- steps: each series has a step for each of its changes, on the night of the finding or on its own;
- a drift: one begin and one end for all series, and for each series how far it went.

A step that a drift does not explain stays a change by itself: the model of a drift and a step is
better than that of the drift alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.history.levels import LEAST_SCATTER

LEAST_NIGHTS = 5  # of a slope
_TRIED = 20  # begins and ends
_MOST = 40  # series that decide
_LIKELY = 2.0  # logarithm of the likelihood ratio
#: the same, by which a step must explain more than a drift that is known: it was looked for on each
#: night of each series
_UNLIKELY = 6.0

Array = NDArray[np.float64]


class Course(NamedTuple):
    """The figures of one series from the level before its changes on."""

    nights: Array  # numbers, ascending
    values: Array  # logarithms, or fractions of a typical figure
    steps: Sequence[tuple[int, int]]  # of each change: the night of its finding, and its own
    drifts: bool = False  # it has the drift that is known


class Span(NamedTuple):
    """The last night before a drift, and the night from which on nothing drifts."""

    begin: int
    end: int


def drift_of(courses: Sequence[Course], known: Span | None = None) -> Span | None:
    """The drift that describes figures better than steps do; None if none does.

    ``known``: a drift that some of the series have. Their changes are explained by it, and the
    steps of ``courses`` are others.
    """
    ranked = sorted(courses, key=lambda course: -_size(course))
    chosen = ranked[:_MOST]
    if not any(
        course.steps for course in chosen
    ):  # all have the known drift: nothing is to be explained
        half = _MOST // 2
        chosen = ranked[:half] + [course for course in ranked if course.steps][:half]
    most = max(len(course.nights) for course in chosen)
    shared = len({night for course in chosen for night, _ in course.steps}) + (2 if known else 0)
    steps = sum(_steps(course, known) for course in chosen) + shared * math.log(most) / 2
    tried = _tried(chosen)
    if not len(tried):
        return None
    first = int(min(course.nights[0] for course in chosen))
    last = int(max(course.nights[-1] for course in chosen))
    ramps = _ramps(np.arange(first, last + 1, dtype=float), tried)
    slopes = np.sum([_slopes(course, ramps, first) for course in chosen], axis=0) + math.log(most)
    best = int(np.argmin(slopes))
    going_on = np.where(tried[:, 1] == tried[:, 1].max(), slopes, math.inf)
    if going_on.min() - slopes[best] <= _LIKELY:
        best = int(np.argmin(going_on))
    if steps - slopes[best] <= (-_UNLIKELY if known else _LIKELY):
        return None
    return Span(*tried[best].tolist())


def _size(course: Course) -> float:
    first = course.steps[0][1] if course.steps else course.nights[len(course.nights) // 2]
    old, new = course.values[course.nights < first], course.values[course.nights >= first]
    return abs(float(np.median(new) - np.median(old))) if len(old) and len(new) else 0.0


def _steps(course: Course, known: Span | None) -> float:
    """The cost of a series with its steps, and with a known drift: half of the criterion."""
    fixed = [_ramps(course.nights, np.array([known]))[0]] if known and course.drifts else []
    rests = []
    for which in (0, 1):
        columns = [np.ones(len(course.nights)), *fixed]
        columns += [(course.nights >= step[which]).astype(float) for step in course.steps]
        table = np.stack(columns, axis=1)
        solution = np.linalg.lstsq(table, course.values, rcond=None)[0]
        rests.append(float(((course.values - table @ solution) ** 2).sum()))
    breaks = len(course.steps) + len(fixed)
    return _cost(min(rests), len(course.nights)) + breaks * math.log(len(course.nights)) / 2


def _slopes(course: Course, ramps: Array, first: int) -> Array:
    """The cost of a series with each drift. ``ramps``: of all nights from ``first`` on."""
    ramps_here = ramps[:, course.nights.astype(int) - first]
    count = len(course.values)
    rest = course.values - course.values.mean()
    squares = np.einsum("ij,ij->i", ramps_here, ramps_here) - count * ramps_here.mean(axis=1) ** 2
    explained = np.divide(
        (ramps_here @ rest) ** 2, squares, out=np.zeros(len(ramps_here)), where=squares > 1e-9
    )
    least = np.maximum(float(rest @ rest) - explained, count * LEAST_SCATTER**2)
    result: Array = count / 2 * np.log(least / count) + math.log(count) / 2
    return result


def _ramps(nights: Array, spans: NDArray[np.int64]) -> Array:
    """Spans x nights: 0 until the begin, 1 from the end on."""
    begin, end = spans[:, :1], spans[:, 1:]
    result: Array = np.clip((nights - begin) / (end - begin), 0.0, 1.0)
    return result


def _cost(rest: float, count: int) -> float:
    return count / 2 * math.log(max(rest / count, LEAST_SCATTER**2))


def _tried(courses: Sequence[Course]) -> NDArray[np.int64]:
    """Begins and ends of a drift: the changes that are to be explained lie within, or near."""
    steps = [step for course in courses for _, step in course.steps]
    first = min(int(course.nights[0]) for course in courses)
    last = max(int(course.nights[-1]) for course in courses)
    begins = np.unique(np.linspace(first, min(steps) - 1, _TRIED).astype(int))
    ends = np.unique(np.linspace(min(steps) + 1, last, _TRIED).astype(int))
    pairs = np.stack(np.meshgrid(begins, ends, indexing="ij"), axis=-1).reshape(-1, 2)
    return pairs[pairs[:, 1] - pairs[:, 0] >= LEAST_NIGHTS]
