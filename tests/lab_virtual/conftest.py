"""One virtual lab for all tests, and a trial of its profiles by two guests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_support import SMALL, Tried, run_profiles, running, state, write_site

from campaigns import rounds
from seatrial_lab.adapter import further_lab
from seatrial_lab.virtual.emulator import build
from seatrial_lab.virtual.engine import CACHE, VirtualLab

PROFILES = """\
  igb-off:
    description: an interrupt for each frame
    coalescing: {rx_usecs: 0}
  igb-125:
    description: an interrupt every 125 us at most
    coalescing: {rx_usecs: 125}
  igb-140:
    description: igb-125 with its value changed by 12 %
    coalescing: {rx_usecs: 140}
"""
#: NetPIPE repeats 100 times: a series starts with four more interrupts now and then, 6 % of the
#: time of 30 round trips
SITE = (
    SMALL.replace("transports: {}", PROFILES + "transports: {}")
    .replace("repetitions: 30,", 'repetitions: 100, profiles: ["igb-*"],')
    .replace("trial: {", "trial: {reruns: 2, ")
)
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
def built_qemu() -> Path:
    """QEMU with a clock for each processor, which is built if it is not saved."""
    try:
        return build.provide(CACHE, lambda _: None)
    except build.NoSource as error:  # a distribution keeps a version for some years only
        pytest.skip(f"this release has no such QEMU: {error}")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    """The lab, up. A test leaves it as it found it."""
    with running(write_site(tmp_path_factory.mktemp("virtual"), SITE)) as shared:
        yield shared


@pytest.fixture(scope="session")
def trial(lab: VirtualLab, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Two guests share the profiles. The one with a wrong value, which runs again, is for the
    night."""
    profiles = rounds(("igb-off", "igb-125"), ("igb-*",))
    file = write_site(tmp_path_factory.mktemp("virtual_trial"), SITE, REQUIREMENTS)
    second = further_lab(str(file), 2, lab.spec.instance)

    def seen() -> list[dict[str, str]]:
        return [state(one, ("n1", "n2"), ["eth1"]) for one in (lab, second)]

    try:
        second.up()
        before, results, after = seen(), run_profiles(lab, file, profiles, second), seen()
        return Tried(results, before, after)
    finally:
        second.down()
