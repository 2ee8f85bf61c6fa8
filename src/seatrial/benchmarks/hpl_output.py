"""High-Performance Linpack: the output of ``xhpl`` (HPL 2.x, stdout or HPL.out).

Not for the file of HPCC (``hpcc_output``), which uses what this module reads
of results. Format:
``HPL_pdtest.c`` and ``HPL_pdinfo.c``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from seatrial.benchmarks.parsing import (
    Parsed,
    ParseError,
    agree,
    figure,
    higher,
    quotient,
    rounding,
    spread_of,
    whole,
)

_RESULT = re.compile(
    r"(W[RC]\d\w\w\d\w\d)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s*", re.ASCII
)
_RESIDUAL = re.compile(r"\|\|Ax-b\|\|_oo/\(.*\)\s*=\s*(\S+) \.\.\.\.\.\. (\w+)\s*", re.ASCII)
_FINISHED = re.compile(r"Finished\s+(\d+) tests with the following results:\s*", re.ASCII)
_PASSED = re.compile(r"\s*(\d+) tests completed and passed residual checks,\s*", re.ASCII)
_VERSION = re.compile(r"HPLinpack (\S+)\s+--")


class Solve(NamedTuple):
    """A problem that HPL solved: its rate in GFLOPS, the relative rounding error of that, N, NB, P
    and Q, and HPL's name of the variant of its algorithm."""

    rate: float
    rounding: float
    size: dict[str, int]
    variant: str


def parse(text: str) -> Parsed:
    """Read a whole run of one or more problems.

    Metric: ``hpl_GFLOPS``, the best of the problems. All must have PASSED the residual check.
    Facts: N, NB, P, Q of the best, residual, tests, version. ``moved_bytes`` sums :func:`moved`
    over the problems.

    Raises ParseError, also if a residual check failed or is missing.
    """
    return rounded(text)[0]


def rounded(text: str) -> tuple[Parsed, float]:
    """As :func:`parse`, and the relative rounding error of the rate. Raises ParseError."""
    lines = text.splitlines()
    version = next((m[1] for line in lines if (m := _VERSION.match(line))), None)
    if version is None:
        raise ParseError("expected the heading 'HPLinpack'")
    runs, residual = solves(list(enumerate(lines, 1)))
    best = max(runs, key=lambda run: run.rate)
    parsed = Parsed(
        metrics=[higher("hpl_GFLOPS", best.rate, "GFLOPS")],
        facts={
            **best.size,
            "variant": best.variant,
            "tests": len(runs),
            "residual": residual,
            "residual_check": "PASSED",
            "version": version,
        },
        moved_bytes=sum(moved(**run.size) for run in runs),
    )
    return parsed, best.rounding


def solves(lines: Sequence[tuple[int, str]]) -> tuple[list[Solve], float]:
    """The problems in the numbered lines of HPL's output, in order, and the largest residual.

    Raises ParseError, also if a residual check failed or is missing, or if HPL says that it
    finished another number of problems.
    """
    runs: list[Solve] = []
    residuals: list[float] = []
    finished: int | None = None
    ended, passed = False, None
    last = lines[-1][0] if lines else None
    for number, line in lines:
        if match := _RESULT.fullmatch(line):
            if len(residuals) != len(runs):
                raise ParseError("expected the residual check of the previous problem", number)
            keys = ("N", "NB", "P", "Q")
            size = {key: whole(match[i], number, key) for i, key in enumerate(keys, 2)}
            figure(match[6], number, "Time", zero=True)
            rate = figure(match[7], number, "Gflops")
            work = quotient(flops(size["N"]) / 1e9, spread_of(match[6]))
            agree(match[7], work, number, "Gflops", "N and Time")
            runs.append(Solve(rate, rounding(match[7]) / rate, size, match[1]))
        elif match := _RESIDUAL.fullmatch(line):
            residuals.append(figure(match[1], number, "the residual", zero=True))
            if match[2] != "PASSED":
                raise ParseError(f"the residual check says {match[2]}: the result is wrong", number)
        elif re.match(r"W[RC]\d|\|\|Ax-b\|\|_oo/\(eps", line) or "FAILED" in line:
            raise ParseError(f"expected a result or its residual check, found {line!r}", number)
        elif match := _FINISHED.fullmatch(line):
            finished = whole(match[1], number, "tests")
        elif match := _PASSED.fullmatch(line):
            passed = whole(match[1], number, "tests passed")
        elif line.strip() == "End of Tests.":
            ended = True
    if not ended:
        raise ParseError("expected 'End of Tests.': the output was cut off", last)
    if not runs:
        raise ParseError("expected at least one result")
    if not len(runs) == len(residuals) == finished == passed:
        raise ParseError(
            f"{finished} tests finished and {passed} passed, but {len(runs)} results and "
            f"{len(residuals)} residual checks were found"
        )
    return runs, max(residuals)


def flops(order: int) -> float:
    """Operations of a solve of that order: 2/3 N^3 + 3/2 N^2 (``HPL_pdtest.c``)."""
    return 2 / 3 * order**3 + 3 / 2 * order**2


def moved(N: int, NB: int, P: int, Q: int) -> int:
    """Least bytes (rx + tx) of a node in a solve of order N in blocks of NB on a P x Q grid.

    The factor L has N^2/2 elements of 8 B. A process row holds 1/P of it, and each of its Q
    processes needs all of that: a process receives the elements of the others and sends its own at
    least once, together 4 N^2 / P. In the same way a process column shares 4 N^2 / Q of U. A node
    with only some of the processes splits a row (if Q > 1) or a column (if P > 1) of the grid. The
    last panel needs no broadcast, hence N - NB. Pivoting, PTRANS and the rest of HPCC are not
    counted.
    """
    volume = 4 * max(N - NB, 0) ** 2
    shares = ([volume // P] if Q > 1 else []) + ([volume // Q] if P > 1 else [])
    return min(shares, default=0)
