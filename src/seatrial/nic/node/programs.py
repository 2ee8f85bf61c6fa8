"""Running the node's own programs, by absolute path: Slurm gives a Prolog no PATH."""

import os
import subprocess
from typing import Dict, List, NamedTuple, Sequence, Tuple

FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
# Longer than any driver needs for a ring change that takes the link down; far shorter than
# PrologEpilogTimeout.
TIMEOUT_S = 15.0
KILLED_S = 2.0
ENVIRONMENT = {"LC_ALL": "C", "PATH": ":".join(FOLDERS)}

Answer = NamedTuple("Answer", [("code", int), ("out", str), ("err", str)])

# Descriptors that programs inherit: the node's lock, so that it stays taken until a program
# has ended that was left behind by a killed Prolog.
inherited: List[int] = []


def find(name: str) -> str:
    """Absolute path of a program, or the bare name where no folder has it."""
    for folder in FOLDERS:
        path = folder + "/" + name
        if os.access(path, os.X_OK):
            return path
    return name


def environment() -> Dict[str, str]:
    """Nothing of the caller's but where Slurm's configuration is, which slurmd itself says."""
    variables = dict(ENVIRONMENT)
    if "SLURM_CONF" in os.environ:
        variables["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return variables


def run(argv: Sequence[str], timeout: float = TIMEOUT_S) -> Answer:
    """Run a program to its end. A missing program is code 127, one that hangs is code 124."""
    command = [find(argv[0]), *argv[1:]]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            env=environment(),
            pass_fds=tuple(inherited),
        )
    except OSError as error:
        return Answer(127, "", "%s: %s" % (argv[0], error.strerror))
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            # What it started may keep its output open, and a driver that hangs cannot be killed.
            process.communicate(timeout=KILLED_S)
        except subprocess.TimeoutExpired:
            pass
        return Answer(124, "", "%s did not end within %g s" % (argv[0], timeout))
    return Answer(process.returncode, out, err)


def read_text(path: str) -> Tuple[bool, str]:
    """(whether it could be read, text without the last newline)."""
    try:
        with open(path, errors="replace") as stream:
            return True, stream.read().rstrip("\n")
    except OSError:
        return False, ""
