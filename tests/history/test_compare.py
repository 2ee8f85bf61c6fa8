"""Comparing groups of trials: the words, the numbers behind them, and what else differed."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from history_support import LINKS, NETPIPE, make_night, runs_of, sealed
from seatrial.analysis.ranks import hodges_lehmann
from seatrial.base.errors import InputError
from seatrial.history.compare import (
    LEVEL,
    Difference,
    compare,
    corrected_p,
    rows_of,
)
from seatrial.history.index import opened
from seatrial.history.places import Figures, exchanged_nodes, replaced
from seatrial.history.series import Series
from seatrial.report.comparison import condition, series_name, values
from seatrial.results.locations import Locations
from seatrial.results.record import TransportUse
from seatrial.results.wording import MAX_NAMED

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


@pytest.mark.parametrize(("a", "b"), [(7, 7), (9, 6), (6, 20), (27, 3)])
@pytest.mark.parametrize("step", [1.1, 10])
def test_a_step_of_a_quiet_series_is_named_beside_noisy_ones_in_groups_of_any_size(a, b, step):
    first, second = drawn(7, 20, a, b, noise=0.1)
    quiet = drawn(8, 1, a, b, noise=0.001)
    first[4], second[4] = quiet[0], quiet[1] * step
    rows = words(rows_of(LOWER[:20], first, second))
    assert rows.pop("m4_us") == "worse"
    assert set(rows.values()) <= {"same", "can't tell"}


@pytest.mark.parametrize(("a", "b"), [(3, 4), (27, 3)])
def test_the_rate_holds_for_skewed_series_of_unequal_noise(a, b):
    """The least corrected p-value is at most LEVEL in at most that part of the draws."""
    noise = np.geomspace(0.001, 0.1, 30)[:, None]
    draw = np.random.default_rng(a)
    trials = 100
    false = sum(
        corrected_p(noise * draw.exponential(size=(30, a + b)), a).min() <= LEVEL
        for _ in range(trials)
    )
    assert stats.binomtest(false, trials, LEVEL, "greater").pvalue > 1e-4


def test_figures_of_coarse_rounding_do_not_lead():
    """Figures of two values seem to have no scatter where a deal divides them, by chance."""
    a, b = drawn(9, 40, 4, 4)
    b[0] *= 1.1
    draw = np.random.default_rng(10)
    for row in range(1, 40):
        both = draw.permuted([5.0] * 4 + [5.01] * 4)
        a[row], b[row] = both[:4], both[4:]
    assert corrected_p(np.log(np.concatenate([a, b], axis=1)), 4)[0] <= LEVEL


def test_figures_that_can_be_zero_and_gaps():
    a = np.array([[0.0, 1.0, 0.5, 0.0, 1.0, 0.5], [1.0, np.nan, 1.01, 1.0, np.nan, 1.0]])
    b = np.array([[9.0, 9.5, 9.0, 9.1, 9.2, 9.3], [1.0, 1.01, np.nan, 1.0, 1.0, 0.99]])
    counts = Series("s", NETPIPE, "m0_us", "", "1", "lower")
    rows = {row.series.metric: row for row in rows_of([counts, LOWER[1]], a, b)}
    assert rows["m0_us"].verdict == "worse"
    assert len(rows["m1_us"].a) == 4
    assert rows["m1_us"].verdict in ("same", "can't tell")
    assert all(math.isfinite(row.ratio) for row in rows.values())


BANDWIDTH = Series("s", NETPIPE, "bandwidth_MB_s", "", "MB/s", "higher")


@pytest.mark.parametrize("series", [LOWER[0], BANDWIDTH])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 5), (4, 5), (2, 6)])
def test_a_figure_that_falls_to_0_is_worse_whichever_direction_is_better(series, a, b):
    first, _ = drawn(12, 1, a, 1)
    zeros = np.zeros((1, b))
    (row,) = rows_of([series], first, zeros)
    assert (row.verdict, row.ratio, row.low, row.zeros) == ("worse", 0, None, (0, b))
    assert (series_name(row), row.gain) == (f"{series.name}, fell to 0", -math.inf)
    (row,) = rows_of([series], zeros, first)
    assert (row.verdict, row.ratio, row.gain) == ("better", math.inf, math.inf)
    (row,) = rows_of([series], zeros, zeros)
    assert (row.verdict, row.ratio) in (("same", 1), ("can't tell", 1))


def test_some_figures_of_0_are_judged_by_the_test_as_the_worst_of_their_series():
    a, b = drawn(13, 3, 8, 8)
    b[0, :7] = 0  # the median is 0, too
    b[1, 3] = 0  # once, by chance
    b[2] *= 2
    rows = rows_of([BANDWIDTH, LOWER[1], LOWER[2]], a, b)
    assert [(row.series.metric, row.verdict) for row in rows] == [
        ("bandwidth_MB_s", "worse"), ("m2_us", "worse"), ("m1_us", "can't tell"),
    ]  # fmt: skip
    assert series_name(rows[0]) == f"{BANDWIDTH.name}, figures of 0: 0 of 8 in A, 7 of 8 in B"
    assert series_name(rows[1]) == LOWER[2].name
    assert rows[2].ratio == pytest.approx(1, rel=0.05)


def test_figures_that_can_be_zero_are_measured_by_those_above_it():
    errors = Series("s", NETPIPE, "errors", "", "1", "lower")
    a, b = np.zeros((1, 4)), np.array([[0.0, 0, 900, 901, 902]])
    (row,) = rows_of([errors], a, b)
    assert row.ratio == pytest.approx(1 + 900 / 901, rel=0.01)


def test_huge_figures_are_compared_without_a_warning():
    counts = Series("s", NETPIPE, "count", "", "1", "lower")
    huge = np.array([[-1.7e308, 1.7e308, 1.7e308, 5e-324, 1.7e308]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (row,) = rows_of([counts], np.array([[1.0, 1.0, 0.0, 1.0]]), huge)
        assert row.verdict == "can't tell"
        (row,) = rows_of([counts], np.array([[1.0, 1.0, 0.0, 1.0]]), np.full((1, 5), 1.7e308))
        assert row.verdict == "worse"


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
    shift, low, high = hodges_lehmann(x, y, LEVEL / 2)
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
    assert {difference.name: (difference.a, difference.b) for difference in result.differences} == {
        "driver of eth1": ({"igb 5.1": 6}, {"igb 5.2": 6}),
        "kernel": ({"6.1": 6}, {"6.2": 6}),
    }
    chosen = {difference.name for difference in result.differences if difference.chosen}
    assert chosen == {
        name for name in ("driver of eth1", "kernel") if f"{name.split()[0]}" in f"{a} {b}"
    }


THROTTLE = "driver.parameters.InterruptThrottleRate"


@pytest.fixture
def tuned(tmp_path):
    """Twelve nights whose settings of NETPIPE change, at different times."""
    for number in range(12):
        settings = {
            "setting coalesce.rx-usecs of eth1": "150" if number >= 6 else "125",
            f"setting {THROTTLE} of eth1": "3000,3000" if number >= 2 else "5000,5000",
        }
        versions = {"kernel": "6.1"}
        runs = [
            *runs_of(NETPIPE, "latency_us", (30, 31), versions=versions | settings),
            *runs_of(LINKS, "stream_MB_s", (9, 9), "MB/s", "higher", "n1>n2", versions=versions),
        ]
        make_night(tmp_path, number, (1, 2), runs=runs)
    return tmp_path


def test_groups_by_a_setting_and_the_case_in_which_it_differs(tuned):
    result = compared(tuned, "coalesce.rx-usecs=125", "setting coalesce.rx-usecs=150")
    assert [len(group.trials) for group in (result.a, result.b)] == [6, 6]
    throttle, coalesce = sorted(result.differences, key=lambda one: one.chosen)
    assert coalesce.name == "setting coalesce.rx-usecs of eth1"
    assert values(throttle.a) == "3000,3000 in 4 trials and 5000,5000 in 2"
    assert values(throttle.b) == "3000,3000"
    parameter = compared(tuned, f"{THROTTLE}=5000,5000", f"{THROTTLE}=3000*")
    assert [len(group.trials) for group in (parameter.a, parameter.b)] == [2, 10]
    with pytest.raises(InputError, match=r"did you mean 'coalesce\.rx-usecs'"):
        compared(tuned, "coalesce.rx-usec=125", "lab-001")
    by_name = compared(tuned, "lab-00[0-5]", "lab-00[6-9]")
    texts = [condition(difference, by_name.cases) for difference in by_name.differences]
    assert texts == [f"setting {name} of eth1 ({NETPIPE.id})"
                     for name in ("coalesce.rx-usecs", THROTTLE)]  # fmt: skip


def test_groups_by_a_setting_of_a_benchmark_or_of_a_transport(tmp_path):
    for number in range(4):
        buffers = TransportUse(name="tcp", env={"BUFFER": "16384" if number > 1 else "65536"})
        benchmarks = {"netpipe": {"max_bytes": 1024 if number > 2 else 65536}}
        benchmarks["links"] = {"max_bytes": 1024}
        make_night(tmp_path, number, transports=[buffers], benchmarks=benchmarks)
    result = compared(tmp_path, "BUFFER=65536", "BUFFER=16384")
    assert [len(group.trials) for group in (result.a, result.b)] == [2, 2]
    size, buffer = result.differences
    assert (size.name, size.chosen) == ("benchmark netpipe.max_bytes", False)
    assert (buffer.name, buffer.chosen) == ("variable BUFFER of tcp", True)
    result = compared(tmp_path, "netpipe.max_bytes=65536", "benchmark netpipe.max_bytes=1024")
    assert [len(group.trials) for group in (result.a, result.b)] == [3, 1]
    with pytest.raises(InputError, match=r"no case has max_bytes"):
        compared(tmp_path, "max_bytes=65536", "max_bytes=1024")


def test_what_an_older_trial_does_not_record_is_no_difference(tmp_path):
    """And what a newer one declares in addition is one, but a setting that Seatrial added none."""
    for number in range(6):
        env = {"BUFFER": "16384"} if number > 3 else {}
        netpipe = {"repetitions": 20} | ({"added": 1} if number > 3 else {})
        recorded = number > 1
        make_night(
            tmp_path, number, benchmarks={"netpipe": netpipe} if recorded else {},
            transports=[TransportUse(name="tcp", env=env)] if recorded else [],
        )  # fmt: skip
    assert compared(tmp_path, "lab-00[01]", "lab-00[23]").differences == []
    (buffer,) = compared(tmp_path, "lab-00[23]", "lab-00[45]").differences
    assert (buffer.name, buffer.a, buffer.b) == (
        "variable BUFFER of tcp", {"none": 2}, {"16384": 2},
    )  # fmt: skip
    every = compared(tmp_path, "lab-00[0-3]", "lab-00[45]").differences
    assert [(one.name, one.a) for one in every] == [("variable BUFFER of tcp", {"none": 2})]


def test_trials_of_a_lab_differ_in_a_driver_of_its_own(tmp_path):
    for number, build in enumerate(("936d", "936d", "da68")):
        make_night(
            tmp_path, number, host={"kernel of the lab": f"6.1.0 (6.1.176-1, igb.ko {build})"}
        )
    result = compared(tmp_path, "kernel of the lab=*936d*", "kernel of the lab=*da68*")
    assert [len(group.trials) for group in (result.a, result.b)] == [2, 1]
    every = compared(tmp_path, "lab-00[01]", "lab-002").differences
    assert [difference.name for difference in every] == ["kernel of the lab"]


def test_the_kernel_of_the_host_is_another_condition_than_kernel(tmp_path):
    for number, kernel in enumerate(("6.1", "6.2", "6.3")):
        host = {"kernel": "6.1" if number < 2 else "6.3"}
        make_night(tmp_path, number, versions={"kernel": kernel}, host=host)
    result = compared(tmp_path, "kernel=6.1", "kernel=6.2")
    assert [len(group.trials) for group in (result.a, result.b)] == [1, 1]
    assert [difference.name for difference in result.differences if difference.chosen] == ["kernel"]
    result = compared(tmp_path, "kernel of the host=6.1", "kernel of the host=6.3")
    assert [len(group.trials) for group in (result.a, result.b)] == [2, 1]
    with pytest.raises(InputError, match=r"known here: kernel, kernel of the host, nodes"):
        compared(tmp_path, "firmware=1", "lab-001")


def test_the_words_for_a_condition_that_differs():
    one = Difference("mpi", {}, {}, ["a", "b"], False)
    assert condition(one, 2) == "mpi"
    assert condition(one, 20) == "mpi (2 of 20 cases)"
    assert values({}) == "none"
    many = {f"v{i}": 30 - i for i in range(20)}
    assert values(many).startswith("v0 in 30 trials, v1 in 29, ")
    assert values(many).endswith(f"and {20 - MAX_NAMED + 1} more")


def test_two_trials_are_compared_by_their_repeats_and_say_so(tmp_path):
    make_night(tmp_path, 0, (30.0, 30.1, 29.9, 30.2, 29.8))
    make_night(tmp_path, 1, (40.0, 40.1, 39.9, 40.2, 39.8))
    result = compared(tmp_path, "lab-000", str(tmp_path / "lab-001"))
    assert [row.verdict for row in result.rows] == ["worse"]
    assert len(result.rows[0].a) == 5
    assert "each group is one trial" in result.notes[0]


def test_a_note_says_that_the_trials_are_too_few(tmp_path):
    for number in range(4):
        sealed(make_night(tmp_path, number))
    notes = compared(tmp_path, "lab-000,lab-001", "lab-002,lab-003").notes
    text = "so few figures cannot show a difference: the least possible p-value is 0.33"
    assert notes == [f"{text}, and 0.05 is needed; compare more trials"]


def test_a_note_names_trials_without_sums(drivers):
    groups = "driver=igb 5.1", "driver=igb 5.2"
    for number in range(6):
        sealed(drivers / f"lab-{number:03}")
    (note,) = compared(drivers, *groups).notes
    assert note == ("driver=igb 5.2: 6 trials with no SHA256SUMS, such as lab-006: "
                    "nothing shows that the files are as the trial wrote them")  # fmt: skip


def test_series_of_one_group_are_named(drivers):
    make_night(drivers, 20, (1,), runs=runs_of(NETPIPE, "other_us", (1,)))
    with pytest.raises(InputError, match="no series in common"):
        compared(drivers, "lab-000", "lab-020")
    make_night(drivers, 21, (1,))
    result = compared(drivers, "lab-000", "lab-021")
    assert result.only_a == [f"{LINKS.id}: stream_MB_s at n1>n2"]
    assert result.only_b == []
    assert compared(drivers, "lab-000", "lab-001", patterns={"check": ["links"]}).only_a == []


def test_a_figure_that_is_gone_is_no_pass(drivers):
    """Its case ran, on the same nodes."""
    both = [*runs_of(NETPIPE, "latency_us", (30.0,)), *runs_of(NETPIPE, "other_us", (1.0,))]
    make_night(drivers, 20, (1,), runs=both)
    make_night(drivers, 21, (1,), runs=runs_of(NETPIPE, "latency_us", (30.0,)))
    result = compared(drivers, "lab-020", "lab-021")
    assert result.lost == result.only_a == [f"{NETPIPE.id}: other_us"]
    assert any("no figure any more in lab-021, though its case ran" in x for x in result.notes)
    assert compared(drivers, "lab-021", "lab-020").lost == []


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ("lab-000", "lab-00[01]", "lab-000 is in both groups"),
        ("driver=igb*", "kernel=6.2", "is in both groups"),
        ("lab-00x", "lab-001", r"lab-00x: no trial has this name.*did you mean 'lab-0"),
        ("driver=ice", "lab-001", "known values: igb 5.1 . igb 5.2"),
        ("divers=1", "lab-001", "no case has divers; did you mean 'driver'"),
        ("firmware=1", "lab-001", "no case has firmware; known here: driver, kernel, mpi"),
        ("2025-01-01..2025-02-01", "lab-001", "known: 2026-08-01 to 2026-08-12, UTC"),
        ("2026-02-30", "lab-001", "2026-02-30: no such day"),
        ("lab-00[5-1]", "lab-001", r"\[5-1\] is no range: 1 comes before 5"),
        ("kernel=6.[1", "lab-001", r"6.\[1: '\[' without '\]'"),
    ],
)
def test_groups_that_are_wrong(drivers, a, b, text):
    with pytest.raises(InputError, match=text):
        compared(drivers, a, b)


def test_no_trials(tmp_path):
    with pytest.raises(InputError, match="has no trial that can be read"):
        compared(tmp_path, "a", "b")


FOUR = [f"node-{number}" for number in (1, 2, 3, 4)]


def make_links(folder, nights, nodes, slow="", joint="-"):
    """Nights whose latencies of all links are alike, but for those of a slow node."""
    for night in nights:
        draw = np.random.default_rng(night)
        runs = [
            run
            for number, a in enumerate(nodes)
            for b in nodes[number + 1 :]
            for run in runs_of(
                LINKS, "latency_us",
                (30 * (1.2 if slow in (a, b) else 1) * np.exp(draw.normal(0, 0.005, 3))).tolist(),
                location=f"{a}{joint}{b}",
            )
        ]  # fmt: skip
        for run in runs:
            run.job.nodes = list(nodes)
        make_night(folder, night, (1, 2, 3), runs=runs)


def test_a_series_of_a_node_that_was_replaced_is_compared_with_that_of_the_new_one(tmp_path):
    make_links(tmp_path, range(6), FOUR)
    make_links(tmp_path, range(6, 12), [*FOUR[:3], "node-9"], slow="node-9")
    result = compared(tmp_path, "2026-08-01..2026-08-06", "2026-08-07..")
    assert result.places == ("node node-4 was replaced by node-9, or has this name now: "
                             "their series are compared with one another")  # fmt: skip
    worse = {row.series.location for row in result.rows if row.verdict == "worse"}
    assert worse == {f"node-{number}-node-9" for number in (1, 2, 3)}
    assert len(result.rows) == 6
    assert (result.only_a, result.only_b) == ([], [])


def test_two_nodes_that_were_replaced_are_named_and_not_compared(tmp_path):
    make_links(tmp_path, range(3), FOUR)
    make_links(tmp_path, range(3, 7), [*FOUR[:2], "node-8", "node-9"])
    result = compared(tmp_path, "2026-08-01..2026-08-03", "2026-08-04..")
    assert result.places.startswith("nodes node-3, node-4 were replaced by node-8, node-9, or have")
    assert len(result.rows) == 1
    assert len(result.only_a) == len(result.only_b) == 5


@pytest.mark.parametrize("joint", ["-", ">"])
def test_two_nodes_that_were_exchanged_are_named(tmp_path, joint):
    make_links(tmp_path, range(6), FOUR, slow="node-4", joint=joint)
    after = FOUR if joint == "-" else [FOUR[3], *FOUR[1:3], FOUR[0]]
    make_links(tmp_path, range(6, 12), after, slow="node-1", joint=joint)
    result = compared(tmp_path, "2026-08-01..2026-08-06", "2026-08-07..")
    text = ("nodes node-1 and node-4 seem to be exchanged: "
            "in B, each has the figures that the other had in A")  # fmt: skip
    assert result.places == (text if joint == "-" else "")


def test_a_node_that_is_repaired_and_one_that_breaks_are_not_exchanged_if_by_another_factor():
    figures = {
        (LINKS, "m", at): Figures(30.0, 30.0 * ratio, "worse" if ratio > 1 else "better")
        for at, ratio in (("n1-n2", 1.2), ("n2-n3", 1.2), ("n1-n4", 0.5), ("n3-n4", 0.5))
    }
    assert exchanged_nodes(figures, Locations([], ["n1", "n2", "n3", "n4"])) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["n1 n2"], ["n1 n3"], (["n2"], ["n3"])),
        (["n1 n2"], ["n1 n3", "n1 n2"], None),  # another allocation
        (["n1 n2", "n3 n4"], ["n1 n3"], None),
        (["n1 n2"], ["n1 n2 n3"], None),
        (["n1 n2"], ["n2 n1"], None),
    ],
)
def test_nodes_that_were_replaced(a, b, expected):
    sides = [{"case": {frozenset(one.split()) for one in own}} for own in (a, b)]
    assert replaced(*sides) == expected
    other = {"other": {frozenset(["n2"])}}
    assert replaced(sides[0], sides[1] | other) is None  # n2 still runs another case


def test_a_range_in_a_condition_and_a_set_of_numbers_in_a_name(tmp_path):
    """A hyphen of a value stands for a space, and in brackets for a range."""
    for number in range(12):
        kernel = f"6.{number}-rc"
        make_night(tmp_path, number, (1, 2), versions={"kernel": kernel})
    for a, b in (
        ("kernel=6.[0-5]-rc", "kernel=6.[6-11]-rc"),
        ("kernel=6.[0-5] rc", "lab-[006-011]"),
        ("lab-[000,001-005]", "2026-08-07.."),
    ):
        result = compared(tmp_path, a, b)
        assert [len(group.trials) for group in (result.a, result.b)] == [6, 6]
