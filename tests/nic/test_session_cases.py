"""Single cases of the state machine, each step of them: what random orders would rarely meet."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_node import FakeNic, FakeWorld, Fuse, Killed, MortalStore, OpenGuard, Simulation
from test_session_machine import SETTINGS, policy

from seatrial.nic.node.errors import Late, NicError, Refused, Unrestored
from seatrial.nic.node.owner import BY_HAND, GRACE_S
from seatrial.nic.node.session import Job, Session
from seatrial.nic.node.store import JOURNAL, SECOND, TOMBSTONES_KEPT_S, Busy, Tombstone

JOB = Job("7", "0", "1000")
OTHER = Job("8", "0", "1000")
NAMES = [name for name in sorted(SETTINGS) if name != "default"]


class Node:
    def __init__(self, folder: Path) -> None:
        self.fuse = Fuse()
        self.nic = FakeNic(self.fuse)
        self.store = MortalStore(folder / "state", self.fuse)
        self.simulation = Simulation()
        self.slurmd = self.simulation.spawn()
        self.before = self.nic.exact()

    def session(self, world: FakeWorld | None = None) -> Session:
        world = world or FakeWorld(self.simulation, self.slurmd)
        return Session(policy(), self.store, self.nic, world, OpenGuard())

    def check_clean(self) -> None:
        assert self.nic.exact() == self.before
        assert self.store.journal() is None

    def check_written_down(self) -> None:
        """What differs is in the journal, and so is what it was."""
        if self.nic.exact() != self.before:
            assert self.store.journal() is not None

    def slurmd_dies(self) -> None:
        self.simulation.living.clear()
        self.slurmd = self.simulation.spawn()


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where that can be: all is synced again and again."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


@pytest.fixture
def node(folder: Path) -> Node:
    return Node(folder)


def each_step(folder: Path, act: Callable[[Node], Any]) -> Iterator[tuple[Node, int]]:
    """A fresh node for each operation of ``act``, with that operation's number."""
    first = Node(folder / "first")
    first.fuse.left = 10_000
    act(first)
    for number in range(10_000 - (first.fuse.left or 0)):
        yield Node(folder / str(number)), number


@pytest.mark.parametrize("name", NAMES)
def test_a_prolog_that_dies_at_any_step(folder: Path, name: str) -> None:
    for node, step in each_step(folder, lambda one: one.session().begin_job(JOB, name)):
        node.fuse.left = step
        with pytest.raises(Killed):
            node.session().begin_job(JOB, name)
        node.check_written_down()
        # It may end by the next job, by the Epilog, or by the node itself.
        if step % 3 == 0:
            node.slurmd_dies()
            node.session().begin_job(OTHER, "default")
        elif step % 3 == 1:
            node.session().end_job(JOB, True)
        else:
            node.slurmd_dies()
            node.session().recover(0.0)
        node.check_clean()


@pytest.mark.parametrize("name", NAMES)
def test_an_epilog_that_dies_at_any_step(folder: Path, name: str) -> None:
    def whole(one: Node) -> None:
        one.session().begin_job(JOB, name)
        one.fuse.left = 10_000
        one.session().end_job(JOB, True)

    for node, step in each_step(folder, whole):
        node.session().begin_job(JOB, name)
        node.fuse.left = step
        with pytest.raises(Killed):
            node.session().end_job(JOB, True)
        node.check_written_down()
        if step % 2:
            node.session().end_job(JOB, True)
        else:
            node.slurmd_dies()
            node.session().recover(0.0)
        node.check_clean()


@pytest.mark.parametrize("how", ["epilog", "slurmd"])
def test_nobody_waits_any_more_at_any_step(folder: Path, how: str) -> None:
    """The Epilog comes to the lock, or slurmd dies, while the Prolog works: it leaves nothing."""
    late = 0
    for node, step in each_step(folder, lambda one: one.session().begin_job(JOB, "bulk")):

        def happens(node: Node = node) -> None:
            if how == "epilog":
                world = FakeWorld(node.simulation, node.slurmd)
                grave = Tombstone(world.started, world.boot_id())
                node.store.write_tombstone(JOB.id, JOB.restart, grave)
            else:
                node.simulation.kill(node.slurmd)

        node.fuse.left, node.fuse.hook = step, happens
        try:
            node.session().begin_job(JOB, "bulk")
        except Late:
            late += 1
            node.check_clean()
            assert node.store.reason() is None
        else:
            # It was done by then, and whoever came finds the journal.
            journal = node.store.journal()
            assert journal is not None
            assert journal["phase"] == "applied"
            assert late
    assert late


def test_a_rate_limit_replaces_no_discipline_that_somebody_chose(node: Node) -> None:
    node.nic.raw["qdisc"] = 'htb {"r2q": 10}'
    before = node.nic.exact()
    with pytest.raises(Refused, match=r"eth1 has a queueing discipline of its own \(htb .*exactly"):
        node.session().begin_job(JOB, "bulk")
    assert node.nic.exact() == before
    assert node.store.journal() is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", ["mtu", "coalesce.rx-usecs", "rps_cpus", "egress_bit_s"])
def test_a_refusal_is_rolled_back_and_named(node: Node, name: str, setting: str) -> None:
    node.nic.refuses = {setting}
    if setting in SETTINGS[name]:
        word = "rps.rx-0" if setting == "rps_cpus" else setting.replace(".", r"\.")
        with pytest.raises(Refused, match=f"{name}: .*{word}.*all settings were restored"):
            node.session().begin_job(JOB, name)
        assert setting.partition("_")[0] in (node.store.reason() or "")
    else:
        node.session().begin_job(JOB, name)
        node.session().end_job(JOB, True)
    node.check_clean()


# -- a boot


@pytest.mark.parametrize("how", ["take", "end_job", "recover"])
def test_what_a_boot_changed_is_not_put_back(node: Node, how: str) -> None:
    """The node came up with another MTU than it had: the old journal has no say any more."""
    node.session().begin_job(JOB, "jumbo")
    node.simulation.boot += 1
    node.simulation.living.clear()
    node.slurmd = node.simulation.spawn()
    node.nic.reboot()
    node.nic.raw["mtu"] = 4000
    node.before = node.nic.exact()
    session = node.session()
    {
        "take": lambda: session.begin_job(OTHER, "default"),
        "end_job": lambda: session.end_job(JOB, True),
        "recover": lambda: session.recover(0.0),
    }[how]()
    node.check_clean()


def test_a_read_only_state_folder_is_the_reason(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    node.store.prepare()
    for name in ("write", "remove", "_sync_folder"):
        monkeypatch.setattr(node.store, name, refuse)
    with pytest.raises(Refused, match=r"journal cannot be written: .*nothing was changed"):
        node.session().begin_job(JOB, "jumbo")
    node.check_clean()


@pytest.mark.parametrize("began", ["before the Epilog", "while it ran", "after its end"])
def test_only_a_prolog_that_began_after_the_epilog_is_of_a_later_start(
    node: Node, began: str
) -> None:
    """slurmd 22.05 may start both at once, for a job that is cancelled as it starts."""
    before = node.session()
    node.simulation.time += 1
    epilog = node.session()
    node.simulation.time += 1
    meanwhile = node.session()
    node.simulation.time += 1
    epilog.end_job(JOB, True)
    if began == "after its end":
        node.simulation.time += 1
        node.session().begin_job(JOB, "jumbo")
        assert node.nic.raw["mtu"] == 9000
    else:
        with pytest.raises(Late, match="the job's Epilog has run already"):
            (before if began == "before the Epilog" else meanwhile).begin_job(JOB, "jumbo")
        node.check_clean()


def test_an_orphaned_epilog_does_not_make_a_later_start_late(node: Node) -> None:
    """Its slurmd has died, so the next one does not wait for its end."""
    epilog = node.session()
    node.slurmd_dies()
    later = node.session()
    node.simulation.time += 1
    epilog.end_job(JOB, True)
    later.begin_job(JOB, "jumbo")
    assert node.nic.raw["mtu"] == 9000


def test_a_grave_of_an_earlier_boot_says_nothing(node: Node) -> None:
    """Its time is of another clock, which may be ahead."""
    node.store.write_tombstone(JOB.id, JOB.restart, Tombstone(10**6, "boot-0"))
    node.session().begin_job(JOB, "jumbo")
    assert node.nic.raw["mtu"] == 9000


def test_a_prolog_that_is_older_than_any_tombstone_leaves_nothing(node: Node) -> None:
    """Whatever kept it: nobody can tell any more whether its job has ended."""
    world = FakeWorld(node.simulation, node.slurmd)
    node.store.write_tombstone(JOB.id, JOB.restart, Tombstone(world.now(), world.boot_id()))
    node.simulation.time += 2 * TOMBSTONES_KEPT_S
    node.store.prepare()
    node.store.remove_old_tombstones(world.now(), world.boot_id())
    with pytest.raises(Late, match="began 3600 s ago"):
        node.session(world).begin_job(JOB, "jumbo")
    node.check_clean()


# -- owners


def test_jobs_of_two_clusters_with_the_same_id_are_two_jobs(node: Node) -> None:
    """Each cluster has a slurmd on this node."""
    first, second = JOB._replace(cluster="a"), JOB._replace(cluster="b")
    node.session().begin_job(first, "bulk")
    node.simulation.steps.add("7")
    with pytest.raises(Refused, match="bulk is in force for job 7 of cluster a"):
        node.session().begin_job(second, "bulk")
    node.session().end_job(second, True)
    journal = node.store.journal()
    assert journal
    assert (journal["job"], journal["cluster"]) == ("7", "a")
    node.simulation.steps.clear()
    node.session().end_job(first, True)
    node.check_clean()


def test_an_epilog_of_another_cluster_makes_no_prolog_late(node: Node) -> None:
    late = node.session()
    node.simulation.time += 1
    node.session().end_job(JOB._replace(cluster="b"), True)
    late.begin_job(JOB._replace(cluster="a"), "bulk")
    node.session().end_job(JOB._replace(cluster="a"), True)
    with pytest.raises(Late):
        late.begin_job(JOB._replace(cluster="a"), "bulk")
    node.check_clean()


@pytest.mark.parametrize(("began", "ended"), [("", "a"), ("a", "")])
def test_a_journal_and_a_tombstone_without_a_cluster_are_of_any(
    node: Node, began: str, ended: str
) -> None:
    """Those of an earlier release, or of a slurmd that does not name its cluster."""
    late = node.session()
    node.session().begin_job(JOB._replace(cluster=began), "bulk")
    journal = node.store.journal()
    assert journal
    if not began:
        del journal["cluster"]
        node.store.save_journal(journal)
    node.simulation.time += 1
    node.session().end_job(JOB._replace(cluster=ended), True)
    node.check_clean()
    if not ended:
        with pytest.raises(Late):
            late.begin_job(JOB._replace(cluster=began), "bulk")
    node.check_clean()


def test_an_epilog_waits_for_the_steps_of_its_job(node: Node) -> None:
    node.session().begin_job(JOB, "jumbo")
    node.simulation.steps.add(JOB.id)
    world = FakeWorld(node.simulation, node.slurmd)
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(node.nic.raw["mtu"])
        node.simulation.time += seconds
        if len(naps) == 5:
            node.simulation.steps.clear()

    world.sleep = sleep  # type: ignore[method-assign]
    node.session(world).end_job(JOB, True)
    assert naps == [9000] * 5
    node.check_clean()


def test_steps_that_do_not_end_keep_the_node_out(node: Node) -> None:
    node.session().begin_job(JOB, "jumbo")
    node.simulation.steps.add(JOB.id)
    with pytest.raises(Unrestored, match="processes of job 7 still run"):
        node.session().end_job(JOB, True)
    assert node.nic.raw["mtu"] == 9000
    node.simulation.steps.clear()
    node.session().end_job(JOB, True)
    node.check_clean()


def test_what_was_applied_by_hand_outlives_everything_but_restore(node: Node) -> None:
    node.session(FakeWorld(node.simulation, None)).begin_job(Job(BY_HAND, "0", "0"), "jumbo")
    node.slurmd_dies()
    node.simulation.time += 10 * GRACE_S
    assert "by hand" in node.session().recover(0.0)
    with pytest.raises(Refused, match="by hand"):
        node.session().begin_job(JOB, "default")
    assert node.nic.raw["mtu"] == 9000
    node.session().recover(0.0, force=True)
    node.check_clean()


def test_a_job_that_is_about_to_have_its_steps_is_left_alone(node: Node) -> None:
    node.session().begin_job(JOB, "jumbo")
    for _ in range(2):
        with pytest.raises(Refused, match="in force for job 7"):
            node.session().begin_job(OTHER, "bulk")
        assert "in force for job 7" in node.session().recover(0.0)
        # Between the end of its Prolog and its first step there is no process of it.
        node.simulation.living = {node.slurmd[0]}
    node.simulation.steps.add(JOB.id)
    node.simulation.time += 10 * GRACE_S
    assert "in force for job 7" in node.session().recover(0.0)
    assert node.nic.raw["mtu"] == 9000
    # Nor is it by another job's Epilog.
    node.session().end_job(OTHER, True)
    assert node.nic.raw["mtu"] == 9000
    # One that never had any, after a while.
    node.simulation.steps.clear()
    node.simulation.living = {node.slurmd[0]}
    assert "was undone" in node.session().recover(0.0)
    node.check_clean()


def test_a_slurmd_that_dies_takes_no_running_jobs_profile_along(node: Node) -> None:
    node.session().begin_job(JOB, "jumbo")
    node.simulation.steps.add(JOB.id)
    node.slurmd_dies()
    assert "in force for job 7" in node.session().recover(0.0)
    node.simulation.steps.clear()
    node.session().recover(0.0)
    node.check_clean()


def test_an_orphaned_epilog_leaves_a_later_start_of_its_job_alone(node: Node) -> None:
    old = FakeWorld(node.simulation, node.slurmd)
    node.slurmd_dies()
    node.simulation.time += 1
    node.session().begin_job(JOB, "jumbo")
    node.session(old).end_job(JOB, True)
    assert node.nic.raw["mtu"] == 9000
    node.session().end_job(JOB, True)
    node.check_clean()


def test_an_epilog_that_cannot_have_the_lock_drains(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.session().begin_job(JOB, "jumbo")

    def busy(_: float) -> Any:
        raise Busy("another command works on this node's NICs")

    monkeypatch.setattr(node.store, "lock", busy)
    with pytest.raises(Unrestored, match="another command"):
        node.session().end_job(JOB, True)
    assert "not restored" in (node.store.reason() or "")


def test_a_prolog_that_cannot_have_the_lock_says_why(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.session().recover(0.0)

    def busy(_: float) -> Any:
        raise Busy("another command works on this node's NICs")

    monkeypatch.setattr(node.store, "lock", busy)
    with pytest.raises(Refused, match="another command"):
        node.session().begin_job(JOB, "jumbo")
    assert node.store.reason() == "job 7: another command works on this node's NICs"
    node.store.remove("reason")
    orphan = FakeWorld(node.simulation, node.slurmd)
    node.slurmd_dies()
    with pytest.raises(Late):
        node.session(orphan).begin_job(JOB, "jumbo")
    assert node.store.reason() is None


# -- drift and damage


def test_settings_that_nobody_owns_are_never_taken_for_the_nodes_own(node: Node) -> None:
    node.session().recover(0.0)
    node.nic.raw["mtu"] = 4000
    for name in ("jumbo", "bulk"):
        with pytest.raises(NicError, match="no profile owns these settings: eth1: mtu is 4000"):
            node.session().begin_job(JOB, name)
    with pytest.raises(Unrestored, match="no profile owns"):
        node.session().recover(0.0)
    assert node.nic.raw["mtu"] == 4000
    assert node.store.journal() is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["take", "end_job", "recover"])
def test_a_damaged_journal_ends_in_the_state_at_boot(node: Node, name: str, how: str) -> None:
    """Put back, verified, and yet the node is to be looked at once."""
    seen = node.nic.state()
    node.session().begin_job(JOB, name)
    for file in (JOURNAL, SECOND):
        Path(node.store.path(file)).write_text("x")
    session = node.session()
    acts: dict[str, Callable[[], Any]] = {
        "take": lambda: session.begin_job(OTHER, "default"),
        "end_job": lambda: session.end_job(JOB, True),
        "recover": lambda: session.recover(0.0),
    }
    with pytest.raises(Unrestored, match="verified"):
        acts[how]()
    assert node.nic.state() == seen
    assert node.store.journal() is None
    node.session().recover(0.0)


def test_a_damaged_journal_that_cannot_be_mended_stays(node: Node) -> None:
    node.session().begin_job(JOB, "jumbo")
    for file in (JOURNAL, SECOND):
        Path(node.store.path(file)).write_text("x")
    node.nic.refuses = {"mtu"}
    for _ in range(2):
        with pytest.raises(Unrestored, match="mtu is 9000"):
            node.session().recover(0.0)
    node.nic.refuses = set()
    with pytest.raises(Unrestored, match="verified"):
        node.session().recover(0.0)
    node.check_clean()


def test_a_state_that_cannot_be_verified_keeps_its_journal(node: Node) -> None:
    node.session().begin_job(JOB, "bulk")
    node.nic.refuses = {"ring.rx"}
    with pytest.raises(Unrestored, match=r"ring\.rx is 512, was 256 before"):
        node.session().end_job(JOB, True)
    assert node.store.journal() is not None
    node.nic.refuses = set()
    node.session().end_job(JOB, True)
    node.check_clean()


# -- drivers


def test_a_driver_that_forgets_one_setting_with_another(node: Node) -> None:
    """Only a second look finds it, when applying as when restoring."""
    real = node.nic._set

    def forgetful(key: str, value: Any, name: str = "") -> None:
        real(key, value, name)
        if key.startswith("coalesce."):
            node.nic.raw["ring.rx"] = 256

    node.nic._set = forgetful  # type: ignore[method-assign]
    node.session().begin_job(JOB, "bulk")
    assert node.nic.raw["ring.rx"] == 512
    node.session().end_job(JOB, True)
    node.check_clean()


@pytest.mark.parametrize("setting", ["mtu", "coalesce.rx-usecs", "ring.rx", "qdisc"])
def test_a_driver_that_says_yes_and_does_nothing(node: Node, setting: str) -> None:
    real = node.nic._set

    def deaf(key: str, value: Any, name: str = "") -> None:
        if key != setting:
            real(key, value, name)

    node.nic._set = deaf  # type: ignore[method-assign]
    with pytest.raises(Refused, match=r"bulk: .* set to .*, is .*; all settings were restored"):
        node.session().begin_job(JOB, "bulk")
    node.check_clean()


def test_a_switch_that_was_turned_off_comes_back_without_a_link(node: Node) -> None:
    """Drivers show other values of flow control without a link, so these are not compared then."""
    shown = node.nic.shown_by["6.1"] = {"pause.link": 1}
    wanted = {"pause.rx": "off", "pause.tx": "on"}
    node.session().begin_job(JOB, "flow", {"interfaces": {"eth1": wanted}})
    assert node.nic.raw["pause.autoneg"] == "off"
    shown["pause.link"] = 0
    node.session().end_job(JOB, True)
    node.check_clean()
