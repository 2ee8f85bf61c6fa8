"""One virtual lab for all tests, with every kind of card, and a trial of all its profiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from virtual_support import CARDS, Tried, run_profiles, running, write_site

from campaigns import rounds
from seatrial_lab.adapter import further_lab
from seatrial_lab.protocol import Lab
from seatrial_lab.virtual.engine import VirtualLab

#: a node of each class
NODES = ("n1", "f1", "r1")
PROFILES = ("igb-*", "function-125")
#: these take half of the time of all: a bond, and a driver that is loaded again with parameters
PROFILES_AT_NIGHT = ("bonded", "function-off", "parameters")
#: what igb-125 always has here, and igb-140 as if it were igb-125: less than what its value changes
REQUIREMENTS = """\
schema: 1
defaults: {statistic: majority}
requirements:
  - {select: {profile: igb-off}, metric: latency_us, basis: baseline, unit: us,
     reference: 22, lower: -0.15, upper: 0.15}
  - {select: {profile: [igb-125, igb-140]}, metric: latency_us, basis: baseline, unit: us,
     reference: 138, lower: -0.05, upper: 0.05}
informative:
  - {select: {}, metric: "*", reason: of 64 bytes only}
"""


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    """The lab, up. A test leaves it as it found it."""
    with running(write_site(tmp_path_factory.mktemp("virtual"), CARDS)) as shared:
        yield shared


def state(lab: Lab) -> dict[str, str]:
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


@pytest.fixture(scope="session")
def trial(lab: VirtualLab, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Two guests share the profiles."""
    file = write_site(tmp_path_factory.mktemp("virtual_trial"), CARDS, REQUIREMENTS)
    second = further_lab(str(file), 2, lab.spec.instance)
    try:
        second.up()
        before = [state(lab), state(second)]
        # Not at import: pytest may import this file before it knows of --nightly.
        results = run_profiles(lab, file, (*PROFILES, *rounds((), PROFILES_AT_NIGHT)), second)
        return Tried(results, before, [state(lab), state(second)])
    finally:
        second.down()
