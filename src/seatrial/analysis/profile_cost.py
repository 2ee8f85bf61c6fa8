"""What each NIC profile costs and gains by itself: latency, bandwidth, processor time, interrupts.

Of NetPIPE and a TCP stream over plain sockets, beside the base profile on the same hardware. The
intervals of all figures of a profile hold together with 95 %, and those of a figure under all
profiles, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.analysis.conclusion import (
    Estimate,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    other_nodes,
    unit_of,
)
from seatrial.analysis.decision import fault, ratio
from seatrial.analysis.response import BASE
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.results.record import Run
from seatrial.results.statistics import median

CPU = "cpu_ms_per_MB"
#: metric -> check, unit
METRICS = {
    "latency_us": ("netpipe", "us"),
    "n_half_B": ("netpipe", "B"),
    "bandwidth_MB_s": ("tcp_stream", "MB/s"),
    CPU: ("tcp_stream", "ms/MB"),
    "interrupts_per_s": ("tcp_stream", "1/s"),
}


@dataclass(frozen=True)
class Cost:
    """A median with its ratio to that of the base; None for the base or if one of them is zero."""

    value: float
    unit: str
    samples: int
    ratio: Estimate | None


@dataclass(frozen=True)
class ProfileCosts:
    """The costs of the profiles of one hardware: profile -> metric -> cost.

    ``nodes_differ``: why the effect may be that of the nodes, or "". ``unit``: what a ratio needs
    several of. ``options``: as many options as a decision has whose intervals hold together as
    these do.
    """

    hardware: str
    base: str
    costs: Mapping[str, Mapping[str, Cost]]
    inputs: Inputs
    nodes_differ: str = ""
    unit: Unit = "repeat"
    options: int = 2


def cpu_time(run: Run) -> list[float]:
    """CPU time of both ends of a stream in ms per MB: 10 x (sender's % + receiver's %) / (MB/s).

    Per volume, so that a slow stream does not appear efficient. Empty where the run has not all
    three figures.
    """
    names = ("bandwidth_MB_s", "cpu_sender_percent", "cpu_receiver_percent")
    values = {m.metric: m.value for m in run.metrics if m.location is None}
    rate, *shares = (values.get(name, math.nan) for name in names)
    time = 10 * sum(shares) / rate if rate > 0 else math.nan
    return [time] if math.isfinite(time) else []


def profile_costs(measured: Iterable[Measured]) -> list[ProfileCosts]:
    """The costs for each hardware under which at least two profiles were measured."""
    groups: dict[tuple[str, str], dict[str, list[Measured]]] = {}  # hardware, check
    for sample in measured:
        case = sample.run.case
        if case.transport == PLAIN_SOCKETS and case.check in {
            check for check, _ in METRICS.values()
        }:
            profiles = groups.setdefault((sample.run.hardware, case.check), {})
            profiles.setdefault(case.profile, []).append(sample)
    samples: dict[
        str, dict[str, dict[str, list[tuple[Measured, float]]]]
    ] = {}  # hardware, profile, metric
    runs: dict[str, list[Measured]] = {}
    for (hardware, check), profiles in groups.items():
        for profile, of_profile in comparable(profiles).items():
            row = samples.setdefault(hardware, {}).setdefault(profile, {})
            for name, (of_check, _) in METRICS.items():
                if of_check == check:
                    row[name] = [
                        (sample, value)
                        for sample in of_profile
                        for value in _values(sample.run, name)
                    ]
            runs.setdefault(hardware, []).extend(of_profile)
    result = []
    for hardware, by_profile in samples.items():
        if len(by_profile) < 2:
            continue
        base = BASE if BASE in by_profile else next(iter(by_profile))
        count = max(len(by_profile), 1 + max(map(len, by_profile.values())))
        costs = {
            profile: {
                name: _cost(values, by_profile[base].get(name, []), name, profile == base, count)
                for name, values in row.items()
                if values
            }
            for profile, row in by_profile.items()
        }
        total = sum(len(v) for row in by_profile.values() for v in row.values())
        of_profile = runs[hardware]
        inputs, unit = inputs_of(of_profile, total), unit_of(of_profile)
        result.append(
            ProfileCosts(hardware, base, costs, inputs, other_nodes(of_profile), unit, count)
        )
    return result


def _values(run: Run, name: str) -> list[float]:
    if name == CPU:
        return cpu_time(run)
    values = [m.value for m in run.metrics if m.metric == name and math.isfinite(m.value)]
    # interrupts are a figure of each node
    return [max(values)] if values else []


def _cost(
    samples: Sequence[tuple[Measured, float]], base: Sequence[tuple[Measured, float]], name: str,
    is_base: bool, options: int,
) -> Cost:  # fmt: skip
    """``samples``, ``base``: runs and figures. The ratio is that of their blocks."""
    values, of_base = ([value for _, value in pairs] for pairs in (samples, base))
    estimate = None
    if not is_base and not fault(values) and not fault(of_base):
        estimate = ratio(blocks_of(samples), blocks_of(base), options)
    return Cost(median(values), METRICS[name][1], len(values), estimate)
