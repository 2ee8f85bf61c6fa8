"""The record of the rounds: figures, which of them count, what is slow, what is missing; damage."""

from __future__ import annotations

import json
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.benchmarks import links
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.links import LinksSettings
from seatrial.benchmarks.netpipe import schedule
from seatrial.benchmarks.parsing import Parsed, ParseError

SIZE = 64
SETTINGS = LinksSettings(max_bytes=SIZE, repetitions=5, stream_bytes=1000, suspect_factor=1.5)
PROGRAMS = {"nptcp": ["NPtcp"]}


def table(latency_us: float) -> str:
    """What NPtcp prints if each message takes as long."""
    lines = ["Using no perturbations", "Now starting the main loop"]
    for number, size in enumerate(schedule(1, SIZE, 0)):
        rate = size * 8 / latency_us * 1e6 / 2**20
        lines.append(
            f"{number:3d}: {size:7d} bytes {5:6d} times --> {rate:8.2f} Mbps in "
            f"{latency_us:10.2f} usec"
        )
    return "\n".join(lines)


def pair(low: int, high: int, number: int | None = 0, latency=10.0, there=100.0, back=100.0):
    """A line of a pair; rates of the streams in MB/s, the first from ``low``."""
    carried = {"eth1": 10**7, "eth0": 5}
    return {
        "pair": [low, high], "round": number, "seconds": 0.1, "text": table(latency), "failed": "",
        "streams": [[1000, 1e-3 / there], [1000, 1e-3 / back]], "bytes": [carried, carried],
    }  # fmt: skip


def parse(*lines: dict[str, Any], nodes: int = 4, absent: dict[str, str] | None = None) -> Parsed:
    names = {str(number): f"n{number + 1}" for number in range(nodes)}
    end = {"end": True, "seconds": 1.0, "absent": absent or {}}
    text = "".join(json.dumps(line) + "\n" for line in ({"nodes": names}, *lines, end))
    job = Job(nodes=nodes, transport="tcp", programs=PROGRAMS, interface="eth1")
    return links.parse(text, [], job, SETTINGS)


def whole(nodes: int = 4, **changes: dict[str, float]) -> list[dict[str, Any]]:
    """A line for each pair; ``changes``: ``l0_1`` -> what differs on the link of 0 and 1."""
    return [
        pair(low, high, **changes.get(f"l{low}_{high}", {}))  # type: ignore[arg-type]
        for low, high in combinations(range(nodes), 2)
    ]


def values(parsed: Parsed, metric: str) -> dict[str | None, float]:
    return {m.location: m.value for m in parsed.metrics if m.metric == metric}


def test_each_link_has_figures_and_each_direction_a_stream():
    parsed = parse(*whole(l0_1={"latency": 20.0, "there": 50.0, "back": 80.0}))
    latency = values(parsed, "latency_us")
    assert set(latency) == {"n1-n2", "n1-n3", "n1-n4", "n2-n3", "n2-n4", "n3-n4"}
    assert latency["n1-n2"] == 20.0
    stream = values(parsed, "stream_MB_s")
    assert len(stream) == 12
    assert (stream["n1>n2"], stream["n2>n1"]) == (pytest.approx(50.0), pytest.approx(80.0))
    assert parsed.unmeasured == {}
    assert not any(m.alone or m.doubt for m in parsed.metrics if m.location == "n1-n3")


def test_links_are_named_in_alphabetical_order_and_directions_are_kept():
    lines = whole(12)
    lines[[line["pair"] for line in lines].index([1, 9])] = pair(1, 9, there=30.0)
    parsed = parse(*lines, nodes=12)
    assert "n10-n2" in values(parsed, "latency_us")
    assert values(parsed, "stream_MB_s")["n2>n10"] == pytest.approx(30.0)
    assert values(parsed, "stream_MB_s")["n10>n2"] == pytest.approx(100.0)


def controls(*links_: tuple[int, int]) -> list[dict[str, Any]]:
    return [pair(low, high, None) for low, high in links_]


def test_the_figure_measured_alone_counts_and_load_is_told_from_a_fault():
    lines = whole(6, l0_1={"latency": 50.0}, l2_3={"latency": 50.0})
    alone = [pair(0, 1, None, latency=11.0), pair(2, 3, None, latency=48.0)]
    alone += [pair(2, 3, None, latency=49.0), *controls((2, 4), (1, 3))]
    parsed = parse(*lines, *alone, nodes=6)
    latency = values(parsed, "latency_us")
    assert (latency["n1-n2"], latency["n3-n4"]) == (11.0, 48.0)
    assert {m.location for m in parsed.metrics if m.metric == "latency_us" and m.alone} == {
        "n1-n2", "n3-n4", "n3-n5", "n2-n4",
    }  # fmt: skip
    own = {s.location: s for s in parsed.suspects if s.metric == "latency_us"}
    assert own["n1-n2"].conclusion == "load"
    assert own["n3-n4"].conclusion == "fault"
    assert own["n3-n4"].alone_factor == pytest.approx(4.8)


def test_a_node_is_named_where_its_effect_explains_its_links():
    slow = {f"l{min(3, x)}_{max(3, x)}": {"latency": 60.0} for x in range(8) if x != 3}
    alone = [pair(0, 3, None, latency=55.0), pair(1, 3, None, latency=55.0)]
    parsed = parse(*whole(8, **slow), *alone, *controls((0, 1), (5, 6)), nodes=8)
    own = [s for s in parsed.suspects if s.metric == "latency_us"]
    assert [(s.location, s.direction, s.conclusion) for s in own] == [("n4", "", "fault")]
    assert not any(m.doubt for m in parsed.metrics)


def test_a_node_that_is_slow_in_what_it_sends():
    slow: dict[str, dict[str, float]] = {}
    for other in range(8):
        if other < 3:
            slow[f"l{other}_3"] = {"back": 10.0}
        elif other > 3:
            slow[f"l3_{other}"] = {"there": 10.0}
    alone = [pair(0, 3, None, back=10.0), pair(1, 3, None, back=10.0)]
    parsed = parse(*whole(8, **slow), *alone, *controls((0, 1), (5, 6)), nodes=8)
    own = [s for s in parsed.suspects if s.metric == "stream_MB_s"]
    assert [(s.location, s.direction, s.conclusion) for s in own] == [("n4", "sends", "fault")]


def test_a_suspect_that_was_not_measured_alone_is_in_doubt():
    parsed = parse(*whole(l0_1={"latency": 50.0}))
    doubts = {(m.metric, m.location) for m in parsed.metrics if m.doubt}
    assert doubts == {("latency_us", "n1-n2"), ("bandwidth_MB_s", "n1-n2")}


def test_missing_links_and_nodes_are_named():
    lines = [line for line in whole() if line["pair"] != [0, 1]]
    lines = [line for line in lines if 3 not in line["pair"]]
    failed = {"pair": [0, 1], "round": 0, "failed": "n2: OSError: no route"}
    parsed = parse(*lines, failed, absent={"3": "it did not answer for 20 s"})
    assert parsed.unmeasured == {
        "n4": "it did not answer for 20 s", "n1-n2": "n2: OSError: no route",
    }  # fmt: skip
    assert parsed.absent == ["n4"]
    assert set(values(parsed, "latency_us")) == {"n1-n3", "n2-n3"}


def test_a_node_without_a_measured_link_is_named_and_left_out_of_the_path_proof():
    """Of three nodes none has as many links as make a node silent."""
    failed = [{"pair": [low, 2], "round": low, "failed": "n3: no route"} for low in (0, 1)]
    parsed = parse(pair(0, 1), *failed, nodes=3)
    assert parsed.absent == ["n3"]
    assert parsed.unmeasured == {"n3": "none of its links was measured (n3: no route)"}
    assert "n1-n2" in values(parsed, "latency_us")


def test_a_pair_that_works_alone_is_not_missing():
    lines = [line for line in whole() if line["pair"] != [0, 1]]
    failed = {"pair": [0, 1], "round": 0, "failed": "no result within 20 s"}
    parsed = parse(*lines, failed, pair(0, 1, None, latency=12.0), *controls((2, 3)))
    assert parsed.unmeasured == {}
    assert values(parsed, "latency_us")["n1-n2"] == 12.0


def test_streams_count_where_netpipe_did_not_end():
    line = {**pair(0, 1), "text": "", "failed": "NPtcp did not end within 18 s"}
    parsed = parse(*(line if one["pair"] == [0, 1] else one for one in whole()))
    assert parsed.unmeasured == {"n1-n2": "NetPIPE: NPtcp did not end within 18 s"}
    assert "n1>n2" in values(parsed, "stream_MB_s")
    assert "n1-n2" not in values(parsed, "latency_us")


DEAD = {"pair": [0, 1], "round": None, "failed": "no result within 20 s"}
HANGS = {**pair(0, 1, None), "text": "", "failed": "NPtcp did not end within 18 s"}
ASTRAY = {**pair(0, 1, None), "bytes": [{"eth1": 1000, "eth0": 10**7}] * 2}


@pytest.mark.parametrize(
    ("alone", "reason"),
    [
        (DEAD, "no result within 20 s"),
        (HANGS, "NetPIPE: NPtcp did not end within 18 s"),
        (ASTRAY, "n1: eth1 carried 1000 of"),
    ],
    ids=["dead", "hangs", "astray"],
)
def test_a_link_that_fails_alone_is_named_though_its_round_was_good(
    alone: dict[str, Any], reason: str
) -> None:
    """Once, it is in doubt; twice, it is not measured."""
    rounds, good = whole(l0_1={"latency": 200.0}), controls((2, 3), (1, 2))
    parsed = parse(*rounds, alone, *good)
    assert parsed.unmeasured == {}
    (figure,) = [m for m in parsed.metrics if (m.metric, m.location) == ("latency_us", "n1-n2")]
    assert figure.value == 200.0
    assert figure.doubt.startswith(f"the link failed when it was measured alone: {reason}")
    parsed = parse(*rounds, alone, alone, *good)
    assert list(parsed.unmeasured) == ["n1-n2"]
    assert parsed.unmeasured["n1-n2"].startswith(f"measured alone: {reason}")
    again = pair(0, 1, None, latency=11.0)
    parsed = parse(*whole(l0_1={"latency": 200.0}), alone, again, *controls((2, 3), (1, 2)))
    assert parsed.unmeasured == {}
    assert values(parsed, "latency_us")["n1-n2"] == 11.0


def test_traffic_over_another_network_is_no_figure():
    carried = {"eth1": 1000, "eth0": 10**7}
    line = {**pair(0, 1), "bytes": [carried, carried]}
    parsed = parse(*(line if one["pair"] == [0, 1] else one for one in whole()))
    assert "n1: eth1 carried 1000 of" in parsed.unmeasured["n1-n2"]
    assert "n1-n2" not in values(parsed, "latency_us")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["no JSON"], "line 1"),
        (['{"pair": [0, 9], "round": 0}', '{"end": true}'], "beyond the 4"),
        (['{"nodes": {"7": "n8"}}', '{"end": true}'], "beyond the 4"),
        (['{"pair": [0, 1], "rond": 0}'], "rond"),
        ([json.dumps(pair(0, 1))], "no end"),
        (['{"end": true}'], "no link was measured"),
        ([], "no end"),
    ],
)
def test_damage_is_refused(lines, reason):
    job = Job(nodes=4, transport="tcp", programs=PROGRAMS, interface="eth1")
    with pytest.raises(ParseError, match=reason):
        links.parse("\n".join(lines), [], job, SETTINGS)


@given(st.data())
def test_a_record_cut_anywhere_is_refused(data):
    names = {str(number): f"n{number + 1}" for number in range(4)}
    every = [{"nodes": names}, *whole(), {"end": True, "seconds": 1.0, "absent": {}}]
    text = "".join(json.dumps(line) + "\n" for line in every)
    cut = data.draw(st.integers(0, len(text) - 2))
    job = Job(nodes=4, transport="tcp", programs=PROGRAMS, interface="eth1")
    with pytest.raises(ParseError):
        links.parse(text[:cut], [], job, SETTINGS)


@given(st.integers(2, 300))
def test_the_job_grows_with_the_nodes_and_not_with_the_links(nodes):
    job = Job(nodes=nodes, transport="tcp", programs=PROGRAMS, interface="eth1")
    (step,) = links.Links(LinksSettings()).steps(job)
    assert len(" ".join(step.command)) < 600 + len(links.two_way.__file__)
    assert step.limit_s is not None
    assert step.limit_s <= 300 + 40 * nodes


@pytest.mark.parametrize(("cores", "wrong"), [([], 0), ([0, 1], 0), ([2], 1)])
def test_a_core_that_no_node_has_is_a_problem_of_the_site(cores: list[int], wrong: int) -> None:
    site = SimpleNamespace(node_cores=2)
    made = links.Links(LinksSettings(cores=cores))
    problems = list(made.problems(site))  # type: ignore[arg-type]
    assert [problem.field for problem in problems] == ["cores"] * wrong


def test_sizes_without_a_rate_are_problems_of_the_site() -> None:
    site = SimpleNamespace(node_cores=2)
    made = links.Links(LinksSettings(stream_bytes=0, max_bytes=0))
    assert [problem.field for problem in made.problems(site)] == ["stream_bytes", "max_bytes"]  # type: ignore[arg-type]
