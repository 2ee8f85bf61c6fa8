"""A results file of any content is read, or is bad input with its line. It never ends a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.base.errors import InputError
from seatrial.report import write_all
from seatrial.results.judge import judge
from seatrial.results.record import RESULTS_FILE, Results, read_results, write_results
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.results.verdict import conclude
from trial_folder import make_trial, requirements_text

MANY = settings(max_examples=rounds(100, 5000), derandomize=True, database=None)
#: values that JSON allows, or that Python's reader allows beside it
ODD = [
    "NaN", "Infinity", "-0", "1e999", "-1", "null", "true", '""', "[]", "{}", '"\\ud800"',
    '"\\u0000"', "9" * 400, "[" * 3000, '{"a":' * 200, '"2026-13-45T99:00:00Z"', "0.1", '"\\u202e"',
]  # fmt: skip


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
    path = data.draw(st.sampled_from(list(paths(record))))
    odd = data.draw(st.sampled_from(ODD))
    text = json.dumps(replaced(record, path, "@odd@")).replace('"@odd@"', odd)
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


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to each value of a record."""
    if not isinstance(value, (dict, list)):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] * bool(path) + [one for key, part in items for one in paths(part, (*path, key))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy
