"""The order and the words of what is run; and that a dry run prints what is run."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_node import INTERFACE, FakeNic, Fuse, OpenGuard
from hypothesis import given
from hypothesis import strategies as st

from seatrial.nic.node import changes, programs, readers, values
from seatrial.nic.node.actions import Action, command, text_of, write
from seatrial.nic.node.errors import SettingRefused
from seatrial.nic.node.nic import Nic
from seatrial.nic.node.work import Work

ON = {"coalesce.adaptive-rx": "on", "coalesce.rx-usecs": 50, "coalesce.rx-frames": 8,
      "coalesce.adaptive-tx": "on", "coalesce.tx-usecs": 60}  # fmt: skip


def lines(actions: list[Action]) -> list[str]:
    """Commands without their programs' folders."""
    return [text_of(action).rpartition("/sbin/")[2] for action in actions]


def test_adaptive_off_then_values() -> None:
    found = lines(changes.to_apply("eth1", {"coalesce.rx-usecs": 0, "coalesce.rx-frames": 1}, ON))
    assert found == [
        "ethtool -C eth1 adaptive-rx off",
        "ethtool -C eth1 rx-frames 1 rx-usecs 0",
    ]


def test_adaptive_as_it_was_at_last() -> None:
    now = {**ON, "coalesce.adaptive-rx": "off", "coalesce.rx-usecs": 0}
    before = {**ON, "coalesce.adaptive-rx": "off"}
    assert lines(changes.to_restore("eth1", before, now)) == ["ethtool -C eth1 rx-usecs 50"]
    assert lines(changes.to_restore("eth1", ON, now)) == ["ethtool -C eth1 adaptive-rx on"]


def test_the_other_sides_moderation_is_left_alone() -> None:
    """Its values are hidden now: written back as they show, they would become the hidden ones."""
    before = {**ON, "coalesce.adaptive-rx": "off", "coalesce.rx-usecs": 3}
    for found in (
        changes.to_apply("eth1", {"coalesce.rx-usecs": 0}, before),
        changes.to_restore("eth1", {**before, "coalesce.rx-usecs": 0}, before),
    ):
        assert lines(found) == ["ethtool -C eth1 rx-usecs 0"]


def test_a_switch_that_is_on_again_is_turned_off_by_itself() -> None:
    """As where a driver makes its queues again, and begins them with adaptive moderation."""
    (action,) = changes.to_apply("eth1", {"coalesce.rx-usecs": 50}, ON)
    assert action.argv == ["ethtool", "-C", "eth1", "adaptive-rx", "off"]


def test_flow_control_is_negotiated_no_more_and_then_set() -> None:
    agreed = {"pause.autoneg": "on", "pause.rx": "on", "pause.tx": "on"}
    own = {"pause.autoneg": "off", "pause.rx": "off", "pause.tx": "on"}
    assert lines(changes.to_apply("nic0", {"pause.rx": "off", "pause.tx": "off"}, agreed)) == [
        "ethtool -A nic0 autoneg off",
        "ethtool -A nic0 rx off tx off",
    ]
    assert lines(changes.to_apply("nic0", own, {**own, "pause.tx": "off"})) == [
        "ethtool -A nic0 tx on"
    ]
    # What the two ends have agreed on is not set, and not compared.
    assert lines(changes.to_restore("nic0", agreed, own)) == ["ethtool -A nic0 autoneg on"]
    assert changes.to_restore("nic0", agreed, {**agreed, "pause.tx": "off"}) == []


@pytest.mark.parametrize(("carrier", "waits"), [("1", 1), ("0", 0), (None, 0)])
def test_a_link_that_was_there_is_waited_for(
    carrier: str | None, waits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SYSFS", str(tmp_path))
    (tmp_path / "eth1").mkdir()
    if carrier:
        (tmp_path / "eth1" / "carrier").write_text(carrier + "\n")
    found = lines(changes.to_apply("eth1", {"pause.rx": "off"}, {"pause.rx": "on"}))
    assert found == [
        "ethtool -A eth1 rx off",
        *["# wait up to 15 s until eth1 has a link"] * waits,
    ]
    # Others take no link down.
    assert len(changes.to_apply("eth1", {"coalesce.rx-usecs": 0}, ON)) == 2


def test_values_beside_moderation_do_not_stop_it() -> None:
    now = {**ON, "coalesce.rx-usecs-low": 1, "coalesce.sample-interval": 2}
    wanted = {"coalesce.rx-usecs-low": 5, "coalesce.sample-interval": 3}
    assert lines(changes.to_apply("eth1", wanted, now)) == [
        "ethtool -C eth1 rx-usecs-low 5 sample-interval 3"
    ]


def test_functions_then_queues_then_what_is_said_of_each_queue() -> None:
    now = {"channels.combined": 2, "rps.rx-0": "0", "ring.rx": 8, "mtu": 1500, "vfs": 2,
           "feature.tx-x": "on", "qdisc": "default mq", "txqueuelen": 1,
           "private.a b": "off"}  # fmt: skip
    wanted = {"channels.combined": 1, "rps.rx-0": "3", "ring.rx": 9, "mtu": 9000, "vfs": 4,
              "feature.tx-x": "off", "egress_bit_s": 8 * 10**6, "txqueuelen": 2,
              "private.a b": "on"}  # fmt: skip
    assert lines(changes.to_apply("eth1", wanted, now)) == [
        "ip link set dev eth1 txqueuelen 2",
        "echo 0 > /sys/class/net/eth1/device/sriov_numvfs",
        "echo 4 > /sys/class/net/eth1/device/sriov_numvfs",
        "ethtool -L eth1 combined 1",
        "ethtool -G eth1 rx 9",
        "ethtool --set-priv-flags eth1 'a b' on",
        "ip link set dev eth1 mtu 9000",
        "ethtool -K eth1 tx-x off",
        "echo 3 > /sys/class/net/eth1/queues/rx-0/rps_cpus",
        "tc qdisc replace dev eth1 root tbf rate 8000000bit burst 18000b latency 50ms",
    ]


def test_virtual_functions_go_away_at_once() -> None:
    assert lines(changes.to_restore("eth1", {"vfs": 0}, {"vfs": 4})) == [
        "echo 0 > /sys/class/net/eth1/device/sriov_numvfs"
    ]


def test_a_limit_is_taken_off_before_anything_else() -> None:
    found = lines(changes.to_restore(
        "eth1", {"qdisc": "default mq", "mtu": 1500}, {"qdisc": "tbf {}", "mtu": 9000}
    ))  # fmt: skip
    assert found == ["tc qdisc del dev eth1 root", "ip link set dev eth1 mtu 1500"]


def test_the_kernel_chooses_its_own_discipline_by_the_length_of_the_queue() -> None:
    now = {"qdisc": "tbf {}", "txqueuelen": 0}
    assert lines(changes.to_restore("eth1", {"qdisc": "default mq", "txqueuelen": 1000}, now)) == [
        "ip link set dev eth1 txqueuelen 1000",
        "tc qdisc del dev eth1 root",
    ]
    # It chooses anew only when another one goes.
    found = changes.to_restore("eth1", {"qdisc": "default mq"}, {"qdisc": "default noqueue"})
    assert lines(found) == [
        "tc qdisc replace dev eth1 root pfifo",
        "tc qdisc del dev eth1 root",
    ]


@pytest.mark.parametrize(
    ("bit_s", "mtu", "burst"),
    [
        (10**6, 1500, 3000),  # never less than two frames
        (10**6, 9000, 18000),
        (10**8, 1500, 3125),
        (10**9, 1500, 31250),  # a quarter millisecond
        (10**11, 1500, 3125000),
    ],
)
def test_the_shapers_burst(bit_s: int, mtu: int, burst: int) -> None:
    argv = changes.to_apply("eth1", {"egress_bit_s": bit_s}, {"mtu": mtu})[0].argv
    assert argv is not None
    assert argv[argv.index("burst") + 1] == f"{burst}b"
    assert argv[argv.index("rate") + 1] == f"{bit_s}bit"


def test_features_as_they_were_asked_for() -> None:
    before = {"feature.tx-a": "off [requested on]", "feature.tx-b": "off",
              "feature.tx-checksumming": "on"}  # fmt: skip
    now = {"feature.tx-a": "off", "feature.tx-b": "on", "feature.tx-checksumming": "off"}
    # One call, and not also what ethtool derives from the others.
    assert lines(changes.to_restore("eth1", before, now)) == ["ethtool -K eth1 tx-a on tx-b off"]
    only = {"feature.tx-checksumming": "on"}
    assert lines(changes.to_restore("eth1", only, {"feature.tx-checksumming": "off"})) == [
        "ethtool -K eth1 tx-checksumming on"
    ]


def test_interrupt_lines_by_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "irq_numbers", lambda _: {0: "24", 1: "31"})
    now = {"irq.0": "0", "irq.1": "0", "irq.2": "0"}
    wanted = {"irq.0": "1", "irq.1": "0,1", "irq.2": "1"}
    assert lines(changes.to_restore("eth1", wanted, now)) == [
        "echo 1 > /proc/irq/24/smp_affinity_list",
        "echo 0,1 > /proc/irq/31/smp_affinity_list",
    ]


def test_a_value_for_all_queues_of_an_interface_without_queues_writes_nothing() -> None:
    wanted = {"rps_cpus": "all", "rps_flow_cnt": 64, "xps_cpus": "0", "irq_affinity": "spread"}
    assert changes.to_apply("eth1", wanted, {}) == []


def test_node_settings() -> None:
    now = {"sysctl.net.core.busy_poll": 0, "sysctl.net.core.busy_read": None}
    wanted = {"sysctl.net.core.busy_poll": 50}
    assert lines(changes.of_node(wanted, now)) == ["echo 50 > /proc/sys/net/core/busy_poll"]
    assert changes.of_node(now, now) == []


@given(st.text(min_size=1, max_size=30))
def test_every_word_is_quoted_for_the_shell(word: str) -> None:
    action = command("x", "printf", "%s", word.replace("\0", ""))
    assert shlex.split(text_of(action))[1:] == ["%s", word.replace("\0", "")]


def test_a_line_of_the_dry_run_does_what_is_done(tmp_path: Path) -> None:
    """Given to a shell, each does the same as when it is performed."""
    done = []
    for how in ("shell", "perform"):
        folder = tmp_path / how
        folder.mkdir()
        file = folder / "it's a file"
        for action in (
            write("a", str(file), "0-3; $x"),
            command("b", "cp", str(file), str(folder / "copy $y")),
        ):
            if how == "shell":
                subprocess.run(["sh", "-c", text_of(action)], check=True)
            else:
                Nic().perform(action)
        done.append({one.name: one.read_text().strip() for one in folder.iterdir()})
    assert done[0] == done[1]
    assert len(done[0]) == 2


class Recording(FakeNic):
    def __init__(self, **more: Any) -> None:
        super().__init__(Fuse())
        self.raw.update(more)
        self.lines: list[str] = []

    def perform(self, action: Action) -> None:
        self.lines.append(text_of(action))
        super().perform(action)


WANTED = st.fixed_dictionaries(
    {},
    optional={
        "mtu": st.sampled_from([1500, 9000]),
        "txqueuelen": st.sampled_from([1000, 5000]),
        "coalesce.rx-usecs": st.sampled_from([0, 20, 77]),
        "coalesce.rx-frames": st.sampled_from([1, 5]),
        "coalesce.tx-usecs": st.sampled_from([1, 72]),
        "coalesce.adaptive-tx": st.sampled_from(["on", "off"]),
        "ring.rx": st.sampled_from([256, 512]),
        "feature.generic-receive-offload": st.sampled_from(["on", "off"]),
        "rps_cpus": st.sampled_from(["all", "none", "1"]),
        "egress_bit_s": st.just(10**9),
    },
)


@given(WANTED, st.sampled_from(["on", "off"]), st.sampled_from(["on", "off"]), st.booleans())
def test_the_dry_run_prints_what_is_run_then(
    wanted: dict[str, Any], rx: str, tx: str, stubborn: bool
) -> None:
    nic = Recording(**{"coalesce.adaptive-rx": rx, "coalesce.adaptive-tx": tx})
    nic.stubborn = stubborn
    if "coalesce.tx-usecs" in wanted and wanted.get("coalesce.adaptive-tx") == "on":
        del wanted["coalesce.tx-usecs"]  # a profile cannot want both
    work = Work(None, nic, OpenGuard())
    journal = work.prepare({"interfaces": {INTERFACE: wanted}})
    plan = [text_of(one) for one in work.plan(journal)]
    assert nic.lines == []
    exact = nic.exact()
    work.apply(journal, lambda: None)
    # But for a value that adaptive moderation hid, and that turns out to be as wanted.
    hidden = {"coalesce.rx-usecs": 20, "coalesce.rx-frames": 5, "coalesce.tx-usecs": 72}
    if any(wanted.get(key) == value for key, value in hidden.items()) and "on" in (rx, tx):
        assert len(nic.lines) <= len(plan)
    else:
        assert nic.lines == plan
    target = values.spread(wanted, nic.state(), nic.cpus())
    assert values.differences(target, nic.state()) == []
    # Nothing else was touched: not the moderation of the other side.
    if not any("tx" in key for key in wanted):
        assert nic.raw["coalesce.adaptive-tx"] == tx
        assert nic.raw["coalesce.tx-usecs"] == exact["coalesce.tx-usecs"]
    assert work.restore(journal) == []
    assert nic.exact() == exact


@pytest.mark.parametrize(("here", "wanted"), [(2, 1), (1, 2)])
def test_fewer_or_more_queues_and_what_is_said_of_each(here: int, wanted: int) -> None:
    """It is said of the queues that there will be, at once."""
    nic = Recording(**{"channels.combined": here})
    work = Work(None, nic, OpenGuard())
    profile = {"interfaces": {INTERFACE: {"channels.combined": wanted, "rps_cpus": "all"}}}
    journal = work.prepare(profile)
    plan = [text_of(one) for one in work.plan(journal)]
    exact = nic.exact()
    work.apply(journal, lambda: None)
    assert nic.lines == plan
    assert nic.exact()["rps"] == ["3"] * wanted
    assert work.restore(journal) == []
    assert nic.exact() == exact


class Several(Recording):
    """Several interfaces, each known by its name."""

    def identity(self, interface: str) -> dict[str, Any]:
        return {"name": interface}

    def find(self, identity: dict[str, Any]) -> str | None:
        return str(identity["name"])


class TwoPorts(Several):
    """Two interfaces of a card that share its settings. ethtool refuses values that are there."""

    def read(self, interface: str) -> dict[str, Any]:
        return super().read(self.name)

    def perform(self, action: Action) -> None:
        words = (action.argv or [])[3:]
        new = zip(words[::2], words[1::2], strict=True)
        if all(str(self.raw[f"coalesce.{name}"]) == value for name, value in new):
            raise SettingRefused(action.setting, "no coalesce parameters changed, aborting")
        super().perform(action)


@pytest.mark.parametrize("adaptive", ["off", "on"])
def test_ports_that_share_their_settings(adaptive: str) -> None:
    nic = TwoPorts(**{"coalesce.adaptive-rx": adaptive})
    exact = nic.exact()
    work = Work(None, nic, OpenGuard())
    wanted = {"coalesce.rx-usecs": 99}
    journal = work.prepare({"interfaces": {"eth1": wanted, "eth2": wanted}})
    work.apply(journal, lambda: None)
    off = ["ethtool -C eth1 adaptive-rx off"] if adaptive == "on" else []
    shown = [line.rpartition("/")[2] for line in nic.lines]
    assert shown == [*off, "ethtool -C eth1 rx-usecs 99"]
    assert work.restore(journal) == []
    assert nic.exact() == exact


class Lines(Recording):
    """A card with an interrupt line for each queue, and one more. ``-L`` exchanges the lines."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.first = 24
        self.lines_of: dict[int, str] = {}
        self.request_lines()

    def request_lines(self) -> None:
        self.first += 10
        self.lines_of = dict.fromkeys(range(self.raw["channels.combined"] + 1), "0-1")

    def numbers(self, _: str) -> dict[int, str]:
        return {place: str(self.first + place) for place in self.lines_of}

    def read(self, interface: str) -> dict[str, Any]:
        lines = {f"irq.{place}": cpus for place, cpus in self.lines_of.items()}
        return {**super().read(interface), **lines}

    def perform(self, action: Action) -> None:
        path = action.path or ""
        if "/irq/" not in path:
            super().perform(action)
            if action.argv and "-L" in action.argv:
                self.request_lines()
            return
        self.lines.append(text_of(action))
        place = int(path.split("/")[-2]) - self.first
        if place not in self.lines_of:
            raise SettingRefused(action.setting, "No such file or directory")
        self.lines_of[place] = action.text


@pytest.mark.parametrize(("here", "wanted"), [(2, 1), (1, 2)])
def test_lines_are_set_when_the_queues_are_there(
    here: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic = Lines(**{"channels.combined": here})
    monkeypatch.setattr(readers, "irq_numbers", nic.numbers)
    before = nic.read(INTERFACE)
    work = Work(None, nic, OpenGuard())
    profile = {"channels.combined": wanted, "irq_affinity": "spread"}
    journal = work.prepare({"interfaces": {INTERFACE: profile}})
    assert any("/irq/" in text_of(action) for action in work.plan(journal))
    work.apply(journal, lambda: None)
    assert list(nic.lines_of.values()) == ["0", "1", "0"][: wanted + 1]
    assert work.restore(journal) == []
    assert nic.read(INTERFACE) == before


class Reloads(Recording):
    """Comes back from a reload with adaptive moderation on, which the node had turned off."""

    index = 2

    def read(self, interface: str) -> dict[str, Any]:
        return {**super().read(interface), "driver.module": "m"}

    def interfaces_of(self, module: str) -> list[str]:
        return [INTERFACE]

    def above(self, interface: str) -> list[str]:
        return []

    def link(self, interface: str) -> dict[str, Any]:
        return {"addresses": [], "routes": [], "up": True, "link": False, "mac": "",
                "permanent": ""}  # fmt: skip

    def identity(self, interface: str) -> dict[str, Any]:
        return {"ifindex": self.index, "address": "02:00:00:00:00:01"}

    def find(self, identity: dict[str, Any]) -> str:
        return INTERFACE

    def perform(self, action: Action) -> None:
        argv = action.argv or []
        if argv and argv[0] == "modprobe":
            self.index += 1
            self.raw.update({"coalesce.adaptive-rx": "on", "coalesce.rx-usecs": 3, "mtu": 1500})
        elif argv and argv[-1] not in ("up", "down"):
            super().perform(action)


def test_what_a_driver_comes_back_with_is_read() -> None:
    nic = Reloads(**{"coalesce.adaptive-rx": "off", "coalesce.rx-usecs": 20, "mtu": 9000})
    exact = nic.exact()
    work = Work(None, nic, OpenGuard())
    driver = {"module": "m", "parameters": {"a": "1"}}
    journal = work.prepare({"interfaces": {INTERFACE: {"driver": driver, "coalesce.rx-usecs": 9}}})
    work.apply(journal, lambda: None)
    assert (nic.raw["coalesce.rx-usecs"], nic.raw["mtu"]) == (9, 9000)
    assert work.restore(journal) == []
    assert nic.exact() == exact


def test_hidden_values_come_back_if_the_switch_is_on_again() -> None:
    nic = FakeNic(Fuse())
    nic.raw["coalesce.adaptive-rx"] = "on"
    exact = nic.exact()
    work = Work(None, nic, OpenGuard())
    journal = work.prepare({"interfaces": {INTERFACE: {"coalesce.rx-usecs": 99}}})
    work.apply(journal, lambda: None)
    nic.raw["coalesce.adaptive-rx"] = "on"  # by root, during the job
    assert work.restore(journal) == []
    assert nic.exact() == exact


class Vlan(Several):
    """``data`` is a VLAN of ``eth1``, whose MTU it cannot exceed."""

    def __init__(self, mtu: int) -> None:
        super().__init__()
        self.mtus = {"data": mtu, "eth1": mtu}

    def exists(self, interface: str) -> bool:
        return interface in self.mtus

    def read(self, interface: str) -> dict[str, Any]:
        return {"mtu": self.mtus[interface]}

    def users_of(self, interface: str) -> list[dict[str, Any]]:
        return [{"name": "data", "ifindex": -1, "mtu": 0}] if interface == "eth1" else []

    def perform(self, action: Action) -> None:
        assert action.argv is not None
        interface, mtu = action.argv[4], int(action.argv[6])
        if interface == "data" and mtu > self.mtus["eth1"]:
            raise SettingRefused("mtu", "Numerical result out of range")
        self.mtus[interface] = mtu
        self.mtus["data"] = min(self.mtus.values())


@pytest.mark.parametrize(("before", "wanted"), [(9000, 1500), (1500, 9000)])
def test_a_vlan_follows_its_interface(before: int, wanted: int) -> None:
    nic = Vlan(before)
    work = Work(None, nic, OpenGuard())
    journal = work.prepare({"interfaces": {"data": {"mtu": wanted}, "eth1": {"mtu": wanted}}})
    work.apply(journal, lambda: None)
    assert nic.mtus == {"data": wanted, "eth1": wanted}
    assert work.restore(journal) == []
    assert nic.mtus == {"data": before, "eth1": before}


def test_how_often_the_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading starts a dozen programs: one before the changes, and one to verify them."""
    nic = FakeNic(Fuse())
    work = Work(None, nic, OpenGuard())
    readings: list[str] = []
    read = nic.read
    monkeypatch.setattr(nic, "read", lambda name: readings.append(name) or read(name))
    journal = work.prepare({"interfaces": {INTERFACE: {"mtu": 9000, "ring.rx": 512}}})
    work.apply(journal, lambda: None)
    assert len(readings) == 2
    assert work.restore(journal) == []
    assert len(readings) == 4


def test_programs_by_absolute_path() -> None:
    assert text_of(command("x", "ip", "link")).startswith("/")
    assert programs.find("no-such-program") == "no-such-program"
