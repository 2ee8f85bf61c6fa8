"""The part of the chapter "What it means" on what each profile costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seatrial.analysis.decision import least_repeats
from seatrial.analysis.profile_cost import CPU, METRICS, ProfileCosts
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    joined,
    made_from,
    ratio_cell,
    repeats_text,
)
from seatrial.report.estimates import times
from seatrial.report.text import amount
from seatrial.results.wording import MAX_NAMED

#: metric -> its words
_WORDS = {
    "latency_us": "latency",
    "n_half_B": "message size of half the bandwidth",
    "bandwidth_MB_s": "bandwidth of a TCP stream",
    CPU: "processor time of both ends per MB",
    "interrupts_per_s": "interrupts per second",
}


def section(costs: Sequence[ProfileCosts]) -> Section:
    """Costs of each machine's profiles against its base."""
    return Section(
        "What each profile costs",
        [sentence for cost in costs for sentence in _costs(cost)],
        [_cost_grid(cost) for cost in costs],
        "costs",
    )


def _costs(costs: ProfileCosts) -> list[Sentence]:
    sentences = []
    basis = f"{made_from(costs.inputs)}; NetPIPE and a TCP stream over plain sockets"
    unsure = []
    for profile, row in costs.costs.items():
        known = {
            name: row[name].ratio
            for name in METRICS
            if name in row and (ratio := row[name].ratio) and math.isfinite(ratio.high)
        }
        if profile == costs.base:
            continue
        changed = {n: r for n, r in known.items() if r and (r.low > 1 or r.high < 1)}
        if not known:
            unsure.append(profile)
            continue
        listed = "; ".join(
            f"{_WORDS[name]} {amount(row[name].value, row[name].unit)}, {times(r)}"
            for name, r in changed.items()
        )
        same = [_WORDS[name] for name in known if name not in changed]
        text = (
            f"{profile} against {costs.base}, on {costs.hardware}: {listed or 'no certain change'}"
        )
        text += f"; no certain change of {joined(same)}." if same and listed else "."
        text += f" But {costs.nodes_differ}." if costs.nodes_differ else ""
        sentences.append(Sentence(text, basis, f"more {costs.unit}s, which narrow the intervals"))
    if len(sentences) > MAX_NAMED:
        sentences = [_cost_range(costs, len(sentences), basis)]
    if unsure:
        need = least_repeats(costs.options)
        text = (
            f"On {costs.hardware} the costs of {joined(unsure)} against {costs.base} have no "
            "interval: "
            f"each figure was measured in too few {costs.unit}s."
        )
        change = repeats_text(need, costs.unit)
        sentences.append(Sentence(text, basis, change, "inconclusive", "measure more"))
    return sentences


def _cost_range(costs: ProfileCosts, count: int, basis: str) -> Sentence:
    """Of many profiles: for each metric the lowest and the highest. The table has all of them."""
    parts = []
    for name in METRICS:
        known = {
            profile: (row[name], ratio)
            for profile, row in costs.costs.items()
            if name in row and (ratio := row[name].ratio) and math.isfinite(ratio.high)
        }
        if not known:
            continue
        low, high = (f(known, key=lambda p: known[p][0].value) for f in (min, max))
        ends = [
            f"{amount(known[p][0].value, known[p][0].unit)} under {p}, {times(known[p][1])}"
            for p in (low, high)
        ]
        parts.append(f"{_WORDS[name]} from {ends[0]}, to {ends[1]}")
    text = f"{count} profiles against {costs.base}, on {costs.hardware}: {'; '.join(parts)}."
    text += " The table has each of them."
    text += f" But {costs.nodes_differ}." if costs.nodes_differ else ""
    return Sentence(text, basis, f"more {costs.unit}s, which narrow the intervals")


def _cost_grid(costs: ProfileCosts) -> Grid:
    names = [name for name in METRICS if any(name in row for row in costs.costs.values())]
    better = {"latency_us": -1, "n_half_B": -1, "bandwidth_MB_s": 1, CPU: -1, "interrupts_per_s": 0}
    rows = []
    for profile, row in costs.costs.items():
        cells = [Cell(f"{profile} (base)" if profile == costs.base else profile)]
        for name in names:
            if name not in row:
                cells.append(Cell("not measured", "quiet"))
                continue
            cost = row[name]
            text = amount(cost.value, cost.unit)
            if cost.ratio is None:
                cells.append(Cell(text))
            else:
                cells.append(ratio_cell(cost.ratio, good=better[name], text=text))
        rows.append(cells)
    title = f"Median, and ratio to {costs.base} with its 95 % interval, on {costs.hardware}"
    return Grid(title, ["profile", *(_WORDS[name] for name in names)], rows)
