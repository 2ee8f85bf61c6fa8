"""Link maps (node by node), and figures per node.

A link map compares each link with the reference of its own map, so that one slow cable, or one
slow node (a whole row and column), stands out whatever the unit. The reference is the median of
the better half of the links: with four nodes a single slow one affects half of all links, and
the plain median would hide it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from seatrial.report.picture import data_uri
from seatrial.report.summary import CaseView
from seatrial.report.text import number
from seatrial.results.locations import Locations, natural
from seatrial.results.record import Case, Run
from seatrial.results.statistics import quantile

DENSE = 12  # a map of more nodes is set in small type, with three digits
PICTURE = 48  # a map of more nodes is a picture
SQUARES = 1024  # in a row of a picture
WORST = 20  # links and nodes that are listed beside a picture
#: Colours of the levels, from good to bad.
LEVEL_COLOURS = ("#eaf3f8", "#fdeed2", "#fbd18b", "#f3a64c", "#c4521c", "#7d1d0d")
#: By what factor a cell must be worse than the reference to reach level 1, 2, 3, 4, 5.
LEVELS = (1.1, 1.2, 1.4, 1.8, 2.5)
#: The range of each level, for the legend.
LEVEL_NAMES = (
    f"up to {LEVELS[0]:g}",
    *(f"{low:g} to {high:g}" for low, high in itertools.pairwise(LEVELS)),
    f"over {LEVELS[-1]:g}",
)

LinkSamples = dict[tuple[Case, str, str, str], dict[tuple[str, str], list[float]]]
NodeSamples = dict[tuple[str, str, str], dict[Case, dict[str, list[float]]]]


@dataclass(frozen=True)
class Cell:
    text: str
    level: int  # 0: within LEVELS[0] of the reference ... 5: beyond LEVELS[-1]
    failed: bool
    anchor: str  # of the judgement; "" if there is none


@dataclass
class LinkMap:
    """Links node by node. Of more than ``PICTURE`` nodes, ``rows`` are those of the worst nodes
    with the median only, and ``picture`` has a square for each link."""

    case: Case
    metric: str
    unit: str
    better: str
    nodes: list[str]
    links: int
    reference: float
    rows: list[tuple[str, list[Cell | None], Cell]]  # node, cells, median over the node's links
    worst: str  # a sentence
    failed: int
    statistic: str  # of the values: that of the judgements
    quantiles: list[tuple[str, str]]  # name and value, over all links
    picture: str = ""  # a data: URI
    worst_links: list[tuple[str, Cell]] = field(default_factory=list)


def by_location(runs: Iterable[Run]) -> tuple[LinkSamples, NodeSamples]:
    """Finite values of links and of nodes.

    Links by (case, metric, unit, better) and their ends; nodes by (check, metric, unit), case and
    node, as ``figures.node_figures`` draws them.
    """
    listed = list(runs)
    locations = Locations(listed)
    links: LinkSamples = {}
    nodes: NodeSamples = {}
    for run in listed:
        of_run: dict[tuple[str, str, str], dict[tuple[str, str], list[float]]] = {}
        for metric in run.metrics:
            if metric.location is None or not math.isfinite(metric.value):
                continue
            ends = locations.ends(metric.location)
            if ends:
                key = (metric.metric, metric.unit, metric.better)
                if key not in of_run:
                    of_run[key] = links.setdefault((run.case, *key), {})
                of_run[key].setdefault(ends, []).append(metric.value)
            else:
                cases = nodes.setdefault((run.case.check, metric.metric, metric.unit), {})
                of_case = cases.setdefault(run.case, {})
                of_case.setdefault(metric.location, []).append(metric.value)
    return links, nodes


def link_maps(links: LinkSamples, views: dict[Case, CaseView]) -> list[LinkMap]:
    """One map per case and metric; maps with failed links first.

    The values are those of the judgements, and so of the findings; of links that were not judged,
    the median. A metric that is informative has no map: neither more nor less of it need be worse.
    If no metric of the case was judged, as in an interrupted trial, all have one.
    """
    maps = [
        _link_map(case, metric, unit, better, samples, views[case])
        for (case, metric, unit, better), samples in links.items()
        if metric in views[case].by_location or not any(views[case].by_location)
    ]
    maps.sort(key=lambda m: not m.failed)
    return maps


def _link_map(
    case: Case,
    metric: str,
    unit: str,
    better: str,
    samples: dict[tuple[str, str], list[float]],
    view: CaseView,
) -> LinkMap:
    names = sorted({node for ends in samples for node in ends}, key=natural)
    values = {ends: statistics.median(v) for ends, v in samples.items()}
    by_name = {"-".join(ends): ends for ends in samples}
    # Several requirements may judge a link: the map shows the worst verdict.
    judged = view.by_location.get(metric, {})
    statistic = "median"
    for location, (_, judgement) in judged.items():
        value = judgement.value
        if location in by_name and value is not None and math.isfinite(value):
            values[by_name[location]] = value
            statistic = judgement.statistic
    reference = _reference(list(values.values()), better)
    of_node: dict[str, list[float]] = {name: [] for name in names}
    for ends, value in values.items():
        for node in ends:
            of_node[node].append(value)
    medians = {node: statistics.median(v) for node, v in of_node.items()}
    factors = {node: _factor(value, reference, better) for node, value in medians.items()}
    digits = "{:.3g}".format if DENSE < len(names) <= PICTURE else number

    def cell(ends: tuple[str, str]) -> Cell:
        index, judgement = judged.get("-".join(ends), (-1, None))
        level = _level(_factor(values[ends], reference, better))
        anchor = "" if judgement is None else f"j{index}"
        failed = judgement is not None and judgement.verdict == "fail"
        return Cell(digits(values[ends]), level, failed, anchor)

    def own_cell(node: str) -> Cell:
        return Cell(digits(medians[node]), _level(factors[node]), False, "")

    made = LinkMap(
        case=case,
        metric=metric,
        unit=unit,
        better=better,
        nodes=names,
        links=len(values),
        reference=reference,
        rows=[],
        worst=_worst(values, factors, reference, unit, better),
        failed=sum(judgement.verdict == "fail" for _, judgement in judged.values()),
        statistic=statistic,
        quantiles=_quantiles(list(values.values())),
    )
    if len(names) <= PICTURE:
        for a in names:
            # A link measured in one direction stands on both sides of the diagonal.
            found = ((a, b) if (a, b) in values else (b, a) for b in names)
            cells = [cell(ends) if ends in values else None for ends in found]
            made.rows.append((a, cells, own_cell(a)))
        return made
    made.picture = _picture(names, values, reference, better)
    bad_nodes = sorted(names, key=lambda node: -factors[node])[:WORST]
    made.rows = [(node, [], own_cell(node)) for node in bad_nodes]
    failed = {
        by_name[location]
        for location, (_, judgement) in judged.items()
        if judgement.verdict == "fail" and location in by_name
    }
    ranked = heapq.nsmallest(
        WORST, values, key=lambda e: (e not in failed, -_factor(values[e], reference, better))
    )
    made.worst_links = [("-".join(ends), cell(ends)) for ends in ranked]
    return made


def _picture(
    names: list[str], values: dict[tuple[str, str], float], reference: float, better: str
) -> str:
    """A square per link, in the order of ``names``; the worst of several if there are too many."""
    step = math.ceil(len(names) / SQUARES)
    at = {name: index // step for index, name in enumerate(names)}
    size = math.ceil(len(names) / step)
    rows = [bytearray(size) for _ in range(size)]  # 0: no link
    for (a, b), value in values.items():
        level = 1 + _level(_factor(value, reference, better))
        x, y = at[a], at[b]
        rows[x][y] = max(rows[x][y], level)
        rows[y][x] = max(rows[y][x], level)
    return data_uri([bytes(row) for row in rows], ("#c9d1d9", *LEVEL_COLOURS))


def _quantiles(values: list[float]) -> list[tuple[str, str]]:
    names = (("minimum", 0.0), ("1 %", 0.01), ("median", 0.5), ("99 %", 0.99), ("maximum", 1.0))
    ordered = sorted(values)
    return [(name, number(quantile(ordered, fraction))) for name, fraction in names]


def _reference(values: list[float], better: str) -> float:
    """Median of the better half of ``values``, which are one or more."""
    ordered = sorted(values, reverse=better == "higher")
    return statistics.median(ordered[: (len(ordered) + 1) // 2])


def _factor(value: float, reference: float, better: str) -> float:
    """How many times worse than ``reference``; 1 if either is not above zero."""
    if value <= 0 or reference <= 0:
        return 1.0
    return value / reference if better == "lower" else reference / value


def _level(factor: float) -> int:
    return bisect_left(LEVELS, factor)


def _worst(
    values: dict[tuple[str, str], float],
    factors: dict[str, float],
    reference: float,
    unit: str,
    better: str,
) -> str:
    """A sentence on the worst link and, if one node is slow on all its links, on that node."""
    ends, value = max(values.items(), key=lambda item: _factor(item[1], reference, better))
    factor = _factor(value, reference, better)
    text = f"Reference: {number(reference)} {unit}. "
    text += f"Worst link: {'-'.join(ends)} with {number(value)} {unit}"
    text += f", worse by a factor of {factor:.1f}." if factor > LEVELS[0] else ", about the same."
    node, of_node = max(factors.items(), key=lambda item: item[1])
    others = [other for name, other in factors.items() if name != node]
    if len(factors) > 2 and of_node > LEVELS[2] and of_node > LEVELS[1] * max(others):
        text += f" All links of {node} are worse, their median by a factor of {of_node:.1f}."
    return text
