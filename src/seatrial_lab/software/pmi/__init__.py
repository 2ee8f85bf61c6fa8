"""Keeping MPICH's requests to Slurm's PMI server as short as the server reads (``shorter.c``)."""

from __future__ import annotations

from pathlib import Path

from seatrial.base.run import run
from seatrial.stack.files import replace

SOURCE = Path(__file__).with_name("shorter.c")
LIBRARY = "pmi/shorter.so"


def build(prefix: Path, work: Path) -> None:
    """Compile the library into ``prefix``. Raises LabError."""
    built = work / "shorter.so"
    command: list[str | Path] = ["gcc", "-O2", "-Wall", "-fPIC", "-shared", "-o", built, SOURCE]
    run(command, "building the library for Slurm's PMI server")
    built.chmod(0o755)
    replace(built, prefix / LIBRARY)
