"""The charts of report.html as Plotly specifications (``data`` and ``layout``), with tables.

Specifications are plain dictionaries, because ``plotly.graph_objects`` takes a second to import;
the tests check them against Plotly's schema. Every chart has a table of its numbers, for readers
without JavaScript.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.report.text import check_name, clean, message_size, number
from seatrial.results.record import Case, Run

# The colours of Okabe and Ito, which colour-blind readers can distinguish, plus black and grey.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#7f7f7f"]
DASHES = ["solid", "dash", "dot", "longdash", "dashdot", "longdashdot"]
MARKERS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down"]

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


@dataclass
class Keys:
    """The colour of each transport and the dash of each profile, the same in every figure.

    Readers can distinguish few dashes. If a trial has more profiles than dashes, the profiles
    have colours and the transports have dashes.
    """

    transports: list[str]
    profiles: list[str]
    colours: dict[str, str] = field(init=False)
    dashes: dict[str, str] = field(init=False)
    markers: dict[str, str] = field(init=False)
    many: bool = field(init=False)  # profiles have colours, transports have dashes

    def line(self, case: Case, profiles: Sequence[str]) -> tuple[str, str]:
        """Colour and dash of a case's line in a figure that shows these profiles."""
        if not self.many:
            return self.colours[case.transport], self.dashes[case.profile]
        number = list(profiles).index(case.profile)
        dash = DASHES[self.transports.index(case.transport) % len(DASHES)]
        return PALETTE[number % len(PALETTE)], dash

    def __post_init__(self) -> None:
        self.colours = {t: PALETTE[i % len(PALETTE)] for i, t in enumerate(self.transports)}
        self.dashes = {p: DASHES[i % len(DASHES)] for i, p in enumerate(self.profiles)}
        self.many = len(self.profiles) > len(DASHES)
        self.markers = {p: MARKERS[i % len(MARKERS)] for i, p in enumerate(self.profiles)}


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
        "margin": {"l": 64, "r": 24, "t": 36, "b": 56},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        **more,
    }


def titled(text: str) -> dict[str, Any]:
    return {"title": {"text": label(text)}}


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def spread_text(values: Sequence[float]) -> str:
    """The median; with the minimum and the maximum if there are several values."""
    if not values:
        return "–"
    middle = number(statistics.median(values))
    return (
        middle if len(values) < 2 else f"{middle} ({number(min(values))} to {number(max(values))})"
    )


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


def curve_figures(runs: Iterable[Run], keys: Keys) -> list[Figure]:
    """One figure per check, number of nodes and curve, with a line per transport and profile.

    Both axes are logarithmic, so points that are not positive and finite are omitted; the caption
    gives their number.
    """
    groups: dict[tuple[Any, ...], dict[Case, dict[float, list[float]]]] = {}
    dropped: dict[tuple[Any, ...], int] = {}
    for run in runs:
        for curve in run.curves:
            # Many profiles belong to several interfaces: each interface has a figure of its own.
            network = network_and_driver(run) if keys.many else ""
            key = (
                *(network, run.case.check, run.case.variant, run.case.nodes, curve.name),
                *(curve.y_name, curve.y_unit, curve.x_name, curve.x_unit),
            )
            line = groups.setdefault(key, {}).setdefault(run.case, {})
            for x, y in curve.points:
                if math.isfinite(x) and math.isfinite(y) and x > 0 and y > 0:
                    line.setdefault(x, []).append(y)
                else:
                    dropped[key] = dropped.get(key, 0) + 1
    figures = []
    for index, (key, lines) in enumerate(groups.items()):
        lines = {case: points for case, points in lines.items() if points}
        if lines:
            figures.append(_curve_figure(f"curve-{index}", key, lines, dropped.get(key, 0), keys))
    return figures


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
    for case, points in lines.items():
        named = case.profile if keys.many else case.transport
        style = keys.line(case, profiles)
        data += _line(
            case, dict(sorted(points.items())), y_unit, keys, style, "" if named in seen else named
        )
        seen.add(named)
    if len(profiles) > 1 and not keys.many:
        # Entries of the legend only, for the dashes. Those of the transports show the colours.
        data += [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [None],
                "y": [None],
                "name": label(f"profile {profile}"),
                "line": {"color": "#5b6673", "dash": keys.dashes[profile]},
                "marker": {"symbol": keys.markers[profile], "size": 6},
                "legendgroup": label(f"profile {profile}"),
                "hoverinfo": "skip",
            }
            for profile in profiles
        ]
    sizes = sorted({x for points in lines.values() for x in points})
    x_axis: dict[str, Any] = {"type": "log", **titled(f"{x_name} ({x_unit})")}
    if x_unit == "B":
        ticks = [4**k for k in range(0, 20) if sizes[0] <= 4**k <= sizes[-1]]
        x_axis |= {"tickvals": ticks, "ticktext": [message_size(tick) for tick in ticks]}
    y_axis = {"type": "log", "dtick": 1, **titled(f"{y_name} ({y_unit})")}
    y_axis["minor"] = {"showgrid": True, "gridcolor": "#f1f3f6"}
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
    return Figure(
        id,
        f"{where}, {nodes} nodes: {y_name} over {x_name}",
        caption.strip(),
        data,
        axes(x_axis, y_axis),
        Table([f"{x_name} ({x_unit})", *(f"{label_of[c]} ({y_unit})" for c in lines)], rows),
        height=440 + 20 * ((len(seen) + (0 if keys.many else len(profiles))) // 4),
    )


def _line(
    case: Case,
    points: dict[float, list[float]],
    unit: str,
    keys: Keys,
    style: tuple[str, str],
    entry: str,
) -> list[dict[str, Any]]:
    """A line and, if there are repeats, the band behind it.

    ``style`` is its colour and dash, ``entry`` its name in the legend, "" for no entry.
    """
    colour, dash = style
    xs = list(points)
    low, high = [min(v) for v in points.values()], [max(v) for v in points.values()]
    name = label(f"{case.transport}, {case.profile}")
    common = {
        "type": "scatter",
        "legendgroup": label(case.profile if keys.many else case.transport),
        "meta": keys.profiles.index(case.profile),  # the profile filter of the page uses it
    }
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
            "name": label(entry or case.transport),
            "showlegend": bool(entry),
            "line": {"color": colour, "dash": dash, "width": 2},
            "marker": {"symbol": keys.markers[case.profile], "size": 5},
            "hovertemplate": f"%{{x:,}}: %{{y:.4g}} {label(unit)}"
            "<br>%{customdata[0]:.4g} to %{customdata[1]:.4g}"
            f"<extra>{name}</extra>",
        }
    )
    return traces


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


def _error_bars(values: list[list[float]]) -> dict[str, Any]:
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
        marks = [keys.markers[case.profile] + ("-open" if hollow else "") for case in cases]
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
    failed: set[tuple[Case, str, str]],
    keys: Keys,
) -> list[Figure]:
    """Bars per node. ``values`` is by (check, metric, unit), then case, then node.

    A bar whose judgement failed is hatched and labelled, because colour stands for the transport.
    """
    figures = []
    for index, ((_, metric, unit), cases) in enumerate(values.items()):
        data, rows = [], []
        for case, nodes in cases.items():
            bad = [(case, metric, node) in failed for node in nodes]
            name = f"{case.transport}, {case.profile}"
            data.append(
                {
                    "type": "bar",
                    "name": label(name),
                    "x": [label(node) for node in nodes],
                    "y": [statistics.median(v) for v in nodes.values()],
                    "error_y": _error_bars(list(nodes.values())),
                    "text": ["✗ fail" if b else "" for b in bad],
                    "textposition": "outside",
                    "textfont": {"color": "#a61b1b"},
                    "cliponaxis": False,
                    "marker": {
                        "color": ["#b3261e" if b else keys.colours[case.transport] for b in bad],
                        "pattern": {
                            "shape": ["/" if b else "" for b in bad],
                            "fillmode": "overlay",
                            "fgcolor": "#ffffff",
                            "solidity": 0.25,
                        },
                    },
                    "hovertemplate": f"%{{x}}: %{{y:.4g}} {label(unit)}{_NAMED}",
                }
            )
            rows += [[node, name, spread_text(v)] for node, v in nodes.items()]
        first = next(iter(cases))
        figures.append(
            Figure(
                f"nodes-{index}",
                f"{check_name(first)}: {metric} per node",
                "Failed nodes are hatched. Error bars: minimum and maximum over the repeats.",
                data,
                axes(
                    {"type": "category", **titled("node")},
                    {"rangemode": "tozero", **titled(f"{metric} ({unit})")},
                    barmode="group",
                    bargap=_gap(max(len(nodes) for nodes in cases.values())),
                    showlegend=len(data) > 1,
                ),
                Table(["node", "transport, profile", f"{metric} ({unit})"], rows),
                height=340,
            )
        )
    return figures
