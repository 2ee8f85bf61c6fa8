"""Driver reloads and bonds: whatever refuses, dies or comes back otherwise, all is as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fake_machine import MACS, MODULE, Machine, furnish
from fake_node import FakeWorld, Fuse, Killed, MortalStore, OpenGuard, Simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns import rounds
from seatrial.nic.node import links, programs
from seatrial.nic.node.actions import text_of
from seatrial.nic.node.errors import NicError, Refused, Unrestored
from seatrial.nic.node.nic import Nic
from seatrial.nic.node.policy import Policy
from seatrial.nic.node.session import Job, Session

DRIVER = {"module": MODULE, "parameters": {"InterruptThrottleRate": "0,0"}, "link_timeout_s": 5}
BOND = {"name": "bond1", "mode": "balance-rr", "members": ["eth1", "eth2"], "miimon_ms": 50}
PROFILES: dict[str, dict[str, Any]] = {
    "reload": {"eth1": {"driver": DRIVER, "mtu": 9000}, "eth2": {"txqueuelen": 500}},
    "one": {"eth1": {"driver": DRIVER}},
    "bond": {"eth1": {"bond": BOND, "mtu": 9000}, "eth2": {"mtu": 9000}},
    "plain_bond": {"eth1": {"bond": BOND}},
    "both": {"eth1": {"bond": BOND, "driver": DRIVER, "mtu": 6000}, "eth2": {"mtu": 6000}},
}
JOB = Job("7", "0", "1000")


def policy() -> Policy:
    data = {
        "schema": 1, "digest": "x", "feature_prefix": "nic_", "state_folder": "/nowhere",
        "protected": [], "nodes": {"n1": ["eth1", "eth2"]},
        "profiles": {name: {"feature": "nic_" + name, "nodes": ["n1"], "interfaces": wanted}
                     for name, wanted in PROFILES.items()},
    }  # fmt: skip
    return Policy(data, hostname="n1")


class Node:
    """A machine, what it remembers, and Slurm's processes on it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.fuse = Fuse()
        self.machine = Machine(folder / "sys", patch, self.fuse)
        furnish(self.machine)
        self.before = self.machine.state()
        self.store = MortalStore(folder / "state", self.fuse)
        self.simulation = Simulation()
        self.slurmd = self.simulation.spawn()

    def session(self) -> Session:
        world = FakeWorld(self.simulation, self.slurmd)
        return Session(policy(), self.store, Nic(), world, OpenGuard())

    def dying(self, act: Callable[[], Any], death: int | None) -> bool:
        """Whether it was killed, after so many operations."""
        self.machine.sync()
        self.fuse.left = death
        try:
            act()
            return False
        except Killed:
            return True
        finally:
            self.fuse.left = None

    def take(self, profile: str, death: int | None = None) -> bool:
        return self.dying(lambda: self.session().begin_job(JOB, profile), death)

    def recover(self, death: int | None = None) -> bool:
        """The job's owner is dead; so is whoever recovered before."""
        self.simulation.living.clear()
        self.slurmd = self.simulation.spawn()
        # What the dead had started goes on for a while.
        self.machine.tick(3.0)
        return self.dying(lambda: self.session().recover(0.0), death)

    def check_restored(self) -> None:
        assert self.machine.state() == self.before
        assert self.store.journal() is None


@contextmanager
def a_node() -> Iterator[Node]:
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=shared))
    try:
        with pytest.MonkeyPatch.context() as patch:
            yield Node(folder, patch)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def node() -> Iterator[Node]:
    with a_node() as made:
        yield made


# -- all goes well


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_there_and_back(node: Node, profile: str) -> None:
    node.take(profile)
    assert node.machine.state() != node.before
    node.session().end_job(JOB, True)
    node.check_restored()


def test_a_reload_takes_nothing_away_but_what_the_parameters_change(node: Node) -> None:
    node.take("reload")
    during = node.machine.state()
    assert during["loaded"] == {MODULE: {"InterruptThrottleRate": "0,0"}}
    wanted = {"eth1": {"mtu": 9000}, "eth2": {"queue": 500}}
    for name, card in during["cards"].items():
        assert card == {**node.before["cards"][name], **wanted[name]}
    # An application that starts now finds its links up.
    assert all(node.machine._has_link(card) for card in node.machine.cards.values())


def test_a_bond_and_its_members_have_the_profiles_mtu(node: Node) -> None:
    node.take("bond")
    cards = node.machine.cards
    assert {name: card.mtu for name, card in cards.items()} == {
        "bond1": 9000, "eth1": 9000, "eth2": 9000,
    }  # fmt: skip
    assert [card.master for card in cards.values()] == ["bond1", "bond1", ""]
    # It has the first member's addresses and routes, the second's are gone.
    locals_ = [address["local"] for address in cards["bond1"].addresses]
    assert locals_ == ["10.1.0.1", "10.1.0.9", "fd01::1"]
    assert sorted(cards["bond1"].routes) == sorted(node_routes(node))
    assert not cards["eth2"].addresses
    assert cards["bond1"].up


def node_routes(node: Node) -> list[list[str]]:
    return [route.split() for route in node.before["cards"]["eth1"]["routes"]]


def test_without_an_mtu_of_its_own_a_bond_has_its_first_members(node: Node) -> None:
    node.machine.cards["eth1"].mtu = 8000
    node.before = node.machine.state()
    node.take("plain_bond")
    assert {card.mtu for card in node.machine.cards.values()} == {8000}
    node.session().end_job(JOB, True)
    node.check_restored()


def test_a_bond_does_not_leave_the_one_that_its_module_makes(node: Node) -> None:
    node.machine.bonding = False
    node.machine.sync()
    node.take("bond")
    assert "bond0" not in node.machine.cards
    node.session().end_job(JOB, True)
    node.check_restored()


def test_an_interface_that_was_down_is_down_again(node: Node) -> None:
    card = node.machine.cards["eth2"]
    node.machine._up(card, False)
    node.machine.sync()
    node.before = node.machine.state()
    for profile in ("reload", "bond"):
        node.take(profile)
        node.session().end_job(JOB, True)
        node.check_restored()


def test_a_mac_address_that_was_chosen_comes_back(node: Node) -> None:
    node.machine.cards["eth1"].mac = "02:aa:aa:aa:aa:aa"
    node.machine.sync()
    node.before = node.machine.state()
    for profile in ("reload", "bond"):
        node.take(profile)
        if profile == "reload":
            assert node.machine.cards["eth1"].mac == "02:aa:aa:aa:aa:aa"
        node.session().end_job(JOB, True)
        node.check_restored()


# -- the journal


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_journal_has_all_that_is_lost(node: Node, profile: str) -> None:
    """Members and other interfaces of a driver too, whether the profile sets them or not."""
    node.take(profile)
    journal = node.store.journal()
    assert journal
    assert sorted(journal["interfaces"]) == ["eth1", "eth2"]
    for name, part in journal["interfaces"].items():
        assert part["before"]["mtu"] == node.before["cards"][name]["mtu"]
        assert part["link"]["permanent"] == MACS[name]
        assert part["link"]["addresses"]


# -- names


@pytest.mark.parametrize(
    "names",
    [
        {"eth1": "eth7"},
        {"eth1": "eth7", "eth2": "eth8"},
        {"eth1": "eth2", "eth2": "eth1"},
        {"eth2": "eth1", "eth1": "eth3"},
    ],
)
@pytest.mark.parametrize("udev_after", [None, 0.4])
def test_other_names_after_a_reload(
    node: Node, names: dict[str, str], udev_after: float | None
) -> None:
    """Interfaces are known by their permanent address, also where they have exchanged names."""
    node.machine.kernel_names = names
    node.machine.udev_after = udev_after
    node.take("reload")
    assert {name: card.permanent for name, card in node.machine.cards.items()} == MACS
    assert node.machine.cards["eth1"].mtu == 9000
    node.session().end_job(JOB, True)
    node.check_restored()


def test_names_are_left_to_udev_for_a_moment(node: Node) -> None:
    node.machine.kernel_names, node.machine.udev_after = {"eth1": "eth7"}, 0.4
    node.take("reload")
    assert not [line for line in node.machine.log if " name " in line]


def test_an_interface_that_does_not_come_back(node: Node) -> None:
    """Refused and said, and put back where it can be; else the node must not stay in service."""
    node.machine.lost = {"eth2"}
    with pytest.raises(Unrestored, match="eth2") as caught:
        node.take("reload")
    assert "eth2 did not come back within 5 s" in str(caught.value)
    journal = node.store.journal()
    assert journal is not None
    # The other one is as it was, and the operator's recover ends it once the card is there.
    assert node.machine.state()["cards"]["eth1"] == node.before["cards"]["eth1"]
    node.machine.lost = set()
    node.recover()
    node.check_restored()


def test_no_link_after_a_reload_is_refused(node: Node) -> None:
    node.machine.link_after = 20.0
    node.machine.tick(60)
    with pytest.raises(Refused, match="eth1 has no link within 5 s"):
        node.take("reload")
    node.check_restored()


# -- refusals before anything is changed


def test_a_bond_that_is_there_already_is_not_touched(node: Node) -> None:
    node.machine._new("bond1", bond=True)
    node.machine.sync()
    node.before = node.machine.state()
    with pytest.raises(Refused, match="there is an interface bond1 already"):
        node.take("bond")
    node.check_restored()
    assert node.machine.log == []


@pytest.mark.parametrize("profile", ["reload", "bond"])
def test_what_stands_on_an_interface_would_be_lost(node: Node, profile: str) -> None:
    node.machine._new("bond9", bond=True)
    node.machine.cards["eth2"].master = "bond9"
    node.machine.sync()
    with pytest.raises(Refused, match="eth2 carries bond9"):
        node.take(profile)
    assert node.machine.log == []
    assert node.store.journal() is None


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"driver": {"module": "-r", "parameters": {}}}, "has the driver"),
        ({"driver": {"module": MODULE, "parameters": {"a": "1 b=2"}}}, "not a module"),
        ({"driver": {"module": MODULE, "parameters": {"-f": "1"}}}, "not a module"),
        ({"bond": {**BOND, "name": "../x"}}, "no name"),
        ({"bond": {**BOND, "name": "-x"}}, "no name"),
    ],
)
def test_words_that_a_program_could_misunderstand(
    node: Node, settings_: dict[str, Any], word: str
) -> None:
    with pytest.raises(Refused, match=word):
        node.session().begin_job(JOB, "x", {"interfaces": {"eth1": settings_}})
    assert node.machine.log == []
    assert node.store.journal() is None


def test_a_module_that_does_not_drive_the_interface_is_refused(node: Node) -> None:
    """A reload of it would be reported as applied, and change nothing there."""
    wanted = {"eth1": {"driver": {**DRIVER, "module": "igb"}}}
    with pytest.raises(Refused, match=f"eth1 has the driver {MODULE}, not igb"):
        node.session().begin_job(JOB, "x", {"interfaces": wanted})
    assert node.machine.log == []
    assert node.store.journal() is None


def test_a_route_over_several_interfaces_cannot_be_put_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = {"dst": "10.8.0.0/16", "nexthops": [{"dev": "eth1"}, {"dev": "eth2"}]}
    real = node.machine._shown
    monkeypatch.setattr(node.machine, "_shown", lambda words: [*real(words), several])
    with pytest.raises(Refused, match=r"route to 10\.8\.0\.0/16"):
        node.take("reload")
    assert node.machine.log == []


@pytest.mark.parametrize("more", [{"dev": "eth1", "gateway": "10.1.0.2"}, {}])
def test_a_next_hop_object_cannot_be_restored(
    node: Node, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    """Some kernels name only its number with the route."""
    row = {"dst": "10.8.0.0/16", "nhid": 7, **more}
    real = node.machine._shown
    monkeypatch.setattr(node.machine, "_shown", lambda words: [*real(words), row])
    with pytest.raises(Refused, match=r"route to 10\.8\.0\.0/16 goes over a next hop object"):
        node.take("reload")
    assert node.machine.log == []


# -- a program refuses in the middle


def commands(profile: str) -> list[str]:
    with a_node() as made:
        made.take(profile)
        return made.machine.log


CASES = [
    (profile, line) for profile in ("reload", "both") for line in dict.fromkeys(commands(profile))
]


@pytest.mark.parametrize(("profile", "line"), CASES)
def test_any_command_is_refused(node: Node, profile: str, line: str) -> None:
    """Once, while the profile is applied: all is put back and the sentence says what was said."""
    failed = False
    real = node.machine.run

    def run(argv: Any, timeout: float = 0) -> Any:
        nonlocal failed
        if " ".join(map(str, argv)) == line and not failed:
            failed = True
            node.machine.fails = {line: "computer says no"}
        answer = real(argv, timeout)
        node.machine.fails = {}
        return answer

    programs.run = run  # type: ignore[assignment]  # undone with the node's own patch
    with pytest.raises(Refused, match="computer says no"):
        node.take(profile)
    node.check_restored()


@pytest.mark.parametrize("profile", ["reload", "both"])
def test_a_module_in_use_is_never_taken_for_loaded_anew(node: Node, profile: str) -> None:
    node.take(profile)
    node.machine.fails = {"modprobe -r": "FATAL: Module e1000e is in use."}
    with pytest.raises(Unrestored, match="not reloaded") as caught:
        node.session().end_job(JOB, True)
    assert "in use" in str(caught.value)
    node.machine.fails = {}
    node.recover()
    node.check_restored()


def test_a_module_that_cannot_be_removed_is_refused_and_nothing_lost(node: Node) -> None:
    node.machine.fails = {"modprobe -r": "FATAL: Module e1000e is in use."}
    with pytest.raises(Refused, match="in use"):
        node.take("reload")
    node.check_restored()


def test_a_driver_that_refuses_its_parameters(node: Node) -> None:
    node.machine.fails = {f"modprobe {MODULE} Int": "could not insert: Invalid argument"}
    with pytest.raises(Refused, match="Invalid argument"):
        node.take("reload")
    node.check_restored()


def test_a_member_that_refuses(node: Node) -> None:
    node.machine.fails = {
        "ip link set dev eth2 master": "RTNETLINK answers: Operation not permitted"
    }
    with pytest.raises(Refused, match="not permitted"):
        node.take("bond")
    node.check_restored()


def test_a_bond_that_stays_is_seen(node: Node) -> None:
    node.take("bond")
    node.machine.fails = {"ip link del": "RTNETLINK answers: Operation not permitted",
                          "ip address replace": "RTNETLINK answers: Invalid argument"}  # fmt: skip
    with pytest.raises(Unrestored, match="master is bond1"):
        node.session().end_job(JOB, True)
    node.machine.fails = {}
    node.recover()
    node.check_restored()


def test_a_bond_that_stays_is_seen_where_a_reload_freed_its_members(node: Node) -> None:
    node.take("both")
    node.machine.fails = {"ip link del": "RTNETLINK answers: Operation not permitted"}
    with pytest.raises(Unrestored, match="bond1 is still there"):
        node.session().end_job(JOB, True)
    assert node.store.journal() is not None
    node.machine.fails = {}
    node.recover()
    node.check_restored()


def test_an_interface_of_another_kind_under_the_bonds_name_is_left_alone(node: Node) -> None:
    node.take("bond")
    node.machine._ip(["link", "del", "dev", "bond1"])
    node.machine._new("bond1")
    node.machine.sync()
    with pytest.raises(Unrestored, match="bond1 is no bond"):
        node.session().end_job(JOB, True)
    assert "bond1" in node.machine.cards
    del node.machine.cards["bond1"]
    node.machine.sync()
    node.recover()
    node.check_restored()


def test_a_bond_that_somebody_removed(node: Node) -> None:
    node.take("bond")
    node.machine._ip(["link", "del", "dev", "bond1"])
    node.machine.sync()
    node.session().end_job(JOB, True)
    node.check_restored()


def test_addresses_that_cannot_be_put_back_keep_the_node_out(node: Node) -> None:
    node.take("reload")
    node.machine.fails = {"ip -6 route replace fd05": "RTNETLINK answers: No route to host"}
    with pytest.raises(Unrestored, match="-6 fd05::/64 via fd01::2 metric 512 is gone"):
        node.session().end_job(JOB, True)
    node.machine.fails = {}
    node.recover()
    node.check_restored()


def test_an_address_that_was_not_there_is_taken_away(node: Node) -> None:
    """A program of the node that gives every new interface one."""
    node.take("reload")
    real = node.machine._appear

    def appear(name: str) -> None:
        real(name)
        node.machine.cards[name].addresses.append(
            {"family": "inet", "local": "169.254.1.1", "prefixlen": 16, "label": name}
        )

    node.machine._appear = appear  # type: ignore[method-assign]
    node.session().end_job(JOB, True)
    node.check_restored()


# -- deaths


def operations(profile: str) -> int:
    with a_node() as made:
        made.fuse.left = 10_000
        made.session().begin_job(JOB, profile)
        return 10_000 - (made.fuse.left or 0)


DEATHS = [(profile, n) for profile in ("reload", "both") for n in range(operations(profile))]


@pytest.mark.parametrize(("profile", "death"), DEATHS)
def test_a_death_at_any_step_of_applying(node: Node, profile: str, death: int) -> None:
    assert node.take(profile, death)
    node.recover()
    node.check_restored()


@settings(max_examples=rounds(20, 500))
@given(
    st.sampled_from(sorted(PROFILES)),
    st.integers(0, 80),
    st.lists(st.integers(0, 60), max_size=3),
    st.sampled_from([{}, {"eth1": "eth2", "eth2": "eth1"}, {"eth1": "eth5"}]),
)
def test_deaths_while_recovering_too(
    profile: str, death: int, deaths: list[int], names: dict[str, str]
) -> None:
    with a_node() as made:
        made.machine.kernel_names = names
        made.take(profile, death)
        for one in deaths:
            made.recover(one)
        made.recover()
        made.check_restored()


@settings(max_examples=rounds(20, 500))
@given(st.data())
def test_refusals_and_deaths_in_any_order(data: st.DataObject) -> None:
    """The journal is there as long as anything differs, and all ends as it was."""
    with a_node() as made:
        for _ in range(data.draw(st.integers(1, 4))):
            made.machine.fails = data.draw(st.sampled_from(
                [{}, {"modprobe -r": "in use"}, {"modprobe e": "no such device"},
                 {"ip link set dev eth2 master": "no"}, {"ip address replace": "no"},
                 {"ip link add": "no"}, {"ip link del": "no"}]
            ))  # fmt: skip
            made.machine.lost = data.draw(st.sampled_from([set(), {"eth1"}]))
            profile = data.draw(st.sampled_from(sorted(PROFILES)))
            act = data.draw(st.sampled_from(["take", "recover"]))
            death = data.draw(st.none() | st.integers(0, 60))
            with suppress(NicError):
                made.take(profile, death) if act == "take" else made.recover(death)
            if made.machine.state() != made.before:
                assert made.store.journal() is not None
        made.machine.fails, made.machine.lost = {}, set()
        made.recover()
        made.check_restored()


# -- words


def test_records_have_all_that_an_address_and_a_route_need() -> None:
    one = {"family": "inet", "local": "10.0.0.1", "address": "10.0.0.2", "prefixlen": 32,
           "scope": "link", "label": "eth1:a", "valid_life_time": 99,
           "noprefixroute": True}  # fmt: skip
    assert links._address(one, "eth1") == [
        "10.0.0.1", "peer", "10.0.0.2/32", "scope", "link", "valid_lft", "99", "noprefixroute",
        "label", "eth1:a",
    ]  # fmt: skip
    assert links._route({"dst": "default", "gateway": "10.0.0.9", "protocol": "dhcp", "metric": 5,
                         "metrics": [{"mtu": 1400}], "flags": ["onlink", "linkdown"]}) == [
        "default", "via", "10.0.0.9", "metric", "5", "proto", "dhcp", "mtu", "1400", "onlink",
    ]  # fmt: skip
    assert links._route({"dst": "10.8.0.0/16", "via": {"family": "inet6", "host": "fe80::1"}}) == [
        "10.8.0.0/16", "via", "inet6", "fe80::1",
    ]  # fmt: skip


def test_lifetimes_that_run_are_no_difference() -> None:
    link = {"up": True, "mac": "", "routes": [], "addresses": [["10.0.0.1/8", "valid_lft", "99"]]}
    later = {**link, "addresses": [["10.0.0.1/8", "valid_lft", "98"]]}
    assert links.differences(link, later) == []
    assert links.differences(link, {**link, "up": False, "addresses": []}) == [
        "up is False, was True", "10.0.0.1/8 is gone",
    ]  # fmt: skip


def test_a_dry_run_says_what_it_would_wait_for(node: Node) -> None:
    session = node.session()
    journal = session.work.prepare(policy().profile("reload"))
    text = "\n".join(text_of(one) for one in session.work.plan(journal))
    assert "modprobe e1000e InterruptThrottleRate=0,0" in text
    assert f"# wait up to 5 s until eth1 is there, known by its MAC address {MACS['eth1']}" in text
    assert "# wait up to 5 s until eth1 has a link" in text
    assert node.machine.log == []
