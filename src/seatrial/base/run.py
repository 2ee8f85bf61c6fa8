"""Runs a program, and raises an error with the end of its output if it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from seatrial.base.errors import LabError

#: lines of output that an error shows
TAIL = 15


def run(
    command: Sequence[str | Path],
    purpose: str,
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    accept_failure: bool = False,
    keep: Sequence[int] = (),
    timeout_s: float | None = None,
) -> str:
    """Run a command and return its standard output.

    ``purpose`` begins the error message. ``keep`` are file descriptors that the command inherits.
    Raises LabError with the end of the output if the command fails, cannot be started or has not
    ended after ``timeout_s``.
    """
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            pass_fds=keep,
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        raise LabError(f"{purpose}: {error.filename} is missing") from None
    except OSError as error:
        raise LabError(f"{purpose}: {error.filename or command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{purpose}: {command[0]} has not ended after {timeout_s:.0f} s") from None
    if done.returncode and not accept_failure:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-TAIL:])
        raise LabError(f"{purpose} failed ({command[0]} ended with {done.returncode}):\n{tail}")
    return done.stdout
