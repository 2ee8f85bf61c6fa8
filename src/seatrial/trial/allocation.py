"""The job that holds nodes under one NIC profile while the checks of a trial run as steps in it.

The profile is applied once and not once per check: Slurm's Prolog applies it when the job starts,
the Epilog restores the nodes when the trial cancels the job. This module starts, watches and ends
the job. It sets no NIC and runs no benchmark. The job always ends: the trial cancels it, its time
limit ends it, or, if the trial was killed, the job ends itself when its lease expires.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ClusterShell.NodeSet import NodeSet, NodeSetException

from seatrial.base.errors import LabGone, SeatrialError
from seatrial.nic.node.policy import DEFAULT_FILE
from seatrial.plan.model import Plan
from seatrial.results.record import Job
from seatrial.slurm.running import complaint
from seatrial.trial.machine import Machine
from seatrial.trial.session import Session

FOLDER = "allocations"
POLL_S = (0.1, 2.0)  # first and longest interval of queries to Slurm's queue
RELEASE_S = 90  # wait for the Epilogs; after that Slurm continues them without the trial
SETTLE_S = 10  # wait for the reason of a job's end
RENEW_S = 5  # shortest interval of renewals of the lease
LEASE_S = 120  # the job ends itself after this time without a renewal
#: The lease in virtual time, where the clock of idle nodes jumps ahead.
VIRTUAL_LEASE_S = 24 * 3600
STEP_S = 15  # interval at which the job reads its lease
#: reasons of a pending job that do not change by waiting
PERMANENT = (
    "BadConstraints", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser",
    "JobLaunchFailure", "PartitionDown", "PartitionInactive", "PartitionNodeLimit",
    "PartitionTimeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "requeued held", "launch failed",
)  # fmt: skip
#: reasons that an operator can change, and how long the trial waits for it
UNAVAILABLE = ("ReqNodeNotAvail", "DOWN, DRAINED")
UNAVAILABLE_S = 20.0
QUIET_S = 30.0  # a job that waits longer is shown
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING",
         "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING")  # fmt: skip
GONE = "GONE"  # the state of a job that Slurm no longer knows
SCRIPT = """\
#!/bin/bash
# Holds nodes under NIC profile {profile} for the trial {trial}, which cancels it.
# It ends itself if the trial no longer renews the lease file.
quiet=0
while [ "$quiet" -lt {readings} ]; do
    sleep {step}
    now=$(stat -c %Y {lease})
    if [ "$now" = "$seen" ]; then quiet=$((quiet + 1)); else quiet=0; fi
    seen=$now
done
echo "the trial no longer renews its lease"
exit 3
"""


@dataclass
class QueueEntry:
    """A job in Slurm's queue; ``GONE`` if Slurm no longer knows it.

    ``used_s``: seconds since its start, or that it ran.
    """

    state: str
    reason: str = ""
    nodes: list[str] = field(default_factory=list)
    used_s: float | None = None


def query(machine: Machine, job: str) -> QueueEntry | None:
    """A job in Slurm's queue; None if Slurm does not answer. With its lab the job is gone."""
    try:
        answer = machine.run(
            ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r|%N|%M"]
        )
    except LabGone as error:
        return QueueEntry(GONE, str(error))
    except (OSError, subprocess.SubprocessError, SeatrialError):
        return None
    if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
        return None
    line = answer.stdout.strip().splitlines()[:1]
    words = line[0].split("|") if line else [GONE]
    state, reason, nodes, used = (*words, "", "", "")[:4]
    try:
        return QueueEntry(state, reason, list(NodeSet(nodes)) if nodes else [], _seconds(used))
    except NodeSetException:
        return QueueEntry(state, reason, used_s=_seconds(used))


def cancel(machine: Machine, job: str) -> QueueEntry | None:
    """Cancel a job and wait until its Epilogs have ended, at most ``RELEASE_S``.

    Returns what Slurm said last; None if it did not answer.
    """
    entry = None
    cancelled = False
    for _ in polls(machine, RELEASE_S):
        if not cancelled:
            with contextlib.suppress(OSError, subprocess.SubprocessError, SeatrialError):
                done = machine.run(["scancel", job])
                cancelled = done.returncode == 0 or "Invalid job id" in done.stderr
            if cancelled:
                continue  # its Epilogs have just begun
        entry = query(machine, job) or entry
        if entry and entry.state not in ALIVE:
            break
    return entry


def _seconds(used: str) -> float | None:
    """Seconds of Slurm's ``days-hours:minutes:seconds``; None for another text."""
    days, _, rest = used.rpartition("-")
    parts = rest.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isdigit() for part in (*parts, days or "0")):
        return None
    hours, minutes, seconds = (int(part) for part in ["0", *parts][-3:])
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


@dataclass
class Allocation:
    """The job and its state.

    ``reason``: why the job did not start, or ended early. ``node_reasons``: the reasons that Slurm
    gives for nodes that are out of service. ``nodelist``: the nodes to use; empty: Slurm chooses.
    ``waited_s``: time in the queue and in the Prologs, until the checks can run. ``released_s``:
    time from the cancellation to the end of the Epilogs.
    """

    plan: Plan
    machine: Machine
    profile: str
    nodes: int
    folder: Path
    nodelist: list[str] = field(default_factory=list)
    job: Job = field(default_factory=Job)
    waited_s: float | None = None
    released_s: float | None = None
    reason: str = ""
    node_reasons: list[str] = field(default_factory=list)
    _renewed: float = 0.0

    @property
    def lease(self) -> Path:
        return self.folder / f"{self.profile}.lease"

    @property
    def output(self) -> Path:
        """What the job prints. The other files in the folder are the trial's."""
        return self.folder / f"{self.profile}.out"

    def command(self, left_s: float) -> list[str]:
        """The sbatch command of the job. ``left_s``: the rest of the trial's time limit.

        It asks for no more than a round may take: a partition may limit its jobs. Slurm counts a
        job's time limit from its start, so the time in the queue is not part of it.
        """
        plan = self.plan
        options = [*plan.partitions[plan.partition].options, *plan.options]
        feature = plan.profiles[self.profile].feature
        command = [
            "sbatch", "--parsable", f"--job-name=seatrial-{self.profile}",
            f"--partition={plan.partition}", f"--nodes={self.nodes}", "--exclusive",
            # If a Prolog refuses a job that cannot be requeued, slurmd 22.05 reports it every 15 s
            # and drains the node each time. A requeued job is held, and the trial cancels it.
            *([f"--constraint={feature}"] if feature else []), "--requeue",
            *([f"--nodelist={','.join(self.nodelist)}"] if self.nodelist else []),
            # In whole minutes, rounded up: the trial ends the job earlier.
            f"--time={math.ceil(min(max(left_s, 0), plan.round_limit_s) / 60) + 1}",
            f"--chdir={self.folder}", f"--output={self.output}",
        ]  # fmt: skip
        if not any(option.startswith("--mem") for option in options):
            command.append("--mem=0")  # all memory for each step: they run one after another
        return [*command, *options, str(self.folder / f"{self.profile}.sh")]

    def submit(self, left_s: float) -> None:
        """Submit the job. Raises OSError, or SeatrialError with Slurm's message."""
        self.folder.mkdir(exist_ok=True)
        lease_s = VIRTUAL_LEASE_S if self.plan.virtual_time else LEASE_S
        script = self.folder / f"{self.profile}.sh"
        script.write_text(
            SCRIPT.format(
                profile=self.profile,
                trial=self.folder.parent.name,
                readings=math.ceil(lease_s / STEP_S),
                step=STEP_S,
                lease=self.lease.name,
            )
        )
        self.output.touch()
        self.machine.give(self.output)
        self.renew()
        answer = self.machine.run(self.command(left_s))
        if answer.returncode != 0:
            message = complaint(answer.stderr or answer.stdout)
            raise SeatrialError(message.removeprefix("sbatch: error: ") or "sbatch failed")
        self.job = Job(
            id=answer.stdout.strip().split(";")[0], partition=self.plan.partition, held=True
        )

    def renew(self) -> None:
        """Renew the lease, at most every ``RENEW_S``. This needs no disk space."""
        if time.monotonic() - self._renewed > RENEW_S:
            self._renewed = time.monotonic()
            with contextlib.suppress(OSError):
                self.lease.touch()

    def query(self) -> QueueEntry | None:
        """The job in Slurm's queue; None if Slurm does not answer."""
        return query(self.machine, self.job.id)

    def wait(self, session: Session) -> None:
        """Wait until the job runs and all its Prologs have ended, or set ``reason``."""
        begun = time.monotonic()
        blocked_since = None
        reason, shown = "", False
        self.machine.pause(POLL_S[0])  # its Prologs have just begun
        for _ in polls(self.machine):
            self.renew()
            entry = self.query()
            session.limit.note(entry is not None and entry.state == "PENDING")
            if entry and entry.state == "RUNNING" and entry.reason != "Prolog":
                self.job.nodes = entry.nodes
                self.waited_s = time.monotonic() - begun
                return
            why_stop = session.why_stop()
            if why_stop:
                waiting = f" while its job waited ({reason})" if reason else ""
                self.reason = f"{why_stop}{waiting}"
            elif entry:
                reason = entry.reason if entry.reason not in ("", "None") else entry.state
                blocked = any(word in reason for word in UNAVAILABLE)
                blocked_since = (blocked_since or time.monotonic()) if blocked else None
                permanent = any(word in reason for word in PERMANENT) or (
                    blocked_since is not None and time.monotonic() - blocked_since > UNAVAILABLE_S
                )
                if entry.state not in ALIVE or permanent:
                    state = _state_and_reason(entry, reason)
                    self.reason = f"its job {self.job.id} did not start: {state}"
                    self.read_node_reasons()
                elif not shown and time.monotonic() - begun > QUIET_S:
                    text = f"NIC profile {self.profile}: job {self.job.id} waits ({reason})"
                    session.progress.said(text)
                    shown = True
            if self.reason:
                session.limit.note(False)
                return

    def _settled(self) -> QueueEntry | None:
        """The job in Slurm's queue after its Epilogs. In the state COMPLETING the reason of the end
        is not known."""
        entry = None
        for _ in polls(self.machine, SETTLE_S):
            entry = self.query()
            if entry is None or entry.state != "COMPLETING":
                break
        return entry

    def ended(self) -> str:
        """Why the job ended before the trial cancelled it; empty while it runs."""
        entry = self._settled()
        if entry is None or entry.state == "RUNNING":
            return ""
        nodes = ",".join(self.job.nodes)
        state = _state_and_reason(entry, entry.reason)
        if entry.state == "PENDING":
            state = f"a node failed, and Slurm requeued it ({entry.reason})"
        self.reason = f"its job {self.job.id} on {nodes} ended early: {state}"
        self.read_node_reasons()
        return self.why

    @property
    def why(self) -> str:
        """The reason, with the reasons of the nodes that are out of service."""
        return "; ".join([self.reason, *self.node_reasons]) if self.reason else ""

    def read_node_reasons(self) -> None:
        """Read why nodes of the partition are out of service, if the job failed.

        First Slurm's reason is only "Prolog error". Later the health check of the node adds the
        setting that was refused, so a second call can give a better reason.
        """
        if not self.reason:
            return
        command = ["sinfo", "--noheader", "--Node", f"--partition={self.job.partition}",
                   "--format=%N|%T|%E"]  # fmt: skip
        try:
            answer = self.machine.run(command)
        except (OSError, subprocess.SubprocessError, SeatrialError):
            return
        if answer.returncode:
            return
        rows = [line.split("|", 2) for line in answer.stdout.splitlines()]
        bad = [row for row in rows if len(row) == 3 and row[2].strip() not in ("", "none")]
        self.node_reasons = [
            f"{node} is {state}: {reason.strip()}{self._reason_file(node, reason)}"
            for node, state, reason in bad
        ]

    def _reason_file(self, node: str, reason: str) -> str:
        """The reason that the node side wrote on a node whose Prolog failed.

        Empty if it cannot be read here: the state folder must be on a shared file system.
        """
        if "Prolog" not in reason:
            return ""
        try:
            policy = json.loads(self.machine.run(["cat", DEFAULT_FILE]).stdout)
            folder = policy["state_folder"]
            if "%n" not in folder:
                return ""
            file = f"{folder.replace('%n', node.partition('.')[0])}/reason"
            text = self.machine.run(["cat", file]).stdout
        except (OSError, ValueError, KeyError, subprocess.SubprocessError, SeatrialError):
            return ""
        return f" ({' '.join(text.split())[:300]})" if text.strip() else ""

    def release(self) -> None:
        """Cancel the job and wait until its Epilogs have ended."""
        if not self.job.id:
            return
        begun = time.monotonic()
        entry = cancel(self.machine, self.job.id)
        if entry and entry.state not in ALIVE:
            self.released_s = time.monotonic() - begun
            return
        late = f"its job {self.job.id} was cancelled, but did not end within {RELEASE_S} s"
        self.reason = f"{self.reason}; {late}" if self.reason else late


def polls(machine: Machine, seconds: float = math.inf) -> Iterator[None]:
    """Yield for ``seconds``, at least once, with growing pauses between the turns."""
    end = time.monotonic() + seconds
    pause = POLL_S[0]
    yield
    while time.monotonic() + pause < end:
        machine.pause(pause)
        pause = min(POLL_S[1], pause * 1.3)
        yield


def _state_and_reason(entry: QueueEntry, reason: str) -> str:
    return entry.state if reason in ("", "None", entry.state) else f"{entry.state} ({reason})"


@contextmanager
def held(
    session: Session, profile: str, nodes: int, nodelist: Sequence[str] = ()
) -> Iterator[Allocation]:
    """Hold ``nodes`` nodes under a NIC profile, and release them when the block ends.

    ``nodelist``: the nodes to hold; empty: Slurm chooses. If the nodes cannot be allocated, no node
    is held, and the allocation's ``reason`` says why.
    """
    folder = session.folder / f"{FOLDER}{session.suffix()}"
    allocation = Allocation(session.plan, session.machine, profile, nodes, folder, list(nodelist))
    try:
        try:
            allocation.submit(session.limit.left_s)
        except (OSError, subprocess.SubprocessError, SeatrialError) as error:
            allocation.reason = f"its job could not be submitted: {error}"
        else:
            allocation.wait(session)
        yield allocation
    finally:
        allocation.release()
        with contextlib.suppress(OSError):
            allocation.lease.unlink()
