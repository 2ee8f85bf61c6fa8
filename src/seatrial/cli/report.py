"""``seatrial report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.cli.screen import out, say
from seatrial.cli.trial_folders import (
    TrialArgument,
    check_outside,
    held,
    newest,
    trial_folder,
    verdict_code,
    writing,
)
from seatrial.report import REPORT_FILE, terminal, write_all
from seatrial.results import later, manifest
from seatrial.results.folder import Results, read_results
from seatrial.results.verdict import contradiction


def report(
    folder: TrialArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; default: the trial's.", show_default=False),
    ] = None,
) -> None:
    """Print the summary of a trial, and write its report.

    A report that SHA256SUMS lists stays as it is. --output writes a new one elsewhere. A trial
    whose results or judgements are not as in SHA256SUMS is bad input: see seatrial verify.

    Example: seatrial report trials/lab-20261120-120000
    """
    named = newest(folder)
    place = trial_folder(named)
    if output:
        check_outside(output, "--output")
    with held(place):
        # A running trial holds the lock, and writes other results and a manifest before it ends.
        later.check_unchanged(place)
        results = read_results(named)
        if why := contradiction(results):
            text = f"the recorded verdict is accept, but the records contradict it: {why}"
            correction = "'seatrial judge' judges the figures again"
            raise InputError([Problem(results.folder, None, "verdict", text, correction)])
        unproven = later.without_manifest(results)
        if unproven and results.verdict:
            say(f"warning: {unproven}")
            results.verdict.findings.append(f"note: {unproven}")  # for the page and the summary
        if lacking := results.trial.lacking_in_record:
            say(f"note: {lacking}")
        terminal.print_summary(results, out)  # first: see ``trial``
        if output:
            report_elsewhere(results, output)
        else:
            keep_report(results)
    terminal.print_page(results, out, output)
    raise typer.Exit(verdict_code(results))


def report_elsewhere(results: Results, output: Path) -> None:
    """Raises InputError if the report cannot be written to the folder of --output."""
    with writing(output, "--output", "the report"):
        output.mkdir(parents=True, exist_ok=True)
        write_all(results, output)


def keep_report(results: Results) -> None:
    """Write the report beside the results and add it to the manifest, unless it is there.

    The caller holds the trial's lock. Raises InputError as ``manifest.check_own``, LabError.
    """
    has_manifest = manifest.has_manifest(results.folder)
    report_file = str((results.output / REPORT_FILE).relative_to(results.folder))
    if has_manifest and report_file in manifest.read(results.folder):
        say("the report is in the manifest and stays as it is; --output writes a new one elsewhere")
        return
    manifest.check_own(results.folder)
    try:
        if has_manifest:
            number = results.verdict.number if results.verdict else 1
            with manifest.publishing(results.folder, number) as draft:
                write_all(results, draft)
        else:
            write_all(results)
    except OSError as error:
        raise LabError(f"the results are kept, the report is not: {error}") from None
