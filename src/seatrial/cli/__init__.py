"""The command line. Each command reads its options, calls the toolkit and prints.

Exit codes: 0 accepted (or done), 1 rejected, 2 incomplete, 3 bad input, 4 the lab or Slurm
failed, 70 a defect of Seatrial, 130 interrupted outside a trial, 141 nobody read the output.
"""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import suppress
from typing import Annotated

import typer
from pydantic import ValidationError

import seatrial
from seatrial.base.errors import (
    EXIT_ACCEPTED,
    EXIT_BAD_INPUT,
    EXIT_DEFECT,
    EXIT_INTERRUPTED,
    EXIT_LAB_FAILED,
    EXIT_UNREAD,
    InputError,
    SeatrialError,
    defect,
    explained,
)
from seatrial.cli import (
    analyse,
    baseline,
    compare,
    history,
    job,
    judge,
    lab,
    nic,
    panels,
    plan,
    predict,
    report,
    site,
    slurm,
    stack,
    test,
    trial,
    tune,
    verify,
)
from seatrial.cli.screen import open_console
from seatrial.report.text import clean, line

EPILOG = "Exit codes: 0 accept or done, 1 reject, 2 incomplete, 3 bad input, 4 lab or Slurm failed."
app = typer.Typer(
    cls=panels.Panels,
    help="Acceptance test for the network of an HPC cluster.\n\nExample: seatrial trial",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("trial", epilog=EPILOG, rich_help_panel=panels.TEST)(trial.trial)
app.command("plan", rich_help_panel=panels.TEST)(plan.plan)
app.add_typer(site.app, name="site", rich_help_panel=panels.TEST)
app.add_typer(lab.app, name="lab", rich_help_panel=panels.TEST)
app.command("judge", epilog=EPILOG, rich_help_panel=panels.COMPARE)(judge.judge)
app.command("verify", rich_help_panel=panels.COMPARE)(verify.verify)
app.command("baseline", rich_help_panel=panels.COMPARE)(baseline.baseline)
app.add_typer(history.app, name="history", rich_help_panel=panels.COMPARE)
app.command("compare", rich_help_panel=panels.COMPARE)(compare.compare)
app.command("report", epilog=EPILOG, rich_help_panel=panels.COMPARE)(report.report)
app.command("analyse", rich_help_panel=panels.COMPARE)(analyse.analyse)
app.command("predict", rich_help_panel=panels.COMPARE)(predict.predict)
app.add_typer(stack.app, name="stack", rich_help_panel=panels.BUILD)
app.command(
    "test", context_settings={"ignore_unknown_options": True}, rich_help_panel=panels.BUILD
)(test.test)
app.add_typer(slurm.app, name="slurm", rich_help_panel=panels.OPERATE)
app.add_typer(nic.app, name="nic", rich_help_panel=panels.OPERATE)
job.app.command("tune", context_settings={"allow_interspersed_args": False})(tune.tune)
app.add_typer(job.app, name="job", rich_help_panel=panels.JOBS)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"seatrial {seatrial.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


def _in_plain_words(error: typer.TyperException) -> None:
    """Say of a number what is allowed and what was given: Typer has the words of pydantic."""
    cause, text = error.__cause__, getattr(error, "message", "")
    if not isinstance(cause, ValidationError) or not text.startswith("Input should be "):
        return
    first = cause.errors(include_url=False)[0]
    allowed = [
        ("greater_than_equal", "at least", "ge"), ("less_than_equal", "at most", "le"),
    ]  # fmt: skip
    for kind, words, limit in allowed:
        if first["type"] == kind:
            text = f"must be {words} {first['ctx'][limit]}"
    if first["type"] == "int_parsing":
        text = "must be a whole number"
    text = re.sub("^Input should be", "must be", text)
    error.message = f"{text}, found {first['input']}"


def main() -> None:
    """Run the command line, and end with its exit code.

    Codes 0, 1 and 2 are verdicts: an unexpected error ends with another one, and its traceback.
    """
    try:
        code = run()
    except Exception as error:
        code = EXIT_DEFECT
        with suppress(Exception):  # standard error may be what failed
            traceback.print_exc()
            print(defect(error), file=sys.stderr)
    sys.exit(code)


def run() -> int:
    """Run the command line; every expected error ends in a sentence. Returns the exit code."""
    errors = open_console(stderr=True, highlight=False, soft_wrap=True)
    try:
        code = app(prog_name="seatrial", standalone_mode=False)
        if code == EXIT_INTERRUPTED:  # Typer catches Ctrl-C itself, and says nothing
            errors.print("interrupted")
        return code if isinstance(code, int) else EXIT_ACCEPTED
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        _in_plain_words(error)
        show = getattr(error, "show", None)  # usage errors print the usage line as well
        show() if show else errors.print(f"error: {clean(str(error))}", markup=False)
        return EXIT_BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        errors.print("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Rich and Typer end with 1
            return EXIT_UNREAD
        raise
    except InputError as error:
        for problem in error.problems:
            # One line each: a name in it may be of somebody who would like to write others.
            errors.print(f"error: {line(str(problem))}", markup=False)
        return error.exit_code
    except SeatrialError as error:
        errors.print(f"error: {clean(str(error))}", markup=False)
        return error.exit_code
    except OSError as error:  # the message names the file
        errors.print(f"error: {clean(explained(error))}", markup=False)
        return EXIT_LAB_FAILED
