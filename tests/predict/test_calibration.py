"""The simulated network from message times: made-up truth, published models, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis_maker import (
    ETHERNET_RECV,
    ETHERNET_SEND,
    MYRINET_RECV,
    MYRINET_SEND,
    SIZES,
    measured,
)
from seatrial.analysis.conclusion import Measured
from seatrial.benchmarks.parsing import latency_curve
from seatrial.predict.calibration import MOST_OVERHEAD, calibrate, network
from seatrial.results.record import Case, Curve, Run

NO_CALLS = {"send": {}, "isend": {}, "recv_ready": {}}
EAGER = 10_000.0


def half_us(size: float) -> float:
    """A line of 20 us and 100 MB/s, with a step of 30 us at the eager limit."""
    return 20 + size / 100 + (30 if size > EAGER else 0)


CALLS = {
    "send": {n: 4 + n / 1000 for n in SIZES},
    "isend": {n: 3 + n / 1000 for n in SIZES},
    "recv_ready": dict.fromkeys(SIZES, 5.0),
}
HALF = {n: half_us(n) for n in SIZES}


def made(half=HALF, calls=CALLS, eager=EAGER):
    return network(half, calls, eager)[0]


def of(ranges, size):
    return [one for one in ranges if one.above < size][-1]


def test_half_a_round_trip_is_the_sum_of_its_parts():
    ranges = made()
    for n in SIZES:
        assert of(ranges, n).half_round_trip_s(n) == pytest.approx(half_us(n) / 1e6, rel=0.01)


def test_an_eager_message_costs_sender_and_receiver_and_a_longer_one_the_network():
    ranges = made()
    short, long = of(ranges, 1000), of(ranges, 10**6)
    # what a byte takes is that of the link: 100 MB/s
    assert short.send.at(1000) == pytest.approx(4e-6, rel=0.01)
    assert short.network.s_per_B == pytest.approx(1e-8, rel=0.01)
    assert short.isend.fixed_s == pytest.approx(3e-6, rel=0.01)
    assert short.receive.at(1000) == pytest.approx(5e-6, rel=0.01)
    assert short.network.fixed_s == pytest.approx(11e-6, rel=0.02)
    assert (long.send.at(10**6), long.receive.at(10**6)) == (0, 0)
    assert long.network.fixed_s == pytest.approx(50e-6, rel=0.05)


@given(
    latency=st.floats(1, 500), rate=st.floats(1, 10_000), step=st.floats(0, 300),
    noise=st.floats(0, 0.05), seed=st.integers(0, 100),
)  # fmt: skip
def test_no_part_is_negative_and_no_byte_is_faster_than_the_link(latency, rate, step, noise, seed):
    generator = np.random.default_rng(seed)
    half = {
        n: (latency + n / rate + (step if n > EAGER else 0)) * math.exp(generator.normal(0, noise))
        for n in SIZES
    }
    ranges, _, (low, high) = network(half, CALLS, EAGER)
    assert (low, high) == (SIZES[0], SIZES[-1])
    assert [one.above for one in ranges] == sorted({one.above for one in ranges})
    for one in ranges:
        for part in (one.send, one.isend, one.receive, one.network):
            assert part.fixed_s >= 0
            assert part.s_per_B >= 0
        assert one.network.s_per_B >= ranges[-1].network.s_per_B * (1 - 1e-9) > 0
        whole = one.send.fixed_s + one.receive.fixed_s + one.network.fixed_s
        assert one.send.fixed_s + one.receive.fixed_s <= MOST_OVERHEAD * whole + 1e-15


def test_times_that_overlap_leave_something_to_the_network():
    long_calls = {**CALLS, "send": dict.fromkeys(SIZES, 100.0)}
    short = of(made(calls=long_calls), 100)
    assert short.network.fixed_s == pytest.approx(2e-6, rel=0.05)  # a tenth of 20 us
    assert short.half_round_trip_s(100) == pytest.approx(half_us(100) / 1e6, rel=0.01)


def test_a_burst_in_the_ping_pong_is_no_bandwidth_of_many_messages():
    """As a token bucket has it: messages up to 10 kB at 1 GB/s, then 10 MB/s."""
    half = {n: 20 + (n / 1000 if n <= EAGER else 10 + (n - EAGER) / 10) for n in SIZES}
    ranges, *_ = network(half, NO_CALLS, EAGER)
    assert ranges[-1].network.s_per_B == pytest.approx(1e-7, rel=0.02)
    assert min(one.network.s_per_B for one in ranges) == ranges[-1].network.s_per_B


@pytest.mark.parametrize(
    ("send", "recv"), [(MYRINET_SEND, MYRINET_RECV), (ETHERNET_SEND, ETHERNET_RECV)]
)
def test_the_published_models_are_a_network(send, recv):
    """Tessera. The Ethernet send is negative up to 266,291 B; half the round trip is not."""
    half = {n: (send.at(n).us + recv.at(n).us) / 2 for n in SIZES if n > 300_000 or n < 200_000}
    ranges, *_ = network(half, NO_CALLS, None)
    for n, us in half.items():
        assert of(ranges, n).half_round_trip_s(n) == pytest.approx(us / 1e6, rel=0.06)


def test_the_options_name_the_eager_limit_and_each_range_once():
    run = measured(MYRINET_SEND, MYRINET_RECV, {"eager_limit_B": 10240}).run
    run.curves.append(latency_curve("comms", [(float(n), HALF[n]) for n in SIZES]))
    for call in ("isend", "recv_ready"):
        points = [(float(n), CALLS[call][n]) for n in SIZES]
        for rank in (0, 1):
            name = f"comms {call}_us rank {rank}"
            run.curves.append(Curve(name=name, y_name="time", y_unit="us", points=points))
    net = calibrate([Measured("t1", run)])
    options = net.options()
    assert options["smpi/send-is-detached-thresh"] == "10240"
    for key in ("smpi/os", "smpi/ois", "smpi/or", "smpi/lat-factor", "smpi/bw-factor"):
        starts = [float(part.split(":")[0]) for part in options[key].split(";")]
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        assert len(starts) == len(net.ranges)
    factors = [float(part.split(":")[1]) for part in options["smpi/bw-factor"].split(";")]
    assert max(factors) <= 1
    assert net.source == "comms"
    assert net.inputs.trials == ("t1",)


def test_netpipe_is_taken_where_there_is_no_comms():
    case = Case(check="netpipe", transport="openmpi-tcp", nodes=2)
    curve = latency_curve("netpipe", [(float(n), HALF[n]) for n in SIZES])
    run = Run(case=case, outcome="ran", curves=[curve])
    net = calibrate([Measured("t1", run)])
    assert net.source == "netpipe"
    assert all(one.send.fixed_s == 0 for one in net.ranges)
    assert net.eager_B == pytest.approx(EAGER, rel=0.5)  # the threshold of the times


def test_no_times_and_too_few_sizes_are_refused():
    with pytest.raises(ValueError, match="no run of comms, netpipe, osu has"):
        calibrate([])
    with pytest.raises(ValueError, match="3 sizes are too few"):
        network({1.0: 5.0, 10.0: 5.0, 100.0: 6.0}, NO_CALLS, None)
