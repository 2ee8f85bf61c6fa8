"""An interface that was renamed, exchanged or unplugged while a profile was in force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_machine import MODULE
from place import Place, made_place
from test_links import JOB, Node, a_node

from seatrial.nic.node import readers
from seatrial.nic.node.errors import Refused, Unrestored

PROFILES: dict[str, Any] = {"default": {}, "jumbo": {"eth1": {"mtu": 9000, "txqueuelen": 50}}}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    setup = (
        "ip link add eth1 type veth peer name peer1; ip link add tap0 type veth; ip link set lo up"
    )
    with made_place(tmp_path, PROFILES, setup) as made:
        yield made


def begin(place: Place) -> None:
    answer = place.begin("jumbo")
    assert answer.returncode == 0, answer.stderr
    assert place.mtu("eth1") == 9000


@pytest.mark.root
def test_an_interface_that_was_renamed_gets_its_settings_back(place: Place) -> None:
    """Another interface has taken its name: that one is not changed."""
    begin(place)
    place.ip("link", "set", "eth1", "name", "eth9")
    place.ip("link", "add", "eth1", "mtu", "1400", "type", "veth", "peer", "name", "peer2")
    answer = place.end("jumbo")
    assert answer.returncode == 4
    assert "eth1 is called eth9 now: rename it, then seatrial-nic recover" in place.reason()
    assert (place.mtu("eth9"), place.mtu("eth1")) == (1500, 1400)
    assert "qlen 50 " not in place.ip("link", "show", "eth9")
    assert place.store.journal() is not None
    place.ip("link", "del", "eth1")
    place.ip("link", "set", "eth9", "name", "eth1")
    assert place.run("recover").returncode == 0
    assert place.store.journal() is None


@pytest.mark.root
def test_an_interface_of_the_same_name_is_not_taken_for_the_one_that_is_gone(place: Place) -> None:
    begin(place)
    place.ip("link", "del", "eth1")
    place.ip("link", "add", "eth1", "mtu", "1400", "type", "veth", "peer", "name", "peer1")
    assert place.end("jumbo").returncode == 4
    assert "eth1 is another interface than before, and was not changed" in place.reason()
    assert place.mtu("eth1") == 1400
    place.ip("link", "del", "eth1")
    assert place.run("recover").returncode == 4
    assert "there is no interface eth1" in place.reason()


@pytest.fixture
def node() -> Iterator[Node]:
    with a_node() as made:
        yield made


def load_again(node: Node, names: dict[str, str]) -> None:
    """The driver is reloaded by somebody else, and the cards come back under other names."""
    node.machine.kernel_names = names
    node.machine._modprobe(["-r", MODULE])
    node.machine.sync()
    node.machine._modprobe([MODULE])
    node.machine.tick(2.0)
    for card in node.machine.cards.values():
        node.machine._up(card, True)
    node.machine.tick(2.0)


def test_cards_that_exchanged_their_names_are_known_by_their_hardware(node: Node) -> None:
    profile = {"interfaces": {"eth1": {"txqueuelen": 50}}}
    node.session().begin_job(JOB, "x", profile)
    load_again(node, {"eth1": "eth2", "eth2": "eth1"})
    node.machine.cards["eth2"].queue = 60  # of the card that was eth1
    node.machine.cards["eth1"].queue = 70
    with pytest.raises(Unrestored, match="eth1 is called eth2 now"):
        node.session().end_job(JOB, True)
    assert node.machine.cards["eth2"].queue == 900
    assert node.machine.cards["eth1"].queue == 70


def test_a_bond_gives_its_member_back_under_its_new_name(node: Node) -> None:
    node.take("plain_bond")
    node.machine._rename("eth2", "eth8")
    stranger = node.machine._new("eth2", permanent="02:00:00:00:00:99", mac="02:00:00:00:00:99")
    stranger.mtu = 1400
    node.machine.sync()
    with pytest.raises(Unrestored, match="eth2 is called eth8 now"):
        node.session().end_job(JOB, True)
    assert node.machine.cards["eth8"].addresses
    assert (node.machine.cards["eth2"].mtu, node.machine.cards["eth2"].addresses) == (1400, [])
    assert not any(" dev eth2" in line for line in node.machine.log[-30:] if "replace" in line)


def test_another_card_under_the_same_name_is_drift(node: Node) -> None:
    node.session().recover(0.0)
    node.machine.cards["eth1"].permanent = "02:00:00:00:00:77"
    node.machine.sync()
    with pytest.raises(Unrestored, match="eth1 is another interface than at boot"):
        node.session().recover(0.0)
    node.store.remove("reason")
    with pytest.raises(Refused, match="eth1 is another interface than at boot"):
        node.session().begin_job(JOB, "x", {"interfaces": {"eth1": {"mtu": 9000}}})
    assert node.machine.cards["eth1"].mtu == 1500


def test_a_damaged_journal_changes_no_other_card(node: Node) -> None:
    node.session().recover(0.0)
    node.session().begin_job(JOB, "x", {"interfaces": {"eth1": {"mtu": 9000}}})
    node.machine._rename("eth1", "eth9")
    node.machine._new("eth1", permanent="02:00:00:00:00:99").mtu = 1400
    node.machine.sync()
    for name in ("journal.json", "journal.bak.json"):
        Path(node.store.path(name)).write_text("x")
    with pytest.raises(Unrestored, match="eth1 is called eth9 now"):
        node.session().recover(0.0)
    assert {name: node.machine.cards[name].mtu for name in ("eth1", "eth9")} == {
        "eth1": 1400, "eth9": 1500,
    }  # fmt: skip


@pytest.mark.parametrize(("bus", "there"), [("0000:01:10.2", True), ("0000:01:10.4", False)])
def test_a_card_without_a_permanent_address_is_known_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: str, there: bool
) -> None:
    """A virtual function gets another MAC address each time its driver is loaded."""
    device = tmp_path / "devices" / bus
    device.mkdir(parents=True)
    folder = tmp_path / "net" / "eth7"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)
    for name, text in (("ifindex", "9"), ("address", "02:00:00:00:00:88"), ("dev_port", "0")):
        (folder / name).write_text(text + "\n")
    monkeypatch.setattr(readers, "SYSFS", str(tmp_path / "net"))
    then = {"ifindex": 3, "address": "02:00:00:00:00:01", "permanent": "", "bus": "0000:01:10.2",
            "port": 0}  # fmt: skip
    assert readers.find(then) == ("eth7" if there else None)
    assert readers.find({**then, "bus": ""}) is None


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"ifindex": 9}, True),
        ({"permanent": "02:00:00:00:00:77"}, False),
        ({"bus": "0000:02:00.0"}, False),
        ({"port": 1}, False),
        ({"address": "02:00:00:00:00:88"}, True),  # somebody set another MAC address
    ],
)
def test_what_makes_an_interface_the_same(change: dict[str, Any], same: bool) -> None:
    then = {"ifindex": 3, "address": "02:00:00:00:00:01", "permanent": "02:00:00:00:00:01",
            "bus": "0000:01:00.0", "port": 0}  # fmt: skip
    assert readers.same_hardware(then, {**then, **change}) is same
