"""Where the time of a run went: from what it left in its folder, and the controller's log.

Pure reading; it runs nothing. All times are seconds since the epoch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

STARTUP = "start-up, to the first submission"
SUBMITTING = "next job not yet submitted"
SCHEDULING = "job end to next job's start"
JOB_START = "job start to its first step"
STEPS = "between steps of a job"
JOB_END = "last step to job end"
UNKNOWN = "between jobs (no log of the controller)"
TAIL = "tail: last job's end to the end"
#: where a run keeps its jobs' folders; ReFrame's output folder holds copies of some
PLACES = ("stage", "cases", "job-*")
PARTS = (STARTUP, SUBMITTING, SCHEDULING, JOB_START, STEPS, JOB_END, UNKNOWN, TAIL)

_EVENTS = (
    ("submitted", re.compile(r"\[(\S+)\] _slurm_rpc_submit_batch_job: JobId=(\d+)")),
    ("started", re.compile(r"\[(\S+)\] sched: Allocate JobId=(\d+)")),
    ("started", re.compile(r"\[(\S+)\] sched/backfill: _start_job: Started JobId=(\d+)")),
    ("ended", re.compile(r"\[(\S+)\] _job_complete: JobId=(\d+) done")),
)


@dataclass(frozen=True)
class Step:
    """One benchmark run: ``begin`` and ``end`` as the job script noted them around srun,
    ``own`` as the wrapper on the nodes did right around the program; None where it did not."""

    folder: Path
    name: str
    begin: float
    end: float
    code: int
    own: tuple[float, float] | None


@dataclass
class Job:
    """Times of a job; None where the controller's log does not have them."""

    submitted: float | None = None
    started: float | None = None
    ended: float | None = None


@dataclass
class Measured:
    """One run: seconds of all of it, and of the parts of it in which benchmarks ran.

    ``union_s``: at least one step ran. ``programs_s``: at least one program ran, without what
    srun takes to start and end it. ``gaps_s`` adds up to wall_s - union_s.
    """

    wall_s: float
    union_s: float
    programs_s: float
    sum_s: float
    checks: int
    steps: int
    failed_steps: int
    load: float  # of the machine over the minute before the run was read
    gaps_s: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.wall_s / self.union_s

    @property
    def per_check_s(self) -> float:
        return (self.wall_s - self.union_s) / self.checks

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "per_check_s": self.per_check_s}


def read_steps(folder: Path) -> list[Step]:
    """All steps below ``folder``, by their begin."""
    found = []
    for file in (file for place in PLACES for file in folder.glob(f"{place}/**/steps.tsv")):
        for line in file.read_text().splitlines():
            name, begin, end, code, _ = line.split("\t")
            own = _own(file.parent, name)
            found.append(Step(file.parent, name, float(begin), float(end), int(code), own))
    return sorted(found, key=lambda step: step.begin)


def _own(folder: Path, name: str) -> tuple[float, float] | None:
    begins, ends = [], []
    for file in folder.glob(f"{name}.*.json"):
        data = json.loads(file.read_text())
        if data.get("step") == name:
            begins.append(data["before"]["time"])
            ends.append(data["after"]["time"])
    return (min(begins), max(ends)) if begins else None


def read_ids(folder: Path) -> dict[Path, str]:
    """A job's folder -> its id: from a trial's results, ReFrame's report or the loop's list."""
    found: dict[Path, str] = {}
    for listing in folder.glob("jobs.tsv"):
        rows = (line.split("\t") for line in listing.read_text().splitlines())
        found |= {folder / row[0]: row[1] for row in rows}
    for report in folder.glob("reframe-report.json"):
        for session in json.loads(report.read_text())["runs"]:
            for case in session["testcases"]:
                if case["stagedir"]:
                    found[Path(case["stagedir"])] = str(case["jobid"])
    for results in folder.glob("results.jsonl"):
        for record in map(json.loads, results.read_text().splitlines()):
            if record.get("evidence") and record.get("job"):
                found[folder / record["evidence"]] = record["job"]["id"]
    return found


def read_log(log: Path) -> dict[str, Job]:
    """Job id -> its times from a slurmctld log with milliseconds; empty where there is none."""
    jobs: dict[str, Job] = {}
    if not log.exists():
        return jobs
    for line in log.read_text(errors="replace").splitlines():
        for name, pattern in _EVENTS:
            if match := pattern.match(line):
                time = datetime.fromisoformat(match[1]).timestamp()
                setattr(jobs.setdefault(match[2], Job()), name, time)
    return jobs


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds covered by at least one of the intervals."""
    total, covered = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, covered))
        covered = max(covered, end)
    return total


def measure(folder: Path, begin: float, end: float, log: dict[str, Job]) -> Measured:
    """A run that took from ``begin`` to ``end``. Raises ValueError where no benchmark ran."""
    steps = read_steps(folder)
    if not steps:
        raise ValueError(f"{folder}: no benchmark ran; see reframe.out or loop.out there")
    ids = read_ids(folder)
    jobs = {path: log.get(number, Job()) for path, number in ids.items()}
    return Measured(
        wall_s=end - begin,
        union_s=union((step.begin, step.end) for step in steps),
        programs_s=union(step.own or (step.begin, step.end) for step in steps),
        sum_s=sum(step.end - step.begin for step in steps),
        checks=len({step.folder for step in steps}),
        steps=len(steps),
        failed_steps=sum(step.code != 0 for step in steps),
        load=round(os.getloadavg()[0], 2),
        gaps_s=gaps(steps, jobs, begin, end),
    )


def gaps(steps: list[Step], jobs: dict[Path, Job], begin: float, end: float) -> dict[str, float]:
    """Seconds in which no benchmark ran, by what was waited for."""
    total = dict.fromkeys(PARTS, 0.0)
    covered, last = begin, None
    for step in steps:
        if step.begin > covered:
            before = jobs.get(last.folder, Job()) if last else None
            if last and last.folder == step.folder:
                total[STEPS] += step.begin - covered
            else:
                _between(total, covered, step.begin, before, jobs.get(step.folder, Job()))
        if step.end > covered:
            covered, last = step.end, step
    ended = jobs.get(last.folder, Job()).ended if last else None
    cut = min(max(ended or covered, covered), end)
    total[JOB_END] += cut - covered
    total[TAIL] += end - cut
    return {name: seconds for name, seconds in total.items() if seconds}


def _between(
    total: dict[str, float], begin: float, end: float, before: Job | None, after: Job
) -> None:
    """Share out a gap between two jobs; ``before`` is None for the first job."""
    marks = [
        (JOB_END, before.ended if before else begin),
        (SUBMITTING if before else STARTUP, after.submitted),
        (SCHEDULING, after.started),
        (JOB_START if after.started else UNKNOWN, end),
    ]
    now = begin
    for name, until in marks:
        then = min(max(until or now, now), end)
        total[name] += then - now
        now = then
