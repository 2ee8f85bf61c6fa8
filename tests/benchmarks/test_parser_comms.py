"""The table of comms: exact figures of recorded runs, and the checks besides the checksum."""

from __future__ import annotations

import zlib

import parser_cases as cases
import pytest

from seatrial.benchmarks import comms
from seatrial.benchmarks.parsing import ParseError

TABLE = "comms_openmpi.txt"


def sealed(text: str) -> str:
    """The table with a correct checksum: only the other checks can detect its damage."""
    own = text[: text.index("# crc32 ")]
    return f"{own}# crc32 {zlib.crc32(own.encode()):08x}\n"


def test_figures() -> None:
    parsed = cases.read(TABLE)
    assert parsed.value("latency_us") == 17.7815 / 2
    assert parsed.value("bandwidth_MB_s") == pytest.approx(316228 * 2 / 162.2670)
    assert parsed.moved_bytes == 5 * 20 * sum(comms.schedule(1, 1_000_000, 2))
    curves = {curve.name: curve for curve in parsed.curves[2:]}
    assert list(curves) == [
        f"comms {call}_us rank {rank}"
        for call in ("send", "recv", "isend", "recv_ready")
        for rank in (0, 1)
    ]
    assert curves["comms recv_us rank 1"].points[0] == (1.0, 11.2665)
    assert curves["comms isend_us rank 0"].points[-1] == (1_000_000.0, 11.0920)
    assert curves["comms recv_ready_us rank 0"].points[10] == (100_000.0, 43.7555)
    assert {(curve.y_name, curve.y_unit) for curve in curves.values()} == {("time", "us")}
    assert [curve.y_name for curve in parsed.curves[:2]] == ["latency", "bandwidth"]
    assert parsed.facts == {
        "version": "1.0",
        "mpi": "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, "
        "May 26, 2022",
        "nodes": ["n1", "n2"],
        "clock": "CLOCK_MONOTONIC",
        "clock_resolution_ns": [1.0, 1.0],
        "clock_step_ns": [20.0, 20.0],
        "clock_cost_ns": [23.4, 23.4],
        "smallest_B": 1,
        "largest_B": 1_000_000,
        "sizes": 13,
        "repetitions": 20,
        "warmup": 5,
    }


def test_lines_of_the_mpi_before_the_table_are_ignored() -> None:
    assert "libfabric provider: tcp" in cases.text("comms_mpich.txt").partition("# comms")[0]
    assert cases.read("comms_mpich.txt").value("latency_us") == 17.1410 / 2


def test_sizes_are_spaced_logarithmically() -> None:
    assert comms.schedule(1, 100, 6) == [1, 2, 3, 5, 7, 10, 15, 22, 32, 46, 68, 100]
    assert comms.schedule(1, 10_000_000, 6)[-3:] == [4641589, 6812921, 10_000_000]
    assert len(comms.schedule(1, 10_000_000, 6)) == 42
    assert comms.schedule(64, 64, 6) == [64]
    assert comms.schedule(60, 1000, 1) == [60, 600, 1000]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("# rank 1:", "# rank 0:", r"^line 4: expected rank 1, found rank 0"),
        ("# MPI: ", "# LIB: ", r"^line 2: expected '# MPI: NAME', found '# LIB: "),
        ("of 1 ns, smallest step 20 ns", "of 1 ns, smallest step nan ns", "a time of the clock"),
        ("sizes: 13 from", "sizes: 12 from", r"^line 5: expected 13 sizes, found 12"),
        ("from 1 to", "from 0 to", r"^line 5: expected the smallest size from 1 to 1000000"),
        ("1000000 bytes,", "1073741825 bytes,", "the largest size from 1 to 1073741824"),
        ("2 per decade", "0 per decade", "sizes per decade from 1 to 100, found 0"),
        ("repetitions: 20", "repetitions: 0", r"^line 6: expected repetitions from 1 to 100000"),
        ("repetitions: 20 of", "repetitions: 20, of", r"^line 6: expected '# repetitions: COUNT"),
        ("round trip 0", "round trip 2", r"^line 9: expected the heading"),
        ("\n       316 ", "\n       361 ", r"^line 15: expected 316 bytes here, found 361"),
        ("      10.5660 ", "        10.5x ", r"^line 10: expected a figure"),
        ("      10.5660 ", "       10.5660 1.0 ", r"^line 10: expected a size and 11 figures"),
        ("      17.7815 ", "      27.7815 ", r"^line 10: MB/s is 0.1125, but bytes and round trip"),
        ("      17.7815 ", "       0.0000 ", r"^line 10: expected a figure above zero"),
    ],
)
def test_values_are_checked_if_the_checksum_is_right(old: str, new: str, reason: str) -> None:
    text = cases.text(TABLE)
    assert old in text
    with pytest.raises(ParseError, match=reason):
        comms.parse(sealed(text.replace(old, new, 1)))


def test_a_row_too_few_or_too_many() -> None:
    lines = cases.text(TABLE).splitlines(keepends=True)
    for rows in (lines[:-2] + lines[-1:], [*lines[:-1], *lines[-2:]]):
        with pytest.raises(ParseError, match=r"expected 13 rows, found 1[24]"):
            comms.parse(sealed("".join(rows)))


def test_a_call_shorter_than_the_clocks_step_is_a_figure() -> None:
    parsed = comms.parse(sealed(cases.text(TABLE).replace("       0.0500 ", "       0.0000 ")))
    assert parsed.curves[8].points[0] == (1.0, 0.0)


def test_a_changed_digit_is_detected() -> None:
    text = cases.text(TABLE).replace("11.2665", "11.2666")
    with pytest.raises(ParseError, match=r"^line 23: expected lines of checksum 0d8ac7fe, found"):
        comms.parse(text)


def test_an_incomplete_run_is_an_error() -> None:
    text = cases.text(TABLE)
    with pytest.raises(ParseError, match="the table is cut off"):
        comms.parse(text[: text.index("# crc32")])
    with pytest.raises(ParseError, match="expected one line '# comms VERSION"):
        comms.parse(text + text)
