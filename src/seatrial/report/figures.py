"""The charts of report.html as Plotly specifications (``data`` and ``layout``), with tables.

Specifications are plain dictionaries, because ``plotly.graph_objects`` takes a second to import;
the tests check them against Plotly's schema. Every chart has a table of its numbers, for readers
without JavaScript.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.report.text import check_name, clean, message_size, number
from seatrial.results.locations import Locations, natural
from seatrial.results.record import Case, Curve, Run

# The colours of Okabe and Ito, which colour-blind readers can distinguish, plus black and grey.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#7f7f7f"]
DASHES = ["solid", "dash", "dot", "longdash", "dashdot", "longdashdot"]
LINES = 8  # of a panel: as many as there are colours
MARKERS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down"]

OUTLIER = 1.2  # a curve this many times from the median curve is an outlier
OUTLIERS = 7  # outliers that are drawn
BARS = 64  # nodes of a figure; of more, those farthest from the median are drawn
_NAMED = "<extra>%{fullData.name}</extra>"  # a hover's side box, with the trace's name


@dataclass
class Table:
    """The numbers of a figure. The first cell of a row is its header."""

    header: list[str]
    rows: list[list[str]]


@dataclass
class Figure:
    id: str
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    table: Table
    height: int = 420
    wide: bool = False


Style = tuple[str, str, str]  # colour, dash, marker


@dataclass
class Keys:
    """The colour of each transport and the dash of each profile, the same in every figure.

    Readers can distinguish few lines. A figure of more than ``LINES`` has several panels, and each
    line of a panel differs from the others in colour, dash and marker. If a trial has more
    profiles than dashes, the profiles have the colours.
    """

    transports: list[str]
    profiles: list[str]
    colours: dict[str, str] = field(init=False)
    many: bool = field(init=False)  # profiles have colours

    def __post_init__(self) -> None:
        self.colours = {t: PALETTE[i % len(PALETTE)] for i, t in enumerate(self.transports)}
        self.many = len(self.profiles) > len(DASHES)

    def marker(self, profile: str) -> str:
        return MARKERS[self.profiles.index(profile) % len(MARKERS)]

    def panels(self, cases: Sequence[Case]) -> list[tuple[str, list[Case]]]:
        """The lines of a figure in panels of at most ``LINES`` each, with a title each."""
        if len(cases) <= LINES:
            return [("", list(cases))]
        parts: dict[str, list[Case]] = {}
        for case in cases:
            parts.setdefault(case.transport if self.many else case.profile, []).append(case)
        return [
            (name, members[start : start + LINES])
            for name, members in parts.items()
            for start in range(0, len(members), LINES)
        ]

    def style(self, case: Case, panel: Sequence[Case]) -> Style:
        """Colour, dash and marker of a line among those of its panel."""
        transport, profile = (
            self.transports.index(case.transport),
            self.profiles.index(case.profile),
        )
        one_transport = len({one.transport for one in panel}) == 1
        one_profile = len({one.profile for one in panel}) == 1
        colour = profile if (self.many or one_transport) and not one_profile else transport
        other = colour if one_transport or one_profile else transport + profile - colour
        if one_transport and self.many:
            colour = other = list(panel).index(case)
        return (
            PALETTE[colour % len(PALETTE)],
            DASHES[other % len(DASHES)],
            MARKERS[other % len(MARKERS)],
        )


def keys_of(cases: Iterable[Case]) -> Keys:
    """The keys of all cases of a trial, in the order of the cases."""
    listed = list(cases)
    transports = list(dict.fromkeys(case.transport for case in listed))
    return Keys(transports, list(dict.fromkeys(case.profile for case in listed)))


def label(text: str) -> str:
    """``text`` escaped for Plotly, which interprets ``<b>`` and ``%{x}`` in every string."""
    return html.escape(clean(text)).replace("%{", "%&#123;").replace("$", "&#36;")


def axes(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    axis = {"gridcolor": "#e3e7ec", "linecolor": "#5b6673", "zeroline": False, "automargin": True}
    return {
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1a222c"},
        "margin": {"l": 64, "r": 24, "t": 36, "b": 84},
        # At the bottom of the figure, whatever its height: paper has other heights.
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        **more,
    }


def titled(text: str) -> dict[str, Any]:
    return {"title": {"text": label(text)}}


def log_ticks(values: Iterable[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten around ``values`` > 0.

    Empty if fewer than two of them lie between the values: Plotly then chooses the ticks.
    """
    listed = list(values)
    low, high = math.floor(math.log10(min(listed))), math.ceil(math.log10(max(listed)))
    at = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
    if sum(min(listed) <= tick <= max(listed) for tick in at) < 2:
        return {}
    return {"tickvals": at, "ticktext": [number(tick) for tick in at]}


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def spread_text(values: Sequence[float]) -> str:
    """The median; with the minimum and the maximum if they differ."""
    if not values:
        return "–"
    middle, low, high = map(number, (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


# --- curves ---------------------------------------------------------------------------------


def network_and_driver(run: Run) -> str:
    """The network under test and its driver on record, such as ``igb (driver igb)``."""
    network = run.path.network if run.path else "?"
    drivers = {
        str(state["before"]["driver"])
        for interfaces in run.nic.values()
        if isinstance(interfaces, dict)
        for state in interfaces.values()
        if isinstance(state, dict)
        and isinstance(state.get("before"), dict)
        and state["before"].get("network") == network
        and state["before"].get("driver")
    }
    return f"{network} (driver {', '.join(sorted(drivers))})" if drivers else network


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
            network = network_and_driver(run) if keys.many else ""
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
                f"{case.transport}, {case.profile}",
                entry=named not in seen,
            )
            data += [{**trace, "meta": meta, **_on_panel(number_of_panel)} for trace in traces]
            seen.add(named)
    sizes = sorted({x for points in lines.values() for x in points})
    ys = [y for points in lines.values() for values in points.values() for y in values]
    label_of = {case: f"{case.transport} {case.profile}" for case in lines}
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
    if both and len({one.transport for one in members}) > 1:
        return f"{case.transport}, {case.profile}"
    several_profiles = len({one.profile for one in members}) > 1
    return case.profile if keys.many or several_profiles else case.transport


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


def location_figures(runs: Iterable[Run], failed: Collection[tuple[Case, str]]) -> list[Figure]:
    """One figure per case and curve of links or nodes: the distribution, and the outliers.

    ``failed`` are the locations of which a judgement failed. An outlier is one of these, or one
    whose curve is farther than ``OUTLIER`` times from the median curve of all locations; the
    ``OUTLIERS`` farthest are drawn.
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
            bad = {location for location in lines if (key[0], location) in failed}
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
    distance = {
        name: statistics.median([abs(math.log(y / middle[x])) for x, y in points.items()])
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


# --- bars -----------------------------------------------------------------------------------


def samples(runs: Iterable[Run], check: str | None = None) -> dict[Case, dict[str, list[float]]]:
    """Finite values of each metric of a case as a whole: ``{case: {metric: values}}``."""
    values: dict[Case, dict[str, list[float]]] = {}
    for run in runs:
        if check is not None and run.case.check != check:
            continue
        for metric in run.metrics:
            if metric.location is None and math.isfinite(metric.value):
                of_case = values.setdefault(run.case, {})
                of_case.setdefault(metric.metric, []).append(metric.value)
    return values


def _error_bars(values: list[list[float]], middle: Sequence[float] | None = None) -> dict[str, Any]:
    """Bars from minimum to maximum about ``middle``, by default the medians."""
    if middle is None:
        middle = [statistics.median(v) for v in values]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(v) - m for v, m in zip(values, middle, strict=True)],
        "arrayminus": [m - min(v) for v, m in zip(values, middle, strict=True)],
        "thickness": 1,
        "color": "#1a222c",
    }


def _gap(groups: int) -> float:
    """The gap between groups of bars; it keeps a single bar from filling the figure."""
    return max(0.2, 0.85 - 0.12 * groups)


def hpl_figures(runs: Iterable[Run], keys: Keys) -> list[Figure]:
    """GFLOPS per BLAS and transport; each bar shows its percentage of the DGEMM peak."""
    measured = {c: m for c, m in samples(runs, "hpl").items() if m.get("hpl_GFLOPS")}
    figures = []
    for nodes in dict.fromkeys(case.nodes for case in measured):
        cases = {case: m for case, m in measured.items() if case.nodes == nodes}
        several = len({case.profile for case in cases}) > 1
        data = []
        for transport in dict.fromkeys(case.transport for case in cases):
            bars = {case: m for case, m in cases.items() if case.transport == transport}
            blas = [label(case.variant or "hpl") for case in bars]
            values = [m["hpl_GFLOPS"] for m in bars.values()]
            percents = [m.get("hpl_percent_of_dgemm", []) for m in bars.values()]
            data.append(
                {
                    "type": "bar",
                    "name": label(transport),
                    "x": [[label(case.profile) for case in bars], blas] if several else blas,
                    "y": [statistics.median(v) for v in values],
                    "error_y": _error_bars(values),
                    "text": [f"{statistics.median(p):.0f} %" if p else "" for p in percents],
                    "textposition": "auto",
                    "insidetextanchor": "start",
                    "constraintext": "none",
                    "textangle": -90 if len(cases) > 12 else 0,
                    "marker": {"color": keys.colours[transport]},
                    "hovertemplate": "%{y:.4g} GFLOPS, %{text} of DGEMM" + _NAMED,
                }
            )
        names = ["hpl_GFLOPS", "dgemm_GFLOPS", "hpl_percent_of_dgemm"]
        rows = [
            [case.variant or "hpl", case.transport, case.profile]
            + [spread_text(m.get(name, [])) for name in names]
            for case, m in cases.items()
        ]
        figures.append(
            Figure(
                f"hpl-{nodes}",
                f"HPL on {nodes} nodes, per BLAS and transport",
                "The percentage in each bar is relative to the DGEMM peak of the same BLAS. "
                "Error bars: minimum and maximum over the repeats.",
                data,
                axes(
                    {"type": "multicategory" if several else "category", **titled("BLAS")},
                    {"rangemode": "tozero", **titled("HPL (GFLOPS)")},
                    barmode="group",
                    # Under the axis it would lie on the two rows of labels.
                    legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
                    margin={"l": 64, "r": 24, "t": 60, "b": 56},
                ),
                Table(["BLAS", "transport", "profile", *names], rows),
                wide=True,
            )
        )
    return figures


def cpu_figures(runs: Iterable[Run], keys: Keys) -> list[Figure]:
    """CPU use at both ends over bandwidth, interrupts and softirqs, of check ``tcp_stream``."""
    listed = [run for run in runs if run.case.check == "tcp_stream"]
    measured = {case: m for case, m in samples(listed).items() if m.get("bandwidth_MB_s")}
    ends = {"cpu_sender_percent": "sender", "cpu_receiver_percent": "receiver"}
    data = []
    for (metric, end), hollow in zip(ends.items(), (False, True), strict=True):
        cases = {case: m for case, m in measured.items() if m.get(metric)}
        if not cases:
            continue
        marks = [keys.marker(case.profile) + ("-open" if hollow else "") for case in cases]
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": end,
                "x": [statistics.median(m["bandwidth_MB_s"]) for m in cases.values()],
                "y": [statistics.median(m[metric]) for m in cases.values()],
                "error_x": _error_bars([m["bandwidth_MB_s"] for m in cases.values()]),
                "error_y": _error_bars([m[metric] for m in cases.values()]),
                "text": [label(_stream_name(case)) for case in cases],
                "textposition": "top center" if hollow else "bottom center",
                "cliponaxis": False,
                "marker": {
                    "symbol": marks,
                    "size": 11,
                    "color": "#a33b00" if hollow else "#0072b2",
                },
                "hovertemplate": "%{text}: %{y:.3g} % at %{x:.4g} MB/s" + _NAMED,
            }
        )
    rows = [
        [_stream_name(case), *(spread_text(m.get(name, [])) for name in ("bandwidth_MB_s", *ends))]
        for case, m in measured.items()
    ]
    figures = []
    if data:
        figures.append(
            Figure(
                "cpu",
                "CPU use at both ends of a TCP stream, over bandwidth",
                "Two marks per profile: filled for the sender, hollow for the receiver.",
                data,
                axes(
                    {"rangemode": "tozero", **titled("bandwidth (MB/s)")},
                    {"rangemode": "tozero", **titled("CPU use (%)")},
                ),
                Table(["profile", "bandwidth_MB_s", *ends], rows),
            )
        )
    return [*figures, *_interrupt_figure(listed), *_softirq_figure(listed)]


def _stream_name(case: Case) -> str:
    """A short name of a TCP stream case: usually its profile alone."""
    return " ".join(part for part in (case.profile, case.variant) if part)


def interrupt_rates(run: Run) -> dict[tuple[str, str], float]:
    """Interrupts per second by (node, interface), over the benchmark's wall time."""
    seconds = run.job.benchmark_s
    if run.path is None or not seconds or not math.isfinite(seconds) or seconds < 0:
        return {}
    counters = [counter for counter in run.path.counters if counter.interrupts is not None]
    return {(c.node, c.interface): (c.interrupts or 0) / seconds for c in counters}


def _interrupt_figure(runs: list[Run]) -> list[Figure]:
    rates: dict[str, dict[Case, list[float]]] = {}
    for run in runs:
        for (node, interface), rate in interrupt_rates(run).items():
            by_case = rates.setdefault(f"{node} {interface}", {})
            by_case.setdefault(run.case, []).append(rate)
    if not rates:
        return []
    data = [
        {
            "type": "bar",
            "name": label(location),
            "x": [label(_stream_name(case)) for case in by_case],
            "y": [statistics.median(values) for values in by_case.values()],
            "error_y": _error_bars(list(by_case.values())),
            "hovertemplate": "%{x}: %{y:.4g} per second" + _NAMED,
            "marker": {"color": ("#0072b2", "#a33b00")[i % 2]},
        }
        for i, (location, by_case) in enumerate(rates.items())
    ]
    rows = [
        [_stream_name(case), location, spread_text(values)]
        for location, by_case in rates.items()
        for case, values in by_case.items()
    ]
    return [
        Figure(
            "interrupts",
            "Interrupts per second during the TCP stream",
            "Counted by the kernel for each interface, over the wall time of the benchmark.",
            data,
            axes(
                {"type": "category", **titled("profile")},
                {"rangemode": "tozero", **titled("interrupts (1/s)")},
                barmode="group",
                bargap=_gap(max(len(by_case) for by_case in rates.values())),
            ),
            Table(["profile", "interface", "interrupts per second"], rows),
        )
    ]


def _softirq_figure(runs: list[Run]) -> list[Figure]:
    """How often the kernel processed received frames, and its processor time for that."""
    rates: dict[Case, list[float]] = {}
    shares: dict[Case, list[float]] = {}
    for run in runs:
        for activity in run.activity:
            rate, share = activity.net_rx_per_s, activity.softirq_percent
            for values, value in ((rates, rate), (shares, share)):
                if value is not None and math.isfinite(value):
                    values.setdefault(run.case, []).append(value)
    if not rates:
        return []
    data = [
        {
            "type": "bar",
            "x": [label(_stream_name(case)) for case in rates],
            "y": [statistics.median(values) for values in rates.values()],
            "error_y": _error_bars(list(rates.values())),
            "text": [
                f"{statistics.median(shares[case]):.0f} %" if case in shares else ""
                for case in rates
            ],
            "textposition": "auto",
            "insidetextanchor": "start",
            "hovertemplate": "%{x}: %{y:.4g} per second<extra></extra>",
            "marker": {"color": "#0072b2"},
        }
    ]
    rows = [
        [_stream_name(case), spread_text(values), spread_text(shares.get(case, []))]
        for case, values in rates.items()
    ]
    return [
        Figure(
            "softirqs",
            "NET_RX softirqs per second during the TCP stream",
            "The percentage in each bar is the processor time in softirqs, of one core. The "
            "kernel counts both. Error bars: minimum and maximum over both ends and all repeats.",
            data,
            axes(
                {"type": "category", **titled("profile")},
                {"rangemode": "tozero", **titled("NET_RX softirqs (1/s)")},
                bargap=_gap(len(rates)),
                showlegend=False,
            ),
            Table(["profile", "NET_RX softirqs per second", "softirq (% of a core)"], rows),
        )
    ]


def node_figures(
    values: dict[tuple[str, str, str], dict[Case, dict[str, list[float]]]],
    failed: Collection[tuple[Case, str, str]],
    keys: Keys,
    judged: Mapping[tuple[Case, str, str], float] | None = None,
) -> list[Figure]:
    """Bars per node. ``values`` is by (check, metric, unit), then case, then node.

    ``judged`` are the values of the judgements by (case, metric, node): a bar shows that value,
    so that it is the one of the finding; without a judgement it shows the median. A bar whose
    judgement failed is hatched and labelled, because colour stands for the transport.
    """
    figures = []
    for index, ((_, metric, unit), cases) in enumerate(values.items()):
        data, rows = [], []
        first = next(iter(cases))
        variants = len({case.variant for case in cases}) > 1
        most = max(len(nodes) for nodes in cases.values())
        for case, all_nodes in cases.items():
            height = {
                node: (judged or {}).get((case, metric, node), statistics.median(v))
                for node, v in all_nodes.items()
            }
            bad = {node for node in all_nodes if (case, metric, node) in failed}
            nodes = {node: all_nodes[node] for node in _shown_nodes(height, bad)}
            name = f"{case.transport}, {case.profile}"
            name = f"{case.variant}, {name}" if variants and case.variant else name
            data.append(
                {
                    "type": "bar",
                    "name": label(name),
                    "x": [label(node) for node in nodes],
                    "y": [height[node] for node in nodes],
                    "error_y": _error_bars(list(nodes.values()), [height[node] for node in nodes]),
                    "text": ["✗ fail" if node in bad else "" for node in nodes],
                    "textposition": "outside",
                    "textfont": {"color": "#a61b1b"},
                    "cliponaxis": False,
                    "marker": {
                        "color": [
                            "#b3261e" if node in bad else keys.colours[case.transport]
                            for node in nodes
                        ],
                        "pattern": {
                            "shape": ["/" if node in bad else "" for node in nodes],
                            "fillmode": "overlay",
                            "fgcolor": "#ffffff",
                            "solidity": 0.25,
                        },
                    },
                    "hovertemplate": f"%{{x}}: %{{y:.4g}} {label(unit)}{_NAMED}",
                }
            )
            rows += [[node, name, spread_text(v)] for node, v in nodes.items()]
            if len(nodes) < len(all_nodes):
                rows.append([f"all {len(all_nodes)}", name, spread_text(list(height.values()))])
        some = f" The {BARS} of {most} nodes farthest from the median." if most > BARS else ""
        figures.append(
            Figure(
                f"nodes-{index}",
                f"{first.check if variants else check_name(first)}: {metric} per node",
                "Failed nodes are hatched. Error bars: minimum and maximum over the repeats."
                + some,
                data,
                axes(
                    {"type": "category", **titled("node")},
                    {"rangemode": "tozero", **titled(f"{metric} ({unit})")},
                    barmode="group",
                    bargap=_gap(min(BARS, most)),
                    showlegend=len(data) > 1,
                ),
                Table(["node", "case", f"{metric} ({unit})"], rows),
                height=420 if len(data) > 1 else 340,
                wide=most > 16,
            )
        )
    return figures


def _shown_nodes(height: Mapping[str, float], bad: Collection[str]) -> list[str]:
    """All nodes; of many, those that failed and those farthest from the median."""
    if len(height) <= BARS:
        return list(height)
    middle = statistics.median(height.values())
    ranked = sorted(height, key=lambda node: (node not in bad, -abs(height[node] - middle)))
    return sorted(ranked[:BARS], key=natural)
