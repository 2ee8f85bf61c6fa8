"""The job that a trial holds under a NIC profile. A class plays Slurm."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace

import pytest

from plan_support import bare_stack
from seatrial.base.errors import LabError, LabGone
from seatrial.checks.configuration import configuration
from seatrial.plan.model import PART_FILE, read_part, write
from seatrial.plan.resolve import resolve
from seatrial.results.record import Case, Job, Run
from seatrial.site.load import load_site
from seatrial.site.model import Lab
from seatrial.trial import allocation
from seatrial.trial.allocation import Allocation, held
from seatrial.trial.collect import collect
from seatrial.trial.machine import ThisMachine
from seatrial.trial.reframe_run import part_of, reframe_command, report_file
from seatrial.trial.rounds import run_round
from seatrial.trial.session import Session, TimeLimit
from trial_support import SMALL, Silent, make_site

JUMBO = {"jumbo": {"description": "j", "networks": ["test"], "mtu": 9000}}
CASE = Case(check="tcp_stream", transport="tcp", profile="jumbo", nodes=2)


class Slurm(ThisMachine):
    """Answers by a list of what squeue says, the last again and again; notes what was asked."""

    def __init__(self, *states, sbatch="7\n", refused="", sinfo=""):
        self.states, self.sbatch, self.refused, self.sinfo = list(states), sbatch, refused, sinfo
        self.asked, self.over = [], False

    def run(self, argv):
        self.asked.append(argv)
        name = argv[0]
        if name == "sbatch":
            if self.refused:
                return subprocess.CompletedProcess(argv, 1, "", self.refused)
            return subprocess.CompletedProcess(argv, 0, self.sbatch, "")
        if name == "scancel":
            self.over = True
            return subprocess.CompletedProcess(argv, 0, "", "")
        if name == "sinfo":
            return subprocess.CompletedProcess(argv, 0, self.sinfo, "")
        if name == "cat":
            return subprocess.CompletedProcess(argv, 1, "", "no such file")
        if self.over:
            return subprocess.CompletedProcess(argv, 0, "CANCELLED|None|n[1-2]\n", "")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return subprocess.CompletedProcess(argv, 0, state, "")

    def said(self, name):
        return [argv for argv in self.asked if argv[0] == name]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(allocation, "POLL_S", (0.001, 0.002))


@pytest.fixture
def site(tmp_path):
    benchmarks = {"tcp_stream": SMALL["tcp_stream"], "links": SMALL["links"]}
    return load_site(
        make_site(tmp_path / "site", benchmarks, nic_profiles=JUMBO, profiles=["default", "jumbo"])
    )


@pytest.fixture
def plan(site):
    return resolve(site, bare_stack())


@pytest.fixture
def session(plan, tmp_path):
    """``session(machine)``: with 60 s left."""

    def make(machine, left_s=60.0, signals=()):
        return Session(plan, tmp_path, tmp_path, machine, Silent(), [CASE], list(signals),
                       TimeLimit(left_s))  # fmt: skip

    return make


def test_command(plan, tmp_path):
    command = Allocation(plan, Slurm(), "jumbo", 4, tmp_path).command(100)
    for word in ("--constraint=nic_jumbo", "--exclusive", "--nodes=4", "--partition=compute",
                 "--licenses=cores:2", "--requeue", "--time=3", "--mem=0",
                 f"--chdir={tmp_path}"):  # fmt: skip
        assert word in command
    assert command[-1] == str(tmp_path / "jumbo.sh")
    plan.options.append("--mem-per-cpu=1G")
    assert "--mem=0" not in Allocation(plan, Slurm(), "jumbo", 4, tmp_path).command(100)


def test_held_and_released(session):
    slurm = Slurm("PENDING|Resources|\n", "PENDING|None|\n", "RUNNING|Prolog|n[1-2]\n",
                  "RUNNING|None|n[1-2]\n")  # fmt: skip
    with held(session(slurm), "jumbo", 2) as own:
        assert (own.reason, own.job.id, own.job.nodes) == ("", "7", ["n1", "n2"])
        assert own.lease.exists()
        assert own.ended() == ""
        assert slurm.said("scancel") == []
    assert slurm.said("scancel") == [["scancel", "7"]]
    assert own.released_s is not None
    assert not own.lease.exists()


def test_slurm_works_between_two_queries(session):
    """By the machine's own clock, first before the job can run, and before it can have ended."""

    class Lab(Slurm):
        def pause(self, seconds):
            self.asked.append(["pause"])

    slurm = Lab("RUNNING|Prolog|n[1-2]\n", "RUNNING|None|n[1-2]\n")
    with held(session(slurm), "jumbo", 2):
        pass
    words = [argv[0] for argv in slurm.asked]
    assert words == ["sbatch", "pause", "squeue", "pause", "squeue", "scancel", "pause", "squeue"]


def test_the_job_user_gets_the_output_of_the_job_and_nothing_else(session, tmp_path):
    class Lab(Slurm):
        def give(self, path):
            assert path.is_file()
            assert path.stat().st_size == 0
            given.append(path)

    given: list = []
    with held(session(Lab("RUNNING|None|n[1-2]\n")), "jumbo", 2) as own:
        assert given == [own.output]
        assert own.output.parent == own.lease.parent == own.folder


def test_prolog_that_runs_is_waited_for(session):
    slurm = Slurm("RUNNING|Prolog|n[1-2]\n", "CANCELLED|Prolog|n[1-2]\n",
                  sinfo="n1|drained|Prolog error\nn2|idle|none\n")  # fmt: skip
    with held(session(slurm), "jumbo", 2) as own:
        assert own.why == (
            "its job 7 did not start: CANCELLED (Prolog); n1 is drained: Prolog error"
        )


def test_a_job_that_waits_is_shown_once(session, monkeypatch):
    monkeypatch.setattr(allocation, "QUIET_S", 0.0)
    slurm = Slurm("PENDING|Resources|\n", "PENDING|Priority|\n", "RUNNING|None|n[1-2]\n")
    one, said = session(slurm), []
    monkeypatch.setattr(one.progress, "said", said.append)
    with held(one, "jumbo", 2):
        pass
    assert said == ["NIC profile jumbo: job 7 waits (Resources)"]


def test_released_even_where_the_block_fails(session):
    slurm = Slurm("RUNNING|None|n[1-2]\n")
    with pytest.raises(ZeroDivisionError), held(session(slurm), "jumbo", 2):
        raise ZeroDivisionError
    assert slurm.said("scancel") == [["scancel", "7"]]


@pytest.mark.parametrize(
    "line",
    ["PENDING|BadConstraints|\n", "PENDING|launch failed requeued held|\n", "FAILED|None|n1\n",
     "PENDING|PartitionTimeLimit|\n", "NODE_FAIL|None|n[1-2]\n", "\n"],
)  # fmt: skip
def test_permanent_reasons_end_the_wait(session, line):
    slurm = Slurm("PENDING|None|\n", line)
    with held(session(slurm), "jumbo", 2) as own:
        assert own.reason.startswith("its job 7 did not start: ")
        assert (line.strip() or "GONE").split("|")[0] in own.reason
    assert slurm.said("scancel")


def test_a_lab_that_ends_ends_the_wait_for_its_job(session, monkeypatch):
    monkeypatch.setattr(allocation, "RELEASE_S", 30)
    slurm = Slurm("PENDING|None|\n", LabError("a busy moment"), LabGone("lab x is not up"))
    begun = time.monotonic()
    with held(session(slurm), "jumbo", 2) as own:
        assert own.reason == "its job 7 did not start: GONE (lab x is not up)"
        monkeypatch.setattr(slurm, "run", gone)
    assert time.monotonic() - begun < 20


def gone(argv):
    raise LabGone("lab x is not up")


def test_nodes_that_are_drained_are_not_waited_for_long(session, monkeypatch):
    monkeypatch.setattr(allocation, "UNAVAILABLE_S", 0.05)
    words = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"
    slurm = Slurm(f"PENDING|{words}|\n", sinfo="n3|drained|seatrial: eth1 mtu\n")
    with held(session(slurm), "jumbo", 2) as own:
        assert "n3 is drained: seatrial: eth1 mtu" in own.why


def test_refused_at_once(session):
    refused = "sbatch: error: Batch job submission failed: Invalid feature specification\n"
    slurm = Slurm("", refused=refused)
    with held(session(slurm), "jumbo", 2) as own:
        assert own.reason.endswith("Batch job submission failed: Invalid feature specification")
    assert slurm.said("scancel") == []


def test_disk_that_takes_no_file(session, tmp_path):
    (tmp_path / "allocations").write_text("a file is in the way")
    with held(session(Slurm("")), "jumbo", 2) as own:
        assert own.reason.startswith("its job could not be submitted: ")


def test_slurm_does_not_answer_for_a_while(session):
    slurm = Slurm(LabError("timeout"), OSError("none"), "RUNNING|None|n[1-2]\n")
    with held(session(slurm), "jumbo", 2) as own:
        assert own.reason == ""
        slurm.states = [subprocess.TimeoutExpired("squeue", 60)]
        assert own.ended() == ""  # nothing known is no reason to end


@pytest.mark.parametrize(("left", "signals", "state", "words"), [
    (2, [], "RUNNING|Prolog|n[1-2]", "time limit of 1800 s while its job waited (Prolog)"),
    (60, ["Ctrl-C"], "PENDING|Resources|", "interrupted by Ctrl-C"),
])  # fmt: skip
def test_trial_that_must_end_while_it_waits(session, left, signals, state, words):
    slurm = Slurm(f"{state}\n")
    with held(session(slurm, left, signals), "jumbo", 2) as own:
        assert words in own.reason
    assert slurm.said("scancel")


def test_time_in_the_queue_is_not_part_of_the_limit(session, monkeypatch):
    """The job waits longer than the limit, and has all of it when it runs."""
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    waits = ["PENDING|Resources|\n"] * 2500
    trial = session(Slurm(*waits, "RUNNING|None|n[1-2]\n"), left_s=2)
    with held(trial, "jumbo", 2) as own:
        assert own.reason == ""
        assert own.waited_s > 2
        assert trial.limit.queued_s > 2
        assert trial.why_stop() == ""
        time.sleep(3)  # the clock runs again
        assert "reached its time limit" in trial.why_stop()


def test_job_that_does_not_end_is_reported(session, monkeypatch):
    monkeypatch.setattr(allocation, "RELEASE_S", 0.3)
    slurm = Slurm("RUNNING|None|n[1-2]\n")
    slurm.run = (lambda run: lambda argv: _stays(run, argv))(slurm.run)
    with held(session(slurm), "jumbo", 2) as own:
        pass
    assert own.reason == "its job 7 was cancelled, but did not end within 0.3 s"


def _stays(run, argv):
    answer = run(argv)
    if argv[0] == "squeue" and "CANCELLED" in answer.stdout:
        return subprocess.CompletedProcess(argv, 0, "COMPLETING|None|n[1-2]\n", "")
    return answer


def test_ends_early(session):
    slurm = Slurm("RUNNING|None|n[1-2]\n")
    with held(session(slurm), "jumbo", 2) as own:
        slurm.states = ["NODE_FAIL|None|n[1-2]\n"]
        assert own.ended() == "its job 7 on n1,n2 ended early: NODE_FAIL"


def test_the_reason_of_the_end_is_awaited(session, monkeypatch):
    """While its nodes complete, Slurm does not say that one of them failed."""
    slurm = Slurm("RUNNING|None|n[1-2]\n")
    with held(session(slurm), "jumbo", 2) as own:
        slurm.states = ["COMPLETING|None|n2\n", "COMPLETING|None|n2\n", "PENDING|NodeDown|\n"]
        assert own.ended() == (
            "its job 7 on n1,n2 ended early: a node failed, and Slurm requeued it (NodeDown)"
        )
        monkeypatch.setattr(allocation, "SETTLE_S", 0.3)  # not for ever
        slurm.states = ["COMPLETING|None|n2\n"]
        assert own.ended() == "its job 7 on n1,n2 ended early: COMPLETING"


def test_cases_of_a_profile_that_cannot_be_allocated(session):
    """They are errors with the phase "profile"; ReFrame is not started for them."""
    trial = session(Slurm("PENDING|BadConstraints|\n"))
    (one,) = run_round(trial)
    assert (one.phase, one.outcome.broken) == ("profile", False)
    assert one.why_not.startswith("NIC profile jumbo was not in force: its job 7 did not start")
    (run,) = collect(
        trial.folder, [CASE], range(1), trial.machine.run, one.why_not, "none", one.phase
    )
    assert (run.outcome, run.phase, run.reason) == ("error", "profile", one.why_not)


# -- the configuration of ReFrame


def partitions(plan, part, file):
    (system,) = configuration(plan, part, file)["systems"]
    return {partition["name"]: partition for partition in system["partitions"]}


def test_partition_of_a_held_profile_is_local(plan, tmp_path):
    job = Job(id="7", nodes=["n1", "n2", "n3", "n4"])
    trial = Session(plan, tmp_path, tmp_path, ThisMachine(), Silent(), [CASE])
    current = part_of(trial, "jumbo", job)
    made = partitions(plan, current, tmp_path / "plan.json")
    jumbo = made["compute_jumbo"]
    assert (jumbo["scheduler"], jumbo["max_jobs"], jumbo["access"]) == ("local", 1, [])
    assert current.held("jumbo").id == "7"
    assert made["compute"]["scheduler"] == "slurm"
    assert current.held("default") is None
    logging = configuration(plan, current, tmp_path / "plan.json")["logging"]
    assert logging[0]["handlers"][1]["name"] == f"{tmp_path}/reframe-jumbo.log"


def test_partition_of_a_profile_that_is_not_held(plan, tmp_path):
    jumbo = partitions(plan, None, tmp_path / "plan.json")["compute_jumbo"]
    assert jumbo["scheduler"] == "slurm"
    assert "--constraint=nic_jumbo" in jumbo["access"]


def test_partition_has_the_profiles_transports_only(site, tmp_path):
    site.nic_profiles["jumbo"].transports = ["mpich-*"]
    site.nic_profiles["jumbo"].model_fields_set.add("transports")
    plan = resolve(site, bare_stack())
    jumbo = partitions(plan, None, tmp_path / "plan.json")["compute_jumbo"]
    assert jumbo["environs"] == ["mpich-ucx", "mpich-ofi"]


def test_reframe_runs_one_partition(plan, tmp_path):
    report = tmp_path / "r.json"
    command = reframe_command(plan, tmp_path, ["tcp_stream"], report, "jumbo")
    assert "--system=site:compute_jumbo" in command
    assert f"--report-file={tmp_path}/r.json" in command
    assert f"--session-extras=trial={tmp_path.name},rerun=0" in command
    again = reframe_command(plan, tmp_path, ["tcp_stream"], report, rerun=2)
    assert "--system=site:compute" in again
    assert f"--session-extras=trial={tmp_path.name},rerun=2" in again


def test_reframe_runs_a_case_again_that_broke_a_bound(plan, tmp_path):
    """With a number of its own, under its transport only, beside what the first run left."""
    trial = Session(plan, tmp_path, tmp_path, ThisMachine(), Silent(), [CASE])
    names = [report_file(trial, "jumbo"), report_file(trial)]
    again = replace(trial, rerun=2)
    names += [report_file(again, "jumbo"), report_file(again)]
    assert len(set(names)) == 4
    assert (list(trial.repeats), list(again.repeats), again.jobs) == ([0], [2], 1)
    current = part_of(again, "jumbo")
    made = configuration(plan, current, tmp_path / "plan.json")
    features = {env["name"]: env["features"] for env in made["environments"]}
    assert features["tcp"] == ["tcp_stream"]
    assert set(map(tuple, features.values())) == {("tcp_stream",), ()}
    assert current.repeats == [2]
    assert current.node_counts("tcp_stream", [2, 4]) == [2]
    assert current.node_counts("links", [4]) == []


def test_a_part_reaches_reframe_by_its_file(plan, tmp_path):
    trial = Session(plan, tmp_path, tmp_path, ThisMachine(), Silent(), [CASE])
    current = part_of(trial, "jumbo", Job(id="7", nodes=["n1"]))
    write(current, tmp_path / PART_FILE)
    assert read_part(tmp_path) == current
    (tmp_path / PART_FILE).write_text("{")
    with pytest.raises(LabError, match=r"part\.json: not a part of this version"):
        read_part(tmp_path)
    assert read_part(tmp_path / "elsewhere") is None


def test_progress_counts_over_all_rounds(plan, tmp_path):
    stream = replace(CASE, profile="default")
    cases = [CASE, stream, replace(stream, check="links", nodes=4)]
    trial = Session(plan, tmp_path, tmp_path, ThisMachine(), Silent(), cases)
    assert trial.profiles == ["default", "jumbo"]
    assert (trial.jobs, trial.jobs_of("default"), trial.jobs_of("jumbo")) == (3, 2, 1)


def test_null_of_a_profile_is_kept_in_the_plan(tmp_path):
    """A null takes the base's setting away: without it the trial would try another profile."""
    profiles = {**JUMBO, "small": {"base": "jumbo", "mtu": None, "txqueuelen": 500}}
    site = load_site(make_site(tmp_path / "site", {"tcp_stream": {}}, nic_profiles=profiles))
    small = resolve(site, bare_stack()).profiles["small"]
    assert small.feature == "nic_small"
    assert small.declared["nodes"]["n1"]["eth1"] == {"txqueuelen": 500}


# -- the record of a case


def test_case_within_a_held_job(tmp_path):
    """Slurm says of the job that it was cancelled, since the trial did so: no fault of the case."""
    stage = tmp_path / "stage" / "x"
    stage.mkdir(parents=True)
    entry = Run(case=CASE, outcome="ran", job=Job(nodes=["n1", "n2"], benchmark_s=1.5))
    (stage / "evidence.json").write_text(f"[{entry.model_dump_json()}]")
    (tmp_path / "r.json").write_text(
        '{"runs": [{"testcases": [{"benchmark": "tcp_stream", "environ": "tcp", "num_nodes": 2,'
        f' "repeat": 0, "jobid": "4711", "result": "pass", "stagedir": "{stage}"}}]}}]}}'
    )
    sacct = "7|CANCELLED by 0|0:0|Unknown|Unknown|2026-11-21T03:00:00|n[1-4]|\n"
    held_job = Job(id="7", partition="compute", nodes=["n1", "n2", "n3", "n4"], held=True)

    def slurm(argv):
        assert "7" in argv
        return subprocess.CompletedProcess(argv, 0, sacct, "")

    (run,) = collect(tmp_path, [CASE], range(1), slurm, report="r.json", held=held_job)
    assert (run.outcome, run.reason) == ("ran", "")
    assert (run.job.id, run.job.state, run.job.nodes) == ("7", "", ["n1", "n2"])
    assert (run.job.partition, run.job.held, run.job.benchmark_s) == ("compute", True, 1.5)


@pytest.mark.parametrize(("engine", "looks"), [("native", 8), ("virtual", 5760)])
def test_the_lease_is_longer_in_virtual_time(site, tmp_path, engine, looks):
    site.lab = None if engine == "native" else Lab(engine=engine, nics={"x": ["igb"]})
    own = Allocation(resolve(site, bare_stack()), Slurm(), "jumbo", 4, tmp_path / "allocations")
    own.submit(100)
    assert f"-lt {looks} ]" in (own.folder / "jumbo.sh").read_text()
