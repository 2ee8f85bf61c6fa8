"""The part of the chapter "What it means" on the MTU under several interrupt throttlings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.analysis.decision import SMALLEST, least_repeats
from seatrial.analysis.frame_sizes import (
    NOT_OF_THE_WIRE,
    NOT_SEEN,
    STEP,
    Interaction,
    Optimum,
    Sweep,
)
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
from seatrial.report.text import amount
from seatrial.results.wording import number, plural

_FIGURES = 6  # of more sweeps the figures are in the tables alone


def section(sweeps: Sequence[Sweep]) -> Section:
    return Section(
        "Which MTU, and whether throttling changes that",
        [sentence for sweep in sweeps for sentence in _sentences(sweep)],
        [_grid(sweep) for sweep in sweeps],
        "frames",
    )


#: metric -> its words, for those that sweeps have
_WORDS = {
    CPU: "processor time per MB",
    "bandwidth_MB_s": "bandwidth",
    "hpl_GFLOPS": "performance",
    "mops": "performance",
    "time_s": "run time",
}


def _metric(sweep: Sweep) -> str:
    return _WORDS.get(sweep.metric, sweep.metric)


def _name(sweep: Sweep) -> str:
    return (
        f"{sweep.name} ({_metric(sweep)}), {sweep.route} on {sweep.hardware}, {sweep.nodes} nodes"
    )


def _sentences(sweep: Sweep) -> list[Sentence]:
    sentences = [_optimum(sweep, optimum) for optimum in sweep.optima]
    if sweep.interactions:
        sentences.append(_interactions(sweep))
    return sentences


def _optimum(sweep: Sweep, best: Optimum) -> Sentence:
    where = f"{_name(sweep)}, {best.throttling}"
    sizes = sorted(best.medians)
    basis = f"{made_from(sweep.inputs)}; MTUs of {joined([str(mtu) for mtu in sizes])} B"
    for why in (NOT_SEEN, NOT_OF_THE_WIRE):
        unproven = [
            str(mtu) for (level, mtu), frames in sweep.frames.items()
            if level == best.throttling and frames.unproven == why
        ]  # fmt: skip
        basis += f"; MTU {joined(unproven)}: {why}" if unproven else ""
    change = "MTUs between those that were measured" if best.widest_step > STEP else \
        "another size of problem or message"  # fmt: skip
    top = amount(best.medians[best.top], sweep.unit)
    if not best.known:
        text = f"Which MTU suits {where} is not known: {best.reason}. {best.top} B has the best "
        text += f"median, {top}."
        worse = [mtu for mtu in sizes if mtu not in best.as_good]
        if worse and not sweep.withheld:
            text += f" Worse: {joined([f'{mtu} B' for mtu in worse])}."
        need = least_repeats(len(sizes))
        change = (
            repeats_text(need, sweep.sample) if sweep.repeats < need else f"more {sweep.sample}s"
        )
        return Sentence(text, basis, change, "inconclusive", "measure more")
    gained = f"{times(best.gain)} as good as {sizes[0]} B"
    if best.best:
        text = f"{where}: an MTU of {best.top} B is the best: {top}"
        text += f", {gained}" if best.top != sizes[0] else ""
        text += f". It leads all others by more than the spread, {percent(best.spread or 0)}."
        if not best.inside:
            text += " It is at the end of what was measured."
        return Sentence(text, basis, change, "pass", "best")
    which = f"plateau of {best.first} to {best.last} B"
    if not best.whole:
        listed = joined([f"{mtu} B" for mtu in best.as_good])
        which = f"{listed} are as good, and what is between them is worse"
    text = f"{where}: {which}. {best.top} B and each of the others differ by at most "
    text += f"{percent(best.apart)}, with 95 % confidence."
    text += f" {best.top} B is {gained}." if best.top != sizes[0] else ""
    word = "no difference" if len(best.as_good) == len(sizes) else "plateau"
    return Sentence(text, basis, change, "unjudged", word)


def _interactions(sweep: Sweep) -> Sentence:
    plain, basis = sweep.interactions[0].plain, made_from(sweep.inputs)
    by_level: dict[str, list[str]] = {}
    for part in sweep.interactions:
        by_level.setdefault(part.throttled, []).append(f"{part.mtu} B {times(part.ratio)}")
    listed = "; ".join(f"under {level}: {', '.join(mtus)}" for level, mtus in by_level.items())
    figures = (
        f"Gain of an MTU over {sweep.interactions[0].base} B, compared with the same gain under "
    )
    figures += f"{plain}: {listed}."
    text = f"{_name(sweep)}: "
    if sweep.withheld:
        text += f"whether throttling changes what an MTU gains is not known: {sweep.withheld}."
        change = f"more {sweep.sample}s, without what the reason names"
        return Sentence(text, basis, change, "inconclusive", "measure more")
    if not all(bounded(part.ratio) for part in sweep.interactions):
        text += f"it is not known whether throttling changes what an MTU gains. {figures}"
        change = repeats_text(least_repeats(len(sweep.interactions) + 1), sweep.sample)
        return Sentence(text, basis, change, "inconclusive", "measure more")
    certain = [part for part in sweep.interactions if part.ratio.low > 1 or part.ratio.high < 1]
    change = f"more {sweep.sample}s, which narrow the intervals"
    if certain:
        most = max(certain, key=lambda part: abs(part.ratio.value - 1))
        less = "less" if most.ratio.value < 1 else "more"
        text += f"choose MTU and throttling together: {most.mtu} B gains {less} under "
        text += f"{most.throttled} than under {plain}. {figures}"
        return Sentence(text, basis, change, "pass", "together")
    if all(_narrow(part) for part in sweep.interactions):
        text += "choose MTU and throttling each by itself: throttling does not change what an MTU "
        text += f"gains. {figures}"
        return Sentence(text, basis, change, "unjudged", "no interaction")
    text += "the intervals are too wide to tell whether throttling changes what an MTU gains. "
    text += figures
    return Sentence(text, basis, change, "inconclusive", "measure more")


def _narrow(part: Interaction) -> bool:
    return part.ratio.low >= 1 / (1 + SMALLEST) and part.ratio.high <= 1 + SMALLEST


def _grid(sweep: Sweep) -> Grid:
    sizes = sorted({mtu for best in sweep.optima for mtu in best.medians})
    rows = []
    for mtu in sizes:
        row = [Cell(f"{mtu} B")]
        for best in sweep.optima:
            if mtu not in best.medians:
                row.append(Cell("not measured", "quiet"))
                continue
            frames = sweep.frames[best.throttling, mtu]
            note = f"up to {number(frames.seen, 4)} B per frame"
            note += f": {frames.unproven}" if frames.unproven else ""
            mark = "pass" if best.known and mtu in best.as_good else ""
            row.append(Cell(amount(best.medians[mtu], sweep.unit), mark, note))
        rows.append(row)
    title = f"Median by MTU and throttling: {_name(sweep)}"
    return Grid(title, ["MTU", *(best.throttling for best in sweep.optima)], rows, folded=True)


def frame_figures(sweeps: Sequence[Sweep]) -> list[Figure]:
    return [_figure(index, sweep) for index, sweep in enumerate(sweeps[:_FIGURES])]


def _figure(index: int, sweep: Sweep) -> Figure:
    data: list[dict[str, Any]] = []
    rows = []
    for i, best in enumerate(sweep.optima):
        colour = PALETTE[i % len(PALETTE)]
        sizes = sorted(best.medians)
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label(best.throttling),
                "x": sizes, "y": [best.medians[mtu] for mtu in sizes],
                "line": {"color": colour},
                "marker": {"color": colour, "symbol": MARKERS[i % len(MARKERS)], "size": 9},
                "hovertemplate": f"%{{x}} B: %{{y:.4g}} {sweep.unit}<extra></extra>",
            }
        )  # fmt: skip
        rows += [[best.throttling, str(mtu), number(best.medians[mtu])] for mtu in sizes]
    sizes = sorted({mtu for best in sweep.optima for mtu in best.medians})
    return Figure(
        f"frames-{index}",
        f"{sweep.name} over the MTU: {_metric(sweep)}",
        f"Median over {plural(sweep.repeats, sweep.sample)} or more, {sweep.route} on "
        f"{sweep.hardware}. "
        f"{sweep.better.capitalize()} is better.",
        data,
        axes(
            {"tickvals": sizes, "ticktext": [str(mtu) for mtu in sizes], **titled("MTU (B)")},
            {**titled(f"{_metric(sweep)} ({sweep.unit})")},
        ),
        Table(["throttling", "MTU (B)", sweep.unit], rows),
    )  # fmt: skip
