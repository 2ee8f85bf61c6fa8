"""A job by which a trial holds nodes under one NIC profile, while its checks run as steps in it.

So the profile is switched once and not once per check: Slurm's Prolog puts it on when the job
starts, its Epilog takes it off when the job is cancelled. This module starts, watches and ends the
job; it sets no NIC and knows no benchmark. Whatever happens to the trial, the job ends: by the
trial itself, by its time limit, or, where the trial was killed, because nobody renews its lease.
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

from seatrial.base.errors import SeatrialError
from seatrial.plan.model import Plan
from seatrial.results.record import Job
from seatrial.trial.machine import Machine
from seatrial.trial.session import Session

FOLDER = "allocations"
POLL_S = (0.1, 2.0)  # of Slurm's queue: first and longest interval
RELEASE_S = 90  # how long the Epilogs may take; Slurm goes on with them without us
SETTLE_S = 10  # the same where only the reason of a job's end is waited for
RENEW_S = 5
LEASE_S = 120  # without renewal for so long, the job ends by itself
#: The same where the nodes' clock counts instructions: it runs ahead while they wait for us.
VIRTUAL_LEASE_S = 24 * 3600
STEP_S = 15  # how often it looks
#: reasons of a waiting job that waiting does not change
NEVER = (
    "BadConstraints", "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser",
    "JobLaunchFailure", "PartitionDown", "PartitionInactive", "PartitionNodeLimit",
    "PartitionTimeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "requeued held", "launch failed",
)  # fmt: skip
#: reasons that an operator can change: not waited for longer than this
UNAVAILABLE = ("ReqNodeNotAvail", "DOWN, DRAINED")
UNAVAILABLE_S = 20.0
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING",
         "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING")  # fmt: skip
POLICY = "/etc/seatrial/nic.json"  # what the nodes know of the site's profiles
SCRIPT = """\
#!/bin/bash
# Holds nodes under NIC profile {profile} for the trial {trial}, which cancels it.
# It ends by itself when the trial is gone: nobody then touches the lease.
quiet=0
while [ "$quiet" -lt {looks} ]; do
    sleep {step}
    now=$(stat -c %Y {lease})
    if [ "$now" = "$seen" ]; then quiet=$((quiet + 1)); else quiet=0; fi
    seen=$now
done
echo "the trial no longer renews its lease"
exit 3
"""


@dataclass
class Seen:
    """What Slurm's queue says of a job."""

    state: str
    reason: str = ""
    nodes: list[str] = field(default_factory=list)


@dataclass
class Allocation:
    """The job and what became of it. ``reason`` says why it could not be had, or ended early, and
    ``node_reasons`` what the nodes say that are out of service."""

    plan: Plan
    machine: Machine
    profile: str
    nodes: int
    folder: Path
    nodelist: list[str] = field(default_factory=list)  # which nodes, where that is not all one
    job: Job = field(default_factory=Job)
    waited_s: float | None = None
    released_s: float | None = None
    reason: str = ""
    node_reasons: list[str] = field(default_factory=list)
    _renewed: float = 0.0

    @property
    def lease(self) -> Path:
        return self.folder / f"{self.profile}.lease"

    def command(self, left_s: float) -> list[str]:
        """How the job is submitted, to run for the rest of the trial."""
        plan = self.plan
        own = [*plan.partitions[plan.partition].options, *plan.options]
        feature = plan.profiles[self.profile].feature
        command = [
            "sbatch", "--parsable", f"--job-name=seatrial-{self.profile}",
            f"--partition={plan.partition}", f"--nodes={self.nodes}", "--exclusive",
            # Where a Prolog refuses a job that cannot be requeued, slurmd 22.05 says so again every
            # 15 s, and drains the node each time. Requeued, it is held, and cancelled from here.
            *([f"--constraint={feature}"] if feature else []), "--requeue",
            *([f"--nodelist={','.join(self.nodelist)}"] if self.nodelist else []),
            # Whole minutes; some more, for the trial itself ends it.
            f"--time={math.ceil(max(left_s, 0) / 60) + 1}",
            f"--chdir={self.folder}", f"--output={self.folder / self.profile}.out",
        ]  # fmt: skip
        if not any(option.startswith("--mem") for option in own):
            command.append("--mem=0")  # all of it: the steps share it one after the other
        return [*command, *own, str(self.folder / f"{self.profile}.sh")]

    def submit(self, left_s: float) -> None:
        """Submit the job. Raises OSError, or SeatrialError with Slurm's words."""
        self.folder.mkdir(exist_ok=True)
        lease_s = VIRTUAL_LEASE_S if self.plan.virtual_time else LEASE_S
        script = self.folder / f"{self.profile}.sh"
        script.write_text(
            SCRIPT.format(
                profile=self.profile,
                trial=self.folder.parent.name,
                looks=math.ceil(lease_s / STEP_S),
                step=STEP_S,
                lease=self.lease.name,
            )
        )
        self.renew()
        self.machine.own(self.folder)
        answer = self.machine.run(self.command(left_s))
        if answer.returncode != 0:
            words = " ".join((answer.stderr or answer.stdout).split())
            raise SeatrialError(words.removeprefix("sbatch: error: ") or "sbatch failed")
        self.job = Job(
            id=answer.stdout.strip().split(";")[0], partition=self.plan.partition, held=True
        )

    def renew(self) -> None:
        """Say that the trial lives; a disk that is full does not keep it from being said."""
        if time.monotonic() - self._renewed > RENEW_S:
            self._renewed = time.monotonic()
            with contextlib.suppress(OSError):
                self.lease.touch()

    def look(self) -> Seen | None:
        """What Slurm says of the job now; None where it cannot be asked."""
        try:
            answer = self.machine.run(
                ["squeue", "--noheader", "--states=all", f"--jobs={self.job.id}",
                 "--format=%T|%r|%N"]
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError, SeatrialError):
            return None
        if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
            return None
        line = answer.stdout.strip().splitlines()[:1]
        words = line[0].split("|") if line else ["GONE"]
        state, reason, nodes = (*words, "", "")[:3]
        try:
            return Seen(state, reason, list(NodeSet(nodes)) if nodes else [])
        except NodeSetException:
            return Seen(state, reason)

    def wait(self, session: Session) -> None:
        """Wait until the job runs, with the Prologs of all its nodes done; else set ``reason``."""
        begun = time.monotonic()
        blocked_since = None
        reason = ""
        for _ in turns():
            self.renew()
            seen = self.look()
            if seen and seen.state == "RUNNING" and seen.reason != "Prolog":
                self.job.nodes = seen.nodes
                self.waited_s = time.monotonic() - begun
                return
            why_stop = session.why_stop()
            if why_stop:
                waiting = f" while its job waited ({reason})" if reason else ""
                self.reason = f"{why_stop}{waiting}"
            elif seen:
                reason = seen.reason if seen.reason not in ("", "None") else seen.state
                blocked = any(word in reason for word in UNAVAILABLE)
                blocked_since = (blocked_since or time.monotonic()) if blocked else None
                hopeless = any(word in reason for word in NEVER) or (
                    blocked_since is not None and time.monotonic() - blocked_since > UNAVAILABLE_S
                )
                if seen.state not in ALIVE or hopeless:
                    self.reason = f"its job {self.job.id} did not start: {_told(seen, reason)}"
                    self.ask_nodes()
            if self.reason:
                return

    def _settled(self) -> Seen | None:
        """What Slurm says of the job, if that can be had once its nodes are done with it: until
        then it is COMPLETING, and Slurm does not say why."""
        seen = None
        for _ in turns(SETTLE_S):
            seen = self.look()
            if seen is None or seen.state != "COMPLETING":
                break
        return seen

    def ended(self) -> str:
        """Why the job has ended although the trial needs it, in a sentence; empty while it runs."""
        seen = self._settled()
        if seen is None or seen.state == "RUNNING":
            return ""
        nodes = ",".join(self.job.nodes)
        told = _told(seen, seen.reason)
        if seen.state == "PENDING":
            told = f"a node failed, and Slurm requeued it ({seen.reason})"
        self.reason = f"its job {self.job.id} on {nodes} ended early: {told}"
        self.ask_nodes()
        return self.why

    @property
    def why(self) -> str:
        """The reason, with what the nodes say that are out of service."""
        return "; ".join([self.reason, *self.node_reasons]) if self.reason else ""

    def ask_nodes(self) -> None:
        """Note why nodes of the partition are out of service, if the job did not go well.

        Slurm itself says no more than "Prolog error"; some time later the nodes' health check
        says there which setting was refused. So asking again can tell more.
        """
        if not self.reason:
            return
        command = ["sinfo", "--noheader", "--Node", f"--partition={self.job.partition}",
                   "--format=%N|%T|%E"]  # fmt: skip
        try:
            lines = self.machine.run(command).stdout.splitlines()
        except (OSError, subprocess.SubprocessError, SeatrialError):
            return
        rows = [line.split("|", 2) for line in lines]
        bad = [row for row in rows if len(row) == 3 and row[2].strip() not in ("", "none")]
        self.node_reasons = [
            f"{node} is {state}: {words.strip()}{self._left_on(node, words)}"
            for node, state, words in bad
        ]

    def _left_on(self, node: str, words: str) -> str:
        """What the node side wrote on a node where its Prolog failed, if it can be read from here:
        where the nodes' state folders are on a file system that this machine shares."""
        if "Prolog" not in words:
            return ""
        try:
            policy = json.loads(self.machine.run(["cat", POLICY]).stdout)
            folder = policy["state_folder"]
            if "%n" not in folder:
                return ""
            file = f"{folder.replace('%n', node.partition('.')[0])}/reason"
            said = self.machine.run(["cat", file]).stdout.strip()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError, SeatrialError):
            return ""
        return f" ({' '.join(said.split())[:300]})" if said else ""

    def release(self) -> None:
        """Cancel the job and wait until it is gone, its Epilogs included."""
        if not self.job.id:
            return
        begun = time.monotonic()
        cancelled = False
        for _ in turns(RELEASE_S):
            with contextlib.suppress(OSError, subprocess.SubprocessError, SeatrialError):
                if not cancelled:
                    done = self.machine.run(["scancel", self.job.id])
                    cancelled = done.returncode == 0 or "Invalid job id" in done.stderr
            seen = self.look()
            if seen and seen.state not in ALIVE:
                self.released_s = time.monotonic() - begun
                return
        late = f"its job {self.job.id} was cancelled, but is not gone after {RELEASE_S} s"
        self.reason = f"{self.reason}; {late}" if self.reason else late


def turns(seconds: float = math.inf) -> Iterator[None]:
    """Turns at asking Slurm's queue for so long, at least one, with growing pauses in between."""
    end = time.monotonic() + seconds
    pause = POLL_S[0]
    yield
    while time.monotonic() + pause < end:
        time.sleep(pause)
        pause = min(POLL_S[1], pause * 1.3)
        yield


def _told(seen: Seen, reason: str) -> str:
    words = reason if reason not in ("", "None", seen.state) else ""
    return f"{seen.state} ({words})" if words else seen.state


@contextmanager
def held(
    session: Session, profile: str, nodes: int, nodelist: Sequence[str] = ()
) -> Iterator[Allocation]:
    """Hold ``nodes`` nodes under a NIC profile; they are given back whatever happens.

    ``nodelist`` says which; none: those that Slurm chooses.
    Where that cannot be had, the allocation's ``reason`` says why, and nothing is held.
    """
    folder = session.folder / f"{FOLDER}{session.suffix()}"
    found = Allocation(session.plan, session.machine, profile, nodes, folder, list(nodelist))
    try:
        try:
            found.submit(session.left_s)
        except (OSError, subprocess.SubprocessError, SeatrialError) as error:
            found.reason = f"its job could not be submitted: {error}"
        else:
            found.wait(session)
        yield found
    finally:
        found.release()
        with contextlib.suppress(OSError):
            found.lease.unlink()
