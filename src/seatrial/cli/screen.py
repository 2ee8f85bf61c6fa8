"""The consoles that the commands print to."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from seatrial.report.text import line


def open_console(**options: Any) -> Console:
    """A console with Rich's options that prints ``:100:``, line 100 of a file, as it is.

    Rich has an emoji of that name.
    """
    return Console(emoji=False, **options)


#: what commands print to
out = open_console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line. The names in it are untrusted: they begin no line, and a terminal executes
    nothing of them."""
    out.print(line(text), markup=False)
