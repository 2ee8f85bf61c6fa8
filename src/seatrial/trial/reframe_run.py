"""One run of ReFrame in a trial: command line, environment, output and end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.base.errors import LabError, SeatrialError
from seatrial.benchmarks.registry import check_file
from seatrial.checks.database import database_of, require_own_database
from seatrial.plan.model import (
    PART_FILE,
    CheckSelection,
    HeldJob,
    Part,
    Plan,
    environment_name,
    write,
)
from seatrial.results.record import Job
from seatrial.trial.allocation import Allocation
from seatrial.trial.machine import Machine, Progress, jobs_of
from seatrial.trial.session import Session

PROGRESS = re.compile(r"\[ +(OK|FAIL|ABORT|SKIP|RUN) +\] *(?:\( *(\d{1,9})/(\d{1,9})\))? *(.*)")
STOP_S = 30  # time for ReFrame to cancel its jobs after Ctrl-C
POLL_S = 0.2  # interval of checks for signals and the trial's time limit
LMOD_PATHS = (
    Path("/usr/share/lmod/lmod/libexec/lmod"),
    Path("/opt/apps/lmod/lmod/libexec/lmod"),
    Path("/usr/local/lmod/lmod/libexec/lmod"),
)
WATCH_S = 2.0  # interval of queries about the held job
#: the same in virtual time, where a query costs the emulator a quarter of a second
VIRTUAL_WATCH_S = 60.0
REFRAME_FOLDERS = ("stage", "output", "perflogs")
_FOLDERS = threading.Lock()  # the machines of a trial share the folders
LINE = 1 << 16  # longest part of a line of ReFrame's output that is read at once
QUEUE_S = 10.0  # interval of queries whether all jobs of the trial wait in the queue


@dataclass
class Outcome:
    """How ReFrame ended.

    ``why_not``: why the rest did not run, or empty. ``broken``: ReFrame ran nothing. ``lost``: the
    cause is the job that held the nodes under the profile. ``refused``: it did not start, because
    the profile was not in force in an earlier round. ``tail``: the last lines of output.
    """

    code: int | None = None
    broken: bool = False
    lost: bool = False
    refused: bool = False
    why_not: str = ""
    tail: list[str] = field(default_factory=list)


def log_file(session: Session, profile: str = "default") -> str:
    """Name of ReFrame's log of a profile, in the trial's folder."""
    return f"reframe{session.suffix(profile)}.log"


def report_file(session: Session, profile: str = "default") -> str:
    """Name of ReFrame's report on the cases of a profile, in the trial's folder."""
    return f"reframe-report{session.suffix(profile)}.json"


def reframe_command(
    plan: Plan,
    config: Path,
    checks: list[str],
    report: Path,
    profile: str = "default",
    rerun: int = 0,
) -> list[str]:
    """The command line of ReFrame, whose report and configuration are in the trial's folder.

    The session in ReFrame's database has the name of the trial and the number of the ``rerun``, so
    that a comparison can leave out reruns: only bad figures are measured again.
    """
    command = [
        str(Path(sys.prefix) / "bin" / "reframe"),
        f"--config-file={config}", f"--system={plan.site}:{plan.partition_name(profile)}",
        "--exec-policy=async", "--keep-stage-files", "--nocolor", "--run",
        f"--report-file={report}", f"--session-extras=trial={report.parent.name},rerun={rerun}",
    ]  # fmt: skip
    return command + [f"--checkpath={check_file(check)}" for check in checks]


def database_folder(trials: Path, machine: Machine) -> Path:
    """The folder of ReFrame's results database, which all trials of a user share for comparisons.

    The user of the jobs keeps it, because another trial may write to it at the same time. Raises
    LabError if somebody else could have put something into it.
    """
    try:
        database = database_of(trials, machine.uid)
        database.mkdir(exist_ok=True)
        machine.give(database)
        require_own_database(database, machine.uid)
    except OSError as error:
        raise LabError(f"ReFrame's results database: {error}") from None
    return database


def give_files(session: Session, profile: str) -> None:
    """Make the files and folders that ReFrame writes, and give them to the user of the jobs.

    All else in the trial's folder, and the folder itself, is the trial's.
    """
    folder, machine = session.folder, session.machine
    with _FOLDERS:
        for name in REFRAME_FOLDERS:
            if not (folder / name).is_dir():
                (folder / name).mkdir()
                machine.give(folder / name)
    for name in (report_file(session, profile), log_file(session, profile)):
        (folder / name).touch()
        machine.give(folder / name)


def variables(plan: Plan) -> dict[str, str]:
    """The environment of ReFrame."""
    env = {"RFM_IGNORE_REQNODENOTAVAIL": "1"}
    if plan.modules_system == "lmod" and "LMOD_CMD" not in os.environ:
        # A login shell sets LMOD_CMD, but the commands of a lab do not run in one.
        env["LMOD_CMD"] = str(find_lmod())
    return env


def part_of(session: Session, profile: str, job: Job | None = None) -> Part:
    """The part of the session's cases of a profile. ``job``: the job that the trial holds."""
    return Part(
        profile=profile,
        folder=str(session.folder),
        database=str(database_folder(session.folder.parent, session.machine)),
        repeats=list(session.repeats),
        suffix=session.suffix(profile),
        checks=selections(session, profile) if session.rerun else None,
        job=HeldJob(id=job.id, nodes=job.nodes) if job else None,
    )


def selections(session: Session, profile: str) -> dict[str, CheckSelection]:
    """Check -> environments and node counts of its cases, and the nodes to run on."""
    checks: dict[str, CheckSelection] = {}
    for case in session.of_profile(profile):
        selection = checks.setdefault(case.check, CheckSelection())
        environment = environment_name(case)
        if environment not in selection.environments:
            selection.environments.append(environment)
        if case.nodes not in selection.nodes:
            selection.nodes.append(case.nodes)
        if case in session.nodelists:
            selection.nodelists[f"{environment}.{case.nodes}"] = ",".join(session.nodelists[case])
    return checks


def find_lmod() -> Path:
    """The program of Lmod, in the paths of distributions and of Lmod. Raises LabError."""
    for path in LMOD_PATHS:
        if path.is_file():
            return path
    paths = ", ".join(str(path) for path in LMOD_PATHS)
    raise LabError(
        f"the stack's modules need Lmod, but $LMOD_CMD is not set and Lmod is not in {paths}"
    )


def run_reframe(
    session: Session, profile: str = "default", allocation: Allocation | None = None
) -> Outcome:
    """Run the cases of a profile, until they end, the time limit of the trial, or a signal.

    ``allocation``: the job that they run in; None: each check has its own job.
    """
    plan, folder = session.plan, session.folder
    checks = list(dict.fromkeys(case.check for case in session.of_profile(profile)))
    report = folder / report_file(session, profile)
    command = reframe_command(plan, session.config, checks, report, profile, session.rerun)
    current = part_of(session, profile, allocation.job if allocation else None)
    write(current, session.config.with_name(PART_FILE))
    give_files(session, profile)
    process = session.machine.popen(command, variables(plan), folder)
    outcome = Outcome()
    name = f"reframe{session.suffix(profile)}.out"
    reader = threading.Thread(
        target=follow, args=(process, session, profile, outcome, folder / name), daemon=True
    )
    reader.start()
    stopped = False
    queried = time.monotonic()
    while not stopped and outcome.code is None:
        try:
            outcome.code = process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            why = session.why_stop()
            since_query_s = time.monotonic() - queried
            if allocation and not why:
                allocation.renew()
                if since_query_s > (VIRTUAL_WATCH_S if plan.virtual_time else WATCH_S):
                    why = allocation.ended()
                    outcome.lost = bool(why)
                    queried = time.monotonic()
            elif not allocation and since_query_s > QUEUE_S:
                session.limit.note(only_pending(session))
                queried = time.monotonic()
            if why:
                outcome.why_not = why
                stopped = True
                stop(process, session.progress, why)
    if not allocation:
        session.limit.note(False)
    reader.join(timeout=5)
    if allocation and not stopped and (why := allocation.ended()):
        # The job ended just before ReFrame, so it is the cause.
        outcome.why_not, outcome.lost = why, True
    if outcome.code not in (0, 1, None):
        outcome.why_not = outcome.why_not or (
            f"ReFrame ended with code {outcome.code}: {' | '.join(outcome.tail[-3:])}"
        )
    if not stopped and outcome.code != 0:
        stage = folder / "stage" / plan.site / plan.partition_name(profile)
        outcome.broken = not (report.stat().st_size or stage.is_dir())
    if outcome.broken:
        outcome.why_not = outcome.why_not or f"ReFrame did not run: {' | '.join(outcome.tail[-3:])}"
    return outcome


def only_pending(session: Session) -> bool:
    """Whether the trial has jobs and all wait in the queue. False if Slurm does not answer: then
    the time limit must still end the trial."""
    try:
        states = set(jobs_of(session.folder, session.machine).values())
    except (OSError, subprocess.SubprocessError, SeatrialError):
        return False
    return states == {"PENDING"}


def stop(process: subprocess.Popen, progress: Progress, why: str) -> None:
    """Interrupt ReFrame, which then cancels its jobs. Kill it if it does not end."""
    progress.said(f"{why}: the jobs are cancelled, the figures measured so far are kept")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(
    process: subprocess.Popen, session: Session, profile: str, outcome: Outcome, file: Path
) -> None:
    """Write ReFrame's output to a file, and show the progress that it reports."""
    assert process.stdout is not None
    try:
        with file.open("w", encoding="utf-8", errors="replace") as kept:
            while line := process.stdout.readline(LINE):
                kept.write(line)
                kept.flush()
                _show(line, session, profile, outcome)
    except OSError as error:  # on a full disk the pipe must still be read, or ReFrame blocks
        with contextlib.suppress(Exception):
            session.progress.said(f"cannot write ReFrame's output: {error}")
        while line := process.stdout.readline(LINE):
            _show(line, session, profile, outcome)


def _show(line: str, session: Session, profile: str, outcome: Outcome) -> None:
    """Raises nothing: a line that cannot be shown must not end the reading of the pipe."""
    with contextlib.suppress(Exception):
        _read_line(line, session, profile, outcome)


def _read_line(line: str, session: Session, profile: str, outcome: Outcome) -> None:
    outcome.tail = [*outcome.tail[-30:], line.rstrip()]
    if line.startswith("WARNING: skipping test file"):
        outcome.why_not = line.strip().removeprefix("WARNING: ")
    match = PROGRESS.match(line)
    if match:
        done = int(match[2] or 0)
        if done:
            session.done[session.suffix(profile)] = done
        session.progress.line(
            match[1],
            session.jobs_done if done else 0,
            session.jobs if done else 0,
            match[4],
        )
