"""What changed over the nights: the changes of level of all series, one finding for each cause.

``seatrial.history.levels`` says when the figures of a series changed. This module joins the changes
of one night that have a cause in common (a node, a link, a version, a rail, a NIC profile ...) to a
finding, with all versions, settings and nodes that changed that night. A finding is made on the
night that first shows it, from what was known then: later nights add series to it and make its
levels more certain, and it keeps its name.

A night shows only a part of the series that a cause changed, and by chance that part may be of one
node. So a series counts for the choice of the cause if its figures since that night have moved, too
(``SiteHistory._moved``). A version that changed that night is the cause unless a node or a link
divides better what moved from what did not. A place whose series moved by another amount than the
others with that cause is a finding by itself (``seatrial.history.beside``).

A slow drift is shown by each series on another night, and again when it has gone on. Findings whose
figures one drift describes better than their steps are that drift (``seatrial.history.drift``). It
has no cause among the versions: a step that it explains is none. Findings of the nights on which
one version came to one node after the other are joined, too.

A series that has no figure any more, while its case is measured on its nodes, is a change: from the
first night without it (``_lost``). A figure of 0 that must be above zero counts as none.

What changed that night is no proof of the cause: a finding says what could have been it.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from seatrial.history import drift, levels, places
from seatrial.history.beside import GAIN, Moved, likelihood, place_beside
from seatrial.history.entry import NODES, SETTING, is_zero, value_on, values_of
from seatrial.history.index import Column, Index, KnownTrial, Series, literal
from seatrial.results import statistics
from seatrial.results.locations import Locations, natural
from seatrial.results.record import Case
from seatrial.results.requirements import MetricRequirements, Requirements

_AROUND = 10  # nights before and after a change whose versions are compared
_KEPT = 3  # nights, as a level needs, for which a value that comes back later was the same
_STEADY = 2  # nights that a case must have run on the same nodes before one is swapped
NEW_LEVEL = 5  # nights at the end of a drift that say how far it went
_SAMPLED = 5  # nights whose repeats say how large the noise of a new series may be
_LARGEST = 709.0  # logarithm of a float
_NEAR = 2  # nights by which the begin of a level is mistaken, beside its interval
_MOVED = 2.0  # standard errors of the figures since a night, of a series that moved
_OF_NODE = 0.8  # of the series of a node that changed, if it is one of several
_MOVED_PART = 0.5  # of the size of the changes that were found
_P_LOST = 5e-3  # that so many nights in a row lack a figure, by how many did before
_P_LOST_AGAIN = 5e-5  # the same, where some did: each of many nights is tried
_NEAR_DRIFT = 150  # nights before and after the changes of a series that say whether it drifts
_MORE, _MOST_MORE = 0.5, 0.1  # by which a drift has grown: times its size; of the old level
_DRIFT_NIGHTS = 30  # from a finding of a drift to the next one, if it has not lasted longer

Array = NDArray[np.float64]
Kind = Literal[
    "", "site", "series", "condition", "node", "nodes", "link", "network", "profile", "transport",
    "check", "case", "metric",
]  # fmt: skip
_PLACES: tuple[Kind, ...] = ("node", "link")
_PLACES_BESIDE: tuple[Kind, ...] = (*_PLACES, "network")  # that may have a fault of their own
_KINDS: tuple[Kind, ...] = ("network", "profile", "transport", "check", "case", "metric")
#: what all cases with a condition may have in common: of several that fit, the first one
_OF_CASES: tuple[Kind, ...] = ("case", "profile", "transport", "check", "network")
#: number of a trial and case -> what the case was measured with
_Under = Mapping[tuple[int, str], dict[str, str]]
_Waits = Mapping[tuple[int, str], float]
_Fits = Callable[[Column], bool]  # whether a finding includes the changes of a series
#: site -> its requirements
_Requirements = Mapping[str, Requirements]
#: why a series has no figure: it is 0 and must be above, it is missing, or it has another unit
Lost = Literal["", "zero", "missing", "unit"]
_Name = TypeVar("_Name", bound=Hashable)


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
        for one in worse_of(self.listed):
            for trial, ratio in one.course:
                size = abs(ratio - 1)
                _, most, least = worst.get(trial.id, (trial, 0.0, 0.0))
                worst[trial.id] = trial, max(most, size), max(least, size - one._error)
        grew, known = None, math.inf
        for trial, size, least in sorted(worst.values(), key=lambda row: row[0].started):
            if known == math.inf:
                known = size
            elif least > much_more(known):
                grew, known = trial, size
        return grew

    @property
    def informative(self) -> list[Change]:
        return [one for one in self.changes if one.informative]


def much_more(size: float) -> float:
    """The size beyond which a drift is news again: a half more, and at most 0.1 more."""
    return size + min(_MORE * size, _MOST_MORE)


def worse_of(changes: Iterable[Change]) -> list[Change]:
    """The changes for the worse. Informative series are not judged: none of them is worse."""
    return [one for one in changes if one.gain < 0 and not one.informative]


def better_of(changes: Iterable[Change]) -> list[Change]:
    """The changes for the better. Informative series are not judged: none of them is better."""
    return [one for one in changes if one.gain > 0 and not one.informative]


def in_time(trials: Iterable[KnownTrial]) -> list[KnownTrial]:
    """The trials in their order, those first whose clock was wrong: the last one is the newest."""
    return sorted(trials, key=lambda one: not one.wrong_clock)


def untimed(trials: Iterable[KnownTrial]) -> list[str]:
    """A sentence for each trial whose clock was wrong. It has no place among the nights, and no
    change of level counts it."""
    return [
        f"{one.folder.name}: verdict {one.verdict or 'interrupted'}, in no change of level: "
        f"{one.wrong_clock}"
        for one in trials if one.wrong_clock
    ]  # fmt: skip


def findings(
    index: Index, requirements: _Requirements | None = None, **patterns: Sequence[str]
) -> list[Finding]:
    """All findings, in the order of the trials that showed them.

    ``requirements`` and ``patterns`` are those of ``sites``.
    """
    result = [one for site in sites(index, requirements, **patterns) for one in site.findings]
    return sorted(result, key=lambda one: (one.found.started, one.first.started, one.id))


def sites(
    index: Index, requirements: _Requirements | None = None, **patterns: Sequence[str]
) -> list[SiteHistory]:
    """The history of each site, in the order of their names.

    Trials whose clock was wrong do not count: they have no place among the nights.

    ``patterns`` selects series, as in ``Index.series``. A selection changes no cause: that is of
    all series of the site. ``requirements`` says which series are informative.
    """
    trials = [one for one in index.trials() if not one.wrong_clock]
    chosen = set(index.series(**patterns))
    of_site: dict[str, list[Column]] = {}
    for column in index.columns(trials, site=sorted({literal(one.site) for one in chosen})):
        of_site.setdefault(column.series.site, []).append(column)
    result = []
    under = index.conditions() if chosen else {}
    waits = index.waits() if chosen else {}
    for name, own in sorted(of_site.items()):
        site = SiteHistory(name, trials, under, own, (requirements or {}).get(name), waits)
        if any(one.series not in chosen for one in own):
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
    for one in in_time(index.trials()):
        of_site.setdefault(one.site, []).append(one.id)
    chosen = {number for own in of_site.values() for number in own[-trials:]}
    return [
        one for one in findings(index, requirements, **patterns)
        if chosen & {
            own.id for own in (
                one.found, one.grew, *(change.found for change in worse_of(one.listed))
            ) if own
        }
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Part:
    """A change with its column. Nights are positions in the list of trials."""

    change: Change
    column: Column
    at: int
    found: int
    low: int  # the new level began from ``low`` to ``high``
    high: int
    steps: tuple[int, ...] = ()  # indices of the column: begins of new levels. (): it is lost
    size: float = 0.0  # scaled

    def can_be_of(self, night: int) -> bool:
        return self.low <= night <= self.high


@dataclass(frozen=True)
class _Cause:
    """What changes of a night have in common. ``by`` "night": nothing that explains them."""

    by: Literal["place", "swap", "version", "kind", "night"]
    scope: Scope
    fits: _Fits

    @property
    def is_place(self) -> bool:
        return self.by in ("place", "swap")

    @property
    def explains(self) -> bool:
        """Whether it is more than the night. All of a site is a cause."""
        return self.by != "night" or self.scope.kind == "site"


@dataclass(eq=False)
class _Made:
    """A finding while it is made."""

    night: int
    found: int
    finding: Finding
    cause: _Cause
    parts: list[_Part]
    drift: drift.Span | None = None  # numbers of the site's trials
    rollout: list[Condition] = field(default_factory=list)
    until: int = 0  # the night of its last step
    apart: list[_Cause] = field(default_factory=list)  # places with findings beside this one

    @property
    def is_worse(self) -> bool:
        return statistics.median([part.change.gain for part in self.parts]) < 0


class SiteHistory:
    """The series of one site, their changes of level, and the findings that join these.

    ``changes``: of each series, with the position of the first trial of its new level.
    """

    def __init__(
        self, site: str, trials: Sequence[KnownTrial], under: _Under, columns: list[Column],
        requirements: Requirements | None = None, waits: _Waits | None = None,
    ):  # fmt: skip
        self.site, self.trials, self.under = site, trials, under
        self.requirements, self.waits = requirements, waits or {}
        self.waited: dict[Case, Array] = {}
        self.rolled: dict[tuple[Case, str, int], list[int]] = {}
        self.of_metric: dict[tuple[Case, str], MetricRequirements] = {}
        self.own = [at for at, one in enumerate(trials) if one.site == site]
        self.zeros: dict[Series, set[int]] = {}  # nights with a figure of 0 that must be above
        self.nights = self._measured(columns)
        columns = self._positive(columns)
        self.known: dict[tuple[Case, int], list[Condition]] = {}
        self.swaps = self._swapped()
        self.continued: dict[Series, Series] = {}  # series of a node that went -> that follows it
        nodes = {name for sides in self.swaps.values() for side in sides for name in side}
        for case, nights in self.nights.items():
            nodes |= self._nodes(case, int(nights[-1]))
        self.locations = Locations([], nodes)
        #: series of a node that took the place of one that returned later -> the first night of its
        #: own; series of one that returned -> the nights from which on it was away, and back
        self.begins: dict[Series, int] = {}
        self.away: dict[Series, tuple[int, int]] = {}
        for at, (gone, new) in self.swaps.items():
            if len(gone) == 1 and not self._returns(at):
                columns = self._continue(columns, at, gone[0], new[0])
        self.columns = columns
        self.names = {one: self._names(one) for one in columns}
        self.units: dict[tuple[Case, str, str], list[Column]] = {}
        for column in columns:
            own = column.series
            self.units.setdefault((own.case, own.metric, own.location), []).append(column)
        self.scaled = {one: _scaled(one.values) for one in columns}
        self.parts = {column: list(self._parts(column)) for column in columns}
        lost = {column: list(self._lost(column)) for column in columns}
        self.end = {one: own[-1].high if own else int(one.at[-1]) for one, own in lost.items()}
        self.end = {one: max(end, int(one.at[-1])) for one, end in self.end.items()}
        every = {one: sorted([*self.parts[one], *lost[one]], key=lambda p: p.at) for one in columns}
        self.changes = {one: [(p.at, p.change) for p in own] for one, own in every.items()}
        self.findings = self._joined([part for own in every.values() for part in own])

    def select(self, chosen: Collection[Series]) -> None:
        """Leave out the series that are not chosen, and the findings with none that is. What a
        finding says of its cause, and of how many series changed, stays."""
        wanted = set(chosen)
        for one in chosen:
            while one in self.continued:
                one = self.continued[one]
                wanted.add(one)
        self.columns = [one for one in self.columns if one.series in wanted]
        cases = {one.series.case for one in self.columns}
        self.nights = {case: own for case, own in self.nights.items() if case in cases}
        for finding in self.findings:
            finding.listed = [one for one in finding.changes if one.series in wanted]
        self.findings = [one for one in self.findings if one.listed]

    def versions(self) -> dict[int, dict[Condition, list[Case]]]:
        """What changed on which night, as a position, and in which cases."""
        result: dict[int, dict[Condition, list[Case]]] = {}
        for case, nights in self.nights.items():
            for before, night in pairwise(nights.tolist()):
                if self._at(case, before) != self._at(case, night):
                    for one in self._conditions(case, night):
                        result.setdefault(night, {}).setdefault(one, []).append(case)
        return dict(sorted(result.items()))

    def _joined(self, parts: Sequence[_Part]) -> list[Finding]:
        made: list[_Made] = []
        for found in sorted({part.found for part in parts} | set(self.swaps)):
            rest = [part for part in parts if part.found == found]
            for one in made:
                self._correct(one, rest, found)
                while (left := self._extended(one, rest, found)) != rest:
                    rest = left
            if found in self.swaps:
                made.append(self._finding(found, found, []))
            for one in self._made(rest, found):
                if swap := next((known for known in made if self._is_of_swap(one, known)), None):
                    swap.parts += one.parts
                else:
                    made.append(one)
            for one in [*made]:
                self._set_apart(one, made, found)
        made = self._drifts(self._rollouts(made))
        for one in made:
            one.finding.changes = sorted(
                (part.change for part in one.parts),
                key=lambda own: (own.informative, own.gain, own.series.name),
            )
            one.finding.listed = one.finding.changes
            self._describe(one)
        for night in {one.night for one in made}:
            own = [one for one in made if one.night == night and one.parts]
            pair = self._exchanged([part for one in own for part in one.parts])
            for one in own:
                one.finding.exchanged = pair
        return [one.finding for one in made]

    def _exchanged(self, parts: Sequence[_Part]) -> tuple[str, str] | None:
        located: dict[places.Key, places.Figures] = {}
        for change in (part.change for part in parts if not part.change.lost):
            series = change.series
            if series.location:
                verdict = "worse" if change.gain < 0 else "better"
                figures = places.Figures(change.before.value, change.after.value, verdict)
                located[series.case, series.metric, series.location] = figures
        return places.exchanged_nodes(located, self.locations) if located else None

    def _describe(self, made: _Made) -> None:
        """Say between which trials the changes lie, what they have in common, and what else changed
        that night."""
        finding, columns = made.finding, {part.column for part in made.parts}
        finding.first, finding.last = self.trials[made.night], self._trial_before(made.night)
        waits = [self.waits.get((finding.first.id, one.series.case.id)) for one in columns]
        finding.waited = max((one for one in waits if one is not None), default=None)
        finding.compared = len(self._compared(made.night))
        finding.scope = made.cause.scope
        if columns and made.cause.by == "night":
            others = self._beside_others(made)
            nodes = ", ".join(sorted(self._several_nodes(others, columns), key=natural))
            finding.scope = Scope("nodes", nodes) if nodes else self._common(others, columns)
        if made.drift:
            finding.drift, end = True, made.drift.end
            finding.until = self.trials[self.own[end]] if end + 1 < len(self.own) else None
            finding.scope = self._common_of_drift(made, columns)
            return
        each = (one for part in made.parts for one in self._changed_for(part.column, made.night))
        names = {one.name for one in made.rollout}
        finding.conditions = [one for one in dict.fromkeys(each) if one.name not in names]
        if made.rollout:
            finding.conditions = [*made.rollout, *finding.conditions]
            finding.until = self.trials[made.until]
        if made.cause.by == "swap":
            finding.swapped = self.swaps[made.night]
            if not made.parts:
                every = self.versions().get(made.night, {})
                finding.conditions = [one for one in every if one.name != NODES]

    def _extended(self, made: _Made, parts: list[_Part], found: int) -> list[_Part]:
        """Add the changes that have the night and the cause of a finding. Returns the others."""
        if not made.parts:  # a swap that changed no figure until now: see _is_of_swap
            return parts
        possible = [part for part in parts if part.can_be_of(made.night)]
        possible += [
            part for part in parts
            if not part.can_be_of(made.night)
            and (self._is_at(part, made) or self._is_near(part, made))
        ]  # fmt: skip
        if not possible:
            return parts
        # With more nights and more changes, the cause may be another one that has all of them.
        cause = self._cause(made.night, found, [*made.parts, *possible])
        fits = made.cause.fits
        if made.finding.beside or made.cause.by == "swap":
            pass  # the night may have a common cause, and this place has another one
        elif made.parts and all(cause.fits(part.column) for part in made.parts):
            if cause.explains or not made.cause.explains:
                made.cause, fits = cause, cause.fits
        elif cause.explains and not made.cause.explains:
            possible = [part for part in possible if not cause.fits(part.column)]
        taken = {part for part in possible if fits(part.column)}
        made.parts += [part for part in possible if part in taken]
        return [part for part in parts if part not in taken]

    def _is_at(self, part: _Part, made: _Made) -> bool:
        """Whether a change is at the node or link of a finding, and began before that was found:
        of a drift, each series shows another night."""
        if made.cause.is_place:
            place = made.cause.fits(part.column)
        else:
            links = [self.names[one.column]["link"] for one in made.parts]
            place = bool(links) and all(
                link and link == self.names[part.column]["link"] for link in links
            )
        return place and part.low <= made.found and part.found - made.found <= _AROUND

    def _is_near(self, part: _Part, made: _Made) -> bool:
        """Whether a change next to the night of a finding is of its cause, and no other version
        changed when it began."""
        night, low, high = (bisect_left(self.own, n) for n in (made.night, part.low, part.high))
        return (
            made.cause.explains and made.cause.fits(part.column)
            and low - _NEAR <= night <= high + _NEAR
            and not any(self._changed_for(part.column, n) for n in range(part.low, part.high + 1))
        )  # fmt: skip

    def _correct(self, made: _Made, parts: Sequence[_Part], found: int) -> None:
        """Move a finding without a version to a night beside its own, if as many changes or more
        began then, and their cause has all of its own: a version, or any if the finding has none.

        The first night of a new level may show a change together with the night before, if that was
        a little off by chance."""
        if not made.parts or made.cause.by == "version" or made.night in self.swaps:
            return
        if made.finding.beside or made.cause.by == "swap":
            return
        at = bisect_left(self.own, made.night)
        for night in self.own[max(0, at - _NEAR) : at + _NEAR + 1]:
            own = [part for part in parts if part.can_be_of(night)]
            if night == made.night or len(own) < len(made.parts):
                continue
            cause = self._cause(night, found, [*made.parts, *own])
            better = cause.by == "version" if made.cause.explains else cause.explains
            if better and all(cause.fits(part.column) for part in made.parts):
                made.night, made.cause = night, cause
                return

    # --- two causes of one night -------------------------------------------------------

    def _set_apart(self, made: _Made, others: list[_Made], found: int) -> None:
        """Take from a finding the changes of a place that has an effect of its own beside what all
        of them have in common, and add a finding of these to ``others``, before it."""
        if made.cause.is_place or all(part.found != found for part in made.parts):
            return
        if len(made.parts) < 2:  # of the place, and of the others
            return
        while cause_and_effect := self._beside(made, found):
            cause, effect = cause_and_effect
            own = [part for part in made.parts if cause.fits(part.column)]
            if not own:
                return
            scopes = [one.cause.scope if one.night == made.night else None for one in others]
            place = others[scopes.index(cause.scope)] if cause.scope in scopes else None
            if not place:
                finding = self._named(made.night, found, f"{cause.scope.kind} {cause.scope.name}")
                place = _Made(made.night, found, finding, cause, [])
                others.insert(others.index(made), place)
            place.cause = _either(place.cause, cause)
            place.parts += own
            place.finding.beside = made.finding.id, effect
            made.parts = [part for part in made.parts if part not in own]
            made.apart.append(cause)

    def _is_of_swap(self, made: _Made, swap: _Made) -> bool:
        """Whether a finding has the changes of the nodes that came in the place of others."""
        if swap.cause.by != "swap" or not made.cause.is_place:
            return False
        near = abs(self._number(made.night) - self._number(swap.night)) <= _NEAR
        nodes = self.swaps[swap.night][1]
        return near and (made.cause.by == "swap" or made.cause.scope.name in nodes)

    def _beside_others(self, made: _Made) -> list[Column]:
        """The series that could have changed with a finding: without those of places apart."""
        compared = self._compared(made.night)
        return [one for one in compared if not any(cause.fits(one) for cause in made.apart)]

    def _beside(self, made: _Made, found: int) -> tuple[_Cause, float] | None:
        """The place with an effect of its own among what fits the cause of a finding, and how large
        that is. None: there is none, or the finding would have nothing else."""
        moved: dict[Column, tuple[float, float]] = {}
        for column in self._beside_others(made):
            size, error = self._difference(column, made.night, found)
            if made.cause.fits(column) and math.isfinite(error):
                moved[column] = -size if column.series.better == "higher" else size, error
        best = None
        for kind in _PLACES_BESIDE:
            groups = {one: self._comparable(one, kind) for one in moved}
            place = place_beside(
                [
                    Moved(*moved[one], groups[one], names)
                    for one in moved
                    if (names := self.names[one].get(kind, ()))
                ]
            )
            if place and (not best or place.gain > best[0].gain):
                best = place, Scope(kind, place.name), groups
        if not best:
            return None
        place, scope, groups = best
        middle = place.common + place.own / 2
        at = {
            one for one in moved
            if self._includes(scope, one) and (
                groups[one] in place.groups if self.names[one].get(scope.kind)
                else (moved[one][0] > middle) == (place.own > 0)
            )
        }  # fmt: skip
        if all(part.column in at for part in made.parts):
            return None
        return _Cause("place", scope, at.__contains__), place.own

    @staticmethod
    def _comparable(column: Column, kind: Kind) -> Hashable:
        """What the series have in common among which a place is compared with the others."""
        case = column.series.case
        return (replace(case, network="") if kind == "network" else case), column.series.metric

    # --- several nights ----------------------------------------------------------------

    def _rollouts(self, made: Sequence[_Made]) -> list[_Made]:
        """Join the findings of the nights on which a version came to one node after the other."""
        result: list[_Made] = []
        for one in made:
            for first in result if one.parts else ():
                if conditions := self._rollout(first, one):
                    first.parts += one.parts
                    first.rollout, first.until = conditions, max(first.until, one.night)
                    break
            else:
                result.append(one)
        for one in result:
            if one.rollout:
                case, name = one.parts[0].column.series.case, one.rollout[0].name
                low = min(part.low for part in one.parts)
                nights = self._rolled(case, name, one.until)
                one.night = min([night for night in nights if night >= low] or [one.night])
                self._set_version(one, name)
        return result

    def _set_version(self, made: _Made, name: str) -> None:
        """Let a finding be of all cases in which a version changed that night."""
        night = made.night
        own = self._changed_for(made.parts[0].column, night)
        if begun := next((one for one in own if one.name == name), None):
            scope = self._scope(begun, self._compared(night), night)
            made.cause = _Cause(
                "version", scope, lambda one: begun in self._changed_for(one, night)
            )  # fmt: skip

    def _rollout(self, first: _Made, later: _Made) -> list[Condition]:
        """The versions that came to other nodes on the night of ``later`` than on that of
        ``first``, from the value of all nodes before. []: there is none, or it is not the cause."""
        if not first.parts or later.night <= first.night or first.is_worse != later.is_worse:
            return []
        result: dict[str, list[Condition]] = {}
        known = {one.name for one in first.rollout}  # of all its parts, as they were joined
        parts = [
            (made.night, part)
            for made in (first, later)
            for part in (() if made.rollout else made.parts)
        ]
        for night, part in parts:
            case = part.column.series.case
            for name, text in self._at(case, later.night).items():
                nights = self._rolled(case, name, later.night)
                if first.night in nights and night in nights and len(nights) > 1:
                    before = self._before(case, min(nights)).get(name, "none")
                    ends = self.names[part.column].get("node", ())
                    values = {value_on(self._at(case, night)[name], node) for node in ends}
                    if not values or values - values_of(before):
                        result.setdefault(name, []).append(Condition(name, before, text))
        return [
            own[-1] for name, own in result.items()
            if len(own) == len(parts) and (not known or name in known)
        ]  # fmt: skip

    def _rolled(self, case: Case, name: str, until: int) -> list[int]:
        """The nights on which a version of a case came to other nodes, to the night ``until``, from
        one value of all nodes to another one. []: the last is not such a night."""
        key = case, name, until
        if key not in self.rolled:
            self.rolled[key] = self._find_rolled(case, name, until)
        return self.rolled[key]

    def _find_rolled(self, case: Case, name: str, until: int) -> list[int]:
        nights = self.nights[case]
        end = int(np.searchsorted(nights, until))
        if not 0 < end < len(nights) or nights[end] != until:
            return []
        result: list[int] = []
        both: frozenset[str] = frozenset()
        text = now = self._at(case, until).get(name, "none")
        for at in range(end, 0, -1):
            before = self._at(case, int(nights[at - 1])).get(name, "none")
            if before == text:
                if at == end:
                    return []
                continue
            values = values_of(before)
            both = both or values | values_of(text)
            if len(both) != 2 or not values <= both:
                return []
            result.append(int(nights[at]))
            if len(values) == 1:
                return result[::-1] if values_of(now) != values else []
            text = before
        return []

    def _before(self, case: Case, night: int) -> dict[str, str]:
        nights = self.nights[case]
        return self._at(case, int(nights[int(np.searchsorted(nights, night)) - 1]))

    def _drifts(self, made: list[_Made]) -> list[_Made]:
        """Join the findings that one drift explains better than steps do."""
        count = -1
        tried: set[tuple[int, int, int, int]] = set()  # findings, and how many changes they had
        while count != len(made):
            count = len(made)
            result: list[_Made] = []
            for one in made:
                for other in result:
                    key = (id(other), len(other.parts), id(one), len(one.parts))
                    if key in tried or not self._may_be_one(other, one):
                        continue
                    tried.add(key)
                    if span := self._drift(other, one):
                        other.parts += one.parts
                        other.drift = span
                        break
                else:
                    if not one.drift and self._may_drift(one):
                        one.drift = self._drift(one)
                    result.append(one)
            made = result
        for one in made:
            if one.drift:
                self._retell(one, one.drift)
        return made

    def _may_drift(self, made: _Made) -> bool:
        return bool(made.parts) and not made.rollout and made.night not in self.swaps and all(
            part.steps for part in made.parts
        )  # fmt: skip

    def _may_be_one(self, first: _Made, later: _Made) -> bool:
        if not (self._may_drift(first) and self._may_drift(later)):
            return False
        ends = [self._number(int(part.column.at[part.steps[-1]])) for part in first.parts]
        begin = self._number(min(part.at for part in first.parts))
        near = max(_DRIFT_NIGHTS, max(ends) - begin)
        return first.is_worse == later.is_worse and (
            begin - near <= self._number(later.night) <= max(ends) + near
        )

    def _number(self, night: int) -> int:
        """Of a trial among those of the site."""
        return bisect_left(self.own, night)

    def _drift(self, first: _Made, *others: _Made) -> drift.Span | None:
        """The drift that explains the changes of findings; None if steps do it better."""
        of: dict[Column, list[tuple[int, _Part]]] = {}  # with the number of the finding
        several = [first, *others]
        for number, made in enumerate(several):
            for part in made.parts:
                of.setdefault(part.column, []).append((number, part))
        for parts in of.values():
            parts.sort(key=lambda item: item[1].at)
        courses = [] if others or first.drift else self._others(first)
        for column, own in of.items():
            whole, end, x = self._about(column, [part for _, part in own])
            begin = max(whole, own[0][1].steps[0] - _NEAR_DRIFT)
            end = min(end, own[-1][1].steps[-1] + _NEAR_DRIFT)
            x = x[begin - whole : end - whole]
            nights = np.searchsorted(self.own, column.at[begin:end]).astype(float)
            steps = [
                (self._number(several[number].night if at == part.steps[0] else night),
                 self._number(night))
                for number, part in own if number or not first.drift
                for at in part.steps for night in [int(column.at[at])]
            ]  # fmt: skip
            scatter = self._noise(column, begin, own[0][1].steps[0]).scatter
            if not math.isfinite(scatter):
                scatter = levels.USUAL_SCATTER
            drifts = first.drift is not None and any(not number for number, _ in own)
            courses.append(drift.Course(nights, levels.calm(x, scatter), steps, drifts))
        return drift.drift_of(courses, first.drift)

    def _others(self, made: _Made) -> list[drift.Course]:
        """The series that moved with those of a finding and do not show it by themselves, until the
        night that showed its last change: a step with all of them, or a drift?"""
        found = max(part.found for part in made.parts)
        changed = {part.column for part in made.parts}
        night = self._number(made.night)
        courses = []
        for column in self._moved(self._compared(made.night), changed, made.night, found) - changed:
            end = int(np.searchsorted(column.at, found, side="right"))
            begins = [part.steps[-1] for part in self.parts[column] if part.steps[0] < end]
            begin = begins[-1] if begins else 0
            if end - begin < drift.LEAST_NIGHTS or column.at[begin] >= made.night:
                continue
            x = self.scaled[column][0][begin:end]
            nights = np.searchsorted(self.own, column.at[begin:end]).astype(float)
            calm = levels.calm(x, levels.scatter_of(x))
            courses.append(drift.Course(nights, calm, [(night, night)]))
        return courses

    def _about(self, column: Column, own: Sequence[_Part]) -> tuple[int, int, Array]:
        """First and last index of the figures from the level before some changes of a series to the
        next other one, and the figures without the steps of others among them."""
        every = self.parts[column]
        first, last = every.index(own[0]), every.index(own[-1])
        first, last = min(first, last), max(first, last)
        begin = every[first - 1].steps[-1] if first else 0
        end = every[last + 1].steps[0] if last + 1 < len(every) else len(column.at)
        x = self.scaled[column][0][begin:end].copy()
        for other in every[first : last + 1]:
            if other not in own:
                x[other.steps[0] - begin :] -= other.size
        return begin, end, x

    def _noise(self, column: Column, begin: int, end: int) -> levels.Noise:
        x, scale = self.scaled[column]
        noise = levels.unknown_noise(scatter_of_repeats(column, scale))
        return levels.noise_of(x[begin:end], noise)

    def _retell(self, made: _Made, span: drift.Span) -> None:
        """Make one change of those of each series: from before the drift to its newest nights."""
        made.night = self.own[min(span.begin + 1, len(self.own) - 1)]
        of: dict[Column, list[_Part]] = {}
        for part in made.parts:
            of.setdefault(part.column, []).append(part)
        made.parts = []
        for column, own in of.items():
            own.sort(key=lambda part: part.at)
            begin, end, x = self._about(column, own)
            step = own[0].steps[0] - begin
            cut = int(np.searchsorted(column.at, made.night)) - begin
            cut = min(max(cut, min(step, NEW_LEVEL)), step)
            noise = self._noise(column, begin, begin + cut)
            found = self.trials[min(part.found for part in own)]
            change, size = self._change(
                column, (x[:cut], x[step:]), begin + cut, found, noise,
                drifts=True, lasts=end == len(column.at), new_at=begin + step,
            )  # fmt: skip
            part = replace(own[0], change=change, size=size)
            made.parts.append(part)
            known = {id(one.change) for one in own}
            rest = [(at, one) for at, one in self.changes[column] if id(one) not in known]
            at = int(column.at[begin + cut])
            self.changes[column] = sorted([*rest, (at, change)], key=lambda item: item[0])

    def _common_of_drift(self, made: _Made, columns: set[Column]) -> Scope:
        """The node or link that most of the series are at; else what all have in common."""
        compared = self._compared(min(part.at for part in made.parts))
        place, _ = self._explanation(compared, columns, _PLACES)
        if place and sum(self._includes(place, one) for one in columns) >= 0.8 * len(columns):
            return place
        return self._common(compared, columns)

    # --- one series --------------------------------------------------------------------

    def _measured(self, columns: Sequence[Column]) -> dict[Case, NDArray[np.int64]]:
        """The nights on which each case ran, also those on which it has no figure."""
        of_case: dict[Case, list[Column]] = {}
        for column in columns:
            of_case.setdefault(column.series.case, []).append(column)
        result = {}
        for case, own in of_case.items():
            ran = [at for at in self.own if (self.trials[at].id, case.id) in self.under]
            result[case] = np.unique(np.concatenate([ran, *(one.at for one in own)])).astype(int)
        return result

    def _positive(self, columns: Sequence[Column]) -> list[Column]:
        """The series without the figures of 0 that must be above zero."""
        result = []
        for column in columns:
            if is_zero(column.series.unit, float(column.values.min())):
                good = column.values > 0
                self.zeros[column.series] = set(column.at[~good].tolist())
                if not good.any():
                    continue
                own = [
                    one for one, kept in zip(column.samples, good.tolist(), strict=False) if kept
                ]
                column = replace(
                    column, at=column.at[good], values=column.values[good], samples=own
                )
            result.append(column)
        return result

    def _lost(self, column: Column) -> Iterator[_Part]:
        """The changes after which a series has no figure, on nights on which its case was measured
        on its nodes.

        By Laplace's rule of succession, of n nights of which a had no figure, the next k have none
        with the chance that the product of (a + 1 + i) / (n + 2 + i) is, i from 0 to k - 1. Two
        nights are enough after 18 with figures. They must be more than ever before.
        """
        nights = self.nights[column.series.case]
        nights = nights[nights >= column.at[0]]
        if len(nights) == len(column.at):
            return
        has = np.isin(nights, column.at)
        has_place = self._has_place(column, nights) | has
        nights, has = nights[has_place], has[has_place]
        at = without = longest = 0
        for present, run in groupby(has.tolist()):
            length = len(list(run))
            if not present:
                chance, needed, limit = 1.0, 0, _P_LOST_AGAIN if without else _P_LOST
                while chance > limit and needed < length:
                    chance *= (without + 1 + needed) / (at + 2 + needed)
                    needed += 1
                needed = max(needed, longest + 1)
                if chance <= limit and needed <= length:
                    yield self._lost_from(column, nights, at, needed, length)
                without, longest = without + length, max(longest, length)
            at += length

    def _has_place(self, column: Column, nights: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the case had the nodes of the series on each night. One that ran on fewer nodes
        than planned may lack these."""
        case = column.series.case
        ends = set(self.names_of(column, "node"))
        known: dict[str, bool] = {}
        result = []
        for night in nights.tolist():
            text = self._at(case, night).get(NODES, "")
            if text not in known:
                nodes = set(text.split(", ")) - {""}
                known[text] = ends <= nodes or len(nodes) < case.nodes
            result.append(known[text])
        return np.array(result, dtype=bool)

    def names_of(self, column: Column, kind: Kind) -> tuple[str, ...]:
        return self.names[column].get(kind, ())

    def _lost_from(
        self, column: Column, nights: NDArray[np.int64], first: int, needed: int, length: int
    ) -> _Part:
        night, found = int(nights[first]), int(nights[first + needed - 1])
        own = nights[first : first + length].tolist()
        series = column.series
        cut = int(np.searchsorted(column.at, night))
        begin = max((p.steps[-1] for p in self.parts[column] if p.steps[-1] < cut), default=0)
        x, scale = self.scaled[column][0][begin:cut], self.scaled[column][1]
        half = levels.error(len(x), self._noise(column, begin, cut))
        key = (series.case, series.metric, series.location)
        units = [o.series.unit for o in self.units[key] if o is not column and night in o.at]
        zeros = self.zeros.get(series, set())
        lost: Lost = "unit" if units else "zero" if 2 * len(zeros & {*own}) > length else "missing"
        back = first + length
        change = Change(
            series, self.trials[int(nights[first - 1])], self.trials[night], self.trials[found],
            _level(float(np.median(x)), half, scale, len(x)), Level(0.0, 0.0, 0.0, length),
            0.0 if lost != "unit" else 1.0, 0.0, 0.0, False, back == len(nights),
            lost == "unit" or self._is_informative(series), lost,
            self.trials[int(nights[back])] if back < len(nights) else None,
            units[0] if units else "",
        )  # fmt: skip
        return _Part(change, column, night, found, night, night)

    def _waits_of(self, case: Case) -> Array:
        """How long a case waited for a processor in each trial, in per cent; NaN: not on record."""
        if case not in self.waited:
            own = self.waited[case] = np.full(len(self.trials), math.nan)
            for night in self.nights[case].tolist():
                own[night] = self.waits.get((self.trials[night].id, case.id), math.nan)
        return self.waited[case]

    def _parts(self, column: Column) -> Iterator[_Part]:
        x, scale = self.scaled[column]
        noise = levels.unknown_noise(scatter_of_repeats(column, scale))
        begin = 0
        waits = self._waits_of(column.series.case)[column.at]
        groups = levels.drifts(x, levels.lasting(x, noise, waits))
        for number, (moved, drifts) in enumerate(groups):
            shift = moved[0]
            end = groups[number + 1][0][0].at if number + 1 < len(groups) else len(x)
            noise = levels.noise_of(x[begin : shift.at], noise)
            parts = x[begin : shift.at], x[shift.at : end]
            found = self.trials[column.at[shift.found]]
            change, size = self._change(
                column, parts, shift.at, found, noise, drifts=drifts, lasts=end == len(x)
            )
            if column.at[moved[-1].high] >= self.begins.get(column.series, 0):
                yield _Part(
                    change, column, int(column.at[shift.at]), int(column.at[shift.found]),
                    int(column.at[shift.low - 1]) + 1, int(column.at[shift.high]),
                    tuple(one.at for one in moved), size,
                )  # fmt: skip
            begin = moved[-1].at

    def _change(
        self, column: Column, parts: tuple[Array, Array], at: int, found: KnownTrial,
        noise: levels.Noise, *, drifts: bool, lasts: bool, new_at: int | None = None,
    ) -> tuple[Change, float]:  # fmt: skip
        """A change from one level to another, and its size as the figures are scaled. ``at``: index
        of the first figure of the new level; ``new_at``: of the first one in ``parts``, if it is
        another."""
        old, new = parts
        scale = self.scaled[column][1]
        later = new[-NEW_LEVEL:] if drifts else new
        sizes = [float(np.median(part)) for part in (old, later)]
        errors = [levels.error(len(part), noise) for part in (old, later)]
        shown, error = sizes[1] - sizes[0], math.hypot(*errors)
        course = []
        for number in range(len(new)) if drifts else ():
            trial = self.trials[column.at[(at if new_at is None else new_at) + number]]
            if trial.started >= found.started:
                level = float(np.median(new[max(0, number + 1 - NEW_LEVEL) : number + 1]))
                course.append((trial, _ratio(level - sizes[0], scale)))
        change = Change(
            column.series, self.trials[column.at[at - 1]], self.trials[column.at[at]], found,
            _level(sizes[0], errors[0], scale, len(old)),
            _level(sizes[1], errors[1], scale, len(new)),
            _ratio(shown, scale), _ratio(shown - error, scale), _ratio(shown + error, scale),
            drifts, lasts, self._is_informative(column.series), course=tuple(course),
        )  # fmt: skip
        return change, shown

    def _is_informative(self, series: Series) -> bool:
        if not self.requirements:
            return False
        key = series.case, series.metric
        if key not in self.of_metric:
            self.of_metric[key] = self.requirements.of(*key)
        own, location = self.of_metric[key], series.location or None
        return own.is_informative(location) and not own.applying(location)

    # --- one night ---------------------------------------------------------------------

    def _made(self, parts: list[_Part], found: int) -> Iterator[_Made]:
        """Findings of changes that one night showed."""
        while parts:
            night = self._night(parts)
            own = [part for part in parts if part.can_be_of(night)]
            parts = [part for part in parts if not part.can_be_of(night)]
            while own:
                made = self._finding(night, found, own)
                taken = set(made.parts)
                own = [part for part in own if part not in taken]
                near = {part for part in parts if self._is_near(part, made)}
                made.parts += [part for part in parts if part in near]
                parts = [part for part in parts if part not in near]
                yield made

    def _night(self, parts: Sequence[_Part]) -> int:
        """The night of most changes; of several the one on which a version changed, or the
        likeliest."""
        likeliest = Counter(part.at for part in parts)

        def key(night: int) -> tuple[int, bool, int, int]:
            own = [part for part in parts if part.can_be_of(night)]
            cases = {part.column.series.case for part in own}
            versions = any(self._conditions(case, night) for case in cases)
            return len(own), versions, likeliest[night], -night

        return max({n for part in parts for n in range(part.low, part.high + 1)}, key=key)

    def _finding(self, night: int, found: int, parts: Sequence[_Part]) -> _Made:
        """The finding of as many changes of a night as have something in common."""
        cause = self._cause(night, found, parts) if parts else self._new_nodes(night)
        own = [part for part in parts if cause.fits(part.column)]
        finding = self._named(night, found, own[0].change.series.name if own else "swap")
        return _Made(night, found, finding, cause, own)

    def _named(self, night: int, found: int, key: str) -> Finding:
        """A finding without changes. ``key``: no other one of the night has it."""
        first = self.trials[night]
        digest = hashlib.sha256(f"{self.site} {first.name} {key}".encode(errors="replace"))
        return Finding(
            f"{first.started:%Y-%m-%d}-{digest.hexdigest()[:4]}", self.site,
            self._trial_before(night), first, self.trials[found], Scope(""), [], None, [], 0,
        )  # fmt: skip

    def _cause(self, night: int, found: int, parts: Sequence[_Part]) -> _Cause:
        """What most of the changes have in common, by what was known when ``found`` had run."""
        changed = {part.column for part in parts}
        compared = self._compared(night)
        versions = {name for one in changed for name in self._changed_for(one, night)}
        moved = set(changed)
        if len(changed) > 1 or len(versions) > 1:  # else the others decide nothing
            moved |= self._moved(compared, changed, night, found)
        place, of_place = self._place(compared, moved, changed)
        version, of_version = self._version(compared, moved, changed, night)
        kind, _ = self._explanation(compared, moved, _KINDS)
        common = self._common(compared, changed)
        causes = []  # the likeliest first
        if night in self.swaps:
            swap = self._new_nodes(night)
            known = [(one in moved, ("new",) if swap.fits(one) else ()) for one in compared]
            of_swap = _divided(known)[1]
            alone = not version and all(map(swap.fits, changed))
            if alone or (of_swap > of_version and of_swap >= of_place):
                causes.append(swap)
        if place and of_place > of_version:
            causes.append(_Cause("place", place, lambda one: self._includes(place, one)))
        if version:
            scope = self._scope(version, compared, night)
            causes.append(
                _Cause("version", scope, lambda one: version in self._changed_for(one, night))
            )
        if kind and len(moved) <= len(compared) / 2:
            causes.append(_Cause("kind", kind, lambda one: self._includes(kind, one)))
        causes.append(
            _Cause(
                "night", common,
                lambda one: common.kind == "site" or not self._changed_for(one, night),
            )
        )  # fmt: skip
        return next(
            one for one in causes
            if sum(map(one.fits, changed)) >= (2 if one.by in ("place", "kind") else 1)
        )  # fmt: skip

    def _trial_before(self, night: int) -> KnownTrial:
        return self.trials[self.own[bisect_left(self.own, night) - 1]]

    def _moved(
        self, compared: Sequence[Column], changed: set[Column], night: int, found: int
    ) -> set[Column]:
        """The series whose figures from ``night`` to ``found`` differ from those before by what no
        noise explains, and by half as much as those of the changes do."""
        differences = {one: self._difference(one, night, found) for one in compared}
        known = [abs(differences[one][0]) for one in changed
                 if math.isfinite(differences.get(one, _NONE)[1])]  # fmt: skip
        least = _MOVED_PART * statistics.median(known) if known else math.inf
        return {
            one for one, (size, error) in differences.items()
            if abs(size) >= max(least, _MOVED * error)
        }  # fmt: skip

    def _difference(self, column: Column, night: int, found: int) -> tuple[float, float]:
        """Of the medians from ``night`` to ``found`` and before, with its standard error, as a
        fraction. (0, infinite) if there are no figures."""
        begin = int(np.searchsorted(column.at, night))
        end = int(np.searchsorted(column.at, found, side="right"))
        first = max(0, begin - _AROUND)
        if not first < begin < end:
            return _NONE
        x, scale = _scaled(column.values[first:end])
        old, new = x[: begin - first], x[begin - first :]
        noise = levels.noise_of(old, levels.unknown_noise(scatter_of_repeats(column, scale)))
        error = noise.sigma * math.sqrt(1 / len(old) + 1 / len(new))
        return float(np.median(new) - np.median(old)), error

    def _changed_for(self, column: Column, night: int) -> list[Condition]:
        return self._conditions(column.series.case, night)

    def _causes_for(self, column: Column, night: int) -> list[Condition]:
        """Those that may be the cause. Other nodes are a cause only where they are: see _cause."""
        own = self._changed_for(column, night)
        return [one for one in own if one.name != NODES] if night in self.swaps else own

    def _version(
        self, compared: Sequence[Column], moved: set[Column], changed: set[Column], night: int
    ) -> tuple[Condition | None, float]:
        """The version, setting or set of nodes that explains what moved: the one that divides it
        best from what did not, or else the one that most of the changes had."""
        best, gain = _divided([(one in moved, self._causes_for(one, night)) for one in compared])
        counts = Counter(name for one in changed for name in self._causes_for(one, night))
        if best not in counts:
            every = Counter(name for one in compared for name in self._causes_for(one, night))
            best = max(counts, key=lambda one: (counts[one], -every[one], one.name), default=None)
            gain = 0.0
        return best, gain

    def _scope(self, condition: Condition, compared: Sequence[Column], night: int) -> Scope:
        """What the series whose case had a condition have in common, and the others lack. It is
        known from the conditions: how many of them moved says nothing of it."""
        having = {one for one in compared if condition in self._changed_for(one, night)}
        if len(having) == 1:
            return Scope("series", next(iter(having)).series.name)
        if len(having) == len(compared):
            return Scope("site")
        kinds = [*_OF_CASES]
        if condition.name.startswith(SETTING):
            kinds.sort(key=lambda kind: kind != "profile")
        for kind in kinds:
            names = {self.names[one][kind] for one in having}
            others = {self.names[one][kind] for one in compared if one not in having}
            if len(names) == 1 and not names & others and (name := next(iter(names))):
                return Scope(kind, name[0])
        return Scope("condition", condition.name)

    def _new_nodes(self, night: int) -> _Cause:
        new = self.swaps[night][1]

        def fits(column: Column) -> bool:
            if nodes := self.names[column].get("node", ()):
                return not set(nodes).isdisjoint(new)
            return any(one.name == NODES for one in self._changed_for(column, night))

        return _Cause("swap", Scope("node", new[0]) if len(new) == 1 else Scope(""), fits)

    def _common(self, compared: Sequence[Column], changed: set[Column]) -> Scope:
        """What all of the changes have in common."""
        if len(changed) == 1:
            return Scope("series", next(iter(changed)).series.name)
        if len(changed) > len(compared) / 2:
            return Scope("site")
        return self._explanation(compared, changed, _KINDS, whole=True)[0] or Scope("")

    def _several_nodes(self, compared: Sequence[Column], changed: set[Column]) -> set[str]:
        """At most half of the nodes, which have all that changed. The other series that are at
        one node or between two did not, and of each of these nodes most did. {}: none."""
        metrics = {one.series.metric for one in changed}
        nodes_of = {
            one: own for one in compared
            if one.series.metric in metrics and (own := self.names[one].get("node"))
        }  # fmt: skip
        every, hits = Counter[str](), Counter[str]()
        for one, own in nodes_of.items():
            every.update(own)
            hits.update(own if one in changed else ())
        nodes = {name for name in hits if hits[name] >= _OF_NODE * every[name]}
        if not 1 < len(nodes) <= len(every) / 2:
            return set()
        at = {one for one, own in nodes_of.items() if not nodes.isdisjoint(own)}
        return nodes if changed & nodes_of.keys() <= at else set()

    def _place(
        self, compared: Sequence[Column], moved: set[Column], changed: set[Column]
    ) -> tuple[Scope | None, float]:
        """The node or link that divides best what changed from what did not, and how well.

        Only metrics that moved count: another one, such as the rate of a full network, says nothing
        of the place of a longer delay. One series alone may have moved by chance."""
        metrics = Counter(one.series.metric for one in moved if one.series.location)
        own = {name for name, count in metrics.items() if count > 1}
        own |= {one.series.metric for one in changed}
        return self._explanation(
            [one for one in compared if one.series.metric in own], moved, _PLACES
        )

    def _explanation(
        self,
        compared: Sequence[Column],
        changed: set[Column],
        kinds: Iterable[Kind],
        whole: bool = False,
    ) -> tuple[Scope | None, float]:
        """The node, link, profile ... that divides best what changed from what did not, and how
        well. ``whole``: it has all that changed."""
        best, most = None, 0.0
        for kind in kinds:
            known = [(one in changed, self.names[one][kind]) for one in compared]
            name, gain = _divided(
                [(hit, names) for hit, names in known if names], len(changed) if whole else 0
            )
            if name is not None and gain > most:
                best, most = Scope(kind, name), gain
        return best, most

    def _compared(self, night: int) -> list[Column]:
        """The series that could have changed on a night."""
        return [
            one for one in self.columns
            if one.at[0] < night <= self.end[one] and self._is_here(one.series, night)
        ]  # fmt: skip

    def _is_here(self, series: Series, night: int) -> bool:
        """Whether the node of a series is not away, and a series in its place has begun."""
        gone, back = self.away.get(series, (night + 1, night + 1))
        return self.begins.get(series, night) <= night and not gone <= night < back

    def _includes(self, scope: Scope, column: Column) -> bool:
        names = self.names[column].get(scope.kind, ())
        if scope.kind == "node" and not names:  # the case as a whole: did it run on the node?
            case = column.series.case
            return scope.name in self._nodes(case, int(self.nights[case][-1]))
        return scope.kind == "site" or scope.name in names

    def _names(self, column: Column) -> dict[Kind, tuple[str, ...]]:
        """Kind of scope -> what the series belongs to."""
        case, location = column.series.case, column.series.location
        ends = self.locations.ends(location) if location else ()
        return {
            "node": ends or ((location,) if location else ()),
            "link": ("-".join(sorted(ends)),) if ends else (),
            "network": (case.network,) if case.network else (),
            "profile": (case.profile,), "transport": (case.transport,), "check": (case.check,),
            "case": (case.id,), "metric": (column.series.metric,),
        }  # fmt: skip

    # --- versions and nodes ------------------------------------------------------------

    def _at(self, case: Case, position: int) -> dict[str, str]:
        return self.under.get((self.trials[position].id, case.id), {})

    def _conditions(self, case: Case, night: int) -> list[Condition]:
        """What changed with a night (``_has_changed``)."""
        if (case, night) not in self.known:
            self.known[case, night] = self._compare_conditions(case, night)
        return self.known[case, night]

    def _compare_conditions(self, case: Case, night: int) -> list[Condition]:
        nights = self.nights[case]
        cut = int(np.searchsorted(nights, night))
        sides = [
            [self._at(case, int(at)) for at in part]
            for part in (nights[max(0, cut - _AROUND) : cut], nights[cut : cut + _AROUND])
        ]
        if not all(sides) or sides[0][-1] == sides[1][0]:
            return []
        result = []
        for name in sorted({*sides[0][-1], *sides[1][0]}):
            old, new = ([one.get(name, "none") for one in side] for side in sides)
            if _has_changed(old, new):
                result.append(Condition(name, old[-1], new[0]))
        return result

    def _nodes(self, case: Case, position: int) -> set[str]:
        return set(self._at(case, position).get(NODES, "").split(", ")) - {""}

    def _swapped(self) -> dict[int, tuple[list[str], list[str]]]:
        """Night -> nodes that a case ran on until then, and the new ones in their place."""
        nodes = {
            case: {night: self._nodes(case, night) for night in nights.tolist()}
            for case, nights in self.nights.items()
        }  # fmt: skip
        at_night: dict[int, set[str]] = {}
        for own in nodes.values():
            for night, names in own.items():
                at_night.setdefault(night, set()).update(names)
        begin: dict[str, int] = {}
        for night in sorted(at_night):
            for node in at_night[night]:
                begin.setdefault(node, night)
        result: dict[int, tuple[set[str], set[str]]] = {}
        returned: dict[int, list[tuple[set[str], set[str]]]] = {}
        for of_case in nodes.values():
            nights = sorted(of_case)
            for at, night in enumerate(nights[_STEADY:], _STEADY):
                before, now = of_case[nights[at - 1]], of_case[night]
                gone, new = before - now, now - before
                steady = all(of_case[nights[at - back]] == before for back in range(2, _STEADY + 1))
                if not steady or not new or len(gone) != len(new) or gone & at_night[night]:
                    continue
                if all(begin[node] == night for node in new):
                    sides = result.setdefault(night, (set(), set()))
                    sides[0].update(gone)
                    sides[1].update(new)
                else:
                    returned.setdefault(night, []).append((gone, new))
        for night, swaps in sorted(returned.items()):
            last = self._number(night) - _AROUND
            known = [own for at, own in result.items() if self._number(at) <= last]
            for there, back in swaps:
                if night not in result and (back, there) in known:
                    result[night] = there, back
        return {night: (sorted(gone), sorted(new)) for night, (gone, new) in sorted(result.items())}

    def _returns(self, night: int) -> bool:
        """Whether the nodes of a swap had left with an earlier one."""
        gone, new = self.swaps[night]
        return any(at < night and own == (new, gone) for at, own in self.swaps.items())

    def _continue(self, columns: Sequence[Column], night: int, gone: str, new: str) -> list[Column]:
        """Each series of a node, continued by that of the node in its place. A node that returns
        later has its own series, too: what was said of the other node stays."""
        by_key = {(one.series.case, one.series.metric, one.series.location): one for one in columns}
        result = []
        followed = set()
        for column in columns:
            own = column.series
            names = self.locations.renamed(own.location, {gone: new}) if own.location else []
            known = (by_key.get((own.case, own.metric, name)) for name in names)
            later = next((one for one in known if one and one.at[0] >= night), None)
            cut = int(np.searchsorted(column.at, night))
            if later and cut:
                followed.add(later)
                self.continued[own] = later.series
                if own in self.begins:
                    self.begins[later.series] = self.begins[own]
                if cut < len(column.at):
                    result.append(column)
                    self.begins[later.series] = night
                    self.away[own] = night, int(column.at[cut])
                column = replace(
                    later, at=np.r_[column.at[:cut], later.at], samples=column.samples,
                    values=np.r_[column.values[:cut], later.values],
                )  # fmt: skip
            result.append(column)
        return [one for one in result if one not in followed]


def _either(one: _Cause, other: _Cause) -> _Cause:
    """Two causes of the same place, for the series of both."""
    return replace(one, fits=lambda column: one.fits(column) or other.fits(column))


_NONE = (0.0, math.inf)  # no difference is known


def _has_changed(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether a version is another one from a night on, by its values on the nights before and
    since: they have none in common, or else it is one that was taken back later, or is taken back.

    That one is the same for ``_KEPT`` nights before and since, as far as there are as many, and as
    long on average: a value that differs every few nights, such as the nodes of an allocation, says
    nothing of a night.
    """
    if not set(old) & set(new):
        return True
    kept = [len(list(next(groupby(side))[1])) for side in (old[::-1], new)]
    values = len(list(groupby([*old, *new])))
    return (
        old[-1] != new[0]
        and all(n >= min(_KEPT, len(side)) for n, side in zip(kept, (old, new), strict=True))
        and len(old) + len(new) >= _KEPT * values
    )


def _scaled(values: Array) -> tuple[Array, float]:
    """Logarithms, with 0; or figures that can be zero in units of a typical one."""
    if (values > 0).all():
        return np.log(values), 0.0
    scale = float(np.median(np.abs(values[values != 0]))) if values.any() else 1.0
    return levels.in_units(values, scale), scale


def _figure(size: float, scale: float) -> float:
    return size * scale if scale else math.exp(min(size, _LARGEST))


def _level(size: float, error: float, scale: float, nights: int) -> Level:
    return Level(
        _figure(size, scale), _figure(size - error, scale), _figure(size + error, scale), nights
    )


def _ratio(difference: float, scale: float) -> float:
    return 1 + difference if scale else math.exp(min(difference, _LARGEST))


def scatter_of_repeats(column: Column, scale: float) -> float:
    """Median spread of the repeats within the first nights, scaled as the figures."""
    spreads = []
    for own in column.samples[:_SAMPLED]:
        if len(own) > 1 and (scale or min(own) > 0):
            scaled = [one / scale for one in own] if scale else [math.log(one) for one in own]
            spreads.append(statistics.spread(scaled) or 0.0)
    return statistics.median(spreads) if spreads else 0.0


def _divided(
    known: Sequence[tuple[bool, Sequence[_Name]]], least: int = 0
) -> tuple[_Name | None, float]:
    """The name that divides best hits from others, and the logarithm of the likelihood ratio of two
    rates of hits, within and without, to one. (None, 0): none divides them well enough.

    ``known``: whether it is a hit, and its names. ``least``: hits that the name must have.
    """
    total, hits = Counter[_Name](), Counter[_Name]()
    for hit, names in known:
        total.update(names)
        hits.update(names if hit else ())
    every, all_hits = len(known), sum(hit for hit, _ in known)
    best, most = None, GAIN
    for name, own in sorted(hits.items(), key=lambda item: str(item[0])):
        rest, others = every - total[name], all_hits - own
        gain = (likelihood(own, total[name]) + likelihood(others, rest)
                - likelihood(all_hits, every))  # fmt: skip
        if own >= max(least, 2) and own * rest > others * total[name] and gain > most:
            best, most = name, gain
    return best, most if best is not None else 0.0
