"""Nodes with several processors: programs on one, interrupts on any."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_support import (
    BASE,
    OWN,
    PROGRAMS,
    SMALL,
    Tried,
    figures,
    latency,
    run_profiles,
    running,
    write_site,
)

from seatrial.base.errors import InputError
from seatrial.site.load import load_site
from seatrial_lab.virtual import plan, qemu
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.guest import agent
from seatrial_lab.virtual.machine import processors_note
from seatrial_lab.virtual.site import TASK_PROLOG, virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec

TWO = OWN.replace("cores: 1", "cores: 2")
PROFILES = """\
  same: {description: the interrupts beside the program, coalescing: {rx_usecs: 0}}
  other: {description: on the other processor, coalescing: {rx_usecs: 0}, irq_affinity: "2,4"}
"""
TRIED = (
    TWO.replace("transports: {}", PROFILES + "transports: {}")
    .replace("processors: own,", "processors: own, wires: {test: {rate: 1 Gbit/s}},")
    .replace("trial: ", "  tcp_stream: {total_bytes: 16 MiB, time_limit_s: 300}\ntrial: ")
)


def spec_of(folder: Path, text: str = TWO) -> VirtualSpec:
    return virtual_spec(load_site(write_site(folder, text)), "t")


def test_each_node_has_two_processors_and_the_login_node_one(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    words = qemu.command(spec, BASE, Path("i"), Path("/r"), Path("/e/qemu"))
    assert words[words.index("-smp") + 1] == "5"
    assert "isolcpus" not in words[words.index("-append") + 1]
    config = plan.agent_config(spec, PROGRAMS, [], own_processors=True)
    assert config["processors"] == {"login": [0], "n1": [1, 2], "n2": [3, 4]}
    assert plan.host_config(spec, PROGRAMS, "n2", own_processors=True)["processors"] == [3, 4]
    assert plan.host_config(spec, PROGRAMS, "n2", own_processors=False)["processors"] == []
    facts = {"processors": "own", "processors_of_node": spec.lab.cpus, "window_ns": spec.window_ns}
    note = processors_note(facts)
    assert note.startswith("each node has 2 processors of its own")
    assert note.endswith(", 1000 ns apart at most")


def test_slurm_counts_them_and_puts_each_task_on_its_own(tmp_path: Path) -> None:
    lab = spec_of(tmp_path).lab
    assert lab.cpus == 2
    assert "TaskProlog=/etc/slurm/task-prolog.sh" in lab.extra_slurm_conf
    assert lab.slurm_files == {"task-prolog.sh": TASK_PROLOG.read_text()}
    one = spec_of(tmp_path / "one", OWN).lab
    assert not any("TaskProlog" in line for line in one.extra_slurm_conf)
    assert one.slurm_files == {}


def test_four_processors_follow_each_other(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, OWN.replace("cores: 1", "cores: 4"))
    words = qemu.command(spec, BASE, Path("i"), Path("/r"), Path("/e/qemu"))
    assert words[words.index("-smp") + 1] == "9"
    config = plan.agent_config(spec, PROGRAMS, [], own_processors=True)
    assert config["processors"] == {"login": [0], "n1": [1, 2, 3, 4], "n2": [5, 6, 7, 8]}


@pytest.mark.parametrize("cores", [2, 5])
def test_nodes_have_four_processors_at_most_and_only_if_they_do_not_share_one(
    tmp_path: Path, cores: int
) -> None:
    text = (SMALL if cores == 2 else OWN).replace("cores: 1", f"cores: {cores}")
    most = "1 in this lab; with lab.processors: own up to 4" if cores == 2 else "4 in this lab"
    message = f"nodes.0.cores: {cores} cores are too many (at most {most})"
    with pytest.raises(InputError, match=re.escape(message)):
        spec_of(tmp_path, text)


@pytest.mark.parametrize(
    ("online", "local", "each", "placed"),
    [
        ("3-4", "0", "", "3-3"),
        ("3-4", "1", "", "4-4"),
        ("3-4", "2", "", "3-3"),  # more tasks than processors: in turn
        ("3-4", "0", "2", None),  # a task that wants both stays on both
        ("5-8", "3", "", "8-8"),
        ("5-8", "1", "2", "7-8"),
        ("5-8", "2", "2", "5-6"),
        ("5-8", "1", "3", "5-7"),  # the fourth is too few for a task
        ("3", "0", "", None),
    ],
)
def test_the_task_prolog(
    tmp_path: Path, online: str, local: str, each: str, placed: str | None
) -> None:
    (tmp_path / "online").write_text(online + "\n")
    said = tmp_path / "said"
    (tmp_path / "taskset").write_text(f'#!/bin/sh\necho "$@" >{said}\n')
    (tmp_path / "taskset").chmod(0o755)
    script = TASK_PROLOG.read_text().replace(
        "/sys/devices/system/cpu/online", str(tmp_path / "online")
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_LOCALID": local, "SLURM_TASK_PID": "77"}
    env |= {"SLURM_CPUS_PER_TASK": each} if each else {}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (said.read_text() if said.exists() else None) == (placed and f"-cp {placed} 77\n")


@pytest.mark.parametrize(
    ("masks", "moved"),
    [
        ("01", ["1"]),  # the kernel's default, with irqaffinity=0
        ("02", []),
        ("04", []),  # a NIC profile has moved it to the node's other processor
        ("06", []),
        ("00000001,00000004", ["1"]),
    ],
)
def test_interrupts_of_other_processors_come_to_the_nodes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masks: str, moved: list[str]
) -> None:
    line = tmp_path / "33"
    line.mkdir()
    (line / "smp_affinity").write_text(masks + "\n")
    (line / "smp_affinity_list").write_text("")
    monkeypatch.setattr(agent, "interrupts_of", lambda device: ["33"])
    monkeypatch.setattr(agent, "IRQ", tmp_path)
    agent.pin_interrupts([{"node": "n1", "device": "x"}], {"n1": [1, 2]})
    assert (line / "smp_affinity_list").read_text().split() == moved


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    with running(write_site(tmp_path_factory.mktemp("two"), TRIED), "_p") as shared:
        yield shared


@pytest.fixture(scope="module")
def trial(lab: VirtualLab, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    file = write_site(tmp_path_factory.mktemp("two_trial"), TRIED)
    return Tried(run_profiles(lab, file, ("same", "other")), {}, {})


in_a_guest = [
    pytest.mark.root, pytest.mark.slurm,
    pytest.mark.nightly(reason="a virtual lab whose nodes have two processors, and a trial in it"),
]  # fmt: skip


class Node:
    """A node of the running lab."""

    def __init__(self, lab: VirtualLab, name: str):
        self.lab, self.name = lab, name

    def run(self, *words: str) -> str:
        return self.lab.run(words, user="root", node=self.name, timeout=600, check=True).stdout


@pytest.mark.usefixtures("lab")
class TestInAGuest:
    pytestmark = in_a_guest

    def test_a_node_shows_its_own_processors(self, lab: VirtualLab) -> None:
        assert lab.facts()["processors"] == "own"
        for name, own in (("login", "0"), ("n1", "1-2"), ("n2", "3-4")):
            node = Node(lab, name)
            assert node.run("cat", "/sys/devices/system/cpu/online").split() == [own]
            assert f"Cpus_allowed_list:\t{own}" in node.run("cat", "/proc/self/status").splitlines()
        assert Node(lab, "n1").run("nproc").split() == ["2"]

    def test_slurm_has_two_processors_and_each_task_gets_its_own(self, lab: VirtualLab) -> None:
        seen = lab.run(["sinfo", "-h", "-N", "-o", "%N %c %T"], timeout=600, check=True).stdout
        assert seen.split("\n")[:2] == ["n1 2 idle", "n2 2 idle"]
        allowed = "sed -n 's/Cpus_allowed_list:.//p' /proc/self/status"
        words = ["srun", "-N2", "--ntasks-per-node=2", "--exclusive", "sh", "-c",
                 f"echo $(hostname) $({allowed})"]  # fmt: skip
        lines = lab.run(words, timeout=600, check=True).stdout.split("\n")
        assert sorted(filter(None, lines)) == ["n1 1", "n1 2", "n2 3", "n2 4"]

    def test_programs_move_to_the_idle_processor_of_their_node(self, lab: VirtualLab) -> None:
        """Two busy processes that start on one processor, and may use both."""
        text = (
            "import os, time\n"
            "os.sched_setaffinity(0, {3}); child = os.fork(); os.sched_setaffinity(0, {3, 4})\n"
            "end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\n"
            "child and os.waitpid(child, 0)\nprint(time.process_time())\n"
        )
        seen = Node(lab, "n2").run("python3", "-IS", "-c", text)
        assert all(float(word) > 0.4 for word in seen.split())  # 0.25 each on one processor

    def test_a_profile_moves_the_interrupts_and_the_program_gains(self, trial: Tried) -> None:
        assert latency(trial, "other") < 0.9 * latency(trial, "same")
        for metric in ("cpu_sender_percent", "cpu_receiver_percent"):
            same, other = (
                figures(trial.results, "tcp_stream", profile, metric)[0]
                for profile in ("same", "other")
            )
            assert other < 0.95 * same

    def test_the_interrupts_are_back_after_the_trial(self, trial: Tried, lab: VirtualLab) -> None:
        node = Node(lab, "n2")
        numbers = node.run("ls", "/sys/class/net/eth1/device/msi_irqs").split()
        lists = {
            node.run("cat", f"/proc/irq/{number}/smp_affinity_list").strip() for number in numbers
        }
        assert lists == {"3"}
