"""Lists of nodes, and how many nodes a list names without ClusterShell's expansion."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from seatrial.base.nodelists import count_at_most, node_set

NUMBER = st.integers(0, 40)
WIDE = st.tuples(NUMBER, NUMBER)
RANGE = st.one_of(
    st.integers(-40, 40).map(str),
    WIDE.map(lambda ends: f"{ends[0]}-{sum(ends)}"),
    WIDE.map(lambda ends: f"-{ends[0]}-{ends[1]}"),
    WIDE.map(lambda ends: f"-{sum(ends)}--{ends[0]}"),
    st.tuples(WIDE, st.integers(1, 9)).map(
        lambda one: f"{one[0][0]}-{sum(one[0])}/{one[1]}"
    ),
)  # fmt: skip
RANGES = st.lists(RANGE, min_size=1, max_size=3).map(lambda several: f"[{','.join(several)}]")
#: NodeSet refuses two ranges without a letter between them
PART = st.lists(st.tuples(st.sampled_from(["n", "rack-"]), RANGES).map("".join), max_size=3)


@given(PART)
def test_no_part_names_more_nodes_than_are_counted(words: list[str]) -> None:
    part = "".join(words) or "n"
    assert count_at_most(part) >= len(NodeSet(part))


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ("login", 1),
        ("n[1-4,7]", 5),
        ("n[1-300]x[1-300]", 90_000),
        ("n[1-1000000/100]", 10_000),
        ("n[001-100]", 100),
        ("n[4-1]", 1),
        ("n[a-b]", 1),
    ],
)
def test_a_part_is_counted(part: str, number: int) -> None:
    assert count_at_most(part) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("n[1-512]!n[1-256]", 256),
        ("n[1-512]&n[1-256]", 256),
        ("n[1-300]^n[2-300]", 1),
        ("n[1-40000],n[1-40000]", 40_000),
        ("", 0),
    ],
)
def test_what_operators_leave_is_what_counts(text: str, number: int) -> None:
    assert len(node_set(text)) == number


@pytest.mark.parametrize(
    "text",
    [
        "n[1-100000000]",
        "n[-7-600000]",
        "n[1_000-9_000_000]",
        "n[1-40000],m[1-40000]",
        "login,n[1-60000]x[1-60000]",
        ",".join(["n[1-60000]"] * 20),
    ],
)
def test_a_list_of_too_many_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^names more than 65536 nodes$"):
        node_set(text)


@pytest.mark.parametrize("text", ["n[4-1]", "n[a-b]", "n[1-5000000000000000000/1000000000000000]"])
def test_what_is_no_list_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a node list: "):
        node_set(text)
