"""The trade-off of the NIC profiles as one chart: latency, processor time, interrupts.

A profile with low latency costs interrupts and processor time; a profile that saves them has a
higher latency. The chart needs two profiles for which both the latency (NetPIPE) and the cost (a
TCP stream) were measured. The figures are those of ``seatrial.analysis.profile_cost``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.analysis.profile_cost import CPU, Cost, ProfileCosts
from seatrial.report.figures import PALETTE, Figure, Table, axes, label, log_range, titled
from seatrial.report.text import amount, number

LATENCY, INTERRUPTS = "latency_us", "interrupts_per_s"
SMALLEST, LARGEST = 9.0, 46.0  # diameter of a mark in pixels

Rows = Mapping[str, Mapping[str, Cost]]  # of a hardware: profile -> metric -> cost


def trade_figures(costs: Sequence[ProfileCosts]) -> list[Figure]:
    """A mark per profile: latency and CPU time of a stream; its area is the interrupt rate.

    The colour is the network under test with its driver. Empty if fewer than two profiles have
    both figures.
    """
    groups: dict[str, Rows] = {
        one.hardware: {
            profile: row
            for profile, row in one.costs.items()
            if LATENCY in row and CPU in row and row[LATENCY].value > 0
        }
        for one in costs
    }
    groups = {name: members for name, members in groups.items() if members}
    shown = [row for members in groups.values() for row in members.values()]
    if len(shown) < 2:
        return []
    most = max(map(_interrupts, shown))
    data = [
        _marks(name, index, members, most) for index, (name, members) in enumerate(groups.items())
    ]
    rows = [
        [profile, name, *(amount(row[key].value, row[key].unit) if key in row else "–"
                          for key in (LATENCY, CPU, INTERRUPTS))]
        for name, members in groups.items()
        for profile, row in members.items()
    ]  # fmt: skip
    areas = (
        f"The area of a mark is the interrupts per second of an interface, at most {number(most)}."
        if most
        else "The kernel attributes no interrupts to these interfaces, so all marks are equal."
    )
    return [
        Figure(
            "trade",
            "Processor time against latency of the NIC profiles",
            f"Latency of NetPIPE's smallest message over TCP, and processor time of both ends of a "
            f"TCP stream per MB; medians. Lower is better on both axes. {areas}",
            data,
            axes(
                {**log_range([row[LATENCY].value for row in shown]), **titled("latency (us)")},
                {"rangemode": "tozero", **titled("processor time (ms/MB)")},
                showlegend=len(groups) > 1,
            ),
            Table(["profile", "network", "latency", "processor time", "interrupts"], rows),
            wide=len(shown) > 6,
        )
    ]


def _interrupts(row: Mapping[str, Cost]) -> float:
    return row[INTERRUPTS].value if INTERRUPTS in row else 0.0


def _marks(name: str, index: int, members: Rows, most: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": label(name),
        "x": [row[LATENCY].value for row in members.values()],
        "y": [row[CPU].value for row in members.values()],
        "text": [label(profile) for profile in members],
        "textposition": "top center",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [_interrupts(row) for row in members.values()],
        "marker": {
            "color": PALETTE[index % len(PALETTE)],
            "opacity": 0.7,
            "size": [
                SMALLEST + (LARGEST - SMALLEST) * math.sqrt(_interrupts(row) / most) if most
                else SMALLEST + 4
                for row in members.values()
            ],
        },
        "hovertemplate": "%{text}: %{x:.4g} us, %{y:.3g} ms per MB, %{customdata:.4g} interrupts "
        f"per second<extra>{label(name)}</extra>",
    }  # fmt: skip
