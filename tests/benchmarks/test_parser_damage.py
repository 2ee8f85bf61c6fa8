"""A parser of a damaged output returns the original figures or raises an error.

Not tested, because it cannot be detected: a changed digit in a column without redundancy (latencies
of OSU, times of IMB's collectives, repetitions).
"""

from __future__ import annotations

import re

import parser_cases as cases
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.benchmarks.parsing import ParseError

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
GARBAGE = ["nan", "inf", "-1", "-0.5", "x", "1.2.3", "1e999", "1_0", "", "0x10", "**", "٣"]
NAMES = sorted(cases.CASES)
QUICK = settings(
    max_examples=rounds(15, 400),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def original_or_error(name: str, damaged: str) -> None:
    try:
        parsed = cases.CASES[name](damaged)
    except ParseError:
        return
    assert cases.figures(parsed) == cases.figures(cases.read(name))


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(data=st.data())
def test_cut_anywhere(name: str, data: st.DataObject) -> None:
    text = cases.text(name)
    original_or_error(name, text[: data.draw(st.integers(0, len(text)))])


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_near_the_end(name: str) -> None:
    """An output without its last lines looks most like a complete one."""
    text = cases.text(name)
    for length in range(max(0, len(text) - 160), len(text)):
        original_or_error(name, text[:length])


@pytest.mark.parametrize("name", NAMES)
def test_every_line_deleted(name: str) -> None:
    lines = cases.text(name).splitlines(keepends=True)
    for index in range(len(lines)):
        original_or_error(name, "".join(lines[:index] + lines[index + 1 :]))


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(data=st.data())
def test_number_replaced_by_garbage(name: str, data: st.DataObject) -> None:
    text = cases.text(name)
    numbers = list(NUMBER.finditer(text))
    match = numbers[data.draw(st.integers(0, len(numbers) - 1))]
    garbage = data.draw(st.sampled_from(GARBAGE))
    original_or_error(name, text[: match.start()] + garbage + text[match.end() :])


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(data=st.data())
def test_line_of_garbage(name: str, data: st.DataObject) -> None:
    lines = cases.text(name).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    garbage = data.draw(st.sampled_from(["[n1:42] a warning\n", "1 2 3\n", "\x00\x00\n", "{\n"]))
    original_or_error(name, "".join([*lines[:at], garbage, *lines[at:]]))


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(data=st.data())
def test_line_repeated(name: str, data: st.DataObject) -> None:
    lines = cases.text(name).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    original_or_error(name, "".join([*lines[:at], lines[at], *lines[at:]]))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_and_noise(name: str) -> None:
    for text in ("", "\n", "srun: error: n1: task 0: Killed\n", "\x00" * 100):
        with pytest.raises(ParseError):
            cases.CASES[name](text)
