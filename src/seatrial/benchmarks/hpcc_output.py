"""HPC Challenge 1.5: ``hpccoutf.txt``, of which the summary section is read.

Not for stock HPL (see ``hpl``). HPCC appends to an existing file: remove it before
a run, two summaries are refused. Format: ``src/io.c``.
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

    Metrics: ``hpl_GFLOPS`` (HPL_Tflops x 1000); ``dgemm_GFLOPS``, one process's matrix
    product while all processes do the same (StarDGEMM; SingleDGEMM, with the others
    idle, only where that was not run); ``hpl_percent_of_dgemm`` = 100 x hpl_GFLOPS /
    (P x Q x dgemm_GFLOPS); ``stream_triad_GB_s`` (StarSTREAM, per process, 10^9 B/s),
    where present. Facts: N, NB, P, Q, the residual, DGEMM's kind, and the figures of
    HPCC's network tests. ``moved_bytes`` is HPL's alone: ``hpl.moved``.

    HPL_Tflops is held against HPL_N and HPL_time, the grid against HPL's result line,
    DGEMM and STREAM against the "Average" in their own sections of the file.

    Raises ParseError, also where any check FAILED.
    """
    lines = text.splitlines()
    found = _successful(lines)
    residuals = [m[1] for line in lines if (m := _RESIDUAL.fullmatch(line))]
    if not residuals:
        raise ParseError("expected HPL's residual check to say PASSED")

    keys = {"N": "HPL_N", "NB": "HPL_NB", "P": "HPL_nprow", "Q": "HPL_npcol"}
    size = {key: _whole(found, name) for key, name in keys.items()}
    token, line_number = _take(found, "HPL_Tflops")
    gflops = 1000 * figure(token, line_number, "HPL_Tflops")
    _figure(found, "HPL_time")
    low, high = spread_of(found["HPL_time"][0])
    work = flops(size["N"]) / 1e12
    agree(token, (work / high, work / low), line_number, "HPL_Tflops", "HPL_N and HPL_time")

    _check_grid(lines, size)

    dgemm, kind = _dgemm(lines, found)
    processes = size["P"] * size["Q"]
    metrics = [
        higher("hpl_GFLOPS", gflops, "GFLOPS"),
        higher("dgemm_GFLOPS", dgemm, "GFLOPS"),
        higher("hpl_percent_of_dgemm", 100 * gflops / (processes * dgemm), "percent"),
    ]
    # A test that was not selected leaves an empty section, and -1 in the summary.
    skipped = found.get("StarSTREAM_Triad", ("", 0))[0] == "-1"
    if not skipped and _body(lines, "StarSTREAM", "Triad GB/s"):
        triad = _figure(found, "StarSTREAM_Triad")
        _check_body(lines, "StarSTREAM", "Triad GB/s", found["StarSTREAM_Triad"])
        metrics.append(higher("stream_triad_GB_s", triad, "GB/s"))
    version = ".".join(_take(found, f"Version{part}")[0] for part in ("Major", "Minor", "Micro"))
    return Parsed(
        metrics=metrics,
        facts={
            **size,
            "processes": _whole(found, "CommWorldProcs"),
            "residual": figure(residuals[-1], None, "the residual", zero=True),
            "residual_check": "PASSED",
            "dgemm": kind,
            "version": version,
            **{
                fact: float(found[key][0]) for key, fact in _FACTS.items() if _is_figure(found, key)
            },
        },
        moved_bytes=moved(**size),
    )


def parse_dgemm(text: str) -> Parsed:
    """Read a run of which only DGEMM was asked: ``dgemm_GFLOPS`` as in :func:`parse`.

    Facts: DGEMM's kind and order, version. Nothing was moved. Raises ParseError.
    """
    lines = text.splitlines()
    found = _successful(lines)
    rate, kind = _dgemm(lines, found)
    version = ".".join(_take(found, f"Version{part}")[0] for part in ("Major", "Minor", "Micro"))
    return Parsed(
        metrics=[higher("dgemm_GFLOPS", rate, "GFLOPS")],
        facts={"dgemm": kind, "dgemm_N": _whole(found, "DGEMM_N"), "hpcc": version},
    )


def _successful(lines: list[str]) -> dict[str, tuple[str, int]]:
    """The summary of a run of which no check failed."""
    found = _summary(lines)
    for number, line in enumerate(lines, 1):
        if "FAILED" in line:
            raise ParseError(f"a check failed: {line.strip()!r}", number)
    success, line_number = _take(found, "Success")
    if success != "1":
        raise ParseError("expected Success=1: HPCC says that a test failed", line_number)
    return found


def _dgemm(lines: list[str], found: dict[str, tuple[str, int]]) -> tuple[float, str]:
    """One process's matrix product in GFLOPS, and which test that is."""
    token = _take(found, "StarDGEMM_Gflops")[0]
    star = 0.0 if token == "-1" else _figure(found, "StarDGEMM_Gflops", zero=True)
    kind, unit = ("StarDGEMM", "Gflop/s") if star else ("SingleDGEMM", "DGEMM Gflop/s")
    if not star and _body(lines, "StarDGEMM", "Gflop/s"):
        raise ParseError("StarDGEMM ran, but its figure is zero", found["StarDGEMM_Gflops"][1])
    rate = _figure(found, f"{kind}_Gflops")
    _check_body(lines, kind, unit, found[f"{kind}_Gflops"])
    return rate, kind


def _summary(lines: list[str]) -> dict[str, tuple[str, int]]:
    """Key to (value, line number) of the one summary section."""
    marks = {}
    for mark in (BEGIN, END, CLOSING):
        at = [i for i, line in enumerate(lines) if line.strip() == mark]
        if not at:
            raise ParseError(f"expected {mark!r}: the output was cut off or damaged", len(lines))
        if len(at) > 1:
            raise ParseError(f"{mark!r} occurs twice: HPCC appended to an older file", at[1] + 1)
        marks[mark] = at[0]
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines[marks[BEGIN] + 1 : marks[END]], marks[BEGIN] + 2):
        match = _PAIR.fullmatch(line.strip())
        if match is None or match[1] in found:
            raise ParseError(f"expected one line KEY=VALUE for each key, found {line!r}", number)
        found[match[1]] = (match[2], number)
    return found


def _body(lines: list[str], section: str, unit: str) -> tuple[str, int] | None:
    """The "Average" or "Single" figure in a test's own section, and its line; None: not run."""
    begin, end = f"Begin of {section} section.", f"End of {section} section."
    if begin not in lines and end not in lines:
        return None
    if begin not in lines or end not in lines:
        raise ParseError(f"expected the section {section} to begin and to end")
    first = lines.index(begin)
    pattern = re.compile(rf"(?:Average|Single) {re.escape(unit)}\s+(\S+)\s*")
    for number, line in enumerate(lines[first : lines.index(end)], first + 1):
        if match := pattern.fullmatch(line):
            figure(match[1], number, unit)
            return match[1], number
    raise ParseError(f"expected the line 'Average {unit}' of {section}", first + 1)


def _check_body(lines: list[str], section: str, unit: str, summary: tuple[str, int]) -> None:
    """Hold a figure of the summary against the same figure in the test's own section."""
    body = _body(lines, section, unit)
    if body is None:
        raise ParseError(f"expected the section {section}")
    agree(summary[0], spread_of(body[0]), summary[1], section, f"the figures of line {body[1]}")


def _check_grid(lines: list[str], size: dict[str, int]) -> None:
    """N, NB, P and Q must be those of a result line of HPL in the body."""
    rows = [m for line in lines if (m := RESULT.fullmatch(line))]
    if not any([int(row[i]) for i in range(2, 6)] == list(size.values()) for row in rows):
        raise ParseError(f"expected a result line of HPL with {size}")


def _take(found: dict[str, tuple[str, int]], key: str) -> tuple[str, int]:
    if key not in found:
        raise ParseError(f"expected {key}=... in the summary section")
    return found[key]


def _whole(found: dict[str, tuple[str, int]], key: str) -> int:
    value = whole(*_take(found, key), key)
    if value == 0:
        raise ParseError(f"expected {key} above zero", found[key][1])
    return value


def _figure(found: dict[str, tuple[str, int]], key: str, *, zero: bool = False) -> float:
    return figure(*_take(found, key), key, zero=zero)


def _is_figure(found: dict[str, tuple[str, int]], key: str) -> bool:
    """Tests that were not run leave 0 or -1 behind: no fact."""
    try:
        return key in found and figure(*found[key], key) > 0
    except ParseError:
        return False
