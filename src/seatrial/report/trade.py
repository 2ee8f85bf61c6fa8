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
WIDTH, LETTER = 850, (6, 13)  # pixels: of a picture, and of a letter of a mark's name
#: where a name may be: to the right of its mark and above it, or the opposite
SIDES = {
    "top center": (0, 1), "bottom center": (0, -1), "middle right": (1, 0), "middle left": (-1, 0),
    "top right": (1, 1), "bottom right": (1, -1), "top left": (-1, 1), "bottom left": (-1, -1),
}  # fmt: skip

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
    names = [label(profile) for members in groups.values() for profile in members]
    sizes = [_size(row, most) for row in shown]
    height = 320 if len(shown) <= 6 else 420
    places = iter(_places(shown, names, sizes, height))
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
            wide=len(shown) > 6,
        )
    ]


def _interrupts(row: Mapping[str, Cost]) -> float:
    return row[INTERRUPTS].value if INTERRUPTS in row else 0.0


def _size(row: Mapping[str, Cost], most: float) -> float:
    if not most:
        return SMALLEST + 4
    return SMALLEST + (LARGEST - SMALLEST) * math.sqrt(_interrupts(row) / most)


def _places(
    shown: Sequence[Mapping[str, Cost]], names: Sequence[str], sizes: Sequence[float], height: int
) -> list[str]:
    """Where the name of each mark is, in Plotly's words: the first side where it hides no other.

    In the pixels of a picture of usual width. If each side hides one, the side that hides least.
    """
    logs = [math.log(row[LATENCY].value) for row in shown]
    costs = [row[CPU].value for row in shown]
    across = WIDTH / (max(logs) - min(logs) or 1)
    up = height * 0.6 / (max(costs) or 1)
    marks = [(log * across, cost * up) for log, cost in zip(logs, costs, strict=True)]
    taken = [
        (x - size / 2, y - size / 2, x + size / 2, y + size / 2)
        for (x, y), size in zip(marks, sizes, strict=True)
    ]
    axis = min(x for x, _ in marks) - 0.06 * WIDTH
    taken.append((-math.inf, -math.inf, axis, math.inf))
    places = []
    for (x, y), size, name in zip(marks, sizes, names, strict=True):
        width, away = LETTER[0] * len(name), size / 2
        boxes = {}
        for place, (right, above) in SIDES.items():
            middle_x = x + right * (away + width / 2 if not above else width / 2)
            middle_y = y + above * (away + LETTER[1] / 2)
            boxes[place] = (
                middle_x - width / 2, middle_y - LETTER[1] / 2,
                middle_x + width / 2, middle_y + LETTER[1] / 2,
            )  # fmt: skip
        hidden = {
            place: sum(_shared(box, other) for other in taken) for place, box in boxes.items()
        }
        best = min(SIDES, key=lambda place: hidden[place])
        places.append(best)
        taken.append(boxes[best])
    return places


Box = tuple[float, float, float, float]  # left, bottom, right, top


def _shared(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
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
