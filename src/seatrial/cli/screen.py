"""The consoles that the commands print to."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def open_console(**options: Any) -> Console:
    """A console with Rich's options that prints ``:100:``, line 100 of a file, as it is.

    Rich has an emoji of that name.
    """
    return Console(emoji=False, **options)
