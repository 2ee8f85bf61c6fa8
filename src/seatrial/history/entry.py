"""What the index keeps of one trial: its facts, its figures, and the conditions of each case.

This module reads a trial's folder. A trial that is not as its manifest says, or that is damaged, is
an error with a reason. It knows no database.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import regular_below
from seatrial.history import renamed
from seatrial.results.figures import collect, is_valid
from seatrial.results.later import CLOCK_TOLERANCE, check_unchanged
from seatrial.results.manifest import MANIFEST
from seatrial.results.record import (
    JUDGEMENTS_FOLDER,
    RESULTS_FILE,
    Case,
    Results,
    Run,
    Trial,
    Verdict,
    read_results,
)

#: of an older record: what the index needs of each kind. The other fields are not read.
_NEEDED = {
    "trial": (
        "record", "schema", "trial", "site", "started", "seatrial", "stack", "host", "repeats",
        "reruns", "cases", "notes",
    ),
    "run": (
        "record", "case", "repeat", "outcome", "phase", "reason", "job", "metrics", "path",
        "versions",
    ),
    "verdict": ("record", "verdict", "counts", "findings", "ended", "number", "judged"),
    "job": ("nodes",),
    "path": ("network", "required_bytes", "crossed", "reason"),
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One metric of one case at one location ("": the case as a whole) in one trial."""

    case: Case
    metric: str
    location: str
    unit: str
    better: str
    value: float  # the median
    samples: list[float]  # of the planned repeats: a rerun is made only of what is bad


@dataclass(frozen=True)
class Entry:
    """One trial."""

    trial: str
    site: str
    started: datetime  # UTC
    verdict: str  # "": interrupted, or it runs
    judged: int  # number of its newest judgement
    notes: list[str]  # planted faults, a clock that jumped
    figures: list[Figure]
    conditions: dict[Case, dict[str, str]] = field(default_factory=dict)  # name -> version


def fingerprint(folder: Path) -> str:
    """What changes if the files that the index reads change. "": there is no results file."""
    marks = []
    for name in (RESULTS_FILE, MANIFEST, JUDGEMENTS_FOLDER):
        try:
            status = os.stat(os.path.join(folder, name), follow_symlinks=False)  # noqa: PTH116, PTH118
        except (FileNotFoundError, NotADirectoryError):
            if name == RESULTS_FILE:
                return ""
            marks.append("-")
        else:
            marks.append(f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}")
    return " ".join(marks)


def read_entry(folder: Path) -> Entry:
    """Read the trial in a folder. Raises InputError if it is damaged or changed, OSError."""
    check_unchanged(folder)
    try:
        results = read_results(folder)
    except InputError:
        if (older := _read_older(folder)) is None:
            raise
        results = older
    trial = results.trial
    planned = [run for run in results.runs if not trial.is_rerun(run)]
    figures = [
        Figure(
            _today(one.case), renamed.METRICS.get(one.metric, one.metric), one.location or "",
            one.unit, one.better, one.median, one.values,
        )
        for own in collect(trial, planned).values()
        for alike in own.values()
        for one in alike.values()
        if one.values and not one.fault and not one.doubt
    ]  # fmt: skip
    started = _utc(trial.started)
    newest = results.verdict
    return Entry(
        trial.trial, trial.site, started, newest.verdict if newest else "",
        newest.number if newest else 0, [*trial.planted, *_clock(started, results)], figures,
        conditions_of(trial, filter(is_valid, planned)),
    )  # fmt: skip


def conditions_of(trial: Trial, runs: Iterator[Run]) -> dict[Case, dict[str, str]]:
    """What each case was measured with: versions, stack, NIC profile, nodes, Seatrial.

    If the runs of a case differ in a version, the value names all.
    """
    general = {"seatrial": trial.seatrial}
    if kernel := trial.host.get("kernel"):
        general["kernel of the host"] = str(kernel)
    if trial.stack:
        stack = (trial.stack.get(key, "") for key in ("source", "id"))
        general["stack"] = " ".join(filter(None, map(str, stack)))
    profiles = {
        use.name: _digest([use.settings, use.node_settings]) for use in trial.profiles
    }  # fmt: skip
    values: dict[Case, dict[str, set[str]]] = {}
    for run in runs:
        own = values.setdefault(_today(run.case), {})
        own.setdefault("nodes", set()).update(run.job.nodes)
        for name, value in run.versions.items():
            own.setdefault(name, set()).add(value)
    return {
        case: {
            **general,
            **{name: ", ".join(sorted(several)) for name, several in own.items() if several},
            "settings of the profile": profiles.get(case.profile, ""),
        }
        for case, own in values.items()
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _today(case: Case) -> Case:
    check = renamed.CHECKS.get(case.check, case.check)
    if check == case.check:
        return case
    return Case(
        check=check, variant=case.variant, transport=case.transport, profile=case.profile,
        nodes=case.nodes, network=case.network,
    )  # fmt: skip


def _utc(time: datetime) -> datetime:
    """A time without a zone counts as UTC."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _clock(started: datetime, results: Results) -> list[str]:
    """Sentences if the times of a trial cannot be true."""
    notes = []
    ended = _utc(results.ended) if results.ended else None
    if ended and ended < started - timedelta(seconds=1):
        notes.append("its clock jumped: the trial ended before it began")
    if started > datetime.now(UTC) + CLOCK_TOLERANCE:
        notes.append("a clock is wrong: the trial began later than now")
    return notes


def _read_older(folder: Path) -> Results | None:
    """The results of a trial whose records have older names; None if it has none of these."""
    trial: Trial | None = None
    runs: list[Run] = []
    verdict: Verdict | None = None
    changed = False
    with regular_below(folder, Path(RESULTS_FILE)) as stream:
        for number, text in enumerate(stream, 1):
            try:
                before = json.loads(text)
                if before["record"] not in _NEEDED:
                    continue
                record = _renamed(before)
                changed = changed or record != before
                record = _part(record, record["record"])
                if record.get("job"):
                    record["job"] = _part(record["job"], "job")
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


def _renamed(value: Any) -> Any:
    """A record with the names of today for its fields."""
    if isinstance(value, dict):
        return {renamed.FIELDS.get(key, key): _renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    return value
