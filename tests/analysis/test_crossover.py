"""Where curves part and cross, and which profile is the fastest for which messages."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analysis.conclusion import Measured
from seatrial.analysis.crossover import comparisons, impossible, knee, parting
from seatrial.results.record import Case, Curve, Job, Run

SIZES = [2**k for k in range(2, 23)] + [10240]
SIZES.sort()


def gap(n, us_per_B):
    """The time of a send as seed 002 describes it: 30 us up to 8 KB, then the speed of the wire."""
    return 30.0 if n <= 8192 else 30.0 + us_per_B * n


FAST = {n: gap(n, 0.08) for n in SIZES}
GIGABIT = {n: gap(n, 0.008) for n in SIZES}


def test_the_gap_of_fast_and_gigabit_ethernet_parts_at_8_to_10_KB():
    made = parting(("fast", FAST), ("gigabit", GIGABIT))
    assert (made.together, made.apart, made.faster) == (8192, 10240, "gigabit")
    assert made.reversed_at is None
    assert parting(("gigabit", GIGABIT), ("fast", FAST)) == made


def test_the_knee_of_fast_ethernet_is_above_8_KB():
    size, factor = knee(FAST)
    assert size == 8192
    assert factor > 10
    assert knee({3: 1.0}) is None


def test_a_send_of_32_us_is_no_round_trip_of_fast_ethernet():
    """8 KiB take 655 us at 100 Mbit/s: the paper's latency is a gap."""
    assert impossible({8192: 32.0}, 100e6) == 8192
    assert impossible({8192: 656.0}, 100e6) is None


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


def runs(repeats, noise, **profiles):
    rng = np.random.default_rng(1)
    for name, time in profiles.items():
        case = Case(check="netpipe", transport="tcp", profile=name, nodes=2)
        for repeat in range(repeats):
            points = [(n, time(n) * float(np.exp(rng.normal(0, noise)))) for n in SIZES]
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
    assert made.partings["quick"].reversed_at
    assert made.scatter < 0.05
    assert not made.noisy
    assert made.inputs.samples == 18 * len(SIZES)


def test_two_repeats_decide_nothing_and_noise_hides_where_curves_part():
    profiles = {"a": lambda n: 10 + n / 100, "b": lambda n: 10 + n / 1000}
    [made] = comparisons(runs(2, 0.3, **profiles))
    assert {f.decision.answer for f in made.fastest} == {"measure more"}
    assert made.noisy


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
    assert comparisons([*of("a", odd), *of("b", odd)]) == []


def test_one_profile_is_not_compared():
    assert comparisons(runs(3, 0.01, a=lambda n: 10 + n)) == []


def test_profiles_on_different_nodes_have_no_fastest():
    own = list(runs(6, 0.01, quick=lambda n: 10 + n / 100, slow=lambda n: 50 + n / 50))
    for one in own:
        one.run.job = Job(nodes=["n1", "n2"] if one.run.case.profile == "quick" else ["n3", "n4"])
    [made] = comparisons(own)
    assert {f.decision.answer for f in made.fastest} == {"measure more"}
    assert "cannot be told from the nodes" in made.nodes_differ
