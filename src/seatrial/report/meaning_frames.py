"""The part of the chapter "What it means" on the MTU under several interrupt throttlings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.analysis.decision import SMALLEST, least_repeats
from seatrial.analysis.frame_sizes import STEP, Interaction, Optimum, Sweep
from seatrial.analysis.profile_cost import CPU
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    joined,
    made_from,
    percent,
    repeats_text,
)
from seatrial.report.estimates import bounded, times
from seatrial.report.figures import MARKERS, PALETTE, Figure, Table, axes, label, titled
from seatrial.report.text import quantity
from seatrial.results.wording import number

_FIGURES = 6  # of more sweeps the figures are in the tables alone


def section(sweeps: Sequence[Sweep]) -> Section:
    return Section(
        "Which MTU, and whether throttling changes that",
        [sentence for one in sweeps for sentence in _sentences(one)],
        [_grid(one) for one in sweeps],
        "frames",
    )


def _name(one: Sweep) -> str:
    metric = "processor time per MB" if one.metric == CPU else one.metric
    return f"{one.name} ({metric}), {one.route} on {one.hardware}, {one.nodes} nodes"


def _sentences(one: Sweep) -> list[Sentence]:
    sentences = [_optimum(one, optimum) for optimum in one.optima]
    if one.interactions:
        sentences.append(_interactions(one))
    return sentences


def _optimum(one: Sweep, best: Optimum) -> Sentence:
    where = f"{_name(one)}, {best.throttling}"
    sizes = sorted(best.medians)
    basis = f"{made_from(one.inputs)}; MTUs of {joined([str(mtu) for mtu in sizes])} B"
    unproven = [
        str(mtu) for (level, mtu), seen in one.proven.items()
        if level == best.throttling and seen is None and mtu > sizes[0]
    ]  # fmt: skip
    if unproven:
        basis += f"; no frames of that size in the counters of MTU {joined(unproven)}"
    change = "MTUs between those that were measured" if best.widest_step > STEP else \
        "another size of problem or message"  # fmt: skip
    top = quantity(best.medians[best.top], one.unit)
    if not best.known:
        text = f"Which MTU suits {where} is not known: {best.reason}. {best.top} B has the best "
        text += f"median, {top}."
        change = repeats_text(least_repeats(len(sizes)), one.sample)
        return Sentence(text, basis, change, "inconclusive", "measure more")
    gained = f"{times(best.gain)} as good as {sizes[0]} B"
    if best.first == best.last:
        text = f"{where}: an MTU of {best.first} B is the best: {top}"
        text += f", {gained}" if best.first != sizes[0] else ""
        text += f". It leads its neighbours by more than the spread, {percent(best.spread or 0)}."
        if not best.inside:
            text += " It is at the end of what was measured."
        return Sentence(text, basis, change, "pass", "best")
    text = f"{where}: plateau of {best.first} to {best.last} B: these MTUs are within the spread"
    text += f", {percent(best.spread or 0)}, or not told apart. The best of them is {gained}."
    whole = (best.first, best.last) == (sizes[0], sizes[-1])
    word = "no difference" if whole else "plateau"
    return Sentence(text, basis, change, "unjudged", word)


def _interactions(one: Sweep) -> Sentence:
    plain, basis = one.interactions[0].plain, made_from(one.inputs)
    by_level: dict[str, list[str]] = {}
    for part in one.interactions:
        by_level.setdefault(part.throttled, []).append(f"{part.mtu} B {times(part.ratio)}")
    listed = "; ".join(f"under {level}: {', '.join(own)}" for level, own in by_level.items())
    text = f"{_name(one)}: the gain of an MTU over {one.interactions[0].base} B, beside the same "
    text += f"gain under {plain}, is {listed}."
    if not all(bounded(part.ratio) for part in one.interactions):
        change = repeats_text(least_repeats(len(one.interactions) + 1), one.sample)
        return Sentence(text, basis, change, "inconclusive", "measure more")
    certain = [part for part in one.interactions if part.ratio.low > 1 or part.ratio.high < 1]
    change = f"more {one.sample}s, which narrow the intervals"
    if certain:
        most = max(certain, key=lambda part: abs(part.ratio.value - 1))
        less = "less" if most.ratio.value < 1 else "more"
        text += f" Throttling and MTU depend on each other: {most.mtu} B gains {less} under "
        text += f"{most.throttled}. Choose them together."
        return Sentence(text, basis, change, "pass", "together")
    if all(_narrow(part) for part in one.interactions):
        text += " Throttling does not change what an MTU gains: choose each by itself."
        return Sentence(text, basis, change, "unjudged", "no interaction")
    text += " The intervals are too wide to tell."
    return Sentence(text, basis, change, "inconclusive", "measure more")


def _narrow(part: Interaction) -> bool:
    return part.ratio.low >= 1 / (1 + SMALLEST) and part.ratio.high <= 1 + SMALLEST


def _grid(one: Sweep) -> Grid:
    sizes = sorted({mtu for best in one.optima for mtu in best.medians})
    rows = []
    for mtu in sizes:
        row = [Cell(f"{mtu} B")]
        for best in one.optima:
            if mtu not in best.medians:
                row.append(Cell("not measured", "quiet"))
                continue
            seen = one.proven.get((best.throttling, mtu))
            note = f"up to {number(seen, 4)} B per frame" if seen else \
                "its frames are not in the counters"  # fmt: skip
            mark = "pass" if best.known and best.first <= mtu <= best.last else ""
            row.append(Cell(quantity(best.medians[mtu], one.unit), mark, note))
        rows.append(row)
    title = f"Median by MTU and throttling: {_name(one)}"
    return Grid(title, ["MTU", *(best.throttling for best in one.optima)], rows, folded=True)


def frame_figures(sweeps: Sequence[Sweep]) -> list[Figure]:
    return [_figure(index, one) for index, one in enumerate(sweeps[:_FIGURES])]


def _figure(index: int, one: Sweep) -> Figure:
    data: list[dict[str, Any]] = []
    rows = []
    for i, best in enumerate(one.optima):
        colour = PALETTE[i % len(PALETTE)]
        sizes = sorted(best.medians)
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label(best.throttling),
                "x": sizes, "y": [best.medians[mtu] for mtu in sizes],
                "line": {"color": colour},
                "marker": {"color": colour, "symbol": MARKERS[i % len(MARKERS)], "size": 9},
                "hovertemplate": f"%{{x}} B: %{{y:.4g}} {one.unit}<extra></extra>",
            }
        )  # fmt: skip
        rows += [[best.throttling, str(mtu), number(best.medians[mtu])] for mtu in sizes]
    sizes = sorted({mtu for best in one.optima for mtu in best.medians})
    return Figure(
        f"frames-{index}",
        f"{one.name} over the MTU, {one.metric}",
        f"Median over {one.repeats} {one.sample}s or more, {one.route} on {one.hardware}. "
        f"{one.better.capitalize()} is better.",
        data,
        axes(
            {"tickvals": sizes, "ticktext": [str(mtu) for mtu in sizes], **titled("MTU (B)")},
            {**titled(f"{one.metric} ({one.unit})")},
        ),
        Table(["throttling", "MTU (B)", one.unit], rows),
    )  # fmt: skip
