"""NIC profiles in real trials: one job for each, verified on the nodes, always given back.

The lab of this file is of a site with profiles of its own: one whose rate is far below what a
requirement expects of it, and one that the nodes' driver refuses.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet

from labs import running
from seatrial.base.paths import CHECKOUT
from seatrial.plan.resolve import plan_trial, resolve
from seatrial.plan.selection import Selection
from seatrial.results.folder import read_results
from seatrial.site.load import load_site
from seatrial.stack import load_stack
from seatrial.trial import allocation
from seatrial.trial.allocation import Allocation
from seatrial.trial.run import run_trial
from seatrial.trial.session import TimeLimit
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.native import faults
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec
from trial_support import (
    ALL_INFORMATIVE,
    SESSION,
    SMALL,
    START_S,
    Resuming,
    Silent,
    all_jobs,
    false_stack,
    make_site,
    meanwhile,
    undisturbed,
    until,
    wait_for_idle_nodes,
)

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
REFRAME = str(Path(sys.prefix) / "bin" / "reframe")
ON_ETH1 = {"networks": ["test"], "transports": ["tcp", "mpich-ofi"]}
PROFILES = {
    "jumbo": {"description": "large frames", **ON_ETH1, "mtu": 9000},
    "gigabit": {"description": "wrong by far", **ON_ETH1, "egress_rate": "50 Mbit/s"},
    "multi-queue": {
        "description": "two queues",
        **ON_ETH1,
        "channels": {"rx": 2, "tx": 2},
        # a veth has no interrupts to hold back, and cannot switch rx-fcs on
        "coalescing": {"rx_usecs": 5},
        "offloads": {"rx-fcs": "on", "gro": "off"},
        "if_supported": ["coalescing", "offloads"],
    },
    "refused": {"description": "veth has none", **ON_ETH1, "coalescing": {"rx_usecs": 5}},
}
#: those of the lab's own site
REQUIREMENTS = """
schema: 1
requirements:
  - {select: {check: tcp_stream, profile: gigabit}, metric: bandwidth_MB_s, basis: relative,
     at_least: 80, at_most: 125, unit: MB/s}
  - {select: {check: tcp_stream}, metric: bandwidth_MB_s, basis: relative, at_least: 1, unit: MB/s}
  - {select: {check: links}, metric: bandwidth_MB_s, basis: relative, peers: median, at_least: 0.01}
informative:
  - {select: {}, metric: "*", reason: a test}
"""
GOOD = ["default", "jumbo", "gigabit", "multi-queue"]
MTU = "/sys/class/net/eth1/mtu"
#: over MPI only; the limit is not reached
LONG_NETPIPE = {"netpipe": {**SMALL["netpipe"], "plain_sockets": False, "time_limit_s": 600}}


@pytest.fixture(scope="module")
def site_of(workplace):
    """``site_of(name, benchmarks, **trial)``: a site of the lab of this file, with one MPI."""

    def make(name, benchmarks, requirements=ALL_INFORMATIVE, nic_profiles=PROFILES, **trial):
        trial = {"profiles": GOOD, **trial}
        transports = {"mpich-ofi": {}}
        return make_site(
            workplace / name, benchmarks, requirements, transports, nic_profiles, **trial
        )

    return make


@pytest.fixture(scope="module")
def lab(workplace, site_of):
    file = site_of("lab-of-profiles", {"tcp_stream": SMALL["tcp_stream"]})
    with running(lab_spec(load_site(file), f"{SESSION}_p")) as lab:
        yield lab


@pytest.fixture
def attempt(lab, workplace):
    """``attempt(file, **selection)``: a trial in the lab; afterwards nothing of it is in force."""

    def run(file, trials=None, **selection):
        lab.add_bind(workplace)
        where = trials or workplace / f"{file.parent.name}-trials"
        results = run_trial(
            plan_trial(file, Selection(**selection)), file, LabMachine(lab), Silent(), where
        )
        assert all_jobs(lab) == []  # at once: the trial itself has waited
        assert in_force(lab) == {}
        return results

    return run


def in_force(lab):
    """Node -> journal, for the nodes that have a NIC profile in force."""
    folders = {node: Path(f"/var/lib/seatrial/{lab.spec.instance}/nic/{node}") for node in NODES}
    journals = {node: folder / "journal.json" for node, folder in folders.items()}
    return {node: file.read_text() for node, file in journals.items() if file.exists()}


NODES = ("n1", "n2", "n3", "n4")


def nic_state(lab):
    """All that ip and ethtool print of each node's interface under test, but for counters."""
    commands = ["ip -o link show eth1", "tc qdisc show dev eth1", "ethtool -k eth1",
                "ethtool -l eth1"]  # fmt: skip
    return {
        node: [
            lab.run(["sh", "-c", command], user="root", node=node).stdout for command in commands
        ]
        for node in NODES
    }


def resume(lab):
    """Put drained nodes back into service, as an operator does: without `recover`, the health check
    drains the node once more with the reason that it has not reported yet."""
    nic = f"{LabPaths(lab.spec.instance).data}/libexec/seatrial-nic"
    for node in NODES:
        lab.run([nic, "recover"], user="root", node=node, check=True)
        change = ["scontrol", "update", f"nodename={node}", "state=resume"]
        lab.run(change, user="root")
    until(lambda: set(lab.node_states().values()) <= {"idle"}, 30, "idle nodes")


def of_profile(results, profile):
    return [run for run in results.runs if run.case.profile == profile]


# -- what a trial shows


@pytest.fixture(scope="module")
@undisturbed()
def axis(lab, workplace, site_of):
    """A trial of three profiles beside the default, and the nodes' state before and after."""
    benchmarks = {"tcp_stream": SMALL["tcp_stream"], "links": {**SMALL["links"], "max_bytes": 4096}}
    file = site_of("axis", benchmarks, REQUIREMENTS, repeats=2)
    lab.add_bind(workplace)
    before = nic_state(lab)
    trials = workplace / "axis-trials"
    results = run_trial(plan_trial(file, Selection()), file, LabMachine(lab), Silent(), trials)
    assert all_jobs(lab) == []
    return results, before, nic_state(lab)


def test_wrong_rate_is_rejected_where_it_was_measured(axis):
    """Verification finds the nodes as declared; the figure shows that the declaration is wrong."""
    results, _, _ = axis
    assert [run.reason for run in results.runs if run.outcome == "error"] == []
    failed = [j for j in results.judgements if j.verdict == "fail"]
    assert [(j.case.id, j.metric) for j in failed] == [
        ("tcp_stream.tcp.gigabit.2n", "bandwidth_MB_s")
    ]
    assert 1 < failed[0].value < 7
    assert results.verdict.verdict == "reject"
    assert "tcp_stream.tcp.gigabit.2n" in results.verdict.findings[0]


def test_a_figure_above_the_rate_of_the_profile_is_noted(axis):
    """Short messages leave the shaper at once."""
    (note,) = [text for text in axis[0].verdict.findings if "above the egress rate" in text]
    assert note.startswith("note: links.tcp.gigabit.4n: bandwidth_MB_s is ")
    assert "of profile gigabit (6.25 MB/s)" in note


def test_a_rerun_uses_the_nodes_of_the_first_run(lab, workplace, site_of):
    """In a new job under the same profile. Which figures a rerun can still change is tested in
    test_trial_rerun: on a busy machine the first rerun may be inconclusive."""
    benchmarks = {"tcp_stream": SMALL["tcp_stream"]}
    file = site_of("again", benchmarks, REQUIREMENTS, profiles=["gigabit"], reruns=4)
    lab.add_bind(workplace)
    trials = workplace / "again-trials"
    with Resuming(lab, "n[1-2]") as progress:
        results = run_trial(plan_trial(file, Selection()), file, LabMachine(lab), progress, trials)
    assert all_jobs(lab) == []
    assert in_force(lab) == {}
    times = len(results.runs)
    assert times > 1
    assert [(run.repeat, run.outcome) for run in results.runs] == [(n, "ran") for n in range(times)]
    (use,) = results.trial.profiles
    jobs = [allocation.job for allocation in use.allocations]
    assert len({job.id for job in jobs}) == times
    assert [job.nodes for job in jobs] == [["n3", "n4"]] * times
    assert [run.job.id for run in results.runs] == [job.id for job in jobs]
    assert results.verdict.verdict == "reject"
    for name in ("allocations", "allocations-rerun1"):
        assert (results.folder / name / "gigabit.out").is_file()


def test_profile_is_switched_once(axis, lab):
    """One job for each profile, whatever the number of checks; the default's checks have theirs."""
    results, _, _ = axis
    assert {run.case.profile for run in results.runs} == set(GOOD)
    for profile in GOOD:
        jobs = {run.job.id for run in of_profile(results, profile)}
        assert len(jobs) == (4 if profile == "default" else 1)
    for use in results.trial.profiles:
        assert len(use.allocations) == (use.name != "default")
        for held in use.allocations:
            assert (held.cases, held.reason) == (4, "")
            assert held.job.nodes == list(NODES)  # the largest case needs all four
            assert held.waited_s < 300
            assert held.released_s < 300
    history = Path(f"/var/lib/seatrial/{lab.spec.instance}/nic/n1/history.jsonl").read_text()
    held = next(use.allocations[0].job.id for use in results.trial.profiles if use.allocations)
    assert history.count(f'"event": "applied", "job": "{held}"') == 1


def test_job_of_a_case_within_a_held_one(axis):
    run = of_profile(axis[0], "jumbo")[0]
    assert run.job.held
    assert (run.job.state, run.job.nodes) == ("", ["n1", "n2"])
    assert run.job.partition == "compute"
    assert 0 < run.job.benchmark_s <= (run.job.ended - run.job.started).total_seconds()
    script = axis[0].folder / run.evidence / "rfm_job.sh"
    assert f"--jobid={run.job.id}" in script.read_text()


def test_each_run_is_verified_on_each_node(axis):
    for run in axis[0].runs:
        shown = {(proof.node, proof.when) for proof in run.nic_proofs if proof.ok}
        nodes = run.job.nodes
        assert len(nodes) == run.case.nodes
        assert shown == {(node, when) for node in nodes for when in ("before", "after")}
        owners = {proof.job for proof in run.nic_proofs}
        assert owners == ({""} if run.case.profile == "default" else {run.job.id})
        for node in nodes:
            for when in ("before", "after"):
                state = run.nic[node]["eth1"][when]
                assert state["mtu"] == (9000 if run.case.profile == "jumbo" else 1500)
                assert state["channels.rx"] == (2 if run.case.profile == "multi-queue" else 1)
                assert state["driver"] == "veth"
                assert len(state) > 30


def test_interrupts_are_reported_beside_the_figures(axis):
    for run in axis[0].runs:
        assert {one.node for one in run.activity} == set(run.job.nodes)
        for one in run.activity:
            assert one.net_rx_per_s > 0
            assert one.softirq_percent is not None
            assert one.interrupts_per_s["eth1"] is None  # veth has none that the kernel counts
    metrics = {m.metric for m in of_profile(axis[0], "jumbo")[0].metrics}
    assert {"net_rx_per_s", "softirq_percent", "irq_percent"} <= metrics


def test_settings_that_a_profile_does_without_are_noted(axis):
    assert axis[0].verdict is not None
    notes = [text for text in axis[0].verdict.findings if "(if_supported)" in text]
    (note,) = notes
    assert "multi-queue leaves out what n1, n2, n3, n4 cannot have (if_supported): " in note
    assert note.endswith(": eth1 coalesce.rx-usecs, eth1 feature.rx-fcs")
    states = [run.nic["n1"]["eth1"]["before"] for run in of_profile(axis[0], "multi-queue")]
    assert {state["feature.rx-fcs"] for state in states} == {"off"}
    assert {state["feature.generic-receive-offload"] for state in states} == {"off"}


def test_nodes_are_as_they_were(axis):
    _, before, after = axis
    assert after == before


def test_records_and_reports_are_one_trial(axis):
    results, _, _ = axis
    assert read_results(results.folder).verdict == results.verdict
    names = {path.name for path in results.folder.glob("reframe-report*")}
    assert names == {"reframe-report.json"} | {
        f"reframe-report-{name}.json" for name in GOOD if name != "default"
    }
    assert not (results.folder / "stage").exists()
    assert (results.folder / "cases" / "links.tcp.jumbo.4n" / "r1").is_dir()
    assert not list((results.folder / "allocations").glob("*.lease"))


def test_profile_keeps_to_its_transports(attempt, site_of):
    profiles = {**PROFILES, "jumbo": {**PROFILES["jumbo"], "transports": ["mpich-*"]}}
    benchmarks = {"tcp_stream": SMALL["tcp_stream"], "netpipe": SMALL["netpipe"]}
    file = site_of("transports", benchmarks, nic_profiles=profiles, profiles=["default", "jumbo"])
    results = attempt(file)
    assert {run.case.id for run in of_profile(results, "jumbo")} == {"netpipe.mpich-ofi.jumbo.2n"}
    assert {run.outcome for run in results.runs} == {"ran"}


# -- what goes wrong


def test_profile_that_the_nodes_refuse(attempt, site_of, lab):
    """Its cases are errors that name the setting; the others are measured on the nodes left."""
    file = site_of("refusal", {"tcp_stream": SMALL["tcp_stream"]},
                   profiles=["default", "refused", "jumbo"])  # fmt: skip
    try:
        results = attempt(file)
    finally:
        resume(lab)
    (bad,) = of_profile(results, "refused")
    assert (bad.outcome, bad.phase) == ("error", "profile")
    assert "did not start: " in bad.reason
    assert "coalesce.rx-usecs" in bad.reason
    assert re.search(r"n[12] is drain", bad.reason)
    use = {one.name: one for one in results.trial.profiles}["refused"]
    assert "coalesce.rx-usecs" in use.allocations[0].reason
    for profile in ("default", "jumbo"):
        (good,) = of_profile(results, profile)
        assert good.outcome == "ran"
        assert all(proof.ok for proof in good.nic_proofs)


def held_job(lab, profile):
    """Id and nodes of the job that a trial holds, once a step runs in it."""
    rows = lab.run(["squeue", "-h", "-t", "R", "-o", "%i|%j|%N"], user="root").stdout.splitlines()
    steps = lab.run(["squeue", "-h", "-s", "-o", "%i"], user="root").stdout.split()
    for row in rows:
        job, name, _ = row.split("|")
        if name == f"seatrial-{profile}" and f"{job}.0" in steps:
            return job
    return None


def test_setting_changed_by_hand(attempt, site_of, lab, place, monkeypatch):
    """While a benchmark runs, somebody sets another MTU on one of its nodes."""
    # The benchmark ends on the node of rank 0 once the MTU is changed there.
    changed = f"[ $SLURM_PROCID != 0 ] || until grep -qx 1500 {MTU}; do sleep 0.1; done\n"
    scripts = {"mpich-ofi": '{real} "$@" || exit\n' + changed}
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    file = site_of("meddling", LONG_NETPIPE, profiles=["jumbo"])

    def runs_on(node):
        script = ["pgrep", "-f", "^/bin/sh .*/mpich-ofi.sh"]
        return lab.run(script, user="root", node=node).returncode == 0

    def meddle():
        job = until(lambda: held_job(lab, "jumbo"), START_S, "a step in the held job")
        nodes = lab.run(["squeue", "-h", "-j", job, "-o", "%N"], check=True).stdout.strip()
        first = NodeSet(nodes)[0]
        until(lambda: runs_on(first), START_S, "the benchmark")
        change = ["ip", "link", "set", "eth1", "mtu", "1500"]
        lab.run(change, user="root", node=first, check=True)
        meddled.append(first)

    meddled = []
    with meanwhile(meddle):
        results = attempt(file)
    (run,) = results.runs
    assert (run.outcome, run.phase) == ("error", "profile")
    for word in (*meddled, "eth1", "mtu", "1500", "9000", "after the run"):
        assert word in run.reason
    (other,) = set(run.job.nodes) - set(meddled)
    assert other not in run.reason
    assert run.metrics == []
    assert results.verdict.verdict == "incomplete"
    mtu = lab.run(["cat", MTU], node=meddled[0]).stdout.strip()
    assert mtu == "1500"


def test_held_job_that_is_cancelled(attempt, site_of, lab, place, monkeypatch):
    """The cases that were still to run say so; the next profile is tried nevertheless."""
    # Under the profile jumbo the benchmark does not end.
    scripts = {"mpich-ofi": f'grep -qx 9000 {MTU} && exec sleep 600\nexec {{real}} "$@"\n'}
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    file = site_of("cancelled", LONG_NETPIPE, profiles=["jumbo", "multi-queue"], repeats=2)

    def cancel():
        job = until(lambda: held_job(lab, "jumbo"), START_S, "a step in the held job")
        lab.run(["scancel", job], user="root", check=True)

    with meanwhile(cancel):
        results = attempt(file)
    for run in of_profile(results, "jumbo"):
        assert (run.outcome, run.phase) == ("error", "profile")
        assert "NIC profile jumbo was not in force: its job" in run.reason
        assert "CANCELLED" in run.reason
    assert {run.outcome for run in of_profile(results, "multi-queue")} == {"ran"}


def test_node_that_dies_in_a_held_job(attempt, site_of, lab, place, monkeypatch):
    scripts = {"mpich-ofi": "sleep 600\n"}
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    file = site_of("dying", LONG_NETPIPE, profiles=["jumbo"])

    def kill():
        job = until(lambda: held_job(lab, "jumbo"), START_S, "a step in the held job")
        nodes = lab.run(["squeue", "-h", "-j", job, "-o", "%N"]).stdout.strip()
        faults.kill_node(lab, NodeSet(nodes)[0])

    try:
        with meanwhile(kill):
            lab.add_bind(file.parent.parent)
            results = run_trial(
                plan_trial(file, Selection()), file, LabMachine(lab), Silent(), place / "trials"
            )
        assert all_jobs(lab) == []
    finally:
        faults.clear(lab)
    (run,) = results.runs
    assert (run.outcome, run.phase) == ("error", "profile"), run
    assert re.search("NODE_FAIL|NodeDown|a node failed", run.reason)
    until(lambda: not in_force(lab), 30, "nodes without a profile")
    wait_for_idle_nodes(lab)


@pytest.mark.parametrize("how", ["signal", "limit"])
def test_trial_that_is_stopped(site_of, lab, workplace, how, place, monkeypatch):
    """By Ctrl-C, or by the trial's limit: nothing stays allocated, what was measured is kept."""
    scripts = {"mpich-ofi": "sleep 600\n"}
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    benchmarks = {
        "tcp_stream": {"seconds": 1, "profiles": ["default"]},
        "netpipe": {**SMALL["netpipe"], "profiles": ["jumbo", "multi-queue"], "time_limit_s": 600},
    }
    file = site_of(f"stopped-{how}", benchmarks,
                   profiles=["default", "jumbo", "multi-queue"], time_limit_s=3000)  # fmt: skip
    lab.add_bind(workplace)
    passed = [0.0]  # s, by which the trial's clock is fast
    left_s = TimeLimit.left_s.fget
    monkeypatch.setattr(TimeLimit, "left_s", property(lambda self: left_s(self) - passed[0]))

    def stop():
        until(lambda: held_job(lab, "jumbo"), START_S, "a step in the held job")
        time.sleep(1)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            passed[0] = 3000

    with meanwhile(stop):
        results = run_trial(
            plan_trial(file, Selection()), file, LabMachine(lab), Silent(), place / "trials"
        )
    assert all_jobs(lab) == []
    assert in_force(lab) == {}
    word = "interrupted by Ctrl-C" if how == "signal" else "time limit of 3000 s"
    outcomes = {run.case.id: run for run in results.runs}
    assert outcomes["tcp_stream.tcp.default.2n"].outcome == "ran"
    for profile in ("jumbo", "multi-queue"):
        run = outcomes[f"netpipe.mpich-ofi.{profile}.2n"]
        assert run.outcome == "error"
        assert word in run.reason
    assert read_results(results.folder).verdict.verdict == "incomplete"


def test_interrupted_while_waiting(site_of, lab, workplace, place):
    """The nodes are busy with somebody else's job: the trial's own is not left in the queue."""
    file = site_of("waiting", {"tcp_stream": {"seconds": 1}}, profiles=["jumbo"])
    lab.add_bind(workplace)
    wait_for_idle_nodes(lab)
    other = lab.run(
        ["sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 900"],
        check=True,
    ).stdout.strip()
    running = ["squeue", "-h", "-t", "R", "-j", other, "-o", "%i"]
    until(lambda: lab.run(running, user="root").stdout.strip(), 20, "a job on all nodes")

    def stop():
        waiting = ["squeue", "-h", "-t", "PD", "-n", "seatrial-jumbo", "-o", "%i"]
        until(lambda: lab.run(waiting, user="root").stdout.strip(), START_S, "a job that waits")
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with meanwhile(stop):
            results = run_trial(
                plan_trial(file, Selection()), file, LabMachine(lab), Silent(), place / "trials"
            )
        assert [job.split()[0] for job in all_jobs(lab)] == [other]
    finally:
        lab.run(["scancel", other], user="root")
        until(lambda: not all_jobs(lab), 20, "an empty queue")
    (run,) = results.runs
    assert "interrupted by Ctrl-C" in run.reason


def test_killed_trial_loses_its_nodes(site_of, lab, place, monkeypatch):
    """Nobody renews the lease: the job ends by itself, and the profile with it."""
    monkeypatch.setattr(allocation, "STEP_S", 1)
    monkeypatch.setattr(allocation, "LEASE_S", 8)
    site = load_site(site_of("killed", {"tcp_stream": SMALL["tcp_stream"]}))
    lab.add_bind(place)
    own = Allocation(
        resolve(site, load_stack()), LabMachine(lab), "jumbo", 2, place / "allocations"
    )
    own.submit(600)
    until(lambda: own.query().state == "RUNNING", 20, "the job")
    for _ in range(25):  # renewed, it stays
        time.sleep(0.2)
        own.lease.touch()
    assert own.query().state == "RUNNING"
    assert len(in_force(lab)) == 2
    until(lambda: not all_jobs(lab), 20, "an empty queue")
    assert in_force(lab) == {}
    assert "no longer renews" in (place / "allocations" / "jumbo.out").read_text()


def test_disk_that_fills_up_under_a_profile(attempt, site_of, lab, place):
    trials = place / "small-disk"
    trials.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1250k", "none", trials], check=True)
    try:
        trials.chmod(0o755)
        lab.add_bind(trials)
        file = site_of("full", {"tcp_stream": {"seconds": 1}}, repeats=3,
                       profiles=["default", "jumbo", "multi-queue"])  # fmt: skip
        results = attempt(file, trials=trials)
        assert results.verdict.counts["error"] >= 1
        assert read_results(results.folder).verdict == results.verdict
    finally:
        subprocess.run(["umount", "--lazy", trials], check=True)


def test_plain_reframe_asks_for_the_profile_itself(site_of, lab, workplace):
    """A job for each check, by ``--constraint``; the same verification."""
    file = site_of("plain-profile", {"tcp_stream": SMALL["tcp_stream"]}, profiles=["*"])
    lab.add_bind(workplace)
    home = lab.paths.home
    command = [
        REFRAME, "-C", str(file.with_name("settings.py")), "-c", str(CHECKOUT / "reframe-checks"),
        "--system=plain-profile:compute_jumbo", "--keep-stage-files", "-r",
    ]  # fmt: skip
    done = lab.run(command, cwd=home, timeout=600)
    said = done.stdout + done.stderr
    assert re.search(r"PASSED.*Ran 1/1 test case", said), said[-3000:]
    (script,) = Path(home, "stage").rglob("compute_jumbo/**/rfm_job.sh")
    assert "--constraint=nic_jumbo" in script.read_text()
    proofs = [file.read_text() for file in script.parent.glob("nic-*.json")]
    assert len(proofs) == 4
    assert all('"ok": true' in proof for proof in proofs)
    until(lambda: not in_force(lab), 20, "nodes without a profile")  # ReFrame leaves the Epilogs
