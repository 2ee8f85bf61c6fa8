"""MPBench (``mpi_bench`` of LLCBench): two columns, size in bytes and figure, without a heading.

The labs have a program of this project with the same options and table (``mpi_bench.c`` in
``seatrial_lab/software/mpbench``).

The meaning of the columns depends on the option of the program, so the parser needs the mode.
From ``mpbench.c``: ``-l`` is the time of MPI_Send alone in us (the gap, not half a round trip);
``-r`` transactions per second, each a message and its reply; ``-b``, ``-d`` and the collectives are
in KB/s of 1024 B. Sizes are powers of two from 4 B (``-x 0``), each ``-e`` times. An MPI may print
lines before the first row. There is no end marker: the output is complete if it has every expected
row.
The columns have no redundancy, so a damaged digit cannot be detected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    SiteFacts,
    Step,
    output,
)
from seatrial.benchmarks.limits import Latency
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    bandwidth_curve,
    figure,
    higher,
    latency_curve,
    lower,
    small_and_large,
    whole,
)
from seatrial.benchmarks.volume import per_repetition

SMALLEST = 4  # LOG_MIN_MESSAGE_SIZE
KB = 1024 / 1e6  # of the program's KB/s in 10^6 B/s
#: mode -> option of the program
OPTIONS = {
    "gap": "-l",
    "roundtrip": "-r",
    "bandwidth": "-b",
    "bidirectional": "-d",
    "bcast": "-c",
    "reduce": "-y",
    "allreduce": "-z",
    "alltoall": "-a",
}
_ROW = re.compile(r"(\d+) (\d+\.\d{6})\n", re.ASCII)


class MPBenchSettings(Settings):
    """mpi_bench of LLCBench: point to point and collectives."""

    nodes: SeveralNodes = [2]
    modes: list[
        Literal[
            "gap", "roundtrip", "bandwidth", "bidirectional", "bcast", "reduce", "allreduce",
            "alltoall",
        ]
    ] = ["gap", "roundtrip", "bandwidth", "bidirectional", "bcast", "reduce", "allreduce",
         "alltoall"]  # fmt: skip
    max_bytes: Size = Field(default=64 << 10, description="a power of two, at least 8 B")
    iterations: int = Field(default=100, ge=1, description="mpi_bench's -i, for each size")
    passes: int = Field(default=3, ge=1, description="mpi_bench's -e: rows of each size")


class MPBench(Benchmark[MPBenchSettings]):
    """MPBench of LLCBench: point to point and collectives."""

    name = "mpbench"
    # Not of the other modes: MPI_Send may return before the message has left the node.
    limits = (Latency("latency_us"),)
    Settings = MPBenchSettings
    chooses = ("modes",)
    program = "mpbench"

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        largest = int(self.settings.max_bytes)
        if largest < 8 or largest & (largest - 1):
            yield FieldProblem(
                "max_bytes",
                f"{largest} B is not a size of mpi_bench",
                "a power of two of at least 8 B, as 64 KiB",
            )
        if largest * self.settings.iterations >= 1 << 31:
            yield FieldProblem(
                "iterations",
                f"{self.settings.iterations} x {largest} B is over 2 GiB: mpi_bench counts bytes "
                "in an int",
                f"at most {((1 << 31) - 1) // largest}",
            )

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        options = [
            "-i", str(settings.iterations), "-e", str(settings.passes),
            "-m", str(int(math.log2(int(settings.max_bytes)))), "-x", "0",
        ]  # fmt: skip
        return [
            Step(f"mpbench-{mode}", [*job.program("mpbench"), OPTIONS[mode], *options])
            for mode in settings.modes
        ]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        settings = self.settings
        return parse(
            output(step, folder),
            step.name.partition("-")[2],
            largest=int(settings.max_bytes),
            iterations=settings.iterations,
            repeats=settings.passes,
            ranks=job.nodes * step.tasks_per_node,
        )

    def metrics(self) -> dict[str, DeclaredMetric]:
        largest = int(self.settings.max_bytes)
        metrics: dict[str, DeclaredMetric] = {}
        for mode in self.settings.modes:
            metrics |= declared(mode, largest)
        return metrics


def declared(mode: str, largest: int) -> dict[str, DeclaredMetric]:
    """The metrics of a mode with messages of up to ``largest`` bytes."""
    if mode in ("gap", "roundtrip"):
        return {"gap_us" if mode == "gap" else "latency_us": DeclaredMetric("us", "lower")}
    if mode in ("bandwidth", "bidirectional"):
        return {f"{mode}_MB_s": DeclaredMetric("MB/s", "higher")}
    sizes = small_and_large(list(_due(largest, 1)))
    return {f"{mode}_{size}B_us": DeclaredMetric("us", "lower") for size in sizes}


def parse(
    text: str, mode: str, *, largest: int, iterations: int, repeats: int, ranks: int
) -> Parsed:
    """Read the standard output of one mode (a key of ``OPTIONS``).

    ``largest``: the largest size in bytes, 2 to the power of ``-m``. ``iterations``: ``-i``.
    ``repeats``: ``-e``; the figure of a size is the median of its repeats.

    Metrics: ``gap_us`` and ``latency_us`` (half the round trip) at 4 B; ``bandwidth_MB_s`` and
    ``bidirectional_MB_s`` (both directions), the highest of all sizes; for a collective
    ``MODE_<size>B_us``, the time of one call, computed from the rate, at 8 B and at the largest
    size. The size X of alltoall is the whole buffer of a rank: each rank gets X / ranks. Curves by
    mode.

    ``moved_bytes``: iterations x repeats x the least volume of each call, if the first and the last
    rank are on different nodes. Warm-ups are not counted.

    Raises ParseError.
    """
    rows: dict[int, list[float]] = {}
    due = _due(largest, repeats)
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _ROW.fullmatch(line)
        if match is None and not rows:
            continue  # lines of the MPI
        size = next(due, None)
        if match is None or size is None:
            wanted = "the end of the table" if size is None else f"'{size} FIGURE'"
            raise ParseError(f"expected {wanted}, found {line!r}", number)
        if whole(match[1], number, "a size") != size:
            raise ParseError(f"expected {size} bytes here, found {match[1]}", number)
        rows.setdefault(size, []).append(figure(match[2], number, f"the figure of {mode}"))
    missing = next(due, None)
    if missing is not None:
        raise ParseError(f"the table ends before {missing} bytes: expected it to go to {largest}")
    points = [(float(size), median(values)) for size, values in rows.items()]
    calls = iterations * repeats
    return Parsed(
        **_figures(mode, points),
        facts={f"{mode}_largest_B": largest, f"{mode}_iterations": iterations},
        moved_bytes=sum(calls * _volume(mode, size, ranks) for size in rows),
    )


def _due(largest: int, repeats: int) -> Iterator[int]:
    size = SMALLEST
    while size <= largest:
        yield from [size] * repeats
        size *= 2


def _figures(mode: str, points: list[tuple[float, float]]) -> dict:
    """The metrics and curves of a mode from its (bytes, printed figure) points."""
    if mode == "gap":
        return {"metrics": [lower("gap_us", points[0][1], "us")],
                "curves": [latency_curve("mpbench gap", points)]}  # fmt: skip
    if mode == "roundtrip":
        half = [(size, 0.5e6 / rate) for size, rate in points]
        return {"metrics": [lower("latency_us", half[0][1], "us")],
                "curves": [latency_curve("mpbench roundtrip", half)]}  # fmt: skip
    if mode in ("bandwidth", "bidirectional"):
        rates = [(size, rate * KB) for size, rate in points]
        name = f"{mode}_MB_s"
        return {"metrics": [higher(name, max(y for _, y in rates), "MB/s")],
                "curves": [bandwidth_curve(f"mpbench {mode}", rates)]}  # fmt: skip
    times = {int(size): size / (rate * KB) for size, rate in points}
    return {
        "metrics": [
            lower(f"{mode}_{size}B_us", times[size], "us") for size in small_and_large(list(times))
        ],
        "curves": [latency_curve(f"mpbench {mode}", [(float(s), t) for s, t in times.items()])],
    }


def _volume(mode: str, size: int, ranks: int) -> int:
    """Least bytes (rx + tx) of a node per call."""
    if mode in ("gap", "bandwidth"):
        return size
    if mode in ("roundtrip", "bidirectional"):
        return 2 * size
    part = size // ranks if mode == "alltoall" else size
    return per_repetition(mode, part, ranks)
