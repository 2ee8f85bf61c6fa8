"""NAS Parallel Benchmarks 3.x, MPI: IS, EP, CG, MG, FT, LU, BT and SP.

Reads the block that every benchmark of the suite ends with (``print_results.f90``,
``c_print_results.c``), of the Fortran suite and of SimGrid's C adaptation of IS and
EP. Not for the OpenMP suite (it has threads, no processes) nor for DT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.suggest import Fault
from seatrial.benchmarks.benchmark import (
    Benchmark,
    Job,
    Programs,
    Settings,
    SiteFacts,
    Step,
    output,
)
from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    agree,
    figure,
    higher,
    lower,
    spread_of,
    whole,
)

_COMPLETED = re.compile(r"\s*([A-Z]{2}) Benchmark Completed\.?\s*")
_FIELD = re.compile(r" ([A-Z][\w/ ]*?) *= *(.*?)\s*")
_NEEDED = (
    *("Class", "Size", "Iterations", "Time in seconds", "Total processes"),
    *("Mop/s total", "Mop/s/process", "Verification"),
)
# Only SimGrid's EP prints this (with this spelling).
_SIMGRID_EP = "No. Gaussain Pairs ="


class NPBSettings(Settings):
    kernels: list[Literal["is", "ep", "cg", "mg", "ft", "lu", "bt", "sp"]] = ["is", "ep"]
    problem_class: Literal["S", "W", "A", "B", "C"] = "S"
    ranks_per_node: int = Field(default=1, ge=1)


class NPB(Benchmark[NPBSettings]):
    """NAS Parallel Benchmarks: from IS (communication-bound) to EP (compute-bound)."""

    name = "npb"
    Settings = NPBSettings

    def variants(self) -> list[str]:
        return [f"{kernel}.{self.settings.problem_class}" for kernel in self.settings.kernels]

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return command(programs, variant, 1) is not None

    def problems(self, site: SiteFacts) -> Iterator[Fault]:
        """BT and SP take only a square number of ranks, all but EP and LU a power of two (README
        of NPB3.4-MPI)."""
        per_node = self.settings.ranks_per_node
        for count in self.settings.nodes:
            ranks = count * per_node
            for index, kernel in enumerate(self.settings.kernels):
                if kernel in ("bt", "sp"):
                    fits, due = math.isqrt(ranks) ** 2 == ranks, "a square number: 1, 4, 9, 16 ..."
                elif kernel in ("is", "cg", "mg", "ft"):
                    fits, due = ranks & (ranks - 1) == 0, "a power of two: 1, 2, 4, 8 ..."
                else:
                    continue
                if not fits:
                    yield Fault(
                        f"kernels.{index}",
                        f"{kernel} does not run on {ranks} ranks ({count} nodes x {per_node} per "
                        "node)",
                        f"it needs {due}",
                    )

    def steps(self, job: Job) -> list[Step]:
        ranks = job.nodes * self.settings.ranks_per_node
        steps = []
        for variant in self.available(job.transport, job.programs):
            words = command(job.programs, variant, ranks)
            assert words is not None  # ``has_program``
            steps.append(
                Step(
                    f"npb-{variant.partition('.')[0]}",
                    words,
                    variant=variant,
                    tasks_per_node=self.settings.ranks_per_node,
                )
            )
        return steps

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return parse(output(step, folder))


def command(programs: Programs, variant: str, ranks: int) -> list[str] | None:
    """The command of a kernel such as ``is.S``; None where the stack does not have it.

    Spack's stack has a program for each kernel and class, the distribution's one for each kernel,
    which takes the number of ranks and the class.
    """
    if f"npb_{variant}" in programs:
        return list(programs[f"npb_{variant}"])
    kernel, _, problem_class = variant.partition(".")
    if f"npb_{kernel}" in programs:
        return [*programs[f"npb_{kernel}"], str(ranks), problem_class]
    return None


def parse(text: str) -> Parsed:
    """Read one run.

    Metrics: ``mops`` ("Mop/s total") and ``time_s``. IS and EP fix the operations per
    run (keys x iterations, and pairs of random numbers), so there the time is derived
    from the rate, of which more digits are printed; for the others it is "Time in
    seconds", two decimals. SimGrid's EP divides by 10^3 where the suite's divides by
    10^6; its rate is corrected, and the fact ``mops_corrected`` says so. Facts: name,
    class, size, iterations, processes, verification, version.

    ``moved_bytes``: see :func:`_volume`. Rate, rate per process, time and, for IS and EP,
    the size are held against each other.

    Raises ParseError, also where the verification is not SUCCESSFUL.
    """
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _COMPLETED.fullmatch(line)]
    if len(starts) != 1:
        raise ParseError(f"expected one line 'XX Benchmark Completed', found {len(starts)}")
    match = _COMPLETED.fullmatch(lines[starts[0]])
    name = match[1] if match else ""
    if name not in _VOLUMES:
        raise ParseError(f"expected one of {', '.join(_VOLUMES)}, found {name}", starts[0] + 1)
    found = _fields(lines, starts[0] + 1)
    verification, line = found["Verification"]
    if verification != "SUCCESSFUL":
        raise ParseError(f"expected Verification = SUCCESSFUL, found {verification!r}", line)

    size = _size(*found["Size"])
    iterations = whole(*found["Iterations"], "iterations")
    processes = whole(*found["Total processes"], "processes")
    if processes == 0:
        raise ParseError("expected at least one process", found["Total processes"][1])
    time_token, time_line = found["Time in seconds"]
    time = figure(time_token, time_line, "the time", zero=True)
    token, line = found["Mop/s total"]
    mops = figure(token, line, "Mop/s")
    share = found["Mop/s/process"]
    figure(*share, "Mop/s/process", zero=True)
    low, high = spread_of(token)
    agree(share[0], (low / processes, high / processes), share[1], "Mop/s/process", "the others")
    facts: dict[str, object] = {
        "benchmark": name,
        "class": _class(*found["Class"]),
        "size": found["Size"][0],
        "iterations": iterations,
        "processes": processes,
        "verification": verification,
    }
    if "Version" in found:
        facts["version"] = found["Version"][0]
    simgrid = name == "EP" and _SIMGRID_EP in text
    if simgrid and _thousandfold(mops, _operations(name, size, iterations, simgrid=True), time):
        mops /= 1000
        facts["mops_corrected"] = "divided by 1000: this EP counts 10^3 operations as Mop"
    if name in ("IS", "EP"):
        operations = _operations(name, size, iterations, simgrid=simgrid)
        time = operations / mops / 1e6
        agree(time_token, (time * 0.999, time * 1.001), time_line, "the time", "size and Mop/s")
    elif time == 0:
        raise ParseError("the run was too short to be timed: use a larger class", time_line)
    rate = higher("mops", mops, "Mop/s")
    return Parsed(
        metrics=[replace(rate, seconds=time), lower("time_s", time, "s")],
        facts=facts,
        moved_bytes=_volume(name, size, iterations, processes),
    )


def _thousandfold(mops: float, operations: float, time: float) -> bool:
    """Whether a rate is of 10^3 operations: by the time (s), which rounds to 0 only where it is."""
    return time == 0 or mops > 30 * operations / 1e6 / time


def _fields(lines: list[str], start: int) -> dict[str, tuple[str, int]]:
    """The lines 'NAME = VALUE' up to the verification (and the version after it)."""
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines[start:], start + 1):
        match = _FIELD.fullmatch(line)
        if match is None:
            if "Verification" in found:
                break
            raise ParseError(f"expected a line 'NAME = VALUE', found {line!r}", number)
        if match[1] in found:
            raise ParseError(f"{match[1]} occurs twice", number)
        found[match[1]] = (match[2], number)
    for key in _NEEDED:
        if key not in found:
            raise ParseError(f"expected the line '{key} = ...'", start)
    return found


def _size(token: str, line: int) -> tuple[int, ...]:
    """(n,) or (nx, ny, nz); the suite prints EP's with a decimal point at times."""
    parts = token.rstrip(".").replace(" ", "").split("x")
    sizes = tuple(whole(part, line, "the size") for part in parts)
    if len(sizes) not in (1, 3) or 0 in sizes:
        raise ParseError(f"expected the size as N or NX x NY x NZ, found {token!r}", line)
    return sizes


def _class(token: str, line: int) -> str:
    if not re.fullmatch(r"[SWA-F]", token):
        raise ParseError(f"expected a class S, W or A to F, found {token!r}", line)
    return token


def _operations(name: str, size: tuple[int, ...], iterations: int, *, simgrid: bool) -> float:
    """Operations behind "Mop/s": ``is.c`` and ``ep.f90``. SimGrid prints EP's exponent."""
    if name == "IS":
        return float(size[0] * iterations)
    return float(2 ** min(size[0], 60)) if simgrid else float(size[0])


def _volume(name: str, size: tuple[int, ...], iterations: int, processes: int) -> int:
    """Least bytes (rx + tx) of a node that holds some, not all, of the processes.

    Only the timed iterations are counted. The bounds below take from each benchmark's
    source what must be exchanged, and are low on purpose. Nothing of the output but
    size, iterations and processes enters.
    """
    return _VOLUMES[name](size, iterations, processes) if processes > 1 else 0


def _is(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """All-to-all of the keys, 4 B each (``is.c``: MPI_Alltoallv in rank()).

    Evenly spread, a process sends (K/P)(P - 1)/P keys and receives as many, per
    iteration; k processes on a node move least at k = 1. Half of it is claimed, as
    keys go by buckets, whose sizes differ.
    """
    return 4 * iterations * size[0] * (processes - 1) // processes**2


def _ep(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """Three all-reduces: two sums and ten counts, 12 doubles out and in (``ep.f90``)."""
    return 2 * 12 * 8


def _ft(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One transpose of the grid of 16 B numbers per iteration (``ft.f90``).

    Only the 1-D layout (P <= nz) sends everything to everyone: out and in of
    (n/P)(P - 1)/P each. Beyond that the parts stay within groups of processes that may
    share a node: 0.
    """
    if len(size) != 3 or processes > size[2]:
        return 0
    return 2 * 16 * iterations * math.prod(size) * (processes - 1) // processes**2


def _cg(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """25 products of the matrix and a vector per iteration (``cg.f90``: cgitmax).

    The matrix is spread at random, so for each a process must pass on its n/P doubles
    and receive others.
    """
    return 2 * 8 * 25 * iterations * (size[0] // processes)


def _mg(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One face of a process's box on the finest grid, out and in, per iteration.

    ``mg.f90`` halves the box in turn along the axes for each doubling of P, and comm3
    exchanges all its faces after each smoothing.
    """
    halvings = math.ceil(math.ceil(math.log2(processes)) / 3)
    return 2 * 8 * iterations * (min(size) // 2**halvings) ** 2


def _lu(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """The narrowest side of a process's column, 5 doubles a point, out and in, per iteration.

    ``lu.f90`` sweeps forth and back over columns cut in two directions; none is
    narrower than n/P.
    """
    return 2 * 5 * 8 * iterations * (min(size) // processes) * min(size)


def _bt(size: tuple[int, ...], iterations: int, processes: int) -> int:
    """One face of all but one of a process's q = sqrt(P) cells, 5 doubles a point, out and in.

    Multi-partition scheme of BT and SP (``copy_faces.f90``), which exchanges six faces.
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
