"""Interrupt moderation, which only real drivers have, put on and taken off by Prolog and Epilog."""

from __future__ import annotations

import re

import pytest
from virtual_support import latency

from campaigns import rounds
from seatrial_lab.virtual.engine import VirtualLab
from trial_support import until

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
#: how many profiles the first guest runs, and the second
SHARES = rounds((1, 1), (2, 1))


def test_each_profile_was_in_force_and_measured(trial) -> None:
    always = {"igb-off", "igb-125"}
    expected = rounds(always, {*always, "igb-140"})
    assert {run.case.profile for run in trial.results.runs} == expected


def test_interrupt_moderation_sets_the_latency(trial) -> None:
    assert latency(trial, "igb-off") == pytest.approx(22, rel=0.15)
    assert latency(trial, "igb-125") == pytest.approx(138, rel=0.05)


def test_all_is_as_before(lab: VirtualLab, trial) -> None:
    until(
        lambda: set(lab.node_states().values()) == {"idle"}, 20, "idle nodes",
        lambda: lab.run(["sh", "-c", "scontrol show nodes; scontrol show jobs"]).stdout,
    )  # fmt: skip
    assert trial.after == trial.before
    for guest in trial.after:
        assert re.search(r"^rx-usecs:\s3$", guest["n1"], re.MULTILINE)


def test_two_guests_ran_the_profiles_at_the_same_time(trial) -> None:
    """Each with jobs of its own; the second's begin with 10001."""
    jobs = {
        use.name: int(allocation.job.id)
        for use in trial.results.trial.profiles
        for allocation in use.allocations[:1]
    }
    first, second = (
        [id for id in jobs.values() if (id > 10_000) is later] for later in (False, True)
    )
    assert (len(first), len(second)) == SHARES
    assert sorted(first) == list(range(min(first), min(first) + SHARES[0]))
    assert sorted(second) == list(range(10_001, 10_001 + SHARES[1]))
    for run in trial.results.runs:
        if not trial.results.trial.is_rerun(run):
            assert int(run.job.id) == jobs[run.case.profile]
    assert [path.name for path in trial.results.folder.glob("config*")] == ["config"]
