"""Which interface carries a network under a profile."""

from __future__ import annotations

import pytest
from site_support import site_with, text_with

from seatrial.checks.configuration import settings
from seatrial.site.load import load_site
from seatrial.site.profiles import carrier_interfaces

PAIR = """\
pair:
  description: x
  transports: [openmpi-tcp, tcp]
  bonding: {mode: balance-rr, members: [eth1, eth2], name: bond7}
"""


def test_a_bond_carries_the_network_of_its_first_member() -> None:
    site = site_with(PAIR)
    assert carrier_interfaces(site, "default") == {"mgmt": "eth0", "test": "eth1", "rail": "eth2"}
    assert carrier_interfaces(site, "pair") == {"mgmt": "eth0", "test": "bond7"}


@pytest.mark.stack
def test_an_mpi_is_tied_to_the_bond_and_elsewhere_to_the_interface(tmp_path) -> None:
    file = tmp_path / "pier" / "site.yaml"
    file.parent.mkdir()
    file.write_text(text_with(PAIR, {"  rail-tcp: {network: rail}\n": ""}))
    load_site.cache_clear()
    tied = {
        tuple(environment.get("target_systems", ["*"])): dict(environment["env_vars"])[
            "OMPI_MCA_btl_tcp_if_include"
        ]
        for environment in settings(file)["environments"]
        if environment["name"] == "openmpi-tcp"
    }
    assert tied == {("*",): "eth1", ("pier:compute_pair",): "bond7"}
