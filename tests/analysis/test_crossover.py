"""Where curves part and cross, and which option is the fastest for which messages."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from seatrial.analysis.answer import Lost
from seatrial.analysis.axis import NETWORK, TRANSPORT
from seatrial.analysis.conclusion import Estimate, Measured
from seatrial.analysis.crossover import comparisons, knee, near, parting
from seatrial.analysis.decision import Decision, decide
from seatrial.results.record import Case, Cost, Curve, Job, PathProof, Run

SIZES = [2**k for k in range(2, 23)] + [10240]
SIZES.sort()


def gap(n, us_per_B):
    """The time of a send in the form that Sokolowski describes: flat up to 8 KB, then by the wire.

    The paper has it as a picture: at most 32 us below 8 KB, and that the curves part at 8 to 10 KB.
    30 us and the speed above are made up.
    """
    return 30.0 if n <= 8192 else 30.0 + us_per_B * n


FAST = {n: gap(n, 0.08) for n in SIZES}
GIGABIT = {n: gap(n, 0.008) for n in SIZES}


def test_a_gap_as_published_for_fast_and_gigabit_ethernet_parts_at_8_to_10_KB():
    made = parting(("fast", FAST), ("gigabit", GIGABIT))
    assert (made.together, made.apart, made.faster) == (8192, 10240, "gigabit")
    assert made.reversed_at is None
    assert parting(("gigabit", GIGABIT), ("fast", FAST)) == made


def test_the_knee_of_such_a_gap_is_above_8_KB():
    size, factor = knee(FAST)
    assert size == 8192
    assert factor > 10
    assert knee({3: 1.0}) is None


def test_curves_that_cross():
    a = {n: 10 + n / 100 for n in SIZES}
    b = {n: 30 + n / 1000 for n in SIZES}
    made = parting(("low latency", a), ("high bandwidth", b))
    assert made.faster == "high bandwidth"
    assert made.reversed_at <= 2048
    assert made.apart == 8192  # 92 us against 38


def test_one_size_that_is_off_is_no_crossing():
    odd = {**GIGABIT, 4096: 900.0}
    assert parting(("fast", FAST), ("gigabit", odd)).reversed_at is None


def test_equal_curves_never_part():
    made = parting(("a", FAST), ("b", FAST))
    assert (made.together, made.apart, made.faster) == (SIZES[-1], None, "")


@pytest.mark.parametrize("bad", [{}, {8: 1.0}, {4: 0.0}, {4: float("nan")}])
def test_curves_that_cannot_be_compared(bad):
    with pytest.raises(ValueError, match=r"no size in common|not above zero"):
        parting(("a", {4: 1.0}), ("b", bad))


def runs(repeats, noise, seed=1, sizes=SIZES, **profiles):
    rng = np.random.default_rng(seed)
    for name, time in profiles.items():
        case = Case(check="netpipe", transport="tcp", profile=name, nodes=2)
        for repeat in range(repeats):
            points = [(n, time(n) * float(np.exp(rng.normal(0, noise)))) for n in sizes]
            curve = Curve(name="netpipe", y_name="latency", y_unit="us", points=points)
            yield Measured(
                "t1",
                Run(
                    case=case, repeat=repeat, round=repeat, outcome="ran", curves=[curve], job=Job()
                ),
            )


def test_the_fastest_profile_of_each_range_of_sizes():
    profiles = {
        "quick": lambda n: 10 + n / 100, "wide": lambda n: 20 + n / 1000,
        "slow": lambda n: 50 + n / 50,
    }  # fmt: skip
    [made] = comparisons(runs(6, 0.01, **profiles))
    assert [(f.word, f.decision.answer, f.decision.leaders) for f in made.fastest] == [
        ("small", "best", ("quick",)),
        ("medium", "best", ("wide",)),
        ("large", "best", ("wide",)),
    ]
    assert made.reference == "wide"
    assert made.partings["quick"].reversed_at == 1024
    assert made.scatter < 0.05
    assert made.inputs.samples == 18 * len(SIZES)


def test_two_repeats_decide_nothing_and_noise_hides_where_curves_part():
    profiles = {"a": lambda n: 10 + n / 100, "b": lambda n: 10 + n / 1000}
    [made] = comparisons(runs(2, 0.3, **profiles))
    assert {f.decision.answer for f in made.fastest} == {"measure more"}
    assert made.partings["a"].apart is None
    assert made.seem["a"].apart


@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize(
    "profiles",
    [
        {"a": lambda n: 10 + n / 100, "b": lambda n: 10 + n / 250},
        {"a": lambda n: 10 + n / 100, "b": lambda n: 30 + n / 1000},
        {"a": lambda n: 14.8 + n / 67.5, "b": lambda n: 10 + n / 100},
    ],
)
def test_where_curves_part_is_right_when_it_is_said(profiles, noise):
    trials, wrong = 60, 0
    for seed in range(trials):
        [made] = comparisons(runs(5, noise, seed=seed, sizes=SIZES[::2], **profiles))
        for name, at in made.partings.items():
            ratio = {n: profiles[name](n) / profiles[made.reference](n) for n in SIZES[::2]}
            wrong += (
                (at.apart is not None and any(ratio[n] < 1.5 for n in ratio if n >= at.apart))
                or (at.together is not None
                    and any(not 1 / 1.1 < ratio[n] < 1.1 for n in ratio if n <= at.together))
                or (at.reversed_at is not None and ratio[at.reversed_at] >= 1)
            )  # fmt: skip
    assert wrong <= 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)


def test_profiles_within_ten_per_cent_up_to_a_size_are_so_at_all_smaller_ones():
    """Curves that cross are within 10 % at one size, and not below it."""
    crossing = {"a": lambda n: 10 + n / 100, "b": lambda n: 30 + n / 1000}
    [made] = comparisons(runs(6, 0.001, **crossing))
    assert made.seem["a"].together is not None
    assert made.partings["a"].together is None
    assert (made.partings["a"].reversed_at, made.partings["a"].apart) == (2048, 8192)


def test_units_that_differ_and_sizes_that_none_has_in_common_are_refused():
    own = list(runs(3, 0.01, a=lambda n: 10 + n / 100, b=lambda n: 50 + n / 50))
    own[0].run.curves[0].y_unit = "ms"
    [made] = comparisons(own)
    assert made.fault == "its runs have latency in ms and latency in us"
    assert (made.fastest, made.partings) == ((), {})
    own[0].run.curves[0].y_unit = "us"
    own[0].run.curves[0].points[:] = [(5, 10.0)]
    [made] = comparisons(own)
    assert "no size with a time in common" in made.fault


def test_a_time_of_zero_was_not_measured():
    """A job user writes the points: one that is no time says nothing on the others."""
    odd = {0: 1.0, 3: 0.0, 6: -1.0, 12: float("nan"), 24: float("inf")}

    def of(profile, points):
        case = Case(check="netpipe", transport="tcp", profile=profile, nodes=2)
        curve = Curve(name="netpipe", y_name="latency", y_unit="us", points=list(points.items()))
        return [
            Measured(
                "t", Run(case=case, repeat=repeat, round=repeat, outcome="ran", curves=[curve])
            )
            for repeat in range(3)
        ]

    (plain,) = comparisons([*of("a", FAST), *of("b", GIGABIT)])
    (made,) = comparisons([*of("a", FAST | odd), *of("b", GIGABIT | odd)])
    assert made.partings == plain.partings
    (none,) = comparisons([*of("a", odd), *of("b", odd)])
    assert "no size with a time in common" in none.fault


def test_one_profile_is_not_compared():
    assert comparisons(runs(3, 0.01, a=lambda n: 10 + n)) == []


def test_profiles_on_different_nodes_have_no_fastest():
    own = list(runs(6, 0.01, quick=lambda n: 10 + n / 100, slow=lambda n: 50 + n / 50))
    for one in own:
        one.run.job = Job(nodes=["n1", "n2"] if one.run.case.profile == "quick" else ["n3", "n4"])
    [made] = comparisons(own)
    assert {f.decision.answer for f in made.fastest} == {"measure more"}
    assert "cannot be told from the nodes" in made.nodes_differ


# --- networks and transports ---------------------------------------------------------------------


def over(options, repeats=6, noise=0.01, check="mpbench", curve="mpbench gap", rate=False, **held):
    """Runs of each network (or ``held``'s other axis): option -> time in us of n bytes."""
    rng = np.random.default_rng(3)
    fields = {"transport": "openmpi-tcp", "profile": "igb-off", "nodes": 2, **held}
    axis = fields.pop("axis", "network")
    for option, time in options.items():
        case = Case(check=check, **{**fields, axis: option})
        for repeat in range(repeats):
            us = {n: time(n) * float(np.exp(rng.normal(0, noise))) for n in SIZES}
            kind = {"y_name": "bandwidth", "y_unit": "MB/s"} if rate else \
                {"y_name": "latency", "y_unit": "us"}  # fmt: skip
            points = [(n, n / t if rate else t) for n, t in us.items()]
            made = Curve(name=curve, points=points, **kind)
            nic = {"n1": {"eth1": {"before": {"network": case.network, "driver": "igb"}}}}
            proof = PathProof(network=case.network or "x", required_bytes=1, counters=[],
                              crossed=True)  # fmt: skip
            yield Measured("t1", Run(case=case, repeat=repeat, round=repeat, outcome="ran",
                                     curves=[made], nic=nic, path=proof))  # fmt: skip


FABRICS = {"gigabit": GIGABIT.__getitem__, "fast": FAST.__getitem__}


def test_the_gap_of_two_fabrics_certainly_parts_where_the_paper_says():
    [made] = comparisons(over(FABRICS), NETWORK)
    assert (made.route, made.profile, made.curve) == ("openmpi-tcp", "igb-off", "mpbench gap")
    assert made.hardware == "gigabit (driver igb), fast (driver igb)"
    assert made.reference == "gigabit"
    assert (made.partings["fast"].together, made.partings["fast"].apart) == (8192, 10240)
    assert [(f.word, f.decision.answer, set(f.decision.leaders)) for f in made.fastest] == [
        ("small", "no difference", {"gigabit", "fast"}),
        ("medium", "best", {"gigabit"}),
        ("large", "best", {"gigabit"}),
    ]
    knee_of_fast = made.knees["fast"]
    assert knee_of_fast.size == 8192
    assert 10 < knee_of_fast.least <= knee_of_fast.factor <= knee_of_fast.most
    assert comparisons(over(FABRICS)) == []  # one profile over each


def test_large_messages_have_eight_to_ten_times_the_bandwidth():
    """Of Sokolowski: the bandwidths of Fast and Gigabit Ethernet part at about 1 KB."""
    laws = {"gigabit": lambda n: 60 + n / 110, "fast": lambda n: 60 + n / 12}
    curve = {"curve": "mpbench bandwidth", "rate": True}
    [made] = comparisons(over(laws, **curve), NETWORK)
    assert made.rate
    parted = made.partings["fast"]
    assert (parted.together, parted.apart) == (64, 512)
    large = made.fastest[-1].decision
    assert 8 < large.ahead["fast"].low < large.ahead["fast"].high < 10


def test_a_bandwidth_beside_its_times_is_not_compared_again():
    own = list(over(FABRICS, curve="mpbench"))
    for one in own:
        rates = [(n, n / us) for n, us in one.run.curves[0].points]
        one.run.curves.append(
            Curve(name="mpbench", y_name="bandwidth", y_unit="MB/s", points=rates)
        )
    [made] = comparisons(own, NETWORK)
    assert not made.rate


@pytest.mark.parametrize("name", ["mpbench n1-n2", "comms send_us rank 0", "netpipe gap"])
def test_curves_of_one_link_or_one_call_are_none_of_a_network(name):
    assert comparisons(over(FABRICS, curve=name), NETWORK) == []


def test_a_network_whose_driver_changed_is_not_compared():
    own = list(over(FABRICS))
    own[0].run.nic["n1"]["eth1"]["before"]["driver"] = "e1000e"
    [made] = comparisons(own, NETWORK)
    assert made.fault == (
        "the hardware of gigabit changed: gigabit (driver e1000e) and gigabit (driver igb)"
    )


def test_transports_are_compared_under_one_profile_and_network():
    laws = {"openmpi-tcp": lambda n: 30 + n / 100, "openmpi-ucx": lambda n: 10 + n / 100}
    own = list(over(laws, axis="transport", network="gigabit"))
    [made] = comparisons(own, TRANSPORT)
    assert (made.route, made.profile) == ("gigabit", "igb-off")
    assert made.fastest[0].decision.leaders == ("openmpi-ucx",)
    plain = over({**laws, "tcp": lambda n: 5.0}, axis="transport", network="gigabit")
    [made] = comparisons(plain, TRANSPORT)
    assert made.medians.keys() == laws.keys(), "plain sockets are no transport of a job"


def price(network, usd, **changed):
    return Cost(name="purchase", usd=usd, date="2004-03-01", includes="all", network=network,
                **changed)  # fmt: skip


def test_the_cheapest_network_within_ten_per_cent_of_the_fastest():
    costs = [price("gigabit", 3000), price("fast", 2000)]
    [made] = comparisons(over(FABRICS), NETWORK, costs)
    assert [part.near.cheapest for part in made.fastest] == ["fast", "gigabit", "gigabit"]
    assert made.fastest[0].near.prices == {"gigabit": 3000, "fast": 2000}
    for few in (costs[:1], [price("gigabit", 1), price("fast", 2, profile="other")], []):
        [made] = comparisons(over(FABRICS), NETWORK, few)
        assert {(part.near.cost, part.near.cheapest) for part in made.fastest} == {("", "")}


@pytest.mark.parametrize(
    ("low", "high", "within", "cheapest"),
    [
        (1.01, 1.09, ("a", "b"), "b"),  # certainly as fast as that
        (1.2, 1.3, ("a",), "a"),
        (1.05, 1.2, ("a",), ""),  # b costs less, and may be within
        (0.8, 1.05, ("b",), "b"),  # b may be much faster than a
        (0.0, math.inf, (), ""),
    ],
)
def test_a_cheaper_option_that_may_be_fast_enough_leaves_the_answer_open(
    low, high, within, cheapest
):
    decision = Decision("measure more", ("a", "b"), ahead={"b": Estimate(1.05, low, high)})
    made = near(decision, "purchase", {"a": 2.0, "b": 1.0})
    assert (made.within, made.cheapest) == (within, cheapest)


@pytest.mark.parametrize(("truth", "fast_enough"), [(1.15, False), (1.05, True), (0.8, True)])
def test_the_cheapest_option_is_right_when_it_is_said(truth, fast_enough):
    """b costs less. It is the cheapest that is fast enough, or a is."""
    rng = np.random.default_rng(5)
    trials, said, wrong = 300, 0, 0
    for _ in range(trials):
        samples = {name: list(mean * np.exp(rng.normal(0, 0.05, 8)))
                   for name, mean in (("a", 10.0), ("b", 10.0 * truth))}  # fmt: skip
        made = near(decide(samples, "lower"), "purchase", {"a": 2.0, "b": 1.0})
        said += bool(made.cheapest)
        wrong += made.cheapest == ("a" if fast_enough else "b")
    assert wrong <= 0.05 * trials
    assert said


def lost_of(profile, failed=0, disturbed=0, runs_of_case=6):
    case = Case(check="netpipe", transport="tcp", profile=profile, nodes=2)
    of_case = {("t1", case): (disturbed, runs_of_case)} if disturbed else {}
    return Lost({("t1", case): failed}, of_case)


def test_a_profile_that_was_disturbed_or_fails_may_be_the_fastest_or_the_slowest():
    profiles = {"a": lambda n: 10 + n / 100, "b": lambda n: 20 + n / 100}
    [made] = comparisons(runs(6, 0.001, **profiles))
    assert made.fastest[0].decision.leaders == ("a",)
    for lost, reason in [
        (lost_of("c", disturbed=6), "other programs disturbed the runs under c"),
        (lost_of("a", failed=6), "6 of 12 runs under a failed, of b 0 of 6"),
    ]:
        [made] = comparisons(runs(6, 0.001, **profiles), lost=lost)
        for one in made.fastest:
            assert one.decision.answer == "measure more"
            assert reason in one.decision.reason
            assert one.near is None
    # what was disturbed in part has runs that were not
    [made] = comparisons(runs(6, 0.001, **profiles), lost=lost_of("a", disturbed=2, runs_of_case=8))
    assert made.fastest[0].decision.answer == "best"


def test_trials_that_disagree_on_the_fastest_give_no_answer():
    a, b = (lambda n: 10 + n / 100), (lambda n: 13 + n / 75)
    few = runs(8, 0.001, quick=b, slow=a)
    many = [replace(run, trial="t2") for run in runs(40, 0.001, quick=a, slow=b)]
    [made] = comparisons([*few, *many])
    assert {one.decision.answer for one in made.fastest} == {"measure more"}
    assert "the trials disagree" in made.fastest[0].decision.reason


def test_a_profile_without_the_slow_rounds_is_not_the_fastest():
    """From round 6 on all is slower. Profile a has no runs in these, b none before."""
    alike = {"a": lambda n: 10 + n / 100, "b": lambda n: 10 + n / 100}
    own = [
        run
        for run in runs(12, 0.001, **alike)
        if (run.run.round < 6) == (run.run.case.profile == "a")
    ]
    assert comparisons(own) == []
    [made] = comparisons([*own, *(run for run in runs(12, 0.001, **alike) if run.run.round == 3)])
    assert {one.decision.answer for one in made.fastest} == {"measure more"}
    assert made.fastest[0].decision.repeats == 1
