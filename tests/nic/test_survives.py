"""What may befall a job with a NIC profile, on a real Slurm: the nodes are always as they were.

Each test does the same to all nodes at once, on each at a random time, and compares the raw state
of their interfaces before and after. Four nodes here; twenty in ci/nightly.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml_site
from fleet import DRIVER_S, Fleet

from campaigns import rounds
from seatrial.site.nic_policy import compile_policy
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.native import faults

pytestmark = [pytest.mark.root, pytest.mark.slurm]
COUNT = rounds(4, 20)
# About what a Prolog takes while all of them share two cores.
PROLOG_S = rounds(5, 15) / 10


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("survives")
    folder.chmod(0o755)  # the lab's user reads the site; the lab shows the folder
    made = Fleet(f"t{os.getpid()}_fleet", COUNT, folder)
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture
def before(fleet: Fleet) -> Iterator[dict[str, str]]:
    """How the nodes look before the test, after which none of its jobs is left."""
    yield fleet.looks()
    fleet.clear()


def until_hit(
    fleet: Fleet, before: dict[str, str], act: Callable[[str], bool], what: str
) -> list[tuple[dict[str, bool], dict[str, str]]]:
    """Do ``act`` on all nodes and let them settle, again until it hit a quarter of them.

    ``act`` says whether it came in time. On a busy machine it comes too late, so each time the
    driver takes longer. Returns for each time which nodes were hit, and Slurm's reasons of drained
    nodes.
    """
    times = []
    try:
        for longer in (1, 1, 2, 4, 8, 8, 8, 8):
            fleet.set_driver_time(longer * DRIVER_S)
            hits = fleet.each(act)
            times.append((hits, fleet.settle(before)))
            if sum(sum(hits.values()) for hits, _ in times) >= COUNT // 4:
                return times
    finally:
        fleet.set_driver_time(DRIVER_S)
    raise AssertionError(f"hardly any {what}: {[sum(hits.values()) for hits, _ in times]}")


def applied(fleet: Fleet, node: str) -> int:
    return sum(one["event"] == "applied" for one in fleet.history(node))


def test_a_job_has_its_profile_and_leaves_nothing(fleet: Fleet, before: dict[str, str]) -> None:
    config = fleet.slurm("scontrol", "show", "config")

    def one(node: str) -> None:
        times = applied(fleet, node)
        job = fleet.submit(node, "sleep 300")
        fleet.wait(f"{node} applied", lambda: applied(fleet, node) > times)
        during = fleet.look(node)
        assert during != before[node]
        journal = json.loads(fleet.root(node, "cat", f"{fleet.folder(node)}/journal.json"))
        assert f"\nClusterName             = {journal['journal']['cluster']}\n" in config
        assert "mtu 9000" in during
        assert "rx-frames: 16" in during or "rx-frames:\t16" in during
        fleet.slurm("scancel", job)
        fleet.wait_for_end(job)

    fleet.each(one)
    fleet.settle(before, drained=False)


def test_a_job_that_fails(fleet: Fleet, before: dict[str, str]) -> None:
    scripts = fleet.share(["exit 3", "kill -9 $$", "no-such-program"])
    fleet.each(lambda node: fleet.wait_for_end(fleet.submit(node, scripts[node])))
    fleet.settle(before, drained=False)


def test_the_time_limit_ends_it(fleet: Fleet, before: dict[str, str]) -> None:
    """The shortest limit that Slurm has is a minute, and it looks for overdue jobs every 30 s."""

    def one(node: str) -> str:
        job = fleet.start(node, "sleep 300", "--time=1")
        fleet.pause(2)
        fleet.slurm("scontrol", "update", f"jobid={job}", "endtime=now+1")
        return job

    jobs = fleet.each(one)
    fleet.each(lambda node: fleet.wait_for_state(jobs[node], "TIMEOUT", seconds=150))
    fleet.each(lambda node: fleet.wait_for_end(jobs[node]))
    fleet.settle(before, drained=False)


def test_cancelled_in_the_prolog(fleet: Fleet, before: dict[str, str]) -> None:
    def one(node: str) -> bool:
        job = fleet.submit(node, "sleep 30")
        fleet.pause(PROLOG_S)
        early = fleet.state_of(job) != "RUNNING" or not fleet.pids(node, "slurmstepd", job)
        fleet.slurm("scancel", job)
        fleet.wait_for_end(job)
        return early

    until_hit(fleet, before, one, "job was still in its Prolog")


def test_cancelled_while_it_runs(fleet: Fleet, before: dict[str, str]) -> None:
    def one(node: str) -> None:
        job = fleet.start(node, "sleep 60")
        fleet.pause(0.5)
        fleet.slurm("scancel", job)
        fleet.wait_for_end(job)

    fleet.each(one)
    fleet.settle(before, drained=False)


def test_cancelled_in_the_epilog(fleet: Fleet, before: dict[str, str]) -> None:
    def one(node: str) -> None:
        job = fleet.submit(node, "sleep 0.1")
        fleet.wait(f"{node} runs {job}", lambda: fleet.state_of(job) != "PENDING")
        fleet.wait(f"{node} ends", lambda: fleet.state_of(job) != "RUNNING")
        fleet.pause(0.3)
        fleet.slurm("scancel", job, check=False)
        fleet.wait_for_end(job)

    fleet.each(one)
    fleet.settle(before, drained=False)


def test_the_prolog_is_killed_between_two_settings(fleet: Fleet, before: dict[str, str]) -> None:
    """SIGKILL as soon as the journal is there, and a little later: something is half done."""

    def one(node: str) -> bool:
        job = fleet.submit(node, "sleep 30")
        fleet.wait(f"{node} has a journal", lambda: fleet.has_journal(node))
        fleet.pause(0.1)
        half = fleet.kill(fleet.pids(node, "seatrial-nic", "prolog")) > 0
        if not half:
            fleet.slurm("scancel", job)
        fleet.wait_for_end(job)
        return half

    for hits, reasons in until_hit(fleet, before, one, "Prolog was killed"):
        assert set(reasons) >= {node for node, hit in hits.items() if hit}, "a killed Prolog drains"


def test_slurmd_dies_in_the_prolog(fleet: Fleet, before: dict[str, str]) -> None:
    """The Prolog goes on as an orphan, and the job is cancelled or not."""

    def one(node: str) -> bool:
        times = applied(fleet, node)
        slurmd = fleet.pids(node, "slurmd", "-D")
        job = fleet.submit(node, "sleep 2")
        if fleet.random.random() < 0.7:
            fleet.wait(f"{node} has a journal", lambda: fleet.has_journal(node))
            fleet.pause(0.15)
        else:
            fleet.pause(0.3)
        fleet.kill(slurmd)
        half = applied(fleet, node) == times
        fleet.pause(0.5)
        fleet.start_slurmd(node)
        # Slurm itself gives up on such a job after BatchStartTimeout, as a failure of the node.
        fleet.pause(fleet.random.choice((0, 3)))
        fleet.slurm("scancel", job, check=False)
        fleet.wait_for_end(job)
        return half

    until_hit(fleet, before, one, "Prolog was under way")


def test_slurmd_dies_while_the_job_runs(fleet: Fleet, before: dict[str, str]) -> None:
    """The job goes on under its profile, or ends while no slurmd is there to run its Epilog."""

    def one(node: str) -> None:
        lasts = fleet.random.choice((0.5, 4))
        job = fleet.start(node, f"sleep {lasts}")
        fleet.pause(0.3)
        fleet.kill_slurmd(node)
        fleet.pause(1.5)
        fleet.start_slurmd(node)
        if lasts > 1 and fleet.pids(node, "slurmstepd", f"[{job}.batch]"):
            # Its owner lives, so the node that came back has left the profile alone.
            assert "mtu 9000" in fleet.look(node) or not fleet.pids(node, f"[{job}.batch]")
        fleet.wait_for_end(job)

    fleet.each(one)
    fleet.settle(before)


def test_slurmd_dies_in_the_epilog(fleet: Fleet, before: dict[str, str]) -> None:
    def one(node: str) -> bool:
        job = fleet.start(node, "sleep 30")
        slurmd = fleet.pids(node, "slurmd", "-D")
        fleet.slurm("scancel", job)
        fleet.wait(f"{node} ends", lambda: fleet.state_of(job) != "RUNNING")
        fleet.pause(0.3)
        half = fleet.has_journal(node)
        fleet.kill(slurmd)
        if fleet.random.random() < 0.5:
            fleet.kill(fleet.pids(node, "seatrial-nic", "epilog"))
        fleet.pause(0.5)
        fleet.start_slurmd(node)
        fleet.wait_for_end(job)
        return half

    until_hit(fleet, before, one, "Epilog was under way")


def test_slurmstepd_dies(fleet: Fleet, before: dict[str, str]) -> None:
    steps = fleet.share(["extern", "batch", ""])

    def one(node: str) -> None:
        job = fleet.start(node, "sleep 20")
        fleet.pause(0.3)
        fleet.kill(fleet.pids(node, "slurmstepd", f"[{job}.{steps[node]}"))
        # Slurm may not notice for long: it is the user who gives up.
        fleet.pause(1)
        fleet.slurm("scancel", job, check=False)
        fleet.wait_for_end(job, 120)

    fleet.each(one)
    fleet.settle(before)


def test_the_node_reboots(fleet: Fleet, before: dict[str, str]) -> None:
    """A power cut in the Prolog or during the job; the interfaces come back as at boot."""

    def one(node: str) -> str:
        job = fleet.submit(node, "sleep 60", "--no-requeue")
        fleet.wait(f"{node} has a journal", lambda: fleet.has_journal(node))
        fleet.pause(PROLOG_S)
        return job

    jobs = fleet.each(one)
    ids = {node: fleet.root(node, "cat", "/proc/sys/kernel/random/boot_id") for node in fleet.nodes}
    for node in fleet.nodes:
        faults.kill_node(fleet.lab, node)
    faults.clear(fleet.lab)
    fleet.slow_down()
    for node in fleet.nodes:
        assert fleet.root(node, "cat", "/proc/sys/kernel/random/boot_id") != ids[node]
    # A job that was in its Prolog would wait until BatchStartTimeout.
    for node in fleet.nodes:
        fleet.slurm("scancel", jobs[node], check=False)
    fleet.each(lambda node: fleet.wait_for_end(jobs[node]))
    for node in fleet.nodes:
        state, _ = fleet.node_state(node)
        if "down" in state:
            fleet.slurm("scontrol", "update", f"nodename={node}", "state=resume")
    # New interfaces have new addresses of their own: everything else is as it was.
    fleet.settle({node: fleet.look(node) for node in fleet.nodes})
    for node in fleet.nodes:
        assert settings_of(fleet.look(node)) == settings_of(before[node])


def settings_of(look: str) -> list[str]:
    """A look without the interfaces' numbers and addresses."""
    lines = (line for line in look.splitlines() if "link/ether" not in line)
    return [re.sub(r"^\d+: |@if\d+", "", line) for line in lines]


def test_the_epilog_runs_twice(fleet: Fleet, before: dict[str, str]) -> None:
    def one(node: str) -> None:
        job = fleet.submit(node, "sleep 0.2")
        fleet.wait_for_end(job)
        script = f"{LabPaths(fleet.lab.spec.instance).data}/libexec/epilog"
        env = {"SLURM_JOB_ID": job, "SLURM_JOB_CONSTRAINTS": "nic_many", "SLURM_JOB_UID": "2000"}
        for _ in range(2):
            answer = fleet.lab.run([script], user="root", node=node, env=env, timeout=600)
            assert answer.returncode == 0, answer.stderr

    fleet.each(one)
    fleet.settle(before, drained=False)


def test_requeued_under_the_same_id(fleet: Fleet, before: dict[str, str]) -> None:
    """On one node while the job runs; on the others at any moment, also after the job's end."""
    sure = fleet.nodes[0]

    def one(node: str) -> int:
        times = applied(fleet, node)
        if node == sure:
            job = fleet.submit(node, "sleep $((SLURM_RESTART_COUNT > 0 ? 1 : 300))", "--requeue")
            fleet.wait(f"{node} applied", lambda: applied(fleet, node) > times)
            fleet.wait_for_state(job, "RUNNING")
        else:
            job = fleet.submit(node, "sleep 3", "--requeue")
            fleet.pause(PROLOG_S)
        fleet.slurm("scontrol", "requeue", job, check=node == sure)
        fleet.wait_for_state(job, "PENDING", "COMPLETED")
        # Slurm lets a requeued job wait two minutes. Requeue revokes the job's credential, and one
        # of the same second counts as revoked: slurmd then refuses the script, and the job fails.
        fleet.slurm("scontrol", "update", f"jobid={job}", "starttime=now+2", check=False)
        refused = () if node == sure else ("FAILED",)
        fleet.wait_for_state(job, "COMPLETED", *refused, seconds=120)
        if fleet.state_of(job) == "FAILED":
            assert " RunTime=00:00:00 " in fleet.job(job)  # its script never ran
        fleet.wait_for_end(job)
        return applied(fleet, node) - times

    times = fleet.each(one)
    fleet.settle(before)
    assert times[sure] == 2


def test_a_driver_refuses_half_way(fleet: Fleet, before: dict[str, str]) -> None:
    """Rolled back at once, drained, and the reason names the setting."""
    cases = fleet.share([("refused", "coalesce.rx-frames"), ("too_long", "mtu")])

    def one(node: str) -> str:
        profile, setting = cases[node]
        times = len(fleet.history(node))
        job = fleet.submit(node, "sleep 1", profile=profile)
        fleet.wait(f"{node} rolled back", lambda: len(fleet.history(node)) > times)
        fleet.wait_for_end(job)
        last = fleet.history(node)[-1]
        assert last["why"] == "rolled back"
        assert setting in fleet.reason(node)
        return job

    fleet.each(one)
    fleet.settle(before, drained=True)


def test_health_tells_slurm_the_reason(fleet: Fleet, before: dict[str, str]) -> None:
    """The sentence of the node stands where the operator looks: in sinfo -R."""
    node = fleet.nodes[0]
    job = fleet.submit(node, "sleep 1", profile="refused")
    fleet.wait("drained", lambda: "drain" in fleet.node_state(node)[0])
    fleet.wait("told", lambda: "rx-frames" in fleet.node_state(node)[1], 60)
    assert f"job {job}" in fleet.node_state(node)[1]
    fleet.settle(before)


def test_the_journal_is_damaged(fleet: Fleet, before: dict[str, str]) -> None:
    """One copy of it, or both; cut off, or with garbage in it."""
    cases = fleet.share(list(itertools.product([False, True], ["cut", "garbage"])))

    def one(node: str) -> None:
        both, how = cases[node]
        times = applied(fleet, node)
        job = fleet.submit(node, "sleep 300")  # a shorter one may end before the damage
        fleet.wait(f"{node} applied", lambda: applied(fleet, node) > times)
        for name in ("journal.json", "journal.bak.json")[: 2 if both else 1]:
            file = fleet.folder(node) / name
            data = file.read_bytes()
            at = fleet.random.randrange(len(data) - 1)
            file.write_bytes(data[:at] if how == "cut" else data[:at] + b"\0x" + data[at + 2 :])
        fleet.slurm("scancel", job)
        fleet.wait_for_end(job)

    fleet.each(one)
    # With nothing left to tell what was before, the node is as at boot and wants to be looked at.
    assert set(fleet.settle(before)) == {node for node, (both, _) in cases.items() if both}


def test_the_disk_is_full(fleet: Fleet, before: dict[str, str]) -> None:
    """Before the job: nothing is changed and the node drains. During it: all is put back."""

    def fill(node: str) -> None:
        folder = fleet.folder(node)
        fleet.root(node, "sh", "-c", f"cat /dev/zero > {folder}/fill 2>/dev/null; true")

    def one(node: str) -> bool:
        folder = str(fleet.folder(node))
        fleet.root(node, "mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "none", folder)
        early = fleet.random.random() < 0.5
        if early:
            fill(node)
        job = fleet.submit(node, "sleep 3")
        if not early:
            fleet.wait(f"{node} has a journal", lambda: "journal" in fleet.root(node, "ls", folder))
            fleet.pause(1.0)
            fill(node)
        fleet.wait_for_end(job)
        return early

    early = fleet.each(one)
    fleet.each(lambda node: fleet.wait("at rest", lambda: at_rest(fleet, node)))
    states = {node: fleet.node_state(node)[0] for node in fleet.nodes}
    left = fleet.each(lambda node: fleet.root(node, "ls", str(fleet.folder(node))))
    for node in fleet.nodes:
        assert "journal" not in left[node]
        # Lazily: a look of Slurm's health check may be inside at this very moment.
        fleet.root(node, "umount", "--lazy", str(fleet.folder(node)))
    assert all("drain" in states[node] for node in fleet.nodes if early[node])
    fleet.settle(before)


def at_rest(fleet: Fleet, node: str) -> bool:
    state = fleet.node_state(node)[0]
    return not any(word in state for word in ("allocated", "completing", "mixed"))


def test_the_profile_is_edited_while_in_force(
    fleet: Fleet, before: dict[str, str], tmp_path: Path
) -> None:
    """The job ends by what was applied, not by what the policy says now."""
    (file,) = (LabPaths(fleet.lab.spec.instance).data / "libexec/versions").glob("*/nic.json")
    original = file.read_text()
    site = yaml_site.load(yaml_site.write(tmp_path, COUNT, mtu=4000))
    changed = compile_policy(site)
    changed["state_folder"] = json.loads(original)["state_folder"]

    def begin(node: str) -> str:
        times = applied(fleet, node)
        job = fleet.submit(node, "sleep 4")
        fleet.wait(f"{node} applied", lambda: applied(fleet, node) > times)
        return job

    jobs = fleet.each(begin)
    try:
        # One with other values, then one without the profile at all.
        file.write_text(json.dumps(changed))
        answers = fleet.each(lambda node: fleet.nic(node, "verify").stdout)
        running = {node: fleet.state_of(job) == "RUNNING" for node, job in jobs.items()}
        for node in fleet.nodes:
            assert "as the profile has it" in answers[node] or not running[node]
        del changed["profiles"]["many"]
        file.write_text(json.dumps(changed))
        fleet.each(lambda node: fleet.wait_for_end(jobs[node]))
        fleet.settle(before, drained=False)
    finally:
        file.write_text(original)


def test_two_jobs_race_for_a_node(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without job_submit nothing makes them exclusive: one gets the node, the other is refused."""
    folder = tmp_path_factory.mktemp("race")

    def shared(spec):
        name = next(name for name in spec.files if name.endswith("seatrial-nic.conf"))
        text = spec.files[name].replace("JobSubmitPlugins=lua", "")
        return dataclasses.replace(spec, files={**spec.files, name: text})

    fleet = Fleet(f"t{os.getpid()}_race", COUNT, folder, shared)
    try:
        fleet.up()
        before = fleet.looks()

        def one(node: str) -> bool:
            first = fleet.submit(node, "sleep 2", "--ntasks=1", "--mem=1", profile="many")
            fleet.pause(0.2)
            second = fleet.submit(node, "sleep 2", "--ntasks=1", "--mem=1", profile="other")
            time.sleep(1)
            fleet.wait_for_end(first)
            fleet.wait_for_end(second)
            return "is in force for job" in fleet.reason(node)

        for refused, reasons in until_hit(fleet, before, one, "node saw a race"):
            assert set(reasons) >= {node for node, hit in refused.items() if hit}
    finally:
        fleet.close()


def test_settings_that_nobody_owns_drain_the_node(fleet: Fleet, before: dict[str, str]) -> None:
    """Somebody's hand, not a job: the health check finds it while the node is idle."""

    def one(node: str) -> str:
        fleet.root(node, "ip", "link", "set", "eth1", "mtu", "1400")
        fleet.wait(f"{node} drained", lambda: "drain" in fleet.node_state(node)[0], 90)
        said = fleet.wait("told", lambda: "no profile owns" in fleet.node_state(node)[1], 60)
        assert said
        reason = fleet.node_state(node)[1]
        fleet.root(node, "ip", "link", "set", "eth1", "mtu", "1500")
        return reason

    for reason in fleet.each(one).values():
        assert "eth1: mtu is 1400, was 1500 at boot" in reason
    fleet.settle(before, drained=True)


def test_an_ordinary_user_cannot_have_nodes_drained(fleet: Fleet, before: dict[str, str]) -> None:
    """Neither by connections that look like Slurm's, nor by a process that looks like a step."""
    talk = (
        "import socket; s = socket.socket(); "
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        "s.bind(('{here}', 6817)); s.connect(('{there}', 6818)); s.send(b'x' * 64); s.close()"
    )

    def one(node: str) -> None:
        at = fleet.nodes.index(node)
        here = f"10.75.1.{at + 1}"
        there = f"10.75.1.{(at + 1) % COUNT + 1}"
        code = talk.format(here=here, there=there)
        fleet.wait_for_end(fleet.submit(node, f'/usr/bin/python3 -c "{code}"', profile=""))
        fake = "setsid bash -c \"exec -a 'slurmstepd: [$SLURM_JOB_ID.batch]' sleep 20\" & sleep 0.2"
        job = fleet.submit(node, fake)
        fleet.wait_for_end(job)
        fleet.wait("clean", lambda: not fleet.has_journal(node), 15)

    fleet.each(one)
    fleet.settle(before, drained=False)
