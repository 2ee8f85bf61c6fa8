"""Charts over message size: of transports and profiles, and of links and nodes with outliers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from seatrial.report.figures import (
    DASHES,
    MARKERS,
    PALETTE,
    Figure,
    Keys,
    Style,
    Table,
    axes,
    label,
    log_ticks,
    spread_text,
    titled,
)
from seatrial.report.text import message_size, number
from seatrial.results.locations import Locations
from seatrial.results.record import Case, Curve, Run

OUTLIER = 1.2  # a curve this many times worse than the median curve is an outlier
WORSE = {"latency": 1, "time": 1, "bandwidth": -1}  # of a curve: 1: upwards, -1: downwards
OUTLIERS = 7  # outliers that are drawn


def split_location(name: str, locations: Locations) -> tuple[str, str]:
    """Name and location of a curve: ``netpipe n1-n2`` gives ``("netpipe", "n1-n2")``.

    The location is "" for a curve of the case as a whole.
    """
    base, _, last = name.rpartition(" ")
    return (base, last) if base and locations.nodes_of(last) else (name, "")


def curve_figures(runs: Iterable[Run], keys: Keys) -> list[Figure]:
    """One figure per check, number of nodes and curve, with a line per transport and profile.

    Both axes are logarithmic, so points that are not positive and finite are omitted; the caption
    gives their number. Curves of a location are those of ``location_figures``.
    """
    listed = list(runs)
    locations = Locations(listed)
    groups: dict[tuple[Any, ...], dict[Case, dict[float, list[float]]]] = {}
    dropped: dict[tuple[Any, ...], int] = {}
    for run in listed:
        for curve in run.curves:
            if split_location(curve.name, locations)[1]:
                continue
            # Many profiles belong to several interfaces: each interface has a figure of its own.
            network = run.hardware if keys.many else ""
            key = (
                *(network, run.case.check, run.case.variant, run.case.nodes, curve.name),
                *(curve.y_name, curve.y_unit, curve.x_name, curve.x_unit),
            )
            line = groups.setdefault(key, {}).setdefault(run.case, {})
            dropped[key] = dropped.get(key, 0) + _add_points(line, curve)
    figures = []
    for index, (key, lines) in enumerate(groups.items()):
        lines = {case: points for case, points in lines.items() if points}
        if lines:
            figures.append(_curve_figure(f"curve-{index}", key, lines, dropped[key], keys))
    return figures


def _add_points(line: dict[float, list[float]], curve: Curve) -> int:
    """Add the points that a logarithmic axis can show; return the number of the others."""
    good = [(x, y) for x, y in curve.points if 0 < x < math.inf and 0 < y < math.inf]
    for x, y in good:
        line.setdefault(x, []).append(y)
    return len(curve.points) - len(good)


def _curve_figure(
    id: str,
    key: tuple[Any, ...],
    lines: dict[Case, dict[float, list[float]]],
    dropped: int,
    keys: Keys,
) -> Figure:
    network, check, variant, nodes, name, y_name, y_unit, x_name, x_unit = key
    data: list[dict[str, Any]] = []
    seen: set[str] = set()
    profiles = list(dict.fromkeys(case.profile for case in lines))
    panels = keys.panels(list(lines))
    both = len(panels) == 1 and len(profiles) > 1  # a line is named by transport and profile
    for number_of_panel, (_, members) in enumerate(panels):
        for case in members:
            named = _line_name(case, members, keys, both)
            meta = keys.profiles.index(case.profile)  # the profile filter of the page uses it
            traces = _line(
                dict(sorted(lines[case].items())),
                y_unit,
                keys.style(case, members),
                named,
                f"{case.route}, {case.profile}",
                entry=named not in seen,
            )
            data += [{**trace, "meta": meta, **_on_panel(number_of_panel)} for trace in traces]
            seen.add(named)
    sizes = sorted({x for points in lines.values() for x in points})
    ys = [y for points in lines.values() for values in points.values() for y in values]
    label_of = {case: f"{case.route} {case.profile}" for case in lines}
    rows = [
        [message_size(x) if x_unit == "B" else number(x)]
        + [spread_text(points.get(x, [])) for points in lines.values()]
        for x in sizes
    ]
    where = " ".join(part for part in (network, check, variant) if part)
    where += f" {name}" if name not in (check, variant) else ""
    repeats = max(len(values) for points in lines.values() for values in points.values())
    caption = (
        "Median over the repeats; the band is the range from minimum to maximum."
        if repeats > 1
        else ""
    )
    if dropped:
        caption += f" {dropped} points that are not positive numbers are omitted."
    layout, height = _panel_layout(
        _size_axis(sizes, x_name, x_unit), _log_axis(ys, y_name, y_unit), [t for t, _ in panels]
    )
    more = 22 * (math.ceil(len(seen) / (2 if both else 4)) - 1)  # further rows of the legend
    layout["margin"] = {**layout["margin"], "b": layout["margin"]["b"] + more}
    return Figure(
        id,
        f"{where}, {nodes} nodes: {y_name} over {x_name}",
        caption.strip(),
        data,
        layout,
        Table([f"{x_name} ({x_unit})", *(f"{label_of[c]} ({y_unit})" for c in lines)], rows),
        height=height + more,
        wide=len(panels) > 1,
    )


def _line_name(case: Case, members: Sequence[Case], keys: Keys, both: bool) -> str:
    """The name of a line in the legend: what distinguishes it from the others."""
    if both and len({member.route for member in members}) > 1:
        return f"{case.route}, {case.profile}"
    several_profiles = len({member.profile for member in members}) > 1
    return case.profile if keys.many or several_profiles else case.route


def _on_panel(index: int) -> dict[str, str]:
    return {} if index == 0 else {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}


def _size_axis(sizes: Sequence[float], name: str, unit: str) -> dict[str, Any]:
    axis: dict[str, Any] = {"type": "log", **titled(f"{name} ({unit})")}
    if unit == "B":
        ticks = [4**k for k in range(0, 20) if sizes[0] <= 4**k <= sizes[-1]]
        ticks = ticks[:: 1 + len(ticks) // 8]  # more labels overlap in a narrow panel
        axis |= {"tickvals": ticks, "ticktext": [message_size(tick) for tick in ticks]}
    return axis


def _log_axis(values: Sequence[float], name: str, unit: str) -> dict[str, Any]:
    axis: dict[str, Any] = {"type": "log", **titled(f"{name} ({unit})")}
    # Within two decades, ticks at the powers of ten only would leave an axis with one label.
    if max(values) > 100 * min(values):
        return axis | {"dtick": 1, "minor": {"showgrid": True, "gridcolor": "#f1f3f6"}}
    return axis | log_ticks(values)


def _panel_layout(
    x: dict[str, Any], y: dict[str, Any], titles: Sequence[str]
) -> tuple[dict[str, Any], int]:
    """Layout and height of a figure with a panel for each title; all panels have the same axes."""
    if len(titles) == 1:
        return axes(x, y), 420
    layout = axes({}, {})
    columns, frame = 2, layout["xaxis"]
    rows = math.ceil(len(titles) / columns)
    total = 280 * rows + 80
    gap_x, gap_y = 0.06, 62 / total
    width, height = (1 - gap_x) / columns, (1 - gap_y * (rows - 1)) / rows
    notes = []
    for index, title in enumerate(titles):
        row, column = divmod(index, columns)
        left, top = column * (width + gap_x), 1 - row * (height + gap_y)
        suffix = str(index + 1) if index else ""
        own_x: dict[str, Any] = {"anchor": f"y{suffix}", "domain": [left, left + width]}
        own_y: dict[str, Any] = {"anchor": f"x{suffix}", "domain": [max(0.0, top - height), top]}
        if index:
            own_x["matches"], own_y["matches"] = "x", "y"
        if index + columns < len(titles):
            own_x["title"] = {"text": ""}  # the panel below has it
        if column:
            own_y["title"] = {"text": ""}
        layout[f"xaxis{suffix}"] = {**frame, **x, **own_x}
        layout[f"yaxis{suffix}"] = {**frame, **y, **own_y}
        position = {"xref": "paper", "yref": "paper", "x": left, "y": top}
        anchors = {"xanchor": "left", "yanchor": "bottom", "showarrow": False}
        notes.append({"text": f"<b>{label(title)}</b>", **position, **anchors})
    layout["annotations"] = notes
    return layout, total


def _line(
    points: dict[float, list[float]],
    unit: str,
    style: Style,
    name: str,
    full_name: str,
    *,
    entry: bool = True,
) -> list[dict[str, Any]]:
    """A line and, if there are repeats, the band behind it. ``entry``: it is in the legend."""
    colour, dash, marker = style
    xs = list(points)
    low, high = [min(v) for v in points.values()], [max(v) for v in points.values()]
    common = {"type": "scatter", "legendgroup": label(name)}
    traces: list[dict[str, Any]] = []
    if any(len(values) > 1 for values in points.values()):
        traces.append(
            {
                **common,
                "x": xs + xs[::-1],
                "y": high + low[::-1],
                "fill": "toself",
                "fillcolor": colour,
                "opacity": 0.18,
                "mode": "none",
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    traces.append(
        {
            **common,
            "mode": "lines+markers",
            "x": xs,
            "y": [statistics.median(v) for v in points.values()],
            "customdata": [list(pair) for pair in zip(low, high, strict=True)],
            "name": label(name),
            "showlegend": entry,
            "line": {"color": colour, "dash": dash, "width": 1.6},
            "marker": {"symbol": marker, "size": 5},
            "hovertemplate": f"%{{x:,}}: %{{y:.4g}} {label(unit)}"
            "<br>%{customdata[0]:.4g} to %{customdata[1]:.4g}"
            f"<extra>{label(full_name)}</extra>",
        }
    )
    return traces


def location_figures(runs: Iterable[Run], failed: Mapping[Case, Collection[str]]) -> list[Figure]:
    """One figure per case and curve of links or nodes: the distribution, and the outliers.

    ``failed`` are the locations of each case of which a judgement failed. An outlier is one of
    these, or one whose curve is more than ``OUTLIER`` times worse than the median curve of all
    locations; the ``OUTLIERS`` worst are drawn.
    """
    listed = list(runs)
    locations = Locations(listed)
    groups: dict[tuple[Any, ...], dict[str, dict[float, list[float]]]] = {}
    for run in listed:
        for curve in run.curves:
            base, location = split_location(curve.name, locations)
            if location:
                key = (run.case, base, curve.y_name, curve.y_unit, curve.x_name, curve.x_unit)
                _add_points(groups.setdefault(key, {}).setdefault(location, {}), curve)
    figures = []
    for index, (key, lines) in enumerate(groups.items()):
        lines = {location: points for location, points in lines.items() if points}
        if lines:
            bad = {location for location in lines if location in failed[key[0]]}
            figures.append(_location_figure(f"location-{index}", key, lines, bad))
    return figures


def _location_figure(
    id: str, key: tuple[Any, ...], lines: dict[str, dict[float, list[float]]], bad: set[str]
) -> Figure:
    case, base, y_name, y_unit, x_name, x_unit = key
    medians = {
        name: {x: statistics.median(ys) for x, ys in points.items()}
        for name, points in lines.items()
    }
    everywhere: dict[float, list[float]] = {}
    for points in medians.values():
        for x, y in points.items():
            everywhere.setdefault(x, []).append(y)
    everywhere = dict(sorted(everywhere.items()))
    middle = {x: statistics.median(ys) for x, ys in everywhere.items()}
    sign = WORSE.get(y_name, 1)
    distance = {
        name: statistics.median([sign * math.log(y / middle[x]) for x, y in points.items()])
        for name, points in medians.items()
    }
    far = [name for name in lines if name in bad or distance[name] > math.log(OUTLIER)]
    far = sorted(far, key=lambda name: (name not in bad, -distance[name]))[:OUTLIERS]
    kind = "links" if "-" in next(iter(lines)) else "nodes"
    everything = f"median of {len(lines)} {kind}"
    data = _line(everywhere, y_unit, (PALETTE[0], DASHES[0], MARKERS[0]), everything, everything)
    for number_of_line, name in enumerate(far, 1):
        colour, dash, marker = (
            part[number_of_line % len(part)] for part in (PALETTE, DASHES, MARKERS)
        )
        shown = f"{name} ✗" if name in bad else name
        data += _line(
            dict(sorted(lines[name].items())), y_unit, (colour, dash, marker), shown, name
        )[-1:]
    rows = [
        [
            message_size(x) if x_unit == "B" else number(x),
            spread_text(everywhere[x]),
            *(spread_text(lines[name].get(x, [])) for name in far),
        ]
        for x in everywhere
    ]
    outliers = (
        f"{len(far)} outliers have a line of their own; ✗ marks a failed judgement."
        if far
        else f"No {kind[:-1]} is an outlier."
    )
    ys = [y for values in everywhere.values() for y in values]
    layout = axes(_size_axis(list(everywhere), x_name, x_unit), _log_axis(ys, y_name, y_unit))
    more = 22 * (len(far) // 3)  # further rows of the legend
    layout["margin"] = {**layout["margin"], "b": layout["margin"]["b"] + more}
    return Figure(
        id,
        f"{case.id} {base}: {y_name} of {len(lines)} {kind}",
        f"The band is the range over all {kind}. {outliers}",
        data,
        layout,
        Table(
            [f"{x_name} ({x_unit})", f"{everything} ({y_unit})", *(f"{n} ({y_unit})" for n in far)],
            rows,
        ),
        height=420 + more,
    )
