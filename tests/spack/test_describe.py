"""What is found in a stack that lacks what most have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from seatrial.stack import describe


def test_a_stack_without_open_mpi_has_the_pseudo_transports_without_programs():
    found = describe.without_mpi(SimpleNamespace(roots=[], prefixes={}), {})
    assert set(found) == {"tcp", "verbs", "none"}
    assert [part.programs for part in found.values()] == [{}, {}, {}]
    assert not found["none"].env


def test_a_check_has_the_fabric_of_the_sites_transport():
    mpi = {"name": "mpich", "version": "4.2.1", "hash": "m"}
    graph = SimpleNamespace(
        roots=[],
        prefixes={},
        provider=lambda node, virtual: mpi,
        dependency=lambda node, name: None,
        prefix=lambda node: Path("/opt/mpich"),
    )
    node = {"hash": "t" * 32, "parameters": {"transport": "ofi", "provider": "verbs"}}
    part = describe.transport(graph, node)
    assert part.name == "mpich-ofi"
    assert part.env["FI_PROVIDER"] == "verbs"
    assert part.compilers == "/opt/mpich/bin"
