"""How many nodes a list names, without ClusterShell's expansion."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from seatrial.base.nodelists import count_at_most

NUMBER = st.integers(0, 40)
RANGE = st.one_of(
    NUMBER.map(str),
    st.tuples(NUMBER, st.integers(0, 40)).map(lambda ends: f"{ends[0]}-{sum(ends)}"),
    st.tuples(NUMBER, st.integers(0, 40), st.integers(1, 9)).map(
        lambda ends: f"{ends[0]}-{ends[0] + ends[1]}/{ends[2]}"
    ),
)
RANGES = st.lists(RANGE, min_size=1, max_size=3).map(lambda several: f"[{','.join(several)}]")
#: NodeSet refuses two ranges without a letter between them
PART = st.lists(st.tuples(st.sampled_from(["n", "rack-"]), RANGES).map("".join), max_size=3)


@given(st.lists(PART.map(lambda words: "".join(words) or "n"), min_size=1, max_size=3))
def test_no_list_names_more_nodes_than_are_counted(parts: list[str]) -> None:
    text = ",".join(parts)
    assert count_at_most(text) >= len(NodeSet(text))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("login", 1),
        ("n[1-4,7],login", 6),
        ("n[1-300]x[1-300]", 90_000),
        ("n[1-1000000/100]", 10_000),
        ("n[001-100]", 100),
        ("n[4-1]", 1),
        ("n[a-b]", 1),
    ],
)
def test_a_list_is_counted(text: str, number: int) -> None:
    assert count_at_most(text) == number
