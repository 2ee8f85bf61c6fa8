"""The commands of the command line: their help under titles, and a check of all their options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from typer.core import TyperArgument, TyperGroup

from seatrial.base.errors import InputError, Problem

TEST = "Test a site"
COMPARE = "Compare and judge"
BUILD = "Build and test"
OPERATE = "Operate nodes"
JOBS = "Users' jobs"
TITLES = (TEST, COMPARE, BUILD, OPERATE, JOBS)


class Panels(TyperGroup):
    """A group that lists its commands under the titles of their ``rich_help_panel``.

    Typer's own panels are boxes: with them, the groups do not fit on a screen of 25 lines.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        for command in _below(self):
            # \b: the next lines are not wrapped, so that an example can be copied
            command.help = (command.help or "").replace("\n\nExample:", "\n\n\b\nExample:")
            for param in command.params:
                _name_value(param)
            setattr(command, "invoke", _checked(command))  # noqa: B010 - mypy refuses a method

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            # each line counts at the top: the usage has the options there
            if ctx.parent is None or param.name == "show_completion":
                setattr(param, "hidden", True)  # noqa: B010 - mypy knows no such attribute
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return pieces if ctx.parent else ["[--version | --install-completion]", *pieces[1:]]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.buffer = ["".join(formatter.buffer).replace("\n\n", "\n")]  # no blank lines

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = [self.commands[name] for name in self.list_commands(ctx)]
        longest = max(len(str(command.name)) for command in shown)
        for title in TITLES:
            formatter.write_heading(title)
            formatter.indent()
            formatter.write_dl(
                [
                    (str(command.name).ljust(longest), command.get_short_help_str(formatter.width))
                    for command in shown
                    if getattr(command, "rich_help_panel", None) == title
                ]
            )
            formatter.dedent()


def _below(group: TyperGroup) -> Iterator[Any]:
    """All groups and commands of a group."""
    for command in group.commands.values():
        yield command
        if isinstance(command, TyperGroup):
            yield from _below(command)


def _checked(command: Any) -> Callable[[Any], Any]:
    """``command.invoke``, which first raises InputError if a value is no text. The name of a file
    may be none."""
    invoke: Callable[[Any], Any] = command.invoke

    def checked(ctx: Any) -> Any:
        for param in command.params:
            value = ctx.params.get(param.name)
            if param.type_descriptor.is_path:
                continue
            for text in value if isinstance(value, list | tuple) else [value]:
                if isinstance(text, str) and not _is_utf8(text):
                    name = param.opts[0] if param.opts[0].startswith("-") else param.metavar
                    raise InputError([Problem(name, None, "", f"{text!r} is not UTF-8")])
        return invoke(ctx)

    return checked


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name_value(parameter: Any) -> None:
    """Show the value of an option or argument as a word in capitals, not as a type of Python."""
    kind = parameter.type_descriptor
    if isinstance(parameter, TyperArgument):
        parameter.metavar = parameter.metavar or str(parameter.name).upper()
        setattr(parameter, "display_type_rich", lambda ctx: None)  # noqa: B010 - mypy refuses a method
    elif not parameter.is_flag and parameter.metavar is None:
        number = kind.annotation in (int, float)
        parameter.metavar = (
            "N" if number else "PATH" if kind.is_path else parameter.name.split("_")[-1].upper()
        )
