"""The rounds of a trial: each goes through all NIC profiles in new jobs, in an order of its own."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from plan_support import bare_stack
from seatrial.base.errors import LabError
from seatrial.cli.trial import numbered
from seatrial.plan.resolve import plan_trial, resolve
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results, read_results
from seatrial.results.record import Case
from seatrial.site.load import load_site
from seatrial.trial import allocation, rounds, run
from seatrial.trial.machine import ThisMachine
from seatrial.trial.reframe_run import (
    REFRAME_FOLDERS,
    Outcome,
    give_files,
    log_file,
    report_file,
)
from seatrial.trial.session import Session, TimeLimit
from seatrial_lab.native.machine import LabMachine
from trial_support import SMALL, Silent, make_site

PROFILES = {
    name: {"description": name, "networks": ["test"], "mtu": mtu}
    for name, mtu in (("jumbo", 9000), ("middle", 4000), ("small", 1400))
}
NAMES = ["default", *PROFILES]


class Slurm(ThisMachine):
    """Starts each job at once, or says of each that it cannot start."""

    def __init__(self, first_job=1):
        self.jobs, self.refuse, self.cancelled = [], False, False
        self.first_job = first_job

    def run(self, argv):
        text = ""
        if argv[0] == "sbatch":
            self.jobs.append(argv)
            self.cancelled = False
            text = f"{self.first_job + len(self.jobs) - 1}\n"
        elif argv[0] == "scancel":
            self.cancelled = True
        elif argv[0] == "squeue" and self.cancelled:
            text = "CANCELLED|None|n[1-2]\n"
        elif argv[0] == "squeue":
            text = "PENDING|BadConstraints|\n" if self.refuse else "RUNNING|None|n[1-2]\n"
        return subprocess.CompletedProcess(argv, 0, text, "")


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """``trial(rounds, end)``: the session and the results of a trial whose ReFrame runs nothing.

    ``end(session)``: called when a run of ReFrame ends; what it returns is its outcome.
    """
    monkeypatch.setattr(allocation, "POLL_S", (0.001, 0.002))

    def call(count, end=lambda session: Outcome(code=0), slurm=None, profiles=NAMES, further=()):
        site = load_site(
            make_site(tmp_path / "site", {"tcp_stream": {}}, nic_profiles=PROFILES,
                      profiles=profiles, rounds=count, repeats=2)
        )  # fmt: skip
        stack = bare_stack()
        stack.transports["tcp"].programs = {"iperf3": ["iperf3"]}
        plan = resolve(site, stack)
        plan.cases = [
            Case(check="tcp_stream", transport="tcp", profile=name, nodes=2) for name in profiles
        ]
        session = Session(
            plan, tmp_path, tmp_path / "settings.py", slurm or Slurm(), Silent(), plan.cases, [],
            TimeLimit(600),
            further=tuple((one, tmp_path / f"{at}.py") for at, one in enumerate(further)),
        )  # fmt: skip
        monkeypatch.setattr(rounds, "run_reframe", lambda session, *_: end(session))
        results = Results(trial=run.Trial(
            trial="t", site="site", started="2026-08-01T00:00:00Z", seatrial="0", repeats=2,
            rounds=count, cases=plan.cases, profiles=run.profile_uses(plan),
        ), folder=tmp_path)  # fmt: skip
        run.run_rounds(session, results)
        return session, results

    return call


def test_each_profile_is_once_in_each_place(trial):
    session, results = trial(4)
    orders = [line.partition(": ")[2] for line in session.progress.lines if line.startswith("rou")]
    assert orders == [
        "default, jumbo, middle, small", "jumbo, default, small, middle",
        "middle, small, default, jumbo", "small, middle, jumbo, default",
    ]  # fmt: skip
    assert [line for line in session.progress.lines if line.startswith("round 2 of 4: ")]
    for places in zip(*(order.split(", ") for order in orders), strict=True):
        assert set(places) == set(NAMES)
    assert [(run.repeat, run.round) for run in results.runs[::4]] == [(n, n // 2) for n in range(8)]
    assert all(not results.trial.is_rerun(run) for run in results.runs)


def test_each_round_has_a_job_and_files_of_its_own(trial, tmp_path):
    session, results = trial(2)
    assert profiles_of(session.machine) == ["jumbo", "middle", "small", "jumbo", "small", "middle"]
    for use in results.trial.profiles:
        assert len(use.allocations) == (0 if use.name == "default" else 2)
    for folder in ("allocations", "allocations-round2"):
        assert (tmp_path / folder / "jumbo.out").is_file()
    session.round = 0
    files = {name(replace(session, **at), profile)
             for name in (report_file, log_file) for profile in ("default", "jumbo")
             for at in ({}, {"round": 1}, {"rerun": 1})}  # fmt: skip
    assert len(files) == 12
    assert "reframe-report-round2-jumbo.json" in files


def test_a_rerun_is_a_round_of_its_own(trial):
    session, _ = trial(3)
    again = replace(session, rerun=2, round=0)
    assert (list(again.repeats), again.block) == ([7], 4)
    assert (again.profiles, again.jobs) == (NAMES, 4)
    assert session.jobs == 3 * 4 * 2


def test_a_trial_that_is_stopped_names_what_did_not_run_in_each_round(trial):
    def stop(session):
        session.signals += ["Ctrl-C"] if session.round == 1 else []
        return Outcome(code=0)

    session, results = trial(3, stop)
    assert len(results.runs) == 3 * 2 * 4
    lost = [run for run in results.runs if "interrupted by Ctrl-C" in run.reason]
    # Of the second round the first profile ran.
    assert {run.round for run in lost} == {1, 2}
    assert len(lost) == 2 * (3 + 4)
    assert len(session.machine.jobs) == 3 + 1
    assert not any(line.startswith("round 3") for line in session.progress.lines)


def test_the_time_limit_is_that_of_all_rounds(trial):
    def late(session):
        session.limit.seconds = -1
        return Outcome(code=0)

    session, results = trial(2, late)
    assert session.plan.time_limit_s == 2 * session.plan.round_limit_s
    assert {run.round for run in results.runs if "time limit" in run.reason} == {0, 1}
    assert len(session.machine.jobs) == 0


def test_a_job_asks_for_the_time_of_a_round(trial):
    session, _ = trial(5, profiles=["jumbo"])
    limit = session.plan.round_limit_s // 60 + 1
    assert session.limit.seconds < session.plan.time_limit_s
    own = allocation.Allocation(session.plan, session.machine, "jumbo", 2, session.folder)
    assert f"--time={limit}" in own.command(session.plan.time_limit_s)
    assert "--time=2" in own.command(60)


def profiles_of(machine):
    words = (word for argv in machine.jobs for word in argv)
    own = (word for word in words if word.startswith("--job-name=seatrial-"))
    return [word.removeprefix("--job-name=seatrial-") for word in own]


def test_machines_share_the_profiles_of_each_round_and_run_at_the_same_time(trial, tmp_path):
    both, ran, second = threading.Barrier(2, timeout=900), [], Slurm(10_001)

    def end(session):
        both.wait()  # BrokenBarrierError if the machines run one after the other
        ran.append((session.machine, session.config))
        return Outcome(code=0)

    session, results = trial(2, end, further=[second])
    first = session.machine
    # In turn, of default, jumbo, middle, small and then of jumbo, default, small, middle.
    assert profiles_of(first) == ["middle", "jumbo", "small"]
    assert profiles_of(second) == ["jumbo", "small", "middle"]
    assert set(ran) == {
        (first, tmp_path / "settings.py"), (second, tmp_path / "0.py")
    }  # fmt: skip
    assert [(run.case.profile, run.repeat) for run in results.runs] == [
        (name, repeat) for repeat in range(4) for name in NAMES
    ]
    jobs = {use.name: [one.job.id for one in use.allocations] for use in results.trial.profiles}
    assert jobs == {
        "default": [], "jumbo": ["10001", "2"], "middle": ["1", "10003"], "small": ["10002", "3"],
    }  # fmt: skip
    assert session.jobs_done == session.jobs


def test_a_rerun_is_on_the_machine_of_the_first_round(trial):
    second = Slurm(10_001)
    session, _ = trial(1, further=[second])
    cases = session.of_profile("jumbo") + session.of_profile("middle")
    again = replace(session, cases=cases, rerun=1)
    assert [(one.machine, names) for one, names in again.shares()] == [
        (session.machine, ["middle"]), (second, ["jumbo"]),
    ]  # fmt: skip


def test_the_folders_that_machines_share_are_the_users_before_any_run(trial):
    given = []

    class Slow(Slurm):
        def give(self, path):
            time.sleep(0.1 if path.name in REFRAME_FOLDERS else 0)
            given.append(path.name)

    second = Slow(10_001)
    session, _ = trial(1, further=[second])
    both = threading.Barrier(2, timeout=900)

    def start(profile):
        both.wait()
        give_files(replace(session, machine=second), profile)
        return sorted(set(given) & set(REFRAME_FOLDERS))

    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(start, ("jumbo", "middle")))
    assert seen == [sorted(REFRAME_FOLDERS)] * 2
    assert all(given.count(name) == 1 for name in REFRAME_FOLDERS)


def test_a_machine_that_refuses_every_profile_costs_only_its_share(trial):
    second = Slurm(10_001)
    second.refuse = True
    _, results = trial(1, further=[second])
    assert {run.case.profile for run in results.runs if run.phase == "profile"} == {
        "jumbo", "small",
    }  # fmt: skip


def test_a_signal_ends_the_share_of_each_machine(trial):
    both = threading.Barrier(2, timeout=900)

    def stop(session):
        both.wait()
        session.signals.append("Ctrl-C")
        return Outcome(code=0)

    second = Slurm(10_001)
    session, results = trial(3, stop, further=[second])
    assert (profiles_of(session.machine), profiles_of(second)) == ([], ["jumbo"])
    lost = [run for run in results.runs if "interrupted by Ctrl-C" in run.reason]
    assert len(lost) == len(results.runs) - 2 * 2


def test_an_error_of_one_machine_ends_the_trial(trial):
    second = Slurm(10_001)

    def end(session):
        if session.machine is second:
            raise OSError("no space left")
        return Outcome(code=0)

    with pytest.raises(OSError, match="no space left"):
        trial(1, end, further=[second])


def test_a_profile_that_does_not_start_is_not_tried_again(trial):
    """A Prolog that refuses it drains the nodes each time."""
    slurm = Slurm()
    slurm.refuse = True
    session, results = trial(3, slurm=slurm, profiles=["default", "jumbo"])
    assert len(slurm.jobs) == 1
    bad = [run for run in results.runs if run.case.profile == "jumbo"]
    assert {(run.outcome, run.phase) for run in bad} == {("error", "profile")}
    assert [run.round for run in bad] == [0, 0, 1, 1, 2, 2]
    assert "not in force in round 1: its job 1 did not start" in bad[-1].reason
    assert session.jobs_done == session.jobs


def test_an_error_in_a_later_round_loses_no_earlier_one(trial, tmp_path):
    def end(session):
        if session.round == 1:
            raise LabError("reframe-round2.log: cannot be made")
        return Outcome(code=0)

    with pytest.raises(LabError):
        trial(3, end)
    assert {one.round for one in read_results(tmp_path).runs} == {0}


def test_a_full_disk_ends_the_rounds(trial, monkeypatch):
    def full(folder):
        raise OSError("no space left")

    monkeypatch.setattr(run, "reserve", full)
    _, results = trial(2)
    assert {run.round for run in results.runs if "no space left" in run.reason} == {1}


def test_runs_are_numbered_as_people_count(trial):
    session, _ = trial(2)
    words = [numbered(session.plan, repeat) for repeat in (0, 1, 2, 4)]
    assert words == ["round 1, repeat 1", "round 1, repeat 2", "round 2, repeat 1", "repeat 5"]
    session.plan.rounds = 1
    assert numbered(session.plan, 1) == "repeat 2"


def test_the_user_chooses_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr("seatrial.plan.resolve.load_stack", lambda site: bare_stack())
    file = make_site(tmp_path / "site", {"netpipe": {}}, rounds=3, repeats=2)
    plan = plan_trial(file, Selection(rounds=5))
    assert (plan.rounds, plan.site_rounds, plan.runs_of_case) == (5, 3, 10)
    assert plan_trial(file, Selection()).rounds == 3


@pytest.mark.root
@pytest.mark.slurm
@pytest.mark.stack
def test_two_rounds_in_the_lab(trial_lab, workplace):
    trial_lab.add_bind(workplace)
    profiles = {"jumbo": {"description": "j", "networks": ["test"], "mtu": 9000}}
    file = make_site(
        workplace / "rounds", {"tcp_stream": SMALL["tcp_stream"]}, nic_profiles=profiles,
        profiles=["default", "jumbo"], rounds=2,
    )  # fmt: skip
    progress = Silent()
    plan = plan_trial(file, Selection())
    results = run.run_trial(
        plan, file, LabMachine(trial_lab), progress, workplace / "rounds-trials"
    )
    assert [(r.case.profile, r.repeat, r.round, r.outcome) for r in results.runs] == [
        ("default", 0, 0, "ran"), ("jumbo", 0, 0, "ran"),
        ("default", 1, 1, "ran"), ("jumbo", 1, 1, "ran"),
    ]  # fmt: skip
    assert len({run.job.id for run in results.runs}) == 4
    (use,) = (use for use in results.trial.profiles if use.allocations)
    assert [held.job.id for held in use.allocations] == [
        run.job.id for run in results.runs if run.case.profile == "jumbo"
    ]
    jobs = {run.case.profile: run.job.started for run in results.runs if run.round == 1}
    assert jobs["jumbo"] < jobs["default"]  # the second round begins with the second profile
    assert any(line.startswith("round 2 of 2: jumbo, default") for line in progress.lines)
    for run_ in results.runs:
        assert (results.folder / run_.evidence).name == f"r{run_.repeat}"
    names = {path.name for path in results.folder.glob("reframe*.out")}
    assert names == {
        "reframe.out", "reframe-jumbo.out", "reframe-round2.out", "reframe-round2-jumbo.out",
    }  # fmt: skip
    assert not (results.folder / "stage").exists()
    again = read_results(results.folder).trial
    assert (again.rounds, again.repeats, again.virtual_time) == (2, 1, False)
