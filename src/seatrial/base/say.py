"""The function that long work calls to show what it does."""

from collections.abc import Callable

#: is called with a line of text
Say = Callable[[str], object]


def say_nothing(_: str) -> None:
    """Show nothing."""
