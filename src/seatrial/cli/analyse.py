"""``seatrial analyse``: what the figures of trials mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.cli.screen import out
from seatrial.cli.trial_folders import pooled
from seatrial.report import terminal


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
    from seatrial.analysis.trials import analyse as analysis_of  # its libraries are slow to import

    terminal.print_analysis(analysis_of(pooled(trials)), out)
