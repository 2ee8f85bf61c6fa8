"""The trade-off of the NIC profiles as one chart: latency, processor time, interrupts.

A profile with low latency costs interrupts and processor time; a profile that saves them has a
higher latency. The chart needs two profiles for which both the latency (NetPIPE) and the cost (a
TCP stream) were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from seatrial.analysis.profile_cost import cpu_time
from seatrial.report.figures import (
    PALETTE,
    Figure,
    Table,
    axes,
    label,
    log_ticks,
    spread_text,
    titled,
)
from seatrial.report.text import number, profile_name
from seatrial.results.record import Run

LATENCY, INTERRUPTS, CPU = "latency_us", "interrupts_per_s", "cpu_ms_per_MB"
SMALLEST, LARGEST = 9.0, 46.0  # diameter of a mark in pixels


def trade_figures(runs: Iterable[Run]) -> list[Figure]:
    """A mark per profile: latency and CPU time of a stream; its area is the interrupt rate.

    CPU time is the sum of both ends per 10^6 B moved, so that a slow stream does not appear
    efficient: 10 x (sender's % + receiver's %) / (MB/s) milliseconds.

    The colour is the network under test with its driver. Empty if fewer than two profiles have
    both figures.
    """
    measured: dict[str, dict[str, list[float]]] = {}
    group: dict[str, str] = {}
    for run in runs:
        wanted = {"netpipe": (LATENCY,), "tcp_stream": (INTERRUPTS,)}.get(run.case.check, ())
        if not wanted or run.case.transport != "tcp":
            continue
        row = measured.setdefault(profile_name(run.case), {})
        for metric in run.metrics:
            if metric.metric in wanted and math.isfinite(metric.value):
                row.setdefault(metric.metric, []).append(metric.value)
        row.setdefault(CPU, []).extend(cpu_time(run))
        group.setdefault(profile_name(run.case), run.hardware)
    shown = {name: row for name, row in measured.items() if row.get(LATENCY) and row.get(CPU)}
    if len(shown) < 2:
        return []
    rates = {name: median(row.get(INTERRUPTS) or [0.0]) for name, row in shown.items()}
    most = max(rates.values())
    latencies = [median(row[LATENCY]) for row in shown.values()]
    groups = list(dict.fromkeys(group[name] for name in shown))
    data = [_marks(name, index, shown, rates, most, group) for index, name in enumerate(groups)]
    rows = [
        [name, group[name], *(spread_text(row.get(key, [])) for key in (LATENCY, CPU, INTERRUPTS))]
        for name, row in shown.items()
    ]
    areas = (
        f"The area of a mark is the interrupts per second of an interface, at most {number(most)}."
        if most
        else "The kernel attributes no interrupts to these interfaces, so all marks are equal."
    )
    return [
        Figure(
            "trade",
            "Trade-off of the NIC profiles: latency, CPU time and interrupts",
            f"Latency of NetPIPE's smallest message over TCP, and CPU time of both ends of a TCP "
            f"stream per MB. Lower is better on both axes. {areas}",
            data,
            axes(
                {"type": "log", **log_ticks(latencies), **titled("latency (us)")},
                {"rangemode": "tozero", **titled("CPU time of both ends (ms per MB)")},
            ),
            Table(
                ["profile", "network", "latency (us)", "CPU time (ms per MB)",
                 "interrupts (1/s)"],
                rows,
            ),
            height=520,
            wide=True,
        )
    ]  # fmt: skip


def _marks(
    name: str,
    index: int,
    shown: dict[str, dict[str, list[float]]],
    rates: dict[str, float],
    most: float,
    group: dict[str, str],
) -> dict[str, Any]:
    members = {profile: row for profile, row in shown.items() if group[profile] == name}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": label(name),
        "x": [median(row[LATENCY]) for row in members.values()],
        "y": [median(row[CPU]) for row in members.values()],
        "text": [label(profile) for profile in members],
        "textposition": "top center",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [rates[profile] for profile in members],
        "marker": {
            "color": PALETTE[index % len(PALETTE)],
            "opacity": 0.7,
            "size": [
                SMALLEST + (LARGEST - SMALLEST) * math.sqrt(rates[profile] / most) if most
                else SMALLEST + 4
                for profile in members
            ],
        },
        "hovertemplate": "%{text}: %{x:.4g} us, %{y:.3g} ms per MB, %{customdata:.4g} interrupts "
        f"per second<extra>{label(name)}</extra>",
    }  # fmt: skip
