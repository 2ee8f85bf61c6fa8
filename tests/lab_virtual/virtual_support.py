"""A small site with a virtual lab: two nodes with igb cards."""

from __future__ import annotations

from pathlib import Path

SITE = """\
schema: 1
name: small
lab: {engine: virtual, nics: {igb: [igb]}}
networks:
  mgmt: {role: management, interface: eth0, subnet: 10.76.0.0/24}
  test: {role: test, interface: eth1, subnet: 10.76.1.0/24, switch_mtu: 9216}
nodes:
  - {names: "n[1-2]", class: igb, cores: 1}
partitions:
  compute: {nodes: "n[1-2]"}
slurm: {backend: squeue}
nic: {controllers: [10.76.0.254]}
nic_profiles:
  default: {description: as the driver starts them}
  igb-off: {description: an interrupt for each frame, coalescing: {rx_usecs: 0}}
  igb-125: {description: an interrupt every 125 us at most, coalescing: {rx_usecs: 125}}
  jumbo: {description: large frames, mtu: 9000}
transports: {}
benchmarks:
  netpipe: {max_bytes: 64, repetitions: 30, time_limit_s: 300}
trial: {repeats: 1, profiles: ["*"]}
"""


def write_site(folder: Path, text: str = SITE) -> Path:
    """A site's folder, with no requirements; returns its site file."""
    place = folder / "small"
    place.mkdir(parents=True)
    (place / "site.yaml").write_text(text)
    (place / "requirements.yaml").write_text("schema: 1\nrequirements: []\n")
    return place / "site.yaml"


class Silent:
    """Says nothing of a trial's progress."""

    def started(self, folder: Path, cases: int) -> None: ...
    def line(self, word: str, done: int, total: int, name: str) -> None: ...
    def said(self, text: str) -> None: ...
