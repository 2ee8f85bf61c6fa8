"""The figures: what they hold, that Plotly accepts them, and that a browser draws them."""

from __future__ import annotations

import json
import math

import plotly.graph_objects as go
import pytest
import synthetic
from lxml import html

from seatrial.report.curves import curve_figures, location_figures
from seatrial.report.figures import (
    cpu_figures,
    hpl_figures,
    interrupt_rates,
    keys_of,
    label,
    log_range,
    log_ticks,
    node_figures,
)
from seatrial.report.html import render
from seatrial.report.locations import by_location, link_maps
from seatrial.report.summary import gather
from seatrial.results.folder import Results
from seatrial.results.record import Case, Curve, Run


def spec(page: str) -> dict:
    return json.loads(html.document_fromstring(page).xpath("string(//script[@id='spec'])"))


@pytest.mark.parametrize("name", sorted(synthetic.EXAMPLES))
def test_plotly_accepts_every_figure(name):
    for figure in spec(render(synthetic.EXAMPLES[name]()))["figures"].values():
        go.Figure(figure)  # raises on an unknown or ill-typed property


def test_the_spec_is_strict_json_without_markup():
    page = render(synthetic.hostile("</script><b>%{x}"))
    text = html.document_fromstring(page).xpath("string(//script[@id='spec'])")
    assert "<" not in text
    json.loads(text, parse_constant=pytest.fail)


def curve_run(transport: str, repeat: int, points: list) -> Run:
    curve = Curve(name="pingpong", y_name="latency", y_unit="us", points=points)
    case = Case(check="imb", transport=transport, nodes=2)
    return Run(case=case, repeat=repeat, outcome="ran", curves=[curve])


def test_a_line_is_the_median_and_the_band_its_range():
    runs = [curve_run("a", i, [(1, y), (2, 2 * y)]) for i, y in enumerate((10.0, 30.0, 11.0))]
    [figure] = curve_figures(runs, keys_of(run.case for run in runs))
    band, line = figure.data
    assert line["y"] == [11.0, 22.0]
    assert band["y"] == [30.0, 60.0, 20.0, 10.0]
    assert figure.layout["xaxis"]["type"] == figure.layout["yaxis"]["type"] == "log"
    assert figure.layout["yaxis"]["title"]["text"] == "latency (us)"
    assert figure.layout["xaxis"]["title"]["text"] == "message size (B)"
    assert figure.table.rows[0] == ["1", "11 (10 to 30)"]


def test_points_that_a_logarithm_cannot_show_are_counted_not_drawn():
    points = [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (4.0, -1.0), (8.0, 5.0)]
    runs = [curve_run("a", 0, points)]
    [figure] = curve_figures(runs, keys_of([runs[0].case]))
    assert figure.data[0]["x"] == [8.0]
    assert "4 points" in figure.caption


def test_a_transport_has_one_colour_in_all_figures():
    results = synthetic.accepted()
    keys = keys_of(gather(results))
    assert len(set(keys.colours.values())) == len(keys.transports)
    colours: dict[str, set] = {}
    for figure in curve_figures(results.runs, keys):
        for trace in figure.data:
            if trace.get("showlegend") and "line" in trace:
                colours.setdefault(trace["name"], set()).add(trace["line"]["color"])
    for figure in hpl_figures(results.runs, keys):
        for trace in figure.data:
            colours.setdefault(trace["name"], set()).add(trace["marker"]["color"])
    assert set(colours) >= set(synthetic.TRANSPORTS)
    assert all(len(used) == 1 for used in colours.values())


def test_hpl_bars_carry_their_per_cent_of_dgemm():
    results = synthetic.rejected()
    [figure] = hpl_figures(results.runs, keys_of(gather(results)))
    assert [trace["name"] for trace in figure.data] == synthetic.TRANSPORTS
    assert figure.data[0]["x"] == ["atlas", "openblas", "reference"]
    assert all(text.endswith(" %") for text in figure.data[0]["text"])


def test_cpu_use_is_shown_for_both_ends_and_interrupts_per_second():
    results = synthetic.accepted()
    cpu, interrupts, softirqs = cpu_figures(results.runs, keys_of(gather(results)))
    assert [trace["name"] for trace in cpu.data] == ["sender", "receiver"]
    assert cpu.data[1]["text"] == ["default", "lowlat", "throughput"]
    assert interrupts.data[0]["y"][1] == pytest.approx(61000, rel=1e-3)
    assert softirqs.data[0]["y"][1] == pytest.approx(67100)


def test_interrupts_need_a_time():
    run = next(run for run in synthetic.rejected().runs if run.path)
    assert interrupt_rates(run)
    job = run.job.model_copy(update={"benchmark_s": 0.0})
    assert interrupt_rates(run.model_copy(update={"job": job})) == {}


def test_a_failed_node_is_marked():
    results = synthetic.rejected()
    _, nodes = by_location(results.runs)
    failed = {(j.case, j.metric, j.location) for j in results.judgements if j.verdict == "fail"}
    figure = node_figures(nodes, failed, keys_of(gather(results)))[0]
    assert figure.data[0]["x"] == synthetic.NODES
    assert figure.data[0]["text"] == ["", "", "✗ fail", ""]


def test_one_bad_node_of_four_does_not_become_the_reference():
    results = synthetic.rejected()
    links, _ = by_location(results.runs)
    latency = link_maps(links, gather(results))[0]
    assert latency.metric == "latency_us"
    assert latency.reference == pytest.approx(31, rel=0.1)
    levels = {node: own.level for node, _, own in latency.rows}
    assert levels == {"n1": 0, "n2": 0, "n3": 5, "n4": 0}


def test_a_link_has_one_figure_in_the_map_and_in_the_finding():
    results = synthetic.rejected()
    links, _ = by_location(results.runs)
    judged = next(j for j in results.judgements if j.location and j.metric == "latency_us")
    judged.value, judged.statistic = 12.5, "best"
    found = next(
        link_map
        for link_map in link_maps(links, gather(results))
        if (link_map.case, link_map.metric) == (judged.case, judged.metric)
    )
    shown = {cell.text for _, cells, _ in found.rows for cell in cells if cell}
    assert "12.5" in shown


def test_a_bad_link_among_thirty_two_nodes_is_the_worst_and_no_node_is_blamed():
    results = synthetic.many(500)
    links, _ = by_location(results.runs)
    found = link_maps(links, gather(results))[0]
    assert "Worst link: node07-node19" in found.worst
    assert "All links of" not in found.worst


def test_a_metric_that_is_informative_has_no_link_map():
    results = synthetic.rejected()
    links, _ = by_location(results.runs)
    before = [(link_map.case, link_map.metric) for link_map in link_maps(links, gather(results))]
    case, metric = before[0]
    results.judgements = [j for j in results.judgements if (j.case, j.metric) != (case, metric)]
    assert [
        (link_map.case, link_map.metric) for link_map in link_maps(links, gather(results))
    ] == before[1:]
    results.judgements = []  # of an interrupted trial
    now = link_maps(links, gather(results))
    assert sorted((m.case.id, m.metric) for m in now) == sorted((c.id, m) for c, m in before)


def test_a_good_link_beside_bad_ones_is_no_outlier():
    """With one slow node of four, half of all links are slow: their median is no link's."""
    names = ["n1-n2", "n1-n3", "n1-n4", "n2-n3", "n2-n4", "n3-n4"]
    case, sizes = Case(check="links", transport="tcp", nodes=4), (1, 64)
    run = Run(case=case, outcome="ran", job={"nodes": ["n1", "n2", "n3", "n4"]})
    for y_name, y_unit, slow in (("latency", "us", 100.0), ("bandwidth", "MB/s", 1.0)):
        run.curves += [
            Curve(
                name=f"netpipe {name}", y_name=y_name, y_unit=y_unit,
                points=[(x, slow if "n1" in name else 10.0) for x in sizes],
            )
            for name in names
        ]  # fmt: skip
    for figure in location_figures([run], {case: set()}):
        assert "3 outliers" in figure.caption
        assert {name.split(" ")[0] for name in figure.table.header[2:]} == set(names[:3])


def test_labels_are_inert_for_plotly():
    assert label("<b>%{x}</b>$x$") == "&lt;b&gt;%&#123;x}&lt;/b&gt;&#36;x&#36;"


def test_a_browser_draws_every_figure_and_opens_what_a_link_leads_to(written, browse):
    _, folder = written("accepted")
    case = "case-links.openmpi-tcp.default.4n"
    dom = html.document_fromstring(browse(f"{(folder / 'report.html').as_uri()}#{case}"))
    assert dom.xpath("//details[@class='case'][@open]/@id") == [case]
    assert dom.xpath("//html/@data-figures") == ["done"]
    divs = dom.xpath("//div[@data-figure]")
    assert len(divs) >= 9
    for div in divs:
        assert div.get("data-drawn") == "yes", div.get("data-figure")
        assert div.xpath(".//*[local-name()='svg']//*[local-name()='path']")
    lines = dom.xpath("//div[@data-figure='curve-0']//*[contains(@class, 'scatterlayer')]/*")
    assert len(lines) >= 2 * 7 * 3  # band and line of 7 transports under 3 profiles
    assert dom.xpath("string(//*[@id='filter-count'])") == "341 of 341 shown"
    assert len(dom.xpath("//table[contains(@class, 'judgements')]//th/button")) == 10
    assert dom.xpath("//*[@id='no-figures'][@hidden]")


def test_a_browser_shows_hostile_records_as_text(browse, tmp_path):
    text = "</script><img src=x onerror=\"document.title='owned'\"><a href='http://e.example'>%{x}"
    results: Results = synthetic.hostile(text)
    (tmp_path / "x.html").write_text(render(results), encoding="utf-8")
    dom = html.document_fromstring(browse((tmp_path / "x.html").as_uri()))
    assert "owned" not in dom.xpath("string(//title)").replace(text, "")
    assert set(dom.xpath("//div[@data-figure]/@data-drawn")) == {"yes"}
    assert not dom.xpath("//img[not(ancestor::*[@class='draw'])]")
    links = dom.xpath("//@href | //@*[local-name()='href']")
    assert not [
        link for link in links if "e.example" in link and link[:2] != "./" and link[0] != "#"
    ]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 3000.0], ["1", "10", "100", "1000"]),
        ([9.0, 110.0], ["10", "20", "50", "100"]),
        ([0.96, 3.1], ["1", "1.5", "2", "3"]),
        ([9.6, 9.8], ["9.6", "9.65", "9.7", "9.75", "9.8"]),
    ],
)
def test_a_logarithmic_axis_has_ticks_that_can_be_read(values, ticks):
    made = log_ticks(values)
    shown = [
        text
        for text, at in zip(made["ticktext"], made["tickvals"], strict=True)
        if min(values) <= at <= max(values) * (1 + 1e-9)
    ]
    assert shown == ticks


def test_a_logarithmic_axis_has_room_beside_its_values():
    low, high = log_range([1.0, 100.0])["range"]
    assert low < 0 < 2 < high
    assert log_ticks([3.0, 3.0]) == {}  # Plotly chooses


def test_bars_per_node_are_named_by_their_variant():
    cases = [Case(check="hpl", variant=v, transport="tcp", nodes=2) for v in ("atlas", "blis")]
    values = {("hpl", "blas_as_declared", "1"): {case: {"n1": [1.0]} for case in cases}}
    (figure,) = node_figures(values, set(), keys_of(cases))
    assert figure.title == "hpl: blas_as_declared per node"
    assert [trace["name"] for trace in figure.data] == [
        "atlas, tcp, default",
        "blis, tcp, default",
    ]
