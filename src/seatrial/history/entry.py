"""What the index keeps of one trial: its facts, its figures, and the conditions of each case.

This module reads a trial's folder. A trial that is not as its manifest says, or that is damaged, is
an error with a reason. It knows no database.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import regular_below
from seatrial.history import renamed
from seatrial.history.conditions import conditions_of
from seatrial.results.figures import POSITIVE_UNITS, collect, is_valid, longest_wait, valid_runs
from seatrial.results.figures import Figure as Collected
from seatrial.results.folder import (
    JUDGEMENT_FILE,
    JUDGEMENTS_FOLDER,
    RESULTS_FILE,
    Results,
    numbered,
    read_results,
)
from seatrial.results.later import CLOCK_TOLERANCE, check_unchanged
from seatrial.results.manifest import MANIFEST, has_manifest
from seatrial.results.record import Case, Run, Trial, Verdict

#: of an older record: what the index needs of each kind. The other fields are not read.
_NEEDED = {
    "trial": (
        "record", "schema", "trial", "site", "started", "seatrial", "stack", "host", "repeats",
        "rounds", "virtual_time", "reruns", "cases", "notes",
    ),
    "run": (
        "record", "case", "repeat", "round", "outcome", "phase", "reason", "job", "metrics", "path",
        "versions", "activity",
    ),
    "verdict": ("record", "verdict", "counts", "findings", "ended", "number", "judged"),
    "job": ("nodes",),
    "path": ("network", "required_bytes", "crossed", "reason"),
    "activity": ("step", "node", "seconds", "waited_percent"),
}  # fmt: skip
CLOCK = "a clock is wrong: "  # begins the note of a trial whose times cannot be true
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)  # Seatrial is younger
_LONGEST = timedelta(days=30)  # of a trial; each of its jobs has a limit of time


@dataclass(frozen=True)
class Figure:
    """One metric of one case at one location ("": the case as a whole) in one trial."""

    case: Case
    metric: str
    location: str
    unit: str
    better: str
    value: float  # the median; not above zero where it must be: the case failed to measure it
    samples: list[float]  # of the planned repeats: a rerun is made only of what is bad


@dataclass(frozen=True)
class Entry:
    """One trial."""

    trial: str
    site: str
    started: datetime  # UTC
    verdict: str  # "": interrupted, or it runs
    judged: int  # number of its newest judgement
    notes: list[str]  # planted faults, a clock that is wrong
    figures: list[Figure]
    conditions: dict[Case, dict[str, str]] = field(default_factory=dict)  # name -> version
    proven: bool = True  # its manifest has the results as they are; False: it has no manifest
    #: how long a case waited for a processor, in per cent of its time; none: not on record
    waits: dict[Case, float] = field(default_factory=dict)
    #: planned runs of a case that share a block (``seatrial.analysis.conclusion``); 0: none share
    #: one, in virtual time
    block_runs: int = 1
    #: name of a series without a location, of which samples are missing -> how many each block has
    short: dict[str, list[int]] = field(default_factory=dict)
    word: str = ""  # the verdict with its limits, such as "accept of part"


def series_name(case: Case, metric: str, location: str = "") -> str:
    at = f" at {location}" if location else ""
    return f"{case.id}: {metric}{at}"


def fingerprint(folder: Path) -> str:
    """What changes if the files that the index reads change. "": there is no results file.

    A folder in which they cannot be looked at has the number of the error.
    """
    if (results := _mark(folder, RESULTS_FILE)) == "-":
        return ""
    marks = [results, *(_mark(folder, name) for name in (MANIFEST, JUDGEMENTS_FOLDER))]
    if marks[-1] != "-":  # few trials have later judgements
        place = os.path.join(folder, JUDGEMENTS_FOLDER)  # noqa: PTH118
        with suppress(OSError):
            numbers = sorted(filter(str.isdecimal, os.listdir(place)))  # noqa: PTH208
            marks += [f"{number}: {_mark(place, number, JUDGEMENT_FILE)}" for number in numbers]
    return " ".join(marks)


def _mark(*parts: str | os.PathLike[str]) -> str:
    """What changes if a file changes; "-": there is none."""
    try:
        status = os.stat(os.path.join(*parts), follow_symlinks=False)  # noqa: PTH116, PTH118
    except (FileNotFoundError, NotADirectoryError):
        return "-"
    except OSError as error:  # a link to itself, a folder of another user
        return f"error {error.errno}"
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def read_entry(folder: Path) -> Entry:
    """Read the trial in a folder. Raises InputError if it is damaged or changed, OSError."""
    proven = has_manifest(folder)  # before the results: a trial that ends meanwhile is read again
    check_unchanged(folder)
    try:
        results = read_results(folder)
    except InputError:
        if (older := _read_older(folder)) is None:
            raise
        results = older
    trial = results.trial
    planned = [run for run in results.runs if not trial.is_rerun(run)]
    collected = [
        figure
        for by_metric in collect(trial, planned).values()
        for alike in by_metric.values()
        for figure in alike.values()
        if figure.values
        and not figure.doubt
        and (not figure.fault or is_zero(figure.unit, figure.median))
    ]
    figures = [
        Figure(
            renamed.todays_case(figure.case), renamed.METRICS.get(figure.metric, figure.metric),
            figure.location or "", figure.unit, figure.better, figure.median, figure.values,
        )
        for figure in collected
    ]  # fmt: skip
    _check_distinct(folder / RESULTS_FILE, planned, figures)
    started = trial.started.astimezone(UTC)
    newest = results.verdict
    return Entry(
        trial.trial, trial.site, started, newest.verdict if newest else "",
        newest.number if newest else 0, [*trial.planted, *_clock(started, results)], figures,
        conditions_of(trial, filter(is_valid, planned)), proven, _waits(planned),
        0 if trial.virtual_time else trial.repeats, _short(trial, planned, collected, figures),
        newest.word.lower() if newest else "",
    )  # fmt: skip


def _short(
    trial: Trial, planned: list[Run], collected: list[Collected], figures: list[Figure]
) -> dict[str, list[int]]:
    """As ``Entry.short``. ``figures``: those that were ``collected``, in the same order."""
    valid = valid_runs(planned)
    return {
        series_name(figure.case, figure.metric): list(
            Counter(valid[number].round for number in of_runs.runs).values()
        )
        for of_runs, figure in zip(collected, figures, strict=True)
        if not figure.location and len(figure.samples) != trial.runs_of_case
    }


def is_zero(unit: str, value: float) -> bool:
    """Whether a figure that must be above zero is not: a link that moves nothing, for example."""
    return unit in POSITIVE_UNITS and -math.inf < value <= 0


def _waits(runs: list[Run]) -> dict[Case, float]:
    of_case: dict[Case, list[Run]] = {}
    for run in filter(is_valid, runs):
        of_case.setdefault(renamed.todays_case(run.case), []).append(run)
    known = {case: longest_wait(of_trial) for case, of_trial in of_case.items()}
    return {case: wait for case, wait in known.items() if wait is not None}


def _check_distinct(file: Path, runs: list[Run], figures: list[Figure]) -> None:
    """Raise InputError if two cases or two figures of a trial belong to one series."""
    of_id: dict[str, Case] = {}
    for run in runs:
        today = renamed.todays_case(run.case).id
        if (other := of_id.setdefault(today, run.case)) != run.case:
            text = f"two cases have the name {today}: {_described(other)}; {_described(run.case)}"
            raise InputError([Problem(file, None, "case", text)])
    keys: set[tuple[str, str, str]] = set()
    for figure in figures:
        key = (figure.case.id, figure.metric, figure.location)
        if key in keys:
            at = f" at {figure.location}" if figure.location else ""
            text = f"two figures of {figure.case.id} belong to the series {figure.metric}{at}"
            raise InputError([Problem(file, None, "metric", text)])
        keys.add(key)


def _described(case: Case) -> str:
    return ", ".join(f"{name}={value}" for name, value in asdict(case).items() if value)


def _clock(started: datetime, results: Results) -> list[str]:
    """Sentences if the times of a trial cannot be true."""
    notes = []
    took = results.ended - started if results.ended else timedelta(0)
    if took < timedelta(seconds=-1):
        notes.append("the trial ended before it began")
    if started > datetime.now(UTC) + CLOCK_TOLERANCE:
        notes.append("the trial began later than now")
    if started < _FIRST:  # such as 1970, of a machine without a battery
        notes.append(f"the trial began on {started:%Y-%m-%d}")
    elif took > _LONGEST:
        notes.append(f"the trial took {took.days} days")
    return [f"{CLOCK}{note}" for note in notes]


def _read_older(folder: Path) -> Results | None:
    """The results of a trial whose records have older names; None if it has none of these."""
    trial: Trial | None = None
    runs: list[Run] = []
    verdict: Verdict | None = None
    changed = False
    with regular_below(folder, Path(RESULTS_FILE)) as stream:
        for number, text in numbered(stream, folder / RESULTS_FILE):
            try:
                before = json.loads(text)
                if before["record"] not in _NEEDED:
                    continue
                record = renamed.todays_fields(before)
                changed = changed or record != before
                record = _part(record, record["record"])
                if record.get("job"):
                    record["job"] = _part(record["job"], "job")
                if isinstance(record.get("activity"), list):
                    activities = [_part(activity, "activity") for activity in record["activity"]]
                    record["activity"] = [
                        activity for activity in activities if "waited_percent" in activity
                    ]
                if record.get("path"):
                    record["path"] = {**_part(record["path"], "path"), "counters": []}
                if record["record"] == "trial":
                    trial = Trial.model_validate(record)
                elif record["record"] == "run":
                    runs.append(Run.model_validate(record))
                else:
                    verdict = Verdict.model_validate(record)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if changed and isinstance(error, ValidationError):
                    what = error.errors(include_url=False)[0]
                    at = ".".join(map(str, what["loc"]))
                    file = folder / RESULTS_FILE
                    raise InputError([Problem(file, number, at, what["msg"])]) from None
                return None
    if trial is None or not changed:
        return None
    return Results(trial=trial, runs=runs, verdict=verdict, folder=folder)


def _part(record: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: record[name] for name in _NEEDED[kind] if name in record}
