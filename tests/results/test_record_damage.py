"""A results file of any content is read, or is bad input with its line. It never ends a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from campaigns import rounds
from hostile import damaged
from seatrial.base.errors import InputError
from seatrial.report import write_all
from seatrial.results.folder import RESULTS_FILE, Results, read_results, write_results
from seatrial.results.judge import judge
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.results.verdict import conclude
from trial_folder import make_trial, requirements_text

MANY = settings(max_examples=rounds(100, 5000), derandomize=True, database=None)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = make_trial(tmp_path_factory.mktemp("trial") / "t1")
    return (folder / RESULTS_FILE).read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Requirements:
    file = tmp_path_factory.mktemp("rules") / "requirements.yaml"
    file.write_text(requirements_text(20))
    return load_requirements(file)


def read_or_refuse(place: Path, content: bytes) -> Results | None:
    file = place / RESULTS_FILE
    file.write_bytes(content)
    try:
        results = read_results(place)
    except InputError as error:
        event("refused")
        problem = error.problems[0]
        assert str(problem.file) == str(file)
        assert problem.line or "no such" in problem.message
        return None
    event("read")
    return results


@MANY
@given(data=st.data())
def test_bytes(place: Path, lines: list[bytes], data: st.DataObject) -> None:
    text = bytearray(b"".join(lines))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 20))
        text[at : at + cut] = data.draw(st.binary(max_size=8))
    read_or_refuse(place, bytes(text))


@MANY
@given(data=st.data())
def test_values(place: Path, lines: list[bytes], rules: Requirements, data: st.DataObject) -> None:
    """A field of any depth gets another value. What is read can be judged, reported, written."""
    number = data.draw(st.integers(0, len(lines) - 1))
    record = json.loads(lines[number])
    text = data.draw(damaged(record))
    changed = [*lines[:number], text.encode() + b"\n", *lines[number + 1 :]]
    results = read_or_refuse(place, b"".join(changed))
    if results:
        written = [results.trial, *results.runs, *results.judgements]
        write_results(place / RESULTS_FILE, [*written, *results.verdicts])
        again = read_results(place)
        assert repr(again) == repr(results)  # NaN is not equal to itself
        judgements = judge(results.trial, results.runs, rules)
        conclude(results.trial, results.runs, judgements, rules, ended=results.trial.started)
        write_all(results, place)


@MANY
@given(data=st.data())
def test_order(place: Path, lines: list[bytes], data: st.DataObject) -> None:
    """Lines that are repeated, left out or exchanged."""
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=8))
    read_or_refuse(place, b"".join(chosen))
