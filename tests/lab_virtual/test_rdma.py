"""Soft RoCE in a guest with a kernel of its own: devices, counters, traffic over TCP, a dead link.

The kernel comes from the machine's package sources. Without it the tests are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_support import SMALL, Silent, write_site

from labs import clear_dead_sessions
from seatrial.base.errors import LabError
from seatrial.base.lock import locked
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.record import Results, Run
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.virtual import packages
from seatrial_lab.virtual.engine import CACHE, LOCK_FILE, VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.site import virtual_spec

pytestmark = [
    pytest.mark.root,
    pytest.mark.slurm,
    pytest.mark.stack,
    pytest.mark.nightly(reason="soft RoCE, in a guest with a kernel of its own"),
]
SUITE = "trixie-backports"
SITE = (
    SMALL.replace("interface: eth1,", "interface: eth1, device: 'rxe_%n:1',")
    .replace("engine: virtual", f"engine: virtual, kernel: {SUITE}")
    .replace(
        "transports: {}",
        """\
transports:
  mpich-ucx:
    data_path: verbs
    env: {UCX_TLS: "rc_v,self", UCX_RC_VERBS_TX_CQ_MODERATION: "1"}
    options: [--task-prolog=PROLOG]""",
    )
    .replace("trial:", "  perftest: {iterations: 20, time_limit_s: 60}\ntrial:")
)
TO_TCP = "export UCX_TLS=tcp,self\nexport UCX_NET_DEVICES=eth1\n"


class Roce:
    """A lab with soft RoCE. ``environment``: what the task prolog prints, so that tasks get it."""

    def __init__(self, lab: VirtualLab, folder: Path):
        self.lab = lab
        self.trials, tasks = folder / "trials", folder / "tasks"
        for shared in (self.trials, tasks):
            shared.mkdir()
            lab.add_bind(shared)
        self.environment, prolog = tasks / "environment", tasks / "prolog"
        self.environment.touch()
        prolog.write_text(f"#!/bin/sh\ncat {self.environment}\n")
        prolog.chmod(0o755)
        self.site = write_site(folder, SITE.replace("PROLOG", str(prolog)))

    def trial(self, *transports: str, progress: Silent | None = None) -> Results:
        plan = plan_trial(self.site, Selection(transports=transports))
        machine = VirtualMachine(self.lab)
        return run_trial(plan, self.site, machine, progress or Silent(), self.trials)

    def set_link(self, state: str) -> None:
        self.lab.run(["ip", "link", "set", "eth1", state], user="root", node="n2", check=True)


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roce]:
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        with locked(CACHE / LOCK_FILE, lambda _: None):
            packages.provide(CACHE, SUITE)
    except LabError as error:
        pytest.skip(f"kernel of {SUITE}: {error}")
    folder = tmp_path_factory.mktemp("rdma")
    site = load_site(write_site(folder / "lab", SITE))
    clear_dead_sessions()
    lab = VirtualLab(virtual_spec(site, f"v{os.getpid()}_rdma"))
    try:
        lab.up()
        yield Roce(lab, folder)
    finally:
        lab.down()


def runs(results: Results, check: str) -> list[Run]:
    return [run for run in results.runs if run.case.check == check]


def test_each_node_has_its_own_device(roce: Roce) -> None:
    for node in ("n1", "n2"):
        listed = roce.lab.run(["ls", "/sys/class/infiniband"], node=node, check=True).stdout
        assert listed == f"rxe_{node}\n"


def test_counters_of_the_ports_prove_verbs(roce: Roce) -> None:
    results = roce.trial("verbs", "mpich-ucx")
    assert [f"{run.case.id}: {run.reason}" for run in results.runs if run.outcome != "ran"] == []
    assert len(runs(results, "perftest")) == 3
    (mpi,) = runs(results, "netpipe")
    assert mpi.path is not None
    assert "tag(rc_verbs/rxe_n" in mpi.path.reported
    for run in results.runs:
        assert run.path is not None
        assert (run.path.data_path, run.path.crossed) == ("verbs", True)
        ports = {c.node: c.rdma for c in run.path.counters if c.network == "test"}
        assert sorted(ports) == ["n1", "n2"]
        for node, port in ports.items():
            assert port is not None
            assert port.port == f"rxe_{node}:1"
            assert port.rx_bytes is not None
            assert port.tx_bytes is not None
            assert port.rx_bytes + port.tx_bytes >= run.path.required_bytes > 0


def test_verbs_that_falls_back_to_tcp_is_an_error_that_names_both_paths(roce: Roce) -> None:
    roce.environment.write_text(TO_TCP)
    try:
        results = roce.trial("mpich-ucx")
    finally:
        roce.environment.write_text("")
    (run,) = results.runs
    assert (run.outcome, run.phase, run.metrics) == ("error", "path", [])
    assert run.path is not None
    assert "tag(tcp/eth1)" in run.path.reported
    assert "n1: rxe_n1:1 carried 0 B of the " in run.reason
    assert "; eth1 carried " in run.reason
    assert run.reason.endswith(" through the kernel: TCP, not verbs")
    assert results.verdict is not None
    assert results.verdict.verdict == "incomplete"
    assert any("TCP, not verbs" in finding for finding in results.verdict.findings)


class LinkDown(Silent):
    """Takes a node's link away when the first case has ended: NetPIPE, before perftest."""

    def __init__(self, roce: Roce):
        self.roce = roce
        self.is_down = False

    def line(self, word: str, done: int, total: int, name: str) -> None:
        if done and not self.is_down:
            self.is_down = True
            self.roce.set_link("down")


def test_a_port_without_a_link_in_mid_trial_is_named(roce: Roce) -> None:
    try:
        results = roce.trial("verbs", "mpich-ucx", progress=LinkDown(roce))
    finally:
        roce.set_link("up")
    assert [run.outcome for run in runs(results, "netpipe")] == ["ran"]
    # The first test of perftest may have begun, or even ended, before the link goes.
    outcomes = {run.case.variant: run.outcome for run in runs(results, "perftest")}
    assert (outcomes["send_lat"], outcomes["write_bw"]) == ("error", "error")
    for run in results.runs:
        if run.outcome == "error":
            assert "n2: RDMA port rxe_n2:1 is DOWN" in run.reason
            assert run.metrics == []
