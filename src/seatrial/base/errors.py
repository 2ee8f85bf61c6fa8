"""The errors that a user sees, and the exit codes of the commands.

``seatrial.cli`` prints the errors.
"""

from __future__ import annotations

import errno
import os
import traceback
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2]  # of the packages seatrial and seatrial_lab

EXIT_ACCEPTED = 0
EXIT_REJECTED = 1
EXIT_INCOMPLETE = 2
EXIT_BAD_INPUT = 3
EXIT_LAB_FAILED = 4
EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h: an unexpected error
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141  # as of a process that SIGPIPE ended


@dataclass(frozen=True)
class Problem:
    """One error in an input file: its place, what is wrong, and the correction.

    ``line`` counts from 1. It is None if the error is not in a line.
    ``field`` is a dotted path such as ``transports.openmpi-tcp.env``.
    """

    file: Path | str
    line: int | None
    field: str
    message: str
    correction: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        if not self.field and not self.message:
            return where
        text = (
            f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"
        )
        return f"{text} ({self.correction})" if self.correction else text


def explained(error: OSError) -> str:
    """The text of an error of the file system, with the correction if the text alone does not say
    it: a server can refuse root what a local disk allows."""
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0:
        return (
            f"{error}: root may not write there, as on a network file system with root_squash; "
            "choose a folder of a local disk, or one that the server lets root write to"
        )
    return str(error)


def place_of(error: BaseException) -> tuple[Path, int | None]:
    """The file and line of an error: of the last frame of Seatrial, as a library names its own."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(SOURCE)]
    place = (ours or frames)[-1]
    return Path(place.filename), place.lineno


def unexpected(error: Exception) -> str:
    """An error that nobody expected in a line, with its place in the program."""
    text = " ".join(str(error).split())[:300]
    file, number = place_of(error)
    return f"a defect of Seatrial, {type(error).__name__}: {text} ({file.name}:{number})"


def defect(error: BaseException) -> str:
    """The line below the traceback of an error that nobody expected."""
    text = "please report the lines above, or correct the file if it is yours"
    return "error: " + str(Problem(*place_of(error), "", "a defect of Seatrial", text))


class SeatrialError(Exception):
    """Base of the errors that end a command with a message instead of a traceback."""

    exit_code = EXIT_LAB_FAILED


class InputError(SeatrialError):
    """A file, option or argument of the user is wrong (exit code 3). Holds all problems."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, problems: list[Problem] | str):
        self.problems = [Problem(problems, None, "", "")] if isinstance(problems, str) else problems
        text = problems if isinstance(problems, str) else "\n".join(str(p) for p in problems)
        super().__init__(text)


class LabError(SeatrialError):
    """The lab, Slurm or the machine failed (exit code 4)."""


class LabGone(LabError):
    """The lab has ended: nothing that runs in it comes back."""
