"""Whatever a value holds, it reaches its place as exactly that value, or is refused."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from job_support import rendered, run_stubbed

from seatrial.base.errors import InputError
from seatrial.job.script import MisplacedValue, comment_text, directive_word, render, shell_word

#: text with much of what is special to a shell, to sbatch and to printing
HOSTILE = st.text(
    st.one_of(
        st.sampled_from(list(" '\"\\$`;&|<>(){}[]*?!~#=%-\n\t\r\x0b\x1b\x7f\x85\u2028é")),
        st.sampled_from(list("abSBATCH01")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=30,
)
#: saves its arguments, each ended by a NUL, behind those of earlier calls
RECORD = 'printf "%s\\0" "$@" >>"$OUT/arguments"'


def made(tmp_path, text, **context):
    (tmp_path / "t.j2").write_text(text)
    return render(tmp_path, "t.j2", context)


@settings(max_examples=150, deadline=None)
@given(values=st.lists(HOSTILE, min_size=1, max_size=20))
def test_bash_reads_every_value_as_one_word(values):
    script = "printf '%s\\0' " + " ".join(shell_word(value) for value in values)
    assert "\n" not in script
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == values


@settings(max_examples=25, deadline=None)
@given(word=HOSTILE, name=HOSTILE, account=HOSTILE, folder=HOSTILE)
def test_rendered_job_runs_with_exactly_the_arguments_given(
    tmp_path_factory, word, name, account, folder
):
    folder_of_test = tmp_path_factory.mktemp("job")
    values = {
        "program": f"./ship {shlex.quote(word)}", "arguments": shlex.quote(word), "job_name": name,
        "account": account, "module": "x" + folder, "module_folder": folder,
    }  # fmt: skip
    control = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
    if any(control.search(text) for text in (name, account)):
        with pytest.raises(InputError, match="control character"):
            rendered("openmpi-srun", values=values)
        return
    text = rendered("openmpi-srun", values=values)
    done = run_stubbed(text, folder_of_test, {"srun": RECORD})
    assert done.returncode == 0, done.stderr
    given_words = (folder_of_test / "arguments").read_bytes().decode().split("\0")[:-1]
    assert given_words[-3:] == ["./ship", word, word]
    assert sorted(p.name for p in folder_of_test.iterdir()) == ["arguments", "bin", "job.sh"]


def sbatch_reads(line: str) -> str:
    """An argument as ``get_argument`` of Slurm's sbatch reads it."""
    found, quote, escaped = "", "", False
    for letter in line:
        if escaped:
            found, escaped = found + letter, False
        elif letter == "\\":
            escaped = True
        elif quote:
            found, quote = (found, "") if letter == quote else (found + letter, quote)
        elif letter in "\"'":
            quote = letter
        elif letter.isspace() or letter == "#":
            break
        else:
            found += letter
    return found


@given(value=HOSTILE)
def test_sbatch_reads_a_directive_as_the_value(value):
    try:
        line = "--comment=" + directive_word(value)
    except InputError:
        assert re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", value)
        return
    assert sbatch_reads(line) == "--comment=" + value


@given(value=HOSTILE)
def test_a_comment_stays_one_line(value):
    assert len(f"# {comment_text(value)}".splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('echo "{{ x }}"', "quotes"),
        ("echo '{{ x }}'", "quotes"),
        ("echo $(( {{ x }} ))", "arithmetic"),
        ('echo "${a:-{{ x }}}"', "expansion"),
        ("for ((i = 0; i < {{ x }}; i++)); do :; done", "arithmetic"),
        ("cat <<'END'\n{{ x }}\nEND", "here"),
        ('echo "$(echo "{{ x }}")"', "quotes"),
    ],
)
def test_text_where_it_could_be_more_than_a_value_is_refused(tmp_path, text, place):
    with pytest.raises(MisplacedValue, match=f"inside {place}"):
        made(tmp_path, text, x="a\nb")
    assert "7" in made(tmp_path, text, x=7)


@pytest.mark.parametrize(
    "text",
    [
        "{% macro m() %}a{% endmacro %}x {{ m() ~ x }}",
        "{% macro m() %}a{% endmacro %}{% set y = m() %}x {{ y ~ x }}",
        "{% set y %}a{% endset %}x {{ y ~ x }}",
        "echo \\{{ x }}",
        "echo `{{ x }}`",
        "cat <<END\n{{ x }}\nEND",
        "echo {{ none }}",
        "echo {{ true }}",
    ],
)
def test_templates_that_would_lose_sight_of_a_value_are_refused(tmp_path, text):
    with pytest.raises(MisplacedValue):
        made(tmp_path, text, x="; reboot", none=None)


def test_what_a_template_misspells_is_an_error(tmp_path):
    with pytest.raises(UndefinedError, match="nodse"):
        made(tmp_path, "echo {{ nodse }}", nodes=1)
    with pytest.raises(UndefinedError):
        made(tmp_path, "{% if nodse %}x{% endif %}", nodes=1)


def test_no_filter_makes_a_value_pass_unquoted(tmp_path):
    for name in ("safe", "e", "tojson"):
        with pytest.raises(Exception, match="No filter named"):
            made(tmp_path, f"echo {{{{ x | {name} }}}}", x="; reboot")


def test_remark_keeps_any_text_in_comments(tmp_path):
    text = made(tmp_path, "{{ x | remark }}\n:", x="a\n; reboot \ue0007\ue001 " + 30 * "word ")
    assert text.splitlines()[-1] == ":"
    assert all(line.startswith("# ") and len(line) < 100 for line in text.splitlines()[:-1])


def test_places_of_a_script(tmp_path):
    text = (
        "#SBATCH --job-name={{ x }}\n# {{ x }}\n"
        "a=${#list[@]} {{ x }} # it's {{ x }}\nb=\"$(f {{ x }} 'q')\" # \"\n{{ many }}\n"
    )
    assert made(tmp_path, text, x="a b'", many=["c", "d e"]) == (
        "#SBATCH --job-name=\"a b'\"\n# a b'\n"
        "a=${#list[@]} 'a b'\\''' # it's a b'\nb=\"$(f 'a b'\\''' 'q')\" # \"\nc 'd e'\n"
    )
