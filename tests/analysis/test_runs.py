"""Which runs conclusions and predictions are made from."""

from __future__ import annotations

from analysis_maker import app, trial
from seatrial.analysis import runs
from seatrial.results.record import Activity, Metric


def test_runs_that_say_nothing_are_left_out_in_one_place():
    good = [app("npb", "is.S", profile, 100.0, i) for i in range(2) for profile in ("b", "a")]
    busy = Activity(step="run", node="n1", seconds=9, others_percent=95, waited_percent=50.0)
    waited = app("npb", "is.S", "a", 50.0, 2, activity=[busy])
    huge = Metric(metric="mops", value=1e200, unit="Mop/s", better="higher")
    absurd = app("npb", "is.S", "b", 1.0, 3, metrics=[huge])
    failed = app("npb", "is.S", "b", 1.0, 4, outcome="error")
    rerun = app("npb", "is.S", "b", 1.0, 9)
    everything = [*good, waited, absurd, failed, rerun]
    own = trial(everything, repeats=9, reruns=1, virtual_time=True)
    own.trial.cases = [good[1].case, good[0].case]  # in the order of the plan
    kept, missing = runs.usable([own])
    assert [one.reason for one in missing] == [
        "one is left out, as mops is beyond 1e+30, which no measurement gives"
    ]
    measured = runs.measured(kept)
    assert [(one.run.case.profile, one.run.repeat) for one in measured] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    assert all(one.virtual_time for one in measured)
    assert runs.disturbed(kept) == {("t1", waited.case): (1, 3)}
    [(of, counts)] = runs.disturbed(kept).items()
    assert runs.left_out(*of, *counts).subject.endswith("(1 of 3 runs left out)")
