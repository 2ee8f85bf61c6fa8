"""Edits ``requirements.yaml`` as text, entry by entry; all other bytes stay.

A round trip through a YAML library may change the indentation or quotes of an entry that a person
signed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.results.requirements import Accepted, Document, Threshold

_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off)$)[A-Za-z][\w.%/-]*", re.IGNORECASE)


def edit(
    text: str,
    document: Document,
    lines: yamlfile.Lines,
    entries: list[tuple[list[int], Threshold]],
) -> str:
    """Replace older entries in place and append new ones; all other text stays.

    ``entries``: the indices of the entries that each new one replaces, and the new one. Raises
    InputError if the layout of the file cannot be edited safely.
    """
    if not entries:
        return text
    replaced: dict[int, list[Threshold]] = {}
    appended: list[Threshold] = []
    for older, threshold in entries:
        for index in older:
            replaced.setdefault(index, [])
        (replaced[older[0]] if older else appended).append(threshold)
    wanted = [
        new for index, old in enumerate(document.requirements) for new in replaced.get(index, [old])
    ] + appended
    edited = _splice(
        text, lines, "requirements",
        {index: list(map(_entry, several)) for index, several in replaced.items()},
        list(map(_entry, appended)),
    )  # fmt: skip
    return _checked(edited, document.model_copy(update={"requirements": wanted}), lines)


def with_accepted(text: str, accepted: Accepted, file: Path) -> str:
    """Append a record to the list ``accepted``, which is made at the end if there is none.

    Raises InputError as ``edit`` does.
    """
    document, lines = yamlfile.loads(text, Document, file)
    rows = [
        f"{key}: {_scalar(value)}"
        for key, value in accepted.model_dump(mode="json", exclude_none=True).items()
    ]
    edited = _splice(text, lines, "accepted", {}, ["- " + "\n  ".join(rows)])
    wanted = document.model_copy(update={"accepted": [*document.accepted, accepted]})
    return _checked(edited, wanted, lines, "accepted")


def _checked(
    edited: str, wanted: Document, lines: yamlfile.Lines, name: str = "requirements"
) -> str:
    """The edited text, if it says what it must."""
    try:
        now, _ = yamlfile.loads(edited, Document, lines.file)
    except InputError as error:
        raise _uneditable(lines, f"the edited file would be faulty: {error}", name) from None
    if now != wanted:
        raise _uneditable(lines, "its layout is too unusual to edit safely", name)
    return edited


def _uneditable(lines: yamlfile.Lines, message: str, name: str = "requirements") -> InputError:
    correction = f"write {name!r} as a list with one '- ' item per entry"
    return InputError([lines.problem(name, message, correction)])


def _splice(
    text: str,
    lines: yamlfile.Lines,
    name: str,
    replaced: dict[int, list[str]],
    appended: list[str],
) -> str:
    """Replace items of the list ``name`` by number, and append items."""
    newline = "\r\n" if "\r\n" in text else "\n"
    node = _value(lines.root, name)
    if isinstance(node, SequenceNode) and not node.value:  # "requirements: []"
        text = text[: node.start_mark.index].rstrip(" ") + text[node.end_mark.index :]
    rows = yamlfile.rows(text)
    if rows and not rows[-1].endswith(("\n", "\r")):
        rows[-1] += newline
    if not isinstance(node, SequenceNode) or not node.value:
        if node is None:
            rows.append(f"{name}:{newline}")
            at = len(rows)
        else:
            at = (lines.of(name) or 0) or len(rows)
        return "".join(rows[:at] + _rows(appended, 2, newline) + rows[at:])
    if node.flow_style:
        raise _uneditable(lines, "the list is written in brackets", name)
    column = node.start_mark.column
    spans = _spans(node, rows)
    out, done = [], 0
    for index, (start, end) in enumerate(spans):
        if index in replaced:
            out += rows[done:start] + _rows(replaced[index], column, newline)
            done = end
    last = spans[-1][1]
    out += rows[done:last] + _rows(appended, column, newline) + rows[last:]
    return "".join(out)


def _value(root: Node | None, name: str) -> Node | None:
    pairs = root.value if isinstance(root, MappingNode) else []
    return next((v for k, v in pairs if isinstance(k, ScalarNode) and k.value == name), None)


def _spans(node: SequenceNode, rows: list[str]) -> list[tuple[int, int]]:
    """The rows of each item, from first to one past the last, without the comments after it."""
    column = node.start_mark.column
    starts = []
    for item in node.value:
        row = item.start_mark.line
        while row > node.start_mark.line and rows[row][: column + 1].strip() != "-":
            row -= 1
        starts.append(row)
    spans = []
    ends = [*starts[1:], min(node.end_mark.line or len(rows), len(rows))]
    if node.end_mark.column and rows[ends[-1] : ends[-1] + 1]:
        ends[-1] += not rows[ends[-1]][: node.end_mark.column].isspace()
    for start, end in zip(starts, ends, strict=True):
        while end > start + 1 and re.match(r"\s*(#|$)", rows[end - 1]):
            end -= 1
        spans.append((start, end))
    return spans


def _rows(items: Sequence[str], column: int, newline: str) -> list[str]:
    return [f"{' ' * column}{row}{newline}" for item in items for row in item.split("\n")]


def _entry(t: Threshold) -> str:
    """An entry in the usual style of the file."""
    select = t.select.model_dump(exclude_none=True)
    rows = [f"- select: {{{', '.join(f'{k}: {_scalar(v)}' for k, v in select.items())}}}"]
    fields = t.model_dump(exclude={"select"}, exclude_none=True)
    order = ("metric", "basis", "source", "statistic", "reference", "lower", "upper", "unit")
    rows += [f"  {key}: {_scalar(fields[key])}" for key in order if key in fields]
    return "\n".join(rows)


def _scalar(value: str | float) -> str:
    if not isinstance(value, str):
        return repr(value)
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
