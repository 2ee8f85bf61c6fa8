"""OSU micro-benchmarks: the C programs (5.x to 7.x) and mpi4py's ``demo/osu_*.py``.

The input is the standard output of one test. There is no end marker, so the caller gives the
expected sizes, or they are the program's defaults. A table with one column of figures has no
redundancy: a damaged digit cannot be detected.

Conventions of the sources (``osu_util_mpi.c``; mpi4py 4.1): latency is half of the round trip in
us, bandwidth is in 10^6 B/s. In mpi4py all tables have the heading "Latency [us]", also those of
bandwidth; its osu_bibw.py counts one direction and the C program both, so its figures are doubled
here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    SeveralNodes,
    SiteFacts,
    Step,
    output,
    too_many_cores,
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
    rounding,
    small_and_large,
    whole,
)
from seatrial.benchmarks.volume import per_repetition
from seatrial.results.record import Curve, Metric

PT2PT = 1 << 22  # default largest sizes, bytes
COLLECTIVE = 1 << 20
WINDOW = 64  # messages of a bandwidth test between two replies, the default of -W
LARGE = 8192  # LARGE_MESSAGE_SIZE: beyond it there are fewer repetitions

_C_TITLE = re.compile(r"# OSU MPI(?:-\w+)? (.+?) v(\d[\w.]*)\s*")
_PY_TITLE = re.compile(r"# MPI (.+? Test)\s*")
# Title without " Test" -> test.
_TESTS = {
    "Latency": "latency",
    "Bandwidth": "bw",
    "Bi-Directional Bandwidth": "bibw",
    "Multi Latency": "multi_lat",
    "Multi-process Latency": "multi_lat",
    "Multiple Bandwidth / Message Rate": "mbw_mr",
    "Allgather Latency": "allgather",
    "Allgatherv Latency": "allgatherv",
    "Allreduce Latency": "allreduce",
    "All-to-All Personalized Exchange Latency": "alltoall",
    "All-to-All Latency": "alltoall",
    "All-to-Allv Personalized Exchange Latency": "alltoallv",
    "Alltoallv Latency": "alltoallv",
    "Barrier Latency": "barrier",
    "Broadcast Latency": "bcast",
    "Gather Latency": "gather",
    "Gatherv Latency": "gatherv",
    "Reduce Latency": "reduce",
    "Reduce_scatter Latency": "reduce_scatter",
    "Scatter Latency": "scatter",
    "Scatterv Latency": "scatterv",
}
_PT2PT = ("latency", "bw", "bibw", "multi_lat", "mbw_mr")
_BANDWIDTHS = ("bw", "bibw", "mbw_mr")
_COLUMN = re.compile(
    r"((?:Avg |Min |Max |P\d+ Tail )?(?:Latency|Bandwidth) ?[(\[][\w/]+[)\]]"
    r"|MB/s|Messages/s|Iterations|Validation)"
)
_HUNDREDTHS = re.compile(r"\d+\.\d\d", re.ASCII)  # FLOAT_PRECISION


@dataclass(frozen=True)
class _Row:
    size: int
    value: float  # us or MB/s
    rate: float | None = None  # messages per second
    iterations: int | None = None


class OSUSettings(Settings):
    nodes: SeveralNodes = [2]
    tests: list[Literal["latency", "bw", "bibw", "multi_lat"]] = [
        "latency", "bw", "bibw", "multi_lat",
    ]  # fmt: skip
    max_bytes: Size = 1 << 20
    iterations: int = Field(default=200, ge=10, description="per size, of small messages")
    pairs: int = Field(default=2, ge=1, description="of multi_lat")


class OSU(Benchmark[OSUSettings]):
    """OSU micro-benchmarks: latency, bandwidth in one and in both directions, several pairs."""

    name = "osu"
    Settings = OSUSettings
    chooses = ("tests",)
    limits = (
        Latency("*lat*_us"),
        Bandwidth("bw_MB_s", messages=WINDOW),
        Bandwidth("bibw_MB_s", directions=2, messages=WINDOW),
    )

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return all(f"osu_{test}" in programs for test in self.settings.tests)

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        options = [
            "-m", str(settings.max_bytes), "-i", str(settings.iterations),
            "-x", str(max(1, settings.iterations // 10)),
        ]  # fmt: skip
        return [
            Step(
                f"osu-{test}",
                [*job.program(f"osu_{test}"), *options],
                nodes=2,
                tasks_per_node=settings.pairs if test.startswith("m") else 1,
            )
            for test in settings.tests
        ]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        settings = self.settings
        return parse(
            output(step, folder),
            largest=int(settings.max_bytes),
            iterations=(settings.iterations, max(2, settings.iterations // 10)),
            processes=2 * step.tasks_per_node,
        )

    def metrics(self) -> dict[str, DeclaredMetric]:
        largest = int(self.settings.max_bytes)
        return {
            name: declared_metric
            for test in self.settings.tests
            for name, declared_metric in declared(test, largest).items()
        }

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        if "multi_lat" in self.settings.tests:
            yield from too_many_cores("pairs", self.settings.pairs, site)


def declared(test: str, largest: int) -> dict[str, DeclaredMetric]:
    """The metrics of a test with messages of up to ``largest`` bytes, a power of two."""
    if test == "latency":
        return {"latency_us": DeclaredMetric("us", "lower")}
    if test in ("multi_lat", "barrier"):
        return {f"{test}_us": DeclaredMetric("us", "lower")}
    if test in _BANDWIDTHS:
        rate = (
            {"mbw_mr_messages_per_s": DeclaredMetric("1/s", "higher")} if test == "mbw_mr" else {}
        )
        return {f"{test}_MB_s": DeclaredMetric("MB/s", "higher"), **rate}
    sizes = [2**i for i in range(largest.bit_length())]
    return {f"{test}_{size}B_us": DeclaredMetric("us", "lower") for size in small_and_large(sizes)}


def parse(
    text: str,
    *,
    largest: int | None = None,
    smallest: int | None = None,
    iterations: tuple[int, int] | None = None,
    window: int = WINDOW,
    processes: int = 2,
) -> Parsed:
    """Read one test.

    ``smallest`` and ``largest``: the sizes of ``-m`` in bytes. Defaults, as in the programs:
    largest 4 MiB for point to point, 1 MiB for collectives; smallest 1 B, in reductions 4 B, in
    mpi4py 0 B but 1 B for bandwidths. The C osu_latency begins at 0 B in older versions and at 1 B
    in later ones: without ``smallest`` both are accepted. ``iterations``: the repetitions for
    messages up to 8 KiB and above (``-i``); the default is the least of the versions, see
    :func:`_iterations`. ``window``: ``-W``.

    Metrics: ``latency_us`` or ``multi_lat_us`` at the smallest size; ``bw_MB_s``,
    ``bibw_MB_s`` (both directions), ``mbw_mr_MB_s`` (all pairs) and ``mbw_mr_messages_per_s``, the
    highest of all sizes; for collectives ``TEST_<size>B_us`` at the smallest size of at least 8 B
    and at the largest; ``barrier_us``. Curves by test.

    ``moved_bytes``: the sum over the sizes of bytes per repetition x repetitions. The repetitions
    are ``iterations``, or the column of that name (``-f``). Bytes per repetition: 2X for latencies,
    X x window for bandwidths (bibw 2X x window), of one pair; for collectives
    ``volume.per_repetition`` of ``processes``.

    Raises ParseError.
    """
    lines = text.splitlines(keepends=True)
    test, version, at = _title(lines)
    rows = _rows(lines, at, test, python=version is None)
    if test == "barrier":
        if len(rows) != 1:
            raise ParseError(f"expected one line of the barrier's time, found {len(rows)}")
    else:
        _check_sizes(test, rows, smallest, largest, python=version is None)
    if test == "bibw" and version is None:
        rows = [_Row(row.size, 2 * row.value) for row in rows]
    small, large = iterations or _iterations(test, python=version is None)
    moved = 0
    for row in rows:
        count = row.iterations or (small if row.size <= LARGE else large)
        moved += _bytes(test, row.size, window, processes) * count
    facts: dict[str, object] = {"test": test, "program": "mpi4py" if version is None else "C"}
    if version is not None:
        facts["version"] = version
    if test != "barrier":
        facts |= {"smallest_B": rows[0].size, "largest_B": rows[-1].size}
    return Parsed(
        metrics=_metrics(test, rows), curves=_curves(test, rows), facts=facts, moved_bytes=moved
    )


def _title(lines: list[str]) -> tuple[str, str | None, int]:
    """Test, version (None: mpi4py), and the index of the title's line."""
    titles: list[tuple[str, str | None, int]] = []
    for index, line in enumerate(lines):
        c, python = _C_TITLE.fullmatch(line), _PY_TITLE.fullmatch(line)
        match = c or python
        if match is None:
            continue
        name = match[1].removesuffix(" Test")
        if name not in _TESTS:
            raise ParseError(f"expected a test of the table in osu.py, found {name!r}", index + 1)
        titles.append((_TESTS[name], c[2] if c else None, index))
    if len(titles) != 1:
        raise ParseError(f"expected the title of one OSU test, found {len(titles)}")
    return titles[0]


def _rows(lines: list[str], at: int, test: str, *, python: bool) -> list[_Row]:
    columns: list[str] = []
    rows: list[_Row] = []
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if line.startswith("#"):
            if rows:
                raise ParseError(f"expected a row, found {line.strip()!r}", number)
            columns = _COLUMN.findall(line) or columns
        elif words:
            if not columns:
                raise ParseError("expected the names of the columns before the rows", number)
            if not line.endswith("\n"):
                raise ParseError("expected the line to end: it was cut off", number)
            rows.append(_row(words, columns, test, number))
    if not rows:
        raise ParseError("expected a table, found no row of it", len(lines))
    unit = "us" in columns[0] or python
    if unit == (test in _BANDWIDTHS) and not python:
        raise ParseError(f"expected the columns of {test}, found {columns}")
    return rows


def _row(words: list[str], columns: list[str], test: str, number: int) -> _Row:
    # A barrier has no size, but mpi4py prints one.
    sized = len(words) == len(columns) + 1
    if not sized and (test != "barrier" or len(words) != len(columns)):
        raise ParseError(f"expected a size and {', '.join(columns)}, found {words}", number)
    size = whole(words[0], number, "a message size") if sized else 0
    rate = count = None
    figures: list[float] = []
    for name, token in zip(columns, words[-len(columns) :], strict=True):
        if name == "Validation":
            if token != "Pass":
                raise ParseError(f"the validation of {size} bytes says {token}", number)
        elif name == "Iterations":
            count = whole(token, number, name)
        else:
            if not _HUNDREDTHS.fullmatch(token):
                raise ParseError(f"expected {name} with two decimals, found {token!r}", number)
            # A low rate may be rounded to 0, a time may not.
            figures.append(figure(token, number, name, zero=test in _BANDWIDTHS))
            if name == "Messages/s":
                rate = figures[-1]
                half = rounding(token)
                per_s = ((rate - half) * size / 1e6, (rate + half) * size / 1e6)
                agree(words[1], per_s, number, "MB/s", "size and Messages/s")
    return _Row(size, figures[0], rate, count)


def _check_sizes(
    test: str, rows: list[_Row], smallest: int | None, largest: int | None, *, python: bool
) -> None:
    sizes = [row.size for row in rows]
    top = largest or (PT2PT if test in _PT2PT else COLLECTIVE)
    starts: tuple[int, ...] = (1,)
    if smallest is not None:
        starts = (smallest,)
    elif python:
        starts = (1,) if test in _BANDWIDTHS else (0,)
    elif "reduce" in test:
        starts = (4,)
    elif test in ("latency", "multi_lat"):
        starts = (0, 1)
    due: list[int] = []
    for start in starts:
        due = [start]
        while max(2 * due[-1], 1) <= top:
            due.append(max(2 * due[-1], 1))
        if sizes == due:
            return
    missing = next((size for size in due if size not in sizes), None)
    raise ParseError(
        f"expected the sizes from {' or '.join(map(str, starts))} to {top} bytes, doubling; "
        + (f"{missing} is missing" if missing is not None else f"found {sizes}")
    )


def _iterations(test: str, *, python: bool) -> tuple[int, int]:
    """Timed repetitions for messages up to 8 KiB, and above.

    C, ``osu_util_mpi.h``: LAT_LOOP 10000 and 1000, BW_LOOP 100 and 20, COLL_LOOP 1000 and 100.
    mpi4py: loop and loop_large of each program; some collectives do 10000, and 1000 is the lower
    bound; latencies of large messages do 100.
    """
    if test in _BANDWIDTHS:
        return 100, 20
    if test == "latency":
        return 10000, 100 if python else 1000
    if test == "multi_lat":
        return 10000, 1000
    return 1000, 100


def _bytes(test: str, size: int, window: int, processes: int) -> int:
    if test in ("latency", "multi_lat"):
        return 2 * size
    if test in ("bw", "mbw_mr"):
        return size * window
    if test == "bibw":
        return 2 * size * window
    return per_repetition(test, size, processes)


def _metrics(test: str, rows: list[_Row]) -> list[Metric]:
    if test in ("latency", "multi_lat"):
        name = "latency_us" if test == "latency" else "multi_lat_us"
        return [lower(name, rows[0].value, "us")]
    if test == "barrier":
        return [lower("barrier_us", rows[0].value, "us")]
    if test in _BANDWIDTHS:
        peak = max(row.value for row in rows)
        if peak == 0:
            raise ParseError("expected a bandwidth above zero")
        metrics = [higher(f"{test}_MB_s", peak, "MB/s")]
        rates = [row.rate for row in rows if row.rate is not None]
        return metrics + ([higher(f"{test}_messages_per_s", max(rates), "1/s")] if rates else [])
    at = {row.size: row.value for row in rows}
    return [lower(f"{test}_{size}B_us", at[size], "us") for size in small_and_large(list(at))]


def _curves(test: str, rows: list[_Row]) -> list[Curve]:
    if test == "barrier":
        return []
    points = [(float(row.size), row.value) for row in rows]
    return [bandwidth_curve(test, points) if test in _BANDWIDTHS else latency_curve(test, points)]
