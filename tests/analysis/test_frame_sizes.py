"""The MTU across interrupt throttling: the best, a plateau, the interaction, and the proof."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from analysis_maker import NOW
from seatrial.analysis.answer import Lost
from seatrial.analysis.conclusion import Measured
from seatrial.analysis.frame_sizes import (
    NOT_OF_THE_WIRE,
    NOT_SEEN,
    Frames,
    interactions,
    optimum,
    sweeps,
)
from seatrial.results.folder import Results
from seatrial.results.record import Case, Counters, Job, Metric, PathProof, ProfileUse, Run, Trial

SIZES = (1500, 3000, 4500, 6000, 7500, 9000)
#: the value cluster, GFLOPS without throttling; the problem of 14.53 was tuned again
PUBLISHED = {1500: 13.26, 6000: 14.53}
#: made up: the paper says only that 6000 is the best of this range
BETWEEN = {3000: 13.8, 4500: 14.2, 7500: 14.25, 9000: 14.1}
CURVE = dict(sorted((PUBLISHED | BETWEEN).items()))


def noisy(truth: float, noise: random.Random, sigma=0.005, repeats=8) -> list[float]:
    return [truth * noise.gauss(1, sigma) for _ in range(repeats)]


def test_the_published_optimum_is_inside_the_range():
    noise = random.Random(1)
    made = optimum("off", {mtu: noisy(y, noise, 0.002) for mtu, y in CURVE.items()}, "higher")
    assert (made.first, made.top, made.last, made.known) == (6000, 6000, 6000, True)
    assert made.inside
    assert made.gain.value == pytest.approx(14.53 / 13.26, rel=0.01)  # published: +9.6 %
    assert made.gain.low < 1.096 < made.gain.high
    assert made.widest_step == 1500


def test_the_published_gain_of_no_throttling_is_no_interaction_if_it_is_the_same_at_each_mtu():
    """12.74 against 13.26 GFLOPS at an MTU of 1500; that it is the same at others is made up."""
    noise = random.Random(2)
    grid = {
        "rx-usecs 0": {mtu: noisy(y, noise, 0.002) for mtu, y in CURVE.items()},
        "rx-usecs 125": {mtu: noisy(y * 12.74 / 13.26, noise, 0.002) for mtu, y in CURVE.items()},
    }  # fmt: skip
    made = {interaction.mtu: interaction for interaction in interactions(grid, "higher")}
    assert list(made) == list(SIZES[1:])
    # the same factor at each MTU is no interaction
    assert all(one.ratio.low < 1 < one.ratio.high for one in made.values())
    assert all(abs(one.ratio.value - 1) < 0.01 for one in made.values())


def test_neighbours_within_the_spread_are_a_plateau():
    noise = random.Random(3)
    truth = {1500: 10.0, 3000: 12.0, 4500: 12.02, 6000: 12.0, 9000: 11.0}
    made = optimum("off", {mtu: noisy(y, noise, 0.01) for mtu, y in truth.items()}, "higher")
    assert (made.first, made.last) == (3000, 6000)
    assert made.known
    assert made.widest_step == 3000


def test_the_largest_may_be_the_best_and_is_not_inside():
    noise = random.Random(4)
    made = optimum("off", {m: noisy(m / 100, noise) for m in SIZES}, "higher")
    assert (made.first, made.last, made.inside) == (9000, 9000, False)
    less = optimum("off", {m: noisy(m / 100, noise) for m in SIZES}, "lower")
    assert (less.first, less.last, less.inside) == (1500, 1500, False)


def test_two_maxima_are_no_best():
    """Each leads its neighbours, and neither the other one."""
    noise = random.Random(6)
    truth = {1500: 1.1, 3000: 1.0, 4500: 0.9, 6000: 0.9, 7500: 1.0, 9000: 1.1}
    made = optimum("off", {mtu: noisy(y, noise, 0.01) for mtu, y in truth.items()}, "higher")
    assert (made.best, made.as_good, made.whole) == (False, (1500, 9000), False)


def test_what_the_repeats_cannot_tell_apart_is_no_plateau():
    noise = random.Random(7)
    made = optimum("off", {mtu: noisy(1.0, noise, 0.08, 5) for mtu in SIZES}, "higher")
    assert not made.known
    assert "scatter too much" in made.reason


def test_intervals_of_all_interactions_hold_together():
    trials, wrong = 300, 0
    for seed in range(trials):
        noise = random.Random(seed)
        grid = {f"usecs {i}": {m: noisy(1.0, noise, 0.02, 6) for m in SIZES} for i in range(4)}
        wrong += any(
            interaction.ratio.low > 1 or interaction.ratio.high < 1
            for interaction in interactions(grid, "higher")
        )
    assert wrong <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5


def test_few_repeats_decide_nothing():
    once = optimum("off", {mtu: [y] for mtu, y in CURVE.items()}, "higher")
    assert (once.known, once.spread, once.top) == (False, None, 6000)
    assert "measured once" in once.reason
    few = optimum("off", {mtu: [y, y * 1.001] for mtu, y in CURVE.items()}, "higher")
    assert not few.known
    assert "6 MTUs need 5 repeats each, and there are 2" in few.reason


def test_made_up_truth_comes_back_in_most_trials():
    best = flat = inside = 0
    trials = 60
    for seed in range(trials):
        noise = random.Random(seed)
        peak = {mtu: noisy(1.1 if mtu == 6000 else 1.0, noise, 0.01) for mtu in SIZES}
        made = optimum("off", peak, "higher")
        best += (made.first, made.last) == (6000, 6000)
        level = optimum("off", {mtu: noisy(1.0, noise, 0.01) for mtu in SIZES}, "higher")
        flat += level.first < level.last
        grid = {
            "off": {1500: noisy(1.0, noise, 0.01), 9000: noisy(1.2, noise, 0.01)},
            "on": {1500: noisy(0.9, noise, 0.01), 9000: noisy(0.9 * 1.2 * 0.9, noise, 0.01)},
        }
        [one] = interactions(grid, "higher")
        inside += one.ratio.low <= 0.9 <= one.ratio.high
    assert best >= 0.95 * trials
    assert flat >= 0.95 * trials
    assert inside >= 0.9 * trials


# --- from records


def run(profile, mtu, rate, repeat=0, trial="t1", frame=None, check="tcp_stream") -> Measured:
    nic = {
        node: {"eth1": {"before": {"network": "test", "mtu": mtu, "driver": "igb"}},
               "eth0": {"before": {"network": "mgmt", "mtu": 1500}}}
        for node in ("n1", "n2")
    }  # fmt: skip
    frame = frame or mtu + 14
    counted = [
        Counters(node=node, interface="eth1", network="test", rx_bytes=frame * 1000,
                 rx_packets=1000, tx_bytes=66 * 500, tx_packets=500)
        for node in ("n1", "n2")
    ]  # fmt: skip
    proof = PathProof(network="test", required_bytes=1, counters=counted, crossed=True)
    case = Case(check=check, transport="tcp", profile=profile, nodes=2)
    metrics = [
        Metric(metric="bandwidth_MB_s", value=rate, unit="MB/s", better="higher"),
        Metric(metric="cpu_sender_percent", value=5.0, unit="%", better="lower"),
        Metric(metric="cpu_receiver_percent", value=20.0, unit="%", better="lower"),
    ]
    return Measured(trial, Run(case=case, repeat=repeat, round=repeat, outcome="ran",
                               metrics=metrics, nic=nic, path=proof,
                               job=Job(nodes=["n1", "n2"])))  # fmt: skip


def use(name, usecs, mtu=None, **more) -> ProfileUse:
    own = {"coalesce.rx-usecs": usecs, **({"mtu": mtu} if mtu else {}), **more}
    return ProfileUse(name=name, settings={node: {"eth1": own} for node in ("n1", "n2")})


def results(*uses, name="t1") -> Results:
    return Results(
        trial=Trial(trial=name, site="lab", started=NOW, seatrial="0", profiles=list(uses)), runs=[]
    )


CROSS = [
    use("off", 0), use("off-6000", 0, 6000), use("off-9000", 0, 9000),
    use("on", 125), use("on-6000", 125, 6000), use("on-9000", 125, 9000),
]  # fmt: skip
MTUS = {"off": 1500, "off-6000": 6000, "off-9000": 9000,
        "on": 1500, "on-6000": 6000, "on-9000": 9000}  # fmt: skip


def test_profiles_that_differ_in_mtu_and_throttling_alone_are_crossed():
    noise = random.Random(5)
    runs = [
        run(name, mtu, mtu / 100 * noise.gauss(1, 0.01), repeat)
        for name, mtu in MTUS.items()
        for repeat in range(6)
    ]
    made = {sweep.metric: sweep for sweep in sweeps([results(*CROSS)], runs)}
    assert set(made) == {"bandwidth_MB_s", "cpu_ms_per_MB"}
    rate = made["bandwidth_MB_s"]
    assert [one.throttling for one in rate.optima] == ["rx-usecs 0", "rx-usecs 125"]
    assert [sorted(one.medians) for one in rate.optima] == [[1500, 6000, 9000]] * 2
    assert {(one.mtu, one.plain, one.throttled) for one in rate.interactions} == {
        (6000, "rx-usecs 0", "rx-usecs 125"), (9000, "rx-usecs 0", "rx-usecs 125"),
    }  # fmt: skip
    assert rate.frames["rx-usecs 125", 9000] == Frames(9014)
    assert rate.repeats == 6
    assert made["cpu_ms_per_MB"].better == "lower"


def test_an_mtu_under_which_runs_fail_or_were_disturbed_is_no_best():
    noise = random.Random(6)
    rates = {"off": (1500, 1.0), "off-6000": (6000, 2.0)}
    runs = [
        run(name, mtu, rate * noise.gauss(1, 0.01), repeat)
        for name, (mtu, rate) in rates.items()
        for repeat in range(8)
    ]
    [rate, _] = sweeps([results(*CROSS)], runs)
    assert rate.optima[0].best
    best = next(one.run.case for one in runs if one.run.case.profile == "off-6000")
    [rate, _] = sweeps([results(*CROSS)], runs, Lost({("t1", best): 4}, {}))
    assert not rate.optima[0].known
    assert "4 of 12 runs under MTU 6000, rx-usecs 0 failed" in rate.optima[0].reason
    assert rate.withheld == rate.optima[0].reason
    unseen = replace(best, profile="off-9000")
    [rate, _] = sweeps([results(*CROSS)], runs, Lost({}, {("t1", unseen): (8, 8)}))
    assert "other programs disturbed the runs under off-9000" in rate.optima[0].reason


def test_trials_that_name_their_profiles_otherwise_are_one_sweep():
    noise = random.Random(7)
    renamed = {"off": (1500, 1.0), "large": (6000, 2.0)}
    again = results(use("off", 0), use("large", 0, 6000), name="t2")
    runs = [
        replace(run(name, mtu, rate * noise.gauss(1, 0.01), repeat), trial=trial)
        for trial, names in (("t1", {"off": (1500, 1.0), "off-6000": (6000, 2.0)}), ("t2", renamed))
        for name, (mtu, rate) in names.items()
        for repeat in range(6)
    ]
    [rate, _] = sweeps([results(*CROSS), again], runs)
    assert (rate.optima[0].best, rate.optima[0].top, rate.repeats) == (True, 6000, 12)


def test_a_throttling_with_one_mtu_is_no_part_of_the_sweep():
    runs = [run("on", 1500, 9.0), run("off", 1500, 1.0), run("off-6000", 6000, 2.0)]
    [rate, _] = sweeps([results(*CROSS)], runs)
    assert [one.throttling for one in rate.optima] == ["rx-usecs 0"]
    assert (rate.inputs.samples, rate.interactions) == (2, ())


def test_a_profile_that_sets_something_else_is_another_sweep():
    odd = use("odd", 0, 3000, **{"offload.gro": False})
    runs = [run("off", 1500, 1.0), run("off-6000", 6000, 2.0), run("odd", 3000, 9.0)]
    [rate, _] = sweeps([results(*CROSS, odd)], runs)
    assert sorted(rate.optima[0].medians) == [1500, 6000]


def test_a_path_with_smaller_frames_than_its_mtu_is_not_proven():
    runs = [run("off", 1500, 1.0), run("off-6000", 6000, 2.0, frame=1514)]
    [rate, _] = sweeps([results(*CROSS)], runs)
    assert rate.frames["rx-usecs 0", 6000] == Frames(1514, NOT_SEEN)
    assert rate.frames["rx-usecs 0", 1500] == Frames(1514)


def test_counters_of_what_the_kernel_hands_over_prove_no_mtu():
    """veth counts segments before they are cut into frames: 55255 B each at an MTU of 1500."""
    runs = [run("off", 1500, 1.0, frame=55255), run("off-6000", 6000, 2.0, frame=6023)]
    [rate, _] = sweeps([results(*CROSS)], runs)
    assert rate.frames["rx-usecs 0", 1500] == Frames(55255, NOT_OF_THE_WIRE)
    assert rate.frames["rx-usecs 0", 6000] == Frames(6023, NOT_OF_THE_WIRE)


@pytest.mark.parametrize(
    ("frame", "unproven"),
    [(1522, NOT_SEEN), (1523, ""), (6014, ""), (6022, ""), (6023, NOT_OF_THE_WIRE)],
)
def test_a_frame_proves_an_mtu_that_has_room_for_it_if_no_smaller_one_has(frame, unproven):
    """The largest frame of an MTU has a header, a VLAN's tag and a checksum more."""
    runs = [run("off", 1500, 1.0), run("off-6000", 6000, 2.0, frame=frame)]
    [rate, _] = sweeps([results(*CROSS)], runs)
    assert rate.frames["rx-usecs 0", 6000].unproven == unproven


def test_one_mtu_or_an_unknown_profile_is_no_sweep():
    assert sweeps([results(*CROSS)], [run("off", 1500, 1.0), run("on", 1500, 1.0)]) == []
    runs = [run("off", 1500, 1.0), run("elsewhere", 9000, 2.0)]
    assert sweeps([results(*CROSS)], runs) == []


def test_trials_with_a_part_of_the_sweep_do_not_count():
    whole = [run("off", 1500, 1.0), run("off-6000", 6000, 2.0)]
    part = [run("off", 1500, 99.0, trial="t2")]
    [rate, _] = sweeps([results(*CROSS), results(*CROSS, name="t2")], [*whole, *part])
    assert rate.optima[0].medians == {1500: 1.0, 6000: 2.0}
