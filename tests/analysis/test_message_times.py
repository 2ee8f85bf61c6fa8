"""Models of message times: the published ones, made-up ones under noise, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis_maker import (
    ETHERNET_RECV,
    ETHERNET_SEND,
    MYRINET_RECV,
    MYRINET_SEND,
    SIZES,
    K,
    measured,
)
from campaigns import rounds
from seatrial.analysis.message_times import fit, half_round_trip, models
from seatrial.benchmarks.comms import eager_limit
from seatrial.results.record import PathProof


@pytest.mark.parametrize(
    ("size", "myrinet", "ethernet"),
    [
        (100, (4.216, 34.239), (16.617, 213.276)),
        (101, (4.218, 40.202), (16.622, 213.482)),
        (1024, (5.953, 67.292), (21.957, 403.481)),
        (10240, (23.279, 337.781), (75.226, 2300.595)),
        (10241, (119.907, 119.907), (75.232, 2300.801)),
        (262144, (1656.5, 1656.5), (1531.2, 54155.0)),
        (262145, (1656.5, 1656.5), (-330.3, 51672.3)),
    ],
)
def test_the_published_models_have_the_published_times(size, myrinet, ethernet):
    """A size that equals a threshold belongs to the lower line."""
    for pair, times in (
        ((MYRINET_SEND, MYRINET_RECV), myrinet),
        ((ETHERNET_SEND, ETHERNET_RECV), ethernet),
    ):
        digits = 3 if size < 200_000 else 1
        assert tuple(round(m.at(size).us, digits) for m in pair) == times


def test_a_negative_time_is_flagged_and_not_clipped():
    assert "not above zero" in ETHERNET_SEND.at(262_145).flaw
    assert ETHERNET_SEND.at(266_291).flaw
    assert not ETHERNET_SEND.at(266_292).flaw
    assert "not above zero" in half_round_trip(ETHERNET_SEND, ETHERNET_RECV, 262_145).flaw


@pytest.mark.parametrize(("size", "times"), [(100, 5.98), (512, 5.54), (1024 * K, 14.8)])
def test_ethernet_is_slower_than_myrinet_by_the_published_ratio(size, times):
    ethernet = half_round_trip(ETHERNET_SEND, ETHERNET_RECV, size).us
    myrinet = half_round_trip(MYRINET_SEND, MYRINET_RECV, size).us
    assert ethernet / myrinet == pytest.approx(times, rel=0.005)


def test_the_published_receives_of_lu_wait_and_the_models_do_not():
    """46,500 blocking receives of LU on 16 take 14.48 s over Ethernet, 49.99 s over Myrinet.

    The paper's models have the other order: what a receive waits for its sender is not in them.
    """
    ethernet, myrinet = (s / 46_500 * 1e6 for s in (14.48, 49.99))
    [line] = ETHERNET_RECV.lines[:1]
    size = (ethernet - line.intercept.value) / line.slope.value
    assert size == pytest.approx(577, abs=2)  # the message that such a receive would be of
    modelled = MYRINET_RECV.at(size)
    assert not modelled.flaw
    assert myrinet / ethernet == pytest.approx(3.45, abs=0.01)
    assert modelled.us / ethernet == pytest.approx(0.174, abs=0.002)
    assert myrinet > 15 * modelled.us


def test_a_time_outside_the_measured_range_is_flagged():
    assert "was measured" in MYRINET_SEND.at(2**25).flaw


@pytest.mark.parametrize("model", [MYRINET_SEND, MYRINET_RECV, ETHERNET_RECV])
def test_a_fit_recovers_the_published_models(model):
    made = fit([(n, model.at(n).us) for n in SIZES])
    assert made.largest_error < 1e-6
    for size in SIZES:
        assert made.at(size).us == pytest.approx(model.at(size).us, rel=1e-4)


@settings(deadline=None, max_examples=40)
@given(
    first=st.floats(1, 100), slope=st.floats(1e-4, 1e-1), jump=st.floats(1.5, 10),
    steeper=st.floats(0.2, 5), at=st.integers(8, 28), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_a_fit_finds_a_threshold_under_noise(first, slope, jump, steeper, at, seed):
    threshold = SIZES[at]
    after = (first + slope * threshold) * jump
    rng = np.random.default_rng(seed)

    def truth(n):
        return first + slope * n if n <= threshold else after + slope * steeper * (n - threshold)

    made = fit([(n, truth(n) * math.exp(rng.normal(0, 0.01))) for n in SIZES])
    assert threshold in made.thresholds
    assert made.largest_error < 0.08


def test_intervals_hold_the_truth():
    """95 % of them, within three standard deviations of the simulation."""
    rng = np.random.default_rng(1)
    trials, held = rounds(60, 200), np.zeros((2, 2))
    for _ in range(trials):
        made = fit([(n, MYRINET_SEND.at(n).us * math.exp(rng.normal(0, 0.02))) for n in SIZES])
        assert len(made.lines) >= 2
        for i, (line, true) in enumerate(
            zip((made.lines[0], made.lines[-1]), MYRINET_SEND.lines, strict=True)
        ):
            held[i, 0] += line.intercept.low <= true.intercept.value <= line.intercept.high
            held[i, 1] += line.slope.low <= true.slope.value <= line.slope.high
    assert np.all(held / trials > 0.95 - 3 * math.sqrt(0.05 * 0.95 / trials))


def test_a_threshold_is_between_the_sizes_that_are_said_and_a_smooth_curve_has_none():
    rng = np.random.default_rng(3)
    sizes = SIZES[::2]
    trials, held, curved = 40, 0, 0
    for _ in range(trials):
        noise = np.exp(rng.normal(0, 0.05, len(sizes)))
        step = [(n, (5 + 0.002 * n) * (1.4 if n > 10000 else 1) * e)
                for n, e in zip(sizes, noise, strict=True)]  # fmt: skip
        made = fit(step)
        held += made.curved or all(low <= 10000 < high for low, high in made.between)
        smooth = fit([(n, (5 + 0.01 * n**0.9) * e) for n, e in zip(sizes, noise, strict=True)])
        curved += smooth.curved or not smooth.thresholds
    assert held >= 0.95 * trials - 3 * math.sqrt(0.05 * 0.95 * trials)
    assert curved >= 0.95 * trials - 3 * math.sqrt(0.05 * 0.95 * trials)


def test_runs_of_other_hardware_or_another_eager_limit_have_models_of_their_own():
    facts = {"eager_limit_B": 10 * K, "eager_limit_source": "X=10k"}
    own = [measured(MYRINET_SEND, MYRINET_RECV, dict(facts)) for _ in range(3)]
    own[1].run.facts["eager_limit_B"] = 64 * K
    own[2].run.path = PathProof(network="other", required_bytes=1, counters=[], crossed=True)
    made, missing = models(own)
    assert missing == []
    assert [(one.eager.bytes, one.hardware) for one in made] == [
        (10 * K, "?"), (64 * K, "?"), (10 * K, "other"),
    ]  # fmt: skip


def test_sizes_that_a_run_lacks_and_units_that_are_no_times():
    own = [measured(MYRINET_SEND, MYRINET_RECV) for _ in range(2)]
    lost = own[1].run.curves[2].points.pop(3)[0]  # of one rank's receives
    own[1].run.curves[3].points.pop(3)
    [made], _ = models(own)
    assert lost not in dict(made.points["send"])
    assert len(made.points["recv"]) == len(SIZES) - 1
    own[0].run.curves[0].y_unit = "ms"
    none, [missing] = models(own)
    assert none == []
    assert missing.reason == "its times are in ms by B, and must be in us by B"


def test_the_levels_of_runs_widen_the_intervals():
    one, other = (measured(MYRINET_SEND, MYRINET_RECV) for _ in range(2))
    other.run.round = 1
    for curve in other.run.curves:
        curve.points[:] = [(n, 1.1 * us) for n, us in curve.points]
    [alone], _ = models([one])
    [both], _ = models([one, other])
    width = [m.send.lines[0].intercept.high - m.send.lines[0].intercept.low for m in (alone, both)]
    assert width[1] > 100 * width[0]


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([], "0 sizes are too few"),
        ([(1, 1), (2, 2), (4, 3)], "3 sizes are too few"),
        ([(1, 1), (2, 0.0), (4, 3), (8, 4)], "not above zero"),
        ([(1, 1), (2, -1), (4, 3), (8, 4)], "not above zero"),
        ([(1, 1), (2, math.nan), (4, 3), (8, 4)], "not above zero"),
        ([(2, 1), (2, 2), (4, 3), (8, 4)], "twice"),
    ],
)
def test_points_that_allow_no_model(points, why):
    with pytest.raises(ValueError, match=why):
        fit(points)


def test_the_eager_limit_is_compared_with_the_threshold():
    facts = {"eager_limit_B": 10 * K, "eager_limit_source": "X=10k"}
    [one], missing = models([measured(MYRINET_SEND, MYRINET_RECV, facts)])
    assert missing == []
    assert one.eager.agrees
    low, high = one.eager.between
    assert low <= 10 * K < high
    assert one.synchronised  # Myrinet's send and receive take the same time above the threshold
    assert one.inputs.trials == ("t1",)
    facts["eager_limit_B"] = 0  # each message by rendezvous
    [made], _ = models([measured(MYRINET_SEND, MYRINET_RECV, facts)])
    assert made.eager.bytes == 0
    assert not made.eager.agrees
    facts["eager_limit_B"] = -1
    [made], _ = models([measured(MYRINET_SEND, MYRINET_RECV, facts)])
    assert made.eager is None
    facts["eager_limit_B"] = 64 * K
    [other], _ = models([measured(MYRINET_SEND, MYRINET_RECV, facts)])
    assert not other.eager.agrees


def test_without_a_limit_on_record_there_is_no_comparison():
    [one], _ = models([measured(MYRINET_SEND, MYRINET_RECV)])
    assert one.eager is None


def test_times_that_no_lines_describe_are_told_from_others():
    rng = np.random.default_rng(1)
    wild = [(n, float(np.exp(rng.normal(3, 1)))) for n in SIZES]
    one = measured(MYRINET_SEND, MYRINET_RECV)
    one.run.curves[0].points[:] = wild
    one.run.curves[1].points[:] = wild
    [made], _ = models([one])
    assert made.send.poor
    assert not made.recv.poor


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        ({"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}, 65536),
        ({"OMPI_MCA_btl_tcp_eager_limit": "32768", "OMPI_MCA_pml": "ob1"}, 32768),
        ({"UCX_RNDV_THRESH": "8k"}, 8192),
        ({"UCX_RNDV_THRESH": "auto"}, None),
        ({"I_MPI_EAGER_THRESHOLD": "0"}, None),
        ({}, None),
    ],
)
def test_the_eager_limit_of_an_environment(env, limit):
    made = eager_limit(env)
    assert (made and made[0]) == limit
