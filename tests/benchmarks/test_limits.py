"""Physical limits: an impossible figure has a reason, a possible one never has."""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import parser_cases as cases
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.benchmarks import hpl, limits, npb, tcp_stream, tcp_streams
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.limits import Known, Rate, bursts, mark, not_limited
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    bandwidth_curve,
    higher,
    latency_curve,
    lower,
)
from seatrial.benchmarks.registry import registry
from seatrial.nic.node.writers import SHAPER_QUEUE_MS, bucket_bytes
from seatrial.results.record import Curve

GIGABIT = Rate(125.0, "the line rate of network test in site.yaml")
LINE = Known("eth1", {"eth1": GIGABIT})
BUCKET = bucket_bytes(10**9, 1500)
SHAPED = Known("eth1", {}, {"eth1": Rate(125.0, "the egress rate of profile gigabit", BUCKET)})


def reasons(benchmark: str, parsed: Parsed, known: Known) -> list[str]:
    metrics = mark(parsed, registry()[benchmark].limits, known)
    assert [metric.value for metric in metrics] == [metric.value for metric in parsed.metrics]
    return [metric.impossible for metric in metrics if metric.impossible]


def pingpong(size: float, rate: float, name: str = "bandwidth_MB_s") -> Parsed:
    return Parsed(
        metrics=[higher(name, rate, "MB/s")],
        curves=[bandwidth_curve("x", [(1.0, rate / 2), (size, rate)])],
    )


@pytest.mark.parametrize(
    ("benchmark", "metric", "directions"),
    [
        ("netpipe", "bandwidth_MB_s", 1), ("links", "bandwidth_MB_s", 1),
        ("comms", "bandwidth_MB_s", 1), ("osu", "bw_MB_s", 1), ("osu", "bibw_MB_s", 2),
        ("osu_mbw_mr", "mbw_mr_MB_s", 1), ("imb", "pingpong_bandwidth_MB_s", 1),
        ("imb", "pingping_bandwidth_MB_s", 1), ("imb", "sendrecv_bandwidth_MB_s", 2),
        ("imb", "exchange_bandwidth_MB_s", 2), ("tcp_stream", "bandwidth_MB_s", 1),
        ("tcp_streams", "bandwidth_MB_s", 1), ("tcp_streams", "slowest_stream_MB_s", 1),
        ("mpi_pairs", "pingpong_MB_s", 1), ("mpi_pairs", "uni_MB_s", 1),
        ("mpi_pairs", "bi_MB_s", 2),
    ],
)  # fmt: skip
def test_bandwidth_above_the_line_rate(benchmark: str, metric: str, directions: int) -> None:
    kind = registry()[benchmark]
    bounds = [limit for limit in kind.limits if isinstance(limit, limits.Bandwidth)]
    bounds += [limit for limit in kind.limits if isinstance(limit, limits.StreamBandwidth)]
    (bound,) = (limit for limit in bounds if fnmatchcase(metric, limit.metric))
    most = directions * 125.0
    for value, impossible in ((most * 1.001, True), (most * 0.999, False)):
        figure = higher(metric, value, "MB/s")
        reason = bound.beyond(figure, Parsed(metrics=[figure]), LINE)
        assert bool(reason) == impossible
    figure = higher(metric, 2 * most, "MB/s")
    reason = bound.beyond(figure, Parsed(metrics=[figure]), LINE)
    assert reason.startswith(f"{metric} is {2 * most:g} MB/s, above its physical limit of {most:g}")
    assert GIGABIT.source in reason


@pytest.mark.parametrize(
    ("benchmark", "metric"),
    [
        ("netpipe", "latency_us"), ("links", "latency_us"), ("comms", "latency_us"),
        ("osu", "latency_us"), ("osu", "multi_lat_us"), ("mpbench", "latency_us"),
        ("imb", "pingpong_latency_us"), ("imb", "pingping_latency_us"), ("imb", "barrier_us"),
        ("imb", "allreduce_8B_us"), ("imb", "alltoall_1048576B_us"), ("mpi_pairs", "latency_us"),
    ],
)  # fmt: skip
def test_latency_below_the_time_of_a_frame(benchmark: str, metric: str) -> None:
    # 72 B at 1 Gbit/s are 0.576 us.
    limit = next(
        limit
        for limit in registry()[benchmark].limits
        if isinstance(limit, limits.Latency) and fnmatchcase(metric, limit.metric)
    )
    nothing = Parsed(metrics=[])
    assert "below its physical limit of 0.571 us" in limit.beyond(
        lower(metric, 0.56, "us"), nothing, LINE
    )
    assert limit.beyond(lower(metric, 0.58, "us"), nothing, LINE) == ""
    assert limit.beyond(lower(metric, 0.01, "us"), nothing, SHAPED) == ""


@pytest.mark.parametrize(
    ("benchmark", "metric", "curve"),
    [
        ("mpbench", "latency_us", "mpbench roundtrip"), ("netpipe", "latency_us", "netpipe"),
        ("osu", "latency_us", "latency"), ("imb", "pingpong_latency_us", "pingpong"),
    ],
)  # fmt: skip
def test_a_half_round_trip_below_the_time_of_its_bits(
    benchmark: str, metric: str, curve: str
) -> None:
    """8 KiB take 65.5 us at 1 Gbit/s. A gap can be shorter."""
    for time, impossible in ((32.0, True), (65.535, False), (66.0, False)):
        points = latency_curve(curve, [(8.0, 30.0), (8192.0, time)])
        parsed = Parsed(metrics=[lower(metric, 30.0, "us")], curves=[points])
        said = reasons(benchmark, parsed, LINE)
        assert bool(said) == impossible
        assert all("is 32 us, below its physical limit of 65.536 us" in text for text in said)
    gap = Parsed(
        metrics=[lower("gap_us", 30.0, "us")],
        curves=[latency_curve("mpbench gap", [(8.0, 30.0), (8192.0, 32.0)])],
    )
    assert reasons("mpbench", gap, LINE) == []


def test_a_message_that_the_bucket_does_not_hold() -> None:
    # 1 MB: (10^6 - 31250) B at 125 MB/s need 7750 us, which is 129.03 MB/s.
    assert reasons("netpipe", pingpong(1e6, 129.0), SHAPED) == []
    (reason,) = reasons("netpipe", pingpong(1e6, 129.1), SHAPED)
    assert "bandwidth_MB_s is 129.1 MB/s, above its physical limit of 129.032" in reason
    assert "the egress rate of profile gigabit, at 1000000 B, bucket of 31250 B" in reason
    # The bucket holds 2 KiB: they leave at the speed of the unshaped interface.
    assert reasons("netpipe", pingpong(2048, 3000.0), SHAPED) == []
    # 64 messages of 2 KiB do not fit.
    assert reasons("osu", pingpong(2048, 3000.0, "bw_MB_s"), SHAPED)


@given(
    rate=st.floats(1, 12_500),
    mtu=st.integers(576, 9216),
    size=st.floats(1, 1e8),
    messages=st.sampled_from([1, 2, 64]),
    overhead_us=st.floats(0.01, 1000),
    unshaped=st.floats(1e3, 1e6),
)
def test_a_token_bucket_never_breaks_its_limit(
    rate: float, mtu: int, size: float, messages: int, overhead_us: float, unshaped: float
) -> None:
    """The time of messages through a full bucket, as ``tc-tbf(8)`` has it."""
    bucket = bucket_bytes(int(rate * 8e6), mtu)
    sent = messages * size
    at_once = min(sent, bucket)
    time_us = max(sent / unshaped, (sent - at_once) / rate) + overhead_us
    known = Known("eth1", {}, {"eth1": Rate(rate, "x", bucket)})
    limit = limits.Bandwidth("*", messages=messages)
    parsed = pingpong(size, sent / time_us)
    assert limit.beyond(parsed.metrics[0], parsed, known) == ""


@given(
    rate=st.floats(1, 12_500),
    seconds=st.floats(0.5, 60),
    queued=st.floats(0, 1),
    efficiency=st.floats(0.01, 1),
)
def test_a_shaped_stream_never_breaks_its_limit(
    rate: float, seconds: float, queued: float, efficiency: float
) -> None:
    bucket = bucket_bytes(int(rate * 8e6), 1500)
    moved = rate * seconds * efficiency + queued * (rate * SHAPER_QUEUE_MS / 1000 + bucket / 1e6)
    metric = higher("bandwidth_MB_s", moved / seconds * 0.9999, "MB/s")
    parsed = Parsed(metrics=[replace(metric, seconds=seconds)])
    known = Known("eth1", {}, {"eth1": Rate(rate, "x", bucket)})
    assert reasons("tcp_stream", parsed, known) == []


def test_a_bandwidth_that_the_bucket_of_a_shaper_makes() -> None:
    """It is possible, and above what the profile carries: the verdict has a note."""
    burst = pingpong(BUCKET / 2, 313.7)
    limits = registry()["netpipe"].limits
    assert reasons("netpipe", burst, SHAPED) == []
    (sentence,) = bursts(burst.metrics, limits, SHAPED)
    assert sentence == (
        "bandwidth_MB_s is 313.7 MB/s, above the egress rate of profile gigabit (125 MB/s): "
        f"messages that fit into the bucket of the shaper ({BUCKET} B) leave at once"
    )
    links = [replace(burst.metrics[0], value=value) for value in (300.0, 313.7, 120.0, 310.0)]
    assert bursts(links, limits, SHAPED) == [sentence]
    assert bursts(pingpong(1e6, 120.0).metrics, limits, SHAPED) == []
    assert bursts(burst.metrics, limits, LINE) == []
    both = [higher("sendrecv_bandwidth_MB_s", 240.0, "MB/s")]
    assert bursts(both, registry()["imb"].limits, SHAPED) == []


def test_a_stream_above_the_egress_rate() -> None:
    metric = replace(higher("bandwidth_MB_s", 140, "MB/s"), seconds=1.0)
    (reason,) = reasons("tcp_stream", Parsed(metrics=[metric]), SHAPED)
    assert "the egress rate of profile gigabit, with 6.28 MB of its bucket and queue" in reason


@given(line=st.floats(10, 100_000), size=st.floats(1, 1e7), wait=st.floats(0, 1e4))
def test_a_message_on_a_line_never_breaks_its_limits(line: float, size: float, wait: float) -> None:
    """A ping-pong whose time is that of its frames and more, with two decimals as printed."""
    frames = max(limits.FRAME_B, size + 26)
    half = frames / line + wait
    parsed = Parsed(
        metrics=[
            lower("latency_us", round(half, 2), "us"),
            higher("bandwidth_MB_s", size / half, "MB/s"),
        ]
    )
    assert reasons("netpipe", parsed, Known("eth1", {"eth1": Rate(line, "x")})) == []


def test_streams_through_several_interfaces() -> None:
    two = Known("eth1", {"eth1": GIGABIT, "eth2": GIGABIT})

    def parsed(rate: float, *through: str) -> Parsed:
        metrics = [higher("bandwidth_MB_s", rate, "MB/s")]
        return Parsed(metrics=metrics, facts={"through": list(through)})

    assert reasons("tcp_streams", parsed(240, "eth1", "eth2"), two) == []
    assert reasons("tcp_streams", parsed(251, "eth1", "eth2"), two)
    assert reasons("tcp_streams", parsed(126, "eth1", "eth1"), two)
    assert (
        reasons("tcp_streams", parsed(1000, "eth1", "eth3"), two) == []
    )  # of eth3 nothing is known


def test_a_run_shorter_than_its_transfer() -> None:
    def parsed(seconds: float) -> Parsed:
        return Parsed(metrics=[lower("time_s", seconds, "s")], moved_bytes=250_000_000)

    (reason,) = reasons("npb", parsed(0.99), LINE)
    assert "time_s is 0.99 s, below its physical limit of 1 s (250000000 B in both" in reason
    assert reasons("npb", parsed(1.01), LINE) == []


def round_trips(half: float, send: float, recv: float) -> Parsed:
    def time(call: str, us: float) -> Curve:
        name = f"comms {call}_us rank 0"
        return Curve(name=name, y_name="time", y_unit="us", points=[(8.0, us)])

    return Parsed(
        metrics=[lower("latency_us", half, "us")],
        curves=[latency_curve("comms", [(8.0, half)]), time("send", send), time("recv", recv)],
    )


def test_a_round_trip_shorter_than_its_send() -> None:
    (reason,) = reasons("comms", round_trips(5.0, 10.5, 3.0), Known("eth1"))
    assert reason == (
        "a round trip of 8 B takes 10 us, below its physical limit of 10.5 us (the MPI_Send or "
        "MPI_Recv that is a part of it)"
    )
    assert reasons("comms", round_trips(5.0, 3.0, 10.5), Known("eth1"))
    assert reasons("comms", round_trips(5.0, 10.0, 0.0), Known("eth1")) == []


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=9))
def test_medians_of_round_trips_never_break_their_limit(calls: list[tuple[float, float]]) -> None:
    """As comms prints them: medians, rounded to four decimals."""

    def median(times: list[float]) -> float:
        ordered = sorted(times)
        half = len(ordered) // 2
        return round((ordered[half] + ordered[~half]) / 2, 4)

    trip = median([send + recv for send, recv in calls])
    send, recv = (median([call[part] for call in calls]) for part in (0, 1))
    assert reasons("comms", round_trips(trip / 2, send, recv), Known("eth1")) == []


@pytest.mark.parametrize("name", ["comms_openmpi.txt", "comms_mpich.txt"])
def test_recorded_round_trips_are_possible(name: str) -> None:
    assert reasons("comms", cases.read(name), Known("eth1")) == []


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [
        ("netpipe", "nptcp_u65536.txt"), ("netpipe", "npmpi_u65536.txt"), ("imb", "imb_2.txt"),
        ("osu", "osu_py_bw.txt"), ("osu", "osu_py_latency.txt"), ("npb", "npb_is_W2.txt"),
        ("tcp_stream", "iperf3_fwd.json"), ("mpbench", "mpbench_r.txt"),
    ],
)  # fmt: skip
def test_recorded_figures_are_possible_on_a_fast_line_only(benchmark: str, name: str) -> None:
    parsed = cases.read(name)
    assert reasons(benchmark, parsed, Known("eth1", {"eth1": Rate(50_000, "400 Gbit/s")})) == []
    assert reasons(benchmark, parsed, Known("eth1", {"eth1": Rate(0.001, "8 kbit/s")}))
    assert reasons(benchmark, parsed, Known("eth1")) == []


def test_an_unknown_fact_is_named_once() -> None:
    both = registry()["netpipe"].limits
    assert not_limited(both, Known("eth1")) == [
        "no physical limit of latency_us, bandwidth_MB_s: the line rate of eth1 is not known"
    ]
    assert not_limited(both, LINE) == []
    assert not_limited(both, SHAPED) == [
        "no physical limit of latency_us: the line rate of eth1 is not known"
    ]
    assert not_limited(tcp_stream.TCPStream.limits, SHAPED) == []
    assert not_limited(tcp_streams.TCPStreams.limits, Known("eth1"))
    assert not_limited(npb.NPB.limits, Known("eth1"))


# -- HPL and DGEMM


def job_folder(folder: Path, before: float, after: float, **more: object) -> Job:
    """The files of an HPL job of two ranks; DGEMM is per rank."""
    waited = more.get("waited_s", 0.0)
    (folder / "hpl-x").mkdir()
    text = cases.text("hpccoutf.txt")
    (folder / "hpl-x" / "hpccoutf.txt").write_text(text)
    for when, rate in (("before", before), ("after", after)):
        step = f"dgemm-x-{when}"
        for rank in (0, 1):
            calls = {"256": [rate * 0.6, rate * 0.9], "408": [rate * 0.2, rate]}
            data = {"library": more.get("library", "/blas/libblas.so.3"), "GFLOPS": calls}
            (folder / f"{step}.{rank}.dgemm.json").write_text(json.dumps(data))
        write_record(folder, step, [], waited)
    write_record(folder, "hpl-x", ["/blas/libblas.so.3"], 0.0)
    return Job(nodes=2, transport="mpi", programs={"hpcc": ["hpcc"]}, blas={"x": "/blas"})


def write_record(folder: Path, step: str, mapped: list[str], waited: object) -> None:
    for node in ("n1", "n2"):
        side = {"node": node, "interfaces": {}}
        record = {"step": step, "before": {**side, "time": 1.0}, "after": {**side, "time": 2.0},
                  "mapped": mapped, "waited_s": waited}  # fmt: skip
        (folder / f"{step}.{node}.json").write_text(json.dumps(record))


HPL_OF_TWO = 9.42182  # GFLOPS in hpccoutf.txt


def hpl_run(
    folder: Path, before: float, after: float, calls: int | None = None, **more: object
) -> Parsed:
    benchmark = hpl.HPL(hpl.HPLSettings(blas=["x"], size=256, block=32, dgemm_calls=calls))
    job = job_folder(folder, before, after, **more)
    step = next(step for step in benchmark.steps(job) if step.name == "hpl-x")
    parsed = benchmark.parse(step, folder, job)
    return Parsed(
        metrics=mark(parsed, benchmark.limits, Known("eth1")), curves=[], facts=parsed.facts
    )


def share(parsed: Parsed) -> tuple[float, str, str]:
    (metric,) = (one for one in parsed.metrics if one.metric == "hpl_percent_of_dgemm")
    return metric.value, metric.impossible, metric.doubt


def doubt_factor(parsed: Parsed) -> float | None:
    (metric,) = (one for one in parsed.metrics if one.metric == "hpl_percent_of_dgemm")
    return metric.doubt_factor


@pytest.mark.parametrize("wrong", [{"size": 512}, {"block": 64}, {"grid_rows": 2}, {"solves": 2}])
def test_another_problem_than_that_of_the_settings_is_an_error(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    job = job_folder(tmp_path, 5.0, 4.8)
    settings = {"blas": ["x"], "size": 256, "block": 32, "dgemm_calls": 0, **wrong}
    benchmark = hpl.HPL(hpl.HPLSettings.model_validate(settings))
    [step] = benchmark.steps(job)
    with pytest.raises(ParseError, match="HPL solved N = 256, NB = 32, P = 1, Q = 2, tests = 1, "):
        benchmark.parse(step, tmp_path, job)


def test_share_of_dgemm(tmp_path: Path) -> None:
    parsed = hpl_run(tmp_path, 5.0, 4.8)
    assert share(parsed) == (pytest.approx(100 * HPL_OF_TWO / 10), "", "")
    assert parsed.value("dgemm_GFLOPS") == 5.0
    assert parsed.value("dgemm_spread_percent") == pytest.approx(4)
    assert parsed.facts["dgemm_before_GFLOPS"] == 5.0
    assert parsed.facts["hpcc_dgemm_GFLOPS"] == pytest.approx(8.72616)
    assert parsed.value("blas_as_declared") == 1


def test_hpl_without_dgemm(tmp_path: Path) -> None:
    parsed = hpl_run(tmp_path, 5.0, 4.8, calls=0)
    assert {metric.metric for metric in parsed.metrics}.isdisjoint(hpl.OF_DGEMM)
    assert parsed.value("hpl_GFLOPS") == pytest.approx(HPL_OF_TWO)
    assert "dgemm_before_GFLOPS" not in parsed.facts


def test_hpl_above_its_dgemm(tmp_path: Path) -> None:
    value, impossible, doubt = share(hpl_run(tmp_path, 2.7, 2.65))
    assert value == pytest.approx(174.48, abs=0.01)
    assert doubt == ""
    assert (
        "hpl_percent_of_dgemm is 174.478 percent, above its physical limit of 111.85" in impossible
    )
    assert "(the DGEMM of the same ranks, with its spread and 10 % for the shape" in impossible


@pytest.mark.parametrize(("dgemm", "possible"), [(4.11, True), (4.08, False)])
def test_hpl_within_the_tolerance_of_its_dgemm(
    tmp_path: Path, dgemm: float, possible: bool
) -> None:
    # 114.6 and 115.5 % of a DGEMM whose spread is 5 %
    _, impossible, doubt = share(hpl_run(tmp_path, dgemm, 0.95 * dgemm))
    assert (impossible == "", doubt) == (possible, "")


def test_an_uncertain_dgemm_decides_nothing(tmp_path: Path) -> None:
    parsed = hpl_run(tmp_path, 5.0, 4.0)
    _, impossible, doubt = share(parsed)
    assert impossible == ""
    assert "DGEMM was 5 GFLOPS before HPL and 4 after it: they differ by 20 %" in doubt
    assert doubt_factor(parsed) == 1.25


def test_dgemm_is_of_other_steps_than_hpl(tmp_path: Path) -> None:
    names = {metric.metric for metric in hpl_run(tmp_path, 5.0, 4.8).metrics}
    assert set(hpl.HPL.of_several_steps) == {name for name in names if "dgemm" in name}


def test_the_error_of_a_doubt_is_unknown_if_hpl_shows_dgemm_to_be_slow(tmp_path: Path) -> None:
    parsed = hpl_run(tmp_path, 2.7, 2.0)  # 174 %
    assert "they differ by 25.9 %" in share(parsed)[2]
    assert doubt_factor(parsed) is None


def test_the_error_of_a_doubt_is_unknown_if_dgemm_is_of_another_library(tmp_path: Path) -> None:
    parsed = hpl_run(tmp_path, 5.0, 4.0, library="/else/libblis.so.4")
    assert "they differ by 20 %" in share(parsed)[2]
    assert doubt_factor(parsed) is None


def test_a_dgemm_that_waited_for_a_processor_makes_no_error(tmp_path: Path) -> None:
    _, impossible, doubt = share(hpl_run(tmp_path, 2.7, 2.7, waited_s=0.4))
    assert (impossible, doubt) == ("", "DGEMM waited for a processor for 40 % of its time")


def test_a_wait_does_not_matter_to_a_possible_share(tmp_path: Path) -> None:
    assert share(hpl_run(tmp_path, 5.0, 5.0, waited_s=0.4))[1:] == ("", "")


def test_dgemm_of_another_library(tmp_path: Path) -> None:
    _, impossible, doubt = share(hpl_run(tmp_path, 2.0, 2.0, library="/else/libblis.so.4"))
    assert (impossible, doubt) == (
        "", "DGEMM ran with /else/libblis.so.4, HPL with /blas/libblas.so.3",
    )  # fmt: skip


@given(
    dgemm=st.floats(0.1, 1e4),
    drop=st.floats(0, 1),
    efficiency=st.floats(0.001, 1),
    ranks=st.integers(1, 4096),
)
def test_hpl_below_its_dgemm_is_possible(
    dgemm: float, drop: float, efficiency: float, ranks: int
) -> None:
    """One of two measurements is disturbed, HPL is not faster than the better one."""
    measured = hpl.Dgemm(dgemm, dgemm * (1 - drop) + 1e-9, ["x"], 0.0)
    metrics = hpl.share_of_dgemm(0.9999 * efficiency * ranks * dgemm, ranks, measured, {})
    parsed = Parsed(metrics=metrics, facts={"cores": ranks, "threads": 1})
    assert reasons("hpl", parsed, Known("eth1")) == []


def test_hpl_above_the_peak_of_its_cores() -> None:
    core = Known("eth1", core=Rate(48.0, "3 GHz x 16 operations per cycle (fma)"))

    def parsed(name: str, value: float) -> Parsed:
        return Parsed(metrics=[higher(name, value, "GFLOPS")], facts={"cores": 8, "threads": 2})

    (reason,) = reasons("hpl", parsed("hpl_GFLOPS", 385), core)
    assert "above its physical limit of 384 GFLOPS (the peak of 8 cores: 3 GHz x 16" in reason
    assert reasons("hpl", parsed("hpl_GFLOPS", 383), core) == []
    assert reasons("hpl", parsed("dgemm_GFLOPS", 97), core)
    assert reasons("hpl", parsed("dgemm_GFLOPS", 95), core) == []
    assert "the peak of a core" in not_limited(hpl.HPL.limits, Known("eth1"))[0]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"library": "x", "GFLOPS": {}}', '{"library": "x", "GFLOPS": 3}',
     '{"library": "x", "GFLOPS": {"8": [0.0]}}', '{"library": 1, "GFLOPS": {"8": [1.0]}}',
     '{"library": "x", "GFLOPS": {"8": [NaN]}}', '{"library": "x", "GFLOPS": {"8": ["1"]}}'],
)  # fmt: skip
def test_damaged_rates_of_dgemm_are_an_error(tmp_path: Path, text: str) -> None:
    job_folder(tmp_path, 5.0, 5.0)
    (tmp_path / "dgemm-x-after.1.dgemm.json").write_text(text)
    with pytest.raises(ParseError, match=r"dgemm-x-after\.1\.dgemm\.json"):
        hpl.read_dgemm(tmp_path, "x", 2)


def test_a_rank_without_dgemm_is_an_error(tmp_path: Path) -> None:
    job_folder(tmp_path, 5.0, 5.0)
    (tmp_path / "dgemm-x-before.0.dgemm.json").unlink()
    with pytest.raises(ParseError, match="DGEMM did not end on all ranks"):
        hpl.read_dgemm(tmp_path, "x", 2)


def test_steps_of_hpl_are_between_those_of_dgemm() -> None:
    benchmark = hpl.HPL(
        hpl.HPLSettings(blas=["x"], size=1000, ranks_per_node=3, threads_per_rank=2)
    )
    job = Job(nodes=2, transport="mpi", programs={"hpcc": ["hpcc"]}, blas={"x": "/blas"})
    before, run, after = benchmark.steps(job)
    assert [before.name, run.name, after.name] == ["dgemm-x-before", "hpl-x", "dgemm-x-after"]
    # 3 n^2 numbers are a rank's part of HPL's N^2: n = 1000 / sqrt(3 x 6)
    assert before.command[-2:] == ["/blas", "235"]
    once = hpl.HPL(hpl.HPLSettings(blas=["x"], dgemm_calls=1)).steps(job)
    assert [one.command[-1] for one in (once[0], once[2])] == ["1", "1"]
    alone = hpl.HPL(hpl.HPLSettings(blas=["x"], dgemm_calls=0))
    assert [step.name for step in alone.steps(job)] == ["hpl-x"]
    assert set(alone.metrics()) == {"hpl_GFLOPS", "stream_triad_GB_s", "blas_as_declared"}
    assert {one.tasks_per_node for one in (before, run, after)} == {3}
    assert before.env["OMP_NUM_THREADS"] == run.env["OMP_NUM_THREADS"] == "2"
    assert "hpccinf.txt" in run.setup[1]
    spack = Job(nodes=2, transport="mpi", programs={"xhpl.x": ["xhpl"]}, blas={"x": "/blas"})
    assert "HPL.dat" in benchmark.steps(spack)[1].setup[1]
