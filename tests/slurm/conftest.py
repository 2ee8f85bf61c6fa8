"""A site with profiles, and a real lab of it, for the tests of the Slurm side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_support import HARBOUR

from labs import own_name, running
from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.slurm.layout import Layout
from seatrial.slurm.policy import policy_of
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import lab_spec


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
    with running(lab_spec(site, own_name("slurm"))) as shared:
        yield shared
