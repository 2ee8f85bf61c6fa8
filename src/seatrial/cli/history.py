"""``seatrial history``: the trials of a folder, and their figures over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from seatrial.base.paths import TRIALS
from seatrial.cli.selection import CheckOption, NetworkOption, ProfileOption, TransportOption
from seatrial.cli.trial import out, say
from seatrial.history.index import Index, KnownTrial, Point, Series, opened
from seatrial.report.text import line, quantity
from seatrial.results import statistics
from seatrial.results.wording import number, plural

_NUMERIC = (
    "figures", "trials", "newest", "median", "spread", "samples", "least", "most", "B / A",
    "95 % interval", "noise", "p",
)  # fmt: skip
DETAILED = 20  # series of which the figures are read; more are named only

TrialsOption = Annotated[
    Path, typer.Option(help="Folder of the trials; default: trials/.", show_default=False)
]
MetricOption = Annotated[
    list[str] | None, typer.Option("--metric", metavar="GLOB", help="Only these metrics.")
]
LocationOption = Annotated[
    list[str] | None, typer.Option("--location", metavar="GLOB", help="Only these nodes, links.")
]


def history(
    trials: TrialsOption = TRIALS,
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    metric: MetricOption = None,
    location: LocationOption = None,
    last: Annotated[
        int, typer.Option("--last", min=1, metavar="N", help="Trials to show, the newest.")
    ] = 30,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First read all trials again.")
    ] = False,
) -> None:
    """Show the trials of a folder, or figures over time.

    A selection shows the series that match, and of a single one each figure, with what changed:
    kernel, driver, firmware, MPI, Spack hash, settings of the NIC profile, nodes. A series is a
    metric of a case at a location. history.sqlite in the folder is an index that can be removed.

    Example: seatrial history -c tcp_stream -p jumbo --metric bandwidth_MB_s
    """
    patterns = {
        "check": check, "transport": transport, "network": network, "profile": profile,
        "metric": metric, "location": location,
    }  # fmt: skip
    with opened(trials, say, rebuild) as index:
        if any(patterns.values()):
            show_series(index, {name: globs or [] for name, globs in patterns.items()}, last)
        else:
            show_trials(index.trials(), last)
            say(f"{len(index.series())} series of figures; a selection shows them")
        for sentence in index.left_out():
            say(f"not counted: {sentence}")


def show_trials(trials: Sequence[KnownTrial], last: int) -> None:
    table = new_table("began (UTC)", "site", "verdict", "figures", "trial", "note")
    for one in trials[-last:]:
        add_row(
            table, began(one), one.site, one.verdict or "none", str(one.figures),
            one.folder.name, "; ".join(one.notes),
        )  # fmt: skip
    if trials:
        out.print(table)
    rest = f", of which the newest {last} are shown" if len(trials) > last else ""
    say(f"{plural(len(trials), 'trial')}{rest}")


def show_series(index: Index, patterns: dict[str, list[str]], last: int) -> None:
    series = index.series(**patterns)
    if not series:
        say("no series matches: 'seatrial history -c \"*\"' names all")
    elif len(series) == 1:
        show_points(series[0], index.points(series[0]), last)
    elif len(series) > DETAILED:
        for one in series:
            say(one.name)
        say(f"{len(series)} series; a selection of at most {DETAILED} shows their figures")
    else:
        table = new_table("series", "trials", "newest", "median", "least", "most")
        for one in series:
            values = [point.value for point in index.points(one)]
            add_row(
                table, one.name, str(len(values)), quantity(values[-1], one.unit),
                number(statistics.median(values)), number(min(values)), number(max(values)),
            )  # fmt: skip
        out.print(table)


def show_points(series: Series, points: Sequence[Point], last: int) -> None:
    say(f"{series.name}, {series.unit}, {series.better} is better")
    table = new_table(
        "began (UTC)", "median", "spread", "samples", "trial", "changed since the row above"
    )
    changes = ["", *(", ".join(differences(a, b)) for a, b in pairwise(points))]
    for point, change in list(zip(points, changes, strict=True))[-last:]:
        add_row(
            table, began(point.trial), number(point.value),
            number(statistics.spread(point.samples), 2), str(len(point.samples)),
            point.trial.folder.name, "; ".join(filter(None, (*point.trial.notes, change))),
        )  # fmt: skip
    out.print(table)


def began(trial: KnownTrial) -> str:
    return f"{trial.started:%Y-%m-%d %H:%M}"


def differences(before: Point, after: Point) -> list[str]:
    """``kernel 6.1 -> 6.12`` for each condition that differs between two points."""
    names = sorted({*before.conditions, *after.conditions})
    pairs = [(n, before.conditions.get(n, "none"), after.conditions.get(n, "none")) for n in names]
    return [f"{name} {old} -> {new}" for name, old, new in pairs if old != new]


def new_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        numeric = heading in _NUMERIC
        table.add_column(
            heading, justify="right" if numeric else "left", overflow="fold",
            no_wrap=heading in ("began (UTC)", "trial"),
        )  # fmt: skip
    return table


def add_row(table: Table, *cells: str) -> None:
    """Names and versions are untrusted: as ``say``."""
    table.add_row(*(Text(line(cell)) for cell in cells))
