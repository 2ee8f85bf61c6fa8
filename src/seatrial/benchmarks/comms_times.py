"""The file of times that ``comms -o`` writes.

The head of ``comms.c``, in the Spack recipe ``comms``, describes the format. The file is from a
user's job and may have any content: :func:`read_times` returns the times or raises ParseError, and
reads no more than its limit. The file ends in a CRC-32 that shows damage.
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

from seatrial.benchmarks.comms import (
    CALLS,
    LARGEST,
    MOST_PER_DECADE,
    MOST_REPETITIONS,
    RANKS,
    schedule,
)
from seatrial.benchmarks.parsing import ParseError

FILE_LIMIT = 256 * 2**20  # bytes
LONGEST_NS = 86_400 * 10**9  # one day: longer than any call
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
    """All times of a run.

    ``sizes``: message sizes in bytes, ascending, of shape (S,). ``ns``: times in nanoseconds of
    shape (S, 2, 4, R): size, rank, call as in ``CALLS``, repetition. ``resolution_ns``: the
    resolution of the clock as the system reports it. By rank: ``step_ns``, the smallest difference
    of two readings in a row, and ``cost_ns``, the time of one reading.
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
        """Times of an MPI_Send and the MPI_Recv right after it in microseconds, of shape (S, R)."""
        return (self.ns[:, rank, 0] + self.ns[:, rank, 1]) / 1e3


def read_times(path: Path, limit: int = FILE_LIMIT) -> Times:
    """Read the file of ``-o``, of either byte order; at most ``limit`` bytes of it.

    Raises ParseError, which names the file, if it cannot be read, is not a regular file, is
    larger than ``limit`` or is not that of a complete run.
    """
    try:
        # A link may lead out of the job's folder, and the open of a pipe may block.
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
    def wrong(field: str, at: int, expected: object, value: object) -> ParseError:
        return ParseError(f"{path}: {field} (byte {at}): expected {expected}, found {value}")

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
        value = header[name].tolist()
        if not good(value):
            assert kind.fields is not None
            raise wrong(name, kind.fields[name][1], expected, value)
        return value

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
    field("sizes", len(due).__eq__, len(due))
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
