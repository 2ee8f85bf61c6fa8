"""Hostile text for a shell, sbatch or a terminal, and hostile JSON, for hypothesis."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HOSTILE = st.text(
    st.one_of(
        st.sampled_from(list(" '\"\\$`;&|<>(){}[]*?!~#=%-\n\t\r\x0b\x1b\x7f\x85\u2028é")),
        st.sampled_from(list("abSBATCH01")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=30,
)
CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"

#: values that JSON allows, or that Python's reader allows beside it
ODD = [
    "NaN", "Infinity", "-0", "1e999", "-1", "null", "true", '""', "[]", "{}", '"\\ud800"',
    '"\\u0000"', "9" * 400, "[" * 3000, '{"a":' * 200, '"2026-13-45T99:00:00Z"', "0.1", '"\\u202e"',
]  # fmt: skip
#: values of a kind that a schema allows and no benchmark writes
ODD_NUMBERS = [0, -1, 1, 5e-324, 1e308, -1e308, float("nan"), float("inf"), 2**62]
ODD_WORDS = ["", "x", "-", ">", "n1-n1", "n1>n2", "n" * 256, "us", "MB/s", "2026-01-01T00:00:00"]
ODD_ENDS = ["\\ud800", "\\u0000", "\\u202e"]


@st.composite
def damaged(draw: st.DrawFn, record: Any) -> str:
    """The JSON of a record in which one value, at any depth, is another, or has an odd end."""
    path = draw(st.sampled_from(paths_of(record)))
    text = json.dumps(replaced(record, path, "@odd@"))
    value = record
    for part in path:
        value = value[part]
    if isinstance(value, str) and draw(st.booleans()):
        odd = json.dumps(value)[:-1] + draw(st.sampled_from(ODD_ENDS)) + '"'
    else:
        odd = draw(st.sampled_from(ODD))
    return text.replace('"@odd@"', odd)


@st.composite
def altered(draw: st.DrawFn, record: Any, most: int = 6) -> Any:
    """A record in which some values, at any depth, are odd ones of their own kind."""
    for _ in range(draw(st.integers(1, most))):
        path = draw(st.sampled_from(paths_of(record)))
        value = record
        for part in path:
            value = value[part]
        odd = draw(st.sampled_from(ODD_WORDS if isinstance(value, str) else ODD_NUMBERS))
        record = replaced(record, path, odd)
    return record


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to each value of a record."""
    if not isinstance(value, (dict, list)):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] * bool(path) + [
        one for key, part in items for one in paths_of(part, (*path, key))
    ]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def deepen(folder: Path, depth: int = 3000, name: str = "d") -> None:
    """Make folders in each other: more than Python's recursion, and longer than a path may be."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=descriptor)
        deeper = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
