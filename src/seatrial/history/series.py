"""Trials, series and points, as the index answers with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from seatrial.history.entry import CLOCK, series_name
from seatrial.results.manifest import MANIFEST
from seatrial.results.record import Case

if TYPE_CHECKING:  # numpy: it is slow to import
    import numpy as np
    from numpy.typing import NDArray

UNPROVEN = f"no {MANIFEST}"
SeriesKey = tuple[str, str, str]  # site, name, unit


@dataclass(frozen=True)
class KnownTrial:
    """One trial's folder, as the index has it."""

    id: int
    folder: Path
    name: str
    site: str
    started: datetime  # UTC
    verdict: str  # accept, reject, incomplete; "": interrupted, or it runs
    notes: list[str]  # planted faults, a wrong clock: its figures mean something else
    figures: int
    proven: bool = True  # its results are as in its SHA256SUMS; False: it has none
    block_runs: int = 1  # as in the entry
    short: dict[str, list[int]] = field(default_factory=dict, hash=False, compare=False)
    word: str = ""  # as in the entry

    @property
    def wrong_clock(self) -> str:
        """Why its times cannot be true; "": they can."""
        return next((note for note in self.notes if note.startswith(CLOCK)), "")

    @property
    def marks(self) -> list[str]:
        """What a reader of its figures must know."""
        return [*self.notes, *([] if self.proven else [UNPROVEN])]


@dataclass(frozen=True)
class Series:
    """One metric of one case at one location ("": the case as a whole) of one site, in one unit."""

    site: str
    case: Case
    metric: str
    location: str
    unit: str
    better: str

    @property
    def name(self) -> str:
        return series_name(self.case, self.metric, self.location)

    @property
    def key(self) -> SeriesKey:
        return self.site, self.name, self.unit


@dataclass(frozen=True)
class Point:
    """The figure of one trial in a series."""

    trial: KnownTrial
    value: float  # median of the samples
    samples: list[float]
    conditions: dict[str, str]  # versions, nodes, settings: name -> value

    def blocks(self, series: Series) -> list[float]:
        """The median of each block of runs, of a series without a location."""
        size, count = self.trial.block_runs or 1, len(self.samples)
        sizes = self.trial.short.get(series.name) if size > 1 else None
        ends = [0, *accumulate(sizes or [size] * (count // size))]
        return [median(self.samples[a:b]) for a, b in pairwise(ends)]


@dataclass(frozen=True, eq=False)
class Column:
    """The figures of a series as arrays. ``at``: positions in a list of trials, ascending."""

    series: Series
    at: NDArray[np.int64]
    values: NDArray[np.float64]
    samples: list[list[float]]  # of the first trials only


def timed(trials: Iterable[KnownTrial]) -> list[KnownTrial]:
    """The trials that have a place in time: their clock was right."""
    return [trial for trial in trials if not trial.wrong_clock]


def in_time(trials: Iterable[KnownTrial]) -> list[KnownTrial]:
    """The trials in their order, those first whose clock was wrong: the last one is the newest. By
    a clock that was ahead, a trial would seem to be the newest for a long time."""
    return sorted(trials, key=lambda trial: not trial.wrong_clock)


def newest_of_sites(trials: Iterable[KnownTrial]) -> dict[str, KnownTrial]:
    """Site -> its newest trial."""
    return {trial.site: trial for trial in in_time(trials)}


def literal(name: str) -> str:
    """A glob of ``Index.series`` that matches this name only."""
    return re.sub(r"([*?[])", r"[\1]", name)
