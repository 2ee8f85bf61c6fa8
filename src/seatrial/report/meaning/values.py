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


def _of_case(one: Value) -> str:
    case = one.case
    return f"hpl {case.variant} (over {case.route}, {case.nodes} nodes, {case.profile})"


def _values(values: Sequence[Value]) -> list[Sentence]:
    """One sentence each; of many the least and the greatest performance."""
    if len(values) <= MAX_NAMED:
        return [_value(one) for one in values]
    least, most = (f(values, key=lambda one: one.GFLOPS.value) for f in (min, max))
    ends = [f"{with_interval(one.GFLOPS, ' GFLOPS')} of {_of_case(one)}" for one in (least, most)]
    text = f"{len(values)} cases of hpl reach from {ends[0]} to {ends[1]}. The table has each."
    basis = made_from(merged(one.inputs for one in values))
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

    names = list(dict.fromkeys(price.cost.name for one in values for price in one.prices))
    rows = []
    for one in values:
        prices = {price.cost.name: price.usd_per_GFLOPS for price in one.prices}
        peak = scaled(one.peak_share, 100) if one.peak_share else None
        rows.append(
            [Cell(_of_case(one)), cell(one.GFLOPS, "GFLOPS"), cell(peak, "%"),
             cell(one.dgemm_percent, "%"), cell(one.MFLOPS_per_W, "MFLOPS/W"),
             *(cell(prices.get(name), "USD/GFLOPS") for name in names)]
        )  # fmt: skip
    header = ["case", "performance", "of the peak", "of DGEMM", "per watt", *names]
    used = [i for i in range(len(header)) if any(row[i].style != "quiet" for row in rows)]
    return Grid(
        "Performance of HPL, its shares, and what it costs",
        [header[i] for i in used], [[row[i] for i in used] for row in rows],
    )  # fmt: skip


def _value(one: Value) -> Sentence:
    name = _of_case(one)
    parts = []
    if one.peak_share and one.peak_GFLOPS:
        peak = number(one.peak_GFLOPS, 4)
        share = f"{percent_with_interval(one.peak_share)} of the theoretical peak, {peak} GFLOPS"
        parts.append(f"{share} ({one.peak_source})")
    if one.dgemm_percent:
        parts.append(f"{with_interval(one.dgemm_percent, ' %')} of DGEMM on as many cores")
    for price in one.prices:
        cost = price.cost
        what = f"{cost.name}, {number(cost.usd)} USD of {cost.date}: {cost.includes}"
        parts.append(f"{with_interval(price.usd_per_GFLOPS, ' USD')} per GFLOPS ({what})")
    if one.MFLOPS_per_W and one.power:
        watts = f"{number(one.power.watts)} W under {one.power.load}, source: {one.power.source}"
        parts.append(f"{with_interval(one.MFLOPS_per_W, ' MFLOPS')} per W ({watts})")
    text = f"{name} reaches {with_interval(one.GFLOPS, ' GFLOPS')}: {'; '.join(parts)}."
    change = "the prices and facts of site.yaml"
    if not bounded(one.GFLOPS):
        text += f" An interval takes six {one.unit}s: the repeats of one job are not independent." \
            if one.unit == "round" else f" An interval takes six {one.unit}s."  # fmt: skip
        change += f"; {repeats_text(6, one.unit)}"
    return Sentence(text, made_from(one.inputs), change)


def _gain(one: Gain) -> Sentence:
    response = one.response
    name = f"{one.option} against {response.base} for {response.application}"
    ratio = times(response.ratios[one.option])
    change = f"more {response.decision.unit}s, which narrow the interval"
    basis = made_from(response.inputs)
    if one.equivalent_nodes is None and not one.none:
        text = f"{name}: it is not certain whether it gains ({ratio}), so it has no worth in nodes."
        return Sentence(text, basis, change, "inconclusive", "measure more")
    if one.equivalent_nodes is None:
        text = f"{name}: no gain beyond the spread ({ratio}), so it is worth no node."
        return Sentence(text, basis, change, "unjudged", "no gain")
    nodes = with_interval(one.equivalent_nodes, " nodes")
    text = f"{name}: {ratio} the performance, which is worth {nodes} more than {response.nodes}."
    if one.usd_per_GFLOPS is not None:
        text += (
            f" Each GFLOPS more costs {with_interval(one.usd_per_GFLOPS, ' USD')}."
            if one.usd_per_GFLOPS.value > 0
            else f" {one.option} costs no more than {response.base}."
        )
    return Sentence(text, basis, change)
