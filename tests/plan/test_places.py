"""The locations of a metric: their names, and which names are among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.matrix import Places
from seatrial.results.requirements import fits

NODES = st.lists(st.from_regex(r"\A[ab1]{1,2}(-[a1]{1,2})?\Z"), max_size=5, unique=True).map(sorted)
KINDS = ("", "node", "link", "direction")


@pytest.mark.parametrize("kind", KINDS)
@given(nodes=NODES, others=NODES)
def test_a_name_is_looked_up_as_if_all_were_listed(
    kind: str, nodes: list[str], others: list[str]
) -> None:
    places = Places(kind, nodes)
    listed = list(places)
    near = [name for some in KINDS for name in Places(some, sorted({*nodes, *others}))]
    for name in ["-", ">", "a-", *near, *near[::-1]]:
        assert (name in places) == (name in listed)
        assert list(places.matching(name)) == [name] * (name in listed)
    patterns = ["*", "?*", "a*", "b*-a*", "*>b*", "[1a]*", "ab*", "*1", "b-*"]
    for several in [
        *([pattern] for pattern in patterns),
        *([pattern, "a1*"] for pattern in patterns),
    ]:
        assert list(places.matching(several)) == [name for name in listed if fits(several, name)]
    assert list(places.matching(None)) == listed
    assert places.first == (listed[0] or None if listed else None)


def test_a_link_whose_nodes_are_in_the_wrong_order() -> None:
    links = Places("link", ["gpu-1", "gpu-2", "n1"])
    assert links.turned("gpu-2-gpu-1") == ["gpu-1-gpu-2"]
    assert links.turned("gpu-1-gpu-2") == links.turned("gpu-1-gpu-3") == []
    assert Places("direction", ["n1", "n2"]).turned("n2-n1") == []


def test_a_name_of_a_large_cluster_is_looked_up_without_a_list() -> None:
    nodes = sorted(f"n{number}" for number in range(20_000))
    directions = Places("direction", nodes)
    assert "n19998>n19999" in directions
    assert "n19999>n19999" not in directions
    assert directions.has(["n1>n2", "n19999>n20000"])
    assert not directions.has("n19999>n20000")
    assert directions.has("n19999>n1999*")
    assert not directions.has(["m*>n1", "n19999>m*"])
