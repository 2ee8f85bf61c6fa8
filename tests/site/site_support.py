"""A small site with two networks under test and two classes of nodes, for tests of profiles."""

from __future__ import annotations

import textwrap
from pathlib import Path

from seatrial.base import yamlfile
from seatrial.base.errors import InputError, Problem
from seatrial.site.load import load_site
from seatrial.site.model import Site
from seatrial.site.validate import site_problems

TEXT = """\
schema: 1
name: pier
networks:
  mgmt: {role: management, interface: eth0, subnet: 10.0.0.0/24}
  test: {role: test, interface: eth1, subnet: 10.0.1.0/24, switch_mtu: 9216}
  rail: {role: test, interface: eth2, subnet: 10.0.2.0/24}
nodes:
  - {names: "n[1-2]", class: thin, cores: 4}
  - {names: n3.pier.example, class: fat, cores: 8}
partitions:
  compute: {nodes: "n[1-2],n3.pier.example"}
transports:
  openmpi-tcp: {}
  rail-tcp: {network: rail}
benchmarks:
  netpipe: {}
nic_profiles:
  default: {description: the node as it boots}
"""


def text_with(profiles: str, changes: dict[str, str] | None = None) -> str:
    """The site's text with further profiles; ``changes`` are pieces of text to replace."""
    text = TEXT
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    return text + textwrap.indent(textwrap.dedent(profiles), "  ")


def site_with(profiles: str = "", changes: dict[str, str] | None = None) -> Site:
    """The site with further profiles. Fails where it has faults."""
    site, _ = yamlfile.loads(text_with(profiles, changes), Site)
    assert site_problems(site) == []
    return site


def problems_of(
    folder: Path, profiles: str, changes: dict[str, str] | None = None
) -> tuple[list[Problem], str]:
    """What ``site check`` says of the site with further profiles, and the file's text."""
    file = folder / "pier" / "site.yaml"
    file.parent.mkdir(exist_ok=True)
    text = text_with(profiles, changes)
    file.write_text(text)
    load_site.cache_clear()
    try:
        load_site(file)
    except InputError as error:
        return error.problems, text
    return [], text
