"""The errors a user sees, and the exit code each one ends the command with.

Nothing here formats for a terminal: ``seatrial.cli`` does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXIT_ACCEPTED = 0
EXIT_REJECTED = 1
EXIT_INCOMPLETE = 2
EXIT_BAD_INPUT = 3
EXIT_LAB_FAILED = 4


@dataclass(frozen=True)
class Problem:
    """One fault in an input file: where it is, what is wrong, what would be right.

    ``line`` counts from 1 and is None where a file as a whole is at fault.
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


class SeatrialError(Exception):
    """Base of all errors that end a command with a sentence instead of a traceback."""

    exit_code = EXIT_LAB_FAILED


class InputError(SeatrialError):
    """A file, option or argument that the user gave is wrong. Carries every fault found."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, problems: list[Problem] | str):
        self.problems = [Problem(problems, None, "", "")] if isinstance(problems, str) else problems
        text = problems if isinstance(problems, str) else "\n".join(str(p) for p in problems)
        super().__init__(text)


class LabError(SeatrialError):
    """The lab, Slurm or the machine did not do what it must (exit code 4)."""
