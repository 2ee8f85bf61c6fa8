"""The state machine of profiles under thousands of random orders of events and deaths.

Slurm is played by the rules; the code under test is all of the node side but its reading of real
interfaces. What must hold is in ``invariant`` and in the checks after each Prolog and Epilog.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_node import (
    INTERFACE,
    FakeNic,
    FakeWorld,
    Fuse,
    Killed,
    MortalStore,
    OpenGuard,
    Simulation,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from campaigns import rounds
from seatrial.nic.node import values
from seatrial.nic.node.errors import NicError, Unrestored
from seatrial.nic.node.policy import Policy
from seatrial.nic.node.session import Job, Session
from seatrial.nic.node.store import JOURNAL, SECOND, Damaged, Tombstone

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "jumbo": {"mtu": 9000},
    "low_latency": {"coalesce.rx-usecs": 0, "coalesce.rx-frames": 1, "channels.combined": 1,
                    "pause.rx": "on", "pause.tx": "off"},
    "bulk": {
        "coalesce.adaptive-rx": "off", "coalesce.rx-usecs": 125, "rps_cpus": "all",
        "feature.tx-checksumming": "off", "sysfs.gro_flush_timeout": 20000,
        "egress_bit_s": 10**9, "ring.rx": 512, "mtu": 6000,
    },
}  # fmt: skip
PROFILES = sorted(SETTINGS)
SOME = st.sampled_from(PROFILES)
# Most go well, or hardly any job would ever run.
DEATHS = st.one_of(st.none(), st.none(), st.integers(0, 80))
FULL = st.sampled_from([False] * 5 + [True])
REFUSALS = st.sampled_from([""] * 9 + ["mtu", "coalesce.rx-usecs", "pause.tx", "channels.combined",
                            "rps_cpus", "feature.tx-checksumming", "ring.rx",
                            "egress_bit_s"])  # fmt: skip


#: what the campaign tried, by fault, and how nodes ended; printed at its end
TRIED: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def counts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the counts, where this is no worker of several."""
    yield
    plugins = request.config.pluginmanager
    terminal, capture = (
        plugins.get_plugin(name) for name in ("terminalreporter", "capturemanager")
    )
    if hasattr(request.config, "workerinput"):
        return
    with capture.global_and_fixture_disabled():
        faults = sum(count for name, count in TRIED.items() if not name.startswith("="))
        terminal.write_line(f"\n{faults} faults over the life of profiles:")
        for name, count in sorted(TRIED.items()):
            terminal.write_line(f"{count:8} {name.removeprefix('=')}")


def policy(mtu: int = 9000) -> Policy:
    profiles = {
        name: {"feature": f"nic_{name}", "nodes": ["n1"], "interfaces": {INTERFACE: wanted}}
        for name, wanted in SETTINGS.items()
    }
    profiles["jumbo"]["interfaces"] = {INTERFACE: {"mtu": mtu}}
    data = {"schema": 1, "digest": str(mtu), "feature_prefix": "nic_", "state_folder": "/nowhere",
            "protected": [], "nodes": {"n1": [INTERFACE]}, "profiles": profiles}  # fmt: skip
    return Policy(data, hostname="n1")


@dataclass
class Running:
    """A job on the node, and the Prolog that it waits for."""

    job: Job
    profile: str
    prolog: FakeWorld | None
    state: str = "prolog"  # prolog, running, ended (its Epilog is due), gone


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(dir=shared))
        self.fuse = Fuse()
        self.nic = FakeNic(self.fuse)
        self.store = MortalStore(self.folder / "nic", self.fuse)
        self.simulation = Simulation()
        self.policy = policy()
        self.base = self.nic.exact()
        self.drained = False
        self.reason = "none yet"  # of the last command that drained the node
        self.jobs: list[Running] = []
        # Prologs and Epilogs of a slurmd that is dead
        self.orphans: list[tuple[str, Running, FakeWorld]] = []
        self.damaged = self.was_damaged = False
        self.seen = self.nic.state()
        self.number = 0
        self.slurmd: tuple[int, int] | None = None
        self.start_slurmd(None)

    def teardown(self) -> None:
        self.settle()
        shutil.rmtree(self.folder)

    # -- running the code under test

    def session(self, world: FakeWorld) -> Session:
        return Session(self.policy, self.store, self.nic, world, OpenGuard())

    def run(self, act: Any, world: FakeWorld, death: int | None, hook: Any = None) -> str:
        """``ok``, ``killed``, or ``drain`` for every way in which a command fails."""
        self.simulation.time += 0.5
        self.fuse.left, self.fuse.hook = death, hook
        try:
            act()
            return "ok"
        except Killed:
            TRIED["command killed at one of its steps"] += 1
            return "killed"
        except (NicError, OSError) as error:
            self.reason = str(error)
            TRIED["= commands that drained the node, with a reason"] += 1
            self.drained = True
            return "drain"
        finally:
            self.fuse.left = self.fuse.hook = None
            self.simulation.kill(world.me)
            self.simulation.time += 0.5

    def in_force(self) -> dict[str, Any] | None:
        try:
            return self.store.journal()
        except Damaged:
            return {"job": "damaged"}

    # -- what Slurm does

    @precondition(lambda self: self.slurmd and not self.drained)
    @rule(profile=SOME, racing=st.booleans())
    def allocate(self, profile: str, racing: bool) -> None:
        here = [one for one in self.jobs if one.state != "gone"]
        TRIED["two jobs race"] += bool(here)
        # Exclusive jobs, but for two that race for the node (a job_submit that was not there).
        if here and not (racing and len(here) == 1 and here[0].state == "prolog"):
            return
        self.number += 1
        job = Job(str(self.number), "0", "1000")
        self.jobs.append(Running(job, profile, FakeWorld(self.simulation, self.slurmd)))

    @precondition(lambda self: self.slurmd and not self.drained and self.is_idle())
    @rule(profile=SOME, death=DEATHS)
    def start_job(self, profile: str, death: int | None) -> None:
        self.allocate(profile, False)
        self.run_prolog(death, "", False, False)

    def is_idle(self) -> bool:
        return all(job.state == "gone" for job in self.jobs)

    @precondition(lambda self: any(job.state == "prolog" and job.prolog for job in self.jobs))
    @rule(death=DEATHS, refused=REFUSALS, full=FULL, epilog_meanwhile=st.booleans())
    def run_prolog(
        self, death: int | None, refused: str, full: bool, epilog_meanwhile: bool
    ) -> None:
        running = next(job for job in self.jobs if job.state == "prolog" and job.prolog)
        world = running.prolog
        assert world
        self.nic.refuses = {refused} if refused else set()
        self.store.full = full
        TRIED["setting refused by the driver"] += bool(refused)
        TRIED["disk full"] += full
        hook = None
        if epilog_meanwhile and death is not None:
            hook = lambda: self.epilog_at_the_lock(running)  # noqa: E731
        result = self.prolog(running, world, death, hook)
        self.nic.refuses, self.store.full = set(), False
        running.prolog = None
        if result == "ok" and world.alive(world.slurmd) and running.state == "prolog":
            running.state = "running"
            self.simulation.steps.add(running.job.id)
        elif running.state == "prolog":
            running.state = "ended"
            self.drained = True  # a Prolog that fails or is killed drains

    def prolog(
        self, running: Running, world: FakeWorld, death: int | None, hook: Any = None
    ) -> str:
        session = self.session(world)
        name = None if running.profile == "default" else running.profile
        before = running.state
        result = self.run(lambda: session.begin_job(running.job, name), world, death, hook)
        if result == "ok" and before == "prolog" and running.state == "prolog":
            self.check_started(running, world)
        return result

    def check_started(self, running: Running, world: FakeWorld) -> None:
        """A Prolog that says yes has put exactly its profile on the node."""
        assert world.alive(world.slurmd), "an orphaned Prolog said yes"
        if running.profile == "default":
            assert self.is_base(), "a job without a profile starts under one"
            return
        wanted = self.policy.profiles[running.profile]["interfaces"][INTERFACE]
        target = values.spread(wanted, self.nic.state(), self.nic.cpus())
        assert not values.differences(target, self.nic.state())
        journal = self.in_force()
        assert journal is not None
        assert (journal["job"], journal["phase"]) == (running.job.id, "applied")

    def epilog_at_the_lock(self, running: Running) -> None:
        """The job is cancelled, and its Epilog comes while the Prolog holds the lock."""
        world = FakeWorld(self.simulation, self.slurmd)
        running.state = "ended"
        with contextlib.suppress(OSError):
            # As far as it gets without the lock.
            grave = Tombstone(world.started, world.boot_id())
            self.store.write_tombstone(running.job.id, running.job.restart, grave)

    @precondition(lambda self: self.slurmd and any(job.prolog for job in self.jobs))
    @rule()
    def epilog_overtakes_the_prolog(self) -> None:
        """It runs to its end while the Prolog still waits, for the lock or for a processor."""
        TRIED["Epilog before its Prolog"] += 1
        for running in self.jobs:
            if running.state == "prolog" and running.prolog and running.profile != "default":
                if self.epilog(running, FakeWorld(self.simulation, self.slurmd), None) == "ok":
                    self.orphans.append(("prolog", running, running.prolog))
                    running.prolog, running.state = None, "gone"
                return

    @precondition(lambda self: any(job.state == "running" for job in self.jobs))
    @rule()
    def end_job(self) -> None:
        running = next(job for job in self.jobs if job.state == "running")
        self.simulation.steps.discard(running.job.id)
        running.state = "ended"

    @precondition(lambda self: self.slurmd and any(job.state == "ended" for job in self.jobs))
    @rule(death=DEATHS, twice=st.booleans(), full=FULL)
    def run_epilog(self, death: int | None, twice: bool, full: bool) -> None:
        running = next(job for job in self.jobs if job.state == "ended")
        self.store.full = full
        TRIED["disk full"] += full
        TRIED["Epilog twice"] += twice
        result = "ok"
        for _ in range(2 if twice else 1):
            world = FakeWorld(self.simulation, self.slurmd)
            result = self.epilog(running, world, death)
        self.store.full = False
        if result == "killed":
            self.drained = True  # an Epilog that is killed drains
        running.state = "gone"

    def epilog(self, running: Running, world: FakeWorld, death: int | None) -> str:
        session = self.session(world)
        asked = running.profile != "default"
        result = self.run(lambda: session.end_job(running.job, asked), world, death)
        journal = self.in_force()
        if result == "ok" and world.alive(world.slurmd):
            assert not journal or journal["job"] != running.job.id, "an Epilog left its profile"
        return result

    @rule(requeue=st.booleans())
    @precondition(lambda self: self.slurmd)
    def kill_slurmd(self, requeue: bool) -> None:
        """SIGKILL; the Prologs and Epilogs that it had started go on, or have not begun yet."""
        TRIED["slurmd killed"] += 1
        self.simulation.kill(self.slurmd)
        self.slurmd = None
        for running in self.jobs:
            if running.state == "prolog" and running.prolog:
                self.orphans.append(("prolog", running, running.prolog))
                running.prolog = None
                running.state = "ended"
            elif running.state == "ended":
                world = FakeWorld(self.simulation, None)
                world.slurmd = (1, 1)  # it had one, which is dead now
                self.orphans.append(("epilog", running, world))
        if requeue and self.jobs:
            self.simulation.steps.clear()
            for running in self.jobs:
                if running.state == "running":
                    running.state = "ended"

    @precondition(lambda self: self.slurmd is None)
    @rule(death=DEATHS)
    def start_slurmd(self, death: int | None) -> None:
        self.slurmd = self.simulation.spawn()
        self.health(death)

    @precondition(lambda self: self.slurmd)
    @rule(death=DEATHS)
    def health(self, death: int | None) -> None:
        world = FakeWorld(self.simulation, self.slurmd)
        session = self.session(world)
        owned = self.owned()
        exact = self.nic.exact()
        self.run(lambda: session.recover(0.0), world, death)
        if owned:
            assert self.nic.exact() == exact, "the node undid a profile whose owner lives"

    def owned(self) -> bool:
        journal = self.in_force()
        return bool(journal) and journal["job"] in self.simulation.steps  # type: ignore[index]

    @precondition(lambda self: self.orphans)
    @rule(death=DEATHS)
    def orphan_runs(self, death: int | None) -> None:
        kind, running, world = self.orphans.pop(0)
        TRIED[f"{kind.capitalize()} of a dead slurmd"] += 1
        exact, owned = self.nic.exact(), self.owned()
        if kind == "prolog":
            session = self.session(world)
            name = None if running.profile == "default" else running.profile
            drained = self.drained
            result = self.run(lambda: session.begin_job(running.job, name), world, death)
            self.drained = drained  # nobody waits for its exit code
            assert result != "ok", "an orphaned Prolog said yes"
        else:
            drained = self.drained
            self.run(lambda: self.session(world).end_job(running.job, True), world, death)
            self.drained = drained
        if owned:
            assert self.nic.exact() == exact, "an orphan changed what a living job has"

    @precondition(lambda self: any(job.state == "gone" for job in self.jobs))
    @precondition(lambda self: self.slurmd and not self.drained)
    @rule(profile=SOME)
    def requeue(self, profile: str) -> None:
        """A job comes back under the same id, with no restart count to tell it by."""
        if any(job.state != "gone" for job in self.jobs):
            return
        old = next(job for job in self.jobs if job.state == "gone")
        self.jobs.remove(old)
        self.simulation.time += 1.0
        self.jobs.append(Running(old.job, old.profile, FakeWorld(self.simulation, self.slurmd)))

    # -- what befalls a node

    @precondition(lambda self: self.in_force() or self.orphans)
    @rule()
    def reboot(self) -> None:
        TRIED["power cut"] += 1
        self.simulation.boot += 1
        self.simulation.living.clear()
        self.simulation.steps.clear()
        self.orphans.clear()
        self.nic.reboot()
        self.jobs.clear()
        self.damaged = self.was_damaged = False
        self.slurmd = None
        self.start_slurmd(None)

    @precondition(lambda self: self.in_force())
    @rule(both=st.booleans(), cut=st.integers(0, 200))
    def damage_journal(self, both: bool, cut: int) -> None:
        for name in (JOURNAL, SECOND) if both else (JOURNAL,):
            path = Path(self.store.path(name))
            if path.exists():
                TRIED["journal damaged"] += 1
                path.write_bytes(path.read_bytes()[:cut])
                self.damaged = self.was_damaged = self.damaged or both

    @precondition(lambda self: not self.is_idle())
    @rule(mtu=st.sampled_from([4000, 9000]))
    def edit_profile(self, mtu: int) -> None:
        self.policy = policy(mtu)
        TRIED["profile edited while in force"] += 1

    @precondition(lambda self: self.drained)
    @rule()
    def operator_resumes(self) -> None:
        """After having looked: the node's own means say that it is clean."""
        if self.slurmd and not any(job.state != "gone" for job in self.jobs):
            world = FakeWorld(self.simulation, self.slurmd)
            with contextlib.suppress(NicError, OSError):
                self.session(world).recover(0.0)
                # Shortly after a Prolog, its job may still be about to start: then it says so.
                self.drained = self.in_force() is not None
            self.simulation.kill(world.me)

    @precondition(lambda self: self.in_force())
    @rule(name=st.sampled_from([INTERFACE, "eth9"]))
    def rename(self, name: str) -> None:
        """By udev, or by hand, and back."""
        TRIED["interface renamed"] += self.nic.name != name
        self.nic.name = name

    @precondition(lambda self: self.jobs)
    @rule(version=st.sampled_from(["6.1", "6.7"]))
    def exchange_ethtool(self, version: str) -> None:
        """An upgrade or a downgrade at any moment; the newer one shows more."""
        TRIED["ethtool exchanged"] += self.nic.ethtool != version
        self.nic.shown_by["6.7"] = {"coalesce.tx-aggr-time-usecs": 3, "irq.0": "0-1"}
        self.nic.ethtool = version

    @precondition(lambda self: self.jobs)
    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.simulation.time += seconds

    def is_base(self) -> bool:
        """As at boot; what adaptive moderation hides is not known any more without a journal."""
        if self.was_damaged:
            return self.nic.state() == self.seen
        return self.nic.exact() == self.base

    # -- what must hold

    @invariant()
    def what_differs_is_written_down(self) -> None:
        if not self.is_base() and not self.damaged:
            assert self.in_force() is not None, "settings without a journal"

    @invariant()
    def a_drained_node_has_a_reason(self) -> None:
        assert self.reason

    @invariant()
    def no_unowned_profile_in_service(self) -> None:
        idle = not any(job.state != "gone" for job in self.jobs)
        if self.slurmd and not self.drained and idle and not self.damaged:
            assert self.is_base(), "in service with a profile that nobody owns"

    def settle(self) -> None:
        """Everything comes to its end: then the node is as it was, or drained with a reason."""
        if not self.slurmd:
            self.start_slurmd(None)
        for _ in range(2):
            for running in self.jobs:
                if running.state == "prolog" and running.prolog:
                    self.run_prolog_to_end(running)
                if running.state == "running":
                    self.simulation.steps.discard(running.job.id)
                    running.state = "ended"
                if running.state == "ended":
                    self.epilog(running, FakeWorld(self.simulation, self.slurmd), None)
                    running.state = "gone"
            while self.orphans:
                self.orphan_runs(None)
        self.simulation.time += 1000
        self.nic.name = INTERFACE
        self.health(None)
        assert self.drained or self.is_base()
        world = FakeWorld(self.simulation, self.slurmd)
        with contextlib.suppress(Unrestored):
            self.session(world).recover(0.0)
        assert self.is_base()
        assert self.in_force() is None
        # Each failure of these ends the campaign, so their numbers are those of nodes that passed.
        TRIED["= nodes at their settings of boot at the end, none with a profile"] += 1

    def run_prolog_to_end(self, running: Running) -> None:
        world, running.prolog = running.prolog, None
        assert world
        self.prolog(running, world, None)
        running.state = "running"
        self.simulation.steps.add(running.job.id)


class StubbornNode(Node):
    pass


class ObligingNode(Node):
    """Its driver turns adaptive moderation off in silence, as several do."""

    def __init__(self) -> None:
        super().__init__()
        self.nic.stubborn = False


LONG = settings(
    max_examples=rounds(40, 1000),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestStubbornNode = StubbornNode.TestCase
TestObligingNode = ObligingNode.TestCase
TestStubbornNode.settings = LONG
TestObligingNode.settings = LONG
