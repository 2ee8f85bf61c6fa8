"""``comms``: the times of single MPI calls, by the method of ParkBench comms1.

The program prints a table, which this module reads, and writes the times of all calls to the file
of ``-o``, which ``comms_times`` reads. The head of ``comms.c``, in the Spack recipe ``comms``,
describes the measurement and both formats. Not here: models of the times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

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
from seatrial.benchmarks.limits import Bandwidth, Known, Latency, Limit
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    agree,
    bandwidth_curve,
    figure,
    higher,
    latency_curve,
    lower,
    matching_line,
    quotient,
    sealed_lines,
    spread_of,
    whole,
)
from seatrial.results.record import Curve, Metric

RANKS = 2
#: in the order of ``enum call`` in comms.c; ``recv_ready``: MPI_Recv of a message that has arrived
CALLS = ("send", "recv", "isend", "recv_ready")
#: messages of each size per repetition: three of the ping-pong, two of the ready part
MESSAGES = 5
#: environment variables that set an eager limit in bytes
EAGER_VARIABLES = (
    "OMPI_MCA_btl_tcp_eager_limit", "UCX_RNDV_THRESH", "I_MPI_EAGER_THRESHOLD",
    "MPIR_CVAR_CH4_OFI_EAGER_MAX_MSG_SIZE",
)  # fmt: skip
LARGEST = 2**30
MOST_PER_DECADE = 100
MOST_REPETITIONS = 100_000

_TITLE = re.compile(r"# comms (\d+\.\d+): times of MPI_Send, MPI_Isend and MPI_Recv between .*")
_MPI = re.compile(r"# MPI: (.*)")
_RANK = re.compile(
    r"# rank (\d): node (\S+), clock (\w+) of (\S+) ns, smallest step (\S+) ns, "
    r"one reading costs (\S+) ns"
)
_SIZES = re.compile(r"# sizes: (\d+) from (\d+) to (\d+) bytes, (\d+) per decade", re.ASCII)
_REPETITIONS = re.compile(
    r"# repetitions: (\d+) of each size, after (\d+) that are not counted", re.ASCII
)
_HEADING = "bytes MB/s round trip 0 round trip 1 send 0 send 1 recv 0 recv 1 isend 0 isend 1 "
_HEADING += "ready 0 ready 1"
_COLUMNS = 4 + RANKS * len(CALLS)


class CommsSettings(Settings):
    """Times of MPI_Send, MPI_Isend and MPI_Recv between two ranks, by message size."""

    nodes: SeveralNodes = [2]
    min_bytes: Size = Field(default=1, description="smallest message")
    max_bytes: Size = Field(default=10_000_000, description="largest message")
    sizes_per_decade: int = Field(default=6, ge=1, le=MOST_PER_DECADE)
    repetitions: int = Field(default=200, ge=1, le=MOST_REPETITIONS, description="of each size")
    warmup: int = Field(
        default=10, ge=1, le=MOST_REPETITIONS, description="repetitions that are not counted"
    )


class _RoundTrip(Limit):
    """A round trip is an MPI_Send and an MPI_Recv: it cannot be shorter than one of them."""

    def beyond(self, metric: Metric, parsed: Parsed, known: Known) -> str:
        curves = {curve.name: curve.points for curve in parsed.curves[1:]}
        for (size, half), *calls in zip(
            parsed.curves[0].points,
            *(curves[f"comms {call}_us rank 0"] for call in ("send", "recv")),
            strict=True,
        ):
            longest = max(time for _, time in calls)
            if 2 * half < longest:
                return (
                    f"a round trip of {size:.0f} B takes {2 * half:.6g} us, below its physical "
                    f"limit of {longest:.6g} us (the MPI_Send or MPI_Recv that is a part of it)"
                )
        return ""


class Comms(Benchmark[CommsSettings]):
    name = "comms"
    Settings = CommsSettings
    program = "comms"
    limits = (Latency("latency_us"), Bandwidth("bandwidth_MB_s"), _RoundTrip("*"))

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        smallest, largest = int(self.settings.min_bytes), int(self.settings.max_bytes)
        if not 1 <= largest <= LARGEST:
            yield FieldProblem(
                "max_bytes", f"{largest} B is not a size of comms", f"1 to {LARGEST} B"
            )
        elif not 1 <= smallest <= largest:
            yield FieldProblem(
                "min_bytes", f"{smallest} B is not a size of comms", f"1 to {largest} B"
            )

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        options = [
            "-l", str(settings.min_bytes), "-u", str(settings.max_bytes),
            "-p", str(settings.sizes_per_decade), "-r", str(settings.repetitions),
            "-w", str(settings.warmup), "-o", "comms.times",
        ]  # fmt: skip
        return [Step("comms", [*job.program("comms"), *options], nodes=2)]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        """As ``parse``, with the eager limit as the facts ``eager_limit_B`` and its source."""
        parsed = parse(output(step, folder))
        if limit := eager_limit(job.env):
            parsed.facts["eager_limit_B"], parsed.facts["eager_limit_source"] = limit
        return parsed

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {
            "latency_us": DeclaredMetric("us", "lower"),
            "bandwidth_MB_s": DeclaredMetric("MB/s", "higher"),
        }


def eager_limit(env: Mapping[str, str]) -> tuple[int, str] | None:
    """The size in bytes up to which an MPI sends at once, and the source; None if it is not known.

    ``env``: what the transport sets. An MPI that chooses the limit itself, as UCX's ``auto``, has
    none that is known. Sources: the MPIs' manuals; for Open MPI's default
    ``opal/mca/btl/tcp/btl_tcp_component.c``, 64 KiB, which include the header.
    """
    for name in EAGER_VARIABLES:
        value = env.get(name, "").strip()
        if match := re.fullmatch(r"([1-9][0-9]{0,12})([kKmM]?)[bB]?", value, re.ASCII):
            unit = {"": 1, "k": 2**10, "m": 2**20}[match[2].lower()]
            return int(match[1]) * unit, f"{name}={value}"
        if value:
            return None
    if env.get("OMPI_MCA_pml") == "ob1" and "tcp" in env.get("OMPI_MCA_btl", "").split(","):
        return 64 * 2**10, "the default of Open MPI's btl tcp"
    return None


def schedule(smallest: int, largest: int, per_decade: int) -> list[int]:
    """The sizes in bytes that the program measures (``schedule`` of comms.c).

    smallest x 10^(i / per_decade) for i = 0, 1, 2 ..., rounded, without repetition; then the
    largest.
    """
    sizes: list[int] = []
    step = 0
    while (size := math.floor(smallest * 10 ** (step / per_decade) + 0.5)) < largest:
        if not sizes or size > sizes[-1]:
            sizes.append(size)
        step += 1
    return [*sizes, largest]


def parse(text: str) -> Parsed:
    """Read the standard output of a run.

    Metrics: ``latency_us``, half of the median round trip of rank 0 at the smallest size;
    ``bandwidth_MB_s``, the size over half of the median round trip, the highest of all sizes.
    Curves: ``comms`` (latency, and bandwidth), and for each call of ``CALLS`` and each rank the
    median time, such as ``comms send_us rank 0``.

    ``moved_bytes``: the sum over the sizes of size x repetitions x 5 messages, each of which
    leaves one node and enters the other. Warm-ups and the messages of one byte are not counted.

    Raises ParseError.
    """
    lines, first = sealed_lines(text, _TITLE, "'# comms VERSION: times of ...'")
    line = partial(matching_line, lines, first)
    version = line(0, _TITLE, "the title")[1]
    library = line(1, _MPI, "'# MPI: NAME'")[1]
    clocks = [line(2 + rank, _RANK, f"node and clock of rank {rank}") for rank in range(RANKS)]
    for rank, match in enumerate(clocks):
        if int(match[1]) != rank:
            raise ParseError(f"expected rank {rank}, found rank {match[1]}", first + 2 + rank)
    options = line(4, _SIZES, "'# sizes: COUNT from MIN to MAX bytes, COUNT per decade'")
    at = first + 4
    count, smallest, largest, density = (whole(options[i], at, "sizes") for i in range(1, 5))
    _within(smallest, 1, largest, "the smallest size", at)
    _within(largest, smallest, LARGEST, "the largest size", at)
    _within(density, 1, MOST_PER_DECADE, "sizes per decade", at)
    due = schedule(smallest, largest, density)
    if count != len(due):
        raise ParseError(f"expected {len(due)} sizes, found {count}", at)
    match = line(5, _REPETITIONS, "'# repetitions: COUNT of each size, after COUNT ...'")
    repetitions, warmup = (whole(match[i], first + 5, "repetitions") for i in (1, 2))
    _within(repetitions, 1, MOST_REPETITIONS, "repetitions", first + 5)
    if len(lines) < 9 or lines[8].removeprefix("#").split() != _HEADING.split():
        raise ParseError(f"expected the heading '#{_HEADING}'", first + 8)
    if len(lines) - 9 != len(due):
        raise ParseError(f"expected {len(due)} rows, found {len(lines) - 9}", first + 8)
    rows = [_row(lines[9 + i], due[i], first + 9 + i) for i in range(len(due))]
    latency = [(float(size), row[1] / 2) for size, row in zip(due, rows, strict=True)]
    bandwidth = [(size, size / half) for size, half in latency]
    calls = [(call, rank) for call in CALLS for rank in range(RANKS)]
    return Parsed(
        metrics=[
            lower("latency_us", latency[0][1], "us"),
            higher("bandwidth_MB_s", max(rate for _, rate in bandwidth), "MB/s"),
        ],
        curves=[
            latency_curve("comms", latency),
            bandwidth_curve("comms", bandwidth),
            *(
                Curve(
                    name=f"comms {call}_us rank {rank}",
                    y_name="time",
                    y_unit="us",
                    points=[(float(size), row[3 + i]) for size, row in zip(due, rows, strict=True)],
                )
                for i, (call, rank) in enumerate(calls)
            ),
        ],
        facts={
            "version": version,
            "mpi": library,
            "nodes": [match[2] for match in clocks],
            "clock": clocks[0][3],
            "clock_resolution_ns": _clock(clocks, 4, first),
            "clock_step_ns": _clock(clocks, 5, first),
            "clock_cost_ns": _clock(clocks, 6, first),
            "smallest_B": smallest,
            "largest_B": largest,
            "sizes": len(due),
            "repetitions": repetitions,
            "warmup": warmup,
        },
        moved_bytes=MESSAGES * repetitions * sum(due),
    )


def _within(value: int, low: int, high: int, what: str, line: int) -> None:
    if not low <= value <= high:
        raise ParseError(f"expected {what} from {low} to {high}, found {value}", line)


def _clock(clocks: list[re.Match[str]], group: int, first: int) -> list[float]:
    """A property of the clock of each rank, in ns."""
    return [
        figure(match[group], first + 2 + rank, "a time of the clock", zero=True)
        for rank, match in enumerate(clocks)
    ]


def _row(line: str, due: int, number: int) -> list[float]:
    """The figures of a row: MB/s, then in us the round trips by rank and the calls by rank."""
    words = line.split()
    if len(words) != _COLUMNS:
        raise ParseError(f"expected a size and {_COLUMNS - 1} figures, found {line!r}", number)
    if whole(words[0], number, "a size") != due:
        raise ParseError(f"expected {due} bytes here, found {words[0]}", number)
    # A call may be shorter than a step of the clock, and a low rate may be rounded to 0.
    figures = [
        figure(word, number, "a figure", zero=index not in (1, 2))
        for index, word in enumerate(words[1:])
    ]
    rate = quotient(2.0 * due, spread_of(words[2]))
    agree(words[1], rate, number, "MB/s", "bytes and round trip")
    return figures
