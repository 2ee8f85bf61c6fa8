"""The answers best, no difference and measure more, and how often each of them is wrong."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from seatrial.analysis.conclusion import Estimate
from seatrial.analysis.decision import Decision, decide, least_repeats, ratio

MADE = 300  # trials of a simulation


def noise(rng, kind, n, width):
    """Factors by which figures scatter, as networks have them: outliers to one side, regimes."""
    if kind == "regimes":
        return np.exp(rng.normal(0, 0.001, n)) * np.where(rng.random(n) < 0.3, 1 + 5 * width, 1)
    outliers = np.where(rng.random(n) < 0.1, 3, 1) if kind == "outliers" else 1
    return np.exp(rng.normal(0, width, n)) * outliers


def answers(kind, width, repeats, truths, seed=1, better="higher"):
    rng = np.random.default_rng(seed)
    made = [
        decide(
            {f"p{i}": t * noise(rng, kind, repeats, width) for i, t in enumerate(truths)}, better
        )
        for _ in range(MADE)
    ]
    return made, Counter(one.answer for one in made)


@pytest.mark.parametrize("options", [2, 4])
@pytest.mark.parametrize("repeats", [3, 5, 8, 12])
@pytest.mark.parametrize(
    ("kind", "width"), [("normal", 0.01), ("normal", 0.08), ("outliers", 0.02), ("regimes", 0.05)]
)
def test_without_a_difference_one_is_called_the_best_in_five_per_cent_at_most(
    options, repeats, kind, width
):
    _, count = answers(kind, width, repeats, [1.0] * options)
    # 5 % and three standard deviations of the simulation
    assert count["best"] / MADE <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / MADE)


def test_options_that_scatter_unlike_are_called_best_in_five_per_cent_at_most():
    """Equal medians, scatter of 0.2 % and 20 %: of four samples each 8 % would have a best."""
    rng, decisions = np.random.default_rng(1), 1500
    for repeats in (4, 5, 6):
        count = Counter(
            decide(
                {n: noise(rng, "normal", repeats, w) for n, w in (("a", 0.002), ("b", 0.2))},
                "higher",
            ).answer
            for _ in range(decisions)
        )
        if repeats == 4:
            assert count == {"measure more": decisions}
        assert count["best"] / decisions <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / decisions)


def test_one_option_of_four_samples_is_enough_to_have_no_answer():
    made = decide({"a": [100.0 + k for k in range(30)], "b": [1.0, 1.1, 1.2, 1.3]}, "higher")
    assert (made.answer, made.needs, made.worse) == ("measure more", 5, ())


@pytest.mark.parametrize(
    ("kind", "width", "repeats", "options"),
    [("normal", 0.01, 6, 2), ("normal", 0.01, 8, 4), ("normal", 0.08, 30, 4),
     ("outliers", 0.02, 30, 4), ("regimes", 0.05, 40, 2)],
)  # fmt: skip
def test_no_difference_is_said_where_there_is_none_and_repeats_suffice(
    kind, width, repeats, options
):
    _, count = answers(kind, width, repeats, [1.0] * options)
    assert count["no difference"] / MADE >= 0.95


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(
    ("kind", "width", "gain", "repeats"),
    [("normal", 0.05, 1.1, 6), ("normal", 0.02, 1.05, 6), ("outliers", 0.02, 1.1, 8),
     ("normal", 0.1, 1.15, 8), ("regimes", 0.02, 1.1, 8)],
)  # fmt: skip
def test_the_best_is_right_when_it_is_said(better, kind, width, gain, repeats):
    truths = [1.0, gain if better == "higher" else 1 / gain, 1.0]
    made, count = answers(kind, width, repeats, truths, better=better)
    right = sum(one.answer == "best" and one.leaders == ("p1",) for one in made)
    assert count["best"] >= MADE / 5  # a rate of fewer answers would show little
    assert right / count["best"] >= 0.95


def test_a_clear_lead_is_seen():
    made, count = answers("normal", 0.02, 6, [1.0, 1.3, 1.0, 0.7])
    assert count == {"best": MADE}
    assert {one.leaders for one in made} == {("p1",)}


def test_intervals_hold_the_true_ratio_together():
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(MADE):
        first = noise(rng, "outliers", 7, 0.05)
        own = [ratio(first, noise(rng, "outliers", 7, 0.05), options=4) for _ in range(3)]
        held += all(one.low <= 1 <= one.high for one in own)
    assert held / MADE >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / MADE)


def test_intervals_of_several_looks_hold_the_true_ratio_together():
    """As the samples grow: each look alone holds it with 95 %, and all four without a correction
    in less than 90 % of experiments."""
    rng = np.random.default_rng(6)
    held = Counter()
    for _ in range(2 * MADE):
        a, b = (noise(rng, "outliers", 40, 0.05) for _ in range(2))
        for looks in (1, 4):
            own = [ratio(a[:n], b[:n], looks=looks) for n in (5, 10, 20, 40)]
            held[looks] += all(one.low <= 1 <= one.high for one in own)
    assert held[4] / (2 * MADE) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / (2 * MADE))
    assert held[1] / (2 * MADE) < 0.9


@pytest.mark.parametrize(("m", "n"), [(5, 5), (5, 7), (12, 10), (41, 45)])
def test_the_interval_excludes_one_as_the_rank_test_does(m, n):
    rng = np.random.default_rng(m)
    for shift in np.linspace(0, 2, 25):
        a, b = np.exp(rng.normal(shift, 1, m)), np.exp(rng.normal(0, 1, n))
        method = "exact" if max(m, n) <= 40 else "asymptotic"
        p = mannwhitneyu(a, b, method=method).pvalue
        if abs(p - 0.05) > 0.005:  # the approximations differ in their corrections
            estimate = ratio(a, b)
            assert (estimate.low > 1 or estimate.high < 1) == (p < 0.05)


def test_some_leaders_and_a_loser():
    rng = np.random.default_rng(2)
    samples = {n: t * noise(rng, "normal", 8, 0.005) for n, t in (("a", 1), ("b", 1.001), ("c", 2))}
    made = decide(samples, "lower")
    assert made.answer == "no difference"
    assert set(made.leaders) == {"a", "b"}
    assert made.worse == ("c",)
    assert made.ahead["c"].value == pytest.approx(2, rel=0.02)


def test_a_difference_that_is_certain_and_too_small_to_count_is_none():
    a, b = [1.0, 1.001, 1.002, 1.003, 1.004], [1.01, 1.011, 1.012, 1.013, 1.014]
    assert decide({"a": a, "b": b}, "higher").answer == "no difference"


@pytest.mark.parametrize(("options", "needed"), [(2, 5), (3, 5), (4, 5), (7, 5), (8, 6)])
def test_the_least_number_of_repeats(options, needed):
    assert least_repeats(options) == needed
    apart = {f"p{i}": [10.0**i * (1 + k / 1000) for k in range(needed)] for i in range(options)}
    assert decide(apart, "higher").answer == "best"
    fewer = decide({name: values[1:] for name, values in apart.items()}, "higher")
    assert (fewer.answer, fewer.needs) == ("measure more", needed)
    assert not any(math.isfinite(one.high) for one in fewer.ahead.values())


@pytest.mark.parametrize(("options", "needed"), [(2, 5), (3, 6), (6, 6), (7, 7), (22, 7)])
def test_several_looks_take_more_repeats(options, needed):
    assert least_repeats(options, looks=4) == needed
    apart = {f"p{i}": [10.0**i * (1 + k / 1000) for k in range(needed)] for i in range(options)}
    assert decide(apart, "higher", looks=4).answer == "best"
    fewer = decide({name: values[1:] for name, values in apart.items()}, "higher", looks=4)
    assert (fewer.answer, fewer.needs) == ("measure more", needed)


def test_options_that_were_left_out_do_not_lower_the_repeats_that_it_takes():
    rng = np.random.default_rng(3)
    samples = {n: noise(rng, "normal", 12, 0.2) for n in "ab"} | {"c": [0.001] * 6}
    made = decide(samples, "higher")
    assert made.worse == ("c",)
    assert made.needs > 12


def test_one_repeat_is_never_an_answer():
    made = decide({"a": [1.0], "b": [9.0]}, "higher")
    assert made.answer == "measure more"
    assert "measured once" in made.reason
    assert made.needs == 5


def test_scatter_asks_for_more_repeats_than_there_are():
    rng = np.random.default_rng(3)
    made = decide({n: noise(rng, "normal", 6, 0.2) for n in "ab"}, "higher")
    assert made.answer == "measure more"
    assert made.needs > 6


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_sample_that_is_no_figure_is_refused_by_name(bad):
    good = [1.0, 1.1, 1.2, 1.3]
    made = decide({"a": good, "b": [*good[1:], bad], "c": []}, "higher")
    assert made.answer == "measure more"
    assert made.reason == "there is nothing to compare it with"
    assert set(made.refused) == {"b", "c"}
    assert made.refused["c"] == "it has no sample"
    with pytest.raises(ValueError, match=r"above zero|finite"):
        ratio(good, [bad])


def test_nothing_at_all():
    assert decide({}, "higher").reason == "no option has samples"


def test_leaders_are_no_farther_apart_than_the_intervals_of_any_two_allow():
    of_b, of_c = Estimate(1.0, 0.98, 1.01), Estimate(1.02, 1.0, 1.04)
    two = Decision("no difference", ("a", "b"), ahead={"b": of_b, "worse": Estimate(2, 1.9, 2.1)})
    assert two.apart == pytest.approx(1 / 0.98 - 1)
    three = Decision("no difference", ("a", "b", "c"), ahead={"b": of_b, "c": of_c})
    assert three.apart == pytest.approx(1.04 / 0.98 - 1)  # of b and c


def in_jobs(rng, rounds, repeats, truth=1.0, of_job=0.04, noise=0.01):
    """Rounds x repeats of one profile: each round is a job with an effect of its own."""
    effect = rng.normal(0, of_job, (rounds, 1))
    return truth * np.exp(effect + rng.normal(0, noise, (rounds, repeats)))


def medians(samples):
    return np.median(samples, axis=1)


@pytest.mark.parametrize(("options", "false"), [(2, 0.5), (4, 0.3)])
def test_repeats_in_one_job_are_not_independent_and_their_blocks_are(options, false):
    """The effect of a job, 4 %, beside noise of 1 %: by single samples, one of profiles that do not
    differ is called the best in many trials; by one sample for each job, in at most 5 %."""
    rng = np.random.default_rng(16)
    by_repeats, by_rounds = Counter(), Counter()
    for _ in range(MADE):
        one_job = {f"p{i}": in_jobs(rng, 1, 10) for i in range(options)}
        by_repeats[decide({p: x[0] for p, x in one_job.items()}, "higher").answer] += 1
        several = {f"p{i}": in_jobs(rng, 5, 2) for i in range(options)}
        made = decide({p: medians(x) for p, x in several.items()}, "higher", unit="round")
        by_rounds[made.answer] += 1
        once = decide({p: medians(x) for p, x in one_job.items()}, "higher", unit="round")
        assert (once.answer, once.needs) == ("measure more", least_repeats(options))
    assert by_repeats["best"] / MADE > false
    assert by_rounds["best"] / MADE <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / MADE)


@pytest.mark.parametrize(
    ("gain", "rounds", "said"), [(1.05, 8, 0), (1.15, 8, 0.8), (1.15, 20, 0.9)]
)
def test_the_best_of_several_jobs_is_right_when_it_is_said(gain, rounds, said):
    rng = np.random.default_rng(rounds)
    right = wrong = 0
    for _ in range(MADE):
        truths = {"a": 1.0, "b": gain, "c": 1.0}
        made = decide({p: medians(in_jobs(rng, rounds, 2, t)) for p, t in truths.items()}, "higher")
        if made.answer == "best":
            right, wrong = right + (made.leaders == ("b",)), wrong + (made.leaders != ("b",))
    assert right >= 0.95 * (right + wrong)
    assert right >= said * MADE


def test_enough_jobs_show_that_there_is_no_difference():
    rng = np.random.default_rng(5)
    answers = Counter(
        decide({p: medians(in_jobs(rng, 30, 2)) for p in "ab"}, "higher").answer
        for _ in range(MADE)
    )
    assert answers["no difference"] / MADE >= 0.95


def test_a_drift_that_all_profiles_of_a_round_meet_names_no_best():
    """A day on which all figures rise by 2 % from round to round, and profiles run in turn."""
    rng = np.random.default_rng(9)
    best = 0
    for _ in range(MADE):
        drift = np.exp(0.02 * np.arange(6))[:, None]
        samples = {p: medians(in_jobs(rng, 6, 2, of_job=0.01) * drift) for p in "abc"}
        best += decide(samples, "higher").answer == "best"
    assert best / MADE <= 0.05


def test_one_round_says_what_it_cannot_tell_and_what_it_takes():
    made = decide({"a": [1.0], "b": [9.0]}, "higher", unit="round")
    assert made.reason == (
        "a profile was measured in one round alone: what its job met, such as its place, other "
        "users or the hour, cannot be told from its effect, and 2 profiles need 5 rounds each"
    )
    assert (made.needs, made.unit) == (5, "round")
