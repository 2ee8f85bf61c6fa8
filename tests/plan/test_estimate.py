"""The jobs of a plan, and the time that they are expected to take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from plan_support import bare_stack
from seatrial.plan.estimate import expect, jobs_of, read_earlier
from seatrial.plan.model import MARGIN_S
from seatrial.plan.resolve import resolve
from seatrial.results.folder import write_results
from seatrial.results.record import Case, Job, Run, Trial, Verdict
from seatrial.site.load import load_site
from trial_support import make_site

BEGIN = datetime(2026, 8, 1, tzinfo=UTC)
TCP = Case(check="netpipe", transport="tcp", nodes=2)
STREAM = Case(check="tcp_stream", transport="tcp", nodes=2)


@pytest.fixture
def plan(tmp_path):
    benchmarks = {
        "netpipe": {"time_limit_s": 20},
        "npb": {"kernels": ["is", "ep"], "time_limit_s": 30},
        "tcp_stream": {},
    }
    site = make_site(tmp_path / "harbour", benchmarks, transports={"mpich-ofi": {}})
    stack = bare_stack()
    stack.transports["tcp"].programs = {"nptcp": ["nptcp"], "iperf3": ["iperf3"]}
    return resolve(load_site(site), stack)


def test_variants_share_a_job_with_a_step_for_each(plan):
    jobs = {job.key: job for job in jobs_of(plan)}
    assert len(jobs) == 4
    npb = jobs["npb", "mpich-ofi", "default", 2]
    assert (npb.steps, npb.limit_s) == (2, 2 * 30 + MARGIN_S)
    assert jobs["netpipe", "tcp", "default", 2].limit_s == 20 + MARGIN_S
    assert npb.seconds == npb.limit_s


def earlier_trial(folder, name, runs, site="harbour", minutes=10, verdict=True, reruns=0):
    """A trial whose jobs take these seconds: (case, seconds) with the repeats in order."""
    trial = Trial(trial=name, site=site, started=BEGIN, seatrial="0", cases=[c for c, _ in runs],
                  reruns=reruns)  # fmt: skip
    lines = [trial]
    for number, (case, seconds) in enumerate(runs):
        start = BEGIN + timedelta(minutes=number)
        job = Job(id=str(number), started=start, ended=start + timedelta(seconds=seconds))
        repeat = sum(earlier == case for earlier, _ in runs[:number])
        lines.append(Run(case=case, repeat=repeat, outcome="ran", job=job))
    if verdict:
        ended = BEGIN + timedelta(minutes=minutes)
        lines.append(Verdict(verdict="accept", counts={}, findings=[], ended=ended))
    (folder / name).mkdir(parents=True)
    write_results(folder / name / "results.jsonl", lines)


def test_expected_durations_are_medians_of_earlier_trials(plan, tmp_path):
    trials = tmp_path / "trials"
    earlier_trial(trials, "harbour-1", [(TCP, 10), (TCP, 20), (STREAM, 30)], minutes=2)
    earlier_trial(trials, "harbour-2", [(TCP, 60)], minutes=1, verdict=False)
    earlier_trial(trials, "other-1", [(TCP, 1000)], site="other")
    (trials / "harbour-3").mkdir()
    (trials / "harbour-3" / "results.jsonl").write_text("damaged")
    earlier = read_earlier(trials, "harbour")
    assert set(earlier.trials) == {"harbour-1", "harbour-2"}
    assert earlier.overhead == 120 / 60  # of the one that ended
    jobs = jobs_of(plan)
    expect(jobs, earlier)
    expected = {job.key[:2]: job.expected_s for job in jobs}
    assert expected == {
        ("netpipe", "tcp"): 20,
        ("tcp_stream", "tcp"): 30,
        ("netpipe", "mpich-ofi"): None,
        ("npb", "mpich-ofi"): None,
    }


def test_the_time_of_reruns_stands_apart(tmp_path):
    """One planned run of 20 s and two reruns of 20 s, in a trial of two minutes."""
    earlier_trial(tmp_path, "harbour-1", [(TCP, 20)] * 3, minutes=2, reruns=2)
    earlier_trial(tmp_path, "harbour-2", [(TCP, 20)], minutes=1)  # it had none to make
    earlier = read_earlier(tmp_path, "harbour")
    assert earlier.reruns == [80]
    assert earlier.durations["netpipe", "tcp", "default", 2] == [20] * 4


def test_a_run_in_error_says_nothing_about_the_time(tmp_path):
    case = Run(case=TCP, outcome="error", job=Job(started=BEGIN, ended=BEGIN))
    trial = Trial(trial="harbour-1", site="harbour", started=BEGIN, seatrial="0", cases=[TCP])
    (tmp_path / "harbour-1").mkdir()
    write_results(tmp_path / "harbour-1" / "results.jsonl", [trial, case])
    assert read_earlier(tmp_path, "harbour").trials == []
    assert read_earlier(tmp_path / "nowhere", "harbour").overhead == 1.0
