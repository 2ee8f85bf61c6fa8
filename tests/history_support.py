"""Trial folders of made-up nights for the tests of the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from seatrial.history.index import Index, opened
from seatrial.results.record import (
    Case,
    Job,
    Metric,
    ProfileUse,
    Run,
    Trial,
    Verdict,
    write_results,
)

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
    place = trials / (folder or name)
    place.mkdir(parents=True)
    versions = versions or {"kernel": "6.1", "driver of eth1": "igb 5.1"}
    trial = Trial(
        trial=name, site="lab", started=started, seatrial="0.1.0", repeats=len(values),
        profiles=[ProfileUse(name="default"), ProfileUse(name="jumbo")], **fields,
    )  # fmt: skip
    own = runs or runs_of(NETPIPE, "latency_us", values, versions=versions)
    ended = started + timedelta(minutes=5)
    verdict = Verdict(verdict="accept", counts={}, findings=[], ended=ended)
    write_results(place / "results.jsonl", [trial, *own, verdict])
    return place


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
        (one.folder.name, one.name, one.started, one.verdict, one.notes, one.figures)
        for one in index.trials()
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
