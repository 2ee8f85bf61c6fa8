"""Wires with a rate, a switch with a queue, a host bus: their fields, and labs that have them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from virtual_support import BASE, SMALL, write_site

from labs import clear_dead_sessions
from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.cli.lab import _print_status as print_status
from seatrial.site.load import load_site
from seatrial_lab.common import paths
from seatrial_lab.virtual import qemu
from seatrial_lab.virtual import wires as wires_of
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine, wires_note
from seatrial_lab.virtual.site import virtual_spec
from seatrial_lab.virtual.spec import VirtualSpec, Wire

sys.path.insert(0, str(CHECKOUT / "ci/bench"))
from wires import (
    SIZES,
    Stream,
    Wires,
    frame_ns,
    payload_rate,
    site_text,
    switched,
    wired,
)

SWITCHED = "{rate: 1 Gbit/s, delay_ns: 250, switch: {queue: 64 KiB, latency_ns: 1000}}"
FACTS = {"qemu": "10", "kernel": "6.1.0-9-amd64", "kernel_version": "6.1.27-1"}


def with_lab(folder: Path, fields: str, text: str = SMALL) -> VirtualSpec:
    text = text.replace("engine: virtual,", f"engine: virtual, {fields},")
    return virtual_spec(load_site(write_site(folder, text)), "t")


def cables(spec: VirtualSpec, emulator: Path | None) -> list[str]:
    words = qemu.command(spec, BASE, Path("i"), Path("/r"), emulator)
    return [word for word in words if word.startswith("hubport")]


def test_each_card_has_the_wire_of_its_network_and_the_bus_of_its_node(tmp_path: Path) -> None:
    spec = with_lab(tmp_path, f"processors: own, bus_MB_s: 264, wires: {{test: {SWITCHED}}}")
    assert {card.wire for card in spec.cards} == {Wire(10**9, 250, 65536, 1000)}
    assert cables(spec, Path("/e/qemu")) == [
        f"hubport,id=n{number},hubid=0,rate=1000000000,delay=250,queue=65536,latency=1000,"
        f"bus=n{number + 1},bus-rate=264000000"
        for number in (0, 1)
    ]
    assert VirtualSpec.from_json(spec.to_json()) == spec
    assert spec.without_wires() == with_lab(tmp_path / "bare", "processors: own")
    assert wires_note(spec, {"processors": "own"}) == (
        "eth1: cables of 1000 Mbit/s with a delay of 250 ns, "
        "a switch with a queue of 64 KiB for each port and a latency of 1000 ns; "
        "a host bus of 264 MB/s in each node"
    )


def test_a_site_sets_how_far_its_processors_are_apart(tmp_path: Path) -> None:
    usual = with_lab(tmp_path / "usual", "processors: own")
    near = with_lab(tmp_path / "near", "processors: own, window_ns: 100")
    for spec, window in ((usual, 1000), (near, 100)):
        words = qemu.command(spec, BASE, Path("i"), Path("/r"), Path("/e/qemu"))
        assert f"shift=0,sleep=off,percpu=on,window={window}" in words
    assert near.without_wires() == usual  # both start from one saved guest
    assert usual.differences(near) == ["window_ns"]


def test_a_node_has_the_buses_that_its_wires_name(tmp_path: Path) -> None:
    text = SMALL.replace("{igb: [igb]}", "{igb: [igb, igb]}").replace(
        "nodes:\n",
        "  test2: {role: test, interface: eth2, subnet: 10.76.2.0/24, switch_mtu: 9216}\nnodes:\n",
        1,
    )
    wires = "{test: {rate: 1 Gbit/s}, test2: {rate: 1 Gbit/s, bus: 2}}"
    spec = with_lab(tmp_path, f"processors: own, bus_MB_s: 264, wires: {wires}", text)
    buses = [re.findall(r"bus=([^,]+)", each) for each in cables(spec, Path("/e/qemu"))]
    assert buses == [["n1"], ["n1.2"], ["n2"], ["n2.2"]]
    assert VirtualSpec.from_json(spec.to_json()) == spec
    assert wires_note(spec, {"processors": "own"}).endswith(
        "host buses of 264 MB/s in each node; eth1 on bus 1; eth2 on bus 2"
    )


def test_a_wire_without_a_switch_has_no_queue(tmp_path: Path) -> None:
    spec = with_lab(tmp_path, "processors: own, wires: {test: {rate: 100 Mbit/s}}")
    assert cables(spec, Path("/e/qemu"))[0] == "hubport,id=n0,hubid=0,rate=100000000,delay=0"


def test_without_these_fields_cables_are_as_before(tmp_path: Path) -> None:
    spec = with_lab(tmp_path, "processors: own")
    assert cables(spec, Path("/e/qemu")) == ["hubport,id=n0,hubid=0", "hubport,id=n1,hubid=0"]
    assert wires_note(spec, {"processors": "own"}) == ""


def test_where_the_emulator_is_missing_the_wires_have_no_speed(tmp_path: Path) -> None:
    spec = with_lab(tmp_path, "processors: own, wires: {test: {rate: 1 Gbit/s}}")
    assert cables(spec, None) == ["hubport,id=n0,hubid=0", "hubport,id=n1,hubid=0"]
    note = wires_note(spec, {"processors": "shared"})
    assert note == (
        "wires have no speed, although the site wants "
        "eth1: cables of 1000 Mbit/s with a delay of 0 ns"
    )


@pytest.mark.parametrize(
    ("fields", "processors", "limits"),
    [
        ("", "own", "not for wires, caches or memory"),
        ("wires: {test: {rate: 1 Gbit/s}}", "own", "not for caches or memory"),
        ("wires: {test: {rate: 1 Gbit/s}}", "shared", "not for wires, caches or memory"),
        ("bus_MB_s: 264", "own", "not for wires, caches or memory"),
    ],
)
def test_a_trial_notes_whether_its_figures_hold_for_wires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, processors: str, limits: str
) -> None:
    lab = VirtualLab(with_lab(tmp_path, ", ".join(filter(None, ["processors: own", fields]))))
    monkeypatch.setattr(lab, "facts", lambda: FACTS | {"processors": processors})
    monkeypatch.setattr(lab, "faults", list)
    monkeypatch.setattr(wires_of, "counters", lambda lab: [])
    note, *others = VirtualMachine(lab).notes()
    assert "(QEMU 10, Linux 6.1.0-9-amd64 (6.1.27-1));" in note
    assert note.endswith(limits)
    assert ("wires have no speed" in " ".join(others)) == (bool(fields) and processors == "shared")


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ("wires: {test: {rate: 1 Gbit/s}}", "lab.wires", "processors: own"),
        ("bus_MB_s: 264", "lab.bus_MB_s", "processors: own"),
        ("window_ns: 100", "lab.window_ns", "processors: own"),
        ("processors: own, window_ns: 99", "lab.window_ns", "greater than or equal to 100"),
        ("processors: own, window_ns: 1001", "lab.window_ns", "less than or equal to 1000"),
        (
            "processors: own, wires: {test: {rate: 1 Gbit/s, bus: 2}}",
            "lab.wires.test.bus",
            "a second bus needs a rate",
        ),
        ("memory_MiB: 1048577", "lab.memory_MiB", "less than or equal to 1048576"),
        (
            "processors: own, wires: {test: {rate: 36893488147419103232}}",
            "lab.wires.test.rate",
            "no Ethernet is faster than 1.6 Tbit/s",
        ),
        ("processors: own, bus_MB_s: 0", "lab.bus_MB_s", "greater than or equal to 1"),
        ("processors: own, wires: {tset: {rate: 1 Gbit/s}}", "lab.wires.tset", "'test'"),
        ("processors: own, wires: {mgmt: {rate: 1 Gbit/s}}", "lab.wires.mgmt", "role test"),
        ("processors: own, wires: {test: {rate: fast}}", "lab.wires.test.rate", "100 Mbit/s"),
        ("processors: own, wires: {test: {delay_ns: 5}}", "lab.wires.test.rate", "rate: 1 Gbit/s"),
        (
            "processors: own, wires: {test: {rate: 1 Gbit/s, switch: {latency_ns: 5}}}",
            "lab.wires.test.switch.queue",
            "queue: 128 KiB",
        ),
    ],
)
def test_a_field_that_cannot_be_is_named(
    tmp_path: Path, fields: str, field: str, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        with_lab(tmp_path, fields)
    assert f"site.yaml:3: {field}: " in str(raised.value)
    assert message in str(raised.value)


def test_a_wire_of_another_rate_than_line_rate_is_refused(tmp_path: Path) -> None:
    text = SMALL.replace("switch_mtu", "line_rate: 100 Mbit/s, switch_mtu")
    with pytest.raises(InputError, match=r"lab\.wires\.test\.rate: it is not the line_rate"):
        with_lab(tmp_path, "processors: own, wires: {test: {rate: 1 Gbit/s}}", text)
    with_lab(tmp_path / "same", "processors: own, wires: {test: {rate: 100 Mbit/s}}", text)


def test_status_shows_where_frames_were_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    port = {"node": "n1", "interface": "eth1", "sent": 9, "received": 80}
    port |= {"queue": "the queue of the switch"}
    known = {"name": "n1", "slurm_state": "idle", "alive": True, "daemons": {}, "nics": []}
    known |= {"mgmt_address": "10.0.0.1", "test_address": "10.0.1.1"}
    status = {
        "instance": "t", "state": "up", "uptime_s": 1, "versions": {}, "faults": [],
        "hosts": [known],
        "wires": [
            port | {"dropped": 3, "missed": 2},
            port | {"node": "n2", "dropped": 0, "missed": 0},
        ],
    }  # fmt: skip
    print_status(status, "lab-virtual")
    lines = capsys.readouterr().out.splitlines()
    text = "the queue of the switch had no room for 3, the card for 2"
    assert lines[-1] == f"n1 eth1: received 80 frames; {text}"


def with_ports(lab: VirtualLab, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Let a lab be up with nothing counted. Returns what its QEMU says of each NIC's port."""
    port = dict.fromkeys(("sent", "received", "dropped", "missed", "peak"), 0)
    ports = [port | {"id": qemu.netdev(n)} for n, _ in enumerate(lab.virtual_spec.cards)]
    control = SimpleNamespace(execute=lambda command: ports)
    monkeypatch.setattr(lab, "facts", lambda: {"processors": "own"})
    monkeypatch.setattr(lab, "control", lambda: nullcontext(control))
    return ports


@pytest.mark.parametrize(
    ("fields", "queue"),
    [
        ("processors: own, bus_MB_s: 264", "the line of 16 MiB before the card"),
        (
            "processors: own, wires: {test: {rate: 1 Gbit/s}}",
            "the line of 16 MiB before the card",
        ),
        (f"processors: own, wires: {{test: {SWITCHED}}}", "the queue of the switch"),
    ],
)
def test_lost_frames_waited_in_a_switch_or_in_the_line_of_a_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, queue: str
) -> None:
    lab = VirtualLab(with_lab(tmp_path, fields))
    ports = with_ports(lab, monkeypatch)
    rows = wires_of.counters(lab)
    assert len(rows) == len(ports) > 0
    assert {row["queue"] for row in rows} == {queue}


def test_a_network_without_a_wire_has_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU counts the frames of each port."""
    other = "  other: {role: test, interface: eth2, subnet: 10.76.2.0/24, switch_mtu: 9216}\n"
    text = SMALL.replace("nodes:\n", f"{other}nodes:\n", 1).replace("[igb]}", "[igb, igb]}")
    lab = VirtualLab(with_lab(tmp_path, "processors: own, wires: {test: {rate: 1 Gbit/s}}", text))
    ports = with_ports(lab, monkeypatch)
    assert len(ports) > 2
    assert {row["interface"] for row in wires_of.counters(lab)} == {"eth1"}


def test_a_trial_notes_the_frames_that_its_runs_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"node": "n1", "interface": "eth1", "queue": "the queue of the switch"}
    monkeypatch.setattr(paths, "RUN_ROOT", tmp_path / "run")
    seen = [{"dropped": 5, "missed": 1}, {"dropped": 5, "missed": 1}, {"dropped": 12, "missed": 1}]
    lab = VirtualLab(with_lab(tmp_path, "processors: own"))
    monkeypatch.setattr(lab, "facts", lambda: FACTS)
    monkeypatch.setattr(lab, "faults", list)
    monkeypatch.setattr(wires_of, "counters", lambda lab: [row | seen.pop(0)])
    machine = VirtualMachine(lab)
    machine.notes()  # 5 and 1 are of before
    assert machine.facts() == {
        "kernel of the lab": "6.1.0-9-amd64 (6.1.27-1)", "QEMU of the lab": "10"
    }  # fmt: skip
    assert machine.losses(tmp_path) == []
    (note,) = machine.losses(tmp_path)
    assert note.startswith("frames to n1 eth1 were lost in the runs: ")
    assert note.endswith(" the queue of the switch had no room for 7, the card for 0")

    def gone(lab: VirtualLab) -> list[dict[str, object]]:
        raise LabError("lab t is not up")

    monkeypatch.setattr(wires_of, "counters", gone)
    not_counted = "frames that the wires dropped are not counted: lab t is not up"
    assert machine.losses(tmp_path) == [not_counted]
    lab.paths.run.mkdir(parents=True, exist_ok=True)
    console = lab.paths.run / "console.log"
    console.write_text("[ 1.0] Kernel panic - not syncing: my driver\n[ 1.1] Rebooting\n")
    ended, after = machine.losses(tmp_path)
    assert ended.startswith("the guest of lab t has ended: [ 1.0] Kernel panic - not syncing: my")
    assert ended.endswith("; see t-console.log")
    assert after == not_counted
    ended, _ = machine.losses(tmp_path / "no folder")
    assert ended.endswith("; its console was not kept: No such file or directory")
    assert (tmp_path / "t-console.log").read_text() == console.read_text()


Start = Callable[[str], Wires]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the lab of a site; it ends with the test."""
    clear_dead_sessions()
    tmp_path.chmod(0o755)
    with ExitStack() as labs:
        yield lambda text: labs.enter_context(wired(text, tmp_path, f"v{os.getpid()}_w"))


nightly = pytest.mark.nightly(reason="streams over the wires of two virtual labs")


@pytest.mark.root
@pytest.mark.slurm
@nightly
def test_streams_and_datagrams_take_the_time_of_the_wire(start: Start) -> None:
    """Segments that the card makes of large packets have the bytes of framing, each."""
    lab = start(site_text("{rate: 100 Mbit/s}", switched("32 KiB")))
    for mtu in (1500, 9000):
        lab.set_cards(mtu=mtu)
        ((rate, resent),) = lab.run([Stream("n1", "n2")])
        assert rate == pytest.approx(payload_rate(100, mtu), rel=0.01)
        assert resent == 0
    lab.set_cards()
    times = dict(zip(SIZES, lab.delays("eth1"), strict=True))
    # The processors take longer for the larger datagram, too.
    more = frame_ns(1e8, 1472) - frame_ns(1e8, 64)
    assert times[1472] - times[64] == pytest.approx(more, abs=4000)
    drops(lab)


def drops(lab: Wires) -> None:
    """A queue that is shorter than the senders' windows drops frames, which they send again."""
    seen = lab.run([Stream(f"n{number}", "n1", "eth2") for number in (2, 3, 4)])
    rows = [row for row in wires_of.counters(lab.lab) if row["interface"] == "eth2"]
    assert [row["node"] for row in rows if row["dropped"]] == ["n1"]
    assert rows[0]["dropped"] > 0
    assert rows[0]["queue"] == "the queue of the switch"
    assert sum(resent for _, resent in seen) > 0
    assert 32 * 1024 - 1514 < rows[0]["queue_peak_B"] <= 32 * 1024
    assert sum(rate for rate, _ in seen) < 1.01 * payload_rate(1000, 1500)


@pytest.mark.root
@pytest.mark.slurm
@nightly
def test_cards_of_a_node_share_its_bus(start: Start) -> None:
    lab = start(site_text(bus="132"))
    lab.set_cards(mtu=9000)
    ((alone, _),) = lab.run([Stream("n1", "n2")])
    assert alone == pytest.approx(payload_rate(1000, 9000), rel=0.03)
    both = lab.run([Stream("n1", "n2"), Stream("n1", "n2", "eth2")])
    assert 0.8 * 132 < sum(rate for rate, _ in both) / 8 < 1.03 * 132
