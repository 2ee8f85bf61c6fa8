"""The part of the chapter "What it means" on the share of the peak, prices and power."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.analysis.conclusion import Estimate, merged, scaled
from seatrial.analysis.value import Gain, Value
from seatrial.report.chapter import Cell, Grid, Section, Sentence, made_from, repeats_text
from seatrial.report.estimates import (
    amount_with_interval,
    bounded,
    percent_with_interval,
    times,
    with_interval,
)
from seatrial.report.text import amount
from seatrial.results.wording import MAX_NAMED, number


def section(values: Sequence[Value], gains: Sequence[Gain]) -> Section:
    """Share of the peak, price and power of each case of HPL, and what gains are worth."""
    return Section(
        "Share of the peak, and what a GFLOPS costs",
        [*_values(values), *map(_gain, gains)],
        [grid] if (grid := _value_grid(values)) else [],
    )


def _of_case(value: Value) -> str:
    case = value.case
    return f"hpl {case.variant} (over {case.route}, {case.nodes} nodes, {case.profile})"


def _values(values: Sequence[Value]) -> list[Sentence]:
    """One sentence each; of many the least and the greatest performance."""
    if len(values) <= MAX_NAMED:
        return [_value(value) for value in values]
    least, most = (f(values, key=lambda value: value.GFLOPS.value) for f in (min, max))
    ends = [
        f"{with_interval(value.GFLOPS, ' GFLOPS')} of {_of_case(value)}" for value in (least, most)
    ]
    text = f"{len(values)} cases of hpl reach from {ends[0]} to {ends[1]}. The table has each."
    basis = made_from(merged(value.inputs for value in values))
    return [Sentence(text, basis, "the prices and facts of site.yaml")]


def _value_grid(values: Sequence[Value]) -> Grid | None:
    """Of many cases: performance, shares, price and power."""
    if len(values) <= MAX_NAMED:
        return None

    def cell(estimate: Estimate | None, unit: str) -> Cell:
        if estimate is None:
            return Cell("–", "quiet")
        if bounded(estimate):
            return Cell(amount_with_interval(estimate, unit))
        return Cell(amount(estimate.value, unit), note="no interval")

    names = list(dict.fromkeys(price.cost.name for value in values for price in value.prices))
    rows = []
    for value in values:
        prices = {price.cost.name: price.usd_per_GFLOPS for price in value.prices}
        peak = scaled(value.peak_share, 100) if value.peak_share else None
        rows.append(
            [Cell(_of_case(value)), cell(value.GFLOPS, "GFLOPS"), cell(peak, "%"),
             cell(value.dgemm_percent, "%"), cell(value.MFLOPS_per_W, "MFLOPS/W"),
             *(cell(prices.get(name), "USD/GFLOPS") for name in names)]
        )  # fmt: skip
    header = ["case", "performance", "of the peak", "of DGEMM", "per watt", *names]
    used = [i for i in range(len(header)) if any(row[i].style != "quiet" for row in rows)]
    return Grid(
        "Performance of HPL, its shares, and what it costs",
        [header[i] for i in used], [[row[i] for i in used] for row in rows],
    )  # fmt: skip


def _value(value: Value) -> Sentence:
    name = _of_case(value)
    parts = []
    if value.peak_share and value.peak_GFLOPS:
        peak = number(value.peak_GFLOPS, 4)
        share = f"{percent_with_interval(value.peak_share)} of the theoretical peak, {peak} GFLOPS"
        parts.append(f"{share} ({value.peak_source})")
    if value.dgemm_percent:
        parts.append(f"{with_interval(value.dgemm_percent, ' %')} of DGEMM on as many cores")
    for price in value.prices:
        cost = price.cost
        what = f"{cost.name}, {number(cost.usd)} USD of {cost.date}: {cost.includes}"
        parts.append(f"{with_interval(price.usd_per_GFLOPS, ' USD')} per GFLOPS ({what})")
    if value.MFLOPS_per_W and value.power:
        watts = (
            f"{number(value.power.watts)} W under {value.power.load}, source: {value.power.source}"
        )
        parts.append(f"{with_interval(value.MFLOPS_per_W, ' MFLOPS')} per W ({watts})")
    text = f"{name} reaches {with_interval(value.GFLOPS, ' GFLOPS')}: {'; '.join(parts)}."
    change = "the prices and facts of site.yaml"
    if not bounded(value.GFLOPS):
        why = ": the repeats of one job are not independent" if value.unit == "round" else ""
        text += f" An interval takes six {value.unit}s{why}."
        change += f"; {repeats_text(6, value.unit)}"
    return Sentence(text, made_from(value.inputs), change)


def _gain(gain: Gain) -> Sentence:
    response = gain.response
    name = f"{gain.option} against {response.base} for {response.application}"
    ratio = times(response.ratios[gain.option])
    change = f"more {response.decision.unit}s, which narrow the interval"
    basis = made_from(response.inputs)
    if gain.equivalent_nodes is None and not gain.none:
        text = f"{name}: it is not certain whether it gains ({ratio}), so it has no worth in nodes."
        return Sentence(text, basis, change, "inconclusive", "measure more")
    if gain.equivalent_nodes is None:
        text = f"{name}: no gain beyond the spread ({ratio}), so it is worth no node."
        return Sentence(text, basis, change, "unjudged", "no gain")
    nodes = with_interval(gain.equivalent_nodes, " nodes")
    text = f"{name}: {ratio} the performance, which is worth {nodes} more than {response.nodes}."
    if gain.usd_per_GFLOPS is not None:
        text += (
            f" Each GFLOPS more costs {with_interval(gain.usd_per_GFLOPS, ' USD')}."
            if gain.usd_per_GFLOPS.value > 0
            else f" {gain.option} costs no more than {response.base}."
        )
    return Sentence(text, basis, change)
