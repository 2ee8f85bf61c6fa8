"""A site with two rails on a native lab of its own: healthy, and with a fault of one rail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs import own_name, running
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.record import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec
from trial_support import SMALL, Silent, make_site

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rails")
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    transports: dict[str, dict] = {"openmpi-tcp": {}, "mpich-ofi": {}}
    return make_site(folder / "rails", CHECKS, RULES, transports=transports, rails=2, reruns=2)


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
