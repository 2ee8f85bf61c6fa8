#!/usr/bin/env python3
"""What the history costs with many trials: an update, and each kind of question.

    .venv/bin/python ci/bench/history.py [--trials 10000] [--figures 300] [--duckdb]

The trials are made up: a folder each, and the figures of all but the last in the index only. The
last trial has its records, and is added by an update as after a trial. ``--duckdb`` measures the
same figures in a table of DuckDB (``pip install duckdb``), for the choice of SQLite. Exit code 1:
an update or a question took longer than the goal. The changes of level are also asked for half of
the series: their time must not grow much faster than these.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from seatrial.history import tables
from seatrial.history.changes import Finding, SiteHistory, findings
from seatrial.history.compare import compare
from seatrial.history.entry import Entry, Figure, fingerprint
from seatrial.history.export import export
from seatrial.history.index import INDEX_FILE, Index, opened
from seatrial.history.store import Store
from seatrial.results.folder import write_results
from seatrial.results.record import Case, Job, Metric, Run, Trial

GOAL_S = 1.0
CHANGES = "changes of level of all series"
HALF = "the same of half of the series"
SLOWER = {CHANGES: 10.0, HALF: 5.0}  # they look at each of the figures
GROWTH = 3.0  # of the time of twice as many series
REPEATS = 3
BEGIN = datetime(1999, 1, 1, tzinfo=UTC)
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


def cases(figures: int) -> Iterator[tuple[Case, str, str]]:
    """Case, metric and location of each figure of a trial: ten metrics of each node of a case."""
    for number in range(figures):
        case = Case(check="links", transport="tcp", nodes=8, variant=str(number // 30))
        yield case, f"metric{number % 10}_us", f"n{number // 10 % 3}"


def entry(number: int, figures: int, draw: random.Random) -> Entry:
    own = []
    for case, metric, location in cases(figures):
        samples = [draw.gauss(100, 1) for _ in range(REPEATS)]
        own.append(Figure(case, metric, location, "us", "lower", sorted(samples)[1], samples))
    conditions = {"kernel": "6.1", "nodes": "n1", "driver of eth1": "igb"}
    return Entry(
        f"site-{number:05}", "site", BEGIN + timedelta(days=number), "accept", 1, [], own,
        {figure.case: conditions for figure in own},
    )  # fmt: skip


def make(folder: Path, trials: int, figures: int) -> None:
    """The folders of the trials, and an index in step with them."""
    draw = random.Random(1)
    store = Store(folder, folder / INDEX_FILE, print)
    connection = store.open()
    connection.execute("PRAGMA synchronous = OFF")  # only while the bench is prepared
    connection.execute("BEGIN")
    first = entry(0, figures, draw)
    for number in range(trials):
        name = f"site-{number:05}"
        (folder / name).mkdir()
        (folder / name / "results.jsonl").write_text("made up\n")
        mark = fingerprint(folder / name)
        # This looks up each series: of three million figures that takes minutes
        own = replace(
            first, trial=name, started=BEGIN + timedelta(days=number),
            figures=[] if number else first.figures,
        )  # fmt: skip
        tables.add(connection, name, mark, own, "")
        if number:
            connection.execute("UPDATE trial SET figures = ? WHERE id = ?", (figures, number + 1))
            tables.set_mark(connection, number + 1)
            samples = np.array([[draw.gauss(100, 1)] * REPEATS for _ in range(figures)])
            tables.add_points(
                connection, number + 1, range(1, figures + 1), samples[:, 0].tolist(),
                [row.tobytes() for row in samples],
            )  # fmt: skip
    connection.execute("UPDATE series SET points = ?", (trials,))
    connection.execute("COMMIT")
    store.close()


def add_trial(folder: Path, number: int, figures: int) -> None:
    """The folder of one more trial, with its records."""
    of_case: dict[Case, list[tuple[str, str]]] = {}
    for case, metric, location in cases(figures):
        of_case.setdefault(case, []).append((metric, location))
    draw = random.Random(number)
    runs = [
        Run(
            case=case, repeat=repeat, outcome="ran", job=Job(nodes=["n0", "n1", "n2"]),
            metrics=[
                Metric(metric=m, location=at, value=draw.gauss(100, 1), unit="us", better="lower")
                for m, at in own
            ],
        )
        for case, own in of_case.items()
        for repeat in range(REPEATS)
    ]  # fmt: skip
    name = f"site-{number:05}"
    started = BEGIN + timedelta(days=number)
    trial = Trial(trial=name, site="site", started=started, seatrial="bench", repeats=REPEATS)
    (folder / name).mkdir()
    write_results(folder / name / "results.jsonl", [trial, *runs])


def timed(action: Callable[[], Any]) -> float:
    """Processor time: other work on the machine does not count."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def sqlite_times(folder: Path, trials: int, figures: int) -> dict[str, float]:
    times = {}

    def update() -> None:
        with opened(folder, print):
            pass

    times["in step already"] = timed(update)
    add_trial(folder, trials, figures)
    times["update after a trial"] = timed(update)
    with opened(folder, print) as index:
        times["all trials"] = timed(index.trials)
        times["all series, named"] = timed(index.series)
        series = index.series()[figures // 2]
        times["a series, with conditions"] = timed(lambda: index.points(series))
        middle = BEGIN + timedelta(days=trials // 2)
        old, new = f"..{middle:%Y-%m-%d}", f"{middle + timedelta(days=1):%Y-%m-%d}.."
        times["compare thousands of trials"] = timed(lambda: compare(index, old, new))
        name = f"site-{trials:05}"
        before = f"site-{trials - 1:05},site-{trials - 2:05}"
        times["compare a trial with two"] = timed(lambda: compare(index, before, name))
        text = folder / "newest.prom"
        times["export of the newest trial"] = timed(
            lambda: export(index, "openmetrics", text, newest=True)
        )
        times[HALF] = timed(lambda: findings_of_half(index))
        times[CHANGES] = timed(lambda: findings(index))
    return times


def findings_of_half(index: Index) -> list[Finding]:
    """As if the site had half of the series: a selection looks at all of them."""
    known = index.trials()
    columns = list(index.columns(known, metric=["metric[0-4]_us"]))
    return SiteHistory(known[0].site, known, index.conditions(), columns).findings


def duckdb_times(folder: Path, trials: int, figures: int) -> dict[str, float]:
    import duckdb  # not a dependency of Seatrial

    draw = np.random.default_rng(1)
    shape = (trials, figures, REPEATS)
    trial, series, repeat = (axis.ravel() for axis in np.indices(shape))
    value = draw.normal(100, 1, shape).ravel()
    rows = {"t": trial, "s": series, "r": repeat, "v": value}  # noqa: F841
    file = str(folder / "history.duckdb")
    connection = duckdb.connect(file)
    connection.execute("CREATE TABLE p (trial INT, series INT, repeat INT, value DOUBLE)")
    connection.execute("INSERT INTO p SELECT t, s, r, v FROM rows")
    connection.close()

    def update() -> None:
        with duckdb.connect(file) as one:
            one.execute("BEGIN")
            one.executemany(
                "INSERT INTO p VALUES (?, ?, ?, ?)",
                [(trials, s, r, 100.0) for s in range(figures) for r in range(REPEATS)],
            )
            one.execute("COMMIT")

    def ask(text: str) -> Callable[[], Any]:
        return lambda: connection.execute(text).fetchall()

    times = {"update after a trial": timed(update)}
    connection = duckdb.connect(file)
    times["a series, with conditions"] = timed(
        ask("SELECT trial, list(value) FROM p WHERE series = 7 GROUP BY trial ORDER BY trial")
    )
    connection.close()
    return times


def main(
    trials: Annotated[int, typer.Option(help="Number of trials.")] = 10_000,
    figures: Annotated[int, typer.Option(help="Figures of each.")] = 300,
    duckdb: Annotated[bool, typer.Option("--duckdb", help="Measure DuckDB as well.")] = False,
) -> None:
    """Measure an update and each question."""
    with tempfile.TemporaryDirectory(prefix="seatrial-history-") as name:
        folder = Path(name)
        make(folder, trials, figures)
        times = sqlite_times(folder, trials, figures)
        size = (folder / INDEX_FILE).stat().st_size / 2**20
        other = duckdb_times(folder, trials, figures) if duckdb else {}
        size_of_other = (folder / "history.duckdb").stat().st_size / 2**20 if duckdb else 0.0
    title = f"Processor time: {trials} trials of {figures} figures of {REPEATS} samples"
    table = Table("", "SQLite, s", *(["DuckDB, s"] if duckdb else []), title=title)
    for what, seconds in times.items():
        more = [f"{other[what]:.3f}" if what in other else ""] if duckdb else []
        table.add_row(what, f"{seconds:.3f}", *more)
    table.add_row("size, MiB", f"{size:.0f}", *([f"{size_of_other:.0f}"] if duckdb else []))
    out.print(table)
    growth = times[CHANGES] / times[HALF]
    out.print(f"twice the series take {growth:.1f} times as long (at most {GROWTH:.0f})")
    slow = [what for what, seconds in times.items() if seconds > SLOWER.get(what, GOAL_S)]
    goal = f"goal of {GOAL_S:.0f} s ({SLOWER[CHANGES]:.0f} s: {CHANGES})"
    out.print(f"{goal}: {'MISSED by ' + ', '.join(slow) if slow else 'kept'}")
    raise typer.Exit(1 if slow or growth > GROWTH else 0)


if __name__ == "__main__":
    typer.run(main)
