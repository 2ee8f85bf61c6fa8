"""Interfaces of the machine that runs a trial's commands, and of the display of its progress."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Protocol

from seatrial.base.errors import LabError
from seatrial.slurm.running import complaint


class Machine(Protocol):
    """Runs the commands of a trial: on the login node of a lab, or on this machine.

    In a lab the commands run as the job user, and the trial itself as root. The trial's folder is
    root's: what the job user writes there is hostile to root. ``give`` makes the job user the owner
    of one new file or empty folder, ``take`` makes root the owner of a folder with its content,
    leaves only regular files in it, and returns their sizes in bytes by name: a process of the job
    user that has one open can still extend it. On a cluster there is one user, and both do nothing.
    ``uid`` is the job user's. ``notes`` are of before the first run. ``facts`` are what a lab runs
    on, by name. ``losses`` are notes on frames that a switch of the lab dropped since ``notes`` or
    the last ``losses``, and on the end of the machine, whose log is copied to ``folder``; switches
    of a cluster are not asked. ``pause`` lets Slurm work for about so many seconds between two
    queries.
    """

    @property
    def uid(self) -> int: ...
    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen: ...
    def run(self, argv: list[str]) -> subprocess.CompletedProcess: ...
    def pause(self, seconds: float) -> None: ...
    def give(self, path: Path) -> None: ...
    def take(self, folder: Path) -> dict[str, int]: ...
    def notes(self) -> list[str]: ...
    def facts(self) -> dict[str, str]: ...
    def losses(self, folder: Path) -> list[str]: ...


class ThisMachine:
    """The login node of a real cluster: commands run unchanged, as the user."""

    @property
    def uid(self) -> int:
        return os.geteuid()

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        return subprocess.Popen(
            argv, env={**os.environ, **env}, cwd=cwd, stdin=subprocess.DEVNULL, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        # In its own session: Ctrl-C must not end a command whose answer the trial needs.
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=60, start_new_session=True
        )

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def give(self, path: Path) -> None: ...

    def take(self, folder: Path) -> dict[str, int]:
        return {}

    def notes(self) -> list[str]:
        return []

    def facts(self) -> dict[str, str]:
        return {}

    def losses(self, folder: Path) -> list[str]:
        return []


def jobs_of(folder: Path, machine: Machine) -> dict[str, str]:
    """Job id -> state of the jobs in Slurm's queue that work below a trial's folder.

    Raises LabError if Slurm does not answer.
    """
    answer = ask(machine, ["squeue", "--me", "--noheader", "--format=%i|%T|%Z"])
    rows = [line.split("|", 2) for line in answer.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 3 and Path(row[2]).is_relative_to(folder)}


def check_slurm(machine: Machine, partition: str, backend: str) -> None:
    """Raises LabError if Slurm does not answer, has no such partition, or has no accounting though
    the ``backend`` is slurm."""
    command = ["sinfo", "--noheader", "--format=%R", f"--partition={partition}"]
    if partition not in ask(machine, command).split():
        raise LabError(f"Slurm has no partition {partition}, which the trial runs in")
    if backend == "slurm":
        try:
            command = ["sacct", "--noheader", "--jobs=1", "--format=JobID"]
            ask(machine, command, "Slurm's accounting")
        except LabError as error:
            raise LabError(f"{error} (without accounting: slurm: backend: squeue)") from None


def ask(machine: Machine, command: list[str], who: str = "Slurm") -> str:
    """The output of a command of Slurm. Raises LabError if it fails."""
    try:
        answer = machine.run(command)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not installed here: use a login node") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"{who} does not answer: {error}") from None
    if answer.returncode:
        raise LabError(f"{who} does not answer: {complaint(answer.stderr)}")
    return answer.stdout


class Progress(Protocol):
    """Shows the progress of a trial."""

    def line(self, word: str, done: int, total: int, name: str) -> None: ...
    def said(self, text: str) -> None: ...
