"""Comparing groups of trials: the words, the numbers behind them, and what else differed."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from history_support import LINKS, NETPIPE, make_night, runs_of
from seatrial.base.errors import InputError
from seatrial.history.compare import (
    LEVEL,
    compare,
    corrected_p,
    hodges_lehmann,
    rows_of,
)
from seatrial.history.index import Series, opened

LOWER = [Series("s", NETPIPE, f"m{i}_us", "", "us", "lower") for i in range(60)]


def drawn(seed, series, a, b, noise=0.01):
    """Two groups of figures about 100."""
    values = 100 * np.exp(np.random.default_rng(seed).normal(0, noise, (series, a + b)))
    return values[:, :a], values[:, a:]


def words(rows):
    return {row.series.metric: row.verdict for row in rows}


def test_steps_are_named_and_the_rest_is_not():
    a, b = drawn(1, 60, 6, 6)
    b[3] *= 1.10
    b[4] *= 0.93
    rows = rows_of(LOWER, a, b)
    assert [(row.series.metric, row.verdict) for row in rows[:2]] == [
        ("m3_us", "worse"), ("m4_us", "better"),
    ]  # fmt: skip
    assert {row.verdict for row in rows[2:]} <= {"same", "can't tell"}
    assert rows[0].low < 1.10 < rows[0].high
    assert rows[0].ratio == pytest.approx(1.10, rel=0.02)
    assert 0.002 < rows[0].noise < 0.03


def test_a_higher_figure_is_better_where_higher_is_better():
    series = [Series("s", NETPIPE, "bandwidth_MB_s", "", "MB/s", "higher")]
    a, b = drawn(2, 1, 6, 6)
    assert words(rows_of(series, a, b * 1.2)) == {"bandwidth_MB_s": "better"}
    assert words(rows_of(series, a, b * 0.8)) == {"bandwidth_MB_s": "worse"}


def test_worst_first():
    a, b = drawn(3, 5, 8, 8)
    b *= np.array([[1.05], [0.9], [1.3], [1.0], [1.15]])
    rows = rows_of(LOWER[:5], a, b)
    names = [row.series.metric for row in rows if row.verdict in ("worse", "better")]
    assert names == ["m2_us", "m4_us", "m0_us", "m1_us"]


def test_what_is_surely_smaller_than_the_margin_is_the_same():
    a, b = drawn(4, 1, 30, 30, noise=0.005)
    assert words(rows_of(LOWER[:1], a, b * 1.005, margin=0.02)) == {"m0_us": "same"}
    assert words(rows_of(LOWER[:1], a, b * 1.015, margin=0.002)) == {"m0_us": "worse"}


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 2), (3, 3), (1, 5)])
def test_too_few_figures_tell_nothing(a, b):
    first, second = drawn(5, 3, a, b)
    assert set(words(rows_of(LOWER[:3], first, second * 3)).values()) == {"can't tell"}


def test_the_rate_of_false_words_is_that_of_the_level():
    """Of heavy-tailed figures, and over all 60 series together."""
    false = 0
    trials = 60
    for seed in range(trials):
        z = np.random.default_rng(seed).standard_t(2, (60, 10))
        values = 100 * np.exp(0.02 * z)
        rows = rows_of(LOWER, values[:, :5], values[:, 5:])
        false += any(row.verdict in ("worse", "better") for row in rows)
    assert stats.binomtest(false, trials, LEVEL, "greater").pvalue > 1e-4


def test_one_night_of_chance_does_not_hide_a_step():
    a, b = drawn(6, 10, 10, 10)
    b[0] *= 1.08
    b[0, 4] = 5000.0
    a[1, 2] = 5000.0
    rows = words(rows_of(LOWER[:10], a, b))
    assert rows["m0_us"] == "worse"
    assert rows["m1_us"] in ("same", "can't tell")


def test_figures_that_can_be_zero_and_gaps():
    a = np.array([[0.0, 1.0, 0.5, 0.0, 1.0, 0.5], [1.0, np.nan, 1.01, 1.0, np.nan, 1.0]])
    b = np.array([[9.0, 9.5, 9.0, 9.1, 9.2, 9.3], [1.0, 1.01, np.nan, 1.0, 1.0, 0.99]])
    rows = {row.series.metric: row for row in rows_of(LOWER[:2], a, b)}
    assert rows["m0_us"].verdict == "worse"
    assert len(rows["m1_us"].a) == 4
    assert rows["m1_us"].verdict in ("same", "can't tell")
    assert all(math.isfinite(row.ratio) for row in rows.values())


def test_p_of_one_series_is_that_of_scipy():
    """With one series, the corrected p-value is the exact one of a permutation test."""
    for seed in range(5):
        a, b = drawn(seed, 1, 4, 5)
        logs = np.log(np.concatenate([a, b], axis=1))

        def statistic(x, y, axis=-1):
            # monotonic in the statistic of the module, whose total scatter is fixed
            return np.abs(np.mean(x, axis=axis) - np.mean(y, axis=axis))

        expected = stats.permutation_test(
            (logs[0, :4], logs[0, 4:]), statistic, vectorized=True, alternative="greater",
            n_resamples=np.inf,
        ).pvalue  # fmt: skip
        assert corrected_p(logs, 4)[0] == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(a=st.integers(1, 7), b=st.integers(1, 7), seed=st.integers(0, 999))
def test_the_interval_is_that_of_the_test_of_mann_and_whitney(a, b, seed):
    """It leaves 0 out exactly where the one-sided test of Mann and Whitney rejects."""
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=a), draw.normal(size=b) + seed % 4
    shift, low, high = hodges_lehmann(x, y)
    shifts = np.sort([second - first for first, second in product(x, y)])
    assert shift == pytest.approx(np.median(shifts))
    exact = stats.mannwhitneyu(x, y, alternative="less", method="exact")
    if low is None:
        assert 1 / math.comb(a + b, a) > LEVEL / 2
    else:
        assert low <= shift <= high
        assert (low > 0) == (exact.pvalue <= LEVEL / 2)


@pytest.fixture
def drivers(tmp_path):
    """Six nights with each of two drivers; the second is slower, and came with another kernel."""
    draw = np.random.default_rng(11)
    for number in range(12):
        new = number >= 6
        versions = {"driver of eth1": f"igb 5.{1 + new}", "kernel": f"6.{1 + new}", "mpi": "5"}
        values = (30 * (1.2 if new else 1) * np.exp(draw.normal(0, 0.01, 3))).tolist()
        steady = (900 * np.exp(draw.normal(0, 0.003, 3))).tolist()
        runs = [
            *runs_of(NETPIPE, "latency_us", values, versions=versions),
            *runs_of(LINKS, "stream_MB_s", steady, "MB/s", "higher", "n1>n2", versions=versions),
        ]
        make_night(tmp_path, number, (1, 2, 3), runs=runs)
    return tmp_path


def compared(trials, a, b, **options):
    with opened(trials, print) as index:
        return compare(index, a, b, **options)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("driver=igb 5.1", "driver=igb 5.2"),
        ("driver=igb-5.1", "driver=igb-5.*2"),
        ("driver of eth1=igb 5.1", "kernel=6.2"),
        ("2026-08-01..2026-08-06", "2026-08-07.."),
        ("..2026-08-06", "2026-08-07..2026-08-12"),
        ("lab-000,lab-001,lab-00[2-5]", "lab-00[6-9],lab-01*"),
    ],
)
def test_groups_by_version_date_and_name(drivers, a, b):
    result = compared(drivers, a, b)
    assert [len(group.trials) for group in (result.a, result.b)] == [6, 6]
    first, second = result.rows
    assert (first.series.metric, first.verdict) == ("latency_us", "worse")
    assert (second.series.metric, second.verdict) == ("stream_MB_s", "same")
    assert {one.name: (one.a, one.b) for one in result.differences} == {
        "driver of eth1": (["igb 5.1"], ["igb 5.2"]),
        "kernel": (["6.1"], ["6.2"]),
    }
    chosen = {one.name for one in result.differences if one.chosen}
    assert chosen == {
        name for name in ("driver of eth1", "kernel") if f"{name.split()[0]}" in f"{a} {b}"
    }


def test_two_trials_are_compared_by_their_repeats_and_say_so(tmp_path):
    make_night(tmp_path, 0, (30.0, 30.1, 29.9, 30.2, 29.8))
    make_night(tmp_path, 1, (40.0, 40.1, 39.9, 40.2, 39.8))
    result = compared(tmp_path, "lab-000", str(tmp_path / "lab-001"))
    assert [row.verdict for row in result.rows] == ["worse"]
    assert len(result.rows[0].a) == 5
    assert "each group is one trial" in result.notes[0]


def test_a_note_says_that_the_trials_are_too_few(tmp_path):
    for number in range(4):
        make_night(tmp_path, number)
    notes = compared(tmp_path, "lab-000,lab-001", "lab-002,lab-003").notes
    text = "so few figures cannot show a difference: the least possible p-value is 0.33"
    assert notes == [f"{text}, and 0.05 is needed; compare more trials"]


def test_series_of_one_group_are_named(drivers):
    make_night(drivers, 20, (1,), runs=runs_of(NETPIPE, "other_us", (1,)))
    with pytest.raises(InputError, match="no series in common"):
        compared(drivers, "lab-000", "lab-020")
    make_night(drivers, 21, (1,))
    result = compared(drivers, "lab-000", "lab-021")
    assert result.only_a == [f"{LINKS.id}: stream_MB_s at n1>n2"]
    assert result.only_b == []
    assert compared(drivers, "lab-000", "lab-001", patterns={"check": ["links"]}).only_a == []


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ("lab-000", "lab-00[01]", "lab-000 is in both groups"),
        ("driver=igb*", "kernel=6.2", "is in both groups"),
        ("lab-00x", "lab-001", r"lab-00x: no trial has this name.*did you mean 'lab-0"),
        ("driver=ice", "lab-001", "known values: igb 5.1, igb 5.2"),
        ("firmware=1", "lab-001", "no case has it"),
        ("2025-01-01..2025-02-01", "lab-001", "known: 2026-08-01 to 2026-08-12, UTC"),
        ("2026-02-30", "lab-001", "2026-02-30: no such day"),
    ],
)
def test_groups_that_are_wrong(drivers, a, b, text):
    with pytest.raises(InputError, match=text):
        compared(drivers, a, b)


def test_no_trials(tmp_path):
    with pytest.raises(InputError, match="has no trial that can be read"):
        compared(tmp_path, "a", "b")
