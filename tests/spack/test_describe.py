"""What is found in a stack that lacks what most have."""

from __future__ import annotations

from types import SimpleNamespace

from seatrial.stack import describe


def test_a_stack_without_open_mpi_has_the_pseudo_transports_without_programs():
    found = describe.without_mpi(SimpleNamespace(roots=[], places={}), {})
    assert set(found) == {"tcp", "none"}
    assert [part.programs for part in found.values()] == [{}, {}]
    assert not found["none"].env
