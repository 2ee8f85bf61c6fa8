"""job_submit.lua in the Lua versions that this machine has: what it lets through, and what not.

Slurm itself links one of them (5.1 in Debian 12); the tests use its library.
"""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.base.templates import lua_string
from seatrial.nic.node.constraint import asked
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import render

LIBRARY = """
import ctypes, sys
lua = ctypes.CDLL(sys.argv[1])
lua.luaL_newstate.restype = lua.lua_tolstring.restype = ctypes.c_void_p
state = ctypes.c_void_p(lua.luaL_newstate())
lua.luaL_openlibs(state)
if lua.luaL_loadfile(state, sys.argv[2].encode()) or lua.lua_pcall(state, 0, 0, 0):
    sys.exit(ctypes.string_at(lua.lua_tolstring(state, -1, None)))
"""
DRIVER = """
local said
slurm = {
    SUCCESS = 0, ERROR = -1, NO_VAL16 = 65534,
    -- As Slurm does it: the first value is a format.
    log_user = function(...) said[#said + 1] = string.format(...) end,
    log_info = function() end,
}
local nic = dofile(%s)
local function hex(text)
    return (string.gsub(text, ".", function(c) return string.format("%%02x", string.byte(c)) end))
end
for _, case in ipairs(%s) do
    said = {}
    local code
    if case.job then
        code = slurm_job_modify(case.desc, case.job, case.parts or {}, 1000)
    else
        code = slurm_job_submit(case.desc, case.parts or {}, 1000)
    end
    print(code, tostring(case.desc.shared), hex(table.concat(said, "|")))
end
"""
NORMAL, SHARED_FORCE = 65534, 0x8000
Answer = tuple[int, str, str]  # return code, job_desc.shared, the message to the user


def interpreters() -> list[list[str]]:
    commands = [[path] for name in ("lua5.1", "lua5.3", "lua5.4") if (path := shutil.which(name))]
    for name in ("5.1", "lua5.1"):
        if library := ctypes.util.find_library(f"lua{name}"):
            return [*commands, [sys.executable, "-c", LIBRARY, library]]
    return commands


def literal(value: Any) -> str:
    if isinstance(value, str):
        return lua_string(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua_string(k)}] = {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(literal(one) for one in value) + "}"
    return str(value)


@pytest.fixture(
    scope="module", params=interpreters(), ids=lambda words: Path(words[-1]).name, name="ask"
)
def interpreter(request, policy: dict, tmp_path_factory) -> Callable[[list[dict]], list[Answer]]:
    folder = tmp_path_factory.mktemp("lua")
    script = folder / "job_submit.lua"
    for file in render(policy, Layout()):
        if file.path.endswith("job_submit.lua"):
            script.write_text(file.text)

    def ask(cases: list[dict]) -> list[Answer]:
        driver = folder / "driver.lua"
        driver.write_text(DRIVER % (lua_string(str(script)), literal(cases)))
        out = subprocess.run([*request.param, driver], capture_output=True, text=True, check=False)
        assert out.returncode == 0, out.stderr
        rows = [line.split("\t") for line in out.stdout.splitlines()]
        return [
            (int(float(code)), shared.removesuffix(".0"), bytes.fromhex(said).decode("latin-1"))
            for code, shared, said in rows
        ]

    return ask


def submit(features: str | None, **more: Any) -> dict:
    desc = {"shared": NORMAL, **more}
    return {"desc": desc if features is None else {"features": features, **desc}}


def test_there_is_a_lua_to_test_with() -> None:
    assert interpreters(), "lmod brings lua5.3, Slurm's plugins liblua5.1"


@pytest.mark.parametrize(
    "features", [None, "", "fast", "fast|big", "[a|b]", "a*2&b*1", "!x", "panic_room", "mynic_x"]
)
def test_jobs_without_a_profile_are_not_changed(ask, features: str | None) -> None:
    assert ask([submit(features)]) == [(0, str(NORMAL), "")]


@pytest.mark.parametrize(
    "features", ["nic_jumbo", "nic_few", "fast&nic_jumbo", "nic_jumbo&nic_jumbo", "fast, nic_jumbo"]
)
@pytest.mark.parametrize("shared", [NORMAL, 0, 1, 2, 3])
def test_a_job_with_a_profile_gets_whole_nodes(ask, features: str, shared: int) -> None:
    assert ask([submit(features, shared=shared)]) == [(0, "0", "")]


def test_the_default_profile_needs_no_whole_nodes(ask) -> None:
    assert ask([submit("nic_default")]) == [(0, str(NORMAL), "")]


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ("nic_jumb", "nic_jumb is not a NIC profile of this cluster: did you mean nic_jumbo? The"),
        (
            "nic_xyzzyxyzzy",
            "nic_xyzzyxyzzy is not a NIC profile of this cluster: The profiles are",
        ),
        ("nic_jumbo&nic_few", "a job can have one NIC profile, not nic_jumbo and nic_few"),
        ("nic_default&nic_few", "a job can have one NIC profile, not nic_default and nic_few"),
        ("nic_jumbo|fast", "cannot be an alternative (|)"),
        ("nic_jumbo|nic_few", "cannot be an alternative (|)"),
        ("[nic_jumbo*1]", "cannot have a number of nodes"),
        ("nic_jumbo*2", "cannot have a number of nodes"),
        ("!nic_jumbo", "cannot be excluded"),
        ("~nic_jumbo", "cannot be excluded"),
        ("(nic_jumbo&fast)", "'(nic_jumbo&fast)' has '(' in it: write --constraint='nic_jumbo&"),
        ("nic_jumbo;reboot", "has ';' in it"),
        ("nic_jumbo&%s%n%d", "has '%' in it"),
        ("nic_jumbo\n", "has '?' in it"),
        ("nic_jumbo&" + "x" * 5000, "can have 4096 characters, not 5010"),
        ("nic_" + "x" * 300, "is not a NIC profile"),
    ],
)
def test_wrong_constraints_are_refused_with_a_message(ask, features: str, sentence: str) -> None:
    code, shared, said = ask([submit(features)])[0]
    assert (code, shared) == (2029, str(NORMAL))
    assert sentence in said
    assert len(said) < 400


@pytest.mark.parametrize(
    ("field", "option"), [("prefer", "--prefer"), ("batch_features", "--batch")]
)
def test_other_options_cannot_name_a_profile(ask, field: str, option: str) -> None:
    code, _, said = ask([submit("nic_jumbo", **{field: "nic_jumbo"})])[0]
    assert code == 2029
    assert option in said
    assert ask([submit("nic_jumbo", **{field: "fast"})])[0][0] == 0


def parts(**shares: int) -> dict:
    names = {name: {"max_share": share, "flag_default": 0} for name, share in shares.items()}
    next(iter(names.values()))["flag_default"] = 1
    return names


@pytest.mark.parametrize(
    ("partition", "refused"),
    [(None, True), ("a", True), ("b", False), ("b,a", True), ("c", False), ("aa", False)],
)
def test_a_partition_that_always_shares_is_refused(ask, partition, refused: bool) -> None:
    table = parts(a=SHARED_FORCE | 4, b=1, c=SHARED_FORCE | 1, aa=0)
    more = {"partition": partition} if partition else {}
    case = {**submit("nic_jumbo", **more), "parts": table}
    code, _, said = ask([case])[0]
    assert (code == 2029, "partition a shares its nodes" in said) == (refused, refused)
    assert ask([{**submit("fast", **more), "parts": table}])[0][0] == 0


def modify(job: dict, **desc: Any) -> dict:
    return {"job": {"partition": "a", **job}, "desc": {"shared": NORMAL, **desc}}


@pytest.mark.parametrize(
    ("case", "code", "shared"),
    [
        (modify({}, features="nic_jumbo"), 0, 0),
        (modify({"features": "fast"}, features="nic_jumbo"), 0, 0),
        # It is exclusive already, and only an operator may say so again.
        (modify({"features": "nic_few"}, features="nic_jumbo"), 0, NORMAL),
        (modify({"features": "nic_few"}, time_limit=5), 0, NORMAL),
        (modify({"features": "nic_few"}, shared=1), 0, 0),
        (modify({"features": "fast"}, shared=1), 0, 1),
        (modify({"features": "nic_few"}, features=""), 0, NORMAL),
        (modify({"features": "nic_default"}, shared=1), 0, 1),
        (modify({"features": "nic_default"}, features="nic_few"), 0, 0),
        (modify({}, features="nic_jumb"), 2029, NORMAL),
        (modify({"features": "nic_few"}, features="nic_few|fast"), 2029, NORMAL),
        (modify({}, prefer="nic_few"), 2029, NORMAL),
    ],
)
def test_a_changed_job_follows_the_same_rules(ask, case: dict, code: int, shared: int) -> None:
    assert ask([case])[0][:2] == (code, str(shared))


def test_a_move_to_a_partition_that_always_shares_is_refused(ask) -> None:
    case = modify({"features": "nic_few"}, partition="b")
    assert ask([{**case, "parts": parts(a=1, b=SHARED_FORCE | 4)}])[0][0] == 2029


PIECES = [
    "nic_jumbo", "nic_few", "nic_default", "nic_", "nic_x", "fast", "&", "&", "|", "%s", "%", '"',
    "]]", "[[", "--", "$(x)", "*", "(", ")", "!", " ", ",", "=", ".", "-", "\\", "\n", "\x1b[",
]  # fmt: skip
NO_NUL = st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])
HOSTILE = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(NO_NUL, max_size=8)), max_size=12
).map("".join)


@settings(max_examples=rounds(15, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE, min_size=20, max_size=60))
def test_no_text_breaks_the_script_or_the_prolog(ask, policy: dict, texts: list[str]) -> None:
    """What is let through is what the node side understands: else a user could drain nodes."""
    features = {one["feature"]: name for name, one in policy["profiles"].items()}
    cases = [submit(text) for text in texts] + [modify({"features": t}, features=t) for t in texts]
    for text, case, (code, shared, said) in zip(texts * 2, cases, ask(cases), strict=True):
        assert code in (0, 2029)
        assert bool(said) == (code != 0)
        assert all(" " <= char <= "~" for char in said), "reaches a terminal"
        if code == 0:
            profile = asked(text, features, policy["feature_prefix"])
            if "job" not in case:
                assert (shared == "0") == (profile not in (None, "default"))
