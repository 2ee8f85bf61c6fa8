"""Text of a shell script from a template, in which no value can be more than a value.

As autoescape does for HTML, but by where in the script a value stands. While Jinja renders, each
value is only a mark; a reader of shell syntax then walks the text and puts the value in as its
place demands:

* in a command: quoted for the shell, a list as one quoted word for each item;
* on an ``#SBATCH`` line: quoted as sbatch reads these lines, which is not as a shell does; control
  characters are refused, since a new line would end the directive and begin a command;
* in a comment: control characters made visible;
* in a here-document (of a quoted delimiter): as it is, if it is one line;
* anywhere else (inside quotes, in arithmetic): whole numbers only. A template that puts another
  value there is wrong, and says so when it is rendered.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    Undefined,
    nodes,
    pass_context,
)
from jinja2.runtime import Context
from markupsafe import Markup

from seatrial.base.errors import InputError

_OPEN, _CLOSE = "\ue000", "\ue001"  # of private use: around the number of a value
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
#: what needs no quotes. No '=' outside an option: the first word of a command would be a variable.
_PLAIN = re.compile(r"-[A-Za-z0-9@%+=:,./_-]*|[A-Za-z0-9@%+:,./_-]+")
_SBATCH_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_\[\]-]+")
_SBATCH_LONGEST = 1000  # sbatch copies an argument into a buffer of a fixed size
_HERE = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2")
_UNSAFE_FILTERS = ("safe", "escape", "e", "forceescape", "xmlattr", "tojson", "urlize")


class MisplacedValue(TemplateError):
    """A template puts a value where the shell would read it as more than a value."""


def shell_word(value: str) -> str:
    """``value`` as exactly one word for bash, on one line. Raises InputError for a NUL."""
    if "\0" in value:
        raise InputError(f"{value!r}: no argument can hold a NUL")
    if _PLAIN.fullmatch(value):
        return value
    if _control(value):
        escaped = "".join(_ansi_c(letter) for letter in value)
        return f"$'{escaped}'"
    return "'" + value.replace("'", "'\\''") + "'"


def _ansi_c(letter: str) -> str:
    if letter in "\\'":
        return "\\" + letter
    if not _control(letter):
        return letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode())


def directive_word(value: str) -> str:
    """``value`` as one argument on an ``#SBATCH`` line.

    sbatch (``get_argument`` in its ``opt.c``) takes a backslash as an escape in every kind of
    quotes, and a ``#`` for a comment outside them. Raises InputError for what no quotes can hold.
    """
    if _control(value):
        raise InputError(f"{value!r}: an #SBATCH line holds no new line or control character")
    if len(value.encode()) > _SBATCH_LONGEST:
        raise InputError(f"{value[:40]!r}...: longer than {_SBATCH_LONGEST} bytes")
    if _SBATCH_PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def comment_text(value: str) -> str:
    """``value`` on one line, control characters made visible."""
    return "".join(repr(letter)[1:-1] if _control(letter) else letter for letter in value)


def _control(text: str) -> bool:
    """Whether a character is a control or a line separator (of Unicode too)."""
    return any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in text)


@dataclass
class Values:
    """The values of one rendering, by number."""

    kept: list[Any] = field(default_factory=list)

    @pass_context  # which keeps Jinja from turning literals into text while it compiles
    def mark(self, _: Context, value: Any) -> Any:
        """Jinja's ``finalize``: text that a macro or block made passes, a value becomes a mark."""
        if isinstance(value, Markup):
            return value
        if isinstance(value, Undefined):
            str(value)  # raises, with the name
        if value is None or isinstance(value, bool | dict):
            raise MisplacedValue(f"{value!r} is no text: the template must say what it stands for")
        self.kept.append(value)
        return Markup(f"{_OPEN}{len(self.kept) - 1}{_CLOSE}")

    def resolve(self, text: str) -> str:
        """The script with each mark replaced as its place demands."""
        parts, end = [], 0
        for match, place in _places(text):
            value = self.kept[int(match[1])]
            parts += [text[end : match.start()], _put(value, place, text, match.start())]
            end = match.end()
        return "".join([*parts, text[end:]])


def _put(value: Any, place: str, text: str, at: int) -> str:
    if isinstance(value, int):
        return str(value)
    many = isinstance(value, list | tuple)
    words = [str(one) for one in value] if many else [str(value)]
    if place == "comment":
        return comment_text(" ".join(words))
    if place == "directive":
        return " ".join(directive_word(word) for word in words)
    if place == "command":
        return " ".join(shell_word(word) for word in words)
    if place == "here" and not many and not _control(words[0]):
        return words[0]
    line = text.count("\n", 0, at) + 1
    raise MisplacedValue(f"line {line}: {value!r} inside {place}, where only a number can be")


def _places(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each mark of a script and where it stands: command, directive, comment, here, or other."""
    stack: list[str] = []
    at, size, here = 0, len(text), ""
    while at < size:
        letter, rest = text[at], stack[-1] if stack else ""
        line_start = at == 0 or text[at - 1] == "\n"
        if match := _MARK.match(text, at):
            inside = {"": "command", "(": "command", "'": "quotes"}
            yield match, inside.get(rest, rest)
            at = match.end()
        elif letter == "\n" and here and rest in ("", "("):
            end = re.compile(rf"^\t*{here}$", re.M).search(text, at)
            if not end:
                raise MisplacedValue(f"the here-document {here} has no end")
            for match in _MARK.finditer(text, at, end.start()):
                yield match, "here"
            at, here = end.end(), ""
        elif rest == "'":
            stack[-1:] = [] if letter == "'" else [rest]
            at += 1
        elif letter == "\\":
            if _MARK.match(text, at + 1):
                raise MisplacedValue("a backslash before a value")
            at += 2
        elif letter == "`":
            raise MisplacedValue("a template uses $( ) and not backquotes")
        elif text.startswith("$((", at) or (rest in ("", "(") and text.startswith("((", at)):
            stack.append("arithmetic")
            at += 3 if letter == "$" else 2
        elif rest == "arithmetic" and letter == "(":
            stack.append("arithmetic")  # ends with one bracket less than the outermost
            at += 1
        elif rest == "arithmetic" and letter == ")":
            nested = stack.pop() and stack and stack[-1] == "arithmetic"
            at += 1 if nested else 2
        elif text.startswith("$(", at):
            stack.append("(")
            at += 2
        elif text.startswith("${", at):
            stack.append("expansion")
            at += 2
        elif rest == "expansion" and letter == "}":
            stack.pop()
            at += 1
        elif letter == '"':
            stack.pop() if rest == "quotes" else stack.append("quotes")
            at += 1
        elif rest in ("quotes", "arithmetic"):
            at += 1
        elif letter == "'":
            stack.append("'")
            at += 1
        elif rest == "expansion":
            at += 1
        elif letter == "#" and (line_start or text[at - 1] in " \t;&|("):
            end_of_line = text.find("\n", at)
            end_of_line = size if end_of_line < 0 else end_of_line
            kind = "directive" if text.startswith("#SBATCH", at) and line_start else "comment"
            for match in _MARK.finditer(text, at, end_of_line):
                yield match, kind
            at = end_of_line
        elif text.startswith("<<<", at):
            at += 3
        elif match := _HERE.match(text, at):
            if not match[2]:
                raise MisplacedValue("a here-document whose delimiter is not quoted")
            here, at = match[3], match.end()
        elif letter == "(":
            stack.append("(")
            at += 1
        elif letter == ")" and rest == "(":
            stack.pop()
            at += 1
        else:
            at += 1
    if stack:
        raise MisplacedValue(f"the script ends inside {stack[-1]}")


def _remark(text: str, first: str = "# ", rest: str = "#   ") -> Markup:
    """Filter for a comment of any length: lines of at most 98 characters."""
    plain = str(text).replace(_OPEN, "?").replace(_CLOSE, "?")  # would be taken for a value's mark
    lines = textwrap.wrap(
        comment_text(plain), 98, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return Markup("\n").join(Markup(line) for line in lines)


def render(folder: Path, name: str, context: dict[str, Any], **functions: Callable) -> str:
    """The script that the template ``name`` of ``folder`` makes of ``context``.

    Raises MisplacedValue or another TemplateError where the template is wrong, InputError where
    a value is.
    """
    values = Values()
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        comment_start_string="{%#",  # Jinja's own, {#, is in bash's ${#array[@]}
        comment_end_string="#%}",
        autoescape=True,  # so that only what templates make themselves is Markup
        finalize=values.mark,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do"],
    )
    for unsafe in _UNSAFE_FILTERS:
        environment.filters.pop(unsafe, None)
    environment.filters["remark"] = _remark
    environment.globals.update(functions)
    for source in folder.glob("*.j2"):
        _check(environment.parse(source.read_text(), source.name), source.name, set(functions))
    return values.resolve(str(environment.get_template(name).render(context)))


def _check(tree: nodes.Template, name: str, functions: set[str]) -> None:
    """Refuse what would join a value to the text that a macro made, past its mark."""
    for node in tree.find_all((nodes.Concat, nodes.Add, nodes.Mod, nodes.Filter, nodes.Assign)):
        for call in node.find_all(nodes.Call):
            if not (isinstance(call.node, nodes.Name) and call.node.name in functions):
                raise MisplacedValue(f"{name}:{call.lineno}: a macro's text can only be put out")
    if block := next(tree.find_all(nodes.AssignBlock), None):
        raise MisplacedValue(f"{name}:{block.lineno}: a set block makes text of values")
