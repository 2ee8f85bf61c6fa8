"""A fault between the parts of a site file, and corrections for names that are not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple


class FieldProblem(NamedTuple):
    field: str
    message: str
    correction: str


def matching(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that one of the glob patterns matches, in their own order."""
    wanted = list(patterns)
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]


def suggest(word: str, known: Iterable[str]) -> str:
    """A correction for a name that is not among ``known``."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names) or 'none'}"


def unmatched(field: str, patterns: list[str], known: Iterable[str]) -> Iterable[FieldProblem]:
    """A fault for each glob pattern that matches nothing: most likely a misspelt name."""
    names = list(known)
    for index, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in names):
            yield FieldProblem(
                f"{field}.{index}", f"{pattern!r} matches nothing", suggest(pattern, names)
            )
