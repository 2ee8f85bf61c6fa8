"""A Slurm of the tests: it takes the jobs of a tune, and leaves what their nodes would."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from job_support import surroundings

from seatrial.job.tune.record import Book, Candidate
from seatrial.job.tune.request import Wish, tuned_of
from seatrial.job.tune.session import Session
from seatrial.job.tune.study import Limits
from seatrial.trial.machine import ThisMachine

AROUND = surroundings(with_stack=False)
PLENTY = Limits(1e6, 1e6)
NODES = ("n1", "n2")


def wish(folder: Path, **options) -> Wish:
    given = {"site": "harbour", "program": ["sleep", "1"], "cwd": folder, "ranks_per_node": 1}
    return Wish(**{**given, **options})


@dataclass
class Job:
    """What a job does: seconds of its ranks, exit code, what it prints, what its nodes record."""

    seconds: float = 1.0
    code: int = 0
    output: bytes = b""
    state: str = "COMPLETED"
    test_bytes: int = 10**7
    other_bytes: int = 1000
    mapped: list[str] = field(default_factory=list)
    proof: dict = field(default_factory=lambda: {"ok": True})
    nodes: tuple[str, ...] = NODES
    used: str = "0:30"


class Killed(Exception):
    """This process is killed."""


class FakeSlurm(ThisMachine):
    """Jobs end at once. ``does``: the job of a profile and of a run's number."""

    def __init__(self, folder: Path, does: Callable[[str, int], Job]):
        self.folder, self.does = folder, does
        self.jobs: dict[str, tuple[str, Job]] = {}  # id -> name, what it did
        self.started: list[int] = []
        self.cancelled: list[str] = []
        self.kill_after: int | None = None  # number of commands
        self.nodes = "n1|idle|none\nn2|idle|none\nn3|drained|a broken fan\n"
        self.refuses = "--constraint=nothing"  # what sbatch --test-only refuses a script for
        self.complaint = "sbatch: error: no such node"

    def _count(self) -> None:
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                raise Killed

    def sbatch(self, argv: list[str], script: str) -> subprocess.CompletedProcess[str]:
        self._count()
        if "--test-only" in argv:
            refused = self.refuses in script
            return subprocess.CompletedProcess(argv, int(refused), "", self.complaint)
        name = re.search(r"--job-name=(\S+)", script)[1]
        number = int(name.rpartition("-")[2])
        profile = json.loads(
            Path(re.search(r"--nic (\S+)", script)[1].strip("'")).read_text()
        )["profile"]  # fmt: skip
        job = self.does(profile, number)
        self.started.append(number)
        identifier = str(100 + len(self.jobs))
        self.jobs[identifier] = (name, job)
        if job.state == "COMPLETED":
            leave(self.folder / "runs" / f"{number:04}", job)
        self._count()  # killed after the submission, before the answer
        return subprocess.CompletedProcess(argv, 0, identifier + "\n", "")

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        self._count()
        said = ""
        if argv[0] == "scancel":
            self.cancelled.append(argv[1])
            self.jobs[argv[1]] = (self.jobs[argv[1]][0], Job(state="CANCELLED", used="0:00"))
        elif argv[0] == "squeue" and any(one.startswith("--name=") for one in argv):
            name = next(one[7:] for one in argv if one.startswith("--name="))
            said = "\n".join(number for number, (own, _) in self.jobs.items() if own == name)
        elif argv[0] == "squeue":
            _, job = self.jobs[next(one[7:] for one in argv if one.startswith("--jobs="))]
            reason = "launch failed requeued held" if job.state == "PENDING" else "None"
            said = f"{job.state}|{reason}|{','.join(job.nodes)}|{job.used}"
        elif argv[0] == "sinfo":
            said = self.nodes
        return subprocess.CompletedProcess(argv, 0, said, "")


def leave(folder: Path, job: Job) -> None:
    """The files of a run."""
    (folder / "exit").write_text(f"{job.code} {int(job.seconds)}\n")
    (folder / "output.begin").write_bytes(job.output[:131072])
    (folder / "output.end").write_bytes(job.output[131072:][-131072:])
    for node in job.nodes:
        before, after = ({"node": node, "boot_id": "b", "time": 1000.0, "interfaces": {}}
                         for _ in range(2))  # fmt: skip
        after["time"] += job.seconds
        for interface, network, moved in (
            ("eth0", "mgmt", job.other_bytes), ("eth1", "rail1", job.test_bytes),
        ):  # fmt: skip
            for one, count in ((before, 0), (after, moved)):
                one["interfaces"][interface] = {
                    "network": network, "rx_bytes": count // 2, "tx_bytes": count - count // 2,
                    "rx_packets": 1, "tx_packets": 1,
                }  # fmt: skip
        record = {"step": "run", "before": before, "after": after, "mapped": job.mapped}
        (folder / f"run.{node}.json").write_text(json.dumps(record))
        for when in ("before", "after"):
            proof = {"node": node, "when": when, "interfaces": {}, **job.proof}
            (folder / f"nic-{when}.{node}.json").write_text(json.dumps(proof))


def session(folder: Path, slurm: FakeSlurm, limits: Limits = PLENTY, say=lambda text: None,
            **options) -> Session:  # fmt: skip
    """A tune in a folder: a new one, or the one that is there."""
    folder.mkdir(exist_ok=True)
    book = Book(folder)
    book.read()
    if book.tuned is None:
        tuned = tuned_of(wish(folder, **options), AROUND)
        book.add(tuned.model_copy(update={"id": "0"}))  # always the same order
    return Session(folder, book, AROUND, slurm, slurm.sbatch, limits, say, lambda text: None)


def candidate(profile: str, transport: str = "tcp") -> Candidate:
    return Candidate(profile, transport)
