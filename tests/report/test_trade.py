"""The picture of what NIC profiles trade, and curves of more profiles than there are dashes."""

from __future__ import annotations

import plotly.graph_objects as go

from seatrial.analysis.conclusion import Measured
from seatrial.analysis.profile_cost import profile_costs
from seatrial.report.curves import curve_figures
from seatrial.report.figures import DASHES, Figure, keys_of
from seatrial.report.trade import trade_figures
from seatrial.results.record import Case, Curve, Metric, PathProof, Run


def run(check: str, profile: str, network: str, **figures: float) -> Run:
    metrics = [
        Metric(metric=name, value=value, unit="", better="lower", location=location)
        for name, value in figures.items()
        for location in (("n1", "n2") if name == "interrupts_per_s" else (None,))
    ]
    state = {"n1": {network: {"before": {"driver": network, "network": network}}}}
    proof = PathProof(network=network, required_bytes=1, counters=[], crossed=True)
    case = Case(check=check, transport="tcp", profile=profile, nodes=2)
    return Run(case=case, repeat=0, outcome="ran", metrics=metrics, nic=state, path=proof)


def trial(**profiles: tuple[str, float, float, float]) -> list[Run]:
    """profile -> network, latency (us), CPU of both ends (%) at 100 MB/s, interrupts (1/s)."""
    return [
        one
        for name, (network, latency, cpu, rate) in profiles.items()
        for one in (
            run("netpipe", name, network, latency_us=latency),
            run(
                "tcp_stream",
                name,
                network,
                bandwidth_MB_s=100.0,
                cpu_sender_percent=cpu / 2,
                cpu_receiver_percent=cpu / 2,
                interrupts_per_s=rate,
            ),
        )
    ]


def drawn(runs: list[Run]) -> list[Figure]:
    return trade_figures(profile_costs(Measured("t1", run) for run in runs))


def test_each_profile_is_a_mark_whose_area_is_its_interrupts():
    runs = trial(
        quick=("igb", 22.0, 60.0, 40000.0), frugal=("igb", 140.0, 30.0, 10000.0),
        other=("e1000", 120.0, 45.0, 0.0), further=("e1000", 150.0, 40.0, 0.0),
    )  # fmt: skip
    [figure] = drawn(runs)
    go.Figure({"data": figure.data, "layout": figure.layout})
    assert [trace["name"] for trace in figure.data] == ["igb (driver igb)", "e1000 (driver e1000)"]
    igb, e1000 = figure.data
    assert (igb["x"], igb["y"]) == ([22.0, 140.0], [6.0, 3.0])
    quick, frugal = igb["marker"]["size"]
    # a quarter of the interrupts: half way from the smallest mark to the largest
    assert frugal - e1000["marker"]["size"][0] == (quick - e1000["marker"]["size"][0]) / 2
    assert figure.table.rows[1] == [
        "frugal",
        "igb (driver igb)",
        "140 us",
        "3 ms/MB",
        "10000 1/s",
    ]
    assert "40000" in figure.caption.replace(",", "").replace(" ", "")


def test_names_of_marks_in_one_place_are_on_different_sides():
    alike = {f"profile-{n}": ("igb", 100.0 + n, 40.0, 10000.0) for n in range(3)}
    runs = trial(far=("igb", 20.0, 60.0, 10000.0), **alike)
    [figure] = drawn(runs)
    [trace] = figure.data
    assert trace["textposition"][0] == "top center"
    sides = dict(zip(trace["text"], trace["textposition"], strict=True))
    assert len({sides[name] for name in alike}) == 3


def test_one_profile_or_half_of_the_figures_trade_nothing():
    assert drawn(trial(only=("igb", 22.0, 60.0, 1.0))) == []
    halves = trial(a=("igb", 1, 2, 3), b=("igb", 1, 2, 3))
    assert drawn([half for half in halves if half.case.check == "netpipe"]) == []


def test_interrupts_that_nobody_counts_make_marks_alike():
    [figure] = drawn(trial(a=("veth", 9, 20, 0), b=("veth", 12, 10, 0)))
    assert len(set(figure.data[0]["marker"]["size"])) == 1
    assert "attributes no interrupts" in figure.caption


def curved(profile: str, network: str) -> Run:
    one = run("netpipe", profile, network)
    points = [(1.0, 10.0), (2.0, 11.0)]
    one.curves = [Curve(name="netpipe", y_name="latency", y_unit="us", points=points)]
    return one


def test_more_profiles_than_dashes_have_colours_and_a_figure_per_network():
    names = [f"p{i}" for i in range(len(DASHES) + 2)]
    runs = [curved(name, "igb" if i < 4 else "e1000") for i, name in enumerate(names)]
    figures = curve_figures(runs, keys_of(one.case for one in runs))
    assert [figure.title.split()[0] for figure in figures] == ["igb", "e1000"]
    for figure in figures:
        lines = [trace for trace in figure.data if trace["mode"] == "lines+markers"]
        assert len({trace["line"]["color"] for trace in lines}) == len(lines) == 4
        assert [trace["showlegend"] for trace in lines] == [True] * 4
