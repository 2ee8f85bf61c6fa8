"""One virtual lab for all tests, with every kind of card, and a trial of all its profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from virtual_support import CARDS, tried, write_site

from seatrial.lab.virtual.engine import VirtualLab
from seatrial.lab.virtual.site import virtual_spec
from seatrial.results.record import Run
from seatrial.site.load import load_site

#: a node of each class
NODES = ("n1", "f1", "r1")
PROFILES = ("igb-off", "igb-125", "bonded", "alone", "function-*", "parameters")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    """The lab, up. A test leaves it as it found it."""
    site = load_site(write_site(tmp_path_factory.mktemp("virtual"), CARDS))
    shared = VirtualLab(virtual_spec(site, f"v{os.getpid()}"))
    try:
        shared.up()
        yield shared
    finally:
        shared.down()


def state(lab: VirtualLab) -> dict[str, str]:
    """What can be seen of a node of each class: addresses, bonds, moderation, shapers. Not the
    numbers of interfaces: a driver that is loaded anew gives others."""
    commands = (
        "ip -br -4 addr show dev eth1",
        "ip -br -4 addr show dev eth2",
        "ip -br link show type bond",
        "ethtool -c eth1",
        "ethtool -c eth2",
        "tc qdisc show dev eth1",
        "tc qdisc show dev eth2",
    )
    return {
        f"{node}: {command}": lab.run(command.split(), user="root", node=node, check=True).stdout
        for node in NODES
        for command in commands
    }


@dataclass(frozen=True)
class Tried:
    """A trial of all profiles but the default, and the nodes' state before and after."""

    runs: list[Run]
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="session")
def trial(lab: VirtualLab, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("virtual_trial")
    before = state(lab)
    results = tried(lab, write_site(folder, CARDS), folder / "trials", *PROFILES)
    return Tried(results.runs, before, state(lab))
