"""NAS Parallel Benchmarks 3.x, MPI: IS, EP, CG, MG, FT, LU, BT and SP.

Reads the last block of the output (``print_results.f90``, ``c_print_results.c``), of the Fortran
suite and of SimGrid's C adaptation of IS and EP. Not for the OpenMP suite, which has no processes,
nor for DT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks import mpi_time
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    SiteFacts,
    Step,
    output,
    too_many_cores,
)
from seatrial.benchmarks.limits import Transfer
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    agree,
    figure,
    higher,
    lower,
    quotient,
    rounding,
    spread_of,
    whole,
)

_COMPLETED = re.compile(r"\s*([A-Z]{2}) Benchmark Completed\.?\s*")
_FIELD = re.compile(r" ([A-Z][\w/ ]*?) *= *(.*?)\s*")
_NEEDED = (
    *("Class", "Size", "Iterations", "Time in seconds", "Total processes"),
    *("Mop/s total", "Mop/s/process", "Verification"),
)
#: size of CG -> ``nonzer`` of classes S to E (``setparams.c``)
_NON_ZEROS = {1400: 7, 7000: 8, 14000: 11, 75000: 13, 150000: 15, 1500000: 21, 9000000: 26}
# Only SimGrid's EP prints this line, with this spelling.
_SIMGRID_EP = "No. Gaussain Pairs ="


METRICS = {"mops": DeclaredMetric("Mop/s", "higher"), "time_s": DeclaredMetric("s", "lower")}


class NPBSettings(Settings):
    kernels: list[Literal["is", "ep", "cg", "mg", "ft", "lu", "bt", "sp"]] = ["is", "ep"]
    problem_class: Literal["S", "W", "A", "B", "C"] = "S"
    ranks_per_node: int = Field(default=1, ge=1)
    mpi_time: list[str] = mpi_time.SETTING


class NPB(Benchmark[NPBSettings]):
    """NAS Parallel Benchmarks: from IS (communication-bound) to EP (compute-bound)."""

    name = "npb"
    performance = "mops"
    limits = (Transfer("time_s"),)
    Settings = NPBSettings
    chooses = ("kernels", "problem_class", "mpi_time")

    def variants(self) -> list[str]:
        return [f"{kernel}.{self.settings.problem_class}" for kernel in self.settings.kernels]

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return command(programs, variant, 1) is not None

    def not_measured(self, transport: str, programs: Programs) -> str:
        return mpi_time.lacking(self.settings.mpi_time, transport, programs)

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        per_node = self.settings.ranks_per_node
        yield from too_many_cores("ranks_per_node", per_node, site)
        for count in self.settings.nodes:
            ranks = count * per_node
            for index, kernel in enumerate(self.settings.kernels):
                if due := due_ranks(kernel, ranks):
                    yield FieldProblem(
                        f"kernels.{index}",
                        f"{kernel} does not run on {ranks} ranks ({count} nodes x {per_node} per "
                        "node)",
                        f"it needs {due}",
                    )

    def steps(self, job: Job) -> list[Step]:
        ranks = job.nodes * self.settings.ranks_per_node
        library = mpi_time.library(self.settings.mpi_time, job.transport, job.programs)
        steps = []
        for variant in self.available(job.transport, job.programs):
            words = command(job.programs, variant, ranks)
            assert words is not None  # ``has_program``
            name = f"npb-{variant.partition('.')[0]}"
            steps.append(self._step(name, words, variant))
            if library:
                steps.append(self._step(*mpi_time.timed(library, name, words), variant))
        return steps

    def _step(self, name: str, words: list[str], variant: str) -> Step:
        per_node = self.settings.ranks_per_node
        return Step(name, words, variant=variant, tasks_per_node=per_node)

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        """As ``parse``; of a run with the library ``mpi_time`` its share of communication."""
        parsed, relative = rounded(output(step, folder))
        if not step.name.endswith(mpi_time.SUFFIX):
            return parsed
        seconds = parsed.value("time_s")
        return mpi_time.share(folder, step.name, parsed, self.performance, seconds, relative)

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {**METRICS, **mpi_time.METRICS} if self.settings.mpi_time else METRICS


def due_ranks(kernel: str, ranks: int) -> str:
    """What number of ranks a kernel needs, if not this one; else "".

    BT and SP need a square number, IS, CG, MG and FT a power of two (README of NPB3.4-MPI).
    """
    if kernel in ("bt", "sp"):
        return "" if math.isqrt(ranks) ** 2 == ranks else "a square number: 1, 4, 9, 16 ..."
    if kernel in ("is", "cg", "mg", "ft"):
        return "" if ranks & (ranks - 1) == 0 else "a power of two: 1, 2, 4, 8 ..."
    return ""


def command(programs: Programs, variant: str, ranks: int) -> list[str] | None:
    """The command of a kernel such as ``is.S``; None if the stack does not have it.

    The stack of Spack has a program for each kernel and class. That of a distribution has one for
    each kernel, whose arguments are the number of ranks and the class.
    """
    if f"npb_{variant}" in programs:
        return list(programs[f"npb_{variant}"])
    kernel, _, problem_class = variant.partition(".")
    if f"npb_{kernel}" in programs:
        return [*programs[f"npb_{kernel}"], str(ranks), problem_class]
    return None


def parse(text: str) -> Parsed:
    """Read one run.

    Metrics: ``mops`` ("Mop/s total") and ``time_s``. The number of operations of IS (keys x
    iterations), EP (pairs of random numbers), FT, CG and LU is known: of their rate and time, both
    with two decimals, the one with fewer digits is computed from the other.
    SimGrid's EP counts 10^3 operations as one Mop; its rate is corrected, and the fact
    ``mops_corrected`` is set. Facts: name, class, size, iterations, processes, verification,
    version.

    ``moved_bytes``: see :func:`_volume`. Rate, rate per process, time and, where the number of
    operations is known, the size are compared with each other.

    Raises ParseError, also if the verification is not SUCCESSFUL.
    """
    return rounded(text)[0]


def rounded(text: str) -> tuple[Parsed, float]:
    """As :func:`parse`, and the relative rounding error of the time. Raises ParseError."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _COMPLETED.fullmatch(line)]
    if len(starts) != 1:
        raise ParseError(f"expected one line 'XX Benchmark Completed', found {len(starts)}")
    match = _COMPLETED.fullmatch(lines[starts[0]])
    name = match[1] if match else ""
    if name not in _VOLUMES:
        raise ParseError(f"expected one of {', '.join(_VOLUMES)}, found {name}", starts[0] + 1)
    fields = _fields(lines, starts[0] + 1)
    verification, line = fields["Verification"]
    if verification != "SUCCESSFUL":
        raise ParseError(f"expected Verification = SUCCESSFUL, found {verification!r}", line)

    size = _size(*fields["Size"])
    iterations = whole(*fields["Iterations"], "iterations")
    processes = whole(*fields["Total processes"], "processes")
    if processes == 0:
        raise ParseError("expected at least one process", fields["Total processes"][1])
    time_token, time_line = fields["Time in seconds"]
    time = figure(time_token, time_line, "the time", zero=True)
    token, line = fields["Mop/s total"]
    mops = figure(token, line, "Mop/s")
    share = fields["Mop/s/process"]
    figure(*share, "Mop/s/process", zero=True)
    low, high = spread_of(token)
    expected = (low / processes, high / processes)
    agree(share[0], expected, share[1], "Mop/s/process", "Mop/s and processes")
    facts: dict[str, object] = {
        "benchmark": name,
        "class": _class(*fields["Class"]),
        "size": fields["Size"][0],
        "iterations": iterations,
        "processes": processes,
        "verification": verification,
    }
    if "Version" in fields:
        facts["version"] = fields["Version"][0]
    simgrid = name == "EP" and _SIMGRID_EP in text
    operations = _operations(name, size, iterations, simgrid=simgrid)
    if operations is not None:
        if simgrid and _thousandfold(mops, operations, time):
            mops /= 1000
            facts["mops_corrected"] = "divided by 1000: this EP counts 10^3 operations as Mop"
        millions = operations / 1e6
        half = rounding(token) / float(token)  # relative: also of a rate that is corrected
        low, high = quotient(millions, (mops * (1 - half), mops * (1 + half)))
        agree(time_token, (low * 0.999, high * 1.001), time_line, "the time", "size and Mop/s")
        if time and rounding(time_token) / time < half:
            mops = millions / time
            half = rounding(time_token) / time
        else:
            time = millions / mops
    elif time == 0:
        raise ParseError("the run was too short to be timed: use a larger class", time_line)
    else:
        half = rounding(time_token) / time
    rate = higher("mops", mops, "Mop/s")
    parsed = Parsed(
        metrics=[replace(rate, seconds=time), lower("time_s", time, "s")],
        facts=facts,
        moved_bytes=_volume(name, size, iterations, processes),
    )
    return parsed, half


def _thousandfold(mops: float, operations: float, time: float) -> bool:
    """Whether a rate counts 10^3 operations as one Mop, by the time in s, which may be 0 then."""
    return time == 0 or mops > 30 * operations / 1e6 / time


def _fields(lines: list[str], start: int) -> dict[str, tuple[str, int]]:
    """NAME -> (VALUE, line number), up to the verification and the version."""
    fields: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines[start:], start + 1):
        match = _FIELD.fullmatch(line)
        if match is None:
            if "Verification" in fields:
                break
            raise ParseError(f"expected a line 'NAME = VALUE', found {line!r}", number)
        if match[1] in fields:
            raise ParseError(f"{match[1]} occurs twice", number)
        fields[match[1]] = (match[2], number)
    for key in _NEEDED:
        if key not in fields:
            raise ParseError(f"expected the line '{key} = ...'", start)
    return fields


def _size(token: str, line: int) -> tuple[int, ...]:
    """(n,) or (nx, ny, nz). The size of EP may end in a decimal point."""
    parts = token.rstrip(".").replace(" ", "").split("x")
    sizes = tuple(whole(part, line, "the size") for part in parts)
    if len(sizes) not in (1, 3) or 0 in sizes:
        raise ParseError(f"expected the size as N or NX x NY x NZ, found {token!r}", line)
    return sizes


def _class(token: str, line: int) -> str:
    if not re.fullmatch(r"[SWA-F]", token):
        raise ParseError(f"expected a class S, W or A to F, found {token!r}", line)
    return token


def _operations(
    name: str, size: tuple[int, ...], iterations: int, *, simgrid: bool
) -> float | None:
    """The number of operations of "Mop/s" (``is.c``, ``ep.f90``, ``ft.f90``, ``cg.f90``,
    ``lu.f90``); None of another kernel, or another size. SimGrid prints EP's exponent.
    """
    points = math.prod(size)
    if name == "IS":
        return float(size[0] * iterations)
    if name == "EP":
        return float(2 ** min(size[0], 60)) if simgrid else float(size[0])
    if name == "FT":
        log = math.log(points)
        return points * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * iterations)
    if name == "CG" and size[0] in _NON_ZEROS:
        row = _NON_ZEROS[size[0]] * (_NON_ZEROS[size[0]] + 1)
        return 2.0 * iterations * size[0] * (3 + row + 25 * (5 + row) + 3)
    if name == "LU":
        side = sum(size) / 3
        return iterations * (1984.77 * points - 10923.3 * side**2 + 27770.9 * side - 144010)
    return None


def _volume(name: str, size: tuple[int, ...], iterations: int, processes: int) -> int:
    """Least bytes (rx + tx) of a node with some, but not all, of the processes.

    Only the timed iterations are counted. The bounds below are low on purpose: they count the
    exchanges that the source of each benchmark cannot do without.
    """
    return _VOLUMES[name](size, iterations, processes) if processes > 1 else 0


def _is(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """All-to-all of the keys, 4 B each (``is.c``: MPI_Alltoallv in rank()).

    With an even distribution a process sends (K/P)(P - 1)/P keys and receives as many per
    iteration; a node with k processes moves least at k = 1. Half of that is the bound, because
    the sizes of the buckets of keys differ.
    """
    return 4 * iterations * size[0] * (processes - 1) // processes**2


def _ep(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """Three all-reduces: two sums and ten counts, 12 doubles out and in (``ep.f90``)."""
    return 2 * 12 * 8


def _ft(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One transpose of the grid of 16 B numbers per iteration (``ft.f90``).

    Only in the 1-D layout (P <= nz) all processes exchange with all: (n/P)(P - 1)/P out and as
    much in. In other layouts the exchanges are within groups of processes that may be on one
    node: 0.
    """
    if len(size) != 3 or processes > size[2]:
        return 0
    return 2 * 16 * iterations * math.prod(size) * (processes - 1) // processes**2


def _cg(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """25 products of the matrix and a vector per iteration (``cg.f90``: cgitmax).

    The non-zeros of the matrix are at random positions, so for each product a process sends its
    n/P doubles and receives others.
    """
    return 2 * 8 * 25 * iterations * (size[0] // processes)


def _mg(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One face of a process's box on the finest grid, out and in, per iteration.

    ``mg.f90`` halves the box along the axes in turn for each doubling of P, and comm3 exchanges
    all faces after each smoothing.
    """
    halvings = math.ceil(math.ceil(math.log2(processes)) / 3)
    return 2 * 8 * iterations * (min(size) // 2**halvings) ** 2


def _lu(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """The narrowest side of a process's column, 5 doubles a point, out and in, per iteration.

    ``lu.f90`` sweeps forward and back over columns, cut in two directions; none is narrower than
    n/P.
    """
    return 2 * 5 * 8 * iterations * (min(size) // processes) * min(size)


def _bt(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One face of all but one of a process's q = sqrt(P) cells, 5 doubles a point, out and in.

    The multi-partition scheme of BT and SP (``copy_faces.f90``) exchanges six faces.
    """
    q = math.isqrt(processes)
    return 2 * 5 * 8 * iterations * (q - 1) * (min(size) // q) ** 2


_VOLUMES: dict[str, Callable[[tuple[int, ...], int, int], int]] = {
    "IS": _is,
    "EP": _ep,
    "CG": _cg,
    "MG": _mg,
    "FT": _ft,
    "LU": _lu,
    "BT": _bt,
    "SP": _bt,
}
