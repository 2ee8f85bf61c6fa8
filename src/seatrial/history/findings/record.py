"""What changed, as other modules read it: levels, changes of one series, and findings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from seatrial.history.series import KnownTrial, Series

_MORE, _MOST_MORE = 0.5, 0.1  # by which a drift has grown: times its size; of the old level

Kind = Literal[
    "", "site", "series", "condition", "node", "nodes", "link", "network", "profile", "transport",
    "check", "case", "metric",
]  # fmt: skip
#: why a series has no figure: it is 0 and must be above, it is missing, or it has another unit
Lost = Literal["", "zero", "missing", "unit"]


@dataclass(frozen=True)
class Level:
    """The figures between two changes."""

    value: float  # median
    low: float  # 95 % interval
    high: float
    nights: int


@dataclass(frozen=True)
class Change:
    """One change of level of one series."""

    series: Series
    last: KnownTrial  # of the old level
    first: KnownTrial  # of the new level
    found: KnownTrial  # the trial that showed it
    before: Level
    after: Level
    ratio: float  # of the levels. Of figures that can be zero: 1 + difference / typical size
    low: float  # 95 % interval
    high: float
    drift: bool  # a slope describes it better than a step
    lasts: bool  # there is no later change of the series
    informative: bool = False  # the requirements of the site call it so, and no one judges it
    lost: Lost = ""  # ``after`` is 0 then; of ``unit``, nothing is worse or better
    back: KnownTrial | None = None  # the first one with a figure again
    unit: str = ""  # the other one
    #: of a drift, each night since ``found`` with the ratio that it showed
    course: tuple[tuple[KnownTrial, float], ...] = ()

    @property
    def gain(self) -> float:
        """Logarithm of the ratio, above zero if the change is for the better."""
        if self.lost:
            return 0.0 if self.lost == "unit" else -math.inf
        change = math.log(self.ratio) if self.ratio > 0 else self.ratio - 1
        return change if self.series.better == "higher" else -change

    @property
    def size(self) -> float:
        """The change as a fraction of the old level, without its sign."""
        return abs(self.ratio - 1)

    @property
    def least(self) -> float:
        """The size at the end of the interval that is nearer to the old level."""
        return self.size - self._error

    @property
    def _error(self) -> float:
        return (self.high - self.low) / 2

    def grew_since(self, moment: datetime) -> bool:
        """Whether a drift has grown much beyond what the trials until then showed."""
        known = [ratio for trial, ratio in self.course if trial.started <= moment]
        return bool(known) and self.least > much_more(abs(known[-1] - 1))


@dataclass(frozen=True)
class Scope:
    """What the series of a finding have in common. ``kind`` "": nothing but the night; "condition":
    nothing but the condition of this name."""

    kind: Kind
    name: str = ""


@dataclass(frozen=True)
class Condition:
    """A version, setting or set of nodes that changed with a level."""

    name: str
    before: str
    after: str


@dataclass
class Finding:
    """Changes with one cause, as far as the figures can tell."""

    id: str  # day and four digits
    site: str
    last: KnownTrial  # before the change
    first: KnownTrial  # with the change
    found: KnownTrial  # that showed it
    scope: Scope
    conditions: list[Condition]
    swapped: tuple[list[str], list[str]] | None  # nodes that went, and those in their place
    changes: list[Change]  # worst first, those of informative series last
    compared: int  # series that could have changed that night
    listed: list[Change] = field(default_factory=list)  # the changes of a selection
    drift: bool = False  # ``last`` and ``first`` are where it begins, to a few nights
    #: on which the last node got a version; with which a drift ended. None: there was one night, or
    #: the drift goes on
    until: KnownTrial | None = None
    waited: float | None = None  # for a processor, in per cent: most of its cases, of ``first``
    #: the finding of the other series of the night, and the effect of this one's place beside that
    #: of these: a logarithm, above zero for the worse
    beside: tuple[str, float] | None = None
    #: nodes of which each has the figures that the other had, if that explains all of the night
    exchanged: tuple[str, str] | None = None

    @property
    def worse(self) -> list[Change]:
        return worse_of(self.changes)

    @property
    def better(self) -> list[Change]:
        return better_of(self.changes)

    @property
    def grew(self) -> KnownTrial | None:
        """The newest trial that showed the listed series of a drift to be much worse than the trial
        that showed the drift, or than the last such trial did."""
        worst: dict[int, tuple[KnownTrial, float, float]] = {}
        for change in worse_of(self.listed):
            for trial, ratio in change.course:
                size = abs(ratio - 1)
                _, most, least = worst.get(trial.id, (trial, 0.0, 0.0))
                worst[trial.id] = trial, max(most, size), max(least, size - change._error)
        grew, known = None, math.inf
        for trial, size, least in sorted(worst.values(), key=lambda row: row[0].started):
            if known == math.inf:
                known = size
            elif least > much_more(known):
                grew, known = trial, size
        return grew

    @property
    def informative(self) -> list[Change]:
        return [change for change in self.changes if change.informative]


def much_more(size: float) -> float:
    """The size beyond which a drift is news again: a half more, and at most 0.1 more."""
    return size + min(_MORE * size, _MOST_MORE)


def worse_of(changes: Iterable[Change]) -> list[Change]:
    """The changes for the worse. Informative series are not judged: none of them is worse."""
    return [change for change in changes if change.gain < 0 and not change.informative]


def better_of(changes: Iterable[Change]) -> list[Change]:
    """The changes for the better. Informative series are not judged: none of them is better."""
    return [change for change in changes if change.gain > 0 and not change.informative]
