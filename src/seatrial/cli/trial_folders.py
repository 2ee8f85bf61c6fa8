"""The trials that a command works on: their folders, locks, results and exit codes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import (
    EXIT_ACCEPTED,
    EXIT_INCOMPLETE,
    EXIT_REJECTED,
    InputError,
    LabError,
    Problem,
    explained,
)
from seatrial.base.lock import locked
from seatrial.base.paths import TRIALS
from seatrial.checks.database import is_database
from seatrial.cli.screen import say
from seatrial.history.conditions import different_settings
from seatrial.results import later, manifest
from seatrial.results.baseline import check_origin
from seatrial.results.folder import RESULTS_FILE, Results, read_results, trial_of
from seatrial.results.manifest import LOCK_FILE
from seatrial.results.running import is_running, progress
from seatrial.results.wording import some

VERDICT_CODES = {"accept": EXIT_ACCEPTED, "reject": EXIT_REJECTED, "incomplete": EXIT_INCOMPLETE}

TrialArgument = Annotated[
    Path | None, typer.Argument(help="Folder of a trial; default: the newest.")
]


def verdict_code(results: Results) -> int:
    """The exit code of the verdict; a trial that was interrupted before it is incomplete."""
    return VERDICT_CODES[results.verdict.verdict] if results.verdict else EXIT_INCOMPLETE


def newest(folder: Path | None) -> Path:
    """The folder given, or the newest trial. Raises InputError where there is none."""
    if folder:
        return folder
    results_files = sorted(
        # The job user of a lab writes to the folder of ReFrame's database.
        (file for file in TRIALS.glob(f"*/{RESULTS_FILE}") if not is_database(file.parent)),
        key=lambda path: path.stat().st_mtime,
    )
    if not results_files:
        raise InputError(f"{TRIALS} has no trial: run seatrial trial, or name a folder")
    return results_files[-1].parent


def trial_folder(named: Path) -> Path:
    """The folder of a trial that is named by itself or by its results. Raises InputError."""
    folder = named.parent if named.name == RESULTS_FILE else named
    if not (folder / RESULTS_FILE).is_file():
        text, correction = "no such results file", "name a trial's folder, or its results.jsonl"
        raise InputError([Problem(folder / RESULTS_FILE, None, "", text, correction)])
    return folder


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a trial, and complete or undo what a killed command began in it.

    It waits for a command that judges or reports the trial, and not for the trial itself. Nothing
    changes in a folder that cannot be written, as in an archive, or that another user could
    exchange meanwhile. Raises LabError, InputError.
    """
    file = folder / LOCK_FILE
    is_writable = os.access(file if os.path.lexists(file) else folder, os.W_OK)
    if not is_writable or manifest.exposure(folder):
        manifest.check_settled(folder)
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(file, partial(say_wait, folder)))
            manifest.settle(folder)
        except OSError as error:
            raise LabError(f"the trial cannot be locked: {explained(error)}") from None
        yield


def say_wait(folder: Path, why: str) -> None:
    """Say what a command waits for. Raises InputError if it is the end of the trial: that may take
    hours."""
    if is_running(folder):
        text = f"the trial has not ended: {progress(read_results(folder))}"
        correction = "wait for its end, or 'seatrial analyse' for the rounds that are written"
        raise InputError([Problem(folder, None, "", text, correction)])
    say(why)


def check_outside(path: Path, option: str) -> None:
    """Refuse to write to a path in the folder of a trial, which is evidence. Raises InputError."""
    if trial := trial_of(path):
        text = f"it is in the folder of the trial {trial.name}, whose files stay as they are"
        raise InputError([Problem(path, None, option, text, "name a path elsewhere")])


@contextmanager
def writing(file: Path, option: str, what: str) -> Iterator[None]:
    """Raise InputError if the block cannot write ``file``, the value of ``option``."""
    try:
        yield
    except OSError as error:
        text = f"{what} cannot be written: {error}"
        raise InputError([Problem(file, None, option, text, "name another")]) from None


def unchanged(named: Path) -> Results:
    """The results of a trial whose files are those of its manifest. Raises InputError."""
    folder = trial_folder(named)
    with held(folder):
        later.check_unchanged(folder)
        return read_results(folder)


def pooled(trials: Sequence[Path] | None) -> list[Results]:
    """The results of trials of one site, by default of the newest, with a line for each doubt.

    Of a trial that still runs they are the rounds that are written. Raises InputError.
    """
    results = [_so_far(folder) or unchanged(folder) for folder in trials or [newest(None)]]
    check_origin(results)
    for of_trial in results:
        for reason in doubts(of_trial):
            say(f"warning: {of_trial.trial.trial}: {reason}")
        if lacking := of_trial.trial.lacking_in_record:
            say(f"note: {of_trial.trial.trial}: {lacking}")
    warn_of_settings(results)
    return results


def doubts(results: Results) -> list[str]:
    """Why the figures of a trial may not be those of a healthy cluster, or not as it wrote them."""
    return [*results.trial.planted, *filter(None, [later.without_manifest(results)])]


def _so_far(named: Path) -> Results | None:
    """What is written of a trial that still runs, with a warning; None of any other. Raises
    InputError if no round is written."""
    folder = trial_folder(named)
    if not is_running(folder):
        return None
    results = read_results(folder)
    if not results.runs:
        text = f"the trial has not ended: {progress(results)}"
        raise InputError([Problem(folder, None, "", text, "wait for the end of its first round")])
    say(f"warning: {results.trial.trial} has not ended: {progress(results)}")
    return results


def warn_of_settings(results: Sequence[Results]) -> None:
    """Print a warning if trials of different settings are pooled."""
    if differing := different_settings(results):
        say(f"warning: trials of different settings are pooled: {some(differing, '; ')}")
