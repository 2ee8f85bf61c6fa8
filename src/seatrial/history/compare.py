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

**Statistic.** The difference of the means of the logarithms over its standard error, from the
scatter of the series within the groups. A scatter below the median of all series counts as that
median, but as at most what sampling explains (``_SAMPLING``): this keeps a series whose few figures
happen to agree from leading (V. G. Tusher et al., PNAS 98 (2001) 5116), and leaves a series of
little noise its own scatter. The scatter is at least that of the rounding of the series' figures.
Outliers count as at an edge (``_clipped``). The edge and the rounding depend on the sizes of the
groups but not on the deal, and the median is that of the same deal, so that the statistic of each
deal is computed in the same way, which the validity of the test needs.

**Ratio.** The median of all ratios of a figure of B to one of A, with the interval by ranks
(``seatrial.analysis.ranks``).

**Zeros.** A figure of 0 that must be above zero (``is_zero``) is no small figure but a failure, in
both directions of better. For the test it counts as ``_FAILED`` times worse than the worst of the
others, and the ratio is that of the medians. A series of which all figures of one group and none of
the other are such zeros has a verdict without a test; if their fractions differ, it is not "same".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.analysis.ranks import hodges_lehmann
from seatrial.base import globs
from seatrial.base.errors import InputError
from seatrial.history import places
from seatrial.history.conditions import NODES, is_of_case, value_in
from seatrial.history.entry import is_zero
from seatrial.history.groups import Condition, condition_of, known_conditions, trials_of
from seatrial.history.index import Index
from seatrial.history.levels import in_units
from seatrial.history.series import UNPROVEN, KnownTrial, Point, Series, SeriesKey
from seatrial.results import later, statistics
from seatrial.results.locations import Locations
from seatrial.results.wording import plural, some

MARGIN = 0.02  # a difference that is surely smaller is none
LEVEL = 0.05  # of the corrected p-values, and 1 - that of the intervals
MOST = 100  # newest trials of a group that count: more cost time and say no more
DRAWN = 1999
_CLIP = 5.0  # robust deviations
_SAMPLING = 2.5  # standard errors of the logarithm of a scatter
_FAILED = 10.0  # a choice: more than a series scatters, so that a zero is the worst figure
_AT_ONCE = 1000  # series: of a million, all deals at once would take gigabytes

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
    #: of B to A. Of figures that can be zero: 1 + difference / typical size; with zeros that must
    #: not be: of the medians, infinite if that of A is 0
    ratio: float
    low: float | None  # 95 % interval of the ratio; None: too few figures for one
    high: float | None
    noise: float | None  # scatter within the groups, as a fraction; None: unknown
    p: float  # corrected for the number of series
    verdict: Word

    @property
    def zeros(self) -> tuple[int, int]:
        """How many figures of A and of B are 0 and must be above it."""
        unit = self.series.unit
        return sum(is_zero(unit, x) for x in self.a), sum(is_zero(unit, x) for x in self.b)

    @property
    def gain(self) -> float:
        """Logarithm of the ratio, above zero if B is better; infinite if one group has failed."""
        if any(self.zeros) and self.verdict in ("worse", "better"):
            return math.inf if self.verdict == "better" else -math.inf
        change = math.log(self.ratio) if self.ratio > 0 else self.ratio - 1
        return change if self.series.better == "higher" else -change


@dataclass(frozen=True)
class Difference:
    """A condition whose values differ between the groups."""

    name: str
    a: dict[str, int]  # value -> trials of the group with it, most first; of ``cases`` alone
    b: dict[str, int]
    cases: list[str]  # in which it differs
    chosen: bool  # the groups were chosen by it


@dataclass
class Comparison:
    a: Group
    b: Group
    by_repeats: bool  # two single trials
    cases: int = 0  # with a series in both groups
    rows: list[Row] = field(default_factory=list)  # worst first
    differences: list[Difference] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)  # series of one group alone, by name
    only_b: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # those of A whose case has other figures in B
    places: str = ""  # that nodes were replaced or exchanged, in a sentence
    units: list[str] = field(default_factory=list)  # sentences on series with another unit in each

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
            planted = [trial.folder.name for trial in group.trials if trial.notes]
            if planted:
                notes.append(f"{group.text}: {plural(len(planted), 'trial')} with a planted fault "
                             f"or a wrong clock, such as {planted[0]}")  # fmt: skip
            unproven = [trial.folder.name for trial in group.trials if not trial.proven]
            if unproven:
                notes.append(f"{group.text}: {plural(len(unproven), 'trial')} with {UNPROVEN}, "
                             f"such as {unproven[0]}: {later.UNPROVEN}")  # fmt: skip
        if self.lost:
            notes.append(f"no figure any more in {self.b.text}, though its case ran there: "
                         f"{some(self.lost, '; ')}")  # fmt: skip
        if self.units:
            notes.append(f"not compared, because the unit differs: {some(self.units, '; ')}")
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
    known, under = index.trials(), index.conditions()
    if not known:
        raise InputError(f"{index.trials_folder} has no trial that can be read")
    figures = [_Side(index, text, known, under) for text in (a, b)]
    groups = [side.group() for side in figures]
    both = {key for key in figures[0].cases if key in figures[1].cases}
    if both:
        number = min(both)[0]
        name = next(trial.folder.name for trial in groups[0].trials if trial.id == number)
        raise InputError(f"{name} is in both groups, {a} and {b}")
    wanted = {series.key: series for series in index.series(**(patterns or {}))}
    points = [side.points(wanted) for side in figures]
    of_sides = [side.nodes(under) for side in figures]
    nodes = {node for by_site in of_sides for several in by_site.values() for nodes_of in several
             for node in nodes_of}  # fmt: skip
    swapped = places.replaced(*of_sides)
    if swapped and len(swapped[0]) == 1:
        _continue(points, wanted, Locations([], nodes), swapped[0][0], swapped[1][0])
    common = [key for key in wanted if points[0].get(key) and points[1].get(key)]
    units = _units(*points)
    if not common:
        text = f"{a} and {b} have no series in common"
        text += f", because the unit differs: {some(units, '; ')}" if units else ""
        raise InputError(f"{text}: 'seatrial history' shows them")
    single = all(len(group.trials) == 1 for group in groups)
    result = Comparison(groups[0], groups[1], single)
    result.units = units
    result.only_a = [wanted[key].name for key in points[0] if key not in points[1]]
    result.only_b = [wanted[key].name for key in points[1] if key not in points[0]]
    ran = {(wanted[key].case, wanted[key].location) for key in points[1]}
    named = {key[:2] for key in points[1]}  # a figure in another unit is not lost
    result.lost = [
        wanted[key].name
        for key in points[0]
        if key[:2] not in named and (wanted[key].case, wanted[key].location) in ran
    ]
    chosen = [side.condition for side in figures if side.condition]
    of_case: dict[str, list[SeriesKey]] = {}
    for key in common:
        of_case.setdefault(wanted[key].case.id, []).append(key)
    result.cases = len(of_case)
    result.differences = _differences(points, of_case, chosen)
    columns = [_columns([points[i][key] for key in common], single) for i in (0, 1)]
    result.rows = rows_of([wanted[key] for key in common], columns[0], columns[1], margin)
    pair = None if swapped else _exchanged_nodes(result.rows, nodes)
    result.places = places.sentence(swapped, pair)
    return result


def _continue(
    points: Sequence[dict[SeriesKey, list[Point]]],
    wanted: Mapping[SeriesKey, Series], locations: Locations, gone: str, new: str,
) -> None:  # fmt: skip
    """Give the points of a node of A to the series of the node that is in its place in B."""
    before, after = points
    for key in [one for one in before if one not in after]:
        others = (series.key for series in places.in_place_of(wanted[key], gone, new, locations))
        if other := next(
            (candidate for candidate in others if candidate in after and candidate not in before),
            None,
        ):
            before[other] = before.pop(key)


def _units(a: Iterable[SeriesKey], b: Iterable[SeriesKey]) -> list[str]:
    """Of the series that have no unit in both groups: ``netpipe...: latency_us in us and in ms``.
    A figure is never converted: nothing says which of two names of a unit is meant."""
    units: list[dict[tuple[str, str], set[str]]] = [{}, {}]
    for of_side, side in zip(units, (a, b), strict=True):
        for site, name, unit in side:
            of_side.setdefault((site, name), set()).add(unit)
    return [
        f"{key[1]} in {', '.join(sorted(old))} and in {', '.join(sorted(new))}"
        for key, old in units[0].items() if (new := units[1].get(key)) and not old & new
    ]  # fmt: skip


class _Side:
    """The trials and cases that one text selects."""

    def __init__(
        self, index: Index, text: str, known: Sequence[KnownTrial],
        under: Mapping[tuple[int, str], dict[str, str]],
    ):  # fmt: skip
        self.index, self.text = index, text
        self.condition = condition_of(text)
        if self.condition:
            self.cases = {
                key for key, conditions in under.items() if self.condition.matches(conditions)
            }
            if not self.cases:
                globs.check([self.condition.pattern])
                hint = known_conditions(under.values(), self.condition.name)
                raise InputError(f"{text}: no case had this condition ({hint})")
            numbers = {trial for trial, _ in self.cases}
            chosen = [trial for trial in known if trial.id in numbers]
        else:
            chosen = trials_of(text, known)
        self.trials = chosen[-MOST:]
        self.left_out = len(chosen) - len(self.trials)
        numbers = {trial.id for trial in self.trials}
        if not self.condition:
            self.cases = {key for key in under if key[0] in numbers}
        self.cases = {key for key in self.cases if key[0] in numbers}

    def group(self) -> Group:
        return Group(self.text, self.trials, self.left_out)

    def nodes(
        self, under: Mapping[tuple[int, str], dict[str, str]]
    ) -> dict[str, set[frozenset[str]]]:
        """Case -> the sets of nodes of its trials."""
        result: dict[str, set[frozenset[str]]] = {}
        for key in self.cases:
            if listed := under[key].get(NODES):
                result.setdefault(key[1], set()).add(frozenset(listed.split(", ")))
        return result

    def points(self, wanted: dict[SeriesKey, Series]) -> dict[SeriesKey, list[Point]]:
        """The points of each wanted series, in the order of the trials."""
        result: dict[SeriesKey, list[Point]] = {}
        for key, case, point in self.index.points_of(self.trials):
            if key in wanted and (not self.condition or (point.trial.id, case) in self.cases):
                result.setdefault(key, []).append(point)
        return result


def _columns(of_series: Sequence[Sequence[Point]], by_repeats: bool) -> _Array:
    """The figures of a group: a row for each series, a column for each trial or repeat."""
    if by_repeats:
        values = [point.samples for (point,) in of_series]
        table = np.full((len(values), max(map(len, values))), np.nan)
        for row, of_trial in enumerate(values):
            table[row, : len(of_trial)] = of_trial
        return table
    numbers = sorted({(p.trial.started, p.trial.id) for of_trial in of_series for p in of_trial})
    column = {number: at for at, (_, number) in enumerate(numbers)}
    table = np.full((len(of_series), len(column)), np.nan)
    for row, points in enumerate(of_series):
        for point in points:
            table[row, column[point.trial.id]] = point.value
    return table


def _exchanged_nodes(rows: Sequence[Row], nodes: Collection[str]) -> tuple[str, str] | None:
    located = {
        (row.series.case, row.series.metric, row.series.location): places.Figures(
            statistics.median(row.a), statistics.median(row.b), row.verdict
        )
        for row in rows
        if row.series.location
    }
    return places.exchanged_nodes(located, Locations([], nodes))


def rows_of(series: Sequence[Series], a: _Array, b: _Array, margin: float = MARGIN) -> list[Row]:
    """Compare figures: a row for each series, a column for each trial, NaN where it has none.

    Returns the rows worst first: worse by the size of the loss, better by that of the gain, then
    the others by their size.
    """
    scaled = np.concatenate([a, b], axis=1)
    for row, one in enumerate(series):
        scaled[row] = _scaled(one, scaled[row])
    first = a.shape[1]
    p_values = corrected_p(scaled, first)
    rows = []
    for one, own, p, raw_a, raw_b in zip(series, scaled, p_values, a, b, strict=True):
        left, right = (part[~np.isnan(part)] for part in (own[:first], own[first:]))
        values_a, values_b = (part[~np.isnan(part)].tolist() for part in (raw_a, raw_b))
        shift, low, high = hodges_lehmann(left, right, LEVEL / 2)
        verdict = _verdict(one, shift, low, high, float(p), margin)
        noise = _noise(left, right)
        logs = min(values_a + values_b) > 0
        ratio, bottom, top = (
            None if x is None else math.exp(x) if logs else 1 + x for x in (shift, low, high)
        )
        if _has_failed(one, values_a + values_b):
            verdict = _of_failed(one, values_a, values_b, verdict)
            ratio, bottom, top, noise = _ratio_of_medians(values_a, values_b), None, None, None
        assert ratio is not None
        rows.append(Row(one, values_a, values_b, ratio, bottom, top, noise, float(p), verdict))
    return sorted(rows, key=lambda row: (WORDS.index(row.verdict), -abs(row.gain), row.series.name))


def _scaled(series: Series, values: _Array) -> _Array:
    """Figures on the scale of the test, NaN where there is none: logarithms, or fractions of the
    typical size of figures that can be zero."""
    failed = values <= 0 if _has_failed(series, values) else np.zeros(len(values), bool)
    good = values[~np.isnan(values) & ~failed]
    if (good > 0).all():
        scaled = np.log(values, where=values > 0, out=np.full_like(values, np.nan))
        sign = 1 if series.better == "lower" else -1
        worst = (sign * np.log(good)).max() if len(good) else 0.0
        scaled[failed] = sign * (worst + math.log(_FAILED))
        return scaled
    sizes = np.abs(good[good != 0])
    size = np.median(np.abs(good)) or (np.median(sizes) if len(sizes) else 1.0)
    return in_units(values, float(size))


def _has_failed(series: Series, values: _Array | list[float]) -> bool:
    """Whether a figure is 0 and must be above it."""
    return is_zero(series.unit, float(np.nanmin(values)))


def _of_failed(series: Series, a: list[float], b: list[float], tested: Word) -> Word:
    """The verdict of a series with figures of 0 that must be above it. ``tested``: by the test."""
    bad_a, bad_b = (sum(is_zero(series.unit, x) for x in side) / len(side) for side in (a, b))
    if {bad_a, bad_b} == {0, 1}:
        return "worse" if bad_b else "better"
    return "can't tell" if tested == "same" and bad_a != bad_b else tested


def _ratio_of_medians(a: list[float], b: list[float]) -> float:
    before, after = (max(statistics.median(side), 0.0) for side in (a, b))
    if before:
        return after / before
    return math.inf if after else 1.0


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
    figures = _clipped(values, min(first, values.shape[1] - first))
    present = ~np.isnan(figures)
    filled, weight = np.where(present, figures, 0.0), present.astype(float)
    rounding = _rounding(values)
    # The logarithm of a standard deviation of f degrees of freedom has a standard error of about
    # 1 / sqrt(2 f).
    freedom = np.maximum(weight.sum(axis=1, keepdims=True) - 2, 1)
    most = np.exp(_SAMPLING / np.sqrt(2 * freedom))
    deals = _deals(values.shape[1], first)

    def compared(part: slice) -> tuple[_Array, _Array]:
        difference, scatter = _differences_of_means(filled[part], weight[part], deals)
        return difference, np.maximum(scatter, rounding[part])

    # Of very many series, an even choice gives the median.
    usual = np.median(compared(slice(None, None, -(-len(values) // _AT_ONCE)))[1], axis=0)
    true = np.empty(len(values))
    greatest = np.zeros(deals.shape[1])
    for at in range(0, len(values), _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        difference, scatter = compared(part)
        size = np.abs(difference / np.clip(usual, scatter, most[part] * scatter))
        greatest = np.maximum(greatest, size.max(axis=0))
        true[part] = size[:, 0]
    # Rounding must not make a deal that is the true one, mirrored, differ from it.
    least = true * (1 - statistics.ROUNDING)
    result: _Array = 1 - np.searchsorted(np.sort(greatest), least, side="left") / len(greatest)
    return result


def _clipped(values: _Array, smaller: int) -> _Array:
    """Figures less the median of their series, with outliers moved to an edge.

    The edge is ``_CLIP`` robust deviations of all figures, or the deviation that half of the
    smaller group's figures reach, if it is more: else a shift of that whole group, which the
    deviations of the larger one do not show, would be cut as if it were outliers.
    """
    centred = values - np.nanmedian(values, axis=1, keepdims=True)
    sizes = np.sort(np.nan_to_num(np.abs(centred)), axis=1)
    deviation = statistics.MAD_TO_SIGMA * np.nanmedian(np.abs(centred), axis=1, keepdims=True)
    half = (smaller + 1) // 2
    edge = np.maximum(_CLIP * deviation, sizes[:, -half, None])
    result: _Array = np.clip(centred, -edge, edge)
    return result


def _rounding(values: _Array) -> _Array:
    """Series x 1: the standard deviation of a rounding to multiples of the smallest difference of
    two figures of the series; 1 if all its figures are alike."""
    steps = np.diff(np.sort(values, axis=1), axis=1)
    steps[~(steps > statistics.ROUNDING)] = np.inf  # equal, or beside NaN
    least = steps.min(axis=1, keepdims=True, initial=np.inf)
    return np.where(np.isinf(least), 1.0, least / math.sqrt(12))


def _deals(count: int, first: int) -> _Array:
    """Figures x deals: 1 where a figure is dealt to A. The first column is the true deal."""
    if math.comb(count, first) <= DRAWN + 1:
        chosen = list(combinations(range(count), first))
        deals = np.zeros((count, len(chosen)))
        for column, dealt in enumerate(chosen):
            deals[list(dealt), column] = 1
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


def _least_p(rows: Sequence[Row]) -> float:
    """The least p-value that the test can give for the numbers of figures."""
    a, b = max(len(row.a) for row in rows), max(len(row.b) for row in rows)
    ways = math.comb(a + b, a)
    return (2 if a == b else 1) / min(ways, DRAWN + 1)


def _differences(
    points: Sequence[dict[SeriesKey, list[Point]]],
    of_case: Mapping[str, Sequence[SeriesKey]],  # its series
    chosen: Sequence[Condition],
) -> list[Difference]:
    """The conditions whose values are not the same in both groups, in one case or more."""
    trials: dict[str, dict[str, list[dict[str, set[int]]]]] = {}  # name, case, group, value
    for case, keys in of_case.items():
        groups = [[point for key in keys for point in by_key[key]] for by_key in points]
        for name in {name for group in groups for point in group for name in point.conditions}:
            sides = trials.setdefault(name, {}).setdefault(case, [{}, {}])
            for side, group in zip(sides, groups, strict=True):
                for point in group:
                    value = point.conditions.get(name)
                    if is_of_case(name):
                        value = value_in(point.conditions, name)
                    if value is not None:
                        side.setdefault(value, set()).add(point.trial.id)
    result = []
    for name, cases in sorted(trials.items()):
        if is_of_case(name):
            cases = {case: sides for case, sides in cases.items() if all(sides)}
        differing = {case: sides for case, sides in cases.items() if set(sides[0]) != set(sides[1])}
        if differing:
            a, b = (_counts([sides[group] for sides in differing.values()]) for group in (0, 1))
            known = any(condition.is_of(name) for condition in chosen)
            result.append(Difference(name, a, b, sorted(differing), known))
    return result


def _counts(of_cases: Sequence[dict[str, set[int]]]) -> dict[str, int]:
    """Value -> trials with it in one of the cases, most first."""
    trials: dict[str, set[int]] = {}
    for values in of_cases:
        for value, numbers in values.items():
            trials.setdefault(value, set()).update(numbers)
    return {
        value: len(numbers)
        for value, numbers in sorted(trials.items(), key=lambda x: (-len(x[1]), x[0]))
    }
