"""``seatrial analyse``: what the figures of trials mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.analysis.trials import analyse as analysis_of
from seatrial.cli.trial import held, newest, out, say, trial_folder
from seatrial.report import terminal
from seatrial.results import later
from seatrial.results.baseline import check_origin
from seatrial.results.record import read_results


def analyse(
    trials: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of trials of one site; default: the newest."),
    ] = None,
) -> None:
    """Say which NIC profile suits what, its cost, and how sure that is.

    The runs of several trials are pooled: profiles are compared over the trials that have all of
    them. It judges nothing. The chapter "What it means" of a report is the same for its trial.

    Example: seatrial analyse trials/harbour-*
    """
    results = []
    for folder in trials or [newest(None)]:
        place = trial_folder(folder)
        with held(place):
            later.check_unchanged(place)
            results.append(read_results(place))
    check_origin(results)
    for one in results:
        for reason in [*one.trial.planted, *filter(None, [later.without_manifest(one)])]:
            say(f"warning: {one.trial.trial}: {reason}")
    terminal.print_analysis(analysis_of(results), out)
