"""Pass a rendered script to sbatch. Where sbatch runs is for the caller to say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

from seatrial.base.errors import LabError
from seatrial.slurm.running import complaint

TIMEOUT_S = 60
#: runs a command with a text on its standard input
Run = Callable[[list[str], str], subprocess.CompletedProcess[str]]


def run_here(argv: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
    """Run a command on this machine. Raises LabError where it does not exist or does not end."""
    program = shutil.which(argv[0])
    if program is None:
        raise LabError(
            f"{argv[0]} is not installed here: run this on a login node of the cluster, or write "
            "the script to a file (seatrial job render --output) and copy it there"
        )
    try:
        return subprocess.run(
            [program, *argv[1:]], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]} did not answer within {TIMEOUT_S} s") from None


def submit(text: str, options: list[str], run: Run = run_here) -> str:
    """Submit a script, and return sbatch's answer. Raises LabError with sbatch's reason."""
    done = run(["sbatch", *options], text)
    answer = done.stdout + done.stderr
    if done.returncode:
        raise LabError(f"sbatch refused the job (exit code {done.returncode}): {complaint(answer)}")
    return answer.strip()
