"""Glob patterns as users write them: in options, conditions and requirements.

They are those of the shell: ``*``, ``?``, ``[abc]``, ``[a-c]``, ``[!a]``. Commas and ranges of
numbers in brackets are a set of numbers, as in Slurm's lists of nodes: ``n[1-12]``, ``n[01-16]``,
``n[1,4-6]``. Where the shell knows the text, too, both mean the same: ``n[1-3]``. ``[12]`` is 1 or
2, as in the shell.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from seatrial.base.errors import InputError

_NUMBERS = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*")
_OF_SHELL = re.compile(r"\d+|\d-\d")  # means the same in the shell, or something else there
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)  # of characters
_MOST = 10_000  # numbers of a set


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a text matches. What is wrong in a pattern matches nothing, or
    itself only."""
    regex = ""
    rest = ""  # of the parts that are the shell's
    for text, in_brackets in _parts(pattern):
        numbers = _numbers(text[1:-1]) if in_brackets else []
        if numbers and len(numbers) <= _MOST:
            regex += f"{_of_shell(rest)}(?:{'|'.join(numbers)})"
            rest = ""
        else:
            rest += text
    match = re.compile(f"(?s:{regex}{_of_shell(rest)})").fullmatch
    return lambda text: match(text) is not None


def any_matches(patterns: Iterable[str], text: str) -> bool:
    """Whether one of several patterns matches a text."""
    return any(matcher(pattern)(text) for pattern in patterns)


def literal_begin(pattern: str) -> str:
    """What each text begins with that the pattern matches."""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0]


def check(patterns: Iterable[str]) -> None:
    """Raise InputError if one of the patterns cannot match what its writer means."""
    for pattern in patterns:
        for text, in_brackets in _parts(pattern):
            if in_brackets:
                _check_brackets(pattern, text)
            elif text.startswith("["):
                text = "'[' without ']'; a bracket itself is written [[]"
                raise InputError(f"{pattern}: {text}")


def folded(pattern: str, old: str, new: str) -> str:
    """The pattern with another character outside of brackets: in them ``-`` is a range."""
    return "".join(
        text if in_brackets else text.replace(old, new) for text, in_brackets in _parts(pattern)
    )


def split(text: str) -> list[str]:
    """The patterns of a list with commas. A comma in brackets divides nothing."""
    parts = [""]
    for part, in_brackets in _parts(text):
        first, *others = [part] if in_brackets else part.split(",")
        parts[-1] += first
        parts += others
    return parts


def _parts(pattern: str) -> Iterator[tuple[str, bool]]:
    """The parts of a pattern in their order, and whether each is in brackets. A bracket that is
    not closed begins the last part."""
    at = 0
    while (begin := pattern.find("[", at)) >= 0:
        first = begin + 1 + pattern.startswith("!", begin + 1)
        end = pattern.find("]", first + 1)  # a "]" at the begin is one of the characters
        if begin > at:
            yield pattern[at:begin], False
        if end < 0:
            yield pattern[begin:], False
            return
        yield pattern[begin : end + 1], True
        at = end + 1
    if at < len(pattern):
        yield pattern[at:], False


def _of_shell(pattern: str) -> str:
    return fnmatch.translate(pattern).removeprefix("(?s:").removesuffix(r")\Z")


def _is_set(text: str) -> bool:
    return bool(_NUMBERS.fullmatch(text)) and not _OF_SHELL.fullmatch(text)


def _numbers(text: str) -> list[str]:
    """The numbers of a set, at most one more than ``_MOST``; [] if the text is none."""
    if not _is_set(text):
        return []
    result: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        count = min(int(last or first) - int(first), _MOST) + 1
        result += [str(int(first) + n).zfill(len(first)) for n in range(count)]
    return result[: _MOST + 1]


def _check_brackets(pattern: str, text: str) -> None:
    inner = text[1:-1]
    if _is_set(inner):
        if len(_numbers(inner)) > _MOST:
            raise InputError(f"{pattern}: {text} is more than {_MOST} numbers: use '*'")
        parts = [part.partition("-") for part in inner.split(",")]
        ranges = [(first, last) for first, _, last in parts if last]
        wrong = [pair for pair in ranges if int(pair[0]) > int(pair[1])]
    else:
        ranges = _RANGE.findall(inner.removeprefix("!"))
        wrong = [pair for pair in ranges if pair[0] > pair[1]]
    for first, last in wrong:
        raise InputError(f"{pattern}: {text} is no range: {last} comes before {first}")
