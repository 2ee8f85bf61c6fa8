"""``seatrial compare``: two groups of trials, series by series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import (
    EXIT_INCOMPLETE,
    EXIT_REJECTED,
    InputError,
    Problem,
)
from seatrial.base.paths import TRIALS
from seatrial.cli.history import LocationOption, MetricOption, TrialsOption, add_row, new_table
from seatrial.cli.selection import CheckOption, NetworkOption, ProfileOption, TransportOption
from seatrial.cli.trial import check_outside, out, say
from seatrial.history.compare import MARGIN, Comparison
from seatrial.history.compare import compare as compare_groups
from seatrial.history.index import opened
from seatrial.report.comparison import headline, interval, noise, ratio, values, write_comparison
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
            metavar="N", help=f"Fraction that is no change; default: {MARGIN}.", show_default=False
        ),
    ] = MARGIN,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all rows to a page, too.")
    ] = None,
) -> None:
    """Compare trials or versions: better, worse, same, can't tell.

    A group is a trial, a glob, dates as 2026-11-01..2026-11-07, or kernel=6.1*,
    driver='igb 5.1', openmpi=*/HASH. Exit code 1: a series is worse; 2: nothing can be told, as
    with too few trials; 0: else.

    Example: seatrial compare 'driver=igb 5.1' 'driver=igb 5.2'
    """
    patterns = {
        "check": check, "transport": transport, "network": network, "profile": profile,
        "metric": metric, "location": location,
    }  # fmt: skip
    if not 0 < margin < 1:
        text, correction = f"{margin} is no fraction", "a number above 0 and below 1, as 0.02"
        raise InputError([Problem("--margin", None, "", text, correction)])
    if page:
        check_outside(page, "--page")
    with opened(trials, say) as index:
        chosen = {name: globs or [] for name, globs in patterns.items()}
        comparison = compare_groups(index, a, b, margin, chosen)
    show(comparison)
    if page:
        try:
            write_comparison(comparison, page)
        except OSError as error:
            text = f"the page cannot be written: {error}"
            raise InputError([Problem(page, None, "--page", text, "name another file")]) from None
        say(f"page: {page}")
    counts = comparison.counts
    if counts["worse"]:
        raise typer.Exit(EXIT_REJECTED)
    raise typer.Exit(0 if counts["better"] or counts["same"] else EXIT_INCOMPLETE)


def show(comparison: Comparison) -> None:
    for name, group in (("A", comparison.a), ("B", comparison.b)):
        first, last = group.trials[0].folder.name, group.trials[-1].folder.name
        span = f"{first} to {last}" if len(group.trials) > 1 else first
        say(f"{name}: {group.text}: {plural(len(group.trials), 'trial')}, {span}")
    say(headline(comparison))
    rows = [row for row in comparison.rows if row.verdict != "same"][:SHOWN]
    if rows:
        table = new_table("verdict", "B / A", "95 % interval", "noise", "p", "series")
        for row in rows:
            add_row(
                table, row.verdict, ratio(row.ratio), interval(row), noise(row), number(row.p, 2),
                row.series.name,
            )  # fmt: skip
        out.print(table)
    hidden = len(comparison.rows) - len(rows)
    if hidden:
        say(f"{hidden} more with less difference; --page writes all")
    for text, names in (
        (comparison.a.text, comparison.only_a),
        (comparison.b.text, comparison.only_b),
    ):
        if names:
            say(f"{len(names)} series of {text} only, such as {names[0]}")
    for one in comparison.differences:
        how = "chosen" if one.chosen else "also differs"
        say(f"{how}: {one.name}: {values(one.a) or 'none'} -> {values(one.b) or 'none'}")
    if not comparison.differences:
        say("no recorded version, setting or node differs")
    for note in comparison.notes:
        say(f"note: {note}")
