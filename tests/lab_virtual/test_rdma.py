"""The site lab-rdma: two rails of soft RoCE, in a guest with a kernel of its own.

Healthy, with the cable of one rail slow, with verbs traffic over TCP, and without a link. The
kernel comes from the machine's package sources. Without it the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_support import Silent, running

from seatrial.base.errors import InputError, LabError
from seatrial.base.lock import locked
from seatrial.base.paths import CHECKOUT
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.results.record import PLANTED, Counters, Run
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.virtual import faults, packages
from seatrial_lab.virtual.engine import CACHE, LOCK_FILE, VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine

pytestmark = [
    pytest.mark.root,
    pytest.mark.slurm,
    pytest.mark.stack,
    pytest.mark.nightly(reason="soft RoCE, in a guest with a kernel of its own"),
]
SITE = CHECKOUT / "site-configs" / "lab-rdma" / "site.yaml"
NODES = ("roce1", "roce2")
RAILS = {"rail1": ("eth1", "rxe1_"), "rail2": ("eth2", "rxe2_")}
#: docs/virtual-lab.md makes the same copy of the site
VERBS_TRANSPORTS = ("verbs", "mpich-ucx")
VERBS = "    data_path: verbs\n"
TO_TCP = "#!/bin/sh\necho export UCX_TLS=tcp,self\necho export UCX_NET_DEVICES=eth1\n"


class Roce:
    """The lab of the site, up."""

    def __init__(self, lab: VirtualLab, folder: Path):
        self.lab = lab
        self.trials = folder / "trials"
        self.trials.mkdir()
        lab.add_bind(self.trials)

    def trial(
        self, site: Path = SITE, progress: Silent | None = None, **selection: tuple[str, ...]
    ) -> Results:
        plan = plan_trial(site, Selection(**selection))  # type: ignore[arg-type]
        machine = VirtualMachine(self.lab)
        return run_trial(plan, site, machine, progress or Silent(), self.trials)


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roce]:
    site = load_site(SITE)
    assert site.lab is not None
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        with locked(CACHE / LOCK_FILE, lambda _: None):
            packages.provide(CACHE, site.lab.kernel or "")
    except LabError as error:
        pytest.skip(f"kernel of {site.lab.kernel}: {error}")
    with running(SITE, "_rdma") as lab:
        yield Roce(lab, tmp_path_factory.mktemp("rdma"))


def runs(results: Results, check: str) -> list[Run]:
    return [run for run in results.runs if run.case.check == check]


def reasons(results: Results) -> list[str]:
    return [f"{run.case.id}: {run.reason}" for run in results.runs if run.outcome != "ran"]


def port_bytes(counters: Counters) -> int:
    """What the RDMA port of an interface carried in both directions."""
    port = counters.rdma
    assert port is not None
    assert port.rx_bytes is not None
    assert port.tx_bytes is not None
    return port.rx_bytes + port.tx_bytes


def test_each_node_has_a_device_on_each_rail(roce: Roce) -> None:
    for node in NODES:
        listed = roce.lab.run(["ls", "/sys/class/infiniband"], node=node, check=True).stdout
        assert listed.split() == [f"{prefix}{node}" for _, prefix in RAILS.values()]


def test_the_site_is_accepted_and_the_ports_of_each_rail_carried_its_traffic(roce: Roce) -> None:
    results = roce.trial()
    assert reasons(results) == []
    assert results.verdict is not None
    assert results.verdict.verdict == "accept", results.verdict.findings
    verbs = [run for run in results.runs if run.path and run.path.data_path == "verbs"]
    assert sorted(run.case.network for run in verbs) == ["rail1"] * 4 + ["rail2"] * 4
    for run in verbs:
        assert run.path is not None
        assert run.path.crossed
        _, device = RAILS[run.case.network]
        if run.case.check == "netpipe":
            assert f"tag(rc_verbs/{device}roce" in run.path.reported
        for counters in run.path.counters:
            if counters.network == run.case.network:
                assert counters.rdma is not None
                assert counters.rdma.port == f"{device}{counters.node}:1"
                assert port_bytes(counters) >= run.path.required_bytes > 0
            elif counters.network in RAILS:
                assert port_bytes(counters) < run.path.required_bytes / 10
        seen = {
            counter.node for counter in run.path.counters if counter.network == run.case.network
        }
        assert seen == set(run.job.nodes)


def test_a_slow_cable_is_rejected_with_its_rail(roce: Roce) -> None:
    faults.delay_link(roce.lab, "roce2", "10ms", "eth2")
    try:
        results = roce.trial()
    finally:
        assert [str(one) for one in faults.clear(roce.lab)] == ["link roce2: delay 10ms on eth2"]
    assert reasons(results) == []
    assert results.verdict is not None
    assert results.verdict.verdict == "reject"
    assert results.trial.planted == [f"{PLANTED}link roce2: delay 10ms on eth2"]
    failed = [judgement for judgement in results.judgements if judgement.verdict == "fail"]
    assert {one.case.network for one in failed} == {"rail2"}
    assert {one.case.transport for one in failed} == {"verbs", "mpich-ucx", "tcp"}
    assert any(
        "@rail2" in finding and "latency_us" in finding for finding in results.verdict.findings
    )


def test_verbs_that_uses_tcp_is_an_error_that_names_both_paths(roce: Roce, tmp_path: Path) -> None:
    copy = shutil.copytree(SITE.parent, tmp_path / "lab-rdma")
    prolog = roce.trials / "to-tcp"  # which the nodes see
    prolog.write_text(TO_TCP)
    prolog.chmod(0o755)
    text = SITE.read_text()
    assert text.count(VERBS) == 1
    options = f"    options: [--task-prolog={prolog}]\n"
    (copy / "site.yaml").write_text(text.replace(VERBS, VERBS + options))
    results = roce.trial(copy / "site.yaml", transports=("mpich-ucx",))
    assert {run.case.network for run in results.runs} == set(RAILS)
    for run in results.runs:
        assert (run.outcome, run.phase, run.metrics) == ("error", "path", [])
        assert run.path is not None
        assert "tag(tcp/eth1)" in run.path.reported
        node, (_, device) = run.job.nodes[0], RAILS[run.case.network]
        assert f"{node}: {device}{node}:1 carried 0 B of the " in run.reason
    tcp = {run.case.network: run.reason for run in results.runs}
    assert "; eth1 carried " in tcp["rail1"]
    assert tcp["rail1"].endswith(" through the kernel: TCP, not verbs")
    assert "eth1" in tcp["rail2"]
    assert results.verdict is not None
    assert results.verdict.verdict == "incomplete"
    assert any("TCP, not verbs" in finding for finding in results.verdict.findings)


class Cutting(Silent):
    """Cuts the cable of a node's second rail when the first case has ended."""

    def __init__(self, lab: VirtualLab):
        self.lab = lab
        self.is_done = False

    def line(self, word: str, done: int, total: int, name: str) -> None:
        if done and not self.is_done:
            self.is_done = True
            faults.cut_link(self.lab, "roce2", "eth2")


def test_a_port_without_a_link_in_mid_trial_is_named(roce: Roce) -> None:
    try:
        results = roce.trial(
            progress=Cutting(roce.lab), transports=VERBS_TRANSPORTS, networks=("rail2",)
        )
    finally:
        faults.clear(roce.lab)
    # A case that was under way when the cable was cut may be an error too, or not.
    wrong = [run for run in results.runs if run.outcome == "error"]
    assert len(wrong) >= 1
    for run in wrong:
        assert "roce2: RDMA port rxe2_roce2:1 is DOWN" in run.reason
        assert run.metrics == []


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda lab: faults.delay_link(lab, "roce9", "2ms", "eth1"), "no compute node 'roce9'"),
        (lambda lab: faults.delay_link(lab, "roce1", "2ms", "eth0"), "no cable of 'eth0': eth1, "),
        (lambda lab: faults.delay_link(lab, "roce1", "fast", "eth1"), "delay 'fast' is not like"),
        (lambda lab: faults.delay_link(lab, "roce1", "2ms", "eth1", "both"), "direction 'both'"),
        (lambda lab: faults.clear(lab, "roce9"), "no compute node 'roce9'"),
    ],
)
def test_a_fault_of_what_does_not_exist_is_refused(roce: Roce, plant, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        plant(roce.lab)
    assert roce.lab.faults() == []


def test_a_later_fault_of_a_cable_replaces_the_earlier(roce: Roce) -> None:
    faults.delay_link(roce.lab, "roce1", "500us", "eth1")
    faults.delay_link(roce.lab, "roce1", "1ms", "eth1", "sends")
    faults.cut_link(roce.lab, "roce2", "eth2")
    planted = ["link roce2: down on eth2", "link roce1: delay 1ms sends only"]
    assert sorted(map(str, roce.lab.faults())) == sorted(planted)
    assert [str(one) for one in faults.clear(roce.lab, "roce2")] == planted[:1]
    assert [str(one) for one in faults.clear(roce.lab)] == planted[1:]
    assert faults.clear(roce.lab) == []
