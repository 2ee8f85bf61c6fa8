#!/usr/bin/env python3
"""What Spack costs: concretization of the lab's matrix, as it is and without what makes it fast,
and a build that has nothing to do. See docs/benchmarks.md.

    .venv/bin/python ci/bench/spack.py [--quick]

Times are compared as ratios of one run: user time of the processes, which other work on the
machine disturbs least, and wall time beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.errors import SeatrialError
from seatrial.site.load import load_site, site_file
from seatrial.stack.run import run
from seatrial.stack.spack import build, install
from seatrial.stack.spack.make import make, prepare
from seatrial.stack.spack.places import Places
from seatrial.trial.host import host_facts, version_with_commit

AS_IS = "as it is"
#: way -> Spack's options against the environment's own
WAYS = {
    AS_IS: [],
    "nothing left out": ["-c", "concretizer:static_analysis:false"],
    "each root by itself": ["-c", "concretizer:unify:false"],
}
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


@dataclass
class Series:
    """One way, its rounds in s."""

    way: str
    wall: list[float] = field(default_factory=list)
    user: list[float] = field(default_factory=list)

    def took(self, begin: tuple[float, float]) -> None:
        self.wall.append(time.monotonic() - begin[0])
        self.user.append(os.times().children_user - begin[1])


def say(text: str) -> None:
    out.print(f"  {time.strftime('%H:%M:%S')} {text}", style="dim", markup=False)


def now() -> tuple[float, float]:
    return time.monotonic(), os.times().children_user


def copied(places: Places, folder: Path) -> Path:
    """The environment in a folder of its own: no lock of the checkout is touched."""
    text = (places.environment / "spack.yaml").read_text()
    root = (places.environment / "../../..").resolve()
    folder.mkdir(parents=True)
    (folder / "spack.yaml").write_text(text.replace("- ../../..", f"- {root}"))
    return folder


def concretizations(places: Places, rounds: int, ways: list[str], root: Path) -> list[Series]:
    """The ways take turns, so that a slow minute falls on all."""
    found = [Series(way) for way in ways]
    folder = copied(places, root / "environment")
    for number in range(rounds):
        for series in found:
            say(f"concretizing, {series.way}, round {number + 1} of {rounds}")
            words = [places.spack, *WAYS[series.way], "-e", folder, "concretize", "--force"]
            begin = now()
            run(words, "concretizing", env=places.variables())
            series.took(begin)
    return found


def nothing_to_do(name: str, rounds: int) -> list[Series]:
    """``stack build`` of a stack that is built, against one start of Spack that does nothing."""
    file = site_file(name)
    site = load_site(file)
    places = prepare(site, file, say)
    if absent := build.missing(places):
        raise ValueError(f"{len(absent)} packages of {name} are not built: seatrial stack build")
    again, spack = Series("seatrial stack build"), Series("spack install")
    for _ in range(rounds):
        begin = now()
        make(site, file, lambda _: None)
        again.took(begin)
        begin = now()
        install.spack(places, ["install", "--only-concrete"], "installing", environment=True)
        spack.took(begin)
    return [spack, again]


def show(title: str, series: list[Series]) -> None:
    table = Table("way", "wall s", "user s", "ratio of wall", "ratio of user", title=title)
    first = series[0]
    for part in series:
        wall, user = statistics.median(part.wall), statistics.median(part.user)
        base = statistics.median(first.wall), statistics.median(first.user)
        table.add_row(
            part.way, f"{wall:.1f}", f"{user:.1f}", f"{wall / base[0]:.2f}",
            f"{user / base[1]:.2f}" if base[1] > 0.05 else "-",
        )  # fmt: skip
    out.print(table)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One round, only as it is.")] = False,
    site: Annotated[str, typer.Option("--site", "-s", help="A site of Spack.")] = "lab-spack",
    rounds: Annotated[int | None, typer.Option(min=1)] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file as well.")
    ] = None,
) -> None:
    """Measure concretization and a build with nothing to do."""
    rounds = rounds or (1 if quick else 3)
    file = site_file(site)
    places = prepare(load_site(file), file, say)
    root = Path(tempfile.mkdtemp(prefix="seatrial-bench-"))
    host = host_facts()
    out.print(f"{host['processor']}, {host['cores']} cores, {host['operating system']}, "
              f"load {host['load']}")  # fmt: skip
    roots = len(build.roots(places))
    found = {"seatrial": version_with_commit(), "host": host, "roots": roots}
    try:
        series = concretizations(places, rounds, [AS_IS] if quick else list(WAYS), root)
        show(f"Concretization of {roots} roots", series)
        found["concretization"] = [asdict(part) for part in series]
        built = nothing_to_do(site, rounds)
        show("A build with nothing to do", built)
        found["build"] = [asdict(part) for part in built]
        out.print(f"load at the end {host_facts()['load']}")
    finally:
        if json_file:
            json_file.write_text(json.dumps(found, indent=1) + "\n")
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except (SeatrialError, ValueError) as error:
        sys.exit(f"spack.py: {error}")
