"""The two-way fit against made-up truth: bad nodes, links and directions under noise."""

from __future__ import annotations

import math
import random
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.results import two_way


@given(st.integers(4, 24), st.data())
def test_what_is_planted_is_found(count: int, data: st.DataObject) -> None:
    """Each node may have an effect of its own; some nodes and links are twice as bad or worse."""
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=(count - 1) // 3))
    links = list(combinations(range(count), 2))
    some = st.sets(st.sampled_from(links), max_size=max(1, count // 8))
    cut = data.draw(some)
    rng = random.Random(data.draw(st.integers(0, 1000)))
    noise = {link: rng.uniform(-0.05, 0.05) for link in links}
    cells = {
        (a, b): (
            3 + noise[a, b] + sum(1.0 for node in (a, b) if node in bad) + 1.5 * ((a, b) in cut),
            (("", a), ("", b)),
        )
        for a, b in links
    }
    fitted = two_way.fit(cells)
    assert {node for (_, node), effect in fitted.effects.items() if effect > 0.5} == bad
    assert {link for link, rest in fitted.residuals.items() if rest > 0.75} == cut
    assert fitted.overall == pytest.approx(3, abs=0.3)


def test_sender_receiver_and_one_direction_are_told_apart() -> None:
    cells = {
        (a, b): (2.0 + (a == 3) + 2 * (b == 5) + 4 * ((a, b) == (1, 2)), (("s", a), ("r", b)))
        for a, b in permutations(range(8), 2)
    }
    fitted = two_way.fit(cells)
    assert fitted.overall == pytest.approx(2)
    effects = {end: effect for end, effect in fitted.effects.items() if abs(effect) > 0.1}
    assert effects == {("s", 3): pytest.approx(1), ("r", 5): pytest.approx(2)}
    large = {cell: rest for cell, rest in fitted.residuals.items() if abs(rest) > 0.1}
    assert large == {(1, 2): pytest.approx(4)}


@pytest.mark.parametrize("product", [True, False])
@pytest.mark.parametrize("count", [4, 8, 16])
def test_half_of_the_nodes_may_be_bad(count: int, product: bool) -> None:
    """The effects of two bad nodes add up, or a link is as bad as the worse of its nodes."""
    cells = {
        (a, b): (1.0 + (a % 2 + b % 2 if product else max(a % 2, b % 2)), (("", a), ("", b)))
        for a, b in combinations(range(count), 2)
    }
    fitted = two_way.fit(cells)
    assert fitted.overall == pytest.approx(1)
    assert {at: effect for (_, at), effect in fitted.effects.items()} == {
        at: pytest.approx(at % 2) for at in range(count)
    }


def test_missing_links_are_left_out() -> None:
    cells = {(0, 1): (1.0, (("", 0), ("", 1))), (0, 2): (1.0, (("", 0), ("", 2)))}
    assert two_way.fit(cells).overall == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no cells"):
        two_way.fit({})


@pytest.mark.parametrize(("better", "worse"), [("lower", 20.0), ("higher", 5.0)])
def test_worse_is_higher(better: str, worse: float) -> None:
    gap = two_way.badness(worse, better) - two_way.badness(10.0, better)
    assert gap == pytest.approx(math.log(2))
