"""Tables on a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from seatrial.cli.rows import print_rows

HEADINGS = ("verdict", "B / A", "95 % interval", "noise", "p", "series")
SHORT = ["worse", "1.1", "1.05 to 1.15", "1.2 %", "0.01", "netpipe.tcp.default.2n: latency_us"]
LONG = [
    "can't tell", "0.9512", "0.9 to 1.01", "–", "1",
    "osu-allreduce.openmpi-ucx@rail1.low-latency.16n: allreduce_1024B_us at node-0012>node-0013",
]  # fmt: skip


def printed(rows, width=80, terminal=True, headings=HEADINGS) -> list[str]:
    file = io.StringIO()
    out = Console(file=file, force_terminal=terminal, color_system=None, width=width,
                  soft_wrap=True)  # fmt: skip
    print_rows(out, headings, rows)
    return file.getvalue().splitlines()


def test_what_fits_is_one_line_with_figures_to_the_right():
    heading, row, other = printed([SHORT, ["same", "11.1", "–", "10 %", "1", "x"]])
    assert heading.split("  ")[0] == "verdict"
    assert row.endswith(SHORT[-1])
    assert row.index("1.1 ") == other.index("11.1") + 1
    assert heading.index("series") == row.index("netpipe") == other.index("x")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_is_broken_and_a_long_name_stands_below_its_row(width):
    lines = printed([SHORT, LONG], width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert words == " ".join(" ".join(one) for one in (HEADINGS, SHORT, LONG)).split()
    assert "    netpipe.tcp.default.2n: latency_us" in lines


def test_several_columns_stand_below_if_they_must():
    headings = ("began (UTC)", "site", "verdict", "figures", "trial", "note")
    site = "harbour-production-2026"
    row = [
        "2026-11-23 03:08",
        site,
        "incomplete",
        "300",
        f"{site}-20261123-030819",
        "no SHA256SUMS",
    ]
    lines = printed([row], headings=headings)
    assert lines[1].split() == ["trial", "note"]
    assert lines[2].split() == " ".join(row[:4]).split()
    assert lines[3] == f"    {row[4]}  {row[5]}"


def test_a_pipe_gets_a_line_for_each_row():
    assert len(printed([SHORT, LONG, LONG], terminal=False)) == 4


def test_names_are_text():
    row = ["\x1b[2J", "[bold]1[/bold]", "a\nb", "", "", "é漢" * 40]
    lines = printed([row])
    assert "[bold]1[/bold]" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert "a\\nb" in lines[2]
