"""Reads the files of a ReFrame run, complete or not: one ``run`` record per case and repeat.

The job user of a lab wrote these files, and root reads them: only regular files of limited size,
only below the trial's folder, and through no symbolic link.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP
from pydantic import TypeAdapter, ValidationError

from seatrial.base.errors import SeatrialError
from seatrial.base.files import folder_below, read_below, remove_tree
from seatrial.base.nodelists import node_set
from seatrial.base.say import Say, say_nothing
from seatrial.checks.evidence import EVIDENCE_FILE
from seatrial.plan.model import environment_name
from seatrial.results.locations import Locations
from seatrial.results.record import Case, Job, Run

REPORT_FILE = "reframe-report.json"
SACCT_FIELDS = "jobid,state,exitcode,submit,start,end,nodelist,partition"
STAGE = "stage"
STAGE_DEPTH = 4  # a stage folder is stage/SYSTEM/PARTITION/ENVIRONMENT/CHECK
RESIZED = "RESIZING"  # Slurm's state of the first record of a job that went on without a lost node
LIMIT_B = 128 << 20  # largest file that is read
#: largest report for each planned test case, and once more; a real one has 7 to 12 kB
TEST_LIMIT_B = 1 << 18
#: largest evidence for each node of a case, and once more. Each record has 15 kB of NIC states for
#: a node with one interface; that of all links has 3 kB for each pair of nodes.
NODE_LIMIT_B = 1 << 20
MOST_RECORDS = 1000  # in one evidence: a check writes one for each variant
MOST_KEYS = 100_000  # of an object: each direction of a link between 300 nodes
MAX_DEPTH = 50  # of lists and objects
MOST_CONTAINERS = 2_000_000  # of lists and objects in a file; 6000 in each MB of real evidence
MOST_VALUES = 8_000_000  # of all lists and objects in a file
MOST_CHARACTERS = 1 << 16  # of a string; longer ones are cut
MOST_IN_PHASE, MOST_IN_REASON = 64, 4000
MOST_ORPHANS = 20  # stage folders that are read besides twice those of the planned test cases
MOST_STAGES = 10_000  # stage folders that are searched for evidence that no report names
MAX_WHOLE = 1 << 64
#: control characters but line break and tab: a terminal would obey them
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
HELPERS = ("run.py", "names.py", "wire.py", "pair.py", "job.sh")  # the same in each job: not kept
_RUN = TypeAdapter(Run)
_CASE = TypeAdapter(Case)
Runner = Callable[[list[str]], subprocess.CompletedProcess]
Take = Callable[[Path], object]


@dataclass(frozen=True)
class TestCase:
    """One test case of ReFrame's report. ``stagedir`` is relative to the trial's folder."""

    benchmark: str
    environment: str
    partition: str
    nodes: int | None
    repeat: int | None
    jobid: str
    result: str
    phase: str
    reason: str
    stagedir: Path | None


def read_report(
    folder: Path, name: str = REPORT_FILE, limit_b: int = LIMIT_B
) -> Iterator[TestCase]:
    """The test cases of the report ``name`` of ReFrame; none if it is missing, damaged or larger
    than ``limit_b``."""
    try:
        report = _json(read_below(folder, Path(name), limit_b))
    except (OSError, ValueError, RecursionError):
        return
    for session in _entries(report, "runs"):
        for entry in _entries(session, "testcases"):
            yield TestCase(
                benchmark=_text(entry, "benchmark") or Path(_text(entry, "filename")).stem,
                environment=_text(entry, "environ"),
                partition=_text(entry, "partition"),
                nodes=_whole(entry.get("num_nodes")),
                repeat=_whole(entry.get("repeat")),
                jobid=str(entry.get("jobid") or "")[:64],
                result=_text(entry, "result"),
                phase=_text(entry, "fail_phase")[:64],
                reason=_text(entry, "fail_reason"),
                stagedir=_stage_folder(folder, _text(entry, "stagedir")),
            )


def planned_tests(
    folder: Path, report: str, cases: Collection[Case], repeats: Collection[int]
) -> tuple[list[TestCase], int]:
    """The test cases of a report that belong to the plan, each once (the last), and the number of
    others.

    The variants of a check share a test case.
    """
    planned: set[tuple[str, str, int | None]] = set()
    for case in cases:  # a damaged report may lack the number of nodes
        planned |= {(case.check, environment_name(case), nodes) for nodes in (case.nodes, None)}
    limit_b = min(LIMIT_B, TEST_LIMIT_B * (1 + len(planned) * len(repeats)))
    tests: dict[tuple[str, str, int | None, int], TestCase] = {}
    total = 0
    for test in read_report(folder, report, limit_b):
        key = (test.benchmark, test.environment, test.nodes, test.repeat or 0)
        total += 1
        if key[:3] in planned and key[3] in repeats:
            tests[key] = test
    return list(tests.values()), total - len(tests)


def _json(content: bytes) -> Any:
    """The value of a JSON text whose strings any file, command and path can have.

    Control characters and surrogates are replaced, so no path with one of these names a file. Long
    strings are cut. Raises ValueError or RecursionError for what is no JSON, too deep, or has
    larger numbers or objects, or more of them, than any record.
    """
    if content.count(b"[") + content.count(b"{") > MOST_CONTAINERS:
        raise ValueError("too many lists and objects")
    if content.count(b",") > MOST_VALUES:
        raise ValueError("too many values")
    return _clean(json.loads(content.decode(errors="replace")), MAX_DEPTH)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        text = _cut(value, MOST_CHARACTERS).encode(errors="replace").decode()
        return _CONTROL.sub("?", text)
    if isinstance(value, int) and abs(value) >= MAX_WHOLE:
        raise ValueError("a number is too large")
    if isinstance(value, (list, dict)) and not depth:
        raise ValueError("too deep")
    if isinstance(value, list):
        for at, element in enumerate(value):  # in its place: a copy takes as much memory again
            value[at] = _clean(element, depth - 1)
        return value
    if isinstance(value, dict):
        if len(value) > MOST_KEYS:
            raise ValueError("an object has too many keys")
        return {_clean(key, 0): _clean(element, depth - 1) for key, element in value.items()}
    return value


def _cut(text: str, most: int) -> str:
    """``text``, or its first ``most`` characters with a mark that says how many are left out."""
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[:most]} ... ({left_out} characters left out)"


def _text(entry: dict, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _stage_folder(folder: Path, named: str) -> Path | None:
    """The path of a stage folder relative to the trial's folder; None if it is not one of its."""
    for root in (folder, folder.resolve()):
        parts = Path(named).parts[len(root.parts) :]
        if Path(named).is_relative_to(root) and parts[:1] == (STAGE,) and ".." not in parts:
            return Path(*parts) if len(parts) > 1 else None
    return None


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


def read_evidence(
    folder: Path, stage: Path, nodes: int, planned: Collection[str] = ()
) -> tuple[list[Run], str]:
    """The runs that a check wrote into its stage folder, and why some are not among them, if so.

    ``nodes``: the greatest number of nodes of a case, by which the size is limited. ``planned``:
    the names of the nodes that may be in the evidence; if empty, all may. A run whose evidence
    cannot be used is an error.
    """
    limit = min(LIMIT_B, NODE_LIMIT_B * (1 + nodes))
    try:
        records = _json(read_below(folder, stage / EVIDENCE_FILE, limit))
        if not isinstance(records, list) or len(records) > MOST_RECORDS:
            return [], f"{EVIDENCE_FILE} is not a list of at most {MOST_RECORDS} runs"
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        return [], f"{EVIDENCE_FILE} cannot be read: {why or _cut(str(error), 500)}"
    runs, fault = [], ""
    for number, record in enumerate(records, 1):
        # One by one: of a list, pydantic collects the errors of all elements.
        try:
            run = _RUN.validate_python(record)
            stranger = _stranger(run, planned) if planned else ""
            why = f"it names {stranger}, which is no node of the plan" if stranger else ""
        except (ValueError, RecursionError) as error:
            why = _first_error(error)
            try:
                run = Run(case=_CASE.validate_python(record["case"]), outcome="error")
            except (ValueError, RecursionError, LookupError, TypeError):
                fault = fault or f"record {number} of {EVIDENCE_FILE} is damaged: {why}"
                continue
        if why:
            reason = f"its record in {EVIDENCE_FILE} cannot be used: {why}"
            run = Run(case=run.case, outcome="error", phase="sanity", reason=reason)
        run.phase = run.phase[:MOST_IN_PHASE]
        run.reason = _cut(run.reason, MOST_IN_REASON)
        runs.append(run)
    return runs, fault


def _first_error(error: Exception) -> str:
    """The first error of a validation in a line."""
    if not isinstance(error, ValidationError):
        return _cut(str(error), 500)
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return _cut(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"]))), 500)


def _stranger(run: Run, planned: Collection[str]) -> str:
    """A node or link in a run's evidence that is not of the ``planned`` nodes; "" if none is."""
    of_nodes = [
        *run.job.nodes,
        *run.nic,
        *(counters.node for counters in (run.path.counters if run.path else ())),
        *(
            record.node
            for records in (run.nic_proofs, run.wire_errors, run.activity)
            for record in records
        ),
    ]
    for name in of_nodes:
        if name not in planned:
            return f"node {_cut(name, 100)!r}"
    locations = Locations((), planned)
    of_locations = [
        *(metric.location for metric in run.metrics if metric.location),
        *(suspect.location for suspect in run.suspects),
        *run.unmeasured,
    ]
    for name in of_locations:
        if not locations.nodes.issuperset(locations.ends(name) or (name,)):
            return f"location {_cut(name, 100)!r}"
    return ""


def stage_folders(folder: Path) -> list[Path]:
    """The stage folders in a trial's folder, in the order of their names.

    Raises ValueError if there are more than MOST_STAGES.
    """
    folders = [Path(STAGE)]
    for _ in range(STAGE_DEPTH):
        inner: list[Path] = []
        for outer in folders:
            inner += _folders_in(folder, outer)
            if len(inner) > MOST_STAGES:
                raise ValueError(f"{STAGE} has more than {MOST_STAGES} folders")
        folders = inner
    return folders


def _folders_in(root: Path, relative: Path) -> list[Path]:
    """The folders in a folder; where there are more than MOST_STAGES, only some."""
    try:
        with folder_below(root, relative) as descriptor, os.scandir(descriptor) as entries:
            names = [
                each.name
                for each in islice(entries, 2 * MOST_STAGES)
                if each.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    # A record is UTF-8, so it cannot name a folder whose name is not.
    return [relative / name for name in sorted(names) if _clean(name, 0) == name]


def job_facts(ids: Iterable[str], run: Runner, first: bool = False) -> dict[str, Job]:
    """Job id -> the job in Slurm's accounting; empty if the accounting does not answer.

    Of a requeued job it is the last start, or the ``first``, in which the steps of the trial ran.
    """
    wanted = ",".join(sorted({number for number in ids if number}))
    if not wanted:
        return {}
    try:
        command = ["sacct", "-X", "-P", "-n", "-j", wanted, "-o", SACCT_FIELDS]
        answer = run([*command, "--duplicates"] if first else command)
    except (OSError, ValueError, subprocess.SubprocessError, SeatrialError):
        return {}
    return parse_sacct(answer.stdout, first) if answer.returncode == 0 else {}


def parse_sacct(text: str, first: bool = False) -> dict[str, Job]:
    """Job id -> Job from the output of ``sacct -X -P -n -o`` with ``SACCT_FIELDS``.

    Other lines are skipped. Of several lines of a job the last counts, or the ``first``. A job that
    went on without a lost node has two; it began with the first, on the nodes of the first.
    """
    jobs: dict[str, Job] = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != 8:
            continue
        before = jobs.get(words[0])
        resized = before is not None and before.state == RESIZED
        if before and first and not resized:
            continue
        job = Job(
            id=words[0],
            state=words[1].split(" ")[0],
            exit_code=_whole(words[2].split(":")[0]),
            submitted=_time(words[3]),
            started=_time(words[4]),
            ended=_time(words[5]),
            nodes=_expand(words[6]),
            partition=words[7],
        )
        if before and resized:
            job = job.model_copy(update={"started": before.started, "nodes": before.nodes})
        jobs[job.id] = job
    return jobs


def _expand(text: str) -> list[str]:
    if not text or "assigned" in text:
        return []
    try:
        return list(node_set(text, resolver=RESOLVER_NOGROUP))
    except ValueError:
        return [text[:200]]


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

#: ReFrame's phases in which a check has its figures. An error in one belongs to another variant of
#: the same job, or is an interruption.
AFTER_EVIDENCE = ("sanity", "performance", "finalize", "cleanup")

#: accounting has whole seconds, and the clocks of two machines differ
CLOCK_TOLERANCE = timedelta(seconds=3)


def collect(
    folder: Path,
    cases: list[Case],
    repeats: Collection[int],
    run: Runner,
    why_not: str = "",
    report: str = REPORT_FILE,
    phase: str = "setup",
    held: Job | None = None,
    log: str = "reframe.log",
    take: Take = lambda _: None,
    planned: Collection[str] = (),
    note: Say = say_nothing,
) -> list[Run]:
    """The runs of ``cases``, all of one NIC profile, with the numbers ``repeats``.

    A planned run without files is an error. The files of each job are moved to
    ``cases/<case>/r<repeat>/``. ``report`` and ``log``: the names of ReFrame's report and log of
    the profile. ``why_not``: why the rest did not run, if known; ``phase``: where it failed.
    ``held``: the job that the trial held for all cases, if any. ``take`` makes the evidence the
    trial's own (see ``Machine``). ``planned``: the names of the site's nodes, as
    ``read_evidence``. ``note`` gets a sentence on what was left out.
    """
    tests, others = planned_tests(folder, report, cases, repeats)
    if others:
        note(f"{report} has {others} test cases that were not planned, or twice: they do not count")
    nodes = max((case.nodes for case in cases), default=0)
    ids = [held.id] if held else [test.jobid for test in tests]
    jobs = job_facts(ids, run, first=held is not None)
    runs: dict[tuple[Case, int], Run] = {}
    for test in tests:
        wanted = [
            case
            for case in cases
            if case.check == test.benchmark
            and environment_name(case) == test.environment
            and (test.nodes is None or case.nodes == test.nodes)
        ]
        # Only of a test of this trial: its folder is moved, so each is read once.
        named = test.stagedir if wanted else None
        entries, fault = read_evidence(folder, named, nodes, planned) if named else ([], "")
        written = {entry.case: entry for entry in entries}
        why_lost = ""
        try:
            kept = keep_evidence(folder, test, wanted, take)
        except OSError as error:
            kept, why_lost = "", f"evidence was not kept: {error}"
        id = held.id if held else test.jobid
        job = account_of(held, jobs) if held else jobs.get(id, Job(id=id))
        for case in wanted:
            entry = written.get(case) or failed(case, test, why_not, phase, fault)
            entry.job = within_held_job(job, entry) if held else with_own_job(job, entry)
            entry.repeat = test.repeat or 0
            entry.evidence = kept
            name_job_state(entry, test)
            if why_lost:
                name_lost_evidence(entry, why_lost)
            if held and phase == "profile":
                name_lost_job(entry, job, why_not)
            runs[case, entry.repeat] = entry
    try:
        orphans = stage_folders(folder)
        not_searched = ""
    except ValueError as error:
        orphans, not_searched = [], f"; evidence that no report names was not searched for: {error}"
    most = MOST_ORPHANS + 2 * len(cases) * len(repeats)  # a test case has one stage folder
    if len(orphans) > most:
        not_searched = f"; evidence was searched for in {most} of {len(orphans)} stage folders only"
    for orphan in orphans[:most]:
        for entry in read_evidence(folder, orphan, nodes, planned)[0]:
            if (entry.case, entry.repeat) not in runs and entry.case in cases:
                entry.evidence = str(orphan)
                if held:
                    job = account_of(held, jobs)
                    entry.job = within_held_job(job, entry)
                    if phase == "profile":
                        name_lost_job(entry, job, why_not)
                runs[entry.case, entry.repeat] = entry
    remove_leftovers(folder)
    reason = why_not or f"ReFrame did not run it; its log is {log} in the trial's folder"
    reason += not_searched
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


def failed(
    case: Case, test: TestCase, why_not: str = "", phase: str = "setup", fault: str = ""
) -> Run:
    """The record of a case whose check wrote no evidence, or one with a ``fault``."""
    reason = test.reason or ("ReFrame skipped it" if test.result == "skip" else "")
    where = test.phase or "run"
    if test.result == "abort" and why_not:
        reason = why_not  # more precise than the exception that stopped ReFrame
        where = where if phase == "setup" else phase
    reason = reason or fault or "it left no evidence"
    return Run(case=case, outcome="error", phase=where, reason=_cut(reason.strip(), 500))


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
    elif run.outcome == "ran" and test.phase and test.phase not in AFTER_EVIDENCE:
        run.outcome, run.phase, run.reason = "error", test.phase, _cut(test.reason, 500)


def name_lost_evidence(run: Run, why: str) -> None:
    """Make a run whose evidence could not be kept an error: nothing shows its figures."""
    if run.outcome == "ran":
        run.outcome, run.phase, run.metrics, run.curves = "error", "cleanup", [], []
    run.reason = _cut("; ".join(filter(None, (run.reason, why))), MOST_IN_REASON)


def name_lost_job(run: Run, job: Job, why: str) -> None:
    """Name the end of the held job as the cause of a run that failed at that time."""
    before = run.job.ended and job.ended and run.job.ended < job.ended - CLOCK_TOLERANCE
    if run.outcome == "error" and run.phase in ("", "run", "sanity") and not before:
        run.phase, run.reason = "profile", f"{why}; {run.reason}"[:1000]


def keep_evidence(folder: Path, test: TestCase, cases: list[Case], take: Take) -> str:
    """Move the stage folder of a test to the evidence. Returns the relative path.

    Raises OSError if it cannot be made the trial's own; then it is removed as far as possible.
    """
    stage = test.stagedir
    if not stage or not cases:
        return ""
    name = replace(cases[0], variant="").id
    target = folder / "cases" / name / f"r{test.repeat or 0}"
    try:
        with folder_below(folder, stage) as descriptor:
            for helper in HELPERS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(helper, dir_fd=descriptor)
    except FileNotFoundError:
        return ""
    except OSError:
        return str(stage)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with folder_below(folder, stage.parent) as outer:
            os.rename(stage.name, target, src_dir_fd=outer)
    except OSError:  # for example a full disk
        return str(stage)
    if not stat.S_ISDIR(target.lstat().st_mode):  # exchanged meanwhile
        with contextlib.suppress(OSError):
            target.unlink()
        return ""
    try:
        take(target)
    except OSError:
        with contextlib.suppress(OSError):
            remove_tree(target)
        raise
    return str(target.relative_to(folder))


def remove_leftovers(folder: Path) -> None:
    """Remove ReFrame's second copy of the evidence, and empty folders."""
    with contextlib.suppress(OSError):
        remove_tree(folder / "output")
    # find removes what is empty below a folder without following links, however deep it is.
    subprocess.run(
        ["find", str(folder / STAGE), "-depth", "-type", "d", "-empty", "-delete"],
        capture_output=True,
    )
