"""The part of the chapter "What it means" on several interfaces and several pairs of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.analysis.conclusion import Estimate, scaled
from seatrial.analysis.several_pairs import UNITS, BondAgainst, Point, SeveralPairs, Within
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    bytes_text,
    made_from,
    percent,
    repeats_text,
)
from seatrial.report.estimates import amount_with_interval, bounded, interval_bars
from seatrial.report.figures import MARKERS, PALETTE, Figure, Table, axes, label, titled
from seatrial.report.text import amount
from seatrial.results.wording import number, plural

NAMES = {
    "latency": "latency of 1 B",
    "pingpong": "ping-pong",
    "uni": "one direction",
    "bi": "both directions",
}


def section(made: Sequence[SeveralPairs]) -> Section:
    return Section(
        "Several interfaces, several pairs",
        [sentence for pairs in made for sentence in _sentences(pairs)],
        [grid for pairs in made for grid in _grids(pairs)],
        "pairs",
    )


def _where(pairs: SeveralPairs) -> str:
    return f"{pairs.route} on {pairs.hardware}, messages of {bytes_text(pairs.message_B)}"


def _sentences(pairs: SeveralPairs) -> list[Sentence]:
    return [*_growth(pairs), *_bonds(pairs), *(_within(pairs, part) for part in pairs.within)]


def _growth(pairs: SeveralPairs) -> list[Sentence]:
    """For each profile whose pairs have an interface each: what more of them add."""
    sentences = []
    for profile in dict.fromkeys(profile for profile, _ in pairs.points):
        parts, unsure = [], []
        for pattern in NAMES:
            points = {point.pairs: point for point in pairs.points.get((profile, pattern), ())}
            most = max(points, default=0)
            point = points.get(most)
            if point is None or point.efficiency is None or point.layout.interfaces != most:
                continue
            part = f"{NAMES[pattern]} {number(point.total.value, 3)} MB/s, efficiency "
            part += _short(scaled(point.efficiency, 100), "%")
            if point.balance is not None:
                part += f", the slowest pair has {percent(point.balance)} of the fastest"
            parts.append(part)
            unsure.append(not bounded(point.efficiency))
        if not parts:
            continue
        text = f"{profile}, {_where(pairs)}: {most} pairs, each on an interface of its own: "
        text += f"{'; '.join(parts)}. (100 %: each pair is as fast as one alone.)"
        text += _no_interval(pairs) if any(unsure) else ""
        if not all(point.own_core for (p, _), own in pairs.points.items() if p == profile
                   for point in own):  # fmt: skip
            text += " Ranks of a node share a core, so a pair can wait for a processor."
        change = (
            repeats_text(6, pairs.unit) if any(unsure) else "other sizes of messages, more pairs"
        )
        sentences.append(Sentence(text, made_from(pairs.inputs), change))
    return sentences


def _no_interval(pairs: SeveralPairs) -> str:
    return f" There are too few {pairs.unit}s for an interval."


def _short(estimate: Estimate, unit: str) -> str:
    """With the interval, if there is one; else a sentence says so once."""
    if bounded(estimate):
        return amount_with_interval(estimate, unit)
    return amount(estimate.value, unit)


def _few(pairs: SeveralPairs, estimates: Sequence[Estimate]) -> str:
    return "" if all(map(bounded, estimates)) else _no_interval(pairs)


def _bonds(pairs: SeveralPairs) -> list[Sentence]:
    groups: dict[tuple[str, str, int], list[BondAgainst]] = {}
    for part in pairs.bonds:
        groups.setdefault((part.bond, part.independent, part.pairs), []).append(part)
    return [_bond(pairs, *key, parts) for key, parts in groups.items()]


def _bond(
    several: SeveralPairs, bond: str, independent: str, pairs: int, parts: Sequence[BondAgainst]
) -> Sentence:
    listed = [f"{NAMES[part.pattern]} {_short(part.ratio, 'times')}" for part in parts]
    text = f"{bond} against {independent}, {_where(several)}: {pairs} pairs over a bond of {pairs} "
    text += f"beside {pairs} pairs with an interface each: {'; '.join(listed)}."
    text += _few(several, [part.ratio for part in parts])
    rates = [part for part in parts if UNITS[part.pattern] == "MB/s"]
    best = {part.decision.leaders[0] for part in rates if part.decision.answer == "best"}
    answers = {part.decision.answer for part in rates}
    basis = made_from(several.inputs)
    if answers == {"best"} and len(best) == 1:
        text += f" Use {best.pop()} for programs that send on all interfaces at once."
        return Sentence(text, basis, "other sizes, more pairs than members", "pass", "best")
    if "measure more" in answers:
        needs = max((part.decision.needs or 0 for part in rates), default=0)
        unit = rates[0].decision.unit
        takes = "; ".join(dict.fromkeys(p.decision.takes for p in rates if p.decision.takes))
        change = repeats_text(needs, unit) if needs else takes or f"more {unit}s"
        return Sentence(text, basis, change, "inconclusive", "measure more")
    if answers == {"no difference"}:
        return Sentence(text, basis, "other sizes", "unjudged", "no difference")
    return Sentence(text, basis, "the pattern of the program decides", "pass", "depends")


def _within(pairs: SeveralPairs, part: Within) -> Sentence:
    figures = [
        f"{NAMES[pattern]} {_short(part.figures[pattern], UNITS[pattern])}"
        for pattern in NAMES
        if pattern in part.figures
    ]
    count = "one pair" if part.pairs == 1 else plural(part.pairs, "pair")
    text = f"Inside one node, {pairs.route}, {count}, by {part.how}: {'; '.join(figures)}."
    text += _few(pairs, list(part.figures.values()))
    if more := part.over_best:
        text += f" In one direction that is {_short(more, 'times')} the best between nodes"
        text += (
            ": the memory is not what limits them." if bounded(more) and more.low > 2
            else ": what limits them may be the memory or the processor, and not the network."
        )  # fmt: skip
    return Sentence(text, made_from(pairs.inputs), "pairs on other cores")


def _grids(several: SeveralPairs) -> list[Grid]:
    profiles = list(dict.fromkeys(profile for profile, _ in several.points))
    rows = []
    for pattern, name in NAMES.items():
        known = {
            (profile, point.pairs): point
            for profile in profiles
            for point in several.points.get((profile, pattern), ())
        }
        for pairs in sorted({count for _, count in known}):
            cells = [
                _cell(known[profile, pairs], UNITS[pattern])
                if (profile, pairs) in known
                else Cell("not measured", "quiet")
                for profile in profiles
            ]
            rows.append([Cell(f"{name}, {plural(pairs, 'pair')}"), *cells])
    if not rows:
        return []
    title = f"Sum over the pairs (of the latency, the mean), {_where(several)}"
    return [Grid(title, ["pattern", *profiles], rows)]


def _cell(point: Point, unit: str) -> Cell:
    notes = [_layout(point)]
    if point.efficiency is not None:
        notes.append(f"{percent(point.efficiency.value)} of {plural(point.pairs, 'single pair')}")
    if point.balance is not None and point.pairs > 1:
        notes.append(f"the slowest has {percent(point.balance)} of the fastest")
    if point.scatter is not None:
        notes.append(f"varies by {number(point.scatter, 2)} % over {point.repetitions} repetitions")
    value = point.total
    return Cell(_short(value, unit), note="; ".join(notes))


def _layout(point: Point) -> str:
    if point.layout.bonded and point.layout.interfaces == 1:
        return f"bond of {point.layout.members}"
    if point.layout.bonded:
        return f"{point.layout.interfaces} interfaces, one a bond of {point.layout.members}"
    return plural(point.layout.interfaces, "interface")


def pair_figures(made: Sequence[SeveralPairs]) -> list[Figure]:
    """A picture for each pattern with a rate: the sum over the number of pairs, by profile."""
    return [
        figure
        for index, pairs in enumerate(made)
        for pattern in NAMES
        if UNITS[pattern] == "MB/s" and (figure := _figure(index, pairs, pattern))
    ]


def _figure(index: int, pairs: SeveralPairs, pattern: str) -> Figure | None:
    series = {profile: points for (profile, p), points in pairs.points.items() if p == pattern}
    if max(map(len, series.values()), default=0) < 2:
        return None
    data: list[dict[str, Any]] = []
    rows = []
    for i, (profile, points) in enumerate(series.items()):
        colour = PALETTE[i % len(PALETTE)]
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label(profile),
                "x": [point.pairs for point in points],
                "y": [point.total.value for point in points],
                "error_y": interval_bars([point.total for point in points], colour),
                "line": {"color": colour},
                "marker": {"color": colour, "symbol": MARKERS[i % len(MARKERS)], "size": 9},
                "hovertemplate": "%{x} pairs: %{y:.4g} MB/s<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
        rows += [[profile, str(p.pairs), _layout(p), number(p.total.value)] for p in points]
    counts = sorted({point.pairs for points in series.values() for point in points})
    top = max(point.total.value for points in series.values() for point in points)
    return Figure(
        f"pairs-{index}-{pattern}",
        f"Several pairs at once, {NAMES[pattern]}, over {pairs.route}",
        f"Sum over the pairs, messages of {bytes_text(pairs.message_B)}; median over the runs. "
        "Bars: "
        "95 % intervals; no bar: too few runs.",
        data,
        axes(
            {"type": "log", "tickvals": counts, "ticktext": [str(p) for p in counts],
             **titled("pairs at once")},
            {"range": [0, 1.1 * top], **titled("sum of the pairs (MB/s)")},
        ),
        Table(["profile", "pairs", "over", "MB/s"], rows),
    )  # fmt: skip
