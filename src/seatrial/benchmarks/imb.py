"""Intel MPI Benchmarks: the output of one IMB-MPI1 run with any of its benchmarks.

Not for runs with ``-multi``, whose groups run at the same time, nor for IMB-NBC, IMB-RMA and
IMB-MT. The input is the standard output: a warning of the MPI between two rows counts as damage.

Conventions, from the IMB user guide and recorded output: "Mbytes/sec" is 10^6 bytes per second
(until IMB 4.1 it was 2^20; such a column is an error); t of PingPong is half of the round trip;
"Mbytes/sec" of Sendrecv counts 2 and of Exchange 4 messages per repetition, over t_max. With the
default options the sizes are 0 and the powers of two up to "Maximum message length"; reductions
have only multiples of the size of a float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    Step,
    output,
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
    small_and_large,
    spread_of,
    whole,
)
from seatrial.benchmarks.volume import per_repetition
from seatrial.results.record import Curve, Metric

END = "# All processes entering MPI_Finalize"
# Messages per repetition in "Mbytes/sec".
_MESSAGES = {"Sendrecv": 2, "Exchange": 4}
_TIMES = ["t_min[usec]", "t_max[usec]", "t_avg[usec]"]
_HEADERS = (
    ["#bytes", "#repetitions", "t[usec]", "Mbytes/sec"],
    ["#bytes", "#repetitions", *_TIMES, "Mbytes/sec"],
    ["#bytes", "#repetitions", *_TIMES],
    ["#repetitions", *_TIMES],
)
_VERSION = re.compile(r"#\s+Intel ?\(R\) MPI Benchmarks\s+(.+?), MPI-1 part\s*")
_PROCESSES = re.compile(r"# #processes = (\d+)\s*", re.ASCII)
_WAITING = re.compile(r"# \( (\d+) additional processes? waiting in MPI_Barrier\s*\)\s*", re.ASCII)
_LENGTH = re.compile(r"# (Minimum|Maximum) message length in bytes:\s+(\d+)\s*", re.ASCII)
_MSGLOG = re.compile(r"\s-msglog\s+(?:(\d+):)?(\d+)\b", re.ASCII)


@dataclass
class _Table:
    name: str
    line: int
    processes: int = 0
    waiting: int = 0
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, int, float, float]] = field(default_factory=list)  # B, reps, us, MB/s

    @property
    def sizes(self) -> list[int]:
        return [row[0] for row in self.rows]


class IMBSettings(Settings):
    nodes: SeveralNodes = [2]
    benchmarks: list[
        Literal[
            "PingPong", "PingPing", "Sendrecv", "Exchange", "Allreduce", "Alltoall", "Bcast",
            "Barrier",
        ]
    ] = ["PingPong", "PingPing", "Sendrecv", "Exchange", "Allreduce", "Alltoall", "Bcast",
         "Barrier"]  # fmt: skip
    max_bytes: Size = 4 << 20
    iterations: int = Field(default=200, ge=10, description="IMB's -iter, of each size")


class IMB(Benchmark[IMBSettings]):
    """Intel MPI Benchmarks (the successor of Pallas' PMB): point to point and collectives."""

    name = "imb"
    Settings = IMBSettings
    chooses = ("benchmarks",)
    program = "imb"
    limits = (
        Latency("*_latency_us"),
        # Each process of these needs data of another before it can end a repetition.
        Latency("barrier_us"),
        Latency("allreduce_*_us"),
        Latency("alltoall_*_us"),
        Bandwidth("ping*_bandwidth_MB_s"),
        # "Mbytes/sec" counts the messages of both directions.
        Bandwidth("sendrecv_bandwidth_MB_s", directions=2),
        Bandwidth("exchange_bandwidth_MB_s", directions=2, messages=2),
    )

    def steps(self, job: Job) -> list[Step]:
        options = [
            # The same number of repetitions for each size: by default IMB reduces the number when
            # a disturbed moment makes one slow. The limit of the step ends a hang.
            "-iter", str(self.settings.iterations), "-iter_policy", "off",
            "-time", str(self.settings.time_limit_s),
            "-msglog", f"0:{int(math.log2(int(self.settings.max_bytes)))}",
            "-npmin", str(job.nodes),
        ]  # fmt: skip
        return [Step("imb", [*job.program("imb"), *self.settings.benchmarks, *options])]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return parse(output(step, folder))

    def metrics(self) -> dict[str, DeclaredMetric]:
        sizes = [0, *(2**i for i in range(int(math.log2(int(self.settings.max_bytes))) + 1))]
        return declared(self.settings.benchmarks, sizes)


def declared(benchmarks: Sequence[str], sizes: Sequence[int]) -> dict[str, DeclaredMetric]:
    """The metrics of IMB's benchmarks with messages of these sizes (B)."""
    metrics: dict[str, DeclaredMetric] = {}
    for name in map(str.lower, benchmarks):
        if name == "barrier":
            metrics["barrier_us"] = DeclaredMetric("us", "lower")
        elif name.startswith("ping") or name in ("sendrecv", "exchange"):
            if name.startswith("ping"):
                metrics[f"{name}_latency_us"] = DeclaredMetric("us", "lower")
            metrics[f"{name}_bandwidth_MB_s"] = DeclaredMetric("MB/s", "higher")
        else:
            due = [size for size in sizes if size % 4 == 0] if "reduce" in name else sizes
            for size in small_and_large(due):
                metrics[f"{name}_{size}B_us"] = DeclaredMetric("us", "lower")
    return metrics


def parse(text: str, sizes: Sequence[int] | None = None) -> Parsed:
    """Read a whole run; ``sizes``: the message lengths in bytes of a run with ``-msglen FILE``.

    Metrics, of the largest process group of each benchmark (``NAME`` is the name of the
    benchmark in lower case):

    - PingPong, PingPing: ``NAME_latency_us`` (t at 0 bytes, as is IMB's convention, or at the
      smallest size if the run has no 0), ``NAME_bandwidth_MB_s`` (peak);
    - others with a bandwidth column (Sendrecv, Exchange): ``NAME_bandwidth_MB_s`` (peak);
    - collectives: ``NAME_<size>B_us``, t_avg at the smallest size of at least 8 B and at
      the largest;
    - Barrier: ``barrier_us``, t_avg.

    Curves by NAME: latency (t or t_avg), and bandwidth if the table has it. ``moved_bytes`` sums
    ``volume.per_repetition`` x "#repetitions" over the tables of the largest groups. A table with
    waiting processes counts 0, because the running ones may all be on one node. A damaged digit
    in "#repetitions" or in a collective's times cannot be detected unless it breaks
    t_min <= t_avg <= t_max.

    Raises ParseError.
    """
    lines = text.splitlines()
    version = next((m[1] for line in lines if (m := _VERSION.fullmatch(line))), None)
    if version is None:
        raise ParseError("expected the heading 'Intel(R) MPI Benchmarks ..., MPI-1 part'")
    end = next((i for i, line in enumerate(lines) if line.strip() == END), None)
    if end is None:
        raise ParseError(f"expected the closing line {END!r}: the output was cut off", len(lines))
    listed, after = _listed(lines)
    tables = _tables(lines[:end], after)
    _check_complete(tables, listed)
    lengths = _lengths(lines[:after], sizes)
    for table in tables:
        _check_sizes(table, lengths)

    metrics: list[Metric] = []
    curves: list[Curve] = []
    moved = 0
    unproven: list[str] = []
    for name in listed:
        table = max((t for t in tables if t.name == name), key=lambda t: t.processes)
        metrics += _metrics(table)
        curves += _curves(table)
        if table.waiting or table.processes < 2:
            unproven.append(name)
            continue
        moved += sum(
            per_repetition(name, size, table.processes) * repetitions
            for size, repetitions, _, _ in table.rows
        )
    return Parsed(
        metrics=metrics,
        curves=curves,
        facts={
            "version": version,
            "processes": tables[0].processes + tables[0].waiting,
            "benchmarks": listed,
            "not_in_moved_bytes": unproven,
        },
        moved_bytes=moved,
    )


def _listed(lines: list[str]) -> tuple[list[str], int]:
    """The benchmarks of the run, and the index of the line after their list."""
    at = next((i for i, t in enumerate(lines) if t.strip() == "# List of Benchmarks to run:"), None)
    if at is None:
        raise ParseError("expected '# List of Benchmarks to run:'")
    names: list[str] = []
    for index in range(at + 1, len(lines)):
        words = lines[index].split()
        if words[:1] == ["#"] and len(words) == 2:
            if words[1] in names:
                raise ParseError(f"expected {words[1]} once in the list", index + 1)
            names.append(words[1])
        elif words:
            if not lines[index].startswith("#---"):
                raise ParseError(f"expected a benchmark's name, found {lines[index]!r}", index + 1)
            return names, index
    raise ParseError("expected tables after the list of benchmarks", len(lines))


def _tables(lines: list[str], start: int) -> list[_Table]:
    """Read all lines from the first rule to the end. An unexpected line is an error."""
    tables: list[_Table] = []
    state = "between"  # between -> heading -> rows -> between
    for number, line in enumerate(lines[start:], start + 1):
        words = line.split()
        if state == "between":
            if words[:2] == ["#", "Benchmarking"] and len(words) == 3:
                if words[2].startswith("Multi-"):
                    raise ParseError("the groups of a run with -multi disturb each other", number)
                tables.append(_Table(words[2], number))
                state = "heading"
            elif words and not _is_rule(line):
                raise ParseError(f"expected a benchmark's heading, found {line!r}", number)
        elif state == "heading":
            if words in _HEADERS:
                if not tables[-1].processes:
                    raise ParseError("expected '# #processes = N' before the columns", number)
                tables[-1].columns = words
                state = "rows"
            else:
                _heading(tables[-1], line, number)
        elif words:
            _row(tables[-1], words, number)
        else:
            state = "between"
            if not tables[-1].rows:
                raise ParseError(f"expected rows of {tables[-1].name}, found none", number)
    if state != "between":
        raise ParseError("expected an empty line after the last table", len(lines))
    return tables


def _heading(table: _Table, line: str, number: int) -> None:
    if match := _PROCESSES.fullmatch(line):
        table.processes = whole(match[1], number, "processes")
    elif match := _WAITING.fullmatch(line):
        table.waiting = whole(match[1], number, "waiting processes")
    elif not _is_rule(line):
        raise ParseError(f"expected the heading of {table.name}, found {line!r}", number)


def _row(table: _Table, words: list[str], number: int) -> None:
    if len(words) != len(table.columns):
        raise ParseError(
            f"expected {len(table.columns)} columns of {table.name}, found {' '.join(words)!r}",
            number,
        )
    cell = dict(zip(table.columns, words, strict=True))
    size = whole(cell.get("#bytes", "0"), number, "a message size")
    repetitions = whole(cell["#repetitions"], number, "repetitions")
    if repetitions == 0:
        raise ParseError("expected at least one repetition", number)
    if "t[usec]" in cell:
        slowest = cell["t[usec]"]
        time = figure(slowest, number, "t[usec]")
    else:
        slowest = cell["t_max[usec]"]
        low, high, time = (figure(cell[key], number, key, zero=True) for key in _TIMES)
        if not low <= time <= high:
            raise ParseError(
                f"expected t_min <= t_avg <= t_max, found {low}, {time}, {high}", number
            )
    rate = 0.0
    if "Mbytes/sec" in cell:
        token = cell["Mbytes/sec"]
        rate = figure(token, number, "Mbytes/sec", zero=True)
        volume = _MESSAGES.get(table.name, 1) * size
        # Other benchmarks may count their messages in another way.
        if table.name.startswith("Ping") or table.name in _MESSAGES:
            agree(token, quotient(volume, spread_of(slowest)), number, "Mbytes/sec", "bytes and t")
    table.rows.append((size, repetitions, time, rate))


def _check_complete(tables: list[_Table], listed: list[str]) -> None:
    """Check that the tables are those of the list, with the same number of processes."""
    if not tables:
        raise ParseError("expected at least one table")
    for name in listed:
        if not any(table.name == name for table in tables):
            raise ParseError(f"expected a table of {name}, which is in the list of benchmarks")
    total = tables[0].processes + tables[0].waiting
    seen: set[tuple[str, int]] = set()
    for table in tables:
        if table.name not in listed:
            raise ParseError(f"{table.name} is not in the list of benchmarks", table.line)
        if table.processes + table.waiting != total:
            raise ParseError(
                f"expected {total} processes, running and waiting, found "
                f"{table.processes} and {table.waiting}",
                table.line,
            )
        if (table.name, table.processes) in seen:
            raise ParseError(f"{table.name} was run twice on {table.processes}", table.line)
        seen.add((table.name, table.processes))


def _lengths(heading: list[str], sizes: Sequence[int] | None) -> list[int]:
    """The message sizes that the heading announces."""
    bounds = {m[1]: int(m[2]) for line in heading if (m := _LENGTH.fullmatch(line))}
    if sizes is not None:
        return sorted(sizes)
    if set(bounds) != {"Minimum", "Maximum"}:
        raise ParseError(
            "expected the minimum and maximum message length; a run with -msglen needs its sizes"
        )
    option = _MSGLOG.search("\n".join(heading))
    size = 2 ** int(option[1] or 0) if option else 1
    lengths = [0] if bounds["Minimum"] == 0 else []
    while size <= bounds["Maximum"]:
        lengths.append(size)
        size *= 2
    return lengths


def _check_sizes(table: _Table, lengths: list[int]) -> None:
    if "#bytes" not in table.columns:
        if len(table.rows) != 1:
            raise ParseError(f"expected one row of {table.name}", table.line)
        return
    due = lengths
    if "reduce" in table.name.lower():
        due = [size for size in lengths if size % 4 == 0]
    if table.sizes != due:
        wrong = next((s for s in due if s not in table.sizes), None)
        what = f"no row of {wrong} bytes" if wrong is not None else f"sizes {table.sizes}"
        raise ParseError(f"{table.name}: expected the sizes {due}, found {what}", table.line)


def _metrics(table: _Table) -> list[Metric]:
    name = table.name.lower()
    if "#bytes" not in table.columns:
        return [lower(f"{name}_us", _above_zero(table, table.rows[0][2]), "us")]
    if "Mbytes/sec" in table.columns:
        peak = max(row[3] for row in table.rows)
        metrics = [higher(f"{name}_bandwidth_MB_s", _above_zero(table, peak), "MB/s")]
        if name.startswith("ping"):
            latency = _above_zero(table, table.rows[0][2])
            metrics.insert(0, lower(f"{name}_latency_us", latency, "us"))
        return metrics
    times = {row[0]: row[2] for row in table.rows}
    return [
        lower(f"{name}_{size}B_us", _above_zero(table, times[size]), "us")
        for size in small_and_large(table.sizes)
    ]


def _above_zero(table: _Table, value: float) -> float:
    """The value. Raises ParseError for 0, which IMB prints for times that are too short."""
    if value == 0:
        raise ParseError(f"{table.name}: expected a figure above zero", table.line)
    return value


def _curves(table: _Table) -> list[Curve]:
    if "#bytes" not in table.columns:
        return []
    name = table.name.lower()
    curves = [latency_curve(name, [(size, time) for size, _, time, _ in table.rows])]
    if "Mbytes/sec" in table.columns:
        curves.append(bandwidth_curve(name, [(size, rate) for size, _, _, rate in table.rows]))
    return curves


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"#-{20,}\s*", line))
