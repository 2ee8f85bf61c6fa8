"""The terminal summary, at its narrowest and widest, as a terminal and as a pipe."""

from __future__ import annotations

import io

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from campaigns import rounds
from seatrial.report.terminal import print_page, print_summary
from seatrial.results.record import Clause


def show(results, width=80, terminal=False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system="standard")
    # StringIO has no encoding of its own; Rich then assumes UTF-8.
    print_summary(results, console)
    print_page(results, console)
    return out.getvalue()


@pytest.mark.parametrize("name", sorted(synthetic.EXAMPLES))
@pytest.mark.parametrize("width", [80, 200])
def test_a_pipe_gets_ascii_and_no_colour(name, width):
    text = show(synthetic.EXAMPLES[name](), width)
    assert text.isascii()
    assert "\x1b" not in text
    assert text.splitlines()[-1] == "report: report.html"


@pytest.mark.parametrize("name", sorted(synthetic.EXAMPLES))
@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_wider_than_the_terminal(name, width):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    print_summary(synthetic.EXAMPLES[name](), console)
    assert max(cell_len(line) for line in out.getvalue().splitlines()) <= width


def test_it_says_what_matters():
    text = show(synthetic.rejected())
    lines = text.splitlines()
    assert lines[0].startswith("REJECT  example")
    assert lines[1] == "Of 127 judgements, 8 failed."
    assert any(line.startswith("- n3: every link") for line in lines)
    [pairs] = [line for line in lines if line.startswith("links - 4 nodes")]
    assert pairs.split()[-1] == "X"
    assert "the trial took 1 h 17 min, without its set-up; slowest: hpl" in text


@pytest.mark.parametrize(
    "note",
    [
        "fault planted on purpose: link n3: delay 150us",
        "the guest of lab t has ended: Kernel panic - not syncing; see t-console.log",
    ],
)
def test_what_happened_to_the_lab_is_beside_the_verdict(note):
    results = synthetic.rejected()
    results.trial.notes.append(note)
    assert show(results).splitlines()[2] == note


def test_notes_come_after_the_matrix():
    results = synthetic.rejected()
    results.verdict.findings.insert(0, "note: a note")
    text = show(results)
    assert text.index("- n3: every link") < text.index("blank: not planned")
    assert text.index("blank: not planned") < text.index("- note: a note") < text.index("took")


def test_a_trial_that_was_cut_off_is_not_green():
    text = show(synthetic.cut_off(), terminal=True)
    assert "INCOMPLETE" in text
    assert "not judged" in text
    assert "○ not run" in text


def test_every_cell_of_a_wide_matrix_is_shown():
    text = show(synthetic.wide(), 80)
    shown = sum(
        sum(mark in ".X!?~o:" for mark in line.split("nodes", 1)[1].split())
        for line in text.splitlines()
        if " nodes" in line and " - " in line
    )
    assert shown == len(synthetic.wide().trial.cases)


@settings(max_examples=rounds(15, 400))
@given(st.one_of(st.text(max_size=30), st.just("[red]x[/]\x1b[2J")))
def test_records_cannot_drive_the_terminal(text):
    shown = show(synthetic.hostile(text))
    assert shown.isascii()
    assert "\x1b" not in shown
    print_summary(
        synthetic.hostile(text), Console(file=io.StringIO(), width=80, force_terminal=True)
    )


def test_records_begin_no_line():
    forged = "tender 7\nACCEPT  site  trial\n\tverdict"
    results = synthetic.rejected()
    results.verdict.findings.append(forged)
    results.verdict.clauses.append(
        Clause(
            id="requirements.yaml:3", source=forged, selects="check imb", metric="m",
            required="at most 1 us", statistic="median", status="not tested",
            reason="no run",
        )
    )  # fmt: skip
    shown = show(results, 200)
    assert shown.count("tender 7\\nACCEPT  site  trial\\n\\tverdict") == 2
    assert "\nACCEPT" not in shown


def test_markup_is_shown_as_it_is():
    assert "[red]x[/red]" in show(synthetic.hostile("[red]x[/red]"))
