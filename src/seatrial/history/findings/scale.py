"""Figures of a series as logarithms; those that can be zero in units of a typical one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.history import levels
from seatrial.history.findings.record import Level
from seatrial.history.series import Column
from seatrial.results import statistics

_SAMPLED = 5  # nights whose repeats say how large the noise of a new series may be
_LARGEST = 709.0  # logarithm of a float

Array = NDArray[np.float64]


class Scaled(NamedTuple):
    """Figures as the statistics take them."""

    x: Array
    scale: float  # the unit; 0: they are logarithms

    def level(self, size: float, error: float, nights: int) -> Level:
        """The level of a scaled size, in the unit of the series."""
        return Level(
            self._figure(size), self._figure(size - error), self._figure(size + error), nights
        )

    def _figure(self, size: float) -> float:
        return size * self.scale if self.scale else math.exp(min(size, _LARGEST))

    def ratio(self, difference: float) -> float:
        """Of two levels that differ by so much."""
        return 1 + difference if self.scale else math.exp(min(difference, _LARGEST))


def scaled(values: Array) -> Scaled:
    if (values > 0).all():
        return Scaled(np.log(values), 0.0)
    scale = float(np.median(np.abs(values[values != 0]))) if values.any() else 1.0
    return Scaled(levels.in_units(values, scale), scale)


def unknown_noise(column: Column, scale: float) -> levels.Noise:
    """What the repeats say of the noise of a series before it has a level."""
    return levels.unknown_noise(scatter_of_repeats(column, scale))


def scatter_of_repeats(column: Column, scale: float) -> float:
    """Median spread of the repeats within the first nights, scaled as the figures."""
    spreads = []
    for samples in column.samples[:_SAMPLED]:
        if len(samples) > 1 and (scale or min(samples) > 0):
            values = (
                [value / scale for value in samples]
                if scale
                else [math.log(value) for value in samples]
            )
            spreads.append(statistics.spread(values) or 0.0)
    return statistics.median(spreads) if spreads else 0.0
