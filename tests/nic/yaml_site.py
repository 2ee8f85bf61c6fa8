"""A site of a lab with many nodes, and profiles that touch all that its interfaces have."""

from __future__ import annotations

from pathlib import Path

from seatrial.site.load import load_site
from seatrial.site.model import Site

TEXT = """\
schema: 1
name: {name}
lab: {{engine: native, accounting: false}}
networks:
  mgmt: {{role: management, interface: eth0, subnet: 10.75.0.0/24}}
  test: {{role: test, interface: eth1, subnet: 10.75.1.0/24, switch_mtu: 9216}}
  aux: {{role: test, interface: tap0, subnet: 10.75.2.0/24}}
nodes:
  - {{names: "n[1-{count}]", cores: 2}}
partitions:
  main: {{nodes: "n[1-{count}]"}}
nic_profiles:
  default: {{description: as it boots}}
  many:
    description: everything that these interfaces have
    mtu: {mtu}
    txqueuelen: 5000
    offloads: {{tso: off, gso: off, gro: on}}
    rps_cpus: "0"
    gro_flush_timeout_ns: 20000
    per_network:
      test: {{channels: {{rx: 2, tx: 2}}, egress_rate: 1 Gbit/s, offloads: {{tx: off}}}}
      aux: {{coalescing: {{rx_frames: 16}}}}
  other:
    description: another one
    mtu: 3000
  refused:
    description: its last setting is beyond what the driver takes
    mtu: 9000
    offloads: {{gso: off}}
    per_network:
      aux: {{coalescing: {{rx_frames: 1000}}}}
  too_long:
    description: the kernel refuses its frames on one of the interfaces
    txqueuelen: 5000
    per_network:
      test: {{mtu: 9000}}
      aux: {{mtu: 65535}}
transports:
  tcp-only: {{description: not used}}
benchmarks: {{}}
"""


def write(folder: Path, count: int, mtu: int = 9000) -> Path:
    """Write the site file; returns it."""
    file = folder / "fleet" / "site.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEXT.format(name="fleet", count=count, mtu=mtu))
    return file


def load(file: Path) -> Site:
    load_site.cache_clear()
    return load_site(file)
