"""The help of the command line: it has groups, examples, and fits on a screen."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from seatrial.cli import app, panels

RUNNER = CliRunner()
LINES = 25


def commands(group=None, words=()):
    """(words, command) of all commands and groups, such as (("lab", "up"), ...)."""
    group = group or typer.main.get_command(app)
    yield words, group
    for name, one in getattr(group, "commands", {}).items():
        if hasattr(one, "commands"):
            yield from commands(one, (*words, name))
        else:
            yield (*words, name), one


ALL = dict(commands())


def help_of(words) -> str:
    done = RUNNER.invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "seatrial")
def test_help_fits_on_a_screen(words):
    lines = help_of(words).rstrip().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "words", [w for w, one in ALL.items() if not hasattr(one, "commands")], ids=" ".join
)
def test_each_command_has_an_example_that_parses(words):
    example = re.search(r"Example: seatrial ([^\n]*(?:\n  [^\n]+)*)", help_of(words))
    assert example, "no example"
    given = shlex.split(" ".join(example[1].split()))
    assert tuple(given[: len(words)]) == words
    command = ALL[words]
    # raises a usage error for an option or an argument that the command does not have
    command.make_context(" ".join(words), given[len(words) :], resilient_parsing=False)


def test_each_command_stands_under_a_title():
    text = help_of(())
    titles = (
        panels.TEST, panels.COMPARE, panels.BUILD, panels.OPERATE, panels.LABS,
    )  # fmt: skip
    found = [text.index(f"{title}:\n") for title in titles]
    assert found == sorted(found)
    for name in {words[0] for words in ALL if words}:
        assert len(re.findall(rf"^  {name} +[A-Z]", text, re.MULTILINE)) == 1
