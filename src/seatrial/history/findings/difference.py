"""By how much the figures of a series differ since a night from those before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seatrial.history import levels
from seatrial.history.findings.changed_conditions import AROUND
from seatrial.history.findings.scale import scaled, unknown_noise
from seatrial.history.series import Column
from seatrial.results import statistics

_MOVED = 2.0  # standard errors of the figures since a night, of a series that moved
_MOVED_PART = 0.5  # of the size of the changes that were found
_NONE = (0.0, math.inf)  # no difference is known


def difference(column: Column, night: int, found: int) -> tuple[float, float]:
    """Of the medians from ``night`` to ``found`` and before, with its standard error, as a
    fraction. (0, infinite) if there are no figures."""
    begin = int(np.searchsorted(column.at, night))
    end = int(np.searchsorted(column.at, found, side="right"))
    first = max(0, begin - AROUND)
    if not first < begin < end:
        return _NONE
    x, scale = scaled(column.values[first:end])
    old, new = x[: begin - first], x[begin - first :]
    noise = levels.noise_of(old, unknown_noise(column, scale))
    error = noise.sigma * math.sqrt(1 / len(old) + 1 / len(new))
    return float(np.median(new) - np.median(old)), error


def moved(compared: Sequence[Column], changed: set[Column], night: int, found: int) -> set[Column]:
    """The series whose figures from ``night`` to ``found`` differ from those before by what no
    noise explains, and by half as much as those of the changes do."""
    differences = {column: difference(column, night, found) for column in compared}
    known = [abs(differences[column][0]) for column in changed
             if math.isfinite(differences.get(column, _NONE)[1])]  # fmt: skip
    least = _MOVED_PART * statistics.median(known) if known else math.inf
    return {
        column for column, (size, error) in differences.items()
        if abs(size) >= max(least, _MOVED * error)
    }  # fmt: skip
