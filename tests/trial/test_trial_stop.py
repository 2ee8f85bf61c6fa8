"""Ending ReFrame: by a signal, by the trial's limit, politely or not. A script plays ReFrame."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from plan_support import bare_stack
from seatrial.plan.resolve import resolve
from seatrial.results.folder import Results
from seatrial.results.record import Case, Trial
from seatrial.site.load import load_site
from seatrial.trial import reframe_run as runner
from seatrial.trial import run
from seatrial.trial.machine import ThisMachine
from seatrial.trial.reframe_run import report_file, run_reframe
from seatrial.trial.session import Session, TimeLimit
from trial_support import Silent, make_site, until

REPORT = "reframe-report.json"
ENDS = "import sys; print('started'); sys.exit({code})"
POLITE = (
    "import time\ntry:\n    print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n"
)
POLITE += "    print('bye'); raise SystemExit(1)\n"
RUDE = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
RUDE += "print('up', flush=True)\ntime.sleep(60)\n"


@pytest.fixture
def reframe(tmp_path, monkeypatch):
    """``reframe(script, signals, limit)``: the outcome, and the progress lines."""

    def call(script, signals=(), limit=600, most_queued_s=math.inf):
        site = load_site(make_site(tmp_path / f"s{limit}", {"tcp_stream": {}}, time_limit_s=600))
        site.trial.time_limit_s = limit
        plan = resolve(site, bare_stack())
        monkeypatch.setattr(runner, "reframe_command", lambda *_: [sys.executable, "-c", script])
        progress, noted = Silent(), []

        def note():
            """The signal comes once the script is ready for it."""
            until(lambda: "up" in (tmp_path / "reframe.out").read_text(), 60, "the script")
            noted.extend(signals)

        (tmp_path / "reframe.out").write_text("")
        if signals:
            threading.Thread(target=note).start()
        case = Case(check="tcp_stream", transport="tcp", nodes=2)
        session = Session(
            plan,
            tmp_path,
            tmp_path / "settings.py",
            ThisMachine(),
            progress,
            [case],
            noted,
            TimeLimit(limit, most_queued_s),
        )
        assert report_file(session) == REPORT
        return run_reframe(session), progress.lines

    return call


def test_ends_by_itself(reframe, tmp_path):
    outcome, _ = reframe(ENDS.format(code=0))
    assert (outcome.code, outcome.broken, outcome.why_not) == (0, False, "")
    assert (tmp_path / "reframe.out").read_text() == "started\n"


@pytest.mark.parametrize("code", [1, 2])
def test_an_empty_run_is_broken(reframe, tmp_path, code):
    outcome, _ = reframe(ENDS.format(code=code))
    assert outcome.broken
    assert "started" in outcome.why_not
    (tmp_path / REPORT).write_text("{}")
    assert not reframe(ENDS.format(code=code), limit=601)[0].broken


def test_signal_stops_it(reframe, tmp_path):
    outcome, progress = reframe(POLITE, signals=["Ctrl-C"])
    assert outcome.why_not == "the trial was interrupted by Ctrl-C"
    assert "bye" in (tmp_path / "reframe.out").read_text()
    assert any("the jobs are cancelled" in text for text in progress)
    assert not outcome.broken


def test_limit_stops_it(reframe):
    outcome, _ = reframe(POLITE, limit=1)
    assert outcome.why_not == "the trial reached its time limit of 1 s"


def test_time_in_the_queue_is_not_part_of_the_limit(reframe, monkeypatch):
    """Twenty queries find pending jobs only, which takes longer than the limit of 1 s."""
    monkeypatch.setattr(runner, "QUEUE_S", 0.1)
    queries = []

    def jobs(folder, machine):
        queries.append(folder)
        return {"7": "PENDING", "8": "PENDING" if len(queries) < 20 else "RUNNING"}

    monkeypatch.setattr(runner, "jobs_of", jobs)
    outcome, _ = reframe(POLITE, limit=1)
    assert len(queries) > 20
    assert "reached its time limit of 1 s, not counting" in outcome.why_not


def test_jobs_that_wait_for_ever_end_a_trial_of_a_lab(reframe, monkeypatch):
    """Its jobs are another user's, who can let one wait until any date."""
    monkeypatch.setattr(runner, "QUEUE_S", 0.1)
    monkeypatch.setattr(runner, "jobs_of", lambda folder, machine: {"7": "PENDING"})
    outcome, _ = reframe(POLITE, limit=1, most_queued_s=1)
    assert "reached its time limit of 1 s, not counting" in outcome.why_not


def test_a_slurm_that_does_not_answer_does_not_stop_the_clock(reframe, monkeypatch):
    monkeypatch.setattr(runner, "QUEUE_S", 0.05)

    def jobs(folder, machine):
        raise OSError("no Slurm")

    monkeypatch.setattr(runner, "jobs_of", jobs)
    outcome, _ = reframe(POLITE, limit=1)
    assert outcome.why_not == "the trial reached its time limit of 1 s"


def test_reframe_that_does_not_end_is_killed(reframe, monkeypatch):
    monkeypatch.setattr(runner, "STOP_S", 0.5)
    outcome, _ = reframe(RUDE, signals=["SIGTERM"])
    assert outcome.why_not == "the trial was interrupted by SIGTERM"


class Queue(ThisMachine):
    """Slurm's queue: ``rows`` of each query in turn, the last again and again. None: it fails."""

    def __init__(self, *rows):
        self.rows = list(rows)
        self.cancelled = []
        self.queries = 0

    def run(self, argv):
        if argv[0] == "scancel":
            self.cancelled.append(argv[1:])
            return subprocess.CompletedProcess(argv, 0, "", "")
        rows = self.rows[min(self.queries, len(self.rows) - 1)]
        self.queries += 1
        if rows is None:
            text = "slurm_load_jobs error: Socket timed out on send/recv operation"
            return subprocess.CompletedProcess(argv, 1, "", text)
        return subprocess.CompletedProcess(argv, 0, rows, "")


def test_remaining_jobs_are_cancelled_and_waited_for(tmp_path):
    """Jobs of this trial only, by their working folder."""
    other = f"8|RUNNING|{tmp_path}/t10/stage/a\n"
    slurm = Queue(
        f"7|RUNNING|{tmp_path}/t1/stage/a\n{other}9|PENDING|{tmp_path}/t1/stage/b\n",
        f"7|COMPLETING|{tmp_path}/t1/stage/a\n{other}",
        other,
    )
    run.end_leftovers(tmp_path / "t1", slurm)
    assert slurm.cancelled == [["7", "9"]]
    assert slurm.queries == 3


def test_remaining_jobs_are_cancelled_once_slurm_answers(tmp_path):
    slurm = Queue(None, f"7|RUNNING|{tmp_path}/t1/stage/a\n", None, "")
    run.end_leftovers(tmp_path / "t1", slurm)
    assert slurm.cancelled == [["7"]]
    assert slurm.queries == 4


def test_a_slurm_that_never_answers_does_not_hold_the_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SILENT_S", 0.2)
    said = run.end_leftovers(tmp_path / "t1", Queue(f"7|RUNNING|{tmp_path}/t1/stage/a\n", None))
    assert said.startswith("jobs of the trial may still run, until their time limits: Slurm does ")
    assert "Socket timed out" in said


def test_a_silent_slurm_is_a_note_of_the_trial_and_no_round_that_does_not_run_asks_it(
    tmp_path, monkeypatch
):
    asked = []
    session = SimpleNamespace(
        folder=tmp_path, machines=[SimpleNamespace(losses=lambda _: [])], progress=Silent()
    )
    for name, gives in (("run_round", []), ("runs_of", []), ("allocations", {})):
        monkeypatch.setattr(run, name, lambda *_, gives=gives: gives)
    monkeypatch.setattr(run, "end_leftovers", lambda *_: asked.append(1) or "jobs may still run")
    trial = Trial(trial="t1", site="lab", started=datetime(2026, 8, 2, tzinfo=UTC), seatrial="0")
    results = Results(trial=trial)
    run.run_cases(session, results)
    run.run_cases(session, results, why_not="the trial was interrupted")
    assert results.trial.notes == ["jobs may still run"]
    assert session.progress.lines == ["warning: jobs may still run"]
    assert asked == [1]


def test_remaining_jobs_that_never_end_do_not_hold_the_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RELEASE_S", 0.5)
    slurm = Queue(f"7|COMPLETING|{tmp_path}/t1/stage/a\n")
    run.end_leftovers(tmp_path / "t1", slurm)
    assert slurm.cancelled == [["7"]]
