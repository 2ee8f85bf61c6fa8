"""A site with two rails on a native lab of its own: healthy, under a NIC profile, with a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs import own_name, running
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec
from trial_support import FURTHER_FAULT, SMALL, Silent, make_site

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
RULES = """
schema: 1
requirements:
  - {select: {check: links}, metric: bandwidth_MB_s, basis: relative, peers: median, at_least: 0.1}
informative:
  - {select: {}, metric: "*", reason: a test}
"""
CHECKS = {
    "links": {**SMALL["links"], "repetitions": 5, "time_limit_s": 10},
    "netpipe": SMALL["netpipe"],
}
#: frames of another size on each rail
FRAMES = {
    "description": "larger frames, which the kernel cuts",
    "networks": ["rail1", "rail2"],
    "mtu": 9000,
    "offloads": {"tso": "off"},
    "per_network": {"rail2": {"mtu": 4000}},
}
MTU = {"eth1": 9000, "eth2": 4000}
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rails")
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    transports: dict[str, dict] = {"openmpi-tcp": {}, "mpich-ofi": {}}
    return make_site(
        folder / "rails",
        CHECKS,
        RULES,
        transports=transports,
        nic_profiles={"frames": FRAMES},
        rails=2,
        reruns=2,
    )


@pytest.fixture(scope="module")
def lab(site: Path) -> Iterator[Lab]:
    with running(lab_spec(load_site(site), own_name("rails"))) as made:
        yield made


@pytest.fixture
def attempt(lab: Lab, folder: Path, site: Path) -> Callable[..., Results]:
    def run(progress: Silent | None = None, **selection: tuple[str, ...]) -> Results:
        lab.add_bind(folder)
        plan = plan_trial(site, Selection(**selection))  # type: ignore[arg-type]
        return run_trial(plan, site, LabMachine(lab), progress or Silent(), folder / "trials")

    return run


def test_two_healthy_rails_are_accepted_and_each_carried_its_own_traffic(attempt):
    results = attempt()
    assert results.verdict.verdict == "accept", results.verdict.findings
    assert {run.case.network for run in results.runs} == {"rail1", "rail2"}
    for run in results.runs:
        assert run.path is not None
        assert run.path.crossed
        idle = {"rail1": "eth2", "rail2": "eth1"}[run.case.network]
        carried = [c.rx_bytes + c.tx_bytes for c in run.path.counters if c.interface == idle]
        assert max(carried) < run.path.required_bytes / 10, run.case.id


def nic_state(lab: Lab) -> dict[str, str]:
    """What ip and ethtool print of both rails of each node, but for counters."""
    commands = ("ip -o link show {}", "ethtool -k {}")
    return {
        f"{node}: {command}": lab.run(command.split(), user="root", node=node, check=True).stdout
        for node in NODES
        for command in (text.format(interface) for text in commands for interface in MTU)
    }


def test_a_profile_of_both_rails_is_verified_on_both_and_restored(attempt, lab):
    before = nic_state(lab)
    results = attempt(profiles=("frames",), transports=("tcp",))
    assert nic_state(lab) == before
    assert [run.reason for run in results.runs if run.outcome == "error"] == []
    assert {run.case.id for run in results.runs} == {
        f"{check}.tcp@{rail}.frames.{nodes}n"
        for check, nodes in (("links", 4), ("netpipe", 2))
        for rail in ("rail1", "rail2")
    }
    (use,) = results.trial.profiles
    assert [held.job.nodes for held in use.allocations] == [list(NODES)]  # applied once
    declared = {name: settings["mtu"] for name, settings in use.settings["n1"].items()}
    assert declared == MTU
    for run in results.runs:
        verified = {(proof.node, proof.when) for proof in run.nic_proofs if proof.ok}
        assert verified == {(node, when) for node in run.job.nodes for when in ("before", "after")}
        for node in run.job.nodes:
            for interface, mtu in MTU.items():
                for when in ("before", "after"):
                    state = run.nic[node][interface][when]
                    assert state["mtu"] == mtu
                    assert state["feature.tcp-segmentation-offload"] == "off"


class Changing(Silent):
    """Sets another MTU on the second rail of a node when the first case has ended."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.lab = lab
        self.is_done = False

    def line(self, word: str, done: int, total: int, name: str) -> None:
        super().line(word, done, total, name)
        if done and not self.is_done:
            self.is_done = True
            change = ["ip", "link", "set", "eth2", "mtu", "2000"]
            self.lab.run(change, user="root", node="n1", check=True)


def test_a_second_rail_that_leaves_the_profile_is_an_error_with_its_setting(attempt, lab):
    before = nic_state(lab)
    results = attempt(progress=Changing(lab), profiles=("frames",), checks=("netpipe",))
    wrong = [run for run in results.runs if run.outcome == "error"]
    assert {run.case.network for run in wrong} == {"rail1", "rail2"}
    for run in wrong:
        assert (run.phase, run.metrics) == ("profile", [])
        assert "n1: eth2 mtu is 2000, not 4000" in run.reason
    assert results.verdict.verdict == "incomplete"
    assert nic_state(lab) == before


@FURTHER_FAULT
def test_a_slow_second_rail_is_rejected_with_rail_and_link(attempt, lab):
    faults.slow_link(lab, "n3", "100mbit", "eth2")
    try:
        results = attempt(checks=("links",))
    finally:
        faults.clear(lab)
    assert results.verdict.verdict == "reject"
    failed = {(j.case.id, j.location) for j in results.judgements if j.verdict == "fail"}
    rail = "links.tcp@rail2.default.4n"
    assert failed == {(rail, "n1-n3"), (rail, "n2-n3"), (rail, "n3-n4")}


class Cutting(Silent):
    """Cuts the second rail of a node when the trial starts its jobs."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.lab = lab

    def said(self, text: str) -> None:
        super().said(text)
        if text.startswith("evidence goes to"):
            faults.cut_link(self.lab, "n3", "eth2")


def test_a_rail_that_is_down_is_an_error_with_node_interface_and_network(attempt, lab):
    try:
        results = attempt(Cutting(lab), checks=("links",))
    finally:
        faults.clear(lab)
    assert results.verdict.verdict == "incomplete"
    by_network = {run.case.network: run for run in results.runs}
    assert by_network["rail1"].outcome == "ran", by_network["rail1"].reason
    bad = by_network["rail2"]  # the links of the other nodes are measured
    assert set(bad.unmeasured) == {"n3"}
    assert "n3: eth2 (rail2)" in bad.unmeasured["n3"]


@FURTHER_FAULT
def test_exchanged_cables_name_both_rails_and_the_node(attempt, lab):
    faults.cross_links(lab, "n1", "eth2")
    try:
        results = attempt(checks=("links",))
    finally:
        faults.clear(lab)
    reasons = {
        run.case.network: run.unmeasured["n1"] if run.outcome == "ran" else run.reason
        for run in results.runs
    }
    assert set(reasons) == {"rail1", "rail2"}
    assert "eth1 (rail1)" in reasons["rail1"]
    assert "eth2 (rail2)" in reasons["rail1"]
    assert "n1" in reasons["rail1"]
