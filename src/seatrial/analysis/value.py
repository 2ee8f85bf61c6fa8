"""What a GFLOPS costs: share of the theoretical peak, price, power, and nodes that a gain is worth.

The formulas are those of the article on the value cluster, table 2. The performance is HPL's;
prices and power are of the site file. So is the peak, that of the nodes that ran; where the site
file does not say it, it is that of the cores that computed, by what their processors report. Price
and power are those of the whole machine: they are divided by the performance of a run on all its
nodes only. What is not known has no figure. A sample is the median of a block of runs
(``seatrial.analysis.conclusion``): the runs of one round have no interval. Nothing here decides
whether a difference is one: the response does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.analysis.axis import prices as prices_of
from seatrial.analysis.communication import middle
from seatrial.analysis.conclusion import (
    Estimate,
    Inputs,
    Measured,
    Missing,
    Unit,
    blocks_of,
    inputs_of,
    scaled,
    unit_of,
)
from seatrial.analysis.decision import fault
from seatrial.analysis.response import Response
from seatrial.benchmarks.limits import CORE_PEAK, CORE_PEAK_SOURCE, SHARED_CORES
from seatrial.results.record import Case, Cost, Machine, Power

METRIC, OF_DGEMM = "hpl_GFLOPS", "hpl_percent_of_dgemm"


@dataclass(frozen=True)
class Price:
    """In USD per GFLOPS, by one cost of the site file."""

    cost: Cost
    usd_per_GFLOPS: Estimate


@dataclass(frozen=True)
class Value:
    """Of one case of HPL. ``peak_share`` is a fraction; None and empty: not known.

    ``MFLOPS_per_W`` by ``power``. ``peak_source``: what the peak is of, and by whom.
    ``dgemm_percent``: of the DGEMM of the same job on as many cores. ``unit``: what a sample is.
    """

    case: Case
    GFLOPS: Estimate
    peak_GFLOPS: float | None
    peak_share: Estimate | None
    prices: Sequence[Price]
    MFLOPS_per_W: Estimate | None
    power: Power | None
    inputs: Inputs
    peak_source: str = ""
    dgemm_percent: Estimate | None = None
    unit: Unit = "repeat"


@dataclass(frozen=True)
class Gain:
    """What an option, a profile or a network, gains over the base of the response with HPL.

    ``none``: whether a gain that counts is excluded; neither known nor excluded, more repeats can
    tell. ``equivalent_nodes``: as many more of the base's nodes have the same gain; None if no gain
    beyond the spread is certain. ``usd_per_GFLOPS``: price difference over difference of
    performance, with the interval of the response; None where the site file has not a price of
    each, or no gain is certain.
    """

    response: Response
    option: str
    none: bool
    equivalent_nodes: Estimate | None
    usd_per_GFLOPS: Estimate | None


def per(numerator: float, estimate: Estimate) -> Estimate:
    """``numerator`` over an estimate above zero; ends that are not above zero are infinite."""
    high = numerator / estimate.low if estimate.low > 0 else math.inf
    return Estimate(numerator / estimate.value, numerator / estimate.high, high)


def equivalent_nodes(response: Estimate, nodes: int) -> Estimate:
    """(G - G0) / (G0 / nodes), of the ratio G / G0."""
    return Estimate(*((x - 1) * nodes for x in (response.value, response.low, response.high)))


def values(
    measured: Sequence[Measured], machines: Sequence[tuple[str, Machine]]
) -> tuple[list[Value], list[Missing]]:
    """The value of each case of HPL. ``machines``: trial and what it recorded of the machine."""
    machine, known = _newest(machines), dict(machines)
    by_case: dict[Case, list[Measured]] = defaultdict(list)
    for sample in measured:
        if any(m.metric == METRIC for m in sample.run.metrics):
            by_case[sample.run.case].append(sample)
    made, missing = [], []
    for case, runs in by_case.items():
        samples = [
            (sample, m.value) for sample in runs for m in sample.run.metrics if m.metric == METRIC
        ]
        if fault([value for _, value in samples]):
            continue  # a response says so
        performance = middle(blocks_of(samples))
        peak, source, why = _peak(runs, known)
        if why:
            missing.append(Missing("share of the peak", case.id, why, _PEAK))
        if peak is not None and performance.value > peak:
            why = (
                f"{performance.value:.4g} GFLOPS are above the peak, {peak:.4g} ({source}): the "
                "clock or operations per cycle are wrong"
            )
            missing.append(Missing("share of the peak", case.id, why, _PEAK))
            peak = None
        prices: list[Price] = []
        power: Power | None = None
        if machine.costs or machine.power:
            if len({(tuple(map(repr, m.costs)), repr(m.power)) for m in known.values()}) > 1:
                why, takes = "the trials have different prices or powers", "trials of one site file"
                missing.append(Missing("price per GFLOPS", case.id, why, takes))
            elif case.nodes != machine.nodes:
                why = f"it ran on {case.nodes} of the {machine.nodes} nodes that the prices are of"
                takes = f"hpl on all nodes (benchmarks.hpl.nodes: [{machine.nodes}])"
                missing.append(Missing("price per GFLOPS", case.id, why, takes))
            else:
                prices = [
                    Price(c, per(c.usd, performance)) for c in machine.costs if _applies(c, case)
                ]
                power = machine.power
        of_dgemm = [
            (sample, m.value)
            for sample in runs
            for m in sample.run.metrics
            if m.metric == OF_DGEMM and not m.doubt
        ]
        dgemm = None if fault([x for _, x in of_dgemm]) else middle(blocks_of(of_dgemm))
        if peak is None and not prices and power is None and dgemm is None:
            continue
        made.append(
            Value(
                case, performance, peak, scaled(performance, 1 / peak) if peak else None, prices,
                scaled(performance, 1000 / power.watts) if power else None, power,
                inputs_of(runs, len(samples)), source, dgemm, unit_of(runs),
            )
        )  # fmt: skip
    return made, missing


def _newest(machines: Sequence[tuple[str, Machine]]) -> Machine:
    return machines[-1][1] if machines else Machine()


_PEAK = (
    "GHz and flop_per_cycle of all nodes in site.yaml (virtual and emulated processors report none)"
)


def _applies(cost: Cost, case: Case) -> bool:
    """Whether a cost is of the machine as a case used it."""
    return cost.network in ("", case.network) and cost.profile in ("", case.profile)


def _peak(runs: Sequence[Measured], known: dict[str, Machine]) -> tuple[float | None, str, str]:
    """The peak of the runs in GFLOPS and its source, or why it is not known."""
    peaks, sources = set(), set()
    for sample in runs:
        of_nodes, nodes = known[sample.trial].peaks, sample.run.job.nodes
        if not of_nodes:
            peak, source = _of_processors(sample.run.facts)
            if not peak:
                return (
                    None,
                    "",
                    "neither site.yaml nor the processors say their clock and operations per cycle",
                )
            peaks.add(peak)
            sources.add(source)
            continue
        if len(nodes) != sample.run.case.nodes or not of_nodes.keys() >= set(nodes):
            return None, "", "the peak of its nodes is not known"
        peaks.add(round(sum(of_nodes[name] for name in nodes), 9))
        sources.add("of its nodes, by site.yaml")
    if len(peaks) > 1:
        return None, "", "its runs used nodes of different peaks"
    return (peaks.pop(), "; ".join(sorted(sources)), "") if peaks else (None, "", "")


def _of_processors(facts: Mapping[str, Any]) -> tuple[float, str]:
    """The peak of the cores that computed, as they report it, and the source; 0 if they do not."""
    core, cores = (_number(facts.get(name)) for name in (CORE_PEAK, "cores"))
    used = min(cores, _number(facts.get(SHARED_CORES)) or cores)
    if not core or not used:
        return 0, ""
    return round(used * core, 9), f"of {used:g} cores, {facts.get(CORE_PEAK_SOURCE, '')}"


def _number(value: Any) -> float:
    """A fact that a job user may have written; 0 if it is not a number above zero."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def gains(responses: Sequence[Response], machines: Sequence[tuple[str, Machine]]) -> list[Gain]:
    """For each option what its gain with HPL is worth; only where the site file has prices, and
    the response has an answer that can be compared."""
    machine = _newest(machines)
    made = []
    for response in responses:
        if response.metric != METRIC or not machine.costs or response.decision.takes:
            continue
        for option, ratio in response.ratios.items():
            better = ratio.low > 1 and ratio.value >= 1 + response.decision.margin
            price = None
            if better and response.nodes == machine.nodes:
                price = _marginal(response, option, machine.costs)
            nodes = equivalent_nodes(ratio, response.nodes) if better else None
            none = ratio.high < 1 + response.decision.margin and not better
            made.append(Gain(response, option, none, nodes, price))
    return made


def _marginal(response: Response, option: str, costs: Sequence[Cost]) -> Estimate | None:
    """USD per GFLOPS more than with the base, of costs of the same name for each of the two."""
    _, usd = prices_of(costs, response.axis, (response.base, option), response.inputs.cases[0])
    ratio, base = response.ratios[option], response.medians[response.base]
    if not usd or ratio.low <= 1:
        return None
    more = usd[option] - usd[response.base]
    value, *ends = (more / (base * (x - 1)) for x in (ratio.value, ratio.low, ratio.high))
    return Estimate(value, min(ends), max(ends))
