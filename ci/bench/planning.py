#!/usr/bin/env python3
"""What it costs to check and plan a site, and how that grows with its nodes. See
docs/dev/benchmarks.md.

    .venv/bin/python ci/bench/planning.py [--nodes 512 --nodes 16384]

The site is site-configs/lab without its lab and with so many nodes; its requirements are those of
the lab. Each size runs in a process of its own. Exit code 1: each further node of the last size
took more than the goal.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from seatrial.base.paths import CHECKOUT
from seatrial.plan.check import check_site

SIZES = (64, 512, 4096, 16_384)
GOAL_MS = 1.0  # of processor time for each node more than the first size has
LAB = CHECKOUT / "site-configs" / "lab"
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


def large_site(folder: Path, nodes: int) -> Path:
    """A site file with so many nodes, with the requirements beside it."""
    yaml = YAML()
    site: Any = yaml.load((LAB / "site.yaml").read_text())
    names = f"n[1-{nodes}]"
    del site["lab"]
    site["name"] = folder.name
    for group in (*site["nodes"], *site["partitions"].values()):
        group["names" if "names" in group else "nodes"] = names
    for number, network in enumerate(site["networks"].values()):
        network["subnet"] = f"10.{100 + number}.0.0/16"
    file = folder / "site.yaml"
    with file.open("w") as stream:
        yaml.dump(site, stream)
    shutil.copy(LAB / "requirements.yaml", folder)
    return file


def measure(file: Path) -> dict[str, float]:
    """Check the site. Returns this process's time for it in s, and its greatest memory in MiB."""
    begin = time.process_time()
    checked = check_site(file)
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cases": len(checked.plan.cases), "cpu": seconds, "peak_MiB": peak}


def measured(nodes: int) -> dict[str, float]:
    """The measurement of one size, in a new process."""
    with tempfile.TemporaryDirectory(prefix="seatrial-planning-") as name:
        folder = Path(name) / "large"
        folder.mkdir()
        file = large_site(folder, nodes)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return {"nodes": nodes, **process.submit(measure, file).result()}


def main(
    nodes: Annotated[list[int] | None, typer.Option(min=4, help="Numbers of nodes.")] = None,
) -> None:
    """Measure each size, and print the time and its growth."""
    rows = [measured(size) for size in nodes or SIZES]
    table = Table(
        "nodes", "cases", "time, s", "ms per node", "growth", "peak, MiB",
        title="Processor time of checking and planning a site",
    )  # fmt: skip
    for before, row in zip([rows[0], *rows], rows, strict=False):
        growth = row["cpu"] / before["cpu"] / (row["nodes"] / before["nodes"])
        table.add_row(
            f"{row['nodes']:.0f}", f"{row['cases']:.0f}", f"{row['cpu']:.2f}",
            f"{1e3 * row['cpu'] / row['nodes']:.2f}", f"{growth:.2f}", f"{row['peak_MiB']:.0f}",
        )  # fmt: skip
    out.print(table)
    out.print("growth: time over that of the row above, over the same ratio of nodes; 1 is linear")
    if len(rows) > 1:
        more = {key: rows[-1][key] - rows[0][key] for key in ("cpu", "nodes")}
        kept = 1e3 * more["cpu"] <= GOAL_MS * more["nodes"]
        out.print(f"goal of {GOAL_MS:g} ms per further node: {'kept' if kept else 'MISSED'}")
        raise typer.Exit(0 if kept else 1)


if __name__ == "__main__":
    typer.run(main)
