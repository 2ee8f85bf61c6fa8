"""The user's constraint: strict where it names a NIC profile, and never harmful."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.nic.node.constraint import asked
from seatrial.nic.node.errors import BadInput

FEATURES = {"nic_jumbo": "jumbo", "nic_low_latency": "low-latency", "nic_default": "default"}


def ask(text: str) -> str | None:
    return asked(text, FEATURES, "nic_")


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("", None),
        ("haswell", None),
        ("[rack1|rack2]", None),
        ("a*2&(b|c)", None),
        ("nic_jumbo", "jumbo"),
        ("haswell&nic_jumbo", "jumbo"),
        ("nic_jumbo,ib", "jumbo"),
        ("nic_jumbo&nic_jumbo", "jumbo"),
        ("nic_default", "default"),
        ("mechanic_jumbo", None),
        ("; rm -rf /", None),
    ],
)
def test_understood(text: str, profile: str | None) -> None:
    assert ask(text) == profile


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nic_jumbo|nic_default", "alternatives"),
        ("nic_jumbo|haswell", "alternatives"),
        ("[nic_jumbo]", "alternatives"),
        ("nic_jumbo*4", "alternatives"),
        ("!nic_jumbo", "alternatives"),
        ("nic_jumbo&nic_low_latency", "several"),
        ("nic_jumboo", "no NIC profile"),
        ("nic_jumbo;reboot", "alternatives"),
        ("nic_jumbo\n", "alternatives"),
        ("$(nic_jumbo)", "alternatives"),
        ("nic_jumbo&" + "a" * 5000, "longer"),
    ],
)
def test_refused(text: str, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        ask(text)


@given(st.text(max_size=200) | st.lists(st.sampled_from(
    ["nic_jumbo", "nic_low_latency", "&", ",", "|", "*2", "[", "]", "(", ")", "ib", "nic_x", " "]
)).map("".join))  # fmt: skip
def test_nothing_else_comes_out(text: str) -> None:
    """A profile of the site, none, or a refusal of one short printable line."""
    try:
        found = ask(text)
    except BadInput as error:
        said = str(error)
    else:
        said, known = "", (None, *FEATURES.values())
        assert found in known
    assert len(said) < 300
    assert said.isprintable()
