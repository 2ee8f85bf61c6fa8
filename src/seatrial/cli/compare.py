"""``seatrial compare``: two groups of trials, series by series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import EXIT_INCOMPLETE, EXIT_REJECTED, InputError, Problem
from seatrial.base.paths import TRIALS
from seatrial.cli.rows import print_rows
from seatrial.cli.screen import out, say
from seatrial.cli.selection import (
    CheckOption,
    LocationOption,
    MetricOption,
    NetworkOption,
    ProfileOption,
    TransportOption,
    TrialsOption,
    patterns_of,
)
from seatrial.cli.trial_folders import check_outside, writing
from seatrial.history.compare import MARGIN, Comparison
from seatrial.history.compare import compare as compare_groups
from seatrial.history.index import opened
from seatrial.report.comparison import (
    condition,
    headline,
    interval,
    noise,
    ratio,
    series_name,
    values,
    write_comparison,
)
from seatrial.results.wording import number, plural

SHOWN = 30  # rows of the table


def compare(
    a: Annotated[str, typer.Argument(help="Trials before: names, a date, or a version.")],
    b: Annotated[str, typer.Argument(help="Trials after.")],
    trials: TrialsOption = TRIALS,
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    metric: MetricOption = None,
    location: LocationOption = None,
    margin: Annotated[
        float,
        typer.Option(
            metavar="N",
            help=f"Largest fraction that is no change; default: {MARGIN}.",
            show_default=False,
        ),
    ] = MARGIN,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all rows to a page, too.")
    ] = None,
) -> None:
    """Compare trials or versions: better, worse, same, can't tell.

    A group is a trial, a glob, dates as 2026-11-01..2026-11-07, or kernel=6.1*,
    driver='igb 5.1', openmpi=*/HASH, coalesce.rx-usecs=125. Exit code 1: a series is worse; 2:
    too few trials, or a figure of A is gone; 0: else.

    Example: seatrial compare 'driver=igb 5.1' 'driver=igb 5.2'
    """
    if not 0 < margin < 1:
        text, correction = f"{margin} is no fraction", "a number above 0 and below 1, as 0.02"
        raise InputError([Problem("--margin", None, "", text, correction)])
    if page:
        check_outside(page, "--page")
    with opened(trials, say) as index:
        patterns = patterns_of(check, transport, network, profile, metric, location)
        index.check_selection(**patterns)
        comparison = compare_groups(index, a, b, margin, patterns)
    show(comparison)
    if page:
        with writing(page, "--page", "the page"):
            write_comparison(comparison, page)
        say(f"page: {page}")
    counts = comparison.counts
    if counts["worse"]:
        raise typer.Exit(EXIT_REJECTED)
    said = counts["better"] or counts["same"]
    raise typer.Exit(0 if said and not comparison.lost else EXIT_INCOMPLETE)


def show(comparison: Comparison) -> None:
    for name, group in (("A", comparison.a), ("B", comparison.b)):
        first, last = group.trials[0].folder.name, group.trials[-1].folder.name
        span = f"{first} to {last}" if len(group.trials) > 1 else first
        say(f"{name}: {group.text}: {plural(len(group.trials), 'trial')}, {span}")
    say(headline(comparison))
    rows = [row for row in comparison.rows if row.verdict != "same"][:SHOWN]
    if rows:
        print_rows(
            out, ["verdict", "B / A", "95 % interval", "noise", "p", "series"],
            [[row.verdict, ratio(row.ratio), interval(row), noise(row), number(row.p, 2),
              series_name(row)] for row in rows],
        )  # fmt: skip
    hidden = len(comparison.rows) - len(rows)
    if hidden:
        say(f"{hidden} more with less difference; --page writes all")
    for text, names in (
        (comparison.a.text, comparison.only_a),
        (comparison.b.text, comparison.only_b),
    ):
        if names:
            say(f"{len(names)} series of {text} only, such as {names[0]}")
    for difference in comparison.differences:
        how = "chosen" if difference.chosen else "also differs"
        name = condition(difference, comparison.cases)
        say(f"{how}: {name}: {values(difference.a)} -> {values(difference.b)}")
    if not comparison.differences:
        say("no recorded version, setting or node differs")
    if comparison.places:
        say(comparison.places)
    for note in comparison.notes:
        say(f"note: {note}")
