"""Reads a YAML file that a person wrote, and reports each error with its place.

``load`` parses the file (ruamel.yaml, YAML 1.2) and validates it with a pydantic model. Each error
becomes a ``Problem`` with file, line, dotted field and correction. This module knows nothing of
sites or requirements. The model defines what is valid; its validators raise ``InvalidValue`` for
a rule that needs its own message.

The file is composed into nodes for the line numbers, and constructed into plain values for the
model: plain values have no line numbers. In YAML 1.2 ``on``, ``off``, ``yes`` and ``no`` are
strings; a model's ``bool`` accepts them.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from seatrial.base.errors import InputError, Problem
from seatrial.base.suggest import suggest

M = TypeVar("M", bound=BaseModel)
Part = str | int
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what a YAML reader counts as a line's end
_MERGE = "tag:yaml.org,2002:merge"


class InvalidValue(ValueError):
    """Raised by a model's validators: one or more broken rules, each with its correction.

    ``InvalidValue("text", "correction", "sub.field")``, or ``InvalidValue.several([...])`` for more
    than one. ``field`` is relative to the model whose validator raises. It gives the line.
    """

    def __init__(self, message: str, correction: str = "", field: str = ""):
        super().__init__(message)
        self.parts = [(message, correction, field)]

    @classmethod
    def several(cls, parts: Sequence[tuple[str, str, str]]) -> InvalidValue:
        error = cls("; ".join(part[0] for part in parts))
        error.parts = list(parts)
        return error


@dataclass
class Lines:
    """The line numbers of a file's fields. Lines count from 1; a field is a dotted path."""

    file: Path | str
    text: str = ""
    root: Node | None = None

    def of(self, path: str | Sequence[Part]) -> int | None:
        """Line of a key (``a.b``) or list item (``a.0``); "" is the file's first entry.

        None if there is no such field. A key may contain dots.
        """
        if self.root is None:
            return None
        index = _line_index(self.root, path if isinstance(path, str) else _dotted(path))
        return None if index is None else index + 1

    def near(self, path: str | Sequence[Part]) -> int | None:
        """Line of the field, or of the innermost enclosing field that exists."""
        text = path if isinstance(path, str) else _dotted(path)
        while True:
            line = self.of(text)
            if line is not None or not text:
                return line
            text = text.rpartition(".")[0]

    def problem(self, path: str | Sequence[Part], message: str, correction: str = "") -> Problem:
        """A Problem at a field, for rules about several fields or files."""
        text = path if isinstance(path, str) else _dotted(path)
        return Problem(self.file, self.near(text), text, message, correction)


def load(path: Path | str, model: type[M], content: bytes | None = None) -> tuple[M, Lines]:
    """Read and validate a file; ``content`` is what is in it, if the caller has read it.

    Raises InputError with all problems. After a syntax error, the rest of the file is not read.
    """
    file = Path(path)
    if content is None:
        try:
            content = file.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError([Problem(file, None, "", f"cannot be read: {reason}")]) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError([Problem(file, line, "", "not UTF-8 text", "save it as UTF-8")]) from None
    return loads(text, model, file)


def loads(text: str, model: type[M], file: Path | str = "<text>") -> tuple[M, Lines]:
    """The same as ``load``, for a text. ``file`` is the name that the problems show."""
    lines = Lines(file, text)
    data, problems = _parse(text, lines)
    if lines.root is None:
        raise InputError(problems)
    if data is None and not problems:
        raise InputError([Problem(file, 1, "", "the file is empty", _starter(model))])
    try:
        valid = model.model_validate(data)
    except ValidationError as error:
        problems += _problems(error, model, lines)
    if problems:
        raise InputError(sorted(dict.fromkeys(problems), key=lambda p: (p.line or 0, p.field)))
    return valid, lines


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The problems of data that a model refused and that is in no file, but in an option."""
    return _problems(error, model, Lines(""))


# --- parsing and line numbers --------------------------------------------------------


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # ``_duplicates`` reports all, ruamel only the first
    return yaml


def _parse(text: str, lines: Lines) -> tuple[Any, list[Problem]]:
    """Plain data and the syntax problems. ``lines.root`` stays None if the text has no node."""
    try:
        yaml = _yaml()
        root = yaml.compose(text)
        if root is None:
            return None, [Problem(lines.file, 1, "", "the file is empty")]
        if no_names := list(_keys_without_a_name(root, lines.file)):
            return None, no_names
        # Construction moves merged keys ("<<") into the nodes, but ``root`` must keep its lines.
        copy = _yaml().compose(text) if "<<" in text else root
        data = yaml.constructor.construct_document(copy)
    except (YAMLError, ValueError, RecursionError) as error:
        return None, _syntax(error, text, lines.file)
    lines.root = root
    return data, list(_duplicates(root, lines.file))


def _syntax(error: Exception, text: str, file: Path | str) -> list[Problem]:
    rows = _BREAK.split(text)
    line: int | None = None
    message = str(error) or type(error).__name__
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, len(rows)) if mark else None
        parts = [error.context, error.problem]
        message = ", ".join(part for part in parts if part) or message
        begin, what = error.context_mark, _begun(error.context or "")
        if what and begin and mark and begin.line < mark.line:
            message += f"; the {what} begins in line {begin.line + 1}"
    elif isinstance(error, ReaderError):
        line = len(_BREAK.split(text[: error.position]))
        message = f"character {error.character!r} is not allowed"
    elif isinstance(error, RecursionError):
        message = "nested too deeply"
    else:
        line = _unreadable_scalar(text)
    # The parser reports a tab in the indentation at a later line.
    last = line or len(rows)
    tabs = [n for n, row in enumerate(rows[:last], 1) if re.match(r"[ -]*\t\s*\S", row)]
    if tabs:
        return [
            Problem(file, n, "", "a tab in the indentation", "indent with spaces") for n in tabs
        ]
    return [Problem(file, line, "", f"not valid YAML: {message}", _hint(message))]


def _unreadable_scalar(text: str) -> int | None:
    """Line of a value with the form of a date or number that is invalid, such as 2026-13-45."""
    nodes: list[Node] = [_yaml().compose(text)]
    while nodes:
        node = nodes.pop(0)
        if not isinstance(node, ScalarNode):
            nodes += [part for entry in node.value for part in _pair(entry)]
            continue
        try:
            _yaml().load(node.value) if node.style is None else None
        except ValueError:
            return int(node.start_mark.line) + 1
        except YAMLError:
            continue
    return None


def _pair(entry: Node | tuple[Node, Node]) -> tuple[Node, ...]:
    return entry if isinstance(entry, tuple) else (entry,)


def _begun(context: str) -> str:
    """What a parser's error says was begun and not ended; empty for a block."""
    words = {"flow": "bracket", "quoted scalar": "quote", "simple key": "key"}
    return next((word for name, word in words.items() if name in context), "")


def _hint(message: str) -> str:
    hints = {
        "mapping values are not allowed": "check the indentation, and quote text containing ': '",
        "cannot start any token": "quote text that begins with a special character",
        "undefined alias": "quote text that begins with '*'",
        "scanning an alias": "quote text that begins with '*'",
        "could not find expected ':'": "write 'field: value', with a blank after the ':'",
        "expected ',' or": "close the bracket, or separate the values with ','",
        "constructor for the tag": "quote text that begins with '!'",
        "another document": "keep one document per file: remove the '---' line",
        "unexpected end of stream": "close the quotes or brackets",
        "expected <block end>": "align it with its neighbours",
    }
    return next((hint for words, hint in hints.items() if words in message), "")


def _keys_without_a_name(root: Node, file: Path | str) -> Iterator[Problem]:
    """Lists and mappings as keys, which Python cannot construct."""
    for at, inner in _walk(root, "", set()):
        for key, _value in inner.value:
            if not isinstance(key, ScalarNode):
                kind, sign = ("list", "[") if isinstance(key, SequenceNode) else ("mapping", "{")
                text = f"a {kind} is given as the name of a field"
                hint = f"write 'field: value', and quote text that begins with '{sign}'"
                yield Problem(file, key.start_mark.line + 1, at, text, hint)


def _duplicates(node: Node, file: Path | str, path: str = "") -> Iterator[Problem]:
    for at, inner in _walk(node, path, set()):
        seen: dict[str, int] = {}
        for key, _value in inner.value:
            if key.tag == _MERGE:
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                name = f"{at}.{key.value}" if at else key.value
                first = seen[key.value]
                text = f"given twice, first on line {first}"
                yield Problem(file, line, name, text, "keep one of the two")
            seen.setdefault(key.value, line)


def _walk(node: Node, path: str, seen: set[int]) -> Iterator[tuple[str, MappingNode]]:
    """Every mapping once, even if several aliases refer to it."""
    if id(node) in seen:
        return
    seen.add(id(node))
    prefix = f"{path}." if path else ""
    if isinstance(node, MappingNode):
        yield path, node
        for key, value in node.value:
            yield from _walk(value, f"{prefix}{key.value}", seen)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, f"{prefix}{index}", seen)


def _line_index(node: Node, path: str) -> int | None:
    if not path:
        return int(node.start_mark.line)
    if isinstance(node, SequenceNode):
        head, _, rest = path.partition(".")
        if not head.isdigit() or int(head) >= len(node.value):
            return None
        return _line_index(node.value[int(head)], rest)
    if not isinstance(node, MappingNode):
        return None
    merged: list[Node] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, SequenceNode) else [value]
        elif path == key.value:
            return int(key.start_mark.line)
        elif path.startswith(f"{key.value}."):
            index = _line_index(value, path[len(key.value) + 1 :])
            if index is not None:
                return index
    indexes = (_line_index(source, path) for source in merged)
    return next((index for index in indexes if index is not None), None)


def _dotted(path: Sequence[Part]) -> str:
    return ".".join(str(part) for part in path)


# --- from pydantic's errors to problems ----------------------------------------------


@dataclass
class _Spot:
    """The place of one pydantic error, in the data and in the model."""

    path: tuple[Part, ...] = ()
    kinds: list[Any] = field(default_factory=list)  # the types that are possible here
    owner: type[BaseModel] | None = None  # the innermost model around the last part
    branches: list[tuple[tuple[Part, ...], str]] = field(default_factory=list)


def _problems(error: ValidationError, model: type[BaseModel], lines: Lines) -> list[Problem]:
    errors = [(_spot(item["loc"], model), item) for item in error.errors()]
    return [p for spot, item in _one_branch(errors) for p in _describe(spot, item, lines)]


def _spot(loc: tuple[Part, ...], model: type[BaseModel]) -> _Spot:
    """Follow a location through the model, without the labels that pydantic adds for unions."""
    spot = _Spot(kinds=[model])
    labelled = False
    for part in loc:
        kinds = [inner for kind in spot.kinds for inner in _members(kind)]
        if len(kinds) > 1 and not labelled:
            spot.branches.append((spot.path, str(part)))
            spot.kinds = [kind for kind in kinds if _is_branch(kind, str(part))] or kinds
            labelled = True
            continue
        labelled = False
        if part == "[key]":
            continue
        spot.owner, spot.kinds = _child(kinds, part)
        spot.path = (*spot.path, part)
    return spot


def _members(kind: Any) -> list[Any]:
    """The alternatives of a type: of a union, without None; else the type itself."""
    kind = getattr(kind, "__value__", kind)  # a ``type X = ...`` alias
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        inner = typing.get_args(kind)[0]
        tagged = any(isinstance(note, Tag) for note in kind.__metadata__)
        return [kind] if tagged else _members(inner)
    if origin in (typing.Union, types.UnionType):
        return [m for arg in typing.get_args(kind) for m in _members(arg) if m is not type(None)]
    return [kind]


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_branch(kind: Any, label: str) -> bool:
    notes = getattr(kind, "__metadata__", ())
    if any(isinstance(note, Tag) and note.tag == label for note in notes):
        return True
    kind = _bare(kind)
    if _is_model(kind):
        literals = (f.annotation for f in kind.model_fields.values())
        words = {str(word) for a in literals if _is_literal(a) for word in typing.get_args(a)}
        return kind.__name__ == label or label in words
    name = getattr(typing.get_origin(kind) or kind, "__name__", str(kind)).lower()
    return label.partition("[")[0].rpartition("-")[2] == name


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _child(kinds: list[Any], part: Part) -> tuple[type[BaseModel] | None, list[Any]]:
    """The model that owns ``part``, and the types that its value may have."""
    owner = None
    for kind in map(_bare, kinds):
        if _is_model(kind):
            owner = kind
            for name, info in kind.model_fields.items():
                if part in (name, info.alias, info.validation_alias):
                    # Field(discriminator=...) and constraints are in the FieldInfo; the
                    # annotation alone holds the types.
                    return owner, [info.annotation]
        elif args := typing.get_args(kind):
            origin = typing.get_origin(kind)
            if isinstance(origin, type) and issubclass(origin, dict):
                return None, [args[-1]]
            if origin is tuple and isinstance(part, int) and args[-1] is not Ellipsis:
                return None, [args[min(part, len(args) - 1)]]
            return None, [args[0]]
    return owner, []


def _one_branch(errors: list[tuple[_Spot, Any]]) -> list[tuple[_Spot, Any]]:
    """Keep the errors of the alternative of a union that the writer most likely meant.

    Pydantic reports the errors of every alternative. An alternative of another kind (text, list,
    mapping) than the value was not meant. Of the others, the one with the fewest errors was.
    """
    groups: dict[tuple[Part, ...], dict[str, list[tuple[_Spot, Any]]]] = {}
    for spot, item in errors:
        for path, label in spot.branches:
            groups.setdefault(path, {}).setdefault(label, []).append((spot, item))
    dropped: set[int] = set()
    for path, branches in groups.items():
        if len(branches) < 2:
            continue

        def unfit(items: list[tuple[_Spot, Any]], at: tuple[Part, ...] = path) -> tuple[int, int]:
            wrong_kind = any(s.path == at and i["type"].endswith("_type") for s, i in items)
            return int(wrong_kind), len(items)

        best = min(branches.values(), key=unfit)
        kept = {id(item) for _, item in best}
        for spot, item in (pair for items in branches.values() for pair in items):
            if id(item) not in kept:
                dropped.add(id(item))
            elif unfit(best)[0] and spot.path == path:
                expected = dict.fromkeys(
                    _expected(i["type"])[0] for b in branches.values() for s, i in b
                )
                item["ctx"] = {**item.get("ctx", {}), "either": " or ".join(expected)}
    return [(spot, item) for spot, item in errors if id(item) not in dropped]


_EXPECTED = {
    "int": ("a whole number", "4"),
    "float": ("a number", "1.5"),
    "finite": ("a finite number", "1.5"),
    "decimal": ("a number", "1.5"),
    "string": ("text", '"some text"'),
    "bool": ("true or false", "true"),
    "list": ("a list", "[first, second]"),
    "tuple": ("a list", "[first, second]"),
    "set": ("a list", "[first, second]"),
    "dict": ("a mapping", "{name: value}"),
    "mapping": ("a mapping", "{name: value}"),
    "model": ("a mapping", "{name: value}"),
    "path": ("a path", "folder/file"),
    "date": ("a date", "2026-08-01"),
    "datetime": ("a date and time", "2026-08-01T12:00:00"),
}
_TYPE_ERROR = re.compile(r"_(type|parsing|from_float|attributes_type|number)(_|$)")


def _expected(kind: str) -> tuple[str, str]:
    return _EXPECTED.get(kind.partition("_")[0], (f"a {kind.partition('_')[0]}", ""))


def _describe(spot: _Spot, item: Any, lines: Lines) -> Iterator[Problem]:
    """The problems of one pydantic error."""
    kind, ctx, path = item["type"], item.get("ctx", {}), spot.path
    name = str(path[-1]) if path else ""
    cause = ctx.get("error")
    if isinstance(cause, InvalidValue):
        for message, correction, inner in cause.parts:
            at = (*path, *inner.split(".")) if inner else path
            yield lines.problem(at, message, correction)
    elif kind == "missing" or kind == "union_tag_not_found":
        if kind != "missing":
            name = str(ctx.get("discriminator", "")).strip("'")
            path = (*path, name)
        enclosing = lines.near(path[:-1])
        correction = f"add '{name}: {_example(spot, 'value')}'"
        if kind != "missing":
            correction = f"add '{name}', one of {', '.join(_tags(spot, name))}"
        elif not isinstance(path[-1], str):
            correction = "add it"
        dotted = _dotted(path)
        yield Problem(lines.file, enclosing, dotted, "required, but not given", correction)
    elif kind == "extra_forbidden":
        names = _names(spot.owner)
        yield lines.problem(path, "unknown field", suggest(name, names))
    elif kind in ("literal_error", "enum"):
        words = _words(str(ctx.get("expected", "")))
        text = f"{_shown(item['input'])} is not one of {', '.join(words)}"
        yield lines.problem(path, text, suggest(item["input"], words, listed=True))
    elif kind == "union_tag_invalid":
        words = _words(str(ctx["expected_tags"]))
        path = (*path, str(ctx["discriminator"]).strip("'"))
        text = f"'{ctx['tag']}' is not one of {', '.join(words)}"
        yield lines.problem(path, text, suggest(ctx["tag"], words, listed=True))
    elif _TYPE_ERROR.search(kind):
        wanted, example = _expected(kind)
        text = f"expected {ctx.get('either', wanted)}, found {_shown(item['input'])}"
        example = _example(spot, example)
        write = f"write for example '{name}: {example}'" if name and not name.isdigit() else ""
        if kind == "string_type" and isinstance(item["input"], int | float):
            write = f"put it in quotes: '{name}: \"{item['input']}\"'"
        yield lines.problem(path, text, write)
    else:
        text = re.sub(r"^(Value error|Assertion failed), ", "", item["msg"])
        text = re.sub(r"^Input should be", "must be", text)
        if kind != "value_error" and not isinstance(item["input"], dict | list):
            text = f"{text}, found {_shown(item['input'])}"
        limit = next((ctx[key] for key in ("ge", "le") if key in ctx), None)
        correction = (
            f"write for example '{name}: {_own_example(spot) or limit}'"
            if limit is not None
            else ""
        )
        yield lines.problem(path, text, correction)


def _names(owner: type[BaseModel] | None) -> list[str]:
    if owner is None:
        return []
    return [info.alias or name for name, info in owner.model_fields.items()]


def _words(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected) or [
        word for word in re.split(r", | or ", expected) if word
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'" if len(value) < 60 else f"'{value[:57]}...'"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return str(value)


def _example(spot: _Spot, fallback: str) -> str:
    """An example value: the field's own, or one of its type."""
    return _own_example(spot) or _example_of_kinds(spot.kinds, fallback)


def _own_example(spot: _Spot) -> str:
    """The field's ``examples`` or its default; empty if it has none."""
    if spot.owner is not None and spot.path:
        for name, info in spot.owner.model_fields.items():
            if spot.path[-1] in (name, info.alias):
                return _example_of_field(info)
    return ""


def _example_of_field(info: FieldInfo) -> str:
    if info.examples:
        return str(info.examples[0])
    default = info.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, str | int | float) and default != "":
        return str(default)
    if isinstance(default, list) and default:
        return f"[{', '.join(_in_yaml(value) for value in default)}]"
    return ""


def _in_yaml(value: Any) -> str:
    """A value as it stands in a YAML file: a glob needs quotes, as ``*`` begins an alias."""
    text = str(value)
    return f'"{text}"' if text.startswith("*") else text


def _example_of_kinds(kinds: Sequence[Any], fallback: str) -> str:
    """A word of an enumeration, a model with its required fields, or a value of the first type."""
    for kind in (m for k in kinds for m in _members(k)):
        kind = _bare(kind)
        if _is_literal(kind):
            return str(typing.get_args(kind)[0])
        if _is_model(kind):
            return _example_of_model(kind)
        name = getattr(typing.get_origin(kind) or kind, "__name__", "")
        name = {"str": "string"}.get(name.lower(), name.lower())
        if name == "dict" and (inner := typing.get_args(kind)):
            return f"{{name: {_example_of_kinds(inner[1:], 'value')}}}"
        if name in _EXPECTED:
            return _EXPECTED[name][1]
    return fallback


def _example_of_model(model: type[BaseModel]) -> str:
    """The required fields with examples; without a required field, the first field."""
    fields = [(info.alias or name, info) for name, info in model.model_fields.items()]
    chosen = [named for named in fields if named[1].is_required()] or fields[:1]
    examples = (
        f"{name}: {_example_of_field(info) or _example_of_kinds([info.annotation], 'value')}"
        for name, info in chosen
    )
    return f"{{{', '.join(examples)}}}"


def _tags(spot: _Spot, discriminator: str) -> list[str]:
    """The words that a union's discriminator may have."""
    models = [_bare(m) for kind in spot.kinds for m in _members(kind)]
    fields = (m.model_fields.get(discriminator) for m in models if _is_model(m))
    return [str(word) for info in fields if info for word in typing.get_args(info.annotation)]


def _starter(model: type[BaseModel]) -> str:
    required = [i.alias or n for n, i in model.model_fields.items() if i.is_required()]
    return f"it must have: {', '.join(required)}" if required else ""


def rows(text: str) -> list[str]:
    """The lines of a text with their line ends, counted in the same way as a YAML reader does."""
    ends = [match.end() for match in _BREAK.finditer(text)]
    starts = [0, *ends]
    return [text[a:b] for a, b in zip(starts, [*ends, len(text)], strict=True) if a < b]
