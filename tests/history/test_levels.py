"""The statistics of changes of level, on figures of any kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.history import levels
from seatrial.history.levels import drifts, lasting, shifts, unknown_noise

FIGURES = st.lists(
    st.one_of(
        st.sampled_from([0.0, 1.0, -700.0, 709.0]), st.floats(-2, 2), st.floats(-1e150, 1e150)
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def noisy(nights: int, sigma: float = 0.01, seed: int = 1) -> np.ndarray:
    return sigma * np.random.default_rng(seed).normal(size=nights)


@settings(deadline=None, max_examples=60)
@given(FIGURES, st.sampled_from([0.0, 0.01, 1.0]))
def test_any_figures_have_ordered_changes(figures, scatter):
    x = np.array(figures)
    moved = lasting(x, unknown_noise(scatter))
    begins = [one.at for one in moved]
    assert begins == sorted(set(begins))
    for one in moved:
        assert 2 <= one.low <= one.at <= one.high <= one.found < len(x)
    assert [one for own, _ in drifts(x, moved) for one in own] == moved


@pytest.mark.parametrize("seed", rounds(range(2, 4), range(2, 7)))
def test_what_a_night_showed_does_not_depend_on_later_nights(seed):
    x = noisy(80, seed=seed)
    x[30:] += 0.05
    x[55:] -= 0.2
    whole = [(shift.at, shift.found) for shift in shifts(x, unknown_noise())]
    assert whole[0][0] in (29, 30, 31)
    for nights in range(1, len(x)):
        part = [(shift.at, shift.found) for shift in shifts(x[:nights], unknown_noise())]
        assert part == [one for one in whole if one[1] < nights]


def test_a_step_is_found_on_the_second_night_and_one_bad_night_never():
    x = noisy(32, seed=2)
    x[30:] += 0.05
    (one,) = shifts(x, unknown_noise())
    assert (one.at, one.found, one.withdrawn) == (30, 31, False)
    x = noisy(60, seed=2)
    x[30] += 3.0
    assert shifts(x, unknown_noise()) == []


def test_a_few_bad_nights_are_withdrawn_and_many_are_a_level():
    for bad, remains in ((2, 0), (12, 2)):
        x = noisy(70, seed=3)
        x[30 : 30 + bad] += 0.2
        assert [shift.at for shift in shifts(x, unknown_noise())][:1] == [30]
        assert len(lasting(x, unknown_noise())) == remains


@pytest.mark.parametrize("nights", [4, 5])
def test_half_of_some_nights_is_no_level(nights):
    """Two bad nights side by side raise an average of four that no single night is at."""
    named = {}
    for bad in (nights // 2, nights):
        x = noisy(60 + nights, seed=4)
        x[10] += 0.1  # so that a few nights are not farther than all before
        x[60 : 60 + bad] += 0.1
        named[bad] = bool(shifts(x, unknown_noise()))
    assert named == {nights // 2: False, nights: True}


def test_the_scatter_of_a_busy_machine_gives_few_alarms():
    """Figures of trials of a native lab between which nothing changed, as logarithms less their
    median, dealt to nights: one in seven is bad, by any amount."""
    latencies = [-0.11, -0.1, -0.08, -0.06, -0.05, -0.05, -0.03, -0.03, -0.02, -0.02, -0.01, 0.01,
                 0.01, 0.02, 0.03, 0.04, 0.06, 0.06, 0.07, 0.13, 0.77, 2.84]  # fmt: skip
    times = [-0.04, -0.04, -0.04, -0.03, -0.02, -0.02, -0.02, -0.01, -0.01, -0.01, 0.0, 0.0, 0.01,
             0.02, 0.04, 0.05, 0.08, 0.09, 0.12, 0.21, 0.45, 0.56]  # fmt: skip
    draw = np.random.default_rng(17)
    alarms = [
        len(shifts(draw.choice(own, 200), unknown_noise(scatter)))
        for own, scatter in ((latencies, 0.05), (times, 0.03)) for _ in range(40)
    ]  # fmt: skip
    assert sum(alarms) / (200 * len(alarms)) <= 0.0015


def test_a_small_change_is_not_worth_a_sentence():
    x = noisy(200, sigma=1e-4)
    x[100:] += levels.LEAST / 2
    assert shifts(x, unknown_noise()) == []
    x[100:] += levels.LEAST
    assert [one.at for one in lasting(x, unknown_noise())] == [100]


def test_a_slope_is_one_drift_and_steps_are_steps():
    x = noisy(120)
    x[30:100] += np.arange(70) / 700
    x[100:] += 0.1
    ((moved, drift),) = drifts(x, lasting(x, unknown_noise()))
    assert drift
    assert len(moved) > 1
    x = noisy(80)
    x[30:] += 0.05
    x[55:] += 0.05
    steps = drifts(x, lasting(x, unknown_noise()))
    assert [([one.at for one in moved], drift) for moved, drift in steps] == [
        ([30], False), ([55], False)
    ]  # fmt: skip


@pytest.mark.parametrize("begin", [2, 60])
def test_two_nights_whose_load_explains_them_show_no_level(begin):
    """At the begin of a series, or at its end. Three do, and equal load explains nothing."""
    x = noisy(120, seed=5)
    x[:2] -= 0.3 * (begin == 2)
    x[begin:] += 0.3 * (begin > 2)
    waits = np.full(len(x), 6.0)
    few = slice(0, 2) if begin == 2 else slice(begin, begin + 2)
    waits[few] = 30.0

    def night(own):
        return next(shift.found for shift in shifts(x, unknown_noise(), own) if shift.at == begin)

    if begin > 2:
        assert night(waits) == night(None) + 1 == begin + 2
        assert night(np.full(len(x), 30.0)) == begin + 1
        waits[few] = 4.0  # too little for a figure
        assert night(waits) == begin + 1
    else:
        assert night(None) < 20
        assert all(shift.at != begin for shift in shifts(x, unknown_noise(), waits))
