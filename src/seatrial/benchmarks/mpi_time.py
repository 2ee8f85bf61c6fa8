"""How long the ranks of a program are in MPI: the library ``mpi_time``, and its file.

The library is loaded by LD_PRELOAD into the ranks, and not into their launcher. The head of
``mpi_time.c``, in the Spack recipe ``mpi-time``, describes what it counts and the format. A run
with the library is a step of its own: the figures of the program's performance are those without.
Not here: what a share of communication means (``seatrial.analysis.communication``).
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from seatrial.base.suggest import matching
from seatrial.benchmarks.benchmark import DeclaredMetric, Programs
from seatrial.benchmarks.parsing import Parsed, ParseError, lower, whole

PROGRAM = "mpi_time"  # in a stack; its "command" is the library's path
METRICS = {"mpi_percent": DeclaredMetric("percent", "lower", optional=True)}
FACT = "mpi"
SUFFIX = "-mpi"  # ends the name of a step with the library
#: a field of a benchmark's settings: patterns of transports
SETTING: Any = Field(
    default=[],
    description="transports under which each program runs once more with the library mpi_time, for "
    "its share of communication",
    examples=['["*"]'],
)

# What is preloaded already stays: PyPI's MPICH has a library of its own.
_SCRIPT = 'export LD_PRELOAD="$1${LD_PRELOAD:+:$LD_PRELOAD}" MPI_TIME_FILE="$2"; shift 2; exec "$@"'
_TITLE = re.compile(r"# mpi_time \d+\.\d+: (\d+) ranks")
_HEADING = "# rank call calls ns bytes"
_ROW = re.compile(r"(\d+) (run|MPI_\w+) (\d+) (\d+) (\d+)", re.ASCII)
_CRC = re.compile(r"# crc32 ([0-9a-f]{8})")


class CallTime(BaseModel):
    """One call of MPI, of all ranks together."""

    calls: int = Field(ge=0)
    s: float = Field(ge=0)
    bytes: int = Field(ge=0)


class MpiTime(BaseModel):
    """The fact ``mpi`` of a run. ``performance``: of the program, with the library."""

    ranks: int = Field(ge=1)
    run_s: float = Field(gt=0)  # mean of the ranks
    mpi_s: float = Field(ge=0)  # mean of the ranks
    calls: int = Field(ge=0)  # of all ranks together
    bytes: int = Field(ge=0)  # of all ranks together
    by_call: dict[str, CallTime]
    performance: float | None = None


def measured(facts: Mapping[str, Any]) -> MpiTime | None:
    """The time in MPI of a run; None if it was not measured, or the fact is not of this form."""
    try:
        return MpiTime.model_validate(facts.get(FACT))
    except ValidationError:
        return None


def with_library(library: Sequence[str], file: str, command: Sequence[str]) -> list[str]:
    """The command of a rank that runs ``command`` with the library, which writes ``file``."""
    return ["/bin/sh", "-c", _SCRIPT, "sh", *library, file, *command]


def timed(library: Sequence[str], step: str, command: Sequence[str]) -> tuple[str, list[str]]:
    """Name and command of a step that runs the command of ``step`` once more, with the library."""
    name = step + SUFFIX
    return name, with_library(library, file_of(name), command)


def file_of(step: str) -> str:
    """The file that the library writes in a step."""
    return f"{step}.calls.out"


def library(patterns: Sequence[str], transport: str, programs: Programs) -> list[str] | None:
    """The library under a transport; None if the settings or the stack do not have it there."""
    wanted = matching(patterns, [transport])
    return list(programs[PROGRAM]) if wanted and PROGRAM in programs else None


def lacking(patterns: Sequence[str], transport: str, programs: Programs) -> str:
    """What the settings ask for and a stack without the library cannot measure; else empty."""
    if PROGRAM in programs or not matching(patterns, [transport]):
        return ""
    return "the share of communication: the stack has no library mpi_time"


def _read(file: Path) -> Parsed:
    """As ``parse``, of a file. Raises ParseError with its name, OSError."""
    try:
        return parse(file.read_text(errors="replace"))
    except FileNotFoundError:
        raise ParseError(f"the library mpi_time wrote no {file.name}") from None
    except ParseError as error:
        raise ParseError(f"{file.name}: {error}") from None


def share(folder: Path, step: str, parsed: Parsed, performance: str) -> Parsed:
    """The figures of a step with the library, whose program printed ``parsed``.

    ``folder``: where the program ran. Its ``performance`` is in the fact ``mpi``: beside that
    without the library it shows whether the library slows the program. Raises ParseError, OSError.
    """
    calls = _read(folder / file_of(step))
    fact = {**calls.facts[FACT], "performance": parsed.value(performance)}
    return replace(calls, facts={FACT: fact}, moved_bytes=parsed.moved_bytes)


def parse(text: str) -> Parsed:
    """Read the file of one run.

    Metric: ``mpi_percent``, the sum of the time in MPI over that of the run time, over all ranks.
    Fact ``mpi``: ``MpiTime``, without the performance.

    Raises ParseError.
    """
    lines = text.split("\n")
    title = _TITLE.fullmatch(lines[0])
    if title is None:
        raise ParseError(f"expected '# mpi_time VERSION: COUNT ranks', found {lines[0]!r}", 1)
    end = _CRC.fullmatch(lines[-2]) if len(lines) > 3 and lines[-1] == "" else None
    if end is None:
        raise ParseError("expected '# crc32 ...' at the end: the file is cut off", len(lines))
    own = "".join(f"{line}\n" for line in lines[:-2])
    if zlib.crc32(own.encode()) != int(end[1], 16):
        raise ParseError(f"expected lines of checksum {end[1]}: a line is damaged", len(lines) - 1)
    if lines[1] != _HEADING:
        raise ParseError(f"expected {_HEADING!r}, found {lines[1]!r}", 2)
    ranks = whole(title[1], 1, "the number of ranks")
    run_ns: dict[int, int] = {}
    by_call: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for number, line in enumerate(lines[2:-2], 3):
        row = _ROW.fullmatch(line)
        if row is None:
            raise ParseError(f"expected 'RANK CALL CALLS NS BYTES', found {line!r}", number)
        rank, *counts = (whole(row[i], number, "a count") for i in (1, 3, 4, 5))
        if row[2] == "run":
            run_ns[rank] = counts[1]
        else:
            sums = by_call[row[2]]
            sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    if sorted(run_ns) != list(range(ranks)) or not ranks:
        raise ParseError(f"expected the run time of {ranks} ranks, found {len(run_ns)}", 3)
    run, mpi = sum(run_ns.values()), sum(ns for _, ns, _ in by_call.values())
    if not 0 <= mpi <= run or run == 0:
        raise ParseError(f"expected at most {run} ns in MPI, the run time; found {mpi}")
    fact: dict[str, Any] = {
        "ranks": ranks,
        "run_s": run / ranks / 1e9,
        "mpi_s": mpi / ranks / 1e9,
        "calls": sum(calls for calls, _, _ in by_call.values()),
        "bytes": sum(moved for _, _, moved in by_call.values()),
        "by_call": {
            call: {"calls": calls, "s": ns / 1e9, "bytes": moved}
            for call, (calls, ns, moved) in sorted(by_call.items())
        },
    }
    return Parsed(metrics=[lower("mpi_percent", 100 * mpi / run, "percent")], facts={FACT: fact})
