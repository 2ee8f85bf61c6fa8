"""A site with profiles, and a real lab of it, for the tests of the Slurm side."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from slurm_support import HARBOUR

from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.slurm.layout import Layout
from seatrial.slurm.policy import policy_of
from seatrial_lab.adapter import lab_spec
from seatrial_lab.common import processes, state
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab


@pytest.fixture(scope="session")
def site() -> Site:
    return load_site(HARBOUR)


@pytest.fixture(scope="session")
def layout() -> Layout:
    return Layout()


@pytest.fixture(scope="session")
def policy(site: Site, layout: Layout) -> dict:
    return policy_of(site, layout)


@pytest.fixture(scope="session")
def lab(site: Site) -> Iterator[Lab]:
    """The lab of the site, with its profiles; shared by all tests."""
    for name in state.instances():
        found = re.fullmatch(r"s(\d+)", name)
        if found and not processes.is_alive(int(found[1])):
            Lab(LabSpec(instance=name)).down()
    shared = Lab(lab_spec(site, f"s{os.getpid()}"))
    try:
        shared.up()
        yield shared
    finally:
        shared.down()
