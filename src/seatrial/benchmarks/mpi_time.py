"""How long the ranks of a program are in MPI: the library ``mpi_time``, and its file.

The library is loaded by LD_PRELOAD into the ranks, and not into their launcher. The head of
``mpi_time.c``, in the Spack recipe ``mpi-time``, describes what it counts and the format. A run
with the library is a step of its own: the figures of the program's performance are those without.
The program's figure is of a part of the run, which it times with MPI_Wtime. The library records
the readings of that clock: the part is that between two readings which is as long as the program
says, within the rounding of its figure.
Not here: what a share of communication means (``seatrial.analysis.communication``).
"""

from __future__ import annotations

import errno
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seatrial.base.files import read_below
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
_ROW = re.compile(r"(\d+) (run|clock|MPI_\w+) (\d+) (\d+) (\d+)", re.ASCII)
#: relative: of figures that are printed with six digits
SIX_DIGITS = 5e-6
_MOST_READINGS = 500  # of a rank; mpi_time.c: the first and the last 250
_MOST_BYTES = 64 << 20  # of a file: a rank with 500 readings has some 20 kB
#: The readings are of MPI_Wtime, the times in MPI and of the run of CLOCK_MONOTONIC. A clock in
#: microseconds and another rate are no damage.
_CLOCKS_APART, _CLOCKS_APART_NS = 0.01, 2000
#: parts that are as long cannot be told apart: their shares must not differ by more
_MOST_APART = 0.1
#: relative, of sums in s
_ROUNDING = 1e-6
_MOST_COUNT = 10**30  # sums of numbers of 18 digits; a float can hold it
#: relative, of the lengths on all ranks, where it is not certain that the readings are the same
_MOST_UNLIKE = 0.5
#: of a rank: number of the reading of the clock -> ns of its run, and of these in MPI
_Readings = dict[int, tuple[int, int]]
_CRC = re.compile(r"# crc32 ([0-9a-f]{8})")


class CallTime(BaseModel):
    """One call of MPI, of all ranks together."""

    model_config = ConfigDict(allow_inf_nan=False)

    calls: int = Field(ge=0, le=_MOST_COUNT)
    s: float = Field(ge=0)
    bytes: int = Field(ge=0, le=_MOST_COUNT)


class MpiTime(BaseModel):
    """The fact ``mpi`` of a run. ``performance``: of the program, with the library.

    ``timed_s``, ``timed_mpi_s``: the part of the run that the program's figure times, and of this
    part the time in MPI, means of the ranks; None if the part is not known. A part is not longer
    than what it is a part of.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    ranks: int = Field(ge=1, le=_MOST_COUNT)
    run_s: float = Field(gt=0)  # mean of the ranks
    mpi_s: float = Field(ge=0)  # mean of the ranks
    calls: int = Field(ge=0, le=_MOST_COUNT)  # of all ranks together
    bytes: int = Field(ge=0, le=_MOST_COUNT)  # of all ranks together
    by_call: dict[str, CallTime]
    performance: float | None = None
    timed_s: float | None = Field(default=None, gt=0)
    timed_mpi_s: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _parts(self) -> Self:
        for part, whole_of in (
            ("mpi_s", "run_s"), ("timed_s", "run_s"), ("timed_mpi_s", "timed_s")
        ):  # fmt: skip
            short, long = getattr(self, part), getattr(self, whole_of)
            if short is not None and long is not None and short > long * (1 + _ROUNDING):
                raise ValueError(f"{part} is {short:g}, more than {whole_of}, {long:g}")
        return self


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


def _read(file: Path, seconds: float, rounding: float) -> Parsed:
    """As ``parse``, of a file. Raises ParseError with its name, OSError."""
    try:
        data = read_below(file.parent, Path(file.name), _MOST_BYTES)
        return parse(data.decode(errors="replace"), seconds, rounding)
    except FileNotFoundError:
        raise ParseError(f"the library mpi_time wrote no {file.name}") from None
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise ParseError(f"{file.name}: expected at most {_MOST_BYTES} bytes") from None
    except ParseError as error:
        raise ParseError(f"{file.name}: {error}") from None


def share(
    folder: Path, step: str, parsed: Parsed, performance: str, seconds: float, rounding: float
) -> Parsed:
    """The figures of a step with the library, whose program printed ``parsed``.

    ``folder``: where the program ran. Its ``performance`` is in the fact ``mpi``: beside that
    without the library it shows whether the library slows the program. ``seconds``: what it timed
    for that figure; ``rounding``: relative, of these. Raises ParseError, OSError.
    """
    calls = _read(folder / file_of(step), seconds, rounding)
    fact = {**calls.facts[FACT], "performance": parsed.value(performance)}
    return replace(calls, facts={FACT: fact}, moved_bytes=parsed.moved_bytes)


def parse(text: str, seconds: float | None = None, rounding: float = SIX_DIGITS) -> Parsed:
    """Read the file of one run, whose program says that it timed ``seconds``.

    ``rounding``: the relative rounding error of ``seconds``, below 1.

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
    body = "".join(f"{line}\n" for line in lines[:-2])
    if zlib.crc32(body.encode()) != int(end[1], 16):
        raise ParseError(f"expected lines of checksum {end[1]}: a line is damaged", len(lines) - 1)
    if lines[1] != _HEADING:
        raise ParseError(f"expected {_HEADING!r}, found {lines[1]!r}", 2)
    ranks = whole(title[1], 1, "the number of ranks")
    run_ns: dict[int, int] = {}
    seen: set[tuple[int, str]] = set()
    by_call: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    clock: dict[int, _Readings] = defaultdict(dict)
    for number, line in enumerate(lines[2:-2], 3):
        row = _ROW.fullmatch(line)
        if row is None:
            raise ParseError(f"expected 'RANK CALL CALLS NS BYTES', found {line!r}", number)
        rank, *counts = (whole(row[i], number, "a count") for i in (1, 3, 4, 5))
        if rank >= ranks:
            raise ParseError(f"expected a rank below {ranks}, found {rank}", number)
        if row[2] == "clock":
            _add_reading(clock[rank], counts, run_ns.get(rank, 0), number)
            continue
        if (rank, row[2]) in seen:
            raise ParseError(f"a second row {row[2]} of rank {rank}", number)
        seen.add((rank, row[2]))
        if row[2] == "run":
            run_ns[rank] = counts[1]
        else:
            sums = by_call[row[2]]
            sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    if len(run_ns) != ranks or not ranks:
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
    readings = [clock[rank] for rank in range(ranks)]
    if seconds and (part := _timed_part(readings, seconds, rounding)):
        fact["timed_s"] = min(part[0], fact["run_s"])  # of two clocks: see _CLOCKS_APART
        fact["timed_mpi_s"] = min(part[1], fact["timed_s"])
    return Parsed(metrics=[lower("mpi_percent", 100 * mpi / run, "percent")], facts={FACT: fact})


def _add_reading(own: _Readings, counts: Sequence[int], run_ns: int, line: int) -> None:
    """Add a reading of the clock to those of its rank, whose run took ``run_ns``.

    Raises ParseError if it contradicts the reading before or the run.
    """
    number, ns, mpi_ns = counts
    last, (last_ns, last_mpi_ns) = next(reversed(own.items()), (0, (0, 0)))
    if number <= last or ns < last_ns or mpi_ns < last_mpi_ns:
        raise ParseError("expected a reading of the clock after the one before", line)
    if len(own) == _MOST_READINGS:
        raise ParseError(f"expected at most {_MOST_READINGS} readings of a rank", line)
    if ns > _at_most(run_ns):
        raise ParseError(
            f"expected a reading of the clock within the run, {run_ns} ns; found {ns}", line
        )
    if mpi_ns - last_mpi_ns > _at_most(ns - last_ns):
        raise ParseError(
            f"expected at most {ns - last_ns} ns in MPI, the time since the reading before; found "
            f"{mpi_ns - last_mpi_ns}",
            line,
        )
    own[number] = ns, mpi_ns


def _at_most(ns: int) -> float:
    """What one clock may read while another one reads ``ns``."""
    return ns * (1 + _CLOCKS_APART) + _CLOCKS_APART_NS


def _timed_part(
    clock: Sequence[_Readings], seconds: float, rounding: float
) -> tuple[float, float] | None:
    """Seconds of the part that the program timed, and of these in MPI, means of the ranks.

    ``clock``: of each rank. The part is that between the same two readings of all ranks; of one
    rank, whose time the program prints, it is as long as ``seconds``, within its relative
    ``rounding`` and the nanosecond of the readings. STREAM reads the clock in a loop until it
    changes, so readings are counted from the last one; where ranks have not as many, the part must
    be alike on all. None if no part is as long, or if parts that are differ in their share.
    """
    import numpy as np  # takes long to import

    if not all(clock):
        return None
    last = [max(readings) for readings in clock]
    numbers = sorted(
        set.intersection(*({n - max(readings) for n in readings} for readings in clock))
    )
    count = len(numbers)
    off = np.full((count, count), np.inf)  # from, to; the least of the ranks
    sums = np.zeros((2, count, count))  # ns, and ns in MPI
    unlike = np.zeros((count, count), dtype=bool)
    for end, readings in zip(last, clock, strict=True):
        at = np.array([readings[end + n] for n in numbers], dtype=float).T
        parts = at[:, None, :] - at[:, :, None]
        length = parts[0] / 1e9 / seconds
        off = np.minimum(off, np.abs(length - 1))
        unlike |= (length < 1 - _MOST_UNLIKE) | (length > 1 + _MOST_UNLIKE)
        sums += parts
    if len(set(last)) > 1:
        off[unlike] = np.inf
    found = off <= rounding + 1e-9 / seconds
    if not found.any() or np.ptp(sums[1][found] / sums[0][found]) > _MOST_APART:
        return None
    timed, mpi = sums.reshape(2, -1)[:, off.argmin()] / len(clock) / 1e9
    return float(timed), float(mpi)
