"""Figures that were taken at a place: the link maps (node by node), and values per node.

A link map shows each link against the usual figure of its own map, so that one
slow cable, or one slow node (a whole row and column), stands out whatever the
unit. "Usual" is the median of the better half: with four nodes a single bad one
spoils half of all links, and the plain median would hide it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.report.summary import CaseView
from seatrial.report.text import number
from seatrial.results.record import Case, Run

# How many times worse than the map's usual figure a cell must be to reach level 1, 2, 3, 4, 5.
DENSE = 12  # a map of more nodes than this is set small, with three digits
LEVELS = (1.1, 1.2, 1.4, 1.8, 2.5)


@dataclass(frozen=True)
class Cell:
    text: str
    level: int  # 0: as the others ... 5: far worse
    failed: bool
    anchor: str  # of the judgement, "" where there is none


@dataclass
class LinkMap:
    case: Case
    metric: str
    unit: str
    better: str
    nodes: list[str]
    middle: float
    rows: list[tuple[str, list[Cell | None], Cell]]  # node, cells, the node's median
    worst: str  # a sentence
    failed: int


def link_ends(location: str, nodes: set[str]) -> tuple[str, str] | None:
    """The two nodes of ``n1-n2``. Names may hold hyphens, so the run's nodes decide first."""
    splits = [(location[:i], location[i + 1 :]) for i, c in enumerate(location) if c == "-"]
    for a, b in splits:
        if a in nodes and b in nodes:
            return a, b
    if location in nodes or len(splits) != 1 or not all(splits[0]):
        return None
    return splits[0]


def by_location(
    runs: Iterable[Run],
) -> tuple[
    dict[tuple[Case, str, str, str], dict[tuple[str, str], list[float]]],
    dict[tuple[str, str, str], dict[Case, dict[str, list[float]]]],
]:
    """Finite values at links, by (case, metric, unit, better), and at nodes, for `node_figures`."""
    links: dict[tuple[Case, str, str, str], dict[tuple[str, str], list[float]]] = {}
    nodes: dict[tuple[str, str, str], dict[Case, dict[str, list[float]]]] = {}
    for run in runs:
        known = set(run.job.nodes)
        for metric in run.metrics:
            if metric.location is None or not math.isfinite(metric.value):
                continue
            ends = link_ends(metric.location, known)
            if ends:
                key = (run.case, metric.metric, metric.unit, metric.better)
                links.setdefault(key, {}).setdefault(ends, []).append(metric.value)
            else:
                cases = nodes.setdefault((run.case.check, metric.metric, metric.unit), {})
                locations = cases.setdefault(run.case, {})
                locations.setdefault(metric.location, []).append(metric.value)
    return links, nodes


def _worse(value: float, middle: float, better: str) -> float:
    """How many times worse than ``middle``; 1 where that has no meaning."""
    if value <= 0 or middle <= 0:
        return 1.0
    return value / middle if better == "lower" else middle / value


def link_maps(
    links: dict[tuple[Case, str, str, str], dict[tuple[str, str], list[float]]],
    views: dict[Case, CaseView],
) -> list[LinkMap]:
    """One map per case and metric; those with failed links first."""
    maps = []
    for (case, metric, unit, better), samples in links.items():
        names = sorted({node for ends in samples for node in ends}, key=_natural)
        values = {ends: statistics.median(v) for ends, v in samples.items()}
        judged: dict[str, tuple[int, str]] = {}
        for index, judgement in views[case].judgements:
            if judgement.metric != metric or not judgement.location:
                continue
            judged[judgement.location] = index, judgement.verdict
            ends = link_ends(judgement.location, set(names))
            # The finding's figure: by another statistic the link would have two.
            if ends in values and judgement.value is not None and math.isfinite(judgement.value):
                values[ends] = judgement.value
        middle = _usual(list(values.values()), better)
        rows: list[tuple[str, list[Cell | None], Cell]] = []
        own: dict[str, list[float]] = {name: [] for name in names}
        for (one, other), value in values.items():
            own[one].append(value)
            own[other].append(value)
        medians = {n: _worse(statistics.median(v), middle, better) for n, v in own.items()}
        digits = number if len(names) <= DENSE else "{:.3g}".format
        for a in names:
            cells: list[Cell | None] = []
            for b in names:
                # A link measured in one direction only stands on both sides of the diagonal.
                ends = (a, b) if (a, b) in values else (b, a)
                if a == b or ends not in values:
                    cells.append(None)
                    continue
                index, verdict = judged.get("-".join(ends), (-1, ""))
                level = _level(_worse(values[ends], middle, better))
                anchor = "" if index < 0 else f"j{index}"
                cells.append(Cell(digits(values[ends]), level, verdict == "fail", anchor))
            summary = Cell(digits(statistics.median(own[a])), _level(medians[a]), False, "")
            rows.append((a, cells, summary))
        failed = sum(verdict == "fail" for _, verdict in judged.values())
        worst = _worst(values, medians, middle, unit, better)
        maps.append(LinkMap(case, metric, unit, better, names, middle, rows, worst, failed))
    maps.sort(key=lambda m: not m.failed)
    return maps


def _usual(values: list[float], better: str) -> float:
    """Median of the better half of ``values`` (of all where there is one)."""
    ordered = sorted(values, reverse=better == "higher")
    return statistics.median(ordered[: (len(ordered) + 1) // 2])


def _level(ratio: float) -> int:
    return sum(ratio > bound for bound in LEVELS)


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """n2 before n10. Only ASCII digits: ``int`` refuses others that ``isdigit`` lets through."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for char in name + "\0":
        if "0" <= char <= "9" and len(digits) < 18:
            digits += char
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        parts.append((1, 0, char))
    return tuple(parts)


def _worst(
    values: dict[tuple[str, str], float],
    medians: dict[str, float],
    middle: float,
    unit: str,
    better: str,
) -> str:
    ends, value = max(values.items(), key=lambda item: _worse(item[1], middle, better))
    ratio = _worse(value, middle, better)
    text = f"Usual here: {number(middle)} {unit}; "
    text += f"worst link {'-'.join(ends)} at {number(value)} {unit}"
    text += f", {ratio:.1f} times as bad." if ratio > LEVELS[0] else ", as good as the others."
    node, share = max(medians.items(), key=lambda item: item[1])
    others = [other for name, other in medians.items() if name != node]
    if len(medians) > 2 and share > LEVELS[2] and share > LEVELS[1] * max(others):
        text += f" All of {node} stands out: {share:.1f} times as bad over its links."
    return text
