"""The figures of one site by night, and what is known of each series: all that findings are from.

Nothing changes a table once it is made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seatrial.history.conditions import NODES
from seatrial.history.entry import is_zero
from seatrial.history.findings.changed_conditions import Conditions, Under
from seatrial.history.findings.record import Condition, Kind, Scope
from seatrial.history.findings.scale import Scaled, scaled
from seatrial.history.findings.swaps import Continued, Swaps, continued, find_swaps
from seatrial.history.series import Column, KnownTrial, Series
from seatrial.results.locations import Locations
from seatrial.results.record import Case
from seatrial.results.requirements import MetricRequirements, Requirements

#: number of a trial and case -> how long the case waited for a processor, in per cent
Waits = Mapping[tuple[int, str], float]


class Informative:
    """The series that the requirements of a site call informative, and that no one judges."""

    def __init__(self, requirements: Requirements | None):
        self._requirements = requirements
        self._of_metric: dict[tuple[Case, str], MetricRequirements] = {}

    def __contains__(self, series: Series) -> bool:
        if not self._requirements:
            return False
        key = series.case, series.metric
        if key not in self._of_metric:
            self._of_metric[key] = self._requirements.of(*key)
        rules, location = self._of_metric[key], series.location or None
        return rules.is_informative(location) and not rules.applying(location)


@dataclass(frozen=True)
class SiteTable:
    """The series of one site, those of swapped nodes continued, without zeros that must not be."""

    site: str
    trials: Sequence[KnownTrial]  # of all sites: a night is a position here
    own: Sequence[int]  # the nights of the site
    nights: Mapping[Case, NDArray[np.int64]]  # on which each case ran, also without a figure
    conditions: Conditions
    swaps: Swaps
    series: Continued
    zeros: Mapping[Series, set[int]]  # nights with a figure of 0 that must be above
    scaled: Mapping[Column, Scaled]
    names: Mapping[Column, Mapping[Kind, tuple[str, ...]]]  # what each series belongs to
    locations: Locations
    waits: Waits
    informative: Informative

    @property
    def columns(self) -> list[Column]:
        return self.series.columns

    def number(self, night: int) -> int:
        """Of a night among those of the site."""
        return bisect_left(self.own, night)

    def trial_before(self, night: int) -> KnownTrial:
        return self.trials[self.own[self.number(night) - 1]]

    def changed_for(self, column: Column, night: int) -> list[Condition]:
        """What of the case of a series changed with a night."""
        return self.conditions.changed(column.series.case, night)

    def possible_causes(self, column: Column, night: int) -> list[Condition]:
        """Of these, what may be the cause. Nodes that were swapped are a cause only where they
        are, which the conditions do not say."""
        changed = self.changed_for(column, night)
        return (
            [condition for condition in changed if condition.name != NODES]
            if night in self.swaps
            else changed
        )

    def includes(self, scope: Scope, column: Column) -> bool:
        """Whether a series belongs to what a scope names."""
        names = self.names[column].get(scope.kind, ())
        if scope.kind == "node" and not names:  # the case as a whole: did it run on the node?
            case = column.series.case
            return scope.name in self.conditions.nodes(case, int(self.nights[case][-1]))
        return scope.kind == "site" or scope.name in names


def site_table(
    site: str, trials: Sequence[KnownTrial], under: Under, columns: Sequence[Column],
    requirements: Requirements | None, waits: Waits,
) -> SiteTable:  # fmt: skip
    """The table of a site from the columns of its series."""
    of_site = [at for at, trial in enumerate(trials) if trial.site == site]
    nights = _nights(columns, trials, of_site, under)
    conditions = Conditions(trials, under, nights)
    positive, zeros = _positive(columns)
    swaps = find_swaps(conditions, nights, of_site)
    nodes = {name for sides in swaps.values() for side in sides for name in side}
    for case, of_case in nights.items():
        nodes |= conditions.nodes(case, int(of_case[-1]))
    locations = Locations([], nodes)
    series = continued(positive, swaps, locations)
    return SiteTable(
        site, trials, of_site, nights, conditions, swaps, series, zeros,
        {column: scaled(column.values) for column in series.columns},
        {column: _names(column.series, locations) for column in series.columns},
        locations, waits, Informative(requirements),
    )  # fmt: skip


def _nights(
    columns: Sequence[Column], trials: Sequence[KnownTrial], of_site: Sequence[int], under: Under
) -> dict[Case, NDArray[np.int64]]:
    """The nights on which each case ran, also those on which it has no figure."""
    of_case: dict[Case, list[Column]] = {}
    for column in columns:
        of_case.setdefault(column.series.case, []).append(column)
    result = {}
    for case, several in of_case.items():
        ran = [at for at in of_site if (trials[at].id, case.id) in under]
        result[case] = np.unique(np.concatenate([ran, *(column.at for column in several)])).astype(
            int
        )
    return result


def _positive(columns: Sequence[Column]) -> tuple[list[Column], dict[Series, set[int]]]:
    """The series without the figures of 0 that must be above zero, and the nights of these."""
    result = []
    zeros: dict[Series, set[int]] = {}
    for column in columns:
        if is_zero(column.series.unit, float(column.values.min())):
            good = column.values > 0
            zeros[column.series] = set(column.at[~good].tolist())
            if not good.any():
                continue
            samples = [
                sample for sample, kept in zip(column.samples, good.tolist(), strict=False) if kept
            ]
            column = replace(
                column, at=column.at[good], values=column.values[good], samples=samples
            )
        result.append(column)
    return result, zeros


def _names(series: Series, locations: Locations) -> dict[Kind, tuple[str, ...]]:
    """Kind of scope -> what the series belongs to."""
    case, location = series.case, series.location
    ends = locations.ends(location) if location else ()
    return {
        "node": ends or ((location,) if location else ()),
        "link": ("-".join(sorted(ends)),) if ends else (),
        "network": (case.network,) if case.network else (),
        "profile": (case.profile,), "transport": (case.transport,), "check": (case.check,),
        "case": (case.id,), "metric": (series.metric,),
    }  # fmt: skip
