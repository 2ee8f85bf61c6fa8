"""A real network's traits: a switch with large frames, NICs that a cold start resets."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab

pytestmark = [pytest.mark.root, pytest.mark.slurm]

# One datagram that may not be cut into pieces, and after it an empty one, which always passes.
SEND = """
import errno, socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
one.connect((sys.argv[1], 5997))
try:
    one.send(bytes(int(sys.argv[2])))
except OSError as error:
    if error.errno != errno.EMSGSIZE:
        raise
one.send(b"")
"""
# Prints the size of the first datagram.
RECEIVE = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("", 5997))
one.settimeout(300)  # for what hangs
print("ready", flush=True)
print(len(one.recv(65536)) or "nothing")
"""


def set_mtu(lab: Lab, node: str, mtu: int) -> None:
    lab.run(["ip", "link", "set", "eth1", "mtu", str(mtu)], user="root", node=node, check=True)


def carried(lab: Lab, source: str, target: str, size: int) -> str:
    """What arrives of a datagram of this size: its size, or "nothing"."""
    python = "/usr/bin/python3"
    receiver = lab.popen([python, "-c", RECEIVE], node=target, stdout=-1, text=True)
    assert receiver.stdout is not None
    receiver.stdout.readline()
    lab.run([python, "-c", SEND, f"{target}-test", str(size)], node=source, check=True)
    return receiver.communicate(timeout=600)[0].strip()


def test_large_frames_pass_once_both_nodes_have_the_mtu(lab: Lab) -> None:
    assert carried(lab, "n1", "n2", 8000) == "nothing"
    try:
        set_mtu(lab, "n1", 9000)
        assert carried(lab, "n1", "n2", 8000) == "nothing"
        set_mtu(lab, "n2", 9000)
        assert carried(lab, "n1", "n2", 8000) == "8000"
        assert carried(lab, "n2", "n1", 8000) == "8000"
    finally:
        set_mtu(lab, "n1", 1500)
        set_mtu(lab, "n2", 1500)


def test_the_switch_has_its_own_limit(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=("n1", "n2"), switch_mtu=4000)
    lab.up()
    for node in lab.spec.nodes:
        set_mtu(lab, node, 9000)
    assert carried(lab, "n1", "n2", 3900) == "3900"
    assert carried(lab, "n1", "n2", 8000) == "nothing"


def test_a_nic_has_more_queues_than_it_uses(lab: Lab) -> None:
    out = lab.run(["ethtool", "-l", "eth1"], node="n1", check=True).stdout
    most, now = out.split("Current hardware settings:")
    assert "RX:\t\t2\nTX:\t\t2\n" in most
    assert "RX:\t\t1\nTX:\t\t1\n" in now


def links(lab: Lab, node: str) -> str:
    return lab.run(["ip", "-br", "link"], node=node, check=True).stdout


def boot_id(lab: Lab, node: str) -> str:
    return lab.run(["cat", "/proc/sys/kernel/random/boot_id"], node=node, check=True).stdout


def test_a_node_that_lost_power_comes_back_as_it_first_booted(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=("n1", "n2"), taps=("tap0",))
    lab.up()
    addresses = [line.split()[2] for line in links(lab, "n1").splitlines()]
    identities = {node: boot_id(lab, node) for node in lab.spec.hosts}
    assert len(set(identities.values())) == 3
    changes = "ip link set eth1 mtu 4000; ethtool -L eth1 rx 2; ethtool -K eth1 tso off;"
    changes += "ethtool -C tap0 rx-frames 7; ip link add extra type bridge"
    lab.run(["sh", "-ec", changes], user="root", node="n1", check=True)
    before = lab.run(["ethtool", "-c", "tap0"], node="n1", check=True).stdout
    assert "rx-frames: 7\n" in before.replace("\t", " ")
    faults.slow_link(lab, "n1", "100mbit")
    faults.kill_node(lab, "n1")
    faults.clear(lab, "n1")
    shown = links(lab, "n1")
    assert [line.split()[2] for line in shown.splitlines()] == addresses
    state = "cat /sys/class/net/eth1/mtu; ethtool -l eth1; ethtool -k eth1; ethtool -c tap0"
    out = lab.run(["sh", "-ec", state], node="n1", check=True).stdout
    fresh = lab.run(["sh", "-ec", state], node="n2", check=True).stdout
    assert out == fresh
    assert boot_id(lab, "n1") != identities["n1"]
    assert boot_id(lab, "n2") == identities["n2"]
    if Path("/proc/self/ns/time").exists():  # else the kernel has one clock for all
        uptimes = [float(lab.run(["cut", "-d ", "-f1", "/proc/uptime"], node=node).stdout)
                   for node in ("n1", "n2")]  # fmt: skip
        assert uptimes[0] < uptimes[1] < time.monotonic()
    assert lab.run(["srun", "-w", "n1", "hostname"], check=True, timeout=600).stdout == "n1\n"
    assert carried(lab, "n2", "n1", 1000) == "1000"


def shapers(lab: Lab) -> list[str]:
    """Interfaces of the switch that are slowed."""
    words = ["tc", "-n", lab.paths.netns("switch"), "qdisc", "show"]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[4] for line in out.splitlines() if line.split()[1] in ("tbf", "htb"))


def test_a_slow_cable_is_not_seen_on_the_nodes_interface(lab: Lab) -> None:
    look = ["sh", "-c", "tc qdisc show dev eth1; ip -d link show eth1; ethtool -k eth1"]
    before = lab.run(look, node="n1", check=True).stdout
    try:
        faults.slow_link(lab, "n1", "100mbit")
        faults.slow_link(lab, "n1", "50mbit")
        assert lab.run(look, node="n1", check=True).stdout == before
        assert shapers(lab) == ["n1-in", "n1-test"]
        assert carried(lab, "n1", "n2", 1000) == carried(lab, "n2", "n1", 1000) == "1000"
    finally:
        faults.clear(lab)
    assert shapers(lab) == []
    assert carried(lab, "n1", "n2", 1000) == carried(lab, "n2", "n1", 1000) == "1000"


def test_what_is_wrong_with_a_cable_stays_wrong_after_a_restart(
    make_lab: Callable[..., Lab],
) -> None:
    lab = make_lab(nodes=("n1", "n2", "n3"))
    lab.up()
    faults.slow_link(lab, "n1", "100mbit")
    faults.cut_link(lab, "n2")
    faults.slow_link(lab, "n3", "50mbit", peer="n1", only="sends")
    for node in ("n1", "n2", "n3"):
        faults.kill_node(lab, node)
    assert lab.up() is False
    assert [str(f) for f in lab.faults()] == [
        "link n1: rate 100mbit", "link n2: down", "link n3: rate 50mbit with n1 sends only",
    ]  # fmt: skip
    assert shapers(lab) == ["n1-in", "n1-test", "n3-in"]
    assert lab.run(["cat", "/sys/class/net/eth1/carrier"], node="n2").stdout == "0\n"
    faults.clear(lab)
    assert shapers(lab) == []
    assert carried(lab, "n1", "n2", 1000) == "1000"
