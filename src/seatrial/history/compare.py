"""Compares two groups of trials: each series, and what else differed between them.

A group's unit is the trial, by its median: the repeats of one night share its weather. Two single
trials are compared by their repeats, which cannot show how much nights differ.

**Test.** The trials are dealt again to the two groups, all series of a trial together, in each way
or in 1,999 drawn ones. The p-value of a series is the part of these in which any series differs by
more, in units of its own scatter, than this one does in truth. That is the maxT method of P. H.
Westfall and S. S. Young, Resampling-Based Multiple Testing (Wiley 1993): it assumes no
distribution, keeps the dependence of the series of a night, and is corrected for the number of
series. Tests of ranks are not used: of few samples the best rank is reached by chance in one of
some hundred series.

**Statistic.** The difference of the means of the logarithms, over its standard error plus the
median scatter of all series, which keeps a series whose few figures happen to agree from leading
(V. G. Tusher et al., PNAS 98 (2001) 5116). Values far from the median of both groups count as at
``_CLIP`` robust deviations, whichever group they are in.

**Ratio.** The Hodges-Lehmann estimate, the median of all ratios of a figure of B to one of A, with
the interval of its order statistics (M. Hollander and D. A. Wolfe, Nonparametric Statistical
Methods, 1999, 4.2 and 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from seatrial.base.errors import InputError
from seatrial.history.groups import condition_of, known_conditions, trials_of
from seatrial.history.index import Index, KnownTrial, Point, Series
from seatrial.results import statistics
from seatrial.results.wording import plural

MARGIN = 0.02  # a difference that is surely smaller is none
LEVEL = 0.05  # of the corrected p-values, and 1 - that of the intervals
MOST = 100  # newest trials of a group that count: more cost time and say no more
DRAWN = 1999
_CLIP = 5.0
_LEAST_SCATTER = 1e-3  # fraction of the figure
_AT_ONCE = 1000  # series: of a million, all deals at once would take gigabytes
_EXACT = 400  # pairs of figures up to which the distribution of ranks is counted

Word = Literal["worse", "better", "can't tell", "same"]
WORDS: tuple[Word, ...] = ("worse", "better", "can't tell", "same")
_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """One side of a comparison."""

    text: str  # as the user wrote it
    trials: list[KnownTrial]
    left_out: int = 0  # older trials beyond ``MOST``


@dataclass(frozen=True)
class Row:
    """The comparison of one series."""

    series: Series
    a: list[float]
    b: list[float]
    ratio: float  # of B to A. Of figures that can be zero: 1 + difference / typical size
    low: float | None  # 95 % interval of the ratio; None: too few figures for one
    high: float | None
    noise: float | None  # scatter within the groups, as a fraction; None: unknown
    p: float  # corrected for the number of series
    verdict: Word

    @property
    def gain(self) -> float:
        """Logarithm of the ratio, above zero if B is better."""
        change = math.log(self.ratio) if self.ratio > 0 else self.ratio - 1
        return change if self.series.better == "higher" else -change


@dataclass(frozen=True)
class Difference:
    """A condition whose values differ between the groups."""

    name: str
    a: list[str]
    b: list[str]
    chosen: bool  # the groups were chosen by it


@dataclass
class Comparison:
    a: Group
    b: Group
    by_repeats: bool  # two single trials
    rows: list[Row] = field(default_factory=list)  # worst first
    differences: list[Difference] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)  # series of one group alone, by name
    only_b: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[Word, int]:
        return {word: sum(row.verdict == word for row in self.rows) for word in WORDS}

    @property
    def notes(self) -> list[str]:
        """What limits the conclusions, in sentences."""
        notes = []
        if self.by_repeats:
            notes.append(
                "each group is one trial: its repeats do not show how much nights differ, so a "
                "difference may be the night's"
            )
        for group in (self.a, self.b):
            if group.left_out:
                notes.append(f"{group.text}: the newest {MOST} trials count, "
                             f"{group.left_out} older ones do not")  # fmt: skip
            planted = [one.folder.name for one in group.trials if one.notes]
            if planted:
                notes.append(f"{group.text}: {plural(len(planted), 'trial')} with a planted fault "
                             f"or a wrong clock, such as {planted[0]}")  # fmt: skip
        sizes = [len(row.a) + len(row.b) for row in self.rows]
        if sizes and (least := _least_p(self.rows)) > LEVEL:
            notes.append(f"so few figures cannot show a difference: the least possible p-value is "
                         f"{least:.2g}, and {LEVEL} is needed; compare more trials")  # fmt: skip
        return notes


def compare(
    index: Index,
    a: str,
    b: str,
    margin: float = MARGIN,
    patterns: dict[str, list[str]] | None = None,
) -> Comparison:
    """Compare two groups of trials, of texts as in ``seatrial.history.groups``.

    ``patterns`` selects series, as in ``Index.series``. Raises InputError if a group is empty, if
    a trial is in both, or if the groups have no series in common.
    """
    figures = [_Side(index, text) for text in (a, b)]
    groups = [side.group() for side in figures]
    both = {key for key in figures[0].cases if key in figures[1].cases}
    if both:
        number = min(both)[0]
        name = next(one.folder.name for one in groups[0].trials if one.id == number)
        raise InputError(f"{name} is in both groups, {a} and {b}")
    wanted = {(s.site, s.name): s for s in index.series(**(patterns or {}))}
    points = [side.points(wanted) for side in figures]
    common = [key for key in wanted if points[0].get(key) and points[1].get(key)]
    if not common:
        raise InputError(f"{a} and {b} have no series in common: 'seatrial history' shows them")
    single = all(len(group.trials) == 1 for group in groups)
    result = Comparison(groups[0], groups[1], single)
    result.only_a = [wanted[key].name for key in points[0] if key not in points[1]]
    result.only_b = [wanted[key].name for key in points[1] if key not in points[0]]
    result.differences = _differences(points, common, (a, b))
    columns = [_columns([points[i][key] for key in common], single) for i in (0, 1)]
    result.rows = rows_of([wanted[key] for key in common], columns[0], columns[1], margin)
    return result


class _Side:
    """The trials and cases that one text selects."""

    def __init__(self, index: Index, text: str):
        self.index, self.text = index, text
        known = index.trials()
        if not known:
            raise InputError(f"{index.trials_folder} has no trial that can be read")
        self.condition = condition_of(text)
        under = index.conditions()
        if self.condition:
            self.cases = {key for key, own in under.items() if self.condition.matches(own)}
            if not self.cases:
                values = known_conditions(under.values(), self.condition.name)
                hint = f"known values: {', '.join(values)}" if values else "no case has it"
                raise InputError(f"{text}: no case had this condition ({hint})")
            numbers = {trial for trial, _ in self.cases}
            chosen = [one for one in known if one.id in numbers]
        else:
            chosen = trials_of(text, known)
        self.trials = chosen[-MOST:]
        self.left_out = len(chosen) - len(self.trials)
        numbers = {one.id for one in self.trials}
        if not self.condition:
            self.cases = {key for key in under if key[0] in numbers}
        self.cases = {key for key in self.cases if key[0] in numbers}

    def group(self) -> Group:
        return Group(self.text, self.trials, self.left_out)

    def points(self, wanted: dict[tuple[str, str], Series]) -> dict[tuple[str, str], list[Point]]:
        """The points of each wanted series, in the order of the trials."""
        result: dict[tuple[str, str], list[Point]] = {}
        for key, case, point in self.index.points_of(self.trials):
            if key in wanted and (not self.condition or (point.trial.id, case) in self.cases):
                result.setdefault(key, []).append(point)
        return result


def _columns(of_series: Sequence[Sequence[Point]], by_repeats: bool) -> _Array:
    """The figures of a group: a row for each series, a column for each trial or repeat."""
    if by_repeats:
        values = [point.samples for (point,) in of_series]
        table = np.full((len(values), max(map(len, values))), np.nan)
        for row, own in enumerate(values):
            table[row, : len(own)] = own
        return table
    numbers = sorted({(p.trial.started, p.trial.id) for own in of_series for p in own})
    column = {number: at for at, (_, number) in enumerate(numbers)}
    table = np.full((len(of_series), len(column)), np.nan)
    for row, points in enumerate(of_series):
        for point in points:
            table[row, column[point.trial.id]] = point.value
    return table


def rows_of(series: Sequence[Series], a: _Array, b: _Array, margin: float = MARGIN) -> list[Row]:
    """Compare figures: a row for each series, a column for each trial, NaN where it has none.

    Returns the rows worst first: worse by the size of the loss, better by that of the gain, then
    the others by their size.
    """
    scaled = np.concatenate([a, b], axis=1)
    scales = np.ones(len(scaled))
    for row, values in enumerate(scaled):
        own = values[~np.isnan(values)]
        if (own > 0).all():
            scaled[row] = np.log(values)
        else:
            scales[row] = np.median(np.abs(own)) or 1.0
            scaled[row] = values / scales[row]
    first = a.shape[1]
    p_values = corrected_p(scaled, first)
    rows = []
    for one, own, p, raw_a, raw_b in zip(series, scaled, p_values, a, b, strict=True):
        left, right = (part[~np.isnan(part)] for part in (own[:first], own[first:]))
        values_a, values_b = (part[~np.isnan(part)].tolist() for part in (raw_a, raw_b))
        logs = min(values_a + values_b) > 0
        shift, low, high = hodges_lehmann(left, right)
        ratio, bottom, top = (
            None if x is None else math.exp(x) if logs else 1 + x for x in (shift, low, high)
        )
        assert ratio is not None
        noise = _noise(left, right)
        verdict = _verdict(one, shift, low, high, float(p), margin)
        rows.append(Row(one, values_a, values_b, ratio, bottom, top, noise, float(p), verdict))
    return sorted(rows, key=lambda row: (WORDS.index(row.verdict), -abs(row.gain), row.series.name))


def _verdict(
    series: Series, shift: float, low: float | None, high: float | None, p: float, margin: float
) -> Word:
    edge = math.log1p(margin)
    if low is not None and high is not None and -edge <= low and high <= edge:
        return "same"
    if p <= LEVEL and abs(shift) > 0:
        return "better" if (shift > 0) == (series.better == "higher") else "worse"
    return "can't tell"


def _noise(a: _Array, b: _Array) -> float | None:
    """Robust standard deviation within the groups: of the values less their group's median."""
    parts = [part - np.median(part) for part in (a, b) if len(part) > 1]
    spreads = [statistics.spread(part.tolist()) or 0.0 for part in parts]
    return max(spreads) if spreads else None


def corrected_p(values: _Array, first: int) -> _Array:
    """P-value of each series, corrected for their number (see the module).

    ``values``: series x figures, the first ``first`` columns of A; NaN where there is none.
    """
    centre = np.nanmedian(values, axis=1, keepdims=True)
    deviation = statistics.MAD_TO_SIGMA * np.nanmedian(
        np.abs(values - centre), axis=1, keepdims=True
    )
    edge = _CLIP * np.maximum(deviation, _LEAST_SCATTER)
    clipped = np.clip(values - centre, -edge, edge)
    present = ~np.isnan(clipped)
    filled = np.where(present, clipped, 0.0)
    deals = _deals(values.shape[1], first)
    weight = present.astype(float)
    _, scatter = _differences_of_means(filled, weight, deals[:, :1])
    usual = max(float(np.median(scatter)), _LEAST_SCATTER)
    true = np.empty(len(values))
    greatest = np.zeros(deals.shape[1])
    for at in range(0, len(values), _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        difference, scatter = _differences_of_means(filled[part], weight[part], deals)
        size = np.abs(difference / (scatter + usual))
        greatest = np.maximum(greatest, size.max(axis=0))
        true[part] = size[:, 0]
    # Rounding must not make a deal that is the true one, mirrored, differ from it.
    least = true * (1 - statistics.ROUNDING)
    result: _Array = 1 - np.searchsorted(np.sort(greatest), least, side="left") / len(greatest)
    return result


def _deals(count: int, first: int) -> _Array:
    """Figures x deals: 1 where a figure is dealt to A. The first column is the true deal."""
    if math.comb(count, first) <= DRAWN + 1:
        chosen = list(combinations(range(count), first))
        deals = np.zeros((count, len(chosen)))
        for column, own in enumerate(chosen):
            deals[list(own), column] = 1
        return deals
    draw = np.random.default_rng(count * 1000 + first)  # the same answer each time
    deals = np.zeros((count, DRAWN + 1))
    deals[:first, 0] = 1
    deals[:first, 1:] = 1
    deals[:, 1:] = draw.permuted(deals[:, 1:], axis=0)
    return deals


def _differences_of_means(values: _Array, present: _Array, deals: _Array) -> tuple[_Array, _Array]:
    """Series x deals: the difference of the means in units of 1 / sqrt(1 / n_a + 1 / n_b), and the
    standard deviation within the groups. 0 where a group is empty."""
    total, squares = values.sum(axis=1, keepdims=True), (values**2).sum(axis=1, keepdims=True)
    count = present.sum(axis=1, keepdims=True)
    in_a, sum_a = present @ deals, values @ deals
    in_b, sum_b = count - in_a, total - sum_a
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_a, mean_b = sum_a / in_a, sum_b / in_b
        difference = (mean_b - mean_a) / np.sqrt(1 / in_a + 1 / in_b)
        within = squares - in_a * mean_a**2 - in_b * mean_b**2
    empty = (in_a == 0) | (in_b == 0)
    within = np.where(empty, 0.0, np.maximum(within, 0.0))
    scatter = np.sqrt(within / np.maximum(count - 2, 1))
    return np.where(empty, 0.0, difference), scatter


def hodges_lehmann(a: _Array, b: _Array) -> tuple[float, float | None, float | None]:
    """The shift from ``a`` to ``b``, and its interval; None if there are too few for ``LEVEL``."""
    shifts = np.sort(np.subtract.outer(b, a).ravel())
    skip = _ranks_beyond(len(a), len(b))
    if skip is None:
        return float(np.median(shifts)), None, None
    return float(np.median(shifts)), float(shifts[skip]), float(shifts[-1 - skip])


def _ranks_beyond(a: int, b: int) -> int | None:
    """How many of the sorted shifts lie below the interval: the greatest k for which the rank sum
    statistic of Mann and Whitney is below k + 1 with a probability of at most ``LEVEL`` / 2."""
    pairs = a * b
    if pairs <= _EXACT:
        ways = np.ones(1)  # coefficients of the Gaussian binomial: ways to reach each sum
        for i in range(1, a + 1):
            ways = np.convolve(ways, np.r_[1.0, np.zeros(b + i - 1), -1.0])
            for at in range(i, len(ways)):
                ways[at] += ways[at - i]
            ways = ways[: i * b + 1]
        below = np.cumsum(ways) / ways.sum()
        return (
            int(np.searchsorted(below, LEVEL / 2, side="right")) - 1
            if (below[0] <= LEVEL / 2)
            else None
        )
    sigma = math.sqrt(pairs * (a + b + 1) / 12)
    return max(0, math.floor(pairs / 2 - stats.norm.ppf(1 - LEVEL / 2) * sigma) - 1)


def _least_p(rows: Sequence[Row]) -> float:
    """The least p-value that the test can give for the numbers of figures."""
    a, b = max(len(row.a) for row in rows), max(len(row.b) for row in rows)
    ways = math.comb(a + b, a)
    return (2 if a == b else 1) / min(ways, DRAWN + 1)


def _differences(
    points: Sequence[dict[tuple[str, str], list[Point]]],
    common: Sequence[tuple[str, str]],
    texts: Sequence[str],
) -> list[Difference]:
    """The conditions of the compared series whose values are not the same in both groups."""
    values: list[dict[str, set[str]]] = [{}, {}]
    for side, own in zip(values, points, strict=True):
        for key in common:
            for point in own[key]:
                for name, value in point.conditions.items():
                    side.setdefault(name, set()).add(value)
    chosen = [one for text in texts if (one := condition_of(text))]
    result = []
    for name in sorted({*values[0], *values[1]}):
        a, b = (sorted(side.get(name, set())) for side in values)
        if a != b:
            result.append(Difference(name, a, b, any(one.is_of(name) for one in chosen)))
    return result
