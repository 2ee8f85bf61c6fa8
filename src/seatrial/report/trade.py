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
#: of a picture of few profiles and of more, in pixels: its height, and how far its marks are apart
FEW, MANY = (320, 350), (420, 850)
LETTER = (6, 13)  # width and height in pixels, in the name of a mark
#: where a name may be: to the right of its mark and above it, or the opposite
SIDES = {
    "top center": (0, 1), "bottom center": (0, -1), "middle right": (1, 0), "middle left": (-1, 0),
    "top right": (1, 1), "bottom right": (1, -1), "top left": (-1, 1), "bottom left": (-1, -1),
}  # fmt: skip

Rows = Mapping[str, Mapping[str, Cost]]  # of a hardware: profile -> metric -> cost
Box = tuple[float, float, float, float]  # left, bottom, right, top


def trade_figures(costs: Sequence[ProfileCosts]) -> list[Figure]:
    """A mark per profile: latency and CPU time of a stream; its area is the interrupt rate.

    The colour is the network under test with its driver. Empty if fewer than two profiles have
    both figures.
    """
    groups: dict[str, Rows] = {
        cost.hardware: {
            profile: row
            for profile, row in cost.costs.items()
            if LATENCY in row and CPU in row and row[LATENCY].value > 0
        }
        for cost in costs
    }
    groups = {name: members for name, members in groups.items() if members}
    shown = [row for members in groups.values() for row in members.values()]
    if len(shown) < 2:
        return []
    most = max(map(_interrupts, shown))
    names = [label(profile) for members in groups.values() for profile in members]
    sizes = [_size(row, most) for row in shown]
    wide = len(shown) > 6
    height, width = MANY if wide else FEW
    places = iter(_places(shown, names, sizes, height, width))
    data = [
        _marks(name, index, members, most, [next(places) for _ in members])
        for index, (name, members) in enumerate(groups.items())
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
            height=height,
            wide=wide,
        )
    ]


def _interrupts(row: Mapping[str, Cost]) -> float:
    return row[INTERRUPTS].value if INTERRUPTS in row else 0.0


def _size(row: Mapping[str, Cost], most: float) -> float:
    if not most:
        return SMALLEST + 4
    return SMALLEST + (LARGEST - SMALLEST) * math.sqrt(_interrupts(row) / most)


def _places(
    shown: Sequence[Mapping[str, Cost]],
    names: Sequence[str],
    sizes: Sequence[float],
    height: int,
    width: int,
) -> list[str]:
    """Where the name of each mark is, in Plotly's words: the first side where it hides nothing.

    ``sizes`` of the marks, ``height`` and ``width`` (see ``FEW``) in pixels. If each side hides a
    mark or a name, the side that hides least.
    """
    logs = [math.log(row[LATENCY].value) for row in shown]
    costs = [row[CPU].value for row in shown]
    across = width / (max(logs) - min(logs) or 1)
    up = height * 0.6 / (max(costs) or 1)
    marks = [(log * across, cost * up) for log, cost in zip(logs, costs, strict=True)]
    taken = [
        (x - size / 2, y - size / 2, x + size / 2, y + size / 2)
        for (x, y), size in zip(marks, sizes, strict=True)
    ]
    axis = min(x for x, _ in marks) - 0.06 * width
    taken.append((-math.inf, -math.inf, axis, math.inf))
    places = []
    for (x, y), size, name in zip(marks, sizes, names, strict=True):
        half_x, half_y = LETTER[0] * len(name) / 2, LETTER[1] / 2
        boxes = {}
        for place, (right, above) in SIDES.items():
            middle_x = x + right * (half_x + (0 if above else size / 2))
            middle_y = y + above * (half_y + size / 2)
            boxes[place] = (
                middle_x - half_x, middle_y - half_y, middle_x + half_x, middle_y + half_y
            )  # fmt: skip
        hidden = {
            place: sum(_shared(box, other) for other in taken) for place, box in boxes.items()
        }
        best = min(SIDES, key=lambda place: hidden[place])
        places.append(best)
        taken.append(boxes[best])
    return places


def _shared(box: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(0.0, width) * max(0.0, height)


def _marks(
    name: str, index: int, members: Rows, most: float, places: Sequence[str]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": label(name),
        "x": [row[LATENCY].value for row in members.values()],
        "y": [row[CPU].value for row in members.values()],
        "text": [label(profile) for profile in members],
        "textposition": list(places),
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [_interrupts(row) for row in members.values()],
        "marker": {
            "color": PALETTE[index % len(PALETTE)],
            "opacity": 0.7,
            "size": [_size(row, most) for row in members.values()],
        },
        "hovertemplate": "%{text}: %{x:.4g} us, %{y:.3g} ms per MB, %{customdata:.4g} interrupts "
        f"per second<extra>{label(name)}</extra>",
    }  # fmt: skip
