"""``seatrial history``: the trials of a folder, their figures over time, and what leaves them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import EXIT_REJECTED, InputError, Problem
from seatrial.base.paths import TRIALS
from seatrial.base.suggest import suggest
from seatrial.cli.history_page import requirements_of, requirements_of_sites, write_page
from seatrial.cli.rows import print_rows
from seatrial.cli.screen import out, say
from seatrial.cli.selection import (
    CheckOption,
    LocationOption,
    MetricOption,
    NetworkOption,
    ProfileOption,
    SiteOption,
    TransportOption,
    TrialsOption,
    patterns_of,
)
from seatrial.cli.trial_folders import check_outside, held, writing
from seatrial.history.conditions import value_in
from seatrial.history.index import Index, opened
from seatrial.history.series import UNPROVEN, KnownTrial, Point, Series, literal, timed
from seatrial.report import HISTORY_FILE
from seatrial.report.text import quantity
from seatrial.results import later, statistics
from seatrial.results.later import REQUIREMENTS_FILE
from seatrial.results.pruned import megabytes
from seatrial.results.wording import number, plural, some
from seatrial.site.load import load_site, site_file
from seatrial.trial.host import version_with_commit

app = typer.Typer(invoke_without_command=True)

DETAILED = 20  # series of which the figures are read; more are named only


@app.callback()
def history(
    context: typer.Context,
    trials: TrialsOption = TRIALS,
    site: Annotated[
        str | None, typer.Option("--site", "-s", help="Only this site; default: all.")
    ] = None,
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    metric: MetricOption = None,
    location: LocationOption = None,
    last: Annotated[
        int, typer.Option("--last", min=1, metavar="N", help="Trials to show, the newest.")
    ] = 30,
    changes: Annotated[
        bool, typer.Option("--changes", help="Show when levels changed, and what with them.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page of all trials.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First read all trials again.")
    ] = False,
) -> None:
    """Show trials and their figures. Exit code 1 of --changes: some became worse.

    Example: seatrial history -c tcp_stream -p jumbo --metric bandwidth_MB_s
    """
    if context.invoked_subcommand:
        refuse_options_before(context)
        return
    if page:
        check_outside(page, "--page")
    patterns = patterns_of(check, transport, network, profile, metric, location)
    selects = any(patterns.values())
    worse = False
    with opened(trials, say, rebuild) as index:
        of_site = trials_of(index, site)
        if site:
            patterns["site"] = [literal(site)]
        if selects:
            check_selection(index, patterns)
        if page:
            with writing(page, "--page", "the page"):
                write_page(index, page, patterns)
            say(f"page: {page}")
        if changes:
            worse = show_changes(index, of_site, patterns, last)
        elif page:
            pass
        elif selects:
            show_series(index, patterns, last)
        else:
            show_trials(of_site, last)
            say(f"{len(index.series(**patterns))} series of figures; a selection shows them")
        for sentence in index.left_out():
            say(f"not counted: {sentence}")
    raise typer.Exit(EXIT_REJECTED if worse else 0)


def trials_of(index: Index, site: str | None) -> list[KnownTrial]:
    """The trials of a site, or all. Raises InputError if the site has none."""
    trials = index.trials()
    of_site = [trial for trial in trials if site in (None, trial.site)]
    if site and not of_site:
        text = f"{index.trials_folder} has no trial of the site {site!r}"
        hint = suggest(site, {trial.site for trial in trials})
        raise InputError([Problem("--site", None, "", text, hint)])
    return of_site


def check_selection(index: Index, patterns: dict[str, list[str]]) -> None:
    """Raise InputError if a selection has no series: it may be misspelt, and "no change" of
    nothing would be good news."""
    index.check_selection(**patterns)
    if not index.series(**patterns):
        raise InputError("no series matches: 'seatrial history -c \"*\"' names all")


def show_changes(
    index: Index, trials: Sequence[KnownTrial], patterns: dict[str, list[str]], last: int
) -> bool:
    """Print the findings that the newest of these trials showed. Returns whether a series of the
    selection became worse and was not accepted."""
    from seatrial.history.accept import joined, loose
    from seatrial.history.changes import (
        findings,
        newest,
        worse_of,
    )  # numpy: only this question needs it
    from seatrial.report.changes import acceptance, sentences

    sites = requirements_of_sites(trials)
    shown = newest(index, last, sites, **patterns)
    worse = False
    for finding in shown:
        first, *others = sentences(finding)
        say(first)
        for sentence in others:
            say(f"    {sentence}")
        if accepted := sites[finding.site].acceptance(finding.id):
            say(f"    {acceptance(finding, accepted)}")
        worse |= bool(joined(finding, accepted) if accepted else worse_of(finding.listed))
    if accepting := [site for site in sites if sites[site].accepted]:
        every = findings(index, sites, site=[literal(site) for site in accepting])
        for site in accepting:
            for sentence in loose([one for one in every if one.site == site], sites[site]):
                say(f"note: {sentence}")
    if wrong := [trial.folder.name for trial in trials if trial.wrong_clock]:
        say(f"not counted, because a clock was wrong: {some(wrong)}")
    count = min(last, len(trials) - len(wrong))
    say(f"{plural(len(shown), 'change')} of level shown by the newest {plural(count, 'trial')}")
    return worse


def refuse_options_before(context: typer.Context) -> None:
    """Raise InputError if an option of the group stands before a command of it."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            text = f"it does nothing before '{command}'"
            correction = f"write it behind, if 'seatrial history {command} --help' lists it"
            raise InputError([Problem(f"--{name}", None, "", text, correction)])


class Style(StrEnum):
    openmetrics = "openmetrics"
    csv = "csv"
    parquet = "parquet"


@app.command()
def export(
    style: Annotated[
        Style, typer.Option("--format", metavar="FORMAT", help="openmetrics, csv or parquet.")
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="File to write; it is replaced.")],
    trials: TrialsOption = TRIALS,
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    metric: MetricOption = None,
    location: LocationOption = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="Only the newest trial of each site.")
    ] = False,
) -> None:
    """Write all figures for Prometheus, a spreadsheet or a data frame.

    OpenMetrics: with --newest for node_exporter's textfile collector, else with times, for
    'promtool tsdb create-blocks-from openmetrics'.

    Example: seatrial history export --format csv --output figures.csv
    """
    from seatrial.history.export import export as write

    check_outside(output, "--output")
    patterns = patterns_of(check, transport, network, profile, metric, location)
    with opened(trials, say) as index:
        if any(patterns.values()):
            check_selection(index, patterns)
        with writing(output, "--output", "the figures"):
            count = write(index, style.value, output, patterns, newest)
        for sentence in index.left_out():
            say(f"not counted: {sentence}")
    say(f"{plural(count, 'figure')} of {trials}: {output}")


@app.command()
def notify(
    site: SiteOption = "lab",
    trials: TrialsOption = TRIALS,
    show: Annotated[
        bool, typer.Option("--print", help="Print the text; send and record nothing.")
    ] = False,
) -> None:
    """Send what changed since the last message, once.

    The text has at most ten lines: changes of level that later trials showed, and a verdict that
    differs. The command of trial.notify in site.yaml reads it from its standard input, without a
    shell. If nothing is new, nothing is sent.

    Example: seatrial history notify --site harbour
    """
    from seatrial.history import notify
    from seatrial.report.message import headline, message

    description = load_site(site_file(site))
    command = description.trial.notify
    if not (command or show):
        text, correction = (
            "no command for messages",
            "such as [mail, -s, Seatrial, ops@example.org]",
        )
        raise InputError([Problem(site_file(site), None, "trial.notify", text, correction)])
    with ExitStack() as stack:
        if not show:
            stack.enter_context(notify.sending(trials, say))
        index = stack.enter_context(opened(trials, say))
        sent = notify.read_sent(trials, say)
        file = site_file(site).with_name(REQUIREMENTS_FILE)
        requirements = requirements_of(description.name, file)
        news = notify.news(index, description.name, sent.get(description.name), requirements)
        page = trials / HISTORY_FILE
        command_line = f"./seatrial history --changes --trials {trials}"
        text = message(news, str(page.resolve()) if page.exists() else command_line)
        if not news.is_new:
            say(f"{description.name}: nothing new since {news.trial.folder.name}")
        elif show:
            out.print(text.rstrip(), markup=False)
        else:
            notify.send(command, text)
            say(f"sent by {command[0]}: {headline(news)}")
        if not show:
            notify.write_sent(trials, {**sent, description.name: news.after})


@app.command()
def prune(
    trials: TrialsOption = TRIALS,
    days: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Instead of evidence_days of site.yaml."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove it. Without this, it is only listed.")
    ] = False,
) -> None:
    """List or remove raw evidence that is older than the site keeps it.

    Raw evidence is cases/, allocations/ and ReFrame's output. Verdicts, figures and reports stay
    for ever. The evidence of a signed trial stays, and of one that is named in a file of the site,
    in requirements or in a change of level. 'seatrial verify' says what was removed. Exit code 1:
    something stayed that --remove was to remove.

    Example: seatrial history prune --remove
    """
    from seatrial.history import prune

    with opened(trials, say) as index:
        survey = prune.survey(index, days)
        for sentence in index.left_out():
            say(f"not counted, and so kept: {sentence}")
    rows = []
    for candidate in survey.candidates:
        why = (
            f"kept: {candidate.kept}"
            if candidate.kept
            else f"older than {plural(candidate.days, 'day')}"
        )
        rows.append([candidate.name, str(candidate.files), megabytes(candidate.size_b), why])
    if rows:
        print_rows(out, ["trial", "files", "size", "raw evidence"], rows)
    size = megabytes(sum(candidate.size_b for candidate in survey.removable))
    say(f"{plural(survey.younger, 'trial')} younger, {survey.pruned} without raw evidence")
    word = "removing" if remove else "to remove"
    say(f"{word}: raw evidence of {plural(len(survey.removable), 'trial')}, {size}")
    if not remove:
        if survey.removable:
            say("the same command with --remove removes it")
        return
    command, version = ["seatrial", *sys.argv[1:]], version_with_commit()
    stayed = 0
    for candidate in survey.removable:
        with held(candidate.trial.folder):
            why = prune.remove(candidate, command, version)
        stayed += bool(why)
        say(f"{candidate.name}: kept: {why}" if why else f"{candidate.name}: removed")
    with opened(trials, say):
        pass  # the manifests have changed: the index follows
    if stayed:
        raise typer.Exit(EXIT_REJECTED)


def show_trials(trials: Sequence[KnownTrial], last: int) -> None:
    wrong = [trial for trial in trials if trial.wrong_clock][-last:]  # they have no place in time
    shown = [*wrong, *timed(trials)[-last:]]
    rows = [
        [began(trial), trial.site, trial.word or "none", str(trial.figures), trial.folder.name,
         "; ".join(trial.marks)]
        for trial in shown
    ]  # fmt: skip
    if rows:
        print_rows(out, ["began (UTC)", "site", "verdict", "figures", "trial", "note"], rows)
    explain_unproven(shown)
    newest = "newest is" if last == 1 else f"newest {last} are"
    rest = f", of which the {newest} shown" if len(trials) > len(shown) else ""
    if rest and wrong:
        rest += f", and {len(wrong)} whose clock was wrong"
    say(f"{plural(len(trials), 'trial')}{rest}")


def show_series(index: Index, patterns: dict[str, list[str]], last: int) -> None:
    series = index.series(**patterns)
    if len(series) == 1:
        show_points(series[0], index.points(series[0]), last)
    elif len(series) > DETAILED:
        for each in series:
            say(each.name)
        say(f"{len(series)} series; a selection of at most {DETAILED} shows their figures")
    else:
        rows = []
        for each in series:
            values = [point.value for point in index.points(each)]
            rows.append(
                [str(len(values)), quantity(values[-1], each.unit),
                 number(statistics.median(values)), number(min(values)), number(max(values)),
                 each.name]
            )  # fmt: skip
        print_rows(out, ["trials", "newest", "median", "least", "most", "series"], rows)


def show_points(series: Series, points: Sequence[Point], last: int) -> None:
    say(f"{series.name}, {series.unit}, {series.better} is better")
    changes = ["", *(", ".join(differences(a, b)) for a, b in pairwise(points))]
    rows = [
        [began(point.trial), number(point.value), number(statistics.spread(point.samples), 2),
         str(len(point.samples)), point.trial.folder.name,
         "; ".join(filter(None, (*point.trial.marks, change)))]
        for point, change in list(zip(points, changes, strict=True))[-last:]
    ]  # fmt: skip
    headings = "began (UTC)", "median", "spread", "samples", "trial", "changed since the row above"
    print_rows(out, headings, rows)
    explain_unproven([point.trial for point in points[-last:]])


def explain_unproven(trials: Sequence[KnownTrial]) -> None:
    if not all(trial.proven for trial in trials):
        say(f"{UNPROVEN}: {later.UNPROVEN}")


def began(trial: KnownTrial) -> str:
    return f"{trial.started:%Y-%m-%d %H:%M}"


def differences(before: Point, after: Point) -> list[str]:
    """``kernel 6.1 -> 6.12`` for each condition that differs between two points, and is on record
    with both."""
    result = []
    for name in sorted({*before.conditions, *after.conditions}):
        old, new = value_in(before.conditions, name), value_in(after.conditions, name)
        if old is not None and new is not None and old != new:
            result.append(f"{name} {old} -> {new}")
    return result
