"""What the charts of report.html have in common, and those of bars and marks.

A chart is a Plotly specification (``data`` and ``layout``) with a table of its numbers, for readers
without JavaScript. Specifications are plain dictionaries, because ``plotly.graph_objects`` takes a
second to import; the tests check them against Plotly's schema. Charts over message size are in
``seatrial.report.curves``.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.report.text import check_name, clean, number
from seatrial.results.locations import natural
from seatrial.results.record import Case, Run

# The colours of Okabe and Ito, which colour-blind readers can distinguish, plus black and grey.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#7f7f7f"]
DASHES = ["solid", "dash", "dot", "longdash", "dashdot", "longdashdot"]
LINES = 8  # of a panel: as many as there are colours
MARKERS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down"]

_TICKS = 4  # least number of a logarithmic axis
#: of the ticks of a logarithmic axis in a decade, the fewest first
_DIGITS = (
    (1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
)  # fmt: skip
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

    Where a site has several networks, a transport has a colour for each.

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
            parts.setdefault(case.route if self.many else case.profile, []).append(case)
        return [
            (name, members[start : start + LINES])
            for name, members in parts.items()
            for start in range(0, len(members), LINES)
        ]

    def style(self, case: Case, panel: Sequence[Case]) -> Style:
        """Colour, dash and marker of a line among those of its panel."""
        transport, profile = (
            self.transports.index(case.route),
            self.profiles.index(case.profile),
        )
        one_transport = len({one.route for one in panel}) == 1
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
    transports = list(dict.fromkeys(case.route for case in listed))
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
    """Ticks of a logarithmic axis around ``values`` > 0, of which at least four lie between them.

    They are at the powers of ten if that gives four, else at more digits of a decade. Of
    values that are so close that these are too few, the ticks are equidistant. Empty if all values
    are equal: Plotly then chooses.
    """
    listed = list(values)
    least, most = min(listed), max(listed)
    if not least < most:
        return {}
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    at: list[float] = []
    for digits in _DIGITS:
        at = [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
        if sum(least <= tick <= most for tick in at) >= _TICKS:
            break
    else:
        step = _step((most - least) / _TICKS)
        first, last = math.floor(least / step) - 1, math.ceil(most / step) + 1
        at = [i * step for i in range(max(1, first), last + 1)]
    return {"tickvals": at, "ticktext": [number(tick, 6) for tick in at]}


def _step(most: float) -> float:
    """The largest of 1, 2 and 5 times the powers of ten that is not above ``most``."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(digit * power for digit in (1, 2, 5) if digit * power <= most * (1 + 1e-9))


def log_range(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of ``values`` > 0 with room at both ends, and its ticks."""
    listed = list(values)
    low, high = math.log10(min(listed)), math.log10(max(listed))
    room = max(0.06 * (high - low), 0.004)
    return {
        "type": "log", "range": [low - room, high + room],
        **log_ticks([10 ** (low - room), 10 ** (high + room)]),
    }  # fmt: skip


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def spread_text(values: Sequence[float]) -> str:
    """The median; with the minimum and the maximum if they differ."""
    if not values:
        return "–"
    middle, low, high = map(number, (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


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
        for transport in dict.fromkeys(case.route for case in cases):
            bars = {case: m for case, m in cases.items() if case.route == transport}
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
            [case.variant or "hpl", case.route, case.profile]
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
            name = f"{case.route}, {case.profile}"
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
                            "#b3261e" if node in bad else keys.colours[case.route] for node in nodes
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
