"""``comms``, this project's program of the ParkBench comms1 kind: its table and its file of times.

The table goes to standard output, the times of all calls to the file of ``-o``. What is measured
and the format of the file stand at the head of ``comms.c``, in the Spack recipe ``comms``. Both
end in a CRC-32, so no damage goes unseen. The file comes from a user's job: whatever it holds,
:func:`read_times` gives the times or raises ParseError, and reads no more than its limit.

Not here: models of the times.
"""

from __future__ import annotations

import math
import os
import re
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    spread_of,
    whole,
)
from seatrial.results.record import Curve

RANKS = 2
#: in the order of the program's ``enum call``; ``recv_ready``: MPI_Recv of a message that is there
CALLS = ("send", "recv", "isend", "recv_ready")
#: messages of each size per repetition: three of the ping-pong, two of the ready part
MESSAGES = 5
LARGEST = 2**30
MOST_PER_DECADE = 100
MOST_REPETITIONS = 100_000
FILE_LIMIT = 256 * 2**20  # bytes
LONGEST_NS = 86_400 * 10**9  # no job waits a day for one call

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
_CRC = re.compile(r"# crc32 ([0-9a-f]{8})")
_COLUMNS = 4 + RANKS * len(CALLS)

_MAGIC = b"COMMSRAW"
_ORDER = 0x01020304


def _header(order: str) -> np.dtype:
    """``struct header`` of comms.c in a byte order, ``<`` or ``>``."""
    whole_numbers = ["byte_order", "version", "bytes", "sizes", "repetitions", "warmup"]
    whole_numbers += ["smallest", "largest", "per_decade", "ranks", "calls", "zero"]
    fields: list[Any] = [("magic", "S8"), *((name, f"{order}u4") for name in whole_numbers)]
    fields += [("resolution_ns", f"{order}f8"), ("step_ns", f"{order}f8", (RANKS,))]
    return np.dtype([*fields, ("cost_ns", f"{order}f8", (RANKS,)), ("clock", "V32")])


@dataclass(frozen=True)
class Times:
    """Every time of a run.

    ``sizes``: message sizes in bytes, ascending, of shape (S,). ``ns``: times in nanoseconds of
    shape (S, 2, 4, R): size, rank, call as in ``CALLS``, repetition. ``resolution_ns`` is what
    the system says of the clock; ``step_ns`` is the smallest difference of two readings in a row
    and ``cost_ns`` the time of one reading, each by rank.
    """

    sizes: NDArray[np.int64]
    ns: NDArray[np.int64]
    warmup: int
    clock: str
    resolution_ns: float
    step_ns: tuple[float, float]
    cost_ns: tuple[float, float]

    def us(self, call: str, rank: int) -> NDArray[np.float64]:
        """Times of one of ``CALLS`` on a rank in microseconds, of shape (S, R)."""
        return self.ns[:, rank, CALLS.index(call)] / 1e3

    def round_trip_us(self, rank: int) -> NDArray[np.float64]:
        """Of shape (S, R): an MPI_Send and the MPI_Recv that followed it at once."""
        return (self.ns[:, rank, 0] + self.ns[:, rank, 1]) / 1e3


def schedule(smallest: int, largest: int, per_decade: int) -> list[int]:
    """The sizes in bytes that the program measures (``schedule`` of comms.c).

    smallest x 10^(i / per_decade) for i = 0, 1, 2 ..., rounded, each once; the largest is the last.
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
    ``bandwidth_MB_s``, the highest of all sizes, of bytes in half of that round trip. Curves
    ``comms`` of latency and of bandwidth, and of the median time of each call on each rank
    ``comms send_us rank 0`` and so on, with the calls of ``CALLS``.

    ``moved_bytes``: the sum over sizes of size x repetitions x 5 messages, each of which leaves
    one node and enters the other. Warm-ups and the messages of one byte are not counted.

    Raises ParseError.
    """
    lines, first = _own_lines(text)

    def line(index: int, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.fullmatch(lines[index]) if index < len(lines) else None
        if match is None:
            found = repr(lines[index]) if index < len(lines) else "the end"
            raise ParseError(f"expected {what}, found {found}", first + index)
        return match

    version = line(0, _TITLE, "the title")[1]
    library = line(1, _MPI, "'# MPI: NAME'")[1]
    clocks = [line(2 + rank, _RANK, f"node and clock of rank {rank}") for rank in range(RANKS)]
    for rank, match in enumerate(clocks):
        if int(match[1]) != rank:
            raise ParseError(f"expected rank {rank}, found rank {match[1]}", first + 2 + rank)
    asked = line(4, _SIZES, "'# sizes: COUNT from MIN to MAX bytes, COUNT per decade'")
    at = first + 4
    count, smallest, largest, density = (whole(asked[i], at, "sizes") for i in range(1, 5))
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


def _own_lines(text: str) -> tuple[list[str], int]:
    """The program's lines without the last, and the number of the first; their checksum is right.

    An MPI or a launcher may print before them and after them.
    """
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if _TITLE.fullmatch(line)]
    if len(starts) != 1:
        raise ParseError(f"expected one line '# comms VERSION: times of ...', found {len(starts)}")
    start = starts[0]
    for index, line in enumerate(lines[start:], start):
        match = _CRC.fullmatch(line)
        if match and index + 1 < len(lines):  # the line has its end
            own = lines[start:index]
            found = zlib.crc32("".join(f"{line}\n" for line in own).encode())
            if found != int(match[1], 16):
                raise ParseError(
                    f"expected lines of checksum {match[1]}, found {found:08x}: a line between "
                    f"{start + 1} and {index} is damaged, or is not of comms",
                    index + 1,
                )
            return own, start + 1
    raise ParseError("expected '# crc32 ...' at the end: the table is cut off", len(lines))


def _within(value: int, low: int, high: int, what: str, line: int) -> None:
    if not low <= value <= high:
        raise ParseError(f"expected {what} from {low} to {high}, found {value}", line)


def _clock(clocks: list[re.Match[str]], group: int, first: int) -> list[float]:
    """A figure of the clock by rank, in ns."""
    return [
        figure(match[group], first + 2 + rank, "a time of the clock", zero=True)
        for rank, match in enumerate(clocks)
    ]


def _row(line: str, due: int, number: int) -> list[float]:
    """Figures of a row after the size: MB/s, round trips by rank, calls by rank, in us."""
    words = line.split()
    if len(words) != _COLUMNS:
        raise ParseError(f"expected a size and {_COLUMNS - 1} figures, found {line!r}", number)
    if whole(words[0], number, "a size") != due:
        raise ParseError(f"expected {due} bytes here, found {words[0]}", number)
    # A call may be shorter than a step of the clock; so few bytes per second may round to nothing.
    found = [
        figure(word, number, "a figure", zero=index not in (1, 2))
        for index, word in enumerate(words[1:])
    ]
    rate = quotient(2.0 * due, spread_of(words[2]))
    agree(words[1], rate, number, "MB/s", "bytes and round trip")
    return found


def read_times(path: Path, limit: int = FILE_LIMIT) -> Times:
    """Read the file of ``-o``, of either byte order; at most ``limit`` bytes of it.

    Raises ParseError, which names the file, where it cannot be read, is no regular file, is
    larger than ``limit`` or is not what a whole run writes.
    """
    try:
        # A link could lead out of the job's folder, and the opening of a pipe could wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ParseError(f"{path}: expected a regular file")
            if status.st_size > limit:
                raise ParseError(
                    f"{path}: expected at most {limit} bytes, found {status.st_size}: "
                    "use fewer repetitions (-r) or sizes (-p)"
                )
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                data = stream.read(status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ParseError(f"{path}: {error.strerror}") from None
    return _times(data, path)


def _times(data: bytes, path: Path) -> Times:
    def wrong(field: str, at: int, expected: object, found: object) -> ParseError:
        return ParseError(f"{path}: {field} (byte {at}): expected {expected}, found {found}")

    size_of_header = _header("<").itemsize
    if len(data) < size_of_header + 4:
        raise ParseError(f"{path}: expected a header of {size_of_header} bytes: the file is cut")
    if data[:8] != _MAGIC:
        raise wrong("magic", 0, _MAGIC, data[:8])
    order = next((o for o in "<>" if np.frombuffer(data, f"{o}u4", 1, 8)[0] == _ORDER), None)
    if order is None:
        raise wrong("byte_order", 8, f"{_ORDER:#x} in either order", data[8:12])
    kind = _header(order)
    header = np.frombuffer(data, kind, 1)[0]

    def field(name: str, good: Callable[[Any], bool], expected: object) -> Any:
        found = header[name].tolist()
        if not good(found):
            assert kind.fields is not None
            raise wrong(name, kind.fields[name][1], expected, found)
        return found

    fixed = {"version": 1, "bytes": size_of_header, "ranks": RANKS, "calls": len(CALLS), "zero": 0}
    for name, value in fixed.items():
        field(name, value.__eq__, value)
    largest = field("largest", lambda n: 1 <= n <= LARGEST, f"1 to {LARGEST}")
    smallest = field("smallest", lambda n: 1 <= n <= largest, f"1 to {largest}")
    density = field("per_decade", lambda n: 1 <= n <= MOST_PER_DECADE, f"1 to {MOST_PER_DECADE}")
    most = MOST_REPETITIONS
    repetitions = field("repetitions", lambda n: 1 <= n <= most, f"1 to {most}")
    warmup = field("warmup", lambda n: 1 <= n <= most, f"1 to {most}")
    due = np.array(schedule(smallest, largest, density), dtype=np.int64)
    field("sizes", lambda found: found == len(due), len(due))
    shape = (len(due), RANKS, len(CALLS), repetitions)
    start = size_of_header + 8 * len(due)
    end = start + 8 * math.prod(shape)
    if len(data) != end + 4:
        raise ParseError(f"{path}: expected {end + 4} bytes, found {len(data)}: the file is cut")
    stored = int(np.frombuffer(data, f"{order}u4", 1, end)[0])
    if zlib.crc32(data[:end]) != stored:
        raise wrong("checksum", end, f"{zlib.crc32(data[:end]):08x}", f"{stored:08x}")
    sizes = np.frombuffer(data, f"{order}u8", len(due), size_of_header)
    if not np.array_equal(sizes, due):
        raise wrong("sizes", size_of_header, due.tolist(), sizes.tolist())
    ns = np.frombuffer(data, f"{order}u8", math.prod(shape), start)
    if ns.max() > LONGEST_NS:
        at = int(ns.argmax())
        raise wrong("a time", start + 8 * at, f"at most {LONGEST_NS} ns", int(ns[at]))
    positive = "a time above zero"
    return Times(
        sizes=due,
        ns=ns.astype(np.int64).reshape(shape),
        warmup=warmup,
        clock=field("clock", _is_name, "a name").rstrip(b"\0").decode("ascii"),
        resolution_ns=field("resolution_ns", lambda t: math.isfinite(t) and t > 0, positive),
        step_ns=tuple(field("step_ns", lambda t: np.isfinite(t).all() and min(t) > 0, positive)),
        cost_ns=tuple(
            field("cost_ns", lambda t: np.isfinite(t).all() and min(t) >= 0, "no negative time")
        ),
    )


def _is_name(text: bytes) -> bool:
    return re.fullmatch(rb"[A-Z_]{1,31}\0+", text) is not None
