"""The lab of all tests, and labs of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from labs import own_name
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab


@pytest.fixture
def lab(plain_lab: Lab) -> Lab:
    """A test that breaks it must mend it."""
    return plain_lab


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Makes labs with names of their own; all of them are down after the test."""
    made: list[Lab] = []

    def make(**settings: object) -> Lab:
        settings = {"accounting": False, **settings}
        one = Lab(LabSpec(instance=own_name(str(len(made))), **settings))  # type: ignore[arg-type]
        made.append(one)
        return one

    try:
        yield make
    finally:
        for one in made:
            one.down()
