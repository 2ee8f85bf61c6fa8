from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from seatrial.base.errors import InputError
from seatrial.base.yamlfile import InvalidValue, load, loads, rows


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Speed(StrEnum):
    SLOW = "slow"
    FAST = "fast"


class Ethernet(Strict):
    kind: Literal["ethernet"]
    mtu: int = Field(ge=68)
    options: dict[str, float] = {}


class Myrinet(Strict):
    kind: Literal["myrinet"]
    ethernet: int = 0  # a field named like the other one's tag
    card: str = Field("", examples=["M3F"])


class Rule(Strict):
    low: int = 0
    high: int = 0

    @model_validator(mode="after")
    def ordered(self):
        if self.low > self.high:
            raise InvalidValue("low is above high", "exchange them", "low")
        return self


class Site(Strict):
    schema_version: Literal[1] = Field(alias="schema")
    name: str
    network: Annotated[Ethernet | Myrinet, Field(discriminator="kind")] | None = None
    networks: list[Annotated[Ethernet | Myrinet, Field(discriminator="kind")]] = []
    by_name: dict[str, Ethernet] = {}
    mixed: dict[str, Ethernet | list[int] | None] = {}
    count: int | str | None = None
    speed: Speed = Speed.SLOW
    point: tuple[float, float] = (0, 0)
    rule: Rule = Rule()
    flag: bool = False
    folder: Path = Path()
    either: list[int] | list[bool] = []
    globs: list[str] = ["*"]

    @field_validator("name")
    @classmethod
    def short(cls, value: str) -> str:
        if len(value) > 20:
            raise ValueError("too long a name")
        return value


HEAD = "schema: 1\nname: x\n"


def problems(text, head=HEAD):
    with pytest.raises(InputError) as caught:
        loads(head + text, Site, "site.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "line", "field", "message", "correction"),
    [
        ("nam: y\n", 3, "nam", "unknown field", "did you mean 'name'?"),
        ("zzz: y\n", 3, "zzz", "unknown field", "known here: by_name, count, either"),
        ("speed: fats\n", 3, "speed", "'fats' is not one of slow, fast", "did you mean 'fast'?"),
        ("speed:\n  FAST\n", 3, "speed", "not one of slow, fast", "did you mean 'fast'?"),
        ("flag: maybe\n", 3, "flag", "expected true or false, found 'maybe'", "'flag: false'"),
        ("point: [1, a]\n", 3, "point.1", "expected a number, found 'a'", ""),
        ("point: 3\n", 3, "point", "expected a list, found 3", "'point: [first, second]'"),
        ("folder: 3\n", 3, "folder", "expected a path, found 3", "folder/file"),
        ("rule:\n  high: 1\n  low: 2\n", 5, "rule.low", "low is above high", "exchange them"),
        ("rule: {low: 2.5}\n", 3, "rule.low", "expected a whole number, found 2.5", "'low: 0'"),
        ("by_name:\n  a:\n    kind: ethernet\n", 4, "by_name.a.mtu", "required", "add 'mtu: 4'"),
        (
            "by_name:\n  a:\n    kind: ethernet\n    mtu: 9\n",
            6,
            "by_name.a.mtu",
            "must be greater than or equal to 68, found 9",
            "",
        ),
        (
            "networks:\n  - kind: ethernet\n    mtu: 1500\n  -\n    kind: myrnet\n",
            7,
            "networks.1.kind",
            "'myrnet' is not one of ethernet, myrinet",
            "did you mean 'myrinet'?",
        ),
        (
            "networks:\n  - mtu: 1500\n",
            4,
            "networks.0.kind",
            "required, but not given",
            "add 'kind', one of ethernet, myrinet",
        ),
        ("networks:\n  - 7\n", 4, "networks.0", "expected a mapping, found 7", ""),
        (
            "network:\n  kind: myrinet\n  ethernet: 1\n  crad: x\n",
            6,
            "network.crad",
            "unknown field",
            "did you mean 'card'?",
        ),
        (
            "network: {kind: myrinet,\n  card: 3}\n",
            4,
            "network.card",
            "expected text, found 3",
            "put it in quotes: 'card: \"3\"'",
        ),
        (
            "network:\n  kind: ethernet\n  mtu: 1500\n  options:\n    net.core.rmem: big\n",
            7,
            "network.options.net.core.rmem",
            "expected a number, found 'big'",
            "",
        ),
        ("count: []\n", 3, "count", "expected a whole number or text, found a list", ""),
        ("mixed:\n  a: {kind: ethernet}\n", 4, "mixed.a.mtu", "required", ""),
        ("mixed:\n  a: [1,\n     b]\n", 5, "mixed.a.1", "expected a whole number", ""),
        ("either:\n  - x\n", 4, "either.0", "expected", ""),
        ("mixed: {a: 3}\n", 3, "mixed.a", "expected a mapping or a list, found 3", ""),
        ("count: 1\ncount: 2\n", 4, "count", "given twice, first on line 3", "keep one"),
        ("rule:\n\tlow: 1\n", 4, "", "a tab in the indentation", "indent with spaces"),
        ("rule: [1\n", 4, "", "not valid YAML", ""),
        ("rule: {low: 1\nflag: true\n", 4, "", "the bracket begins in line 3", "close the bracket"),
        ("count:1\nflag: true\n", 4, "", "the key begins in line 3", "a blank after the ':'"),
        ("name_: [*]\n", 3, "", "scanning an alias", "quote text that begins with '*'"),
        ("globs: *\n", 3, "", "scanning an alias", "quote text that begins with '*'"),
        ("globs: tcp\n", 3, "globs", "expected a list", 'globs: ["*"]\''),
        ("count: a: b\n", 3, "", "mapping values are not allowed", "quote text"),
        ("count: *x\n", 3, "", "undefined alias", "quote"),
        ("count: 2026-13-45\n", 3, "", "not valid YAML: month must be", ""),
        ("count: \x01\n", 3, "", "is not allowed", ""),
        ("---\na: 1\n", 3, "", "another document", "remove the '---'"),
        ("rule:\n  [a, [b]]: c\n", 4, "rule", "a list is given as the name", "begins with '['"),
        ("rule: {{ low }}\n", 3, "rule", "a mapping is given as the name", "begins with '{'"),
    ],
)
def test_one_fault(text, line, field, message, correction):
    (problem,) = problems(text)
    assert (problem.line, problem.field) == (line, field)
    assert message in problem.message
    assert correction in problem.correction
    assert problem.file == "site.yaml"


def test_missing_and_custom_at_the_root():
    assert str(problems("schema: 1\n", head="")[0]) == (
        "site.yaml:1: name: required, but not given (add 'name: \"some text\"')"
    )
    (problem,) = problems(f"schema: 1\nname: {'x' * 21}\n", head="")
    assert (problem.line, problem.message) == (2, "too long a name")
    (problem,) = problems("- 1\n", head="")
    assert problem.message == "expected a mapping, found a list"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n"])
def test_empty(text):
    (problem,) = problems(text, head="")
    assert "empty" in problem.message


def test_all_faults_in_the_order_of_the_file():
    found = problems("nam: 1\nspeed: x\ncount: 1\ncount: 2\nrule: {lwo: 3}\n")
    assert [p.line for p in found] == [3, 4, 6, 7]


def test_every_tab_is_reported():
    assert [p.line for p in problems("rule:\n\tlow: 1\n\thigh: 2\nflag: [\n")] == [4]
    assert [p.line for p in problems("rule: [\n  1\n\t]\n\n\tx: 1\n  ] ]")] == [5, 7]


def test_tabs_in_block_text_are_text():
    site, _ = loads(HEAD + "count: |\n  all:\n  \tmake\n", Site)
    assert site.count == "all:\n\tmake\n"


def test_lines(tmp_path):
    file = tmp_path / "site.yaml"
    file.write_bytes(
        b"\xef\xbb\xbfschema: 1\r\nname: x\r\nnetworks:\r\n- kind: ethernet\r\n  mtu: 1500\r\n"
        b"  options:\r\n    a.b: 1\r\n-\r\n  kind: myrinet\r\n"
    )
    site, lines = load(file, Site)
    assert site.networks[0].options == {"a.b": 1}
    wanted = {"": 1, "networks": 3, "networks.0": 4, "networks.0.options.a.b": 7, "networks.1": 9}
    assert {path: lines.of(path) for path in wanted} == wanted
    assert lines.of(("networks", 0, "options", "a.b")) == 7
    assert lines.of("networks.2") is lines.of("networks.x") is lines.of("name.x") is None
    assert lines.near("networks.0.options.zz") == 6
    assert str(lines.problem("networks.0.mtu", "m", "c")) == f"{file}:5: networks.0.mtu: m (c)"


def test_keys_with_dots_may_have_children():
    _, lines = loads(HEAD + "by_name:\n  n.1:\n    kind: ethernet\n    mtu: 100\n", Site)
    assert lines.of("by_name.n.1.mtu") == 6


def test_aliases_and_merge_keys():
    text = "by_name:\n  a: &a\n    kind: ethernet\n    mtu: 1500\n  b:\n    <<: *a\n    mtu: 9000\n"
    site, lines = loads(HEAD + text, Site)
    assert (site.by_name["b"].mtu, site.by_name["b"].kind) == (9000, "ethernet")
    assert (lines.of("by_name.b.kind"), lines.of("by_name.b.mtu")) == (5, 9)
    (problem,) = problems(text.replace("ethernet", "ether"))[:1]
    assert problem.line == 5


def test_loops_and_bombs_do_not_hang():
    assert problems("zz: &x [*x]\n")[0].message == "unknown field"
    bomb = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 20))
    assert problems("l0: &l0 [x]\n" + bomb)[0].message == "unknown field"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load(tmp_path / "none.yaml", Site)
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"schema: 1\nname: M\xfcller\n")
    with pytest.raises(InputError, match=r"latin\.yaml:2: not UTF-8"):
        load(file, Site)


def test_dates_where_text_is_expected():
    (problem,) = problems("schema: 1\nname: 2026-08-01\n", head="")
    assert problem.message == f"expected text, found {date(2026, 8, 1)}"


def test_rows_are_counted_as_yaml_does():
    assert rows("a\r\nb\rc\nd\x0be\u2028f") == ["a\r\n", "b\r", "c\n", "d\x0be\u2028", "f"]


# --- a fault planted in a random document -----------------------------------------------------

filler = st.lists(st.sampled_from(["", "# note", "   # indented note"]), max_size=3)


@st.composite
def planted(draw):
    """A document of rules, nets and text with comments and blanks, and one known fault."""
    out: list[str] = []

    def add(row: str) -> int:
        out.extend(draw(filler))
        out.append(row)
        return len(out)

    faults = {"unknown": ("mtuu: 1", "mtuu"), "type": ("mtu: big", "mtu"), "low": ("mtu: 1", "mtu")}
    add("schema: 1")
    add("name: x")
    count = draw(st.integers(1, 5))
    bad = draw(st.integers(0, count - 1))
    fault = draw(st.sampled_from(["unknown", "type", "low", "missing", "tag"]))
    as_list = draw(st.booleans())
    add("networks:" if as_list else "by_name:")
    pad = "    "
    line = field = None
    for i in range(count):
        path = f"networks.{i}" if as_list else f"by_name.n{i}"
        kind = "ethernt" if fault == "tag" and i == bad else "ethernet"
        if as_list:
            first = kind_line = add(f"  - kind: {kind}")
        else:
            first = add(f"  n{i}:")
            kind_line = add(f"{pad}kind: {kind}")
        if i == bad and fault == "tag":
            line, field = kind_line, f"{path}.kind"
        if i == bad and fault == "missing":
            line, field = first, f"{path}.mtu"
            continue
        if draw(st.booleans()):
            out.append(f"{pad}options: {{a: 1,")
            out.append(f"{pad}  b: 2}}")
        if i == bad and fault in faults:
            text, leaf = faults[fault]
            line, field = add(f"{pad}{text}"), f"{path}.{leaf}"
        if not (i == bad and fault in ("type", "low")):
            add(f"{pad}mtu: 1500")
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    return ending.join(out) + ending, line, field


@given(planted())
def test_planted_faults_are_found_at_their_line(document):
    text, line, field = document
    (problem,) = problems(text, head="")
    assert (problem.line, problem.field) == (line, field)
