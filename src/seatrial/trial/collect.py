"""Reads the files of a ReFrame run, complete or not: one ``run`` record per case and repeat."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from seatrial.base.errors import SeatrialError
from seatrial.checks.evidence import EVIDENCE_FILE
from seatrial.results.record import Case, Job, Run

REPORT_FILE = "reframe-report.json"
SACCT_FIELDS = "jobid,state,exitcode,submit,start,end,nodelist,partition"
_RUNS = TypeAdapter(list[Run])
Runner = Callable[[list[str]], subprocess.CompletedProcess]


@dataclass(frozen=True)
class TestCase:
    """One test case of ReFrame's report."""

    benchmark: str
    transport: str
    partition: str
    nodes: int | None
    repeat: int | None
    jobid: str
    result: str
    phase: str
    reason: str
    stagedir: Path | None


def read_report(file: Path) -> list[TestCase]:
    """The test cases of ReFrame's report; empty if the report is missing or damaged."""
    try:
        report = json.loads(file.read_text(errors="replace"))
    except (OSError, ValueError):
        return []
    tests = []
    for session in _entries(report, "runs"):
        for entry in _entries(session, "testcases"):
            stagedir = entry.get("stagedir")
            tests.append(
                TestCase(
                    benchmark=entry.get("benchmark") or Path(entry.get("filename") or "").stem,
                    transport=entry.get("environ") or "",
                    partition=entry.get("partition") or "",
                    nodes=_whole(entry.get("num_nodes")),
                    repeat=_whole(entry.get("repeat")),
                    jobid=str(entry.get("jobid") or ""),
                    result=entry.get("result") or "",
                    phase=entry.get("fail_phase") or "",
                    reason=entry.get("fail_reason") or "",
                    stagedir=Path(stagedir) if stagedir else None,
                )
            )
    return tests


def _entries(data: object, name: str) -> list[dict]:
    """The objects in the list ``name`` of an object; empty if there is no such list."""
    entries = data.get(name) if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _whole(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def read_evidence(folder: Path) -> list[Run]:
    """The runs that a check wrote into its stage folder; empty if it wrote none."""
    try:
        return _RUNS.validate_json((folder / EVIDENCE_FILE).read_text(errors="replace"))
    except (OSError, ValidationError):
        return []


def job_facts(ids: Iterable[str], run: Runner, first: bool = False) -> dict[str, Job]:
    """Job id -> the job in Slurm's accounting; empty if the accounting does not answer.

    Of a requeued job it is the last start, or the ``first``, in which the steps of the trial ran.
    """
    wanted = ",".join(sorted({one for one in ids if one}))
    if not wanted:
        return {}
    try:
        command = ["sacct", "-X", "-P", "-n", "-j", wanted, "-o", SACCT_FIELDS]
        answer = run([*command, "--duplicates"] if first else command)
    except (OSError, subprocess.SubprocessError, SeatrialError):
        return {}
    return parse_sacct(answer.stdout, first) if answer.returncode == 0 else {}


def parse_sacct(text: str, first: bool = False) -> dict[str, Job]:
    """Job id -> Job from the output of ``sacct -X -P -n -o`` with ``SACCT_FIELDS``.

    Other lines are skipped. Of several lines of a job the last counts, or the ``first``.
    """
    jobs: dict[str, Job] = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != 8 or (first and words[0] in jobs):
            continue
        jobs[words[0]] = Job(
            id=words[0],
            state=words[1].split(" ")[0],
            exit_code=_whole(words[2].split(":")[0]),
            submitted=_time(words[3]),
            started=_time(words[4]),
            ended=_time(words[5]),
            nodes=_expand(words[6]),
            partition=words[7],
        )
    return jobs


def _expand(text: str) -> list[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return list(NodeSet(text)) if text and "assigned" not in text else []
    except NodeSetException:
        return [text]


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None


#: Slurm's states that explain why a case has no figures
BAD_STATES = {
    "CANCELLED": "the job was cancelled",
    "FAILED": "the job failed",
    "TIMEOUT": "the job ran into its time limit",
    "NODE_FAIL": "a node failed while the job ran",
    "BOOT_FAIL": "a node failed to boot for the job",
    "OUT_OF_MEMORY": "the job ran out of memory",
    "PREEMPTED": "the job was preempted",
    "DEADLINE": "the job missed its deadline",
}

#: accounting has whole seconds, and the clocks of two machines differ
CLOCK_TOLERANCE = timedelta(seconds=3)


def collect(
    folder: Path,
    cases: list[Case],
    repeats: Iterable[int],
    run: Runner,
    why_not: str = "",
    report: str = REPORT_FILE,
    phase: str = "setup",
    held: Job | None = None,
    log: str = "reframe.log",
) -> list[Run]:
    """The runs of ``cases``, all of one NIC profile, with the numbers ``repeats``.

    A planned run without files is an error. The files of each job are moved to
    ``cases/<case>/r<repeat>/``. ``report`` and ``log``: the names of ReFrame's report and log of
    the profile. ``why_not``: why the rest did not run, if known; ``phase``: where it failed.
    ``held``: the job that the trial held for all cases, if any.
    """
    tests = read_report(folder / report)
    ids = [held.id] if held else [test.jobid for test in tests]
    jobs = job_facts(ids, run, first=held is not None)
    runs: dict[tuple[Case, int], Run] = {}
    for test in tests:
        wanted = [
            case
            for case in cases
            if case.check == test.benchmark
            and case.transport == test.transport
            and (test.nodes is None or case.nodes == test.nodes)
        ]
        written = (
            {entry.case: entry for entry in read_evidence(test.stagedir)} if test.stagedir else {}
        )
        kept = keep_evidence(folder, test, wanted)
        id = held.id if held else test.jobid
        job = account_of(held, jobs) if held else jobs.get(id, Job(id=id))
        for case in wanted:
            entry = written.get(case) or failed(case, test, why_not, phase)
            entry.job = within_held_job(job, entry) if held else with_own_job(job, entry)
            entry.repeat = test.repeat or 0
            entry.evidence = kept
            name_job_state(entry, test)
            if held and phase == "profile":
                name_lost_job(entry, job, why_not)
            runs[case, entry.repeat] = entry
    for orphan in sorted(folder.glob("stage/**/" + EVIDENCE_FILE)):
        for entry in read_evidence(orphan.parent):
            if (entry.case, entry.repeat) not in runs and entry.case in cases:
                entry.evidence = str(orphan.parent.relative_to(folder))
                if held:
                    job = account_of(held, jobs)
                    entry.job = within_held_job(job, entry)
                    if phase == "profile":
                        name_lost_job(entry, job, why_not)
                runs[entry.case, entry.repeat] = entry
    remove_leftovers(folder)
    reason = why_not or f"ReFrame did not run it; its log is {log} in the trial's folder"
    return [
        runs.get((case, repeat))
        or Run(case=case, repeat=repeat, outcome="error", phase=phase, reason=reason)
        for repeat in repeats
        for case in cases
    ]


def account_of(held: Job, facts: dict[str, Job]) -> Job:
    """The job that a trial held: Slurm's account, completed by what the trial knows."""
    job = facts.get(held.id, held)
    known = {"held": True, "partition": job.partition or held.partition}
    return job.model_copy(update={**known, "nodes": job.nodes or held.nodes})


def with_own_job(job: Job, run: Run) -> Job:
    """The job of a single case: Slurm's account, with the time of the benchmark."""
    return job.model_copy(update={"benchmark_s": run.job.benchmark_s})


def within_held_job(job: Job, run: Run) -> Job:
    """The job that the trial held for several cases, with the times and nodes of this case.

    Slurm's state is left out: the trial cancels the job, so the state says nothing about the case.
    """
    mine = run.job
    return job.model_copy(
        update={
            "state": "", "exit_code": None, "submitted": None, "held": True,
            "started": mine.started, "ended": mine.ended, "benchmark_s": mine.benchmark_s,
            "nodes": mine.nodes or job.nodes[: run.case.nodes],
        }
    )  # fmt: skip


def failed(case: Case, test: TestCase, why_not: str = "", phase: str = "setup") -> Run:
    """The record of a case whose check wrote no evidence."""
    reason = test.reason or ("ReFrame skipped it" if test.result == "skip" else "")
    where = test.phase or "run"
    if test.result == "abort" and why_not:
        reason = why_not  # more precise than the exception that stopped ReFrame
        where = where if phase == "setup" else phase
    reason = reason or "it left no evidence"
    return Run(case=case, outcome="error", phase=where, reason=reason.strip()[:500])


def name_job_state(run: Run, test: TestCase) -> None:
    """Put Slurm's state of the job before the reason: it explains a missing file."""
    state = BAD_STATES.get(run.job.state)
    if state and run.outcome == "error":
        nodes = ",".join(run.job.nodes)
        run.reason = f"{state} (job {run.job.id} on {nodes or 'no node'}); {run.reason}"
        run.phase = "run" if run.phase in ("", "sanity", "run") else run.phase
    elif state:
        run.outcome, run.phase = "error", "run"
        run.reason = f"{state} (job {run.job.id})"
    elif run.outcome == "ran" and test.phase not in ("", "sanity", "performance", "cleanup"):
        # A sanity error belongs to another variant of the same job: this one has figures.
        run.outcome, run.phase, run.reason = "error", test.phase, test.reason[:500]


def name_lost_job(run: Run, job: Job, why: str) -> None:
    """Name the end of the held job as the cause of a run that failed at that time."""
    before = run.job.ended and job.ended and run.job.ended < job.ended - CLOCK_TOLERANCE
    if run.outcome == "error" and run.phase in ("", "run", "sanity") and not before:
        run.phase, run.reason = "profile", f"{why}; {run.reason}"[:1000]


def keep_evidence(folder: Path, test: TestCase, cases: list[Case]) -> str:
    """Move the stage folder of a test to the evidence. Returns the relative path."""
    if not test.stagedir or not test.stagedir.is_dir() or not cases:
        return ""
    name = replace(cases[0], variant="").id
    target = folder / "cases" / name / f"r{test.repeat or 0}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in ("run.py", "pair.py", "job.sh"):
            (test.stagedir / leftover).unlink(missing_ok=True)
        test.stagedir.rename(target)
    except OSError:  # for example a full disk
        target = test.stagedir
    return str(target.relative_to(folder)) if target.is_relative_to(folder) else str(target)


def remove_leftovers(folder: Path) -> None:
    """Remove ReFrame's second copy of the evidence, and empty folders."""
    shutil.rmtree(folder / "output", ignore_errors=True)
    for left in sorted(folder.glob("stage/**/"), key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            left.rmdir()
