"""NetPIPE 3.7.2: the table that NPtcp and NPmpi print.

The table is on standard error, not on standard output (``netpipe.c``: fprintf to stderr). Not for
runs with -s (streaming), -2 (bidirectional) or -i (integrity check), whose columns have another
meaning.

Sources, all in NetPIPE 3.7.2's ``src/netpipe.c`` and ``netpipe.h``:

- "usec" is the time of one message: half of the round trip (``t /= 2``), the
  best of the trials, each averaged over "times" round trips.
- "Mbps" is ``bytes * 8 / (t * 1024 * 1024)``: units of 2^20 bit/s, which are
  2^20 / 8 / 10^6 = 0.131072 MB/s. Both columns have two decimals. The bandwidth is computed
  from the column with more digits; bytes / usec is in 10^6 B/s.
- The sizes follow from the first size, the perturbation and the upper bound. The program ends
  when the next size is above the bound or a message took 1 s (STOPTM). There is no end
  marker: the expected sizes show whether the table is complete.
- Each line was measured TRIALS times: 3, or 7 in a build with -DFINAL. 3 is used, the least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.names import NO_TRANSPORT, PLAIN_SOCKETS
from seatrial.benchmarks.benchmark import (
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    Step,
    output_and_errors,
)
from seatrial.benchmarks.limits import Bandwidth, Latency
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    agree,
    bandwidth_curve,
    figure,
    higher,
    latency_curve,
    lower,
    quotient,
    rounding,
    spread_of,
    whole,
)

DEFAULT_UPPER = 10_000_000  # MAXINT, where -u is not given
STOP_US = 1e6  # STOPTM
TRIALS = 3
MB_S_PER_MBPS = 2**20 / 8 / 1e6
START = "Now starting the main loop"
METRICS = {
    "latency_us": DeclaredMetric("us", "lower"),
    "bandwidth_MB_s": DeclaredMetric("MB/s", "higher"),
    "n_half_B": DeclaredMetric("B", "lower"),
}

_ROW = re.compile(
    r"\s*(\d+):\s+(\d+) bytes\s+(\d+) times -->\s+(\S+) Mbps in\s+(\S+) usec\s*", re.ASCII
)
_PERTURBATION = re.compile(r"Using a perturbation value of (\d+)", re.ASCII)
_OTHER_MODES = {
    "Streaming in one direction only": "-s (streaming)",
    "Passing data in both directions": "-2 (bidirectional)",
    "Doing an integrity check": "-i (integrity check)",
}
#: of Open MPI, such as that the other rank closed its connection; any rank writes it at any time
_OF_OPEN_MPI = re.compile(r"\[[\w.-]+:\d+\] ", re.ASCII)
_DISTURBED = re.compile(r"bytes|times|Mbps|usec|-->")


class NetPIPESettings(Settings):
    nodes: SeveralNodes = [2]
    max_bytes: Size = 4 << 20
    perturbation_bytes: int = Field(default=0, ge=0, description="NetPIPE's -p")
    repetitions: int | None = Field(
        default=None, ge=1, description="NetPIPE's -n, per size; none: a quarter second per size"
    )
    plain_sockets: bool = Field(default=True, description="also NPtcp, without MPI")


class NetPIPE(Benchmark[NetPIPESettings]):
    """Latency and bandwidth over the message size, over plain TCP and over each MPI."""

    name = "netpipe"
    Settings = NetPIPESettings
    chooses = ("plain_sockets",)
    program = "netpipe"
    limits = (Latency("latency_us"), Bandwidth("bandwidth_MB_s"))

    def transports(self, names: Iterable[str]) -> list[str]:
        without = {NO_TRANSPORT} | (set() if self.settings.plain_sockets else {PLAIN_SOCKETS})
        return [name for name in names if name not in without]

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        options = ["-u", str(settings.max_bytes), "-p", str(settings.perturbation_bytes)]
        if settings.repetitions:
            options += ["-n", str(settings.repetitions)]
        options += ["-o", "netpipe.np"]
        if job.transport != PLAIN_SOCKETS:
            return [Step("netpipe", [*job.program("netpipe"), *options], nodes=2)]
        receiver = [*job.program("nptcp"), "-P", str(PORT), *options]
        transmitter = [*receiver, "-h", "{address}"]
        return [Step("netpipe", job.pair("netpipe", receiver, transmitter, PORT), nodes=2)]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return parse(output_and_errors(step, folder), int(self.settings.max_bytes))

    def metrics(self) -> dict[str, DeclaredMetric]:
        return METRICS


def parse(text: str, upper: int = DEFAULT_UPPER) -> Parsed:
    """Read a whole NetPIPE run; ``upper`` is the value of its -u in bytes.

    Metrics: ``latency_us``, half the round trip at the smallest size;
    ``bandwidth_MB_s``, the highest of all sizes; ``n_half_B``, N1/2, see
    :func:`half_bandwidth`. Curves ``netpipe`` of latency and of bandwidth.

    ``moved_bytes`` is the sum over the table of 2 x bytes x times x TRIALS: in each
    trial a node sends and receives each message "times" times. A damaged digit in
    "times" cannot be detected and changes ``moved_bytes`` only.

    Raises ParseError.
    """
    lines = text.splitlines()
    for mark, option in _OTHER_MODES.items():
        if mark in text:
            raise ParseError(f"NetPIPE ran with {option}: its figures have another meaning")
    start = next((i for i, line in enumerate(lines) if line.strip() == START), None)
    if start is None:
        raise ParseError(f"expected the line {START!r} (NetPIPE prints its table to stderr)")
    perturbation = _perturbation(text)

    sizes: list[int] = []
    latency: list[tuple[float, float]] = []
    bandwidth: list[tuple[float, float]] = []
    moved, expected = 0, iter(())  # type: int, Iterator[int]
    finished, last_us = False, 0.0
    for number, line in enumerate(lines[start + 1 :], start + 2):
        match = _ROW.fullmatch(line)
        if match is None:
            if (finished or _OF_OPEN_MPI.match(line)) and not _DISTURBED.search(line):
                continue  # lines of the launcher, and of the library
            raise ParseError(
                f"expected a line 'N: SIZE bytes TIMES times --> X Mbps in Y usec', found {line!r}",
                number,
            )
        index, size = whole(match[1], number, "a count"), whole(match[2], number, "a size")
        times = whole(match[3], number, "repetitions")
        mbps = figure(match[4], number, "Mbps", zero=True)
        last_us = figure(match[5], number, "usec")
        if index != len(sizes):
            raise ParseError(f"expected line {len(sizes)} of the table, found {index}", number)
        if not sizes:
            expected = schedule(size, upper, perturbation)
        due = next(expected, None)
        if size != due:
            raise ParseError(f"expected {due} bytes here, found {size}", number)
        if times == 0:
            raise ParseError("expected at least one repetition", number)
        bits = size * 8 / 2**20 * 1e6
        agree(match[4], quotient(bits, spread_of(match[5])), number, "Mbps", "bytes and usec")
        sizes.append(size)
        latency.append((size, last_us))
        # Both have two decimals. Of slow or small messages the time has more digits, else the rate.
        by_time = rounding(match[5]) / last_us < rounding(match[4]) / (mbps or 1e-9)
        bandwidth.append((size, size / last_us if by_time else mbps * MB_S_PER_MBPS))
        moved += 2 * size * times * TRIALS
        finished = last_us >= STOP_US or _exhausted(size, sizes[0], upper, perturbation)
    if not sizes:
        raise ParseError("expected NetPIPE's table, found no line of it")
    if not finished:
        raise ParseError(
            f"the table ends at {sizes[-1]} bytes: expected sizes up to {upper}", len(lines)
        )
    return Parsed(
        metrics=[
            lower("latency_us", latency[0][1], "us"),
            higher("bandwidth_MB_s", max(y for _, y in bandwidth), "MB/s"),
            lower("n_half_B", half_bandwidth(bandwidth), "B"),
        ],
        curves=[latency_curve("netpipe", latency), bandwidth_curve("netpipe", bandwidth)],
        facts={
            "smallest_B": sizes[0],
            "largest_B": sizes[-1],
            "sizes": len(sizes),
            "stopped_early": last_us >= STOP_US,
        },
        moved_bytes=moved,
    )


def half_bandwidth(points: list[tuple[float, float]]) -> float:
    """N1/2 in bytes: the size at which the bandwidth first reaches half of its peak (Hockney).

    ``points`` are (bytes, MB/s), ascending in bytes. With (s0, b0) the last point below half the
    peak h and (s1, b1) the next, ln N = ln s0 + (h - b0) / (b1 - b0) * (ln s1 - ln s0). It is the
    smallest size if that already reaches h.
    """
    half = max(y for _, y in points) / 2
    at = next(i for i, (_, y) in enumerate(points) if y >= half)
    if at == 0:
        return points[0][0]
    (s0, b0), (s1, b1) = points[at - 1], points[at]
    return s0 * math.exp((half - b0) / (b1 - b0) * math.log(s1 / s0))


def schedule(start: int, upper: int, perturbation: int = 3) -> Iterator[int]:
    """Yield the sizes NetPIPE measures, in its order (the main loop of ``netpipe.c``)."""
    length, step = start, start // 2 if start > 1 else 1
    round_ = 1 if start > 1 else 0
    while length <= upper:
        if round_ > 2 and round_ % 2:
            step += step
        if perturbation > 0 and step > perturbation + 1:
            yield from (length - perturbation, length, length + perturbation)
        else:
            yield length
        length, round_ = length + step, round_ + 1


def _exhausted(size: int, start: int, upper: int, perturbation: int) -> bool:
    """Whether no size is due after ``size``."""
    *_, last = schedule(start, upper, perturbation)
    return size == last


def _perturbation(text: str) -> int:
    if "Using no perturbations" in text:
        return 0
    match = _PERTURBATION.search(text)
    return whole(match[1], None, "the perturbation") if match else 3  # DEFPERT
