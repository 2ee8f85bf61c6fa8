"""The pictures of the chapter "What it means": responses, times of calls, times over processes.

Those of costs, message sizes, MTUs and pairs are in modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from seatrial.analysis.axis import NETWORK, PROFILE, SETTING, TRANSPORT, Axis
from seatrial.analysis.communication import Relation
from seatrial.analysis.conclusion import Estimate, scaled
from seatrial.analysis.groups import FEATURES, Groups
from seatrial.analysis.message_times import CallTimes, Model
from seatrial.analysis.response import Response
from seatrial.analysis.scaling import Scaling
from seatrial.analysis.trials import Analysis
from seatrial.report.estimates import bounded, interval_bars
from seatrial.report.figures import (
    DASHES,
    MARKERS,
    PALETTE,
    Figure,
    Table,
    axes,
    label,
    log_range,
    log_ticks,
    titled,
)
from seatrial.report.meaning.frames import frame_figures
from seatrial.report.meaning.pairs import pair_figures
from seatrial.report.meaning.sizes import figures_name, size_figures
from seatrial.report.text import amount, fitting, message_size
from seatrial.report.trade import trade_figures
from seatrial.results.wording import number

_MODELS = 6  # of more cases the lines are in the table alone


def meaning_figures(analysis: Analysis) -> dict[str, list[Figure]]:
    """The pictures by the name that a section has for them."""
    return {
        "responses": _responses(analysis.responses),
        **{
            f"responses to {axis.name}s": _responses(analysis.responses_to(axis), axis)
            for axis in (NETWORK, TRANSPORT, SETTING)
        },
        **{
            figures_name(axis): size_figures(axis, analysis.comparisons_of(axis))
            for axis in (PROFILE, NETWORK, TRANSPORT, SETTING)
        },
        "shares": [_relation(i, relation) for i, relation in enumerate(analysis.relations)],
        "models": [
            _calls(i, call_times) for i, call_times in enumerate(analysis.call_times[:_MODELS])
        ],
        "frames": frame_figures(analysis.sweeps),
        "pairs": pair_figures(analysis.pairs),
        "scaling": _scalings(analysis.scalings),
        "costs": trade_figures(analysis.costs),
        "groups": [_groups(analysis.groups)] if analysis.groups else [],
    }


def _responses(responses: Sequence[Response], axis: Axis = PROFILE) -> list[Figure]:
    """For each hardware and base: a row for each application, a mark for each option."""
    groups: dict[tuple[str, str], list[Response]] = {}
    for response in responses:
        groups.setdefault((response.hardware, response.base), []).append(response)
    figures = []
    for index, ((hardware, base), of_group) in enumerate(groups.items()):
        profiles = list(dict.fromkeys(p for response in of_group for p in response.ratios))
        names = {id(response): _row(response) for response in of_group}
        lines = {id(response): line for line, response in enumerate(of_group)}
        data: list[dict[str, Any]] = []
        rows = []
        for i, profile in enumerate(profiles):
            with_it = [response for response in of_group if profile in response.ratios]
            estimates = [response.ratios[profile] for response in with_it]
            # beside each other: intervals that are alike would hide one another
            beside = min(0.16, 0.6 / len(profiles)) * (i - (len(profiles) - 1) / 2)
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": label(profile),
                    "x": [estimate.value for estimate in estimates],
                    "y": [lines[id(response)] + beside for response in with_it],
                    "text": [label(names[id(response)]) for response in with_it],
                    "error_x": interval_bars(estimates, PALETTE[i % len(PALETTE)]),
                    "marker": {
                        "color": PALETTE[i % len(PALETTE)],
                        "symbol": MARKERS[i % len(MARKERS)],
                        "size": 11,
                    },
                    "hovertemplate": "%{text}: %{x:.4g}<extra>%{fullData.name}</extra>",
                }
            )
            rows += [
                [names[id(response)], profile, *map(number, (e.value, e.low, e.high))]
                for response, e in zip(with_it, estimates, strict=True)
            ]
        ends = [1.0, *_ends(ratio for response in of_group for ratio in response.ratios.values())]
        figures.append(
            Figure(
                f"response-{axis.name}-{index}",
                f"Performance by {axis.name} over that of {base}, on {hardware}",
                f"To the right of 1 the {axis.name} is better than {base}. Bars: 95 % intervals, "
                f"together for all {axis.name}s of an application; no bar: too few samples.",
                data,
                axes(
                    {**log_range(ends), **titled(f"performance over that of {base} (ratio)")},
                    {"range": [len(of_group) - 0.5, -0.5], "tickvals": list(lines.values()),
                     "ticktext": [label(names[id(response)]) for response in of_group]},
                    shapes=[{
                        "type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1,
                        "line": {"color": "#5b6673", "dash": "dash"},
                    }],
                    showlegend=True,
                ),
                Table(["application", axis.name, "ratio", "from", "to"], rows),
                height=190 + 46 * len(of_group),
                wide=True,
            )
        )  # fmt: skip
    return figures


def _ends(estimates: Iterable[Estimate]) -> Iterator[float]:
    """The values of ratios, and the ends of their intervals."""
    for estimate in estimates:
        yield estimate.value
        if bounded(estimate) and estimate.low > 0:
            yield from (estimate.low, estimate.high)


def _row(response: Response) -> str:
    held = ", ".join(filter(None, [response.application, response.route, response.profile]))
    return f"{held}, {response.nodes} nodes"


def _relation(index: int, relation: Relation) -> Figure:
    """Share of communication and response: a mark for each application."""
    shares = [scaled(share, 100) for _, share, _ in relation.points]
    ratios = [ratio for *_, ratio in relation.points]
    names = [name for name, *_ in relation.points]
    ends = [1.0, *_ends(ratios)]
    most = max(share.value for share in shares) or 1.0
    # inside the picture, not on the bars, and of neighbours on either side
    places = {}
    for i, at in enumerate(sorted(range(len(shares)), key=lambda at: shares[at].value)):
        side = "right" if shares[at].value < most / 2 else "left"
        places[at] = f"{('top', 'bottom')[i % 2]} {side}"
    return Figure(
        f"shares-{index}",
        f"Share of communication and response to {relation.profile}, over {relation.route}",
        f"Each mark is an application on {relation.nodes} nodes. Bars: 95 % intervals; no bar: too "
        "few "
        "runs.",
        [
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": "applications",
                "x": [share.value for share in shares],
                "y": [ratio.value for ratio in ratios],
                "text": [label(name) for name in names],
                "textposition": [places[at] for at in range(len(shares))],
                "error_x": interval_bars(shares, PALETTE[0]),
                "error_y": interval_bars(ratios, PALETTE[0]),
                "marker": {"color": PALETTE[0], "symbol": MARKERS[0], "size": 11},
                "hovertemplate": "%{text}: %{x:.3g} %, %{y:.4g}<extra></extra>",
            }
        ],
        axes(
            {"range": [-0.08 * most, 1.15 * most],
             **titled(f"time in MPI under {relation.base} (%)")},
            {**log_range(ends), **titled(f"performance over that under {relation.base} (ratio)")},
            shapes=[{
                "type": "line", "y0": 1, "y1": 1, "xref": "paper", "x0": 0, "x1": 1,
                "line": {"color": "#5b6673", "dash": "dash"},
            }],
        ),
        Table(
            ["application", "in MPI (%)", "response", "from", "to"],
            [
                [name, number(share.value), *map(number, (r.value, r.low, r.high))]
                for name, share, r in zip(names, shares, ratios, strict=True)
            ],
        ),
        wide=True,
    )  # fmt: skip


def _calls(index: int, call_times: CallTimes) -> Figure:
    """Measured times as marks, the model as lines with their jumps."""
    data: list[dict[str, Any]] = []
    rows = []
    for i, (call, name, model) in enumerate(
        (("send", "MPI_Send", call_times.send), ("recv", "MPI_Recv", call_times.recv))
    ):
        points = call_times.points[call]
        colour = PALETTE[i]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": f"{name}, measured",
                "x": [x for x, _ in points], "y": [y for _, y in points],
                "marker": {"color": colour, "symbol": MARKERS[i], "size": 8},
            }
        )  # fmt: skip
        if not model.poor:
            x, y = _drawn(model, [x for x, _ in points])
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"{name}, model", "x": x, "y": y,
                    "line": {"color": colour, "dash": "solid" if i == 0 else "dash"},
                    "connectgaps": False,
                }
            )  # fmt: skip
        rows += [
            [name, message_size(n), number(us), "none" if model.poor else number(model.at(n).us)]
            for n, us in points
        ]
    times = [y for _, y in (*call_times.points["send"], *call_times.points["recv"])]
    return Figure(
        f"calls-{index}",
        f"Times of blocking calls over {call_times.case.route}, profile {call_times.case.profile}",
        "Marks: median over ranks and runs. Lines: the model, which may jump at a threshold; "
        "no line: none describes the times.",
        data,
        axes(
            {"type": "log", "dtick": 1, **titled("message size (B)")},
            {"type": "log", **log_ticks(times), **titled("time of a call (us)")},
        ),
        Table(["call", "size (B)", "measured (us)", "model (us)"], rows),
    )


def _drawn(model: Model, sizes: Sequence[float]) -> tuple[list[float | None], list[float | None]]:
    """Points of the model's lines, with a gap at each threshold and where a time is negative."""
    x: list[float | None] = []
    y: list[float | None] = []
    start = sizes[0]
    for line in model.lines:
        end = line.last if line.last is not None else sizes[-1]
        inside = [n for n in sizes if start <= n <= end]
        for n in inside:
            us = line.intercept.value + line.slope.value * n
            x.append(n)
            y.append(us if us > 0 else None)
        x.append(None)
        y.append(None)
        start = next((n for n in sizes if n > end), end)
    return x, y


def _scalings(scalings: Sequence[Scaling]) -> list[Figure]:
    """A picture of each program whose time in MPI is known, and one of all others."""
    apart = [scaling for scaling in scalings if scaling.apart]
    whole = [scaling for scaling in scalings if not scaling.apart]
    made = [_apart(index, scaling) for index, scaling in enumerate(apart[:_MODELS])]
    return [*made, *([_whole(whole)] if whole else [])]


def _apart(index: int, scaling: Scaling) -> Figure:
    """Run time, and what a process computes and is in MPI for."""
    lines = {
        "run time": scaling.times,
        "computing": {p: computing for p, (computing, _) in scaling.apart.items()},
        "in MPI": {p: mpi for p, (_, mpi) in scaling.apart.items()},
    }
    unit, factor = fitting(max(t for times in lines.values() for t in times.values()), "s")
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": list(times), "y": [t * factor if t > 0 else None for t in times.values()],
            "line": {"color": PALETTE[i], "dash": DASHES[i]},
            "marker": {"symbol": MARKERS[i], "size": 8},
        }
        for i, (name, times) in enumerate(lines.items())
    ]  # fmt: skip
    rows = [
        [str(p), *(amount(times[p], "s") if p in times else "–" for times in lines.values()),
         number(100 * _efficiency(scaling, p), 3)]
        for p in scaling.times
    ]  # fmt: skip
    return Figure(
        f"scaling-{index}",
        f"Computing and MPI over the number of processes: {scaling.name}",
        "Medians over the samples, means over the processes. Computing and MPI are of runs with "
        "the library mpi_time: of the part that the program times, or of the whole run where that "
        "part is not known. A run time that rises: more nodes cost time.",
        data,
        axes(
            _processes(scaling.times),
            {**log_range([t * factor for times in lines.values() for t in times.values() if t > 0]),
             **titled(f"time ({unit})")},
            showlegend=True,
        ),
        Table(["processes", *lines, "efficiency (%)"], rows),
    )  # fmt: skip


def _processes(counts: Iterable[int]) -> dict[str, Any]:
    listed = sorted(counts)
    return {
        "type": "log", "tickvals": listed, "ticktext": [str(p) for p in listed],
        **titled("processes"),
    }  # fmt: skip


def _whole(scalings: Sequence[Scaling]) -> Figure:
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": label(scaling.name),
            "x": list(scaling.times), "y": list(scaling.times.values()),
            "line": {"color": PALETTE[i % len(PALETTE)]},
            "marker": {"symbol": MARKERS[i % len(MARKERS)], "size": 8},
        }
        for i, scaling in enumerate(scalings)
    ]  # fmt: skip
    rows = [
        [
            scaling.name,
            str(p),
            amount(scaling.times[p], "s"),
            number(100 * _efficiency(scaling, p), 3),
        ]
        for scaling in scalings
        for p in scaling.times
    ]
    return Figure(
        "scaling",
        "Run time over the number of processes",
        "Median over the samples. A line that rises: more nodes cost time. The time in MPI was not "
        "measured.",
        data,
        axes(
            _processes({p for scaling in scalings for p in scaling.times}),
            {**log_range([t for scaling in scalings for t in scaling.times.values()]),
             **titled("run time (s)")},
            showlegend=True,
        ),
        Table(["program", "processes", "time", "efficiency (%)"], rows),
        wide=True,
    )  # fmt: skip


def _efficiency(scaling: Scaling, p: int) -> float:
    return scaling.efficiency[p].value if p in scaling.efficiency else 1.0  # of the smallest p


def _groups(made: Groups) -> Figure:
    """Volume and time in MPI of each case, by group."""
    data: list[dict[str, Any]] = []
    rows = []
    for i, group in enumerate(made.groups):
        # the time is the volume over the rate; a case without volume has neither
        named = [(name, dict(zip(FEATURES, row, strict=True))) for name, row in group.rows]
        points = [
            (name, of["volume_MB"], of["volume_MB"] / of["rate_MB_s"], of["calls"])
            for name, of in named
            if of["volume_MB"] > 0
        ]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": f"group {i + 1}",
                "x": [volume for _, volume, *_ in points],
                "y": [seconds for *_, seconds, _ in points],
                "text": [label(name) for name, *_ in points],
                "marker": {"color": PALETTE[i % len(PALETTE)],
                           "symbol": MARKERS[i % len(MARKERS)], "size": 10},
                "hovertemplate": "%{text}: %{x:.3g} MB in %{y:.3g} s"
                "<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
        rows += [
            [name, f"group {i + 1}", number(volume, 3), amount(seconds, "s"), number(calls)]
            for name, volume, seconds, calls in points
        ]
    x, y = ([v for trace in data for v in trace[axis]] for axis in ("x", "y"))
    return Figure(
        "groups",
        "Volume and time in MPI of the groups",
        "Each mark is a case. The volume is the sum of all ranks, the time the mean of them. Cases "
        "without volume are not drawn.",
        data,
        axes(
            {**(log_range(x) if x else {}), **titled("volume (MB)")},
            {**(log_range(y) if y else {}), **titled("time in MPI (s)")},
            showlegend=True,
        ),
        Table(["case", "group", "volume (MB)", "time in MPI", "calls"], rows),
    )  # fmt: skip
