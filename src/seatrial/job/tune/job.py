"""One run in Slurm, as its user: submit its script, wait for its end, cancel it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seatrial.base.errors import LabError, SeatrialError
from seatrial.base.say import Say
from seatrial.job.submit import Run
from seatrial.job.tune.record import Fault
from seatrial.slurm.running import complaint
from seatrial.trial.allocation import ALIVE, GONE, PERMANENT, QueueEntry, cancel, polls, query
from seatrial.trial.machine import Machine, ask

#: why this command cancels a job
STOPPED: dict[Fault, str] = {
    "limit": "it was cancelled at the limit of time",
    "interrupted": "it was cancelled, as the tune was interrupted",
}
#: how long Slurm may not answer before that is an error
SILENT_S = 300.0


class Refused(Exception):
    """Slurm does not take the job: its sentence."""


@dataclass(frozen=True)
class End:
    """How a job ended. ``reason``: why it did not run to its end by itself; "" if it did.

    ``fault``: the word for that: ``refused`` if Slurm would not start it again either, ``limit``
    and ``interrupted`` if this command cancelled it.
    """

    entry: QueueEntry
    reason: str = ""
    fault: Fault = ""


def submit(script: str, sbatch: Run) -> str:
    """Submit a script; the id of the job. Raises Refused."""
    done = sbatch(["sbatch", "--parsable"], script)
    if done.returncode:
        raise Refused(_said(done))
    return done.stdout.strip().split(";")[0]


def refusal(script: str, sbatch: Run) -> str:
    """Why Slurm would not take a script; "" if it would."""
    done = sbatch(["sbatch", "--test-only"], script)
    return _said(done) if done.returncode else ""


def _said(done: subprocess.CompletedProcess[str]) -> str:
    text = complaint(done.stderr or done.stdout)
    for word in ("sbatch: error: ", "allocation failure: "):
        text = text.replace(word, "")
    return text[:300] or f"sbatch ended with {done.returncode}"


def jobs_called(name: str, machine: Machine) -> list[str]:
    """The ids of this user's jobs of a name in Slurm's queue. Raises LabError."""
    command = ["squeue", "--me", "--noheader", "--states=all", f"--name={name}", "--format=%i"]
    return ask(machine, command).split()


def wait(job: str, machine: Machine, why_stop: Callable[[], Fault], show: Say) -> End:
    """Wait until a job has ended. If ``why_stop`` gives a word of ``STOPPED``, or the job cannot
    start, cancel it. ``show`` gets its state. Raises LabError if Slurm does not answer."""
    ran, answered = False, time.monotonic()
    for _ in polls(machine):
        entry = query(machine, job)
        if entry is None:
            if time.monotonic() - answered > SILENT_S:
                raise LabError(f"Slurm does not answer; job {job} is in its queue")
        else:
            answered = time.monotonic()
            if entry.state not in ALIVE:
                return End(entry)
            if entry.state == "PENDING" and ran:
                text = f"a node failed, and Slurm requeued it ({entry.reason})"
                return End(_cancelled(job, machine), text, "slurm")
            if entry.state == "PENDING" and any(word in entry.reason for word in PERMANENT):
                text = f"Slurm does not start it: {entry.reason}"
                return End(_cancelled(job, machine), text, "refused")
            # During a Prolog a job is RUNNING as well, and goes back to PENDING if it is refused.
            ran = ran or (entry.state == "RUNNING" and entry.reason != "Prolog")
            show(f"{entry.state.lower()}{_because(entry)}")
        if why := why_stop():
            return End(_cancelled(job, machine), STOPPED[why], why)
    raise AssertionError("polls() without a limit ended")


def _because(entry: QueueEntry) -> str:
    return f" ({entry.reason})" if entry.reason not in ("", "None") else ""


def _cancelled(job: str, machine: Machine) -> QueueEntry:
    return cancel(machine, job) or QueueEntry(GONE)


def drained(job: str, nodes: Sequence[str], machine: Machine) -> str:
    """Why nodes of a job are out of service, in a sentence; "" if none is.

    Slurm no longer knows the nodes of a job that it requeued. So a node counts as well if its
    reason names the job or, as Slurm writes at first, a Prolog.
    """
    try:
        command = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
        lines = machine.run(command).stdout.splitlines()
    except (OSError, subprocess.SubprocessError, SeatrialError):
        return ""
    rows = [line.split("|", 2) for line in dict.fromkeys(lines)]
    bad = [row for row in rows if len(row) == 3 and row[2].strip() not in ("", "none")]
    bad = [row for row in bad if row[0] in nodes or re.search(rf"Prolog|\bjob {job}\b", row[2])]
    return "; ".join(f"{node} is {state}: {reason.strip()[:200]}" for node, state, reason in bad)
