"""Run times over the number of processes: published ones, made-up ones, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis_maker import mpi_fact, npb_time
from seatrial.analysis.conclusion import Estimate, Inputs, Measured
from seatrial.analysis.scaling import fit, scaling, series

NONE = Inputs((), (), 0)


def test_ft_over_fast_ethernet_is_slower_on_64_than_on_32():
    """Tessera: 8.90 s and 11.21 s. One repeat of each says in which direction, and no more."""
    made = scaling("FT", {32: [8.90], 64: [11.21]}, NONE)
    [step] = made.steps
    assert (step.start, step.end) == (32, 64)
    assert step.ratio.value == pytest.approx(11.21 / 8.90)
    assert step.effect == "not certain"
    assert made.efficiency[64].value == pytest.approx(8.90 / (2 * 11.21))
    assert made.model is None
    assert "2 numbers of processes are too few" in made.no_model


def test_times_that_are_not_in_seconds_are_refused():
    runs = [npb_time("ft.A", p, 40 / p) for p in (2, 4, 8)]
    runs[1].run.metrics[0].unit = "ms"
    made, [missing] = series(runs)
    assert made == []
    assert missing.reason == "its times are in ms and s, and must be in s"


def test_its_computation_alone_shrinks():
    [step] = scaling("FT", {32: [1.72], 64: [0.90]}, NONE).steps
    assert step.ratio.value == pytest.approx(0.90 / 1.72)


def test_a_slowdown_is_certain_with_repeats():
    times = {2: [10.0, 10.1, 10.2, 10.05, 9.95], 4: [12.0, 12.1, 12.2, 12.05, 11.95]}
    assert scaling("x", times, NONE).steps[0].effect == "costs"
    assert scaling("x", {2: times[4], 4: times[2]}, NONE).steps[0].effect == "saves"


def test_an_uncertain_step_does_not_hide_a_certain_one():
    times = {2: [10.0, 10.1, 9.9, 10, 10.05, 9.95], 4: [10.01, 10.1, 9.9, 10.02, 10.05, 9.95]}
    made = scaling("x", {**times, 8: [2 * t for t in times[2]]}, NONE)
    assert [step.effect for step in made.steps] == ["none", "costs"]


def test_times_that_do_not_change_are_seldom_said_to():
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        samples = {p: list(10 * np.exp(rng.normal(0, 0.02, 6))) for p in (2, 4, 8)}
        effects = {step.effect for step in scaling("x", samples, NONE).steps}
        wrong += bool(effects & {"costs", "saves"})
    assert wrong <= 14  # 5 % of 200, and chance


def rounds_of(rng, law, counts, of_round, virtual_time=False):
    """Four rounds of three repeats. ``of_round``: relative scatter of the jobs, beside 0.2 % of the
    repeats of one job."""
    for p in counts:
        for number in range(4):
            job = math.exp(rng.normal(0, of_round))
            for repeat in range(3):
                one = npb_time("ft.A", p, law(p) * job * math.exp(rng.normal(0, 0.002)))
                update = {"round": number, "repeat": 3 * number + repeat}
                yield Measured("t1", one.run.model_copy(update=update), virtual_time)


def test_repeats_of_one_job_do_not_make_a_conclusion_certain():
    """Jobs differ by 5 %, their repeats by 0.2 %: neither a step nor a misfit is one of repeats."""
    rng = np.random.default_rng(5)
    steps = missed = held = 0
    for _ in range(200):
        [made], _ = series(rounds_of(rng, lambda p: 10.0, (2, 4, 8), 0.05))
        steps += bool({step.effect for step in made.steps} & {"costs", "saves"})
        [made], _ = series(rounds_of(rng, lambda p: 2 + 50 / p, (2, 4, 8, 16), 0.05))
        missed += bool(made.model.flaw)
        held += made.model.share.low <= 2 / 52 <= made.model.share.high
    chance = 3 * math.sqrt(200 * 0.05 * 0.95)
    assert steps <= 10 + chance
    assert missed <= 10 + chance
    assert held >= 190 - chance


def test_a_sample_is_a_round_and_in_virtual_time_a_repeat():
    rng = np.random.default_rng(6)
    for virtual_time, unit, effect in ((False, "round", "not certain"), (True, "repeat", "saves")):
        runs = list(rounds_of(rng, lambda p: 40 / p, (2, 4, 8), 0.001, virtual_time))
        once = [run for run in runs if run.run.round == 0]
        [made], _ = series(once + [replace(one, trial="t2") for one in once])
        assert made.unit == unit
        assert made.inputs.samples == 18
        assert {step.effect for step in made.steps} == {effect}
        assert made.model.tested


def test_a_number_of_processes_of_another_trial_is_left_out():
    both = [npb_time("ft.A", p, 40 / p) for p in (2, 4) for _ in range(4)]
    alone = [Measured("t2", npb_time("ft.A", 8, 50.0).run) for _ in range(4)]
    [made], [missing] = series([*both, *alone])
    assert list(made.times) == [2, 4]
    assert made.inputs.trials == ("t1",)
    assert missing.subject.endswith("8 processes")
    assert "not measured in one trial" in missing.reason


@pytest.mark.parametrize("width", [0.002, 0.02])
@pytest.mark.parametrize("square", [0.0, 0.4])
def test_a_model_is_recovered_under_noise(square, width):
    """Each coefficient is in its interval in 95 % of the models; ``square``: a2 over a1."""
    rng = np.random.default_rng(7)
    made_up, said, held = 300, 0, np.zeros(3)
    for _ in range(made_up):
        a0, a1 = rng.uniform(0.5, 10), math.exp(rng.uniform(math.log(10), math.log(1000)))
        a2 = square * a1
        truth = {p: a0 + a1 / p - a2 / p**2 for p in (2, 4, 8, 16, 32, 64)}
        made = fit({p: list(t * np.exp(rng.normal(0, width, 4))) for p, t in truth.items()})
        if made.flaw:
            continue
        said += 1
        own = made.a2 or Estimate(0.0, 0.0, 0.0)
        pairs = ((made.a0, a0), (made.a1, a1), (own, a2))
        held += [one.low <= true <= one.high for one, true in pairs]
        assert made.largest_error < 3 * width
    assert said >= 0.95 * made_up
    assert np.all(held / said >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / said))


@pytest.mark.parametrize(
    ("counts", "repeats", "width", "outliers"),
    [((2, 4, 8), 1, 0.01, 0), ((2, 4, 8, 16), 3, 0.05, 0), ((2, 4, 8, 16, 32), 5, 0.01, 0),
     ((2, 4, 8, 16), 5, 0.02, 0.1)],
)  # fmt: skip
def test_intervals_hold_the_truth_where_the_model_is_said_to_fit(counts, repeats, width, outliers):
    rng = np.random.default_rng(1)
    said = held = 0
    for _ in range(300):
        noise = {p: np.exp(rng.normal(0, width, repeats)) for p in counts}
        bad = {p: np.where(rng.random(repeats) < outliers, 3, 1) for p in counts}
        made = fit({p: list((2 + 50 / p) * noise[p] * bad[p]) for p in counts})
        if not made.flaw:
            said += 1
            held += made.a0.low <= 2 <= made.a0.high and made.share.low <= 2 / 52 <= made.share.high
    assert said >= 0.85 * 300
    assert held / said >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


def test_times_that_the_model_misses_have_no_serial_part():
    rng = np.random.default_rng(2)
    said = 0
    for _ in range(100):
        samples = {
            p: list((1 + 50 / p + 0.5 * math.log2(p)) * np.exp(rng.normal(0, 0.01, 5)))
            for p in (2, 4, 8, 16, 32)
        }
        said += not fit(samples).flaw
    assert said <= 5
    assert "samples scatter" in fit(samples).flaw
    once = fit({p: [values[0]] for p, values in samples.items()})
    assert (once.flaw, once.tested) == ("", False)


def test_mpi_overtakes_computing_only_for_certain():
    rng = np.random.default_rng(4)
    said = 0
    for _ in range(300):
        apart = {
            p: [(10 * a, 10 * b) for a, b in np.exp(rng.normal(0, 0.05, (6, 2)))]
            for p in (2, 4, 8, 16)
        }
        samples = {p: [a + b for a, b in values] for p, values in apart.items()}
        said += scaling("x", samples, NONE, apart).overtaken is not None
    assert said / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    grown = {p: [(10 / p, 0.9 * own / 10) for own, _ in values] for p, values in apart.items()}
    made = scaling("x", samples, NONE, grown)
    assert made.overtaken == 16


def test_ft_needs_the_further_term_and_others_do_not():
    counts = (2, 4, 8, 16, 32)
    rng = np.random.default_rng(1)

    def samples(a2):
        return {
            p: [(0.2 + 60 / p - a2 / p**2) * math.exp(rng.normal(0, 0.003)) for _ in range(3)]
            for p in counts
        }

    assert fit(samples(40.0)).a2 is not None
    assert fit(samples(0.0)).a2 is None


def test_a_negative_serial_part_is_flagged():
    made = fit({2: [10.0], 4: [5.0], 8: [2.4]})
    assert "negative, and may be zero or up to" in made.flaw
    sure = fit({2: [10.0, 10.01, 9.99], 4: [4.0, 4.01, 3.99], 8: [1.0, 1.001, 0.999]})
    assert sure.flaw == "the part that does not shrink is negative"


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({}, "one number of processes"),
        ({2: [1.0]}, "one number of processes"),
        ({2: [1.0], 4: [0.0]}, "4 processes: a sample is 0, and must be above zero"),
        ({2: [1.0], 4: []}, "4 processes: it has no sample"),
    ],
)
def test_times_that_allow_nothing(times, why):
    with pytest.raises(ValueError, match=why):
        scaling("x", times, NONE)


def test_a_series_of_npb_never_mixes_classes_or_profiles():
    runs = [npb_time("ft.A", p, 1 + 99 / p) for p in (2, 4, 8)] + [npb_time("ft.S", 2, 1.0)]
    runs.append(npb_time("ft.A", 2, 1.0, "jumbo"))
    [made], missing = series(runs)
    assert made.name == "npb ft.A, openmpi-tcp, default"
    assert made.times == {2: 50.5, 4: 25.75, 8: 13.375}
    assert made.model.share.value == pytest.approx(0.01)
    assert made.inputs.samples == 3
    assert {one.subject for one in missing} == {
        "npb ft.S, openmpi-tcp, default", "npb ft.A, openmpi-tcp, jumbo",
    }  # fmt: skip


def test_computing_shrinks_while_communication_grows():
    """Tessera, FT over Fast Ethernet: 1.72 to 0.90 s of computing, 7.19 to 10.32 s in MPI."""
    apart = {32: [(1.72, 7.19)], 64: [(0.90, 10.32)]}
    made = scaling("FT", {32: [8.90], 64: [11.21]}, NONE, apart)
    assert made.apart == {32: (1.72, 7.19), 64: (0.90, 10.32)}
    assert (made.overtaken, made.seems_overtaken) == (None, 32)  # once of each is not certain
    assert made.steps[0].ratio.value > 1


def test_the_model_is_of_computing_where_it_is_known_with_all_processes():
    total = {p: [3 + 40 / p + 0.5 * p] for p in (2, 4, 8, 16)}
    apart = {p: [(1 + 40 / p, 2 + 0.5 * p)] for p in total}
    made = scaling("x", total, NONE, apart)
    assert made.model.a0.value == pytest.approx(1)
    assert made.model.a1.value == pytest.approx(40)
    assert made.seems_overtaken == 16  # with 8 processes both take 6 s
    del apart[4]
    assert scaling("x", total, NONE, apart).apart == {}


def test_a_series_takes_the_times_in_mpi_from_the_library():
    runs = [npb_time("lu.S", p, 1 + 20 / p) for p in (2, 4, 8)]
    for run in runs:
        p = run.run.facts["processes"]
        run.run.facts["mpi"] = mpi_fact(1.5 / (2 + 20 / p), run_s=2 + 20 / p)
    [made], _ = series(runs)
    assert made.apart[4] == (pytest.approx(5.5), 1.5)
    assert made.model.a0.value == pytest.approx(0.5)
    for run in runs:  # of what the program times, where all runs have it
        p = run.run.facts["processes"]
        run.run.facts["mpi"] |= {"timed_s": 1 + 20 / p, "timed_mpi_s": 1.0}
    [made], _ = series(runs)
    assert made.apart[4] == (pytest.approx(5), 1.0)
    del runs[0].run.facts["mpi"]["timed_s"]
    [made], _ = series(runs)
    assert made.apart[4] == (pytest.approx(5.5), 1.5)
