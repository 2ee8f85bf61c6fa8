"""One run of ReFrame within a trial: its command line, its output, its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.checks.configuration import (
    ALLOCATION,
    CHECKS,
    FIRST_REPEAT,
    ONLY,
    REPEATS,
    ROUND,
    modules_system,
    partition_name,
)
from seatrial.results.record import Case, Job
from seatrial.site.model import Site
from seatrial.stack import STACK_FOLDER
from seatrial.trial.allocation import Allocation
from seatrial.trial.machine import Machine, Progress
from seatrial.trial.session import Session

PROGRESS = re.compile(r"\[ +(OK|FAIL|ABORT|SKIP|RUN) +\] *(?:\( *(\d+)/(\d+)\))? *(.*)")
STOP_S = 30  # how long ReFrame may take to cancel its jobs after Ctrl-C
POLL_S = 0.2  # how soon a signal or the trial's time limit is noticed
LMOD_PLACES = (
    Path("/usr/share/lmod/lmod/libexec/lmod"),
    Path("/opt/apps/lmod/lmod/libexec/lmod"),
    Path("/usr/local/lmod/lmod/libexec/lmod"),
)
WATCH_S = 2.0  # how soon it is noticed that the job held for a profile has ended


@dataclass
class Outcome:
    """How ReFrame ended. ``why_not`` is a sentence on why the rest did not run, or empty.

    ``broken`` says that ReFrame ran nothing at all, ``lost`` that the profile's job was to blame.
    """

    code: int | None = None
    broken: bool = False
    lost: bool = False
    why_not: str = ""
    tail: list[str] = field(default_factory=list)


def report_file(session: Session, profile: str = "default") -> str:
    """Name of ReFrame's report on the cases of a profile, in the trial's folder."""
    return f"reframe-report{session.suffix(profile)}.json"


def reframe_command(
    site: Site, config: Path, checks: list[str], report: Path, profile: str = "default"
) -> list[str]:
    """ReFrame's command line for a trial: all options that matter are visible here."""
    partition = partition_name(site.trial_partition, profile)
    command = [
        str(Path(sys.prefix) / "bin" / "reframe"),
        f"--config-file={config}", f"--system={site.name}:{partition}", "--exec-policy=async",
        "--keep-stage-files", "--nocolor", "--run",
        f"--report-file={report}",
    ]  # fmt: skip
    return command + [f"--checkpath={CHECKS / check}.py" for check in checks]


def database_folder(folder: Path, machine: Machine) -> Path:
    """Where ReFrame keeps its results database: one for all trials, so that they can be compared.

    It stays with the user that jobs run as, for another trial may be writing to it.
    """
    database = folder.parent / "reframe"
    database.mkdir(exist_ok=True)
    machine.own(database)
    return database


def variables(session: Session, profile: str, job: Job | None) -> dict[str, str]:
    """What ReFrame's configuration reads from the environment."""
    env = {
        "SEATRIAL_RUN_FOLDER": str(session.folder),
        "SEATRIAL_DATABASE_FOLDER": str(database_folder(session.folder, session.machine)),
        REPEATS: str(len(session.repeats)),
        FIRST_REPEAT: str(session.repeats.start),
        ROUND: session.suffix(profile),
        "RFM_IGNORE_REQNODENOTAVAIL": "1",
    }
    if session.rerun:
        env[ONLY] = json.dumps(only(session.of_profile(profile), session.nodelists))
    if STACK_FOLDER in os.environ:
        env[STACK_FOLDER] = os.environ[STACK_FOLDER]
    if modules_system(session.site) == "lmod" and "LMOD_CMD" not in os.environ:
        # A login shell would have set it; a lab's commands start without one.
        env["LMOD_CMD"] = str(find_lmod())
    if job:
        held = {"profile": profile, "job": job.id, "nodes": job.nodes}
        env[ALLOCATION] = json.dumps(held)
    return env


def only(cases: list[Case], places: dict[Case, list[str]]) -> dict[str, dict[str, Any]]:
    """Check -> the transports and numbers of nodes that its cases have, and on which nodes."""
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        own = found.setdefault(case.check, {"transports": [], "nodes": [], "nodelists": {}})
        for name, value in (("transports", case.transport), ("nodes", case.nodes)):
            if value not in own[name]:
                own[name].append(value)
        if case in places:
            own["nodelists"][f"{case.transport}.{case.nodes}"] = ",".join(places[case])
    return found


def find_lmod() -> Path:
    """Lmod's program, where distributions and Lmod's own installer put it. Raises LabError."""
    for place in LMOD_PLACES:
        if place.is_file():
            return place
    places = ", ".join(str(place) for place in LMOD_PLACES)
    raise LabError(f"the stack's modules need Lmod, and $LMOD_CMD is not set nor is it in {places}")


def run_reframe(
    session: Session, profile: str = "default", allocation: Allocation | None = None
) -> Outcome:
    """Run the cases of a profile to their end, to the trial's limit, or until a signal came.

    ``allocation`` is the job that they run in; None: each asks for one of its own.
    """
    site, folder = session.site, session.folder
    checks = list(dict.fromkeys(case.check for case in session.of_profile(profile)))
    report = folder / report_file(session, profile)
    command = reframe_command(site, session.config, checks, report, profile)
    env = variables(session, profile, allocation.job if allocation else None)
    process = session.machine.popen(command, env, folder)
    outcome = Outcome()
    name = f"reframe{session.suffix(profile)}.out"
    reader = threading.Thread(
        target=follow, args=(process, session, outcome, folder / name), daemon=True
    )
    reader.start()
    stopped = False
    looked = time.monotonic()
    while not stopped and outcome.code is None:
        try:
            outcome.code = process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            why = session.why_stop()
            if allocation and not why:
                allocation.renew()
                if time.monotonic() - looked > WATCH_S:
                    why = allocation.ended()
                    outcome.lost = bool(why)
                    looked = time.monotonic()
            if why:
                outcome.why_not = why
                stopped = True
                stop(process, session.progress, why)
    reader.join(timeout=5)
    if allocation and not stopped and (why := allocation.ended()):
        # Just before ReFrame did: it explains more than what that made of it.
        outcome.why_not, outcome.lost = why, True
    if outcome.code not in (0, 1, None):
        outcome.why_not = outcome.why_not or (
            f"ReFrame ended with code {outcome.code}: {' | '.join(outcome.tail[-3:])}"
        )
    if not stopped and outcome.code != 0:
        stage = folder / "stage" / site.name / partition_name(site.trial_partition, profile)
        outcome.broken = not any(one.exists() for one in (report, stage))
    if outcome.broken:
        outcome.why_not = outcome.why_not or f"ReFrame did not run: {' | '.join(outcome.tail[-3:])}"
    return outcome


def stop(process: subprocess.Popen, progress: Progress, why: str) -> None:
    """Have ReFrame cancel its jobs and end; end it where it does not."""
    progress.said(f"{why}: cancelling the jobs, keeping what was measured")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(process: subprocess.Popen, session: Session, outcome: Outcome, file: Path) -> None:
    """Read ReFrame's output: keep it, and tell the terminal how far the trial is."""
    assert process.stdout is not None
    try:
        with file.open("w") as kept:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                _tell(line, session, outcome)
    except OSError as error:  # a full disk must not block ReFrame on a full pipe
        session.progress.said(f"cannot keep ReFrame's output: {error}")
        for line in process.stdout:
            _tell(line, session, outcome)


def _tell(line: str, session: Session, outcome: Outcome) -> None:
    outcome.tail = [*outcome.tail[-30:], line.rstrip()]
    if line.startswith("WARNING: skipping test file"):
        outcome.why_not = line.strip().removeprefix("WARNING: ")
    match = PROGRESS.match(line)
    if match:
        done = int(match[2] or 0)
        session.progress.line(
            match[1],
            session.jobs_done + done if done else 0,
            session.jobs if done else 0,
            match[4],
        )
