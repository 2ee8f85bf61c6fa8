"""HPC Challenge 1.5: the summary section of ``hpccoutf.txt``.

Not for xhpl (``hpl_output``). HPCC appends to an existing file; a file with two summaries is an
error. Format: ``src/io.c``.
"""

from __future__ import annotations

import re

from seatrial.benchmarks.hpl_output import RESULT, flops, moved
from seatrial.benchmarks.parsing import Parsed, ParseError, agree, figure, higher, spread_of, whole

BEGIN = "Begin of Summary section."
END = "End of Summary section."
CLOSING = "End of HPC Challenge tests."
_PAIR = re.compile(r"(\w+)=(\S*)", re.ASCII)
_RESIDUAL = re.compile(r"\|\|Ax-b\|\|_oo/\(.*\)\s*=\s*(\S+) \.\.\.\.\.\. PASSED\s*", re.ASCII)
_FACTS = {
    "AvgPingPongLatency_usec": "pingpong_latency_us",
    "AvgPingPongBandwidth_GBytes": "pingpong_bandwidth_GB_s",
    "RandomlyOrderedRingLatency_usec": "random_ring_latency_us",
    "RandomlyOrderedRingBandwidth_GBytes": "random_ring_bandwidth_GB_s",
    "PTRANS_GBs": "ptrans_GB_s",
    "MPIFFT_Gflops": "mpifft_GFLOPS",
    "MPIRandomAccess_GUPs": "random_access_GUPS",
}


def parse(text: str) -> Parsed:
    """Read a whole run.

    Metrics: ``hpl_GFLOPS`` (HPL_Tflops x 1000); ``dgemm_GFLOPS``, the matrix product of one
    process while all processes do the same (StarDGEMM; if that was not run, SingleDGEMM, with
    the others idle); ``hpl_percent_of_dgemm`` = 100 x hpl_GFLOPS / (P x Q x dgemm_GFLOPS);
    ``stream_triad_GB_s`` (StarSTREAM, per process, 10^9 B/s), if it was run. Facts: N, NB, P, Q,
    the residual, the kind of DGEMM, and the figures of HPCC's network tests. ``moved_bytes`` is
    that of HPL only: ``hpl_output.moved``.

    HPL_Tflops is compared with HPL_N and HPL_time, the grid with HPL's result line, DGEMM and
    STREAM with the "Average" in their sections.

    Raises ParseError, also if a check FAILED.
    """
    lines = text.splitlines()
    summary = _successful(lines)
    residuals = [m[1] for line in lines if (m := _RESIDUAL.fullmatch(line))]
    if not residuals:
        raise ParseError("expected HPL's residual check to say PASSED")

    keys = {"N": "HPL_N", "NB": "HPL_NB", "P": "HPL_nprow", "Q": "HPL_npcol"}
    size = {key: _whole(summary, name) for key, name in keys.items()}
    token, line_number = _take(summary, "HPL_Tflops")
    gflops = 1000 * figure(token, line_number, "HPL_Tflops")
    _figure(summary, "HPL_time")
    low, high = spread_of(summary["HPL_time"][0])
    work = flops(size["N"]) / 1e12
    agree(token, (work / high, work / low), line_number, "HPL_Tflops", "HPL_N and HPL_time")

    _check_grid(lines, size)

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
    version = ".".join(_take(summary, f"Version{part}")[0] for part in ("Major", "Minor", "Micro"))
    return Parsed(
        metrics=metrics,
        facts={
            **size,
            "processes": _whole(summary, "CommWorldProcs"),
            "residual": figure(residuals[-1], None, "the residual", zero=True),
            "residual_check": "PASSED",
            "dgemm": kind,
            "version": version,
            **{
                fact: float(summary[key][0])
                for key, fact in _FACTS.items()
                if _is_figure(summary, key)
            },
        },
        moved_bytes=moved(**size),
    )


def parse_dgemm(text: str) -> Parsed:
    """Read a run of DGEMM only: ``dgemm_GFLOPS`` as in :func:`parse`.

    Facts: kind and order of DGEMM, version. ``moved_bytes`` is 0. Raises ParseError.
    """
    lines = text.splitlines()
    summary = _successful(lines)
    rate, kind = _dgemm(lines, summary)
    version = ".".join(_take(summary, f"Version{part}")[0] for part in ("Major", "Minor", "Micro"))
    return Parsed(
        metrics=[higher("dgemm_GFLOPS", rate, "GFLOPS")],
        facts={"dgemm": kind, "dgemm_N": _whole(summary, "DGEMM_N"), "hpcc": version},
    )


def _successful(lines: list[str]) -> dict[str, tuple[str, int]]:
    """The summary of a run. Raises ParseError if a check failed."""
    summary = _summary(lines)
    for number, line in enumerate(lines, 1):
        if "FAILED" in line:
            raise ParseError(f"a check failed: {line.strip()!r}", number)
    success, line_number = _take(summary, "Success")
    if success != "1":
        raise ParseError("expected Success=1: HPCC says that a test failed", line_number)
    return summary


def _dgemm(lines: list[str], summary: dict[str, tuple[str, int]]) -> tuple[float, str]:
    """The matrix product of one process in GFLOPS, and the name of the test."""
    token = _take(summary, "StarDGEMM_Gflops")[0]
    star = 0.0 if token == "-1" else _figure(summary, "StarDGEMM_Gflops", zero=True)
    kind, unit = ("StarDGEMM", "Gflop/s") if star else ("SingleDGEMM", "DGEMM Gflop/s")
    if not star and _body(lines, "StarDGEMM", "Gflop/s"):
        raise ParseError("StarDGEMM ran, but its figure is zero", summary["StarDGEMM_Gflops"][1])
    rate = _figure(summary, f"{kind}_Gflops")
    _check_body(lines, kind, unit, summary[f"{kind}_Gflops"])
    return rate, kind


def _summary(lines: list[str]) -> dict[str, tuple[str, int]]:
    """Key -> (value, line number) of the summary section."""
    marks = {}
    for mark in (BEGIN, END, CLOSING):
        at = [i for i, line in enumerate(lines) if line.strip() == mark]
        if not at:
            raise ParseError(f"expected {mark!r}: the output was cut off or damaged", len(lines))
        if len(at) > 1:
            raise ParseError(f"{mark!r} occurs twice: HPCC appended to an older file", at[1] + 1)
        marks[mark] = at[0]
    summary: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines[marks[BEGIN] + 1 : marks[END]], marks[BEGIN] + 2):
        match = _PAIR.fullmatch(line.strip())
        if match is None or match[1] in summary:
            raise ParseError(f"expected one line KEY=VALUE for each key, found {line!r}", number)
        summary[match[1]] = (match[2], number)
    return summary


def _body(lines: list[str], section: str, unit: str) -> tuple[str, int] | None:
    """The "Average" or "Single" figure in a test's section, and its line; None: not run."""
    begin, end = f"Begin of {section} section.", f"End of {section} section."
    if begin not in lines and end not in lines:
        return None
    if begin not in lines or end not in lines:
        raise ParseError(f"expected both the begin and the end of section {section}")
    first = lines.index(begin)
    pattern = re.compile(rf"(?:Average|Single) {re.escape(unit)}\s+(\S+)\s*")
    for number, line in enumerate(lines[first : lines.index(end)], first + 1):
        if match := pattern.fullmatch(line):
            figure(match[1], number, unit)
            return match[1], number
    raise ParseError(f"expected the line 'Average {unit}' of {section}", first + 1)


def _check_body(lines: list[str], section: str, unit: str, printed: tuple[str, int]) -> None:
    """Compare a figure of the summary with the same figure in the test's section."""
    body = _body(lines, section, unit)
    if body is None:
        raise ParseError(f"expected the section {section}")
    agree(printed[0], spread_of(body[0]), printed[1], section, f"the figures of line {body[1]}")


def _check_grid(lines: list[str], size: dict[str, int]) -> None:
    """N, NB, P and Q must match a result line of HPL in the body."""
    rows = [m for line in lines if (m := RESULT.fullmatch(line))]
    if not any([int(row[i]) for i in range(2, 6)] == list(size.values()) for row in rows):
        raise ParseError(f"expected a result line of HPL with {size}")


def _take(summary: dict[str, tuple[str, int]], key: str) -> tuple[str, int]:
    if key not in summary:
        raise ParseError(f"expected {key}=... in the summary section")
    return summary[key]


def _whole(summary: dict[str, tuple[str, int]], key: str) -> int:
    value = whole(*_take(summary, key), key)
    if value == 0:
        raise ParseError(f"expected {key} above zero", summary[key][1])
    return value


def _figure(summary: dict[str, tuple[str, int]], key: str, *, zero: bool = False) -> float:
    return figure(*_take(summary, key), key, zero=zero)


def _is_figure(summary: dict[str, tuple[str, int]], key: str) -> bool:
    """Whether a figure is a fact: tests that were not run print 0 or -1."""
    try:
        return key in summary and figure(*summary[key], key) > 0
    except ParseError:
        return False
