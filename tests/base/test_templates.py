"""Quoting filters keep every value, and a template that would print one unquoted does not load."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateRuntimeError, UndefinedError

from hostile import CONTROL, HOSTILE
from seatrial.base.errors import InputError
from seatrial.base.templates import (
    FILTERS,
    UnquotedValue,
    comment,
    environment,
    plain,
    sbatch_argument,
    shell_words,
)


def made(tmp_path, text, fragments=(), **context):
    (tmp_path / "t.j2").write_text(text)
    return environment(tmp_path, **dict(fragments)).get_template("t.j2").render(context)


# -- filters


@pytest.mark.parametrize("shell", ["bash", "sh"])
@settings(max_examples=100, deadline=None)
@given(values=st.lists(HOSTILE, min_size=1, max_size=20))
def test_a_shell_reads_every_value_as_one_word(shell, values):
    script = f"printf '%s\\0' {shell_words(values)} {shell_words(values[0])}"
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [*values, values[0]]


def test_no_argument_holds_a_nul():
    with pytest.raises(InputError, match="NUL"):
        shell_words(["a", "b\0c"])


def sbatch_reads(line: str) -> str:
    """An argument as ``get_argument`` of Slurm's sbatch reads it."""
    argument, quote, escaped = "", "", False
    for letter in line:
        if escaped:
            argument, escaped = argument + letter, False
        elif letter == "\\":
            escaped = True
        elif quote:
            argument, quote = (argument, "") if letter == quote else (argument + letter, quote)
        elif letter in "\"'":
            quote = letter
        elif letter.isspace() or letter == "#":
            break
        else:
            argument += letter
    return argument


@given(value=HOSTILE)
def test_sbatch_reads_a_directive_as_the_value(value):
    try:
        line = "--comment=" + sbatch_argument(value)
    except InputError:
        assert re.search(CONTROL, value)
        return
    assert not re.search(CONTROL, value)
    assert sbatch_reads(line) == "--comment=" + value


@given(value=HOSTILE)
def test_a_comment_stays_one_line(value):
    assert len(f"# {comment(value)}".splitlines()) == 1


def test_remark_keeps_any_text_in_comments(tmp_path):
    text = made(tmp_path, "# {{ x | remark }}\n:", x="a\n; reboot \ue000 " + 30 * "word ")
    assert text.splitlines()[-1] == ":"
    assert all(line.startswith("# ") and len(line) < 100 for line in text.splitlines()[:-1])


@pytest.mark.parametrize("value", ["", "a b", "a;b", "$x", "a\nb", '"', "#"])
def test_plain_refuses_what_a_file_format_could_read_as_more(value):
    with pytest.raises(InputError):
        plain(value)


@pytest.mark.parametrize("value", ["7", "1; reboot", float("nan"), True, None, [1, 2]])
def test_number_takes_numbers_only(tmp_path, value):
    assert made(tmp_path, 'echo "{{ x | number }}"', x=7) == 'echo "7"'
    with pytest.raises((TemplateRuntimeError, ValueError)):
        made(tmp_path, 'echo "{{ x | number }}"', x=value)


@pytest.mark.parametrize("value", [None, True, {}])
@pytest.mark.parametrize("name", sorted(set(FILTERS) - {"json"}))
def test_what_is_not_text_is_an_error(name, value):
    with pytest.raises(TemplateRuntimeError, match="not text"):
        FILTERS[name][0](value)


# -- the guard


@pytest.mark.parametrize(
    "text",
    [
        "echo {{ x }}",
        "echo {{ x | upper }}",
        "echo {{ x | sh | upper }}",
        "echo {{ 'a' ~ x | sh }}",
        "echo {{ 'a' + x | sh }}",
        "echo {{ x if y else z | sh }}",
        "echo {{ x | sh if y }}",
        "echo {{ x.y }}",
        "echo {{ x[0] }}",
        "echo {{ f() }}",
        "echo {{ x.m() }}",
        "echo {{ none }}",
        "{% print x %}",
        "{% if y %}echo {{ x }}{% endif %}",
        "{% for z in y %}{{ z }}{% endfor %}",
        "{% macro m(z) %}{{ z }}{% endmacro %}{{ m(x) }}",
        "{% macro m() %}a{% endmacro %}x {{ m() ~ x }}",
        "{% macro m() %}a{% endmacro %}{% set y = m() %}x {{ y ~ x }}",
        "{% set y %}a{% endset %}x {{ y }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{% endcall %}",
        "{% filter upper %}echo {{ x | sh }}{% endfilter %}",
    ],
)
def test_a_value_without_a_quoting_filter_is_refused_on_every_path(tmp_path, text):
    with pytest.raises(UnquotedValue, match=r"t\.j2:2: "):
        made(tmp_path, f"first line\n{text}", x="; reboot", y="", z="")


def test_no_filter_makes_a_value_pass_unquoted(tmp_path):
    for name in ("safe", "e", "tojson"):
        with pytest.raises(UnquotedValue):
            made(tmp_path, f"echo {{{{ x | {name} }}}}", x="; reboot")


@pytest.mark.parametrize(
    "text",
    [
        'echo "{{ x | sh }}"',
        "echo '{{ x | sh }}'",
        'echo "a\n{{ x | sh }}"',
        "echo $(( {{ x | sh }} ))",
        "echo $((a * (b * (c))+ {{ x | sh }}))",
        'echo "${a:-{{ x | sh }}}"',
        "echo ${a:-${b}{{ x | sh }}}",
        "for ((i = 0; i < {{ x | sh }}; i++)); do :; done",
        "cat <<'END'\n{{ x | sh }}\nEND",
        "cat <<END\n{{ x | sh }}\nEND",
        "cat <<-END\n\t{{ x | sh }}\n\tEND",
        'echo "$(echo {{ x | sh }})"',
        "echo `echo {{ x | sh }}`",
        "echo \\{{ x | sh }}",
        "echo $'don\\'t {{ x | sh }}'",
        "eval echo {{ x | sh }}",
        "cat <<A <<B\na\nA\n{{ x | sh }}\nB",
        "# {{ x | sh }}",
        "#SBATCH --comment={{ x | sh }}",
        ": {{ x | sbatch }}",
        "# {{ x | sbatch }}",
        ": {{ x | sh }} {{ x | comment }}",
        "#SBATCH --comment={{ x | comment }}\n: {{ x | sh }}",
        "{% macro m() %}a{% endmacro %}: {{ x | sh }} '{{ m() }}'",
        "# {{ x | fragment }}\n: {{ x | sh }}",
        ": {{ x | json }} {{ x | sh }}",
        ": {{ x | lua }} {{ x | sh }}",
    ],
)
def test_a_value_where_quoting_is_not_safe_is_refused(tmp_path, text):
    with pytest.raises(UnquotedValue, match=r"t\.j2:[124]: .* is for .*, but its value is in"):
        made(tmp_path, text, {"fragment": str}, x="a")


def test_quotes_that_end_before_a_value_do_not_matter(tmp_path):
    text = (
        "#SBATCH --job-name={{ x | sbatch }}\n# it's {{ x | comment }}\n"
        "a=${#list[@]} {{ x | sh }} # it's {{ x | comment }}\n"
        'b="$(f \'q\' "$c")" d=$((e << (1 + 2))) {{ x | sh }}\n'
        "cat <<< 'don'\"'\"'t' {{ x | sh }}\ncat >{{ x | sh }} << 'END'\nit's $(( \"\nEND\n"
        '{{ many | sh }} $# \\\' {{ x | sh }} "{{ 7 | number }}" x=$({{ x | sh }})\n'
    )
    word = "'a b'\"'\"''"
    assert made(tmp_path, text, x="a b'", many=["c", "d e"]) == (
        "#SBATCH --job-name=\"a b'\"\n# it's a b'\n"
        f"a=${{#list[@]}} {word} # it's a b'\n"
        f'b="$(f \'q\' "$c")" d=$((e << (1 + 2))) {word}\n'
        f"cat <<< 'don'\"'\"'t' {word}\ncat >{word} << 'END'\nit's $(( \"\nEND\n"
        f"c 'd e' $# \\' {word} \"7\" x=$({word})\n"
    )


def test_what_is_imported_or_inherited_is_checked_too(tmp_path):
    (tmp_path / "base.j2").write_text("{% block a %}{% endblock %}{{ x }}")
    with pytest.raises(UnquotedValue, match=r"base\.j2:1"):
        made(tmp_path, '{% extends "base.j2" %}', x="a")
    (tmp_path / "macros.j2").write_text("{% macro m(y) %}{{ y }}{% endmacro %}")
    with pytest.raises(UnquotedValue, match=r"macros\.j2:1"):
        made(tmp_path, '{% from "macros.j2" import m %}{{ m(x) }}', x="a")
    (tmp_path / "macros.j2").write_text("{% macro m(y) %}{{ y | sh }}{% endmacro %}")
    assert made(tmp_path, '{% from "macros.j2" import m %}{{ m(x) }}', x="a b") == "'a b'"


def test_an_undefined_name_is_an_error(tmp_path):
    with pytest.raises(UndefinedError, match="nodse"):
        made(tmp_path, "echo {{ nodse | sh }}", nodes=1)
    with pytest.raises(UndefinedError):
        made(tmp_path, "{% if nodse %}x{% endif %}", nodes=1)
