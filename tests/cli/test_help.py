"""The help of the command line: groups, examples, one screen. And values that are no text."""

from __future__ import annotations

import functools
import re
import shlex

import pytest
import typer

from seatrial.base.errors import InputError
from seatrial.cli import app, panels

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


@functools.cache
def help_of(words) -> str:
    """The help in a terminal of 80 columns: there Typer's lines have 78, and in its runner 80."""
    context = ALL[words].make_context(
        " ".join(("seatrial", *words)), [], resilient_parsing=True, terminal_width=78
    )
    return ALL[words].get_help(context)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "seatrial")
def test_help_fits_on_a_screen(words):
    lines = help_of(words).rstrip().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "seatrial")
def test_each_command_has_an_example_on_one_line_that_parses(words):
    """A line of a terminal can be copied; an example that is wrapped at a hyphen is broken."""
    example = re.search(r"^ *Example: (seatrial .*)\n( +\S)?", help_of(words), re.MULTILINE)
    assert example, "no example"
    assert not example[2], "more than one line"
    assert tuple(shlex.split(example[1])[1 : len(words) + 1]) == words
    # of a group: of one of its commands, unless it does something by itself
    given = shlex.split(example[1])[1:]
    named = max((w for w in ALL if tuple(given[: len(w)]) == w), key=len)
    group = ALL[named]
    assert not hasattr(group, "commands") or group.invoke_without_command
    # raises a usage error for an option or an argument that the command does not have
    command = ALL[named]
    command.make_context(" ".join(named), given[len(named) :], resilient_parsing=False)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "seatrial")
def test_help_names_values_in_capitals_and_cuts_no_sentence(words):
    text = help_of(words)
    assert not re.search(r"<\w", text)
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)
    for param in ALL[words].params:
        assert param.metavar is None or param.metavar == param.metavar.upper()


def test_a_short_option_has_one_meaning():
    """Below all commands but those of pytest, a letter stands for the same long option."""
    meanings = {}
    for one in {id(param): param for command in ALL.values() for param in command.params}.values():
        for letter in (word for word in one.opts if re.fullmatch("-[A-Za-z]", word)):
            long = next(word for word in one.opts if word.startswith("--"))
            meanings.setdefault(letter, set()).add(long)
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}
    assert meanings["-i"] == {"--instance"}


def test_each_command_stands_under_a_title():
    text = help_of(())
    found = [text.index(f"{title}:\n") for title in panels.TITLES]
    assert found == sorted(found)
    for name in {words[0] for words in ALL if words}:
        assert len(re.findall(rf"^  {name} +[A-Z]", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "seatrial")
def test_a_value_that_is_no_text_is_named_before_the_command_runs(words):
    """The name of a file may be no text: the command says what it finds there."""
    command = ALL[words]
    for param in command.params:
        context = command.make_context(" ".join(words), [], resilient_parsing=True)
        if words and not (param.is_flag if hasattr(param, "is_flag") else False):
            value = "\udcff"
            context.params[param.name] = [value] if param.nargs == -1 or param.multiple else value
            if not param.type_descriptor.is_path:
                with pytest.raises(InputError, match=r"'\\udcff' is not UTF-8"):
                    command.invoke(context)
