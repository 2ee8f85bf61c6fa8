"""What goes wrong in a real trial ends in an error that names it, and costs no other case."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from ClusterShell.NodeSet import NodeSet

from seatrial.base.errors import LabError
from seatrial.results.folder import read_results
from seatrial_lab.common import access, processes
from seatrial_lab.native import faults
from trial_support import (
    SMALL,
    START_S,
    false_stack,
    make_site,
    meanwhile,
    run_of,
    running_jobs,
    until,
)

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]


def verdicts(results, check, transport):
    return {
        judgement.verdict
        for judgement in results.judgements
        if (judgement.case.check, judgement.case.transport) == (check, transport)
    }


def test_programs_that_misbehave(place, try_site, trial_lab, monkeypatch):
    scripts = {
        "openmpi-tcp": "echo out of luck >&2\nexit 3\n",
        "openmpi-ucx": "head -c 5000 /dev/urandom\n",
        "openmpi-ofi": "sleep 60\n",
        "mpich-ucx": "kill -SEGV $$\n",
        "intelmpi-tcp": "exit 0\n",
    }
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    file = make_site(place / "site", {"netpipe": {**SMALL["netpipe"], "time_limit_s": 5}})
    results = try_site(file)
    reasons = {
        transport: run_of(results, "netpipe", transport).reason
        for transport in [*scripts, "mpich-ofi", "tcp"]
    }
    assert re.search(r"failed on n[1-4], where it exited with code 3", reasons["openmpi-tcp"])
    assert "out of luck" in reasons["openmpi-tcp"]
    assert run_of(results, "netpipe", "openmpi-ucx").phase == "sanity"
    assert "ended after its limit of 5 s" in reasons["openmpi-ofi"]
    assert re.search(r"failed on n[1-4], where it was ended by SIGSEGV", reasons["mpich-ucx"])
    assert run_of(results, "netpipe", "intelmpi-tcp").phase == "sanity"
    for transport in scripts:
        assert verdicts(results, "netpipe", transport) == {"error"}
        run = run_of(results, "netpipe", transport)
        assert (results.folder / run.evidence / "netpipe.err").exists()
    for transport in ("mpich-ofi", "tcp"):  # the others are measured as ever
        assert reasons[transport] == ""
        assert run_of(results, "netpipe", transport).metrics
        assert verdicts(results, "netpipe", transport) <= {"pass", "missing"}
    assert results.verdict.verdict == "incomplete"
    assert read_results(results.folder).verdict == results.verdict
    states = trial_lab.run(["sinfo", "--noheader", "--format=%T %E"]).stdout
    assert "drain" not in states, "a step that was ended at its limit"


def test_cancelled_job_and_dead_node(place, try_site, trial_lab, monkeypatch):
    """The first job is cancelled, the second loses a node, the third is measured."""
    scripts = dict.fromkeys(["openmpi-tcp", "openmpi-ucx"], "sleep 600\n")
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", scripts)))
    transports = {name: {} for name in [*scripts, "mpich-ofi"]}
    benchmarks = {"netpipe": {**SMALL["netpipe"], "time_limit_s": 600, "plain_sockets": False}}
    file = make_site(place / "site", benchmarks, transports=transports)
    seen = []

    def nodes(job):
        return list(NodeSet(job[1]))

    def where(job):
        return f"(job {job[0]} on {','.join(nodes(job))})"

    def cancel():
        seen.extend(until(lambda: running_jobs(trial_lab), START_S, "a running job"))
        trial_lab.run(["scancel", seen[0][0]], user="root", check=True)

    def kill():
        other = until(
            lambda: [job for job in running_jobs(trial_lab) if job[0] != seen[0][0]],
            START_S,
            "a job",
        )
        seen.extend(other)
        faults.kill_node(trial_lab, nodes(seen[1])[0])

    try:
        with meanwhile(cancel, kill):
            results = try_site(file)
    finally:
        faults.clear(trial_lab)
    cancelled, died = (run_of(results, "netpipe", name) for name in scripts)
    assert cancelled.job.state == "CANCELLED"
    assert cancelled.reason.startswith(
        f"the job was cancelled (job {seen[0][0]} on {','.join(nodes(seen[0]))})"
    )
    assert died.job.state == "NODE_FAIL"
    assert died.reason.startswith(
        f"a node failed while the job ran (job {seen[1][0]} on {','.join(nodes(seen[1]))})"
    )
    healthy = run_of(results, "netpipe", "mpich-ofi")
    assert healthy.outcome == "ran"
    assert nodes(seen[1])[0] not in healthy.job.nodes
    assert results.verdict.verdict == "incomplete"
    assert results.verdict.counts["error"] == 2


def daemon(lab, name: str) -> int:
    login = access.first_process(lab.spec, "login")
    assert login
    (pid,) = (pid for pid, own in processes.in_node(login).items() if own == name)
    return pid


def stop_controller(lab, job: str) -> list[int]:
    """Let slurmctld answer nobody for a while, as if it were busy; the exit codes of squeue."""
    controller = daemon(lab, "slurmctld")
    os.kill(controller, signal.SIGSTOP)
    try:  # two, so that one of ReFrame's begins and fails meanwhile
        return [lab.run(["squeue", "-j", job], timeout=300).returncode for _ in range(2)]
    finally:
        os.kill(controller, signal.SIGCONT)


def restart_database(lab, job: str) -> list[int]:
    """Restart slurmdbd, with a pause; the exit code of sacct meanwhile."""
    processes.kill_all([daemon(lab, "slurmdbd")])
    time.sleep(10)
    codes = [lab.run(["sacct", "-j", job], timeout=300).returncode]
    lab.run(["slurmdbd"], user="root", check=True)
    return codes


@pytest.mark.nightly(reason="waits until Slurm's daemons answer again")
@pytest.mark.parametrize(
    ("backend", "disturb"), [("squeue", stop_controller), ("slurm", restart_database)]
)
def test_a_daemon_that_does_not_answer_for_a_while_ends_no_job(
    place, try_site, trial_lab, monkeypatch, backend, disturb
):
    script = {"tcp": 'sleep 30\nexec {real} "$@"\n'}
    monkeypatch.setenv("SEATRIAL_STACK", str(false_stack(place / "stack", script)))
    benchmarks = {"netpipe": {**SMALL["netpipe"], "time_limit_s": 300}}
    changes = {"slurm": {"backend": backend}}
    file = make_site(place / "site", benchmarks, transports={}, changes=changes)
    codes = []

    def deed():
        ((job, _),) = until(lambda: running_jobs(trial_lab), START_S, "a running job")
        codes.extend(disturb(trial_lab, job))

    with meanwhile(deed):
        results = try_site(file)
    assert codes
    assert all(codes)
    (run,) = results.runs
    assert (run.outcome, run.reason) == ("ran", "")
    assert run.metrics


def test_traffic_that_takes_another_path(place, try_site):
    """Shared memory and the management network in place of the network under test."""
    transports = {
        "openmpi-tcp": {  # both ranks on one node, through shared memory
            "options": ["--nodes=1", "--ntasks-per-node=2"],
            "env": {"OMPI_MCA_btl": "vader,self"},
        },
        "openmpi-ucx": {"env": {"UCX_NET_DEVICES": "eth0"}},
        "openmpi-ofi": {"env": {"FI_TCP_IFACE": "eth0"}},
        "mpich-ofi": {},
    }
    benchmarks = {"netpipe": {**SMALL["netpipe"], "plain_sockets": False}}
    results = try_site(make_site(place / "site", benchmarks, transports=transports))
    shared = run_of(results, "netpipe", "openmpi-tcp")
    assert (shared.outcome, shared.phase) == ("error", "path")
    assert "ran on 1 of 2 nodes" in shared.reason
    for name in ("openmpi-ucx", "openmpi-ofi"):
        managed = run_of(results, "netpipe", name)
        assert (managed.outcome, managed.phase) == ("error", "path")
        assert "mgmt" in managed.reason
        assert "eth0" in managed.reason
        assert not managed.path.crossed
        assert managed.metrics == []  # a figure of another network is no figure
    assert run_of(results, "netpipe", "mpich-ofi").path.crossed
    assert results.verdict.verdict == "incomplete"


def test_disk_that_fills_up(place, try_site, trial_lab):
    trials = place / "small-disk"
    trials.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "none", trials], check=True)
    try:
        trials.chmod(0o755)
        trial_lab.add_bind(trials)
        file = make_site(place / "site", {"netpipe": SMALL["netpipe"]})
        results = try_site(file, trials=trials)
        assert results.verdict.verdict == "incomplete"
        assert results.verdict.counts["error"] >= 1
        assert read_results(results.folder).verdict == results.verdict
    finally:
        subprocess.run(["umount", "--lazy", trials], check=True)


def test_disk_that_is_full(place, try_site, trial_lab):
    trials = place / "small-disk"
    trials.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", trials], check=True)
    try:
        file = make_site(place / "site", {"netpipe": SMALL["netpipe"]})
        with pytest.raises(LabError, match=r"cannot start.*No space left"):
            try_site(file, trials=trials)
    finally:
        subprocess.run(["umount", trials], check=True)
