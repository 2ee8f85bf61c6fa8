"""From what a ReFrame run left (whole, damaged or nothing) to one record per case and repeat."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from campaigns import rounds
from hostile import damaged
from seatrial.base.errors import LabError
from seatrial.results.folder import read_lines, write_results
from seatrial.results.record import Case, Job, Metric, Run
from seatrial.trial import collect as collecting
from seatrial.trial.collect import collect, job_facts, parse_sacct, read_report
from seatrial.trial.run import RESERVE_B, RESERVE_FILE, reserve

#: as Slurm 22.05 prints it (sacct -X -P -n -o jobid,state,exitcode,submit,start,end,nodelist,...)
SACCT = """\
1|COMPLETED|0:0|2026-11-21T01:26:02|2026-11-21T01:26:02|2026-11-21T01:26:03|n[1-2]|compute
8|CANCELLED by 2000|0:15|2026-11-21T01:26:02|2026-11-21T01:26:02|2026-11-21T01:26:09|n1,n3|compute
9|NODE_FAIL|1:0|2026-11-21T01:26:02|2026-11-21T01:26:02|2026-11-21T01:26:30|n[1-4]|compute
10|PENDING|0:0|2026-11-21T01:26:02|Unknown|Unknown|None assigned|compute
nonsense
11|COMPLETED|0:0
"""
NETPIPE = Case(check="netpipe", transport="mpich-ofi", nodes=2)
EP, IS = (
    Case(check="npb", variant=f"{kernel}.S", transport="mpich-ofi", nodes=2)
    for kernel in ("ep", "is")
)


def no_slurm(argv):
    return subprocess.CompletedProcess(argv, 1, "", "no slurm")


def slurm(argv):
    return subprocess.CompletedProcess(argv, 0, SACCT, "")


def slurm_of_this_machine(argv):
    """As ``slurm``; the arguments must be such that a program can be started with them."""
    subprocess.run(["true", *argv], check=True)
    return slurm(argv)


def metric(value=1.0):
    return Metric(metric="latency_us", value=value, unit="us", better="lower")


@pytest.fixture
def left(tmp_path):
    """``left(check, ...)`` adds a test case to ReFrame's report and makes its stage folder."""
    cases = []

    def add(check, evidence=(), stage=True, **fields):
        folder = tmp_path / "stage" / "lab" / "compute" / "mpich-ofi" / f"{check}{len(cases)}"
        if stage:
            folder.mkdir(parents=True)
            (folder / "rfm_job.sh").write_text("#!/bin/bash\n")
            (folder / "run.py").write_text("")
        if evidence:
            text = json.dumps([run.model_dump(mode="json") for run in evidence])
            (folder / "evidence.json").write_text(text)
        cases.append(
            {"benchmark": check, "environ": "mpich-ofi", "partition": "compute", "num_nodes": 2,
             "repeat": 0, "jobid": "1", "result": "pass", "fail_phase": None, "fail_reason": None,
             "stagedir": str(folder), **fields}
        )  # fmt: skip
        (tmp_path / "reframe-report.json").write_text(json.dumps({"runs": [{"testcases": cases}]}))
        return folder

    return add


def gather(folder, cases, run=slurm, repeats=1, why=""):
    return collect(folder, cases, range(repeats), run, why)


def test_sacct():
    jobs = parse_sacct(SACCT)
    assert list(jobs) == ["1", "8", "9", "10"]
    assert jobs["1"].nodes == ["n1", "n2"]
    assert (jobs["8"].state, jobs["8"].nodes) == ("CANCELLED", ["n1", "n3"])
    assert jobs["9"].exit_code == 1
    assert jobs["10"].nodes == []
    assert jobs["10"].started is None
    assert jobs["1"].ended == datetime(2026, 11, 21, 1, 26, 3).astimezone()


REQUEUED = """\
1|NODE_FAIL|0:0|2026-11-22T04:34:18|2026-11-22T04:34:18|2026-11-22T04:34:44|n[1-2]|compute
1|CANCELLED by 0|0:0|2026-11-22T04:34:44|Unknown|2026-11-22T04:34:55|None assigned|compute
"""


def test_first_start_of_a_requeued_job():
    assert parse_sacct(REQUEUED)["1"].state == "CANCELLED"
    assert parse_sacct(REQUEUED, first=True)["1"].state == "NODE_FAIL"


RESIZED = """\
1|RESIZING|0:0|2026-11-22T21:58:49|2026-11-22T21:58:50|2026-11-22T21:59:14|n[1-4]|compute
1|COMPLETED|0:0|2026-11-22T21:58:49|2026-11-22T21:59:14|2026-11-22T22:01:11|n[1-2,4]|compute
"""


@pytest.mark.parametrize("first", [False, True])
def test_a_job_that_went_on_without_a_lost_node(first):
    job = parse_sacct(RESIZED, first)["1"]
    assert job.state == "COMPLETED"
    assert job.nodes == ["n1", "n2", "n3", "n4"]
    assert job.started == datetime(2026, 11, 22, 21, 58, 50).astimezone()
    assert job.ended == datetime(2026, 11, 22, 22, 1, 11).astimezone()


def test_a_lost_held_job_is_the_cause(left, tmp_path):
    """Also where ReFrame's report knows nothing of the case, and where Slurm was slow to let the
    requeued job be cancelled."""
    ended = datetime(2026, 11, 22, 4, 34, 44, tzinfo=UTC)
    broken = Run(case=NETPIPE, outcome="error", phase="run", reason="step netpipe was ended",
                 job=Job(ended=ended))  # fmt: skip
    folder = left("netpipe", [broken])
    held = Job(id="1", nodes=["n1", "n2"], held=True)

    def requeued(argv):
        assert "--duplicates" in argv
        return subprocess.CompletedProcess(argv, 0, REQUEUED, "")

    for known in (True, False):
        if not known:  # it was ended before it could write of the case
            (tmp_path / "cases").rename(tmp_path / "first")
            folder.mkdir(parents=True)
            (folder / "evidence.json").write_text(f"[{broken.model_dump_json()}]")
            (tmp_path / "reframe-report.json").unlink()
        (run,) = collect(tmp_path, [NETPIPE], range(1), requeued, "it was lost", phase="profile",
                         held=held)  # fmt: skip
        assert (run.phase, run.reason) == ("profile", "it was lost; step netpipe was ended")
        assert (run.job.id, run.job.held) == ("1", True)


@pytest.mark.parametrize(
    "trouble",
    [LabError("login is not running"), OSError("none"), subprocess.TimeoutExpired("sacct", 60)],
)
def test_figures_are_kept_if_slurm_does_not_answer(left, tmp_path, trouble):
    def dead(argv):
        raise trouble

    assert job_facts(["1"], dead) == {}
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (run,) = gather(tmp_path, [NETPIPE], dead)
    assert run.outcome == "ran"
    assert run.job.id == "1"


def test_healthy_run(left, tmp_path):
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (tmp_path / "output" / "lab").mkdir(parents=True)
    (run,) = gather(tmp_path, [NETPIPE])
    assert (run.outcome, run.job.state) == ("ran", "COMPLETED")
    assert run.evidence == "cases/netpipe.mpich-ofi.default.2n/r0"
    assert (tmp_path / run.evidence / "rfm_job.sh").exists()
    assert not (tmp_path / run.evidence / "run.py").exists()
    assert not (tmp_path / "stage").exists()
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"runs": 1}', '{"runs": [1, {"testcases": [2, null]}]}', "\x00\xff",
     '{"runs": [{"testcases": [{}]}]}'],
)  # fmt: skip
def test_damaged_report(left, tmp_path, text):
    """The figures of a check that finished are kept, even where ReFrame's report is not."""
    folder = left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (tmp_path / "reframe-report.json").write_text(text)
    assert all(test.stagedir is None for test in read_report(tmp_path))
    first, second = gather(tmp_path, [NETPIPE, EP], why="the trial was interrupted")
    assert first.outcome == "ran"
    assert first.evidence == str(folder.relative_to(tmp_path))
    assert (tmp_path / first.evidence / "evidence.json").exists()
    assert (second.outcome, second.reason) == ("error", "the trial was interrupted")


def test_nothing_at_all(tmp_path):
    runs = gather(tmp_path, [NETPIPE, EP], repeats=2)
    assert [(run.case, run.repeat, run.outcome) for run in runs] == [
        (NETPIPE, 0, "error"), (EP, 0, "error"), (NETPIPE, 1, "error"), (EP, 1, "error"),
    ]  # fmt: skip
    assert "ReFrame did not run it" in runs[0].reason


@pytest.mark.parametrize("text", ["", "[", "{}", "5", "null", '[{"case": 1}]', "[[]]"])
def test_damaged_evidence(left, tmp_path, text):
    folder = left("netpipe", result="fail", fail_phase="sanity", fail_reason="no table")
    (folder / "evidence.json").write_text(text)
    (run,) = gather(tmp_path, [NETPIPE])
    assert (run.outcome, run.phase, run.reason) == ("error", "sanity", "no table")


def test_missing_stage_folder(left, tmp_path):
    left("netpipe", stage=False, result="fail", fail_phase="setup", fail_reason="no space left")
    (run,) = gather(tmp_path, [NETPIPE])
    assert (run.outcome, run.phase, run.reason) == ("error", "setup", "no space left")
    assert run.evidence == ""


@pytest.mark.parametrize(
    ("jobid", "words"),
    [
        ("8", "the job was cancelled (job 8 on n1,n3); it left no evidence"),
        ("9", "a node failed while the job ran (job 9 on n1,n2,n3,n4); it left no evidence"),
    ],
)
def test_slurm_explains_first(left, tmp_path, jobid, words):
    left("netpipe", jobid=jobid, result="fail", fail_phase="run")
    (run,) = gather(tmp_path, [NETPIPE])
    assert (run.outcome, run.phase, run.reason) == ("error", "run", words)


def test_figures_of_a_failed_job_are_an_error(left, tmp_path):
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])], jobid="9")
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.outcome == "error"
    assert run.metrics  # kept, for whoever looks


def test_one_variant_fails_and_the_other_is_kept(left, tmp_path):
    left(
        "npb",
        [
            Run(case=EP, outcome="ran", metrics=[metric()]),
            Run(case=IS, outcome="error", phase="sanity", reason="not verified"),
        ],
        result="fail", fail_phase="sanity", fail_reason="npb-is.S: not verified",
    )  # fmt: skip
    good, bad = gather(tmp_path, [EP, IS])
    assert (good.outcome, bad.outcome) == ("ran", "error")
    assert good.evidence == bad.evidence == "cases/npb.mpich-ofi.default.2n/r0"


@pytest.mark.parametrize("phase", ["sanity", "performance", "finalize", "cleanup"])
def test_an_interruption_after_the_evidence_was_written(left, tmp_path, phase):
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])], result="abort",
         fail_phase=phase, fail_reason="aborted due to KeyboardInterrupt")  # fmt: skip
    (run,) = gather(tmp_path, [NETPIPE], why="interrupted by Ctrl-C")
    assert (run.outcome, len(run.metrics)) == ("ran", 1)


def test_a_phase_that_failed_is_not_hidden(left, tmp_path):
    """A phase that a check must pass and did not, although its evidence says that it ran."""
    left("netpipe", [Run(case=NETPIPE, outcome="ran")], result="fail", fail_phase="run",
         fail_reason="timed out")  # fmt: skip
    (run,) = gather(tmp_path, [NETPIPE])
    assert (run.outcome, run.reason) == ("error", "timed out")


def test_a_report_that_names_other_folders(left, tmp_path):
    """What is not below the trial's stage folder is neither read nor moved."""
    foreign = tmp_path.with_name(f"{tmp_path.name}-foreign")
    foreign.mkdir()
    text = json.dumps(
        [Run(case=NETPIPE, outcome="ran", metrics=[metric()]).model_dump(mode="json")]
    )
    (foreign / "evidence.json").write_text(text)
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "tree").symlink_to(foreign.parent)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "evidence.json").write_text(text)
    named = [
        foreign,
        f"{tmp_path}/stage/../../{foreign.name}",
        f"{tmp_path}/stage/tree/{foreign.name}",
        f"{tmp_path}/stage/tree",
        tmp_path / "config",
        tmp_path / "stage",
        tmp_path,
        "/",
    ]
    for repeat, folder in enumerate(named):
        left("netpipe", stage=False, stagedir=str(folder), repeat=repeat)
    runs = gather(tmp_path, [NETPIPE], repeats=len(named))
    assert [(run.outcome, run.metrics) for run in runs] == [("error", [])] * len(named)
    assert [path.name for path in foreign.iterdir()] == ["evidence.json"]
    assert not list(tmp_path.glob("cases/*/r*/evidence.json"))


@pytest.mark.parametrize(
    ("kind", "why"),
    [("fifo", "not a regular file"), ("link", "symbolic links"), ("too large", "File too large")],
)
def test_evidence_that_is_no_file_of_the_check(left, tmp_path, monkeypatch, kind, why):
    """It neither blocks nor leads elsewhere."""
    runs = [Run(case=NETPIPE, outcome="ran", metrics=[metric()])]
    folder = left("netpipe", runs)
    evidence = folder / "evidence.json"
    if kind == "too large":
        monkeypatch.setattr(collecting, "LIMIT_B", evidence.stat().st_size - 1)
        report = tmp_path / "reframe-report.json"
        report.write_text(json.dumps(json.loads(report.read_text()), separators=(",", ":")))
    else:
        evidence.rename(tmp_path / "elsewhere")
    if kind == "fifo":
        os.mkfifo(evidence)
    elif kind == "link":
        evidence.symlink_to(tmp_path / "elsewhere")
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.outcome == "error"
    assert run.reason.startswith("evidence.json cannot be read: ")
    assert why in run.reason


def test_a_helper_is_removed_from_the_evidence_and_not_from_where_it_leads(left, tmp_path):
    folder = left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (folder / "run.py").unlink()
    (tmp_path / "program").write_text("kept")
    (folder / "run.py").symlink_to(tmp_path / "program")
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.outcome == "ran"
    assert (tmp_path / "program").read_text() == "kept"


def test_the_evidence_becomes_the_trials_own(left, tmp_path):
    taken = []
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (run,) = collect(tmp_path, [NETPIPE], range(1), slurm, take=taken.append)
    assert taken == [tmp_path / run.evidence]


def test_evidence_that_cannot_be_kept_is_an_error_of_its_case(left, tmp_path):
    """The other cases keep theirs."""
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    left("npb", [Run(case=EP, outcome="ran", metrics=[metric()])])

    def take(folder):
        if "netpipe" in str(folder):
            raise OSError(errno.EACCES, "Permission denied", "mount")

    lost, kept = collect(tmp_path, [NETPIPE, EP], range(1), slurm, take=take)
    assert (kept.outcome, bool(kept.metrics), bool(kept.evidence)) == ("ran", True, True)
    assert (lost.outcome, lost.metrics, lost.evidence) == ("error", [], "")
    assert lost.reason.startswith("evidence was not kept: ")
    assert not list((tmp_path / "cases").glob("netpipe*/*"))


def test_repeats(left, tmp_path):
    for repeat in (1, 0):
        run = Run(case=NETPIPE, outcome="ran", metrics=[metric(repeat)])
        left("netpipe", [run], repeat=repeat)
    runs = gather(tmp_path, [NETPIPE], repeats=3)
    assert [run.metrics[0].value for run in runs[:2]] == [0, 1]
    assert runs[2].outcome == "error"
    assert [run.evidence[-2:] for run in runs[:2]] == ["r0", "r1"]


def test_interrupted_case_says_why(left, tmp_path):
    left("netpipe", result="abort", fail_phase="run", fail_reason="aborted due to X")
    (run,) = gather(tmp_path, [NETPIPE], why="the trial was interrupted by Ctrl-C")
    assert run.reason == "the trial was interrupted by Ctrl-C"


@settings(max_examples=rounds(100, 3000), derandomize=True, database=None)
@given(data=st.data())
def test_what_a_job_user_writes_never_ends_a_trial(tmp_path_factory, data):
    """Each planned run has a record in the file of the results, whatever is in ReFrame's report and
    the evidence."""
    folder = tmp_path_factory.mktemp("hostile")
    stage = folder / "stage" / "lab" / "compute" / "mpich-ofi" / "netpipe0"
    stage.mkdir(parents=True)
    evidence = [Run(case=NETPIPE, outcome="ran", metrics=[metric()]).model_dump(mode="json")]
    test = {
        "benchmark": "netpipe", "environ": "mpich-ofi", "partition": "compute", "num_nodes": 2,
        "repeat": 0, "jobid": "1", "result": "pass", "fail_phase": None, "fail_reason": None,
        "stagedir": str(stage),
    }  # fmt: skip
    report = {"runs": [{"testcases": [test]}]}
    in_report = data.draw(st.booleans())
    (folder / "reframe-report.json").write_text(
        data.draw(damaged(report)) if in_report else json.dumps(report)
    )
    (stage / "evidence.json").write_text(
        json.dumps(evidence) if in_report else data.draw(damaged(evidence))
    )
    runs = collect(folder, [NETPIPE], [0], slurm_of_this_machine)
    event(runs[0].outcome)
    assert [(run.case, run.repeat) for run in runs] == [(NETPIPE, 0)]
    write_results(folder / "results.jsonl", runs)
    kept = list(read_lines(folder / "results.jsonl"))
    # As text: NaN, which a job user can write, is not equal to itself.
    assert [run.model_dump_json() for run in kept] == [run.model_dump_json() for run in runs]
    shutil.rmtree(folder)


@pytest.mark.parametrize("odd", ["\0", "\ud800", "x" * 5000])
@pytest.mark.parametrize("name", ["jobid", "fail_phase", "fail_reason", "stagedir"])
def test_odd_strings_in_the_report(left, tmp_path, name, odd):
    folder = left("netpipe", result="fail", fail_phase="run", fail_reason="broken")
    text = f"{folder}{odd}" if name == "stagedir" else f"1{odd}"
    left("netpipe", repeat=1, **{"fail_phase": "run", "fail_reason": "broken", name: text})
    runs = gather(tmp_path, [NETPIPE], slurm_of_this_machine, repeats=2)
    write_results(tmp_path / "results.jsonl", runs)
    assert [run.outcome for run in read_lines(tmp_path / "results.jsonl")] == ["error"] * 2


def test_stage_folder_whose_name_is_not_utf8(left, tmp_path):
    folder = left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    folder.rename(f"{folder}\udcff")  # the byte 0xff
    (tmp_path / "reframe-report.json").unlink()
    runs = gather(tmp_path, [NETPIPE])
    write_results(tmp_path / "results.jsonl", runs)
    assert [run.outcome for run in runs] == ["error"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" + "{}," * 300_000 + "{}]", "a list of at most 1000 runs"),
        ('[{"metrics": [' + "{}," * 300_000 + "{}]}]", "case: Field required"),
        ('[{"job": {"nodes": [' + "0," * 500_000 + "0]}}]", "case: Field required"),
        ("[" + "0," * 9_000_000 + "0]", "too many values"),
        ("[{" + ",".join(f'"{number}":0' for number in range(200_000)) + "}]", "too many keys"),
        ('[{"facts": ' + '{"a":' * 100 + "1" + "}" * 100 + "}]", "too deep"),
    ],
)
def test_errors_of_hostile_evidence_are_not_collected(left, tmp_path, text, why, monkeypatch):
    """Pydantic needs 25 us and 300 B for each error that it collects."""
    counts = []

    class Adapter:
        def validate_python(self, record):
            try:
                return TypeAdapter(Run).validate_python(record)
            except ValidationError as error:
                counts.append(error.error_count())
                raise

    monkeypatch.setattr(collecting, "_RUN", Adapter())
    (left("netpipe") / "evidence.json").write_text(text)
    monkeypatch.setattr(collecting, "NODE_LIMIT_B", 10 << 20)
    (run,) = gather(tmp_path, [NETPIPE])
    assert why in run.reason
    assert sum(counts) < 10


def test_size_of_evidence_is_limited_by_the_nodes(left, tmp_path):
    text = json.dumps([Run(case=NETPIPE, outcome="ran").model_dump(mode="json")])
    for blanks, outcome in ((2 << 20, "ran"), (3 << 20, "error")):
        (left("netpipe") / "evidence.json").write_text(text + " " * blanks)
        (run,) = gather(tmp_path, [NETPIPE])
        assert run.outcome == outcome
        shutil.rmtree(tmp_path / "cases")


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        ("n[1-1000000]", False),
        ("n[1-300]x[1-300]", False),
        ("n[1-99999999999]", False),
        ("n[1-" + "9" * 5000 + "]", False),
        ("n[1-40000],m[1-40000]", False),
        ("@all", False),
        ("n[1-", False),
        ("n[1-300],m[1-3,7]x,login", True),
    ],
)
def test_nodes_that_no_job_has(nodes, known):
    (job,) = parse_sacct(f"1|COMPLETED|0:0|x|x|x|{nodes}|compute\n").values()
    if known:
        assert len(job.nodes) == 305
        assert {"n300", "m7x", "login"} < set(job.nodes)
    else:
        assert job.nodes == [nodes[:200]]


def test_what_a_terminal_obeys_is_not_kept(left, tmp_path):
    odd = "\x1b]0;x\x07\x9b31m\r\x7f"
    run = Run(case=NETPIPE, outcome="error", phase="run" + odd, reason="broken" + odd)
    left("netpipe", [run])
    (kept,) = gather(tmp_path, [NETPIPE])
    assert kept.phase == "run?]0;x??31m??"
    assert kept.reason == "broken?]0;x??31m??"


def test_long_strings_are_cut_with_a_mark(left, tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "NODE_LIMIT_B", 16 << 20)
    run = Run(case=NETPIPE, outcome="error", phase="p" * 5000, reason="r" * (8 << 20))
    left("netpipe", [run])
    (kept,) = gather(tmp_path, [NETPIPE])
    assert kept.phase == "p" * 64
    assert kept.reason.startswith("r" * 4000 + " ... (")
    assert kept.reason.endswith(" characters left out)")
    assert len(kept.reason) < 4100


def test_the_number_of_stage_folders_is_limited(left, tmp_path, monkeypatch):
    """A job user can make any number: the run that was not searched for says so."""
    monkeypatch.setattr(collecting, "MOST_STAGES", 5)
    folder = left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    (tmp_path / "reframe-report.json").unlink()
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.outcome == "ran"
    for number in range(6):
        (folder.parent / f"other{number}").mkdir()
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.outcome == "error"
    assert "was not searched for: stage has more than 5 folders" in run.reason


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_space(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    reserve(tmp_path)
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= RESERVE_B


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space left") as caught:
        reserve(tmp_path)
    assert caught.value.filename == str(tmp_path / RESERVE_FILE)


def lone(figures=(), **fields):
    """A record of evidence, as JSON may have it."""
    own = [metric().model_dump() if hasattr(figure, "model_dump") else figure for figure in figures]
    case = {"check": "netpipe", "transport": "mpich-ofi", "nodes": 2}
    return {"record": "run", "case": case, "outcome": "ran", "metrics": own, **fields}


FIGURE = {"metric": "latency_us", "value": 1.0, "unit": "us", "better": "lower"}


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (lone([FIGURE] * 1200), "metrics has more than 1128 entries, for 2 nodes"),
        (lone([{**FIGURE, "location": "-" * (1 << 16)}]), "metrics.0.location: String should have"),
        (lone(activity=[{"step": "s", "node": "n1", "seconds": 0}]), "activity.0.seconds: Input"),
        (lone([FIGURE], job={"nodes": ["n1", "x"]}), "it names node 'x', which is no node of the"),
        (lone([{**FIGURE, "location": "n1-x"}]), "it names location 'n1-x', which is"),
        (lone([{**FIGURE, "location": "n1>x"}]), "it names location 'n1>x', which is"),
        (lone([FIGURE], unmeasured={"x-y": "no link"}), "it names location 'x-y', which is"),
        (lone([FIGURE], nic={"x": {}}), "it names node 'x', which is"),
    ],
)
def test_evidence_that_no_check_writes_is_an_error_with_its_reason(left, tmp_path, record, why):
    """Of its case: the other one keeps its figures."""
    good = lone([FIGURE, {**FIGURE, "location": "n2>n1"}], job={"nodes": ["n1", "n2"]})
    for check, one in (("netpipe", record), ("npb", good)):
        if check == "npb":
            one["case"] = {"check": "npb", "variant": "ep.S", "transport": "mpich-ofi", "nodes": 2}
        (left(check) / "evidence.json").write_text(json.dumps([one]))
    bad, kept = collect(
        tmp_path, [NETPIPE, EP], range(1), slurm, planned={"n1", "n2"}, held=Job(id="1", held=True)
    )
    assert (bad.outcome, bad.phase, bad.metrics, bad.activity) == ("error", "sanity", [], [])
    assert bad.reason.startswith(f"its record in evidence.json cannot be used: {why}")
    assert (kept.outcome, len(kept.metrics)) == ("ran", 2)


def test_a_held_job_whose_case_has_a_time_without_a_zone(left, tmp_path):
    """Its end is compared with that of the job."""
    (left("netpipe") / "evidence.json").write_text(
        json.dumps([lone(outcome="error", job={"ended": "2026-11-21T01:26:03"})])
    )
    (run,) = collect(
        tmp_path, [NETPIPE], range(1), slurm, "it ended", phase="profile",
        held=Job(id="1", held=True),
    )  # fmt: skip
    assert run.outcome == "error"
    assert run.job.ended == datetime(2026, 11, 21, 1, 26, 3, tzinfo=UTC)


def test_test_cases_beyond_the_plan_do_not_count(left, tmp_path):
    """Each takes memory; of twice the same the last counts."""
    for repeat in (0, 0, 1, 2, 7):
        left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])], repeat=repeat)
    left("other")
    left("netpipe", num_nodes=3)
    notes = []
    runs = collect(tmp_path, [NETPIPE], range(2), slurm, note=notes.append)
    assert [run.outcome for run in runs] == ["ran", "ran"]
    assert notes == [
        "reframe-report.json has 5 test cases that were not planned, or twice: they do not count"
    ]
    assert sorted(path.name for path in tmp_path.glob("cases/*/*")) == ["r0", "r1"]


def test_the_size_of_a_report_is_limited_by_the_plan(left, tmp_path):
    left("netpipe", [Run(case=NETPIPE, outcome="ran", metrics=[metric()])])
    report = tmp_path / "reframe-report.json"
    report.write_text(report.read_text() + " " * (10 * collecting.TEST_LIMIT_B))
    (run,) = gather(tmp_path, [NETPIPE])
    assert run.evidence.startswith("stage/")  # found without the report
