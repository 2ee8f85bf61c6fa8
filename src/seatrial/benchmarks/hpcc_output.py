"""HPC Challenge 1.5: the summary section of ``hpccoutf.txt``.

Not for xhpl (``hpl_output``). HPCC appends to an existing file; a file with two summaries is an
error. Format: ``src/io.c``.
"""

from __future__ import annotations

import math
import re
from itertools import product
from pathlib import Path

from seatrial.benchmarks.hpl_output import flops, moved, solves
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
from seatrial.results.record import Metric

#: key -> value and line number, of the summary
Summary = dict[str, tuple[str, int]]
#: line number and line
Section = list[tuple[int, str]]
#: of an FFT of up to 2^40 numbers in double precision
_FFT_ERROR = 1e-9
_MOST_CYCLE = 4096  # ranks: beyond, a grid has no bound
BEGIN = "Begin of Summary section."
END = "End of Summary section."
CLOSING = "End of HPC Challenge tests."
_PAIR = re.compile(r"(\w+)=(\S*)", re.ASCII)
_FACTS = {
    "AvgPingPongLatency_usec": "pingpong_latency_us",
    "AvgPingPongBandwidth_GBytes": "pingpong_bandwidth_GB_s",
    "RandomlyOrderedRingLatency_usec": "random_ring_latency_us",
    "RandomlyOrderedRingBandwidth_GBytes": "random_ring_bandwidth_GB_s",
    "PTRANS_GBs": "ptrans_GB_s",
    "MPIFFT_Gflops": "mpifft_GFLOPS",
    "MPIRandomAccess_GUPs": "random_access_GUPS",
}


def read(folder: Path) -> str:
    """The output of a run in a folder. Raises ParseError if there is none, OSError."""
    try:
        return (folder / "hpccoutf.txt").read_text(errors="replace")
    except FileNotFoundError:
        raise ParseError("hpcc wrote no hpccoutf.txt") from None


def parse(text: str) -> Parsed:
    """Read a whole run.

    Metrics: ``hpl_GFLOPS`` (HPL_Tflops x 1000), the best of all solves; ``dgemm_GFLOPS``, the
    matrix product of one process while all processes do the same (StarDGEMM; if that was not run,
    SingleDGEMM, with the others idle); ``hpl_percent_of_dgemm`` = 100 x hpl_GFLOPS /
    (P x Q x dgemm_GFLOPS); ``stream_triad_GB_s`` (StarSTREAM, per process, 10^9 B/s), if it was
    run. Facts: N, NB, P, Q, the number of solves, the largest residual, the kind of DGEMM, and the
    figures of HPCC's network tests. ``moved_bytes`` is that of HPL only: ``hpl_output.moved`` for
    each solve.

    HPL_Tflops is compared with HPL_N and HPL_time and with the best of HPL's result lines, the
    problem with each of them, DGEMM and STREAM with the "Average" in their sections.

    Raises ParseError, also if a check FAILED.
    """
    lines = text.splitlines()
    summary = _successful(lines)
    gflops, size, residual, tests = _hpl(lines, summary)
    dgemm, kind = _dgemm(lines, summary)
    processes = size["P"] * size["Q"]
    metrics = [
        higher("hpl_GFLOPS", gflops, "GFLOPS"),
        higher("dgemm_GFLOPS", dgemm, "GFLOPS"),
        higher("hpl_percent_of_dgemm", 100 * gflops / (processes * dgemm), "percent"),
    ]
    # A test that was not selected has an empty section, and -1 in the summary.
    skipped = summary.get("StarSTREAM_Triad", ("", 0))[0] == "-1"
    if not skipped and _body(lines, "StarSTREAM", "Triad GB/s"):
        triad = _figure(summary, "StarSTREAM_Triad")
        _check_body(lines, "StarSTREAM", "Triad GB/s", summary["StarSTREAM_Triad"])
        metrics.append(higher("stream_triad_GB_s", triad, "GB/s"))
    return Parsed(
        metrics=metrics,
        facts={
            **size,
            "processes": _whole(summary, "CommWorldProcs"),
            "residual": residual,
            "residual_check": "PASSED",
            "tests": tests,
            "dgemm": kind,
            "version": _version(summary),
            **{
                fact: float(summary[key][0])
                for key, fact in _FACTS.items()
                if _is_figure(summary, key)
            },
        },
        moved_bytes=tests * moved(**size),
    )


def _hpl(lines: list[str], summary: Summary) -> tuple[float, dict[str, int], float, int]:
    """GFLOPS, N, NB, P and Q, the largest residual, and the number of solves of HPL."""
    if summary.get("HPL_N", ("", 0))[0] == "-1":
        raise ParseError("HPL did not run: HPCC_TESTS did not select it", summary["HPL_N"][1])
    runs, residual = solves(_section(lines, "HPL"))
    keys = {"N": "HPL_N", "NB": "HPL_NB", "P": "HPL_nprow", "Q": "HPL_npcol"}
    size = {key: _whole(summary, name) for key, name in keys.items()}
    if any(run.size != size for run in runs):
        raise ParseError(f"expected each result line of HPL with {size}")
    token, line_number = _take(summary, "HPL_Tflops")
    gflops = 1000 * figure(token, line_number, "HPL_Tflops")
    _figure(summary, "HPL_time")
    low, high = spread_of(summary["HPL_time"][0])
    work = flops(size["N"]) / 1e12
    agree(token, (work / high, work / low), line_number, "HPL_Tflops", "HPL_N and HPL_time")
    best = max(runs, key=lambda run: run.rate)
    around = best.rate * (1 - best.rounding) / 1e3, best.rate * (1 + best.rounding) / 1e3
    agree(token, around, line_number, "HPL_Tflops", "the best result line of HPL")
    return gflops, size, residual, len(runs)


def parse_hpl(text: str) -> Parsed:
    """Read a run of HPL only: ``hpl_GFLOPS``, N, NB, P, Q, residual and volume as in :func:`parse`.

    Raises ParseError.
    """
    lines = text.splitlines()
    gflops, size, residual, tests = _hpl(lines, _successful(lines))
    return Parsed(
        metrics=[higher("hpl_GFLOPS", gflops, "GFLOPS")],
        facts={**size, "residual": residual, "tests": tests},
        moved_bytes=tests * moved(**size),
    )


def parse_test(text: str, test: str) -> Parsed:
    """Read the run of one test: PTRANS, MPIFFT, MPIRandomAccess or StarSTREAM.

    Metrics, besides ``time_s``:

    - PTRANS: ``ptrans_MB_s``, the least rate of its repetitions; the time of one transposition of
      n x n doubles at this rate.
    - MPIFFT: ``mpifft_GFLOPS`` of a forward transform of N complex numbers, which counts
      5 N log2(N) operations; its time.
    - MPIRandomAccess: ``random_access_Mops``, 10^6 updates a second of all ranks; the time of the
      recommended number of updates, also where its limit of time allowed fewer.
    - StarSTREAM: ``stream_triad_GB_s`` of a rank while all ranks do the same, the best of its
      repetitions, which counts 24 B of a number; the time of one triad over its arrays, and
      a barrier. It sends no data.

    Facts: sizes, the number of ranks, version. ``moved_bytes`` is of one transposition, one
    transform or all updates, and low for every algorithm: see the functions ``..moved_by_...``.

    The figures of the summary are compared with those of the test's section. Raises ParseError,
    also if the test did not run or its check failed.
    """
    lines = text.splitlines()
    summary = _successful(lines)
    section = _section(lines, test)
    size, line = _take(summary, _SELECTED.get(test, f"{test}_N"))
    if size == "-1":
        raise ParseError(f"{test} did not run: HPCC_TESTS did not select it", line)
    metrics, facts, moved_bytes = _TESTS[test](summary, section)
    ranks = _whole(summary, "CommWorldProcs")
    return Parsed(
        metrics=metrics,
        facts={**facts, "processes": ranks, "version": _version(summary)},
        moved_bytes=moved_bytes,
    )


def _ptrans(summary: Summary, section: Section) -> tuple[list[Metric], dict[str, int], int]:
    n, nb, p, q = (_whole(summary, f"PTRANS_{key}") for key in ("n", "nb", "nprow", "npcol"))
    rate, number = _take(summary, "PTRANS_GBs")
    GB_s = figure(rate, number, "PTRANS_GBs")
    rows = [(at, words) for at, line in section if (words := line.split())[:1] == ["WALL"]]
    good = [words[:7] == ["WALL", *map(str, (n, n, nb, nb, p, q))] for _, words in rows]
    if not rows or not all(good) or any(words[8:9] != ["PASSED"] for _, words in rows):
        raise ParseError(f"expected rows WALL of PTRANS with n={n}, nb={nb}, {p} x {q}, PASSED")
    rates = [(figure(words[9], at, "GB/s"), words[9]) for at, words in rows if len(words) == 11]
    if len(rates) != len(rows):
        raise ParseError("expected 11 columns in each row WALL of PTRANS", rows[0][0])
    agree(rate, spread_of(min(rates)[1]), number, "PTRANS_GBs", "the rows WALL of PTRANS")
    _expect(section, f"{len(rows)} tests completed and passed residual checks.", "PTRANS")
    metrics = [
        higher("ptrans_MB_s", 1e3 * GB_s, "MB/s"),
        lower("time_s", 8 * n * n / GB_s / 1e9, "s"),
    ]
    return metrics, {"n": n, "NB": nb, "P": p, "Q": q}, moved_by_ptrans(n, nb, p, q)


def moved_by_ptrans(n: int, nb: int, p: int, q: int) -> int:
    """Doubles that change their rank, out and in, of the rank with fewest (``pdtrans.c``).

    Block (i, j) of nb x nb is on rank (i mod p, j mod q), and so is block (i, j) of the result. The
    bound holds for one rank on each node. It is 0 on a square grid, whose diagonal ranks keep
    their blocks.
    """
    blocks = n // nb  # those at the edge, which may be smaller, are not counted
    cycle = math.lcm(p, q)
    if blocks < 1 or p * q < 2 or cycle > _MOST_CYCLE:
        return 0
    count = [len(range(start, blocks, cycle)) for start in range(min(cycle, blocks))]
    moved = dict.fromkeys(product(range(p), range(q)), 0)
    for i, j in product(range(len(count)), repeat=2):
        sender, receiver = (i % p, j % q), (j % p, i % q)
        if sender != receiver:
            moved[sender] += count[i] * count[j]
            moved[receiver] += count[i] * count[j]
    return 8 * nb * nb * min(moved.values())


def _mpifft(summary: Summary, section: Section) -> tuple[list[Metric], dict[str, int], int]:
    n, ranks = _whole(summary, "MPIFFT_N"), _whole(summary, "MPIFFT_Procs")
    rate, number = _take(summary, "MPIFFT_Gflops")
    GFLOPS = figure(rate, number, "MPIFFT_Gflops")
    body, at = _value(section, r"Gflop/s:", "MPIFFT")
    agree(rate, spread_of(body), number, "MPIFFT_Gflops", f"line {at}")
    if whole(*_value(section, r"Vector size:", "MPIFFT"), "the vector size") != n:
        raise ParseError(f"expected a vector of {n} numbers in the section MPIFFT")
    error = figure(*_take(summary, "MPIFFT_maxErr"), "MPIFFT_maxErr", zero=True)
    if error > _FFT_ERROR:
        raise ParseError(f"MPIFFT_maxErr is {error:g}: the transform is wrong")
    if n < 2:
        raise ParseError("expected MPIFFT_N above one")
    metrics = [
        higher("mpifft_GFLOPS", GFLOPS, "GFLOPS"),
        lower("time_s", 5 * n * math.log2(n) / GFLOPS / 1e9, "s"),
    ]
    return metrics, {"N": n, "ranks": ranks}, _moved_by_mpifft(n, ranks)


def _moved_by_mpifft(n: int, ranks: int) -> int:
    """One exchange among all: each rank keeps 1 / ranks of its N / ranks complex numbers.

    The output depends on all of the input, so no algorithm needs less. A node with k ranks moves
    least at k = 1.
    """
    return 2 * 16 * n * (ranks - 1) // ranks**2


def _random_access(summary: Summary, section: Section) -> tuple[list[Metric], dict[str, int], int]:
    name = "MPIRandomAccess"
    table, executed = _whole(summary, f"{name}_N"), _whole(summary, f"{name}_ExeUpdates")
    recommended = 4 * table
    ranks = _whole(summary, "CommWorldProcs")
    rate, number = _take(summary, f"{name}_GUPs")
    GUPS = figure(rate, number, f"{name}_GUPs")
    body = _value(section, r"([\d.]+) Billion\(10\^9\) Updates    per second \[GUP/s\]", name)
    agree(rate, spread_of(body[0]), number, f"{name}_GUPs", f"line {body[1]}")
    # HPC Challenge allows errors in 1 % of the table, because updates need not be atomic.
    errors = whole(*_take(summary, f"{name}_Errors"), "the errors")
    if errors > table // 100:
        raise ParseError(f"{errors} of {table} words of the table are wrong, more than 1 %")
    seconds, line = _take(summary, f"{name}_time")
    figure(seconds, line, f"{name}_time")
    low, high = spread_of(seconds)
    agree(rate, (executed / high / 1e9, executed / low / 1e9), number, f"{name}_GUPs",
          "the updates and their time")  # fmt: skip
    metrics = [
        higher("random_access_Mops", 1e3 * GUPS, "Mop/s"),
        lower("time_s", recommended / GUPS / 1e9, "s"),
    ]
    facts = {"table": table, "updates": executed, "recommended_updates": recommended}
    return metrics, facts, _moved_by_random_access(executed, ranks)


def _moved_by_random_access(updates: int, ranks: int) -> int:
    """Updates of 8 B to other ranks, out and in: (ranks - 1) / ranks of a rank's own.

    The addresses are random, so half of this is the bound, as of NPB's IS.
    """
    return 8 * updates * (ranks - 1) // ranks**2


def _star_stream(summary: Summary, section: Section) -> tuple[list[Metric], dict[str, int], int]:
    vector = _whole(summary, "STREAM_VectorSize")
    rate, number = _take(summary, "StarSTREAM_Triad")
    GB_s = figure(rate, number, "StarSTREAM_Triad")
    body, at = _value(section, r"Average Triad GB/s", "StarSTREAM")
    agree(rate, spread_of(body), number, "StarSTREAM_Triad", f"line {at}")
    size, at = _value(section, r"Array size = (\d+), Offset = 0", "StarSTREAM")
    if whole(size, at, "the array size") != vector:
        raise ParseError(f"expected arrays of {vector} numbers in the section StarSTREAM", at)
    _expect(section, "Node(s) with error 0", "StarSTREAM")
    metrics = [
        higher("stream_triad_GB_s", GB_s, "GB/s"),
        lower("time_s", 24 * vector / GB_s / 1e9, "s"),
    ]
    return metrics, {"vector": vector}, 0


_TESTS = {
    "PTRANS": _ptrans,
    "MPIFFT": _mpifft,
    "MPIRandomAccess": _random_access,
    "StarSTREAM": _star_stream,
}
#: key of the summary that is -1 where a test did not run; of others their N
_SELECTED = {"PTRANS": "PTRANS_n", "StarSTREAM": "StarSTREAM_Triad"}


def _section(lines: list[str], test: str) -> Section:
    """The numbered lines of a test's section. Raises ParseError if there is not one."""
    begin, end = f"Begin of {test} section.", f"End of {test} section."
    if lines.count(begin) != 1 or lines.count(end) != 1:
        raise ParseError(f"expected one section {test}")
    first, last = lines.index(begin), lines.index(end)
    return list(enumerate(lines[first + 1 : last], first + 2))


def _value(section: Section, pattern: str, test: str) -> tuple[str, int]:
    """The number of the line that matches, and its line; of a pattern with a group, the group."""
    number = re.compile(pattern if "(" in pattern else rf"{pattern}\s+(\S+)\s*")
    values = [(match[1], at) for at, line in section if (match := number.fullmatch(line))]
    if len(values) != 1:
        raise ParseError(f"expected one line {pattern!r} in the section {test}, not {len(values)}")
    figure(*values[0], test)
    return values[0]


def _expect(section: Section, text: str, test: str) -> None:
    if not any(line.strip() == text for _, line in section):
        raise ParseError(f"expected {text!r} in the section {test}")


def parse_dgemm(text: str) -> Parsed:
    """Read a run of DGEMM only: ``dgemm_GFLOPS`` as in :func:`parse`.

    Facts: kind and order of DGEMM, version. ``moved_bytes`` is 0. Raises ParseError.
    """
    lines = text.splitlines()
    summary = _successful(lines)
    rate, kind = _dgemm(lines, summary)
    return Parsed(
        metrics=[higher("dgemm_GFLOPS", rate, "GFLOPS")],
        facts={"dgemm": kind, "dgemm_N": _whole(summary, "DGEMM_N"), "hpcc": _version(summary)},
    )


def _successful(lines: list[str]) -> Summary:
    """The summary of a run. Raises ParseError if a check failed."""
    summary = _summary(lines)
    for number, line in enumerate(lines, 1):
        if "FAILED" in line:
            raise ParseError(f"a check failed: {line.strip()!r}", number)
    success, line_number = _take(summary, "Success")
    if success != "1":
        raise ParseError("expected Success=1: HPCC says that a test failed", line_number)
    return summary


def _dgemm(lines: list[str], summary: Summary) -> tuple[float, str]:
    """The matrix product of one process in GFLOPS, and the name of the test."""
    token = _take(summary, "StarDGEMM_Gflops")[0]
    star = 0.0 if token == "-1" else _figure(summary, "StarDGEMM_Gflops", zero=True)
    kind, unit = ("StarDGEMM", "Gflop/s") if star else ("SingleDGEMM", "DGEMM Gflop/s")
    if not star and _body(lines, "StarDGEMM", "Gflop/s"):
        raise ParseError("StarDGEMM ran, but its figure is zero", summary["StarDGEMM_Gflops"][1])
    rate = _figure(summary, f"{kind}_Gflops")
    _check_body(lines, kind, unit, summary[f"{kind}_Gflops"])
    return rate, kind


def _summary(lines: list[str]) -> Summary:
    """Key -> (value, line number) of the summary section."""
    marks = {}
    for mark in (BEGIN, END, CLOSING):
        at = [i for i, line in enumerate(lines) if line.strip() == mark]
        if not at:
            raise ParseError(f"expected {mark!r}: the output was cut off or damaged", len(lines))
        if len(at) > 1:
            raise ParseError(f"{mark!r} occurs twice: HPCC appended to an older file", at[1] + 1)
        marks[mark] = at[0]
    summary: Summary = {}
    for number, line in enumerate(lines[marks[BEGIN] + 1 : marks[END]], marks[BEGIN] + 2):
        match = _PAIR.fullmatch(line.strip())
        if match is None or match[1] in summary:
            raise ParseError(f"expected one line KEY=VALUE for each key, found {line!r}", number)
        summary[match[1]] = (match[2], number)
    return summary


def _body(lines: list[str], section: str, unit: str) -> tuple[str, int] | None:
    """The "Average" or "Single" figure in a test's section, and its line; None: not run."""
    begin = f"Begin of {section} section."
    if begin not in lines and f"End of {section} section." not in lines:
        return None
    pattern = re.compile(rf"(?:Average|Single) {re.escape(unit)}\s+(\S+)\s*")
    for number, line in _section(lines, section):
        if match := pattern.fullmatch(line):
            figure(match[1], number, unit)
            return match[1], number
    raise ParseError(f"expected the line 'Average {unit}' of {section}", lines.index(begin) + 1)


def _check_body(lines: list[str], section: str, unit: str, printed: tuple[str, int]) -> None:
    """Compare a figure of the summary with the same figure in the test's section."""
    body = _body(lines, section, unit)
    if body is None:
        raise ParseError(f"expected the section {section}")
    agree(printed[0], spread_of(body[0]), printed[1], section, f"the figures of line {body[1]}")


def _version(summary: Summary) -> str:
    return ".".join(_take(summary, f"Version{part}")[0] for part in ("Major", "Minor", "Micro"))


def _take(summary: Summary, key: str) -> tuple[str, int]:
    if key not in summary:
        raise ParseError(f"expected {key}=... in the summary section")
    return summary[key]


def _whole(summary: Summary, key: str) -> int:
    value = whole(*_take(summary, key), key)
    if value == 0:
        raise ParseError(f"expected {key} above zero", summary[key][1])
    return value


def _figure(summary: Summary, key: str, *, zero: bool = False) -> float:
    return figure(*_take(summary, key), key, zero=zero)


def _is_figure(summary: Summary, key: str) -> bool:
    """Whether a figure is a fact: tests that were not run print 0 or -1."""
    try:
        return key in summary and figure(*summary[key], key) > 0
    except ParseError:
        return False
