"""How long a job takes to start: with and without Seatrial's Prolog, with and without a profile.

Slurm starts batch jobs at whole seconds (``sched_interval``, ``bf_interval``), so the time from
submission has up to a second of chance in it. What a Prolog adds comes after that: between the
allocation, which the controller's log has in ms, and the first line of the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nic_labs
import timeline
import ways

from seatrial_lab.native.engine import Lab

#: date and not bash's own clock: a bash would first read the lab's module set-up
_SBATCH = """\
for _ in $(seq "$1"); do
    submitted=$(date +%s.%N)
    job=$(sbatch --parsable --exclusive --nodes="$2" $3 --output=/dev/null --wrap '
        date +%s.%N >first.$SLURM_JOB_ID.new; mv first.$SLURM_JOB_ID.new first.$SLURM_JOB_ID
        flock --shared hold true')
    echo "$job $submitted"
done
"""
_SRUN = """\
submitted=$(date +%s.%N)
echo "- $submitted $(srun --exclusive --nodes="$2" $3 date +%s.%N | sort -n | tail -1)"
"""
START_S = 60
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Way:
    """A kind of job in one of the labs (``nic_labs.LABS``)."""

    name: str
    lab: str
    options: str = ""


NOT_INSTALLED = Way("not installed", nic_labs.BARE)
ONLY_FLAGS = Way("PrologFlags, Prolog=/bin/true", nic_labs.FLAGS)
NO_PROFILE = Way("installed, no profile", nic_labs.INSTALLED)


def with_profile(name: str) -> Way:
    feature = "nic_" + name.replace("-", "_")
    return Way(f"profile {name}", nic_labs.INSTALLED, f"--constraint={feature}")


@dataclass
class Series:
    """One way with one number of jobs at once and of nodes in each; all in s.

    ``submitted`` and ``allocated``: from then to the first line, of each job. ``last``: from the
    first allocation to the first line of the last job. ``prolog_cpu``, ``epilog_cpu``: per node.
    ``applied`` and ``restored``: what each node noted in its history. ``srun``: from its start to
    the first line.
    """

    way: Way
    jobs: int = 1
    nodes: int = 1
    submitted: list[float] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    prolog_cpu: list[float] = field(default_factory=list)
    epilog_cpu: list[float] = field(default_factory=list)
    applied: list[float] = field(default_factory=list)
    restored: list[float] = field(default_factory=list)
    srun: list[float] = field(default_factory=list)


@dataclass
class Bench:
    """The running labs, by kind."""

    labs: dict[str, Lab]

    def measure(
        self, series: list[Series], rounds: int, say: Callable[[str], None], srun: bool = False
    ) -> list[Series]:
        """Fill them, interleaved; every round begins with another one."""
        for number in range(rounds + 1):
            for one in rotated(series, number):
                # The first round is not counted: it has the first job of each node.
                target = one if number else Series(one.way, one.jobs, one.nodes)
                self._batch(target)
                if srun:
                    self._srun(target)
            say(f"round {number} of {rounds}")
        return series

    def _batch(self, series: Series) -> None:
        lab = self.labs[series.way.lab]
        slurmds = [nic_labs.slurmd_of(lab, node) for node in lab.spec.nodes]
        cpu = [children_s(slurmds)]
        with held(lab):
            rows = submit(lab, _SBATCH, series)
            files = {job: lab.paths.home / f"first.{job}" for job, _ in rows}
            wait(
                f"jobs of {series.way.name}", lambda: all(file.exists() for file in files.values())
            )
            cpu.append(children_s(slurmds))
        first = {job: float(file.read_text()) for job, file in files.items()}
        settle(lab)
        cpu.append(children_s(slurmds))
        series.prolog_cpu.append((cpu[1] - cpu[0]) / (series.jobs * series.nodes))
        series.epilog_cpu.append((cpu[2] - cpu[1]) / (series.jobs * series.nodes))
        log = timeline.read_log(ways.controller_log(lab.spec.instance))
        starts = {job: log[job].started for job in first}
        missing = [job for job, start in starts.items() if start is None]
        if missing:
            raise ValueError(f"the controller's log does not have the start of job {missing[0]}")
        begins = {job: float(start or 0) for job, start in starts.items()}
        series.submitted += [first[job] - float(at) for job, at in rows]
        series.allocated += [first[job] - begins[job] for job in first]
        series.last.append(max(first.values()) - min(begins.values()))
        for event, job, seconds in history(lab):
            if job in first:
                (series.applied if event == "applied" else series.restored).append(seconds)

    def _srun(self, series: Series) -> None:
        lab = self.labs[series.way.lab]
        for row in submit(lab, _SRUN, series):
            series.srun.append(float(row[2]) - float(row[1]))
        settle(lab)


def rotated(series: list[Series], number: int) -> list[Series]:
    at = number % len(series)
    return series[at:] + series[:at]


def submit(lab: Lab, script: str, series: Series) -> list[list[str]]:
    """Words of each line that a script on the login node printed."""
    words = ["sh", "-s", "--", str(series.jobs), str(series.nodes), series.way.options]
    out = lab.run(words, stdin=script, check=True, timeout=START_S).stdout
    rows = [line.split() for line in out.splitlines()]
    if not rows or any(len(row) < 2 for row in rows):
        raise ValueError(f"{series.way.name}: no job was submitted: {out}")
    return rows


def settle(lab: Lab) -> None:
    """Until no job is left, its Epilog included."""
    wait("an empty queue", lambda: not lab.run(["squeue", "-h"], check=True).stdout.strip(), 0.05)


def wait(what: str, test: Callable[[], bool], poll_s: float = 0.005) -> None:
    deadline = time.monotonic() + START_S
    while not test():
        if time.monotonic() > deadline:
            raise ValueError(f"after {START_S} s: not yet {what}")
        time.sleep(poll_s)


@contextmanager
def held(lab: Lab) -> Iterator[None]:
    """Meanwhile no job of the lab ends, so that all Prologs are over before the first Epilog."""
    with (lab.paths.home / "hold").open("w") as hold:
        fcntl.flock(hold, fcntl.LOCK_EX)
        yield


def children_s(pids: list[int]) -> float:
    """CPU seconds of these processes' children that have ended and were waited for, and of theirs:
    of slurmds, their Prologs and Epilogs. Steps are no children of slurmd."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[13]) + int(fields[14])
    return total / TICKS


def history(lab: Lab) -> Iterable[tuple[str, str, float]]:
    """(applied or restored, job, s) of all nodes of a lab."""
    for file in (lab.paths.data / "nic").glob("*/history.jsonl"):
        for entry in map(json.loads, file.read_text().splitlines()):
            if entry["event"] in ("applied", "restored"):
                yield entry["event"], entry["job"], entry["seconds"]
