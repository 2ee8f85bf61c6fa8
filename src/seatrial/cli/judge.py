"""``seatrial judge``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import LabError, explained
from seatrial.base.lock import locked
from seatrial.cli.screen import out, say
from seatrial.cli.trial_folders import TrialArgument, newest, say_wait, trial_folder, verdict_code
from seatrial.plan.check import check_bounds
from seatrial.report import terminal, write_all
from seatrial.results import later, manifest
from seatrial.results.manifest import LOCK_FILE
from seatrial.results.requirements import load_requirements
from seatrial.site.load import load_with_lines
from seatrial.trial.host import version_with_commit


def judge(
    folder: TrialArgument = None,
    requirements: Annotated[
        Path | None, typer.Option(help="File; default: the requirements of the trial.")
    ] = None,
) -> None:
    """Judge a trial again, against its own or other requirements. Earlier verdicts stay.

    Example: seatrial judge --requirements site-configs/harbour/requirements.yaml
    """
    place = trial_folder(newest(folder))
    manifest.check_own(place)
    command, version = ["seatrial", *sys.argv[1:]], version_with_commit()
    check_against_site(place, requirements)
    try:
        with locked(place / LOCK_FILE, partial(say_wait, place)):
            results = later.judge_again(place, requirements, command, version, write_all, say)
    except OSError as error:
        raise LabError(f"the trial cannot be judged: {explained(error)}") from None
    terminal.print_summary(results, out)
    terminal.print_page(results, out)
    raise typer.Exit(verdict_code(results))


def check_against_site(place: Path, requirements: Path | None) -> None:
    """Refuse bounds by which no figure of the trial's site can be judged. Raises InputError.

    Those of the trial were checked before it ran, if its manifest says that they are the same.
    """
    copies = sorted(place.glob("config/*/site.yaml"))
    kept = sorted(place.glob("config/*/requirements.yaml"))
    file = requirements or (kept[0] if kept and not manifest.has_manifest(place) else None)
    if file is None:
        return
    rules = load_requirements(file, later.read_file(file, None if requirements else place))
    site = None
    if copies:
        site, _ = load_with_lines(copies[0], later.read_file(copies[0], place))
    else:
        say(f"note: {place} has no copy of its site.yaml: bounds are not checked against it")
    check_bounds(site, rules)
