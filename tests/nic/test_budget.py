"""A driver that is slow: each command ends before it is killed, and says why.

The programs run on a clock of their own: no second of a test is waited for.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from fake_machine import Machine
from test_links import JOB, Node, a_node, policy

from seatrial.nic.node import cli, nic, programs
from seatrial.nic.node.errors import NicError, Refused
from seatrial.nic.node.store import Busy
from seatrial.slurm.layout import Layout

JUMBO = {"interfaces": {"eth1": {"mtu": 9000, "txqueuelen": 50}, "eth2": {"mtu": 9000}}}
#: of Slurm
HEALTH_KILLED_S = 60.0
LAYOUT = Layout()


class Slow:
    """Programs of a machine; each call of one takes so many seconds of the machine's time."""

    def __init__(self, machine: Machine, patch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        self.answer = machine.run
        self.seconds = 0.0
        self.slow = "ethtool"
        self.drained: list[str] = []
        self.hangs = False  # whether one was killed
        patch.undo_run()  # type: ignore[attr-defined]
        patch.setattr(programs, "time", machine)
        patch.setattr(programs.subprocess, "Popen", self.popen)

    def popen(self, argv: list[str], **_: Any) -> Any:
        return Process(self, [argv[0].rpartition("/")[2], *argv[1:]])


class Process:
    def __init__(self, slow: Slow, argv: list[str]) -> None:
        self.slow, self.argv, self.returncode = slow, argv, 0
        self.cost = slow.seconds if argv[0] == slow.slow else 0.0

    def communicate(self, timeout: float) -> tuple[str, str]:
        clock = self.slow.machine
        if self.cost > timeout:
            clock.time += timeout
            self.cost -= timeout
            raise subprocess.TimeoutExpired(self.argv, timeout)
        clock.time += self.cost
        if self.argv[0] == "scontrol":
            self.slow.drained += [word for word in self.argv if word.startswith("reason=")]
            return "NodeName=n1 State=IDLE", ""
        answer = self.slow.answer(self.argv)
        self.returncode = answer.code
        return answer.out, answer.err

    def kill(self) -> None:
        self.cost = 0.0
        self.slow.hangs = True


class Patch(pytest.MonkeyPatch):
    """Gives ``programs.run`` back, which a machine has replaced."""

    real = staticmethod(programs.run)

    def undo_run(self) -> None:
        self.setattr(programs, "run", self.real)


@pytest.fixture
def node() -> Iterator[Node]:
    with a_node() as made, Patch.context() as patch:
        made.slow = Slow(made.machine, patch)  # type: ignore[attr-defined]
        yield made


def prolog(node: Node) -> str:
    with programs.budget(LAYOUT.command_s):
        try:
            node.session().begin_job(JOB, "x", JUMBO)
        except NicError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0])
def test_a_slow_driver_is_waited_for(node: Node, seconds: float) -> None:
    node.slow.seconds = seconds  # type: ignore[attr-defined]
    begin = node.machine.time
    assert prolog(node) == ""
    assert node.machine.cards["eth1"].mtu == 9000
    assert node.machine.time - begin < LAYOUT.command_s


@pytest.mark.parametrize("seconds", [4.0, 5.0, 7.0, 10.0, 14.0, 100.0])
def test_a_prolog_refuses_before_slurm_kills_it(node: Node, seconds: float) -> None:
    node.session().recover(0.0)
    node.slow.seconds = seconds  # type: ignore[attr-defined]
    begin = node.machine.time
    said = prolog(node)
    assert node.machine.time - begin < LAYOUT.prolog_timeout_s
    if said:
        assert node.store.reason() == "job 7: " + said
        assert "did not end within" in said or "of this command are used up" in said
    else:
        assert node.machine.cards["eth1"].mtu == 9000
    # Whatever it could do: there is a journal of all that is not as it was.
    if not said or node.machine.state() != node.before:
        assert node.store.journal() is not None
    node.slow.seconds = 0.0  # type: ignore[attr-defined]
    node.recover()
    node.check_restored()


def test_the_rollback_has_time_of_its_own(node: Node) -> None:
    """A driver that gets slow in the middle: what is set by then is restored in the same Prolog."""
    slow: Slow = node.slow  # type: ignore[attr-defined]
    real = node.machine._set

    def set_(card: Any, what: str, value: str = "") -> None:
        real(card, what, value)
        if what == "mtu" and value == "9000" and card.name == "eth1":
            slow.machine.time += 160.0  # applying has no second left

    node.machine._set = set_  # type: ignore[method-assign]
    said = prolog(node)
    assert "230 s of this command are used up" in said
    assert said.endswith("all settings were restored")
    node.check_restored()


@pytest.mark.parametrize("seconds", [4.0, 14.0, 100.0])
@pytest.mark.parametrize("journal", [False, True], ids=["idle", "dead job"])
def test_health_says_why_before_slurm_kills_it(
    node: Node, seconds: float, journal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: Slow = node.slow  # type: ignore[attr-defined]
    node.session().recover(0.0)
    if journal:
        assert prolog(node) == ""
        node.simulation.living.clear()
        node.slurmd = node.simulation.spawn()
    monkeypatch.setattr(cli, "session_of", lambda *_: node.session())
    slow.seconds = seconds
    begin = node.machine.time
    assert cli.health(policy(), cli.Arguments(["health"])) != 0
    assert node.machine.time - begin < HEALTH_KILLED_S
    assert len(slow.drained) == 1
    assert "used up" in slow.drained[0] or "did not end within" in slow.drained[0]
    # By hand there is all the time that it takes.
    slow.seconds = min(seconds, 14.0)
    node.session().recover(0.0)
    node.check_restored()


def test_health_says_why_although_a_program_that_hangs_has_the_lock(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is started inherits the lock, and an ethtool in the kernel does not die when killed."""
    slow: Slow = node.slow  # type: ignore[attr-defined]
    node.session().recover(0.0)
    session, real = node.session(), node.store.lock

    @contextlib.contextmanager
    def lock(timeout: float) -> Iterator[None]:
        if slow.hangs:
            raise Busy("another of Seatrial's commands works on this node's NICs")
        with real(timeout):
            yield

    monkeypatch.setattr(session.store, "lock", lock)
    monkeypatch.setattr(cli, "session_of", lambda *_: session)
    slow.seconds = 1000.0
    assert cli.health(policy(), cli.Arguments(["health"])) != 0
    assert slow.hangs
    assert len(slow.drained) == 1
    assert "ethtool did not end within" in slow.drained[0]


def test_a_program_with_a_longer_time_of_its_own_ends_with_the_budget(node: Node) -> None:
    """A driver may take a minute to be loaded."""
    slow: Slow = node.slow  # type: ignore[attr-defined]
    slow.slow, slow.seconds = "modprobe", 1000.0
    begin = node.machine.time
    with programs.budget(20.0):
        answer = programs.run(["modprobe", "-r", "e1000e"], timeout=60.0)
    assert answer.code == 124
    assert "modprobe did not end within 20 s; the 20 s of this command are used up" in answer.err
    assert node.machine.time - begin < 25.0


def test_without_a_limit_there_is_none(node: Node) -> None:
    node.slow.seconds = 14.0  # type: ignore[attr-defined]
    with programs.budget(cli.Arguments(["recover"]).seconds):
        node.session().begin_job(JOB, "x", JUMBO)
    assert node.machine.cards["eth1"].mtu == 9000


def test_waiting_for_a_link_is_part_of_it(node: Node) -> None:
    node.machine.link_after = 1000.0
    action = nic.links.wait_for_link("x", "eth1", 900.0)
    node.machine._up(node.machine.cards["eth1"], False)
    node.machine.sync()
    begin = node.machine.time
    with programs.budget(20.0), pytest.raises(nic.SettingRefused, match="has no link"):
        nic.Nic().perform(action)
    assert node.machine.time - begin < 25.0


def test_the_lock_leaves_half_of_the_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    session = node.session()
    real = session.store.lock
    monkeypatch.setattr(session.store, "lock", lambda s: (waits.append(s), real(s))[1])
    with programs.budget(50.0):
        session.begin_job(JOB, "default")
    session.begin_job(JOB, "default")
    assert waits == [25.0, 40.0]


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1e9", "²"])
def test_seconds_that_are_none(text: str) -> None:
    with pytest.raises(cli.BadInput):
        cli.Arguments(["prolog", "--seconds", text])


def test_a_hanging_program_is_not_waited_for_twice(node: Node) -> None:
    node.slow.seconds = 1000.0  # type: ignore[attr-defined]
    begin = node.machine.time
    with pytest.raises(Refused, match="ethtool did not end within 15 s"):
        node.session().begin_job(JOB, "x", JUMBO)
    assert node.machine.time - begin < 20.0
