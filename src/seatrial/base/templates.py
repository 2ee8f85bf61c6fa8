"""Scripts and configuration files from Jinja2 templates in which every printed value is quoted.

A template prints a value only through a quoting filter, such as ``{{ program | sh }}``. The
environment checks this when it loads a template, so a value without a filter is an error in every
branch of the template. ``site``, ``slurm``, ``job`` and the labs use this environment. It is not
for HTML: the report has an environment that escapes for HTML.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateRuntimeError,
    Undefined,
    nodes,
)

from seatrial.base.errors import InputError

_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_SBATCH_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_\[\]-]+")
_SBATCH_LONGEST = 1000  # bytes; sbatch copies an argument into a buffer of a fixed size
_VALUE = "\ue000"  # replaces a printed value in the text of a template
#: The parts of a shell script. ``sh`` quotes a value in the words of a command. In quotes, an
#: expansion, arithmetic, a here-document or words of eval no quoting of a word is safe.
_SHELL = re.compile(
    r"""(?P<directive> ^\#SBATCH\ [^\n]* )
    | (?P<comment> (?<![^\s;&|(])\#[^\n]* )
    | (?P<quoted>
          \\. | \$'(?:\\.|[^'\\])*'? | '[^']*'? | "(?:\\.|[^"\\])*"? | `[^`]*`?
        | \$\{(?:[^{}]|\{[^{}]*\})*\}?
        | \(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*(?:\)\))?
        | \beval\b[^\n]*
        | (?<!<)<<(?!<)-?\s*(?P<quote>['"]?)(?P<end>\w+)(?P=quote)
          (?:(?=[^\n]*<<).*|[^\n]*\n(?:.*?^\t*(?P=end)$|.*)) )
    | (?P<command> . )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


class UnquotedValue(TemplateError):
    """A template prints a value without a quoting filter, or where the filter is not safe."""


def shell_words(value: Any) -> str:
    """``value`` as one word for a POSIX shell, a list as one word for each item.

    Raises InputError for a NUL, which no argument can hold.
    """
    words = _texts(value)
    for word in words:
        if "\0" in word:
            raise InputError(f"{word!r}: an argument cannot hold a NUL")
    return " ".join(map(shlex.quote, words))


def sbatch_argument(value: Any) -> str:
    """``value`` as one argument on an ``#SBATCH`` line.

    sbatch (``get_argument`` in its ``opt.c``) takes a backslash as an escape in every kind of
    quotes, and a ``#`` outside them as a comment. Raises InputError for a value that an
    ``#SBATCH`` line cannot hold: control characters, more than 1000 bytes.
    """
    (text,) = _texts(value)
    if _has_control(text):
        raise InputError(f"{text!r}: an #SBATCH line cannot hold a new line or control character")
    if len(text.encode()) > _SBATCH_LONGEST:
        raise InputError(f"{text[:40]!r}...: longer than {_SBATCH_LONGEST} bytes")
    if _SBATCH_PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def comment(value: Any) -> str:
    """``value`` on one line with escaped control characters. A list is joined by spaces."""
    text = " ".join(_texts(value))
    return "".join(repr(letter)[1:-1] if _has_control(letter) else letter for letter in text)


def remark(value: Any) -> str:
    """A comment of any length; every line but the first begins with ``#``."""
    return textwrap.fill(
        comment(value), 96, subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )


def number(value: Any) -> str:
    """A finite number. Raises TemplateRuntimeError for anything else."""
    (text,) = _texts(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TemplateRuntimeError(f"{value!r} is not a number")
    return text


def plain(value: Any) -> str:
    """A word without special characters of any file format here. Raises InputError otherwise."""
    (text,) = _texts(value)
    if not _PLAIN.fullmatch(text):
        raise InputError(f"{text!r}: only letters, digits and @%+=:,./_- are allowed here")
    return text


def lua_string(value: Any) -> str:
    """``value`` as a Lua string, a list as several strings with commas between them."""
    return ", ".join(f'"{"".join(map(_lua_letter, text))}"' for text in _texts(value))


def _lua_letter(letter: str) -> str:
    if letter.isascii() and letter.isprintable() and letter not in '"\\':
        return letter
    return "".join(f"\\{byte:03d}" for byte in letter.encode())


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if isinstance(item, Undefined):
            str(item)  # raises UndefinedError, which has the name
        if item is None or isinstance(item, bool | dict):
            raise TemplateRuntimeError(f"{item!r} is not text: the template must say what it means")
    return [str(item) for item in items]


def _has_control(text: str) -> bool:
    """Whether the text has a control character or a line separator, also one of Unicode."""
    return any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in text)


#: filter -> its function, and the part of a shell script where it may print ("": any part)
FILTERS: dict[str, tuple[Callable[[Any], str], str]] = {
    "sh": (shell_words, "command"),
    "sbatch": (sbatch_argument, "directive"),
    "comment": (comment, "comment"),
    "remark": (remark, "comment"),
    "number": (number, ""),
    "plain": (plain, ""),
    "lua": (lua_string, "elsewhere"),
    "json": (json.dumps, "elsewhere"),
}
_PLACES = {
    "command": "a word of a command",
    "directive": "an #SBATCH line",
    "comment": "a comment",
    "elsewhere": "files that are no shell scripts",
    "quoted": "quotes, ${ }, (( )), ` `, a here-document or eval",
}


def environment(folder: Path, **fragments: Callable[[Any], str]) -> Environment:
    """The environment for the templates of ``folder``.

    ``fragments`` are more quoting filters, which make whole lines of shell. Loading a template
    raises UnquotedValue if a value is not quoted. Rendering raises UndefinedError for a name that
    is not defined.
    """
    made = _QuotingEnvironment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        comment_start_string="{%#",  # Jinja's {# occurs in bash: ${#array[@]}
        comment_end_string="#%}",
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do"],
    )
    made.filters |= {name: function for name, (function, _) in FILTERS.items()} | fragments
    made.places = {name: place for name, (_, place) in FILTERS.items()}
    made.places |= dict.fromkeys(fragments, "command")
    return made


class _QuotingEnvironment(Environment):
    places: dict[str, str]

    def _generate(self, source: nodes.Template, name: Any, *rest: Any, **options: Any) -> str:
        """Jinja's hook between parsing and compiling a template."""
        _check(source, str(name), self.places)
        return super()._generate(source, name, *rest, **options)


def _check(tree: nodes.Template, name: str, places: dict[str, str]) -> None:
    for block in tree.find_all(nodes.FilterBlock):
        raise UnquotedValue(f"{name}:{block.lineno}: a filter block would change quoted text")
    macros = {"caller", "super"} | {macro.name for macro in tree.find_all(nodes.Macro)}
    for line in tree.find_all(nodes.FromImport):
        macros |= {one if isinstance(one, str) else one[1] for one in line.names}
    text, printed = "", []
    for output in tree.find_all(nodes.Output):
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                text += node.data.replace(_VALUE, "?")
                continue
            for value in _branches(node):
                text += _VALUE
                printed.append((value.lineno, _filter(value, name, macros, places)))
    if not {"sh", "sbatch"} & {used for _, used in printed}:
        return  # not a shell script
    values = iter(printed)
    for part in _SHELL.finditer(text):
        for _ in range(part[0].count(_VALUE)):
            line_number, used = next(values)
            wanted = places.get(used, "command")  # what a macro prints is a command
            if wanted not in ("", part.lastgroup):
                raise UnquotedValue(
                    f"{name}:{line_number}: {used} is for {_PLACES[wanted]}, but its value is in "
                    f"{_PLACES[part.lastgroup or '']}"
                )


def _branches(node: nodes.Expr) -> Iterator[nodes.Expr]:
    """The expressions, without literals, one of which ``node`` prints."""
    if isinstance(node, nodes.CondExpr) and node.expr2 is not None:
        yield from _branches(node.expr1)
        yield from _branches(node.expr2)
    elif not (isinstance(node, nodes.Const) and isinstance(node.value, str)):
        yield node


def _filter(node: nodes.Expr, name: str, macros: set[str], places: dict[str, str]) -> str:
    """The quoting filter, or the macro, that prints ``node``. Raises UnquotedValue without one."""
    if isinstance(node, nodes.Filter) and node.name in places:
        return node.name
    if (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name in macros
    ):
        return f"{node.node.name}()"
    raise UnquotedValue(
        f"{name}:{node.lineno}: prints a value without a quoting filter; end the expression with "
        f"one of these: {', '.join(places)}"
    )
