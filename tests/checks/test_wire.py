"""Facts and error counters of interfaces: node/wire.py on real interfaces, and what moved."""

from __future__ import annotations

import importlib.util
import json
import subprocess

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.checks import wire as moved_counters
from seatrial.results.record import WireErrors

NODE = CHECKOUT / "src" / "seatrial" / "checks" / "node"
SPEC = importlib.util.spec_from_file_location("node_wire", NODE / "wire.py")
wire = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(wire)

#: a pair of interfaces in a namespace of its own, which ends with the command
PAIR = """
mount -t sysfs none /sys
ip link add wv0 type veth peer name wv1
ip link set wv0 up
ip link set wv1 up
exec "$@"
"""
FLAP = "ip link set wv1 down; ip link set wv1 up; ip link set wv1 down; ip link set wv1 up"


def measured(folder, script, networks="test=wv0"):
    """The record of run.py around a script, beside a pair of real interfaces."""
    program = ["/usr/bin/python3", "-IS", str(NODE / "run.py"), "step", networks, "--"]
    subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", PAIR, "sh", *program, "sh", "-c", script],
        cwd=folder, check=True, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    (file,) = folder.glob("step.*.json")
    return json.loads(file.read_text())


@pytest.mark.root
def test_a_link_that_goes_down_in_a_step(tmp_path):
    record = measured(tmp_path, FLAP)
    (errors,) = moved_counters.moved([record])
    assert (errors.interface, errors.counts) == ("wv0", {"carrier_down_count": 2})
    assert record["before"]["interfaces"]["wv0"]["link"] == "up"


@pytest.mark.root
def test_nothing_moves_on_a_link_that_stays(tmp_path):
    record = measured(tmp_path, "true")
    assert record["after"]["interfaces"]["wv0"]["errors"]["rx_crc_errors"] == 0
    assert moved_counters.moved([record]) == []


@pytest.mark.root
def test_a_link_that_is_down_at_the_end(tmp_path):
    record = measured(tmp_path, "ip link set wv1 down")
    links = [record[side]["interfaces"]["wv0"]["link"] for side in ("before", "after")]
    assert links == ["up", "down"]


@pytest.mark.root
def test_the_statistics_of_a_real_driver(tmp_path):
    """As ethtool prints them: names without the padding, and their counts."""
    script = (
        "/usr/bin/python3 -ISc 'import sys, json, socket\n"
        f'sys.path.insert(0, "{NODE}")\n'
        "import wire\n"
        "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        'json.dump(wire.statistics(sock, "wv0"), open("ours.json", "w"))\'\n'
        "ethtool -S wv0 > theirs"
    )
    measured(tmp_path, script)
    ours = json.loads((tmp_path / "ours.json").read_text())
    lines = (tmp_path / "theirs").read_text().splitlines()[1:]
    theirs = dict(line.strip().rsplit(": ", 1) for line in lines)
    assert ours.keys() == theirs.keys()
    assert ours["peer_ifindex"] == int(theirs["peer_ifindex"])


@pytest.mark.parametrize(
    "name",
    [
        "rx_crc_errors_phy", "rx_symbol_err_phy", "rx_jabbers_phy", "link_down_events_phy",  # mlx5
        "rx_pcs_symbol_err_phy",
        "rx_crc_errors.nic", "illegal_bytes.nic", "mac_local_faults.nic", "mac_remote_faults.nic",
        "rx_jabber.nic",  # ice
        "port.rx_crc_errors", "port.illegal_bytes", "port.mac_local_faults",  # i40e
        "rx_fcs_err_frames", "rx_align_err_frames", "link_down_events",  # bnxt_en
        "rx_crc_errors", "rx_align_errors",  # e1000e
        "fec_uncorrectable_errors",
    ],
)  # fmt: skip
def test_statistics_of_drivers_that_count_damage(name):
    assert wire.is_of_the_wire(name)


@pytest.mark.parametrize(
    "name",
    [
        "rx_csum_none", "rx_queue_0_csum_err", "rx_dropped", "rx_discards_phy", "tx_packets",
        "rx_corrected_bits_phy", "rx_out_of_buffer", "tx_queue_3_restart", "rx_pause_ctrl_phy",
        "rx_csum_offload_errors", "[0]: rx_ucast_packets", "peer_ifindex",
    ],
)  # fmt: skip
def test_other_statistics_of_drivers(name):
    assert not wire.is_of_the_wire(name)


@pytest.mark.parametrize(
    ("text", "card", "expected"),
    [("100000", True, 100_000), ("-1", True, None), (str(2**32 - 1), True, None), ("", True, None),
     ("10000", False, None)],  # veth reports 10000 and carries more
)  # fmt: skip
def test_link_speed(tmp_path, monkeypatch, text, card, expected):
    monkeypatch.setattr(wire, "NET", str(tmp_path / "net"))
    (tmp_path / "net" / "eth1").mkdir(parents=True)
    (tmp_path / "net" / "eth1" / "speed").write_text(text + "\n")
    if card:
        (tmp_path / "net" / "eth1" / "device").mkdir()
    assert wire.speed("eth1") == expected


def test_neighbours_that_are_not_there_or_damaged(tmp_path):
    assert wire.neighbours(str(tmp_path)) == {}
    for text in ("", "[]", '{"interfaces": 3}', "{"):
        (tmp_path / "neighbours.json").write_text(text)
        assert wire.neighbours(str(tmp_path)) == {}


def test_the_sum_of_several_steps():
    one = WireErrors(node="n1", interface="eth1", counts={"rx_crc_errors": 2})
    other = WireErrors(node="n1", interface="eth1", counts={"rx_crc_errors": 3, "collisions": 1})
    elsewhere = WireErrors(node="n2", interface="eth1", counts={"collisions": 4})
    assert moved_counters.total([one, other, elsewhere]) == [
        WireErrors(node="n1", interface="eth1", counts={"rx_crc_errors": 5, "collisions": 1}),
        elsewhere,
    ]
    assert one.counts == {"rx_crc_errors": 2}


def test_the_slot_of_a_card(tmp_path, monkeypatch):
    """The driver of a card that is no PCIe card, or is a virtual function, reports "Unknown"."""
    monkeypatch.setattr(wire, "NET", str(tmp_path / "net"))
    device = tmp_path / "net" / "eth1" / "device"
    device.mkdir(parents=True)
    texts = {"current_link_speed": "8.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe"}
    texts |= {"current_link_width": "4", "max_link_width": "16"}
    for name, text in texts.items():
        (device / name).write_text(text + "\n")
    assert wire.slot("eth1") == {
        "current_pcie_speed": "8.0 GT/s PCIe", "max_pcie_speed": "16.0 GT/s PCIe",
        "current_pcie_width": "4", "max_pcie_width": "16",
    }  # fmt: skip
    (device / "current_link_speed").write_text("Unknown\n")
    assert wire.slot("eth1") == {}
