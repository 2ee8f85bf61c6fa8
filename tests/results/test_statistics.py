import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.results.statistics import (
    Limit,
    chance_of_breaking,
    decide,
    is_clear,
    median,
    median_error,
    median_interval,
    median_without,
    quantile,
    spread,
    summarize,
)

samples = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12)


@pytest.mark.parametrize("n", range(2, 13))
def test_spread_is_unbiased_for_normal_samples(n):
    """The tabled factors, checked against draws instead of against themselves."""
    draw = random.Random(n)
    mean = sum(spread([draw.gauss(0, 1) for _ in range(n)]) for _ in range(6000)) / 6000
    assert mean == pytest.approx(1, abs=0.035)


def test_three_samples_of_which_two_agree_are_not_called_steady():
    assert spread([10, 10, 50]) > 20
    assert spread([10, 10, 10, 11, 9, 5000]) < 2
    assert spread([10]) is None


@given(samples.filter(lambda s: len(s) > 1), st.floats(0.01, 100))
def test_spread_scales_with_the_unit(values, factor):
    scaled = spread([factor * v for v in values])
    assert scaled == pytest.approx(factor * spread(values), rel=1e-6, abs=1e-6)


def test_statistics_mean_good_and_bad_by_direction():
    values = [3.0, 1.0, 2.0]
    assert summarize(values, "best", "lower") == summarize(values, "worst", "higher") == 1
    assert summarize(values, "worst", "lower") == summarize(values, "best", "higher") == 3
    many = [float(i) for i in range(1, 201)]
    assert summarize(many, "p99", "lower") == 198
    assert summarize(many, "p99", "higher") == 3
    assert quantile(values, 0.99) == 3


@pytest.mark.parametrize("n", [6, 9, 15])
def test_median_interval_covers_as_often_as_it_says(n):
    draw = random.Random(n)
    hits = 0
    for _ in range(3000):
        low, high = median_interval([draw.expovariate(1) for _ in range(n)])
        hits += low <= math.log(2) <= high
    assert hits / 3000 > 0.94


def test_five_samples_have_no_95_percent_interval():
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)


MOST_33 = Limit("most", 33.0, 3.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([30.0], "pass"),
        ([33.1], "fail"),
        ([33.0], "pass"),
        ([30, 30.2, 29.9], "pass"),
        ([34, 34.1, 34.2], "fail"),
        ([20, 30, 40], "inconclusive"),  # scatter wider than the tolerance, on both sides
        ([26, 31, 32.9], "inconclusive"),  # all within, by luck
        ([40, 400, 4000], "fail"),  # wild, but never within
        ([5, 6, 11], "pass"),  # noisier than the tolerance, and far from the bound
        ([32, 33.1, 34], "inconclusive"),  # nearer to the bound than the median is known
        ([32.9, 40, 41], "inconclusive"),
        ([34] * 9 + [20], "fail"),  # ten samples: one lucky one does not raise a doubt
        ([18, 22, 26, 31, 32, 32.5, 32.9], "pass"),  # seven within: 95 % sure of the median
        ([32, 36, 40, 44, 50, 55, 60, 65, 70], "fail"),  # 95 % sure, though one is within
    ],
)
def test_median_against_a_bound(values, expected):
    assert decide(values, MOST_33, "median", "lower") == expected
    mirrored = Limit("least", -33.0, 3.0)
    assert decide([-v for v in values], mirrored, "median", "higher") == expected


def test_extremes_are_facts():
    noisy = [29.0, 300.0, 500.0]
    assert decide(noisy, MOST_33, "best", "lower") == "pass"
    assert decide([29, 29.1, 33.2], MOST_33, "worst", "lower") == "fail"
    assert decide([29, 29.1, 29.2], MOST_33, "worst", "lower") == "pass"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([33.1], "fail"),
        ([33.1, 30.0], "inconclusive"),
        ([90.0, 30.0, 30.0], "pass"),  # for the median its spread hides the answer
        ([34.0, 34.0, 5.0], "fail"),
        ([34.0, 30.0, 34.0, 30.0], "inconclusive"),
        ([34.0, 30.0, 30.0, 30.0], "pass"),
    ],
)
def test_majority(values, expected):
    assert decide(values, MOST_33, "majority", "lower") == expected
    mirrored = Limit("least", -33.0, 3.0)
    assert decide([-v for v in values], mirrored, "majority", "higher") == expected


@given(samples, st.floats(1, 1e5))
def test_the_value_of_a_majority_is_on_its_side(values, bound):
    limit = Limit("most", bound, bound)
    verdict = decide(values, limit, "majority", "lower")
    if verdict != "inconclusive":
        value = summarize(values, "majority", "lower")
        assert (limit.excess(value) > 0) == (verdict == "fail")


def test_the_error_of_a_median_is_that_of_many_normal_samples():
    assert median_error(2.0, 1) == 2.0
    assert median_error(2.0, 4) == pytest.approx(1.2533, abs=1e-4)  # sqrt(pi/2) * 2 / sqrt(4)


def test_a_measured_bound_is_uncertain_too():
    exact = Limit("most", 60.0, 40.0)
    vague = Limit("most", 60.0, 40.0, sigma=30.0, error=20.0, extreme=90.0)
    assert decide([62.0, 62.1, 62.2], exact, "median", "lower") == "fail"
    assert decide([62.0, 62.1, 62.2], vague, "median", "lower") == "inconclusive"
    noisy = Limit("most", 60.0, 4.0, sigma=30.0, error=0.1, extreme=90.0)
    assert decide([50.0, 50.1, 50.2], noisy, "median", "lower") == "inconclusive"
    assert decide([95.0, 95.1, 95.2], vague, "median", "lower") == "fail"


@given(
    samples,
    st.data(),
    st.floats(1, 1e5),
    st.floats(0, 2),
    st.sampled_from(["median", "best", "worst", "p99", "majority"]),
)
def test_worsening_a_sample_never_turns_fail_into_pass(values, data, bound, width, statistic):
    limit = Limit("most", bound, (width or 1) * bound)
    before = decide(values, limit, statistic, "lower")
    index = data.draw(st.integers(0, len(values) - 1))
    worse = list(values)
    worse[index] += data.draw(st.floats(0, 1e6))
    after = decide(worse, limit, statistic, "lower")
    assert not (before == "fail" and after == "pass")


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=9), st.data())
def test_median_without_one_of_the_samples(values, data):
    one = data.draw(st.integers(0, len(values) - 1))
    assert median_without(sorted(values), values[one]) == median(values[:one] + values[one + 1 :])


def test_chance_of_a_next_sample_beyond_a_bound():
    assert chance_of_breaking(0, 4) == pytest.approx(1 / 6)
    assert chance_of_breaking(4, 4) == pytest.approx(5 / 6)
    assert chance_of_breaking(0, 0) == 0.5


@given(
    samples,
    st.floats(0.1, 1e6),
    st.floats(0, 3),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.sampled_from(["most", "least"]),
    st.sampled_from(["median", "best", "worst", "p99", "majority"]),
    st.sampled_from(["lower", "higher"]),
)
def test_what_is_clear_is_what_decide_passes(
    values, bound, width, sigma, error, side, statistic, better
):
    limit = Limit(side, bound, (width or 1) * bound, sigma, error)
    value = summarize(values, statistic, better)
    assert limit.includes(values) == all(limit.excess(x) <= 0 for x in values)
    if limit.includes(values) and is_clear(value, spread(values) or 0.0, limit):
        assert decide(values, limit, statistic, better) == "pass"


def test_the_median_of_huge_values_is_finite():
    huge = 1.7e308
    assert median([huge, huge]) == huge
    assert median_without([1.0, huge, huge], 1.0) == huge
