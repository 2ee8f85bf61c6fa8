"""A problem of one field of a site file, and corrections for names that are not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from seatrial.base import globs


class FieldProblem(NamedTuple):
    """What is wrong with a field, for a file whose lines are not at hand.

    ``field`` is a dotted path from the top of the file, such as ``partitions.compute.nodes``.
    """

    field: str
    message: str
    correction: str


def matching(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that one of the glob patterns matches, in their own order."""
    wanted = list(patterns)
    return [name for name in names if globs.any_matches(wanted, name)]


def suggest(word: object, known: Iterable[str], *, listed: bool = False) -> str:
    """A correction for a name that is not in ``known``: the nearest name, else all of them.

    ``listed``: the message lists the names already, so the correction does not.
    """
    names = sorted(known)
    by_lower_case = {name.lower(): name for name in names}
    near = get_close_matches(str(word), names, n=1)
    same = by_lower_case.get(str(word).lower())
    if same or near:
        return f"did you mean {same or near[0]!r}?"
    return "" if listed else f"known here: {', '.join(names) or 'none'}"


def unmatched(field: str, patterns: list[str], known: Iterable[str]) -> Iterable[FieldProblem]:
    """A problem for each glob pattern that matches no name."""
    names = list(known)
    for index, pattern in enumerate(patterns):
        if not matching([pattern], names):
            yield FieldProblem(
                f"{field}.{index}", f"{pattern!r} matches nothing", suggest(pattern, names)
            )
