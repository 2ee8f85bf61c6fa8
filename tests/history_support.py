"""Trial folders of made-up nights for the tests of the history."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from seatrial.base.paths import CHECKOUT
from seatrial.history.changes import SiteHistory
from seatrial.history.index import Index, opened
from seatrial.history.series import Column, KnownTrial, Series
from seatrial.results import manifest
from seatrial.results.folder import write_results
from seatrial.results.record import Case, Job, Metric, ProfileUse, Run, Trial, Verdict

BEGIN = datetime(2026, 8, 1, 22, tzinfo=UTC)
NETPIPE = Case(check="netpipe", transport="tcp", nodes=2)
LINKS = Case(check="links", transport="tcp", nodes=3, profile="jumbo")


def runs_of(case, metric, values, unit="us", better="lower", location=None, **fields):
    """One run for each value."""
    return [
        Run(
            case=case, repeat=repeat, outcome="ran", job=Job(nodes=["n1", "n2"]),
            metrics=[
                Metric(metric=metric, value=value, unit=unit, better=better, location=location)
            ],
            **fields,
        )
        for repeat, value in enumerate(values)
    ]  # fmt: skip


def make_night(
    trials: Path, number=0, values=(30.0, 31.0, 29.0), versions=None, runs=None, folder="", **fields
) -> Path:
    """The folder of the trial of a night. ``runs``: instead of latencies of NetPIPE."""
    name = fields.pop("trial", f"lab-{number:03}")
    started = fields.pop("started", BEGIN + timedelta(days=number))
    fields.setdefault("site", "lab")
    fields.setdefault("profiles", [ProfileUse(name="default"), ProfileUse(name="jumbo")])
    place = trials / (folder or name)
    place.mkdir(parents=True)
    versions = versions or {"kernel": "6.1", "driver of eth1": "igb 5.1"}
    trial = Trial(
        trial=name, started=started, seatrial="0.1.0", repeats=len(values), **fields,
    )  # fmt: skip
    own = runs or runs_of(NETPIPE, "latency_us", values, versions=versions)
    ended = started + timedelta(minutes=5)
    verdict = Verdict(verdict="accept", counts={}, findings=[], ended=ended)
    write_results(place / "results.jsonl", [trial, *own, verdict])
    return place


def made_up(
    figures: Mapping[Series, np.ndarray], conditions: Callable[[int, Case], dict[str, str]]
) -> SiteHistory:
    """The history of a site without folders: series -> a figure for each night. The repeats within
    a night scatter as the nights do."""
    nights = len(next(iter(figures.values())))
    trials = [
        KnownTrial(
            night + 1, Path(f"lab-{night:03}"), f"lab-{night:03}", "lab",
            BEGIN + timedelta(days=night), "accept", [], len(figures),
        )
        for night in range(nights)
    ]  # fmt: skip
    columns = [
        Column(series, np.arange(nights), values, [list(values[:3])] * 3)
        for series, values in figures.items()
    ]
    under = {
        (trial.id, case.id): conditions(night, case)
        for night, trial in enumerate(trials) for case in {figure.case for figure in figures}
    }  # fmt: skip
    return SiteHistory("lab", trials, under, columns)


def content(index: Index):
    """All that an index answers."""
    points = {
        (series.site, series.name): [
            (point.trial.folder.name, point.value, point.samples, point.conditions)
            for point in index.points(series)
        ]
        for series in index.series()
    }
    trials = [
        (trial.folder.name, trial.name, trial.started, trial.verdict, trial.notes, trial.figures)
        for trial in index.trials()
    ]
    return points, trials, index.left_out()


def read(trials: Path, said: list[str] | None = None, **options):
    """The content of the index over ``trials``, brought in step."""
    with opened(trials, (said if said is not None else []).append, **options) as index:
        return content(index)


def derived(trials: Path):
    """What an index must contain: that of one which is made in memory now."""
    index = Index(trials, None, lambda text: None)
    index.refresh()
    return content(index)


def sealed(folder: Path) -> Path:
    """Give a trial a manifest of all its files."""
    manifest.append(folder, manifest.sums_of(folder, manifest.files(folder)))
    return folder


def with_evidence(folder: Path) -> Path:
    """Give a trial raw evidence, and a manifest of all its files."""
    config = folder / "config" / "lab"
    config.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKOUT / "site-configs" / "lab" / "site.yaml", config)
    (config / "requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    (folder / "report.html").write_text("the report")
    names = [
        "cases/a/r0/odd\nname\\", "cases/a/r0/b.out", "cases/empty", "allocations/jumbo",
        "allocations-rerun1/x/y", "allocations-round2/x", "reframe.out",
        "reframe-report-rerun1-jumbo.json",
    ]  # fmt: skip
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("" if name.endswith("empty") else f"raw evidence of {folder.name}")
    (folder / "cases" / "nothing").mkdir()
    return sealed(folder)


def in_child(action: Callable[[], object]) -> int:
    """The status with which a child process ends that runs ``action``."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]
