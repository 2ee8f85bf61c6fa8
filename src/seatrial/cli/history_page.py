"""The page over all trials, which ``seatrial trial`` and ``seatrial history`` write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seatrial.base.errors import InputError, LabError, unexpected
from seatrial.cli.screen import say
from seatrial.history import index
from seatrial.history.series import KnownTrial, newest_of_sites
from seatrial.report import HISTORY_FILE
from seatrial.results import later, manifest
from seatrial.results.later import REQUIREMENTS_FILE
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.site.load import site_file, site_names


def keep_history(trials: Path) -> None:
    """Bring the index and the page over all trials in step.

    What cannot be written is a warning: it changes no trial.
    """
    try:
        index.update(trials, say)
        if not manifest.exposure(trials):
            with index.opened(trials, say) as known:
                write_page(known, trials / HISTORY_FILE, {})
    except (OSError, InputError, LabError) as error:
        say(f"warning: {HISTORY_FILE} was not written, the next trial does it: {error}")
    except Exception as error:
        say(f"warning: {HISTORY_FILE} was not written: {unexpected(error)}")


def write_page(known: index.Index, page: Path, patterns: dict[str, list[str]]) -> None:
    """Write the page of all trials, with what was accepted. Raises OSError."""
    from seatrial.report.history_page import write_history  # its libraries are slow to import

    write_history(known, page, requirements_of_sites(known.trials()), **patterns)


def requirements_of_sites(trials: Sequence[KnownTrial]) -> dict[str, Requirements]:
    """Site -> its requirements, of the sites that the trials are of.

    Of a site that is elsewhere than the others, they are those that its newest trial kept.
    """
    newest = newest_of_sites(trials)
    return {
        site: requirements_of(site, site_requirements(site), newest[site].folder)
        for site in sorted(newest)
    }


def site_requirements(site: str) -> Path | None:
    """The file of a site among the others, which need not exist; None if the site is elsewhere."""
    return site_file(site).with_name(REQUIREMENTS_FILE) if site in site_names() else None


def requirements_of(site: str, file: Path | None, trial: Path | None = None) -> Requirements:
    """What a site accepted and what it calls informative. ``trial``: whose copy counts if there is
    no ``file``."""
    try:
        if file:
            return load_requirements(file) if file.exists() else Requirements()
        copy = trial / "config" / site / REQUIREMENTS_FILE if trial else None
        if copy and copy.exists():
            return load_requirements(copy, later.read_file(copy, trial))
        return Requirements()
    except InputError as error:
        text = "what was accepted and what is informative"
        say(f"note: {text} at site {site} is not known: {error.problems[0]}")
        return Requirements()
