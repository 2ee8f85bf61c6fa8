"""A small site with a virtual lab, and what tests do with such labs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labs import clear_dead_sessions
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.adapter import machine_of
from seatrial_lab.common.programs import Programs
from seatrial_lab.protocol import Lab
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.packages import Base
from seatrial_lab.virtual.site import virtual_spec

#: two nodes with an igb card each
SMALL = """\
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
transports: {}
benchmarks:
  netpipe: {max_bytes: 64, repetitions: 30, time_limit_s: 300}
trial: {repeats: 1, profiles: ["*"]}
"""
#: each node with a processor of its own
OWN = SMALL.replace("engine: virtual,", "engine: virtual, processors: own,")
#: the files that start a guest, of which none is there
BASE = Base(Path("/q/usr/bin/q"), "1:10.0", Path("k"), "6", "6", Path("m"), Path("b"))
PROGRAMS = Programs((23, 2), "slurm 23.02", "slurm", False)
NO_REQUIREMENTS = "schema: 1\nrequirements: []\n"


def write_site(folder: Path, text: str = SMALL, requirements: str = NO_REQUIREMENTS) -> Path:
    """A site's folder; returns its site file."""
    place = folder / re.search(r"^name: (\w+)$", text, re.MULTILINE)[1]  # type: ignore[index]
    place.mkdir(parents=True)
    (place / "site.yaml").write_text(text)
    (place / "requirements.yaml").write_text(requirements)
    return place / "site.yaml"


@contextmanager
def running(file: Path, suffix: str = "") -> Iterator[VirtualLab]:
    """The lab of a site file, up for the block. ``suffix``: of its name, one for each lab of a
    session."""
    clear_dead_sessions()
    lab = VirtualLab(virtual_spec(load_site(file), f"v{os.getpid()}{suffix}"))
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


def figures(results: Results, check: str, profile: str, metric: str) -> list[float]:
    """Of each run of the case."""
    return [
        one.value
        for run in results.runs
        if (run.case.check, run.case.profile) == (check, profile)
        for one in run.metrics
        if one.metric == metric
    ]


class Silent:
    """Says nothing of a trial's progress."""

    def line(self, word: str, done: int, total: int, name: str) -> None: ...
    def said(self, text: str) -> None: ...


def run_profiles(lab: VirtualLab, file: Path, profiles: tuple[str, ...], *further: Lab) -> Results:
    """A trial of profiles of a site file, beside the site's folder, in which every case ran.

    ``further``: guests that run a share of the profiles.
    """
    trials = file.parent.with_name("trials")
    trials.mkdir()
    for one in (lab, *further):
        one.add_bind(trials)
    plan = plan_trial(file, Selection(profiles=profiles))
    machines = [machine_of(one) for one in further]
    results = run_trial(plan, file, VirtualMachine(lab), Silent(), trials, machines)
    assert [f"{run.case.id}: {run.reason}" for run in results.runs if run.outcome != "ran"] == []
    return results


@dataclass(frozen=True)
class Tried:
    """A trial of profiles, and the nodes' state before and after, by guest."""

    results: Results
    before: list[dict[str, str]]
    after: list[dict[str, str]]


def state(
    lab: VirtualLab, nodes: Sequence[str], interfaces: Sequence[str], *further: str
) -> dict[str, str]:
    """What can be seen of each node: addresses, moderation and shapers of interfaces, and what
    ``further`` commands show. Not the numbers of interfaces: a driver that is loaded again gives
    others. One process for each node: a start takes most of their time.
    """
    of_one = ("ip -br -4 addr show dev {}", "ethtool -c {}", "tc qdisc show dev {}")
    commands = [
        *further,
        *(words.format(interface) for interface in interfaces for words in of_one),
    ]
    script = "set -e; " + "; ".join(f"echo '= {command}'; {command}" for command in commands)
    return {
        node: lab.run(["sh", "-c", script], user="root", node=node, check=True).stdout
        for node in nodes
    }


def latency(trial: Tried, profile: str) -> float:
    """In us, of the best of a profile's runs: other work of the guest can only add to it."""
    return min(figures(trial.results, "netpipe", profile, "latency_us"))
