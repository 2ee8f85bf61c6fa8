#!/usr/bin/env python3
"""What it costs to judge a trial, and how that grows. See docs/dev/benchmarks.md.

    .venv/bin/python ci/bench/judging.py [--figures 10000 --figures 1000000] [--repeats 1]

A trial is made up: one case that measures the bandwidth and the latency of every link, judged
against ``peers: median``; one link in a hundred is slow. Each size runs in a process of its own:
its figures are judged, concluded and written as ``seatrial judge`` does it. Exit code 1: a goal
was missed.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import combinations, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base import yamlfile
from seatrial.results.folder import read_results, write_results
from seatrial.results.judge import judge
from seatrial.results.record import Case, Job, Metric, Run, Trial
from seatrial.results.requirements import Document, build
from seatrial.results.verdict import conclude

SIZES = (10_000, 100_000, 1_000_000)
GOAL_S = 10.0  # of a million figures, on a machine that does nothing else
GOAL_MIB = 1024
REQUIREMENTS = """\
schema: 1
requirements:
  - select: {check: links}
    metric: bandwidth_MB_s
    basis: relative
    peers: median
    at_least: 0.8
  - select: {check: links}
    metric: latency_us
    basis: relative
    peers: median
    at_most: 3.0
"""
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


def made_up(figures: int, repeats: int) -> tuple[Trial, list[Run]]:
    """A trial of one case with so many figures, half of them bandwidths and half latencies."""
    links = figures // 2
    nodes = [f"n{i}" for i in range(1, int((2 * links) ** 0.5) + 3)]
    draw = random.Random(figures)
    names = ["-".join(ends) for ends in islice(combinations(nodes, 2), links)]
    case = Case(check="links", transport="tcp", nodes=len(nodes))
    runs = []
    for repeat in range(repeats):
        metrics = []
        for number, name in enumerate(names):
            slow = 2 if number % 100 == 50 else 1
            fast, short = draw.gauss(1200, 20) / slow, draw.gauss(9, 0.5) * slow
            metrics += [
                Metric(metric="bandwidth_MB_s", value=fast, unit="MB/s", better="higher",
                       location=name),
                Metric(metric="latency_us", value=short, unit="us", better="lower", location=name),
            ]  # fmt: skip
        job = Job(id=str(repeat), nodes=nodes)
        runs.append(Run(case=case, repeat=repeat, outcome="ran", metrics=metrics, job=job))
    trial = Trial(
        trial="made-up", site="bench", started=datetime.now(UTC), seatrial="bench",
        repeats=repeats, cases=[case],
    )  # fmt: skip
    return trial, runs


def measure(folder: Path) -> dict[str, float]:
    """Judge the trial in a folder. Returns this process's time for each part, in s."""
    document, lines = yamlfile.loads(REQUIREMENTS, Document, "requirements.yaml")
    requirements = build(document, lines, Path("requirements.yaml"))
    marks = [time.process_time()]

    def mark() -> None:
        marks.append(time.process_time())

    results = read_results(folder)
    mark()
    begin = time.monotonic()
    judgements = judge(results.trial, results.runs, requirements)
    mark()
    verdict = conclude(results.trial, results.runs, judgements, requirements)
    mark()
    write_results(folder / "judgement.jsonl", [*judgements, verdict])
    mark()
    wall = time.monotonic() - begin
    parts = ("read", "judge", "conclude", "write")
    seconds = {p: b - a for p, a, b in zip(parts, marks, marks[1:], strict=False)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = (folder / "judgement.jsonl").stat().st_size / 2**20
    of_all = {"wall": wall, "peak_MiB": peak, "written_MiB": size}
    return {"figures": len(judgements), **seconds, **of_all}


def measured(figures: int, repeats: int) -> dict[str, float]:
    """The measurement of one size, in a new process."""
    with tempfile.TemporaryDirectory(prefix="seatrial-judging-") as name:
        folder = Path(name)
        trial, runs = made_up(figures, repeats)
        write_results(folder / "results.jsonl", [trial, *runs])
        del trial, runs
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            row = process.submit(measure, folder).result()
        row["cpu"] = sum(row[part] for part in ("judge", "conclude", "write"))
        return row


def main(
    figures: Annotated[list[int] | None, typer.Option(help="Numbers of figures.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of the case.")] = 1,
    to: Annotated[Path | None, typer.Option("--json", help="File for the measurements.")] = None,
) -> None:
    """Measure each size, and print the time and its growth."""
    rows = [measured(size, repeats) for size in figures or SIZES]
    table = Table(
        "figures", "read", "judge", "conclude", "write", "all but read", "us per figure", "growth",
        "wall time, s", "peak, MiB", "written, MiB", title="Processor time of judging, s",
    )  # fmt: skip
    first = rows[0]
    for row in rows:
        each = row["cpu"] / row["figures"]
        growth = each / (first["cpu"] / first["figures"])
        table.add_row(
            f"{row['figures']:.0f}",
            *(f"{row[part]:.2f}" for part in ("read", "judge", "conclude", "write", "cpu")),
            f"{each * 1e6:.1f}", f"{growth:.2f}", f"{row['wall']:.1f}", f"{row['peak_MiB']:.0f}",
            f"{row['written_MiB']:.0f}",
        )  # fmt: skip
    out.print(table)
    out.print("growth: time per figure over that of the first row; 1 is linear")
    out.print("wall time, without reading: the disk counts, and what else the machine does")
    if to:
        to.write_text(json.dumps(rows, indent=1) + "\n")
    last = rows[-1]
    if last["figures"] >= SIZES[-1]:
        kept = last["wall"] <= GOAL_S and last["peak_MiB"] <= GOAL_MIB
        out.print(f"goal of {GOAL_S:.0f} s and {GOAL_MIB} MiB: {'kept' if kept else 'MISSED'}")
        raise typer.Exit(0 if kept else 1)


if __name__ == "__main__":
    typer.run(main)
