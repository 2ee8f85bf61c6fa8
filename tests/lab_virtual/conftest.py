"""A virtual lab that the tests share: two nodes with igb cards, described by a site file."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from virtual_support import write_site

from seatrial.site.load import load_site
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.site import virtual_spec


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    """The lab, up. A test leaves it as it found it."""
    site = load_site(write_site(tmp_path_factory.mktemp("virtual")))
    shared = VirtualLab(virtual_spec(site, f"v{os.getpid()}"))
    try:
        shared.up()
        yield shared
    finally:
        shared.down()
