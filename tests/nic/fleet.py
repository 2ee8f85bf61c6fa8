"""A lab of many nodes on which things are done to all nodes at once, each at its own random time.

Its eyes are not those of the code under test: the state of a node is the raw output of the
system's own programs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml_site

from seatrial_lab.common import access, processes
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import lab_spec

#: what a node shows of its interfaces under test, without the two that count by themselves
LOOK = r"""
for i in eth1 tap0; do
  for o in -k -c -g -l; do /usr/sbin/ethtool $o $i 2>&1; done
  /usr/sbin/ip -details link show dev $i | sed -e 's/qdisc [a-z]* state [A-Z]*//'
  /usr/sbin/ip -brief address show dev $i | tr -s ' ' | cut -d' ' -f1,3-
  /usr/sbin/tc qdisc show dev $i
  for f in gro_flush_timeout napi_defer_hard_irqs threaded tx_queue_len mtu; do
    echo $f $(cat /sys/class/net/$i/$f)
  done
  for f in /sys/class/net/$i/queues/*/*_cpus /sys/class/net/$i/queues/*/rps_flow_cnt; do
    echo $f $(cat $f 2>/dev/null)
  done
done
"""

#: per call
DRIVER_S = 0.03
#: a machine with other work takes so many times as long as what is given in s
PATIENCE = 4
ASK_S = 0.1
LIVING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "")


class Fleet:
    """A running lab and what is done in it. ``seed`` makes the random times repeatable."""

    def __init__(self, instance: str, count: int, folder: Path, change: Any = None) -> None:
        self.file = yaml_site.write(folder, count)
        self.site = yaml_site.load(self.file)
        spec = lab_spec(self.site, instance, (folder,))
        self.lab = Lab(change(spec) if change else spec)
        self.nodes = list(self.lab.spec.nodes)
        self.random = random.Random(int(os.environ.get("SEATRIAL_SEED", time.time_ns() % 10**6)))
        self.asking = threading.Lock()
        self.answers: dict[str, tuple[float, dict[str, str]]] = {}
        self.pool = ThreadPoolExecutor(max_workers=len(self.nodes))

    def up(self) -> None:
        self.lab.up()
        self.slow_down()

    def slow_down(self) -> None:
        """Give the nodes a driver that takes its time, as many do: there is more to interrupt."""
        folder = self.file.parent
        real, slow = folder / "ethtool", folder / "ethtool-slow"
        if not slow.exists():
            self.set_driver_time(DRIVER_S)
            shutil.copy("/usr/sbin/ethtool", real)
            slow.write_text(
                f'#!/bin/sh\nread s < {self.driver_s}\n/bin/sleep $s\nexec {real} "$@"\n'
            )
            slow.chmod(0o755)
        mount = ("mount", "--bind", str(slow), "/usr/sbin/ethtool")
        self.each(lambda node: self.root(node, *mount))

    @property
    def driver_s(self) -> Path:
        return self.file.parent / "driver-s"

    def set_driver_time(self, seconds: float) -> None:
        """How long each call of the driver takes from now on, on all nodes."""
        new = self.driver_s.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.replace(self.driver_s)

    # -- many at once

    def each(self, act: Callable[[str], Any], nodes: Iterable[str] | None = None) -> dict[str, Any]:
        """``act`` on every node at once; what it returned, by node. Raises what it raised."""
        names = list(nodes or self.nodes)
        return dict(zip(names, self.pool.map(act, names), strict=True))

    def share(self, cases: list[Any]) -> dict[str, Any]:
        """Node -> the case that is its own; they take turns."""
        return {node: cases[number % len(cases)] for number, node in enumerate(self.nodes)}

    def looks(self) -> dict[str, str]:
        return self.each(self.look)

    def look(self, node: str) -> str:
        return self.root(node, "sh", "-c", LOOK)

    def root(self, node: str, *argv: str, check: bool = True) -> str:
        """Output of a command that root runs on a node."""
        return self.lab.run(list(argv), user="root", node=node, timeout=600, check=check).stdout

    def nic(self, node: str, *words: str) -> Any:
        """The node side's command, as an operator types it: its completed process."""
        command = f"{LabPaths(self.lab.spec.instance).data}/libexec/seatrial-nic"
        return self.lab.run([command, *words], user="root", node=node, timeout=600)

    # -- jobs

    def submit(self, node: str, script: str, *options: str, profile: str = "many") -> str:
        """Submit a job for one node; returns its id.

        One that can be requeued: of others, slurmd 22.05 tells a failed Prolog every 15 s anew, and
        each time the node drains again.
        """
        words = [
            "sbatch",
            "--parsable",
            "--requeue",
            f"--nodelist={node}",
            "--nodes=1",
            "--output=/dev/null",
        ]
        if profile:
            words.append(f"--constraint=nic_{profile}")
        return self.lab.run(
            [*words, *options, "--wrap", script], check=True, timeout=600
        ).stdout.strip()

    def slurm(self, *argv: str, check: bool = True) -> str:
        return self.lab.run(list(argv), user="root", check=check, timeout=600).stdout

    def seen(self, kind: str) -> dict[str, str]:
        """What Slurm shows of all its ``jobs`` or ``nodes``, by name, asked after this call began.

        All threads share one answer: 20 that ask by themselves would leave no time for the jobs.
        """
        begin = time.monotonic()
        with self.asking:
            asked, found = self.answers.get(kind, (0.0, {}))
            if asked < begin:
                time.sleep(ASK_S)
                asked = time.monotonic()
                text = self.slurm("scontrol", "--oneliner", "show", kind, check=False)
                rows = (line.partition(" ") for line in text.splitlines() if "=" in line)
                found = {first.partition("=")[2]: rest for first, _, rest in rows}
                self.answers[kind] = (asked, found)
        return found

    def job(self, job: str) -> str:
        return self.seen("jobs").get(job, "")

    def state_of(self, job: str) -> str:
        return self.job(job).partition("JobState=")[2].partition(" ")[0]

    def node_state(self, node: str) -> tuple[str, str]:
        """(state in small letters, reason) as Slurm has it."""
        text = self.seen("nodes")[node]
        state = text.partition(" State=")[2].partition(" ")[0].lower()
        return state, text.partition(" Reason=")[2].strip()

    # -- what the node remembers

    def folder(self, node: str) -> Path:
        return LabPaths(self.lab.spec.instance).data / "nic" / node

    def has_journal(self, node: str) -> bool:
        names = ("journal.json", "journal.bak.json")
        return any((self.folder(node) / name).exists() for name in names)

    def history(self, node: str) -> list[dict[str, Any]]:
        file = self.folder(node) / "history.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def reason(self, node: str) -> str:
        for name in ("reason", "reason.old"):
            file = self.folder(node) / name
            if file.exists():
                return file.read_text().strip()
        return ""

    # -- waiting

    def wait(self, what: str, test: Callable[[], Any], seconds: float = 60) -> Any:
        seconds *= PATIENCE
        deadline = time.monotonic() + seconds
        while not (found := test()):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {seconds:g} s: not yet {what}")
            time.sleep(0.005)
        return found

    def wait_for_state(self, job: str, *states: str, seconds: float = 90) -> None:
        try:
            self.wait(f"job {job} {states}", lambda: self.state_of(job) in states, seconds)
        except AssertionError as error:  # with Slurm's reason
            raise AssertionError(f"{error}: {self.job(job)}") from None

    def start(self, node: str, script: str, *options: str) -> str:
        """Submit a job, again if need be, until its batch script runs; returns its id.

        On a busy machine a short script can run and end between two looks: then it has ended.
        The message by which slurmctld starts the first job after a slurmd was killed is sometimes
        lost: the job then has the reason Prolog until BatchStartTimeout. A busy machine takes
        longer than an idle one, so each wait is twice as long as the one before.
        """
        for patience_s in (25, 50, 100, 200, 400):
            job = self.submit(node, script, *options)
            begin = time.monotonic()
            while time.monotonic() < begin + patience_s:
                if self.pids(node, "slurmstepd", f"[{job}.batch]"):
                    return job
                time.sleep(0.05)
            if self.state_of(job) == "COMPLETED":
                return job
            self.slurm("scancel", job, check=False)
            self.wait_for_end(job)
        raise AssertionError(f"no job starts on {node}")

    def wait_for_end(self, job: str, seconds: float = 90) -> None:
        """Until the job is over, its Epilog included, or held after a Prolog that failed."""

        def over() -> bool:
            text = self.job(job)
            state = text.partition("JobState=")[2].partition(" ")[0]
            why = text.partition(" Reason=")[2].partition(" ")[0].lower()
            stuck = "held" in why or "notavail" in why or "drained" in why
            return stuck if state == "PENDING" else state not in LIVING

        self.wait(f"job {job} over", over, seconds)

    def pause(self, most: float) -> None:
        time.sleep(self.random.uniform(0, most))

    # -- processes of a node

    def inside(self, node: str) -> list[int]:
        first = access.first_process(self.lab.spec, node)
        return list(processes.in_node(first)) if first else []

    def pids(self, node: str, *words: str) -> list[int]:
        """Processes of a node whose command line has all these words."""
        found = []
        for pid in self.inside(node):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(pid)
        return found

    def kill(self, pids: Iterable[int]) -> int:
        """SIGKILL, and wait until they are gone; how many there were."""
        killed = []
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except ProcessLookupError:
                pass
        # One that is still dying would be taken for a slurmd that runs.
        assert not processes.wait_gone(killed, 30)
        return len(killed)

    def kill_slurmd(self, node: str) -> None:
        first = access.first_process(self.lab.spec, node)
        assert first
        names = processes.in_node(first)
        self.kill(pid for pid, name in names.items() if name == "slurmd")

    def start_slurmd(self, node: str) -> None:
        faults.start_slurmd(self.lab, node)

    # -- the verdict

    def settle(self, before: dict[str, str], drained: bool | None = None) -> dict[str, str]:
        """Every node is idle or drained with a reason, clean, and as it was; then all are resumed.

        ``drained`` says which it must be; None: either. Returns Slurm's reasons of drained nodes.
        """
        reasons = {node: reason for node, reason in self.each(self._at_rest).items() if reason}
        if drained is not None:
            assert (set(reasons) == set(self.nodes)) if drained else not reasons, reasons
        self.each(self._restore_boot_state, reasons)
        after = self.looks()
        for node in self.nodes:
            clean = after[node] == before[node] and not self.has_journal(node)
            assert clean, f"{node}: {difference(before[node], after[node])}; {self.found_at(node)}"
        self.slurm("scancel", f"--user={self.lab.spec.user}")
        if reasons:
            self.slurm("scontrol", "update", f"nodename={','.join(reasons)}", "state=resume")
        self.each(
            lambda node: self.wait(f"{node} idle", lambda: self.node_state(node)[0] == "idle")
        )
        return reasons

    def found_at(self, node: str) -> str:
        """What explains that a node is not as it was."""
        running = self.root(node, "ps", "-eo", "pid,etime,args")
        slurm = [line for line in running.splitlines() if "slurmstepd" in line or "-nic " in line]
        said = self.nic(node, "verify").stdout.strip()
        return f"{self.node_state(node)} {slurm} {said} {self.history(node)[-3:]}"

    def clear(self) -> None:
        """After a test that failed: end its jobs and take the nodes back into service."""
        self.slurm("scancel", f"--user={self.lab.spec.user}")
        self.each(self._clear_one)

    def _clear_one(self, node: str) -> None:
        self.wait("jobs gone", lambda: not self._busy(node), 90)
        if self.node_state(node)[0] != "idle":
            self.nic(node, "recover")
            self.slurm("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def _busy(self, node: str) -> bool:
        state = self.node_state(node)[0]
        return any(word in state for word in ("allocated", "completing", "mixed"))

    def _at_rest(self, node: str) -> str:
        """Wait until no job is on the node; the reason if it is drained. In service it is clean."""

        def rests() -> tuple[str, str] | None:
            state, reason = self.node_state(node)
            busy = ("allocated", "completing", "mixed", "down", "not_responding", "*")
            return None if any(word in state for word in busy) else (state, reason)

        state, reason = self.wait(f"{node} at rest", rests, 120)
        if "drain" not in state:
            assert not self.has_journal(node), f"{node} is in service ({state}) with a profile"
            return ""
        return str(reason or "no reason")

    def _restore_boot_state(self, node: str) -> None:
        """What the operator's page says for a drained node."""
        answer = self.nic(node, "recover")
        assert answer.returncode == 0, f"{node}: {answer.stderr} {answer.stdout}"

    def close(self) -> None:
        self.pool.shutdown()
        self.lab.down()


def difference(before: str, after: str) -> str:
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    return "; ".join(f"{old.strip()!r} -> {new.strip()!r}" for old, new in lines if old != new)
