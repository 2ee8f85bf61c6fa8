"""A real lab for the tests that need one. Each test session has its own instance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from lab_support import SESSION

from seatrial_lab.common import processes, state
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab


def _clear_dead_sessions() -> None:
    """Labs of test sessions that were killed: their instance names carry the process id."""
    for name in state.instances():
        found = re.fullmatch(r"t(\d+)(_.*)?", name)
        if found and not processes.is_alive(int(found[1])):
            Lab(LabSpec(instance=name)).down()


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A lab with accounting that all tests share; a test that breaks it must mend it."""
    _clear_dead_sessions()
    shared = Lab(
        LabSpec(
            instance=SESSION, features={"n1": ("fast", "nic_lowlat")}, modulepath=("/opt/mods",)
        )
    )
    try:
        shared.up()
        yield shared
    finally:
        shared.down()


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Makes labs with names of their own; all of them are down after the test."""
    made: list[Lab] = []

    def make(**settings: object) -> Lab:
        settings = {"accounting": False, **settings}
        one = Lab(LabSpec(instance=f"{SESSION}_{len(made)}", **settings))  # type: ignore[arg-type]
        made.append(one)
        return one

    try:
        yield make
    finally:
        for one in made:
            one.down()
