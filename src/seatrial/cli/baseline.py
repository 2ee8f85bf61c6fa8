"""``seatrial baseline``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import EXIT_INCOMPLETE, EXIT_REJECTED, InputError, Problem
from seatrial.base.paths import TRIALS
from seatrial.cli.history_page import site_requirements
from seatrial.cli.screen import out, say
from seatrial.cli.selection import SiteOption
from seatrial.cli.trial_folders import (
    check_outside,
    doubts,
    newest,
    unchanged,
    verdict_code,
    warn_of_settings,
)
from seatrial.history import index
from seatrial.results import later
from seatrial.results.baseline import Baseline, make_baseline
from seatrial.results.folder import RESULTS_FILE, Results
from seatrial.results.requirements import Accepted, Requirements, load_requirements
from seatrial.results.wording import some
from seatrial.site.load import configs_folder, site_file


def baseline(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of trials, whose samples are pooled; default: the newest."),
    ] = None,
    site: SiteOption = "lab",
    write: Annotated[
        Path | None, typer.Option(help="File to write; default: requirements.yaml of the site.")
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(metavar="CHANGE", help="Take the level since a change of the history."),
    ] = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why the new level is right; with --accept.")
    ] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who accepts; default: this user.")] = "",
    trials: Annotated[
        Path, typer.Option(help="Folder of the history; default: trials/.", show_default=False)
    ] = TRIALS,
) -> None:
    """Write requirements from the figures of trials. Contracts stay as they are.

    Each figure needs three samples: name several trials, as of three nights. Exit code 2: nothing
    was written. A warning names each trial that was rejected or ran with a planted fault. --accept
    takes what 'seatrial history --changes' names, and records who accepted it, when and why.

    Example: seatrial baseline --site harbour trials/harbour-*
    """
    existing = site_file(site).with_name("requirements.yaml")
    check_outside(write or existing, "--write" if write else "--site")
    if accept:
        if folders:
            raise InputError("--accept takes the trials of the history: name no trial")
        if not reason.strip():
            raise InputError("--accept needs --reason: why the new level is right")
        made = accepted_baseline(existing, trials, accept, by or later.user(), reason)
    elif reason or by:
        raise InputError("--reason and --by are of --accept")
    else:
        made = make_baseline(sources(folders or [newest(None)], existing.parent.name), existing)
    for sentence in made.summary():
        say(sentence)
    if not made.written:
        out.print("nothing was written")
        raise typer.Exit(EXIT_INCOMPLETE)
    try:
        written = made.write(write)
    except OSError as error:
        raise InputError(f"the requirements cannot be written: {error}") from None
    count = len(made.written)
    say(f"{count} {'entry' if count == 1 else 'entries'} in {written}")
    if accept and (why := unseen_acceptance(existing.parent.name, existing, written)):
        say(f"note: {why}")


def sources(folders: Sequence[Path], site: str) -> list[Results]:
    """The results that a baseline is made of, with a line for each that is doubtful."""
    results = [unchanged(folder) for folder in folders]
    check_sources(results, site)
    return results


def accepted_baseline(file: Path, trials: Path, change: str, by: str, reason: str) -> Baseline:
    """The baseline with the new level of a change, and a line for each doubt about it."""
    from seatrial.history.accept import joined, new_level  # numpy: only this needs it
    from seatrial.history.renamed import with_todays_names
    from seatrial.report import changes

    site = file.parent.name
    requirements = load_requirements(file) if file.exists() else Requirements()
    with index.opened(trials, say) as known:
        level = new_level(known, change, site, requirements)
    say(f"accepting {changes.headline(level.finding)}")
    say(f"since {changes.when(level.finding)}; {changes.circumstances(level.finding)}")
    if level.ended:
        say(f"not accepted, because a later change followed: {some(level.ended)}")
    for doubt in changes.doubts(level):
        say(f"warning: {doubt}")
    accepted = Accepted(
        change=level.finding.id, by=by, when=datetime.now(UTC).date(), reason=reason.strip(),
        newest=level.newest,
    )  # fmt: skip
    results = [with_todays_names(trial) for trial in sources(level.folders, site)]
    before = requirements.acceptance(level.finding.id)
    again = bool(before and joined(level.finding, before))
    return make_baseline(
        results, file, only=level.figures, courses=changes.courses(level), accepted=accepted,
        again=again,
    )  # fmt: skip


def unseen_acceptance(site: str, existing: Path, written: Path) -> str:
    """Why the history does not see an acceptance in the file ``written``, or not yet; else ""."""
    read = site_requirements(site) or existing
    if written.resolve() != read.resolve():
        return f"'seatrial history' does not see this acceptance: it reads {read}"
    if not site_requirements(site):
        return (
            f"{site} is not in {configs_folder()}: 'seatrial history' sees this acceptance from "
            "the site's next trial on, which keeps a copy of the file"
        )
    return ""


def check_sources(results: list[Results], site: str) -> None:
    """Refuse trials of another site, and print a line for each reason why some are doubtful.

    Raises InputError with all trials of other sites.
    """
    problems = [
        Problem(
            of_trial.folder / RESULTS_FILE, None, "site",
            f"a trial of site {of_trial.trial.site!r}, and the baseline is of site {site!r}",
            f"name trials of {site!r}, or give --site {of_trial.trial.site}",
        )
        for of_trial in results
        if of_trial.trial.site != site
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    names: dict[str, list[str]] = {}
    for of_trial in results:
        reasons = ["its verdict is reject"] if verdict_code(of_trial) == EXIT_REJECTED else []
        reasons += doubts(of_trial)
        if reasons:
            names.setdefault("; ".join(reasons), []).append(of_trial.trial.trial)
    for why, of_reason in names.items():
        say(f"warning: {some(of_reason)}: {why}")
    warn_of_settings(results)
