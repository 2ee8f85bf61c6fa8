"""Which run comes next, when the samples are looked at, and how often the answer is wrong."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.job.tune.record import Candidate, Chosen, Look, Ran, Tuned
from seatrial.job.tune.study import LOOKS, Limits, Stop, Study

MADE = 200  # tunes of a simulation
PLENTY = Limits(1e9, 1e9)


def tuned(count, ident="0"):
    chosen = [
        Chosen(candidate=Candidate(f"p{i}", "tcp"), feature="", network="test", interface="eth1",
               data_path="kernel", family="")
        for i in range(count)
    ]  # fmt: skip
    return Tuned(id=ident, started=datetime.now(UTC), seatrial="0", site="s", site_name="s",
                 program=["p"], cwd="/", nodes=2, ranks_per_node=1, run_limit_s=60,
                 candidates=chosen)  # fmt: skip


def ran(number, one, value=1.0, fault="", cost=0.1):
    return Ran(number=number, candidate=one, value=None if fault else value, wall_s=1.0,
               fault=fault, reason=f"why {number}", node_hours=cost)  # fmt: skip


def all_in_turn(study, limits=PLENTY, reserve=0.1):
    """Candidates in the order in which they run, with samples of 1, until the first look."""
    runs = []
    while not Study(study.tuned, runs, []).due():
        step = Study(study.tuned, runs, []).next(limits, reserve, 1e9)
        if isinstance(step, Stop):
            return runs, step
        runs.append(ran(len(runs) + 1, step))
    return runs, None


FAULTS = st.sampled_from(["", "", "", "", "program", "timeout", "slurm", "refused", "transport"])


@given(st.integers(2, 7), st.floats(0.05, 20), st.floats(0.01, 2), st.data())
def test_no_run_begins_that_could_exceed_the_node_hours(count, hours, reserve, data):
    """Also if each run takes all of its limit, and whatever fails."""
    limits, what = Limits(hours, 1e9), tuned(count)
    runs, looks = [], []
    for number in range(1, 200):
        study = Study(what, runs, looks)
        if study.due():
            looks.append(study.look())
            continue
        step = study.next(limits, reserve, 1e9)
        if isinstance(step, Stop):
            break
        assert step not in study.out
        counts = {one: len(study.samples(one)) for one in study.running}
        assert counts[step] == min(counts.values())  # also if runs fail, no one gets ahead
        cost = data.draw(st.floats(0, reserve)) if number % 3 else reserve
        value = data.draw(st.floats(1, 2)) if number < 60 else 1.0
        runs.append(ran(number, step, value, data.draw(FAULTS) if number < 60 else "", cost))
        assert sum(run.node_hours for run in runs) <= hours * (1 + 1e-9)
    else:
        pytest.fail("it does not end")
    assert len(looks) <= LOOKS


@given(st.integers(2, 6), st.text("0123456789abcdef", min_size=8, max_size=8))
def test_candidates_are_interleaved_in_an_order_of_chance(count, ident):
    what = tuned(count, ident)
    runs, stop = all_in_turn(Study(what, [], []))
    assert stop is None
    rounds = [runs[at : at + count] for at in range(0, len(runs), count)]
    for one in rounds:
        assert {run.candidate for run in one} == {c.candidate for c in what.candidates}
    assert len(rounds) == Study(what, [], []).least
    assert all_in_turn(Study(what, [], []))[0] == runs  # the same for the same tune


def test_the_order_differs_between_rounds_and_tunes():
    firsts = Counter(
        run.candidate
        for ident in range(60)
        for at, run in enumerate(all_in_turn(Study(tuned(3, str(ident)), [], []))[0])
        if at % 3 == 0
    )
    assert len(firsts) == 3
    assert min(firsts.values()) > sum(firsts.values()) / 3 * 0.7


def test_a_run_that_failed_is_repeated_and_its_candidate_is_left_out_after_two():
    what = tuned(3)
    first = Study(what, [], []).next(PLENTY, 0.1, 1e9)
    runs = [ran(1, first, fault="program")]
    again = Study(what, runs, [])
    assert first in again.compared
    runs.append(ran(2, first, fault="timeout"))
    study = Study(what, runs, [])
    assert study.out == {first: "why 2"}
    assert study.next(PLENTY, 0.1, 1e9) != first
    runs = [ran(1, first, fault="program"), ran(2, first), ran(3, first, fault="program")]
    assert Study(what, runs, []).out == {}
    runs = [ran(i, first) for i in range(1, 11)]
    runs += [ran(i, first, fault="program") for i in (11, 12)]
    assert Study(what, runs, []).out == {}  # it fails now and then
    assert Study(what, [*runs, ran(13, first, fault="program")], []).out == {first: "why 13"}


@pytest.mark.parametrize("fault", ["limit", "interrupted", "slurm"])
def test_what_is_no_fault_of_a_candidate_does_not_leave_it_out(fault):
    what = tuned(2)
    one = what.candidates[0].candidate
    assert Study(what, [ran(i, one, fault=fault) for i in (1, 2, 3)], []).out == {}


def test_a_profile_that_a_prolog_refuses_is_not_tried_again_over_any_transport():
    what = tuned(2)
    more = [c.model_copy(update={"candidate": Candidate(c.candidate.profile, "openmpi-tcp")})
            for c in what.candidates]  # fmt: skip
    what = what.model_copy(update={"candidates": [*what.candidates, *more]})
    out = Study(what, [ran(1, Candidate("p1", "tcp"), fault="refused")], []).out
    assert set(out) == {Candidate("p1", "tcp"), Candidate("p1", "openmpi-tcp")}
    out = Study(what, [ran(1, Candidate("p1", "tcp"), fault="transport")], []).out
    assert set(out) == {Candidate("p0", "tcp"), Candidate("p1", "tcp")}


def test_it_stops_if_nothing_runs():
    what = tuned(3)
    runs = [
        ran(i, candidate.candidate, fault="program")
        for i, candidate in enumerate(what.candidates, 1)
    ]
    stop = Study(what, runs, []).next(PLENTY, 0.1, 1e9)
    assert isinstance(stop, Stop)
    assert "no run succeeded" in stop.why
    lost = [ran(i, what.candidates[0].candidate, fault="slurm") for i in (1, 2, 3)]
    assert "Slurm ended 3 runs" in Study(what, lost, []).next(PLENTY, 0.1, 1e9).why


def over(one, transport):
    return one.model_copy(update={"candidate": Candidate(one.candidate.profile, transport)})


@pytest.mark.parametrize("fault", ["program", "timeout", "figure"])
def test_a_program_that_fails_from_the_first_run_on_does_not_run_under_each_candidate(fault):
    few = tuned(5).candidates
    candidates = [*(over(one, "openmpi-tcp") for one in few), over(few[0], "openmpi-ucx")]
    what = tuned(2).model_copy(update={"candidates": candidates})
    runs, stop = [], None
    while not isinstance(stop := Study(what, runs, []).next(PLENTY, 0.1, 1e9), Stop):
        runs.append(ran(len(runs) + 1, stop, fault=fault))
    assert stop.final
    assert len(runs) < len(candidates)
    # a transport may be broken: each was tried
    assert {run.candidate.transport for run in runs} == {"openmpi-tcp", "openmpi-ucx"}
    assert f"the first {len(runs)} runs failed, over each transport" in stop.why
    good = [*runs[:-1], ran(len(runs), runs[-1].candidate)]
    assert isinstance(Study(what, good, []).next(PLENTY, 0.1, 1e9), Candidate)


def test_no_run_begins_that_the_limit_of_time_would_cut_off():
    what = tuned(2)
    runs = [ran(1, what.candidates[0].candidate)]
    runs[0].wall_s = 100.0
    assert isinstance(Study(what, runs, []).next(PLENTY, 0.1, 101), Candidate)
    stop = Study(what, runs, []).next(PLENTY, 0.1, 99)
    assert isinstance(stop, Stop)
    assert not stop.final


# -- the answers


def simulated(rng, truths, width):
    """The last look of a tune, with noise of a normal distribution and outliers."""
    what = tuned(len(truths))
    runs, looks = [], []
    while len(looks) < LOOKS and (not looks or looks[-1].answer == "measure more"):
        study = Study(what, runs, looks)
        for one in study.running:
            truth = truths[int(one.profile[1:])]
            for _ in range(study.target - len(study.samples(one))):
                outlier = 2 if rng.random() < 0.05 else 1
                value = truth * math.exp(rng.normal(0, width)) * outlier
                runs.append(ran(len(runs) + 1, one, value))
        study = Study(what, runs, looks)
        assert study.due()
        looks.append(study.look())
    return looks[-1], runs


@pytest.mark.parametrize(("options", "width"), [(2, 0.02), (2, 0.1), (4, 0.05)])
def test_without_a_difference_one_is_best_in_five_per_cent_of_tunes_at_most(options, width):
    """Though the samples are looked at up to four times, and only those at the top run on."""
    rng = np.random.default_rng(options)
    best = sum(simulated(rng, [1.0] * options, width)[0].answer == "best" for _ in range(MADE))
    assert best / MADE <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / MADE)


def test_the_best_is_right_when_it_is_said_and_the_bad_ones_run_no_longer():
    rng = np.random.default_rng(7)
    truths = [1.0, 1.07, 1.08, 4.0]
    made = [simulated(rng, truths, 0.04) for _ in range(100)]
    best = [look.leaders for look, _ in made if look.answer == "best"]
    assert len(best) > 50
    assert best.count(["p0 over tcp"]) / len(best) >= 0.95
    long = [Counter(run.candidate.profile for run in runs) for look, runs in made
            if len(runs) > 40]  # fmt: skip
    assert long
    least = Study(tuned(4), [], []).least
    assert all(count["p3"] == least for count in long)


def test_looks_are_few():
    what = tuned(2)
    looks = [Look(runs=1, answer="measure more", leaders=["p0 over tcp", "p1 over tcp"])] * LOOKS
    stop = Study(what, [], looks).next(PLENTY, 0.1, 1e9)
    assert isinstance(stop, Stop)
    assert stop.final
    assert not Study(what, [], looks).due()
