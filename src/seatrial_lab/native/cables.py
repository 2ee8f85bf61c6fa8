"""Faults of a node's test cables: less bandwidth, no carrier, or two of them exchanged.

Less bandwidth can be that of one direction only, or only with one other node, as of one path
through a switch.

As with a real cable, no setting of the node's interface changes: the node
reports the same NIC as before, and a NIC profile does not remove the fault.

The lab's state records a fault by its ``detail``: ``down``, ``rate 100mbit``, ``rate 100mbit with
n5``, ``rate 100mbit with n5 sends only``, ``down on eth2`` or ``crossed on eth2`` (with eth1). The
detail is enough to plant the fault again on new interfaces.
"""

from __future__ import annotations

import contextlib
import re

from seatrial.base.errors import InputError, LabError
from seatrial_lab.common import network
from seatrial_lab.common.network import switch_port
from seatrial_lab.common.paths import SWITCH, LabPaths
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.common.state import ON, interface_of

_RATE = re.compile(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)")
_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_DETAIL = re.compile(r"rate (\S+)(?: with (\S+))?(?: (sends|receives) only)?")
# tbf and htb: the size of the token bucket. 1 ms of the rate delays short messages too. The bucket
# must hold a few frames, or the shaper passes none.
_BURST_SECONDS = 0.001
_LATENCY = "20ms"
CROSSED = "crossed"
_HEADER = 18  # bytes of Ethernet around the payload that an MTU counts


def parse_rate(text: str) -> int:
    """Return the bit/s of ``100mbit`` or ``1.5gbit`` (decimal units). Raises InputError."""
    match = _RATE.fullmatch(text.strip().lower())
    bits = float(match[1]) * _BITS[match[2]] if match else 0
    if bits < 8000:
        raise InputError(f"rate {text!r} is not like 100mbit or 1.5gbit, at least 8kbit")
    return int(bits)


def burst_bytes(rate: int, mtu: int, switch_mtu: int = 0) -> int:
    """Return the token bucket size in bytes for a rate in bit/s and the MTU at boot.

    The bucket holds at least one frame of ``switch_mtu``, which a node may set.
    """
    return max(int(rate / 8 * _BURST_SECONDS), 4 * (mtu + _HEADER), switch_mtu + _HEADER)


def set_port(spec: LabSpec, node: str, name: str, state: str) -> None:
    """Set the switch's port for a node on network ``name`` to ``up`` or ``down``."""
    switch = LabPaths(spec.instance).netns(SWITCH)
    network.ip("-n", switch, "link", "set", switch_port(node, name), state)


def _network_of(spec: LabSpec, detail: str) -> str:
    """Return the lab's name of the network whose cable a detail is of."""
    names = {interface: name for name, interface in network.tests(spec).items()}
    return names[interface_of(detail)]


def _shaper_names(node: str, name: str) -> tuple[str, str, str]:
    """Return the names of a slow cable's parts: a bridge and the two ends of a veth pair."""
    number = name.removeprefix("net") if name.startswith("net") else ""
    return f"{node}-br{number}", f"{node}-in{number}", f"{node}-out{number}"


def _connect(spec: LabSpec, node: str, port_of: str, name: str) -> None:
    """Connect the port of a node on network ``port_of`` to the bridge of network ``name``."""
    switch = LabPaths(spec.instance).netns(SWITCH)
    network.ip("-n", switch, "link", "set", switch_port(node, port_of), "master", name)


def _replug(spec: LabSpec, node: str, port_of: str, name: str) -> None:
    """The same with a loss of the link, as of a cable that is pulled and plugged in."""
    set_port(spec, node, port_of, "down")
    _connect(spec, node, port_of, name)
    set_port(spec, node, port_of, "up")


def detail_of(rate: str, peer: str | None = None, only: str | None = None) -> str:
    """The detail of a slow cable: its rate, with which node, and in which direction."""
    parts = [f"rate {rate}", f"with {peer}" if peer else "", f"{only} only" if only else ""]
    return " ".join(filter(None, parts))


def plant(spec: LabSpec, node: str, detail: str) -> None:
    """Plant the fault that ``detail`` describes. Raises LabError."""
    fault, name = detail.partition(ON)[0], _network_of(spec, detail)
    if fault == "down":
        set_port(spec, node, name, "down")
        return
    if fault == CROSSED:
        _replug(spec, node, "test", name)
        _replug(spec, node, name, "test")
        return
    parts = _DETAIL.fullmatch(fault)
    if parts is None:
        raise LabError(f"{node}: no fault is {detail!r}")
    bits, peer, only = parse_rate(parts[1]), parts[2], parts[3]
    burst = str(burst_bytes(bits, spec.test_mtu, spec.switch_mtu))
    clear(spec, node, detail)
    switch, port = LabPaths(spec.instance).netns(SWITCH), switch_port(node, name)
    bridge, inner, outer = _shaper_names(node, name)
    mtu = f"mtu {spec.switch_mtu}"
    lines = [
        f"link add {bridge} {mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
        f"link set {bridge} addrgenmode none up",
        f"link add {inner} {mtu} type veth peer name {outer} {mtu}",
        f"link set {inner} master {bridge} addrgenmode none up",
        f"link set {port} master {bridge}",
        f"link set {outer} master {name} addrgenmode none up",
    ]
    network.ip("-n", switch, "-batch", "-", batch="\n".join(lines) + "\n")
    subnet = network.test_subnets(spec)[interface_of(detail)]
    address = spec.test_address(peer, subnet) if peer else ""
    # The port sends to the node; the inner end of the pair sends frames of the node.
    for interface, which, side in ((port, "receives", "src"), (inner, "sends", "dst")):
        if only in (None, which):
            _shape(switch, interface, f"{bits}bit", burst, (side, address) if peer else ())


def _shape(switch: str, interface: str, rate: str, burst: str, match: tuple[str, ...]) -> None:
    """Limit what leaves an interface; with ``match`` only IPv4 packets with this ``src`` or
    ``dst``. Frames of another kind, as of ARP, are not limited then."""

    def tc(kind: str, *words: str) -> None:
        network.run_program("tc", "-n", switch, kind, "replace", "dev", interface, *words)

    if not match:
        tc("qdisc", "root", "tbf", "rate", rate, "burst", burst, "latency", _LATENCY)
        return
    # Without a class for the others, htb passes them unchanged.
    tc("qdisc", "root", "handle", "1:", "htb", "default", "0")
    shaper = ("htb", "rate", rate, "burst", burst, "cburst", burst, "quantum", "10000")
    tc("class", "parent", "1:", "classid", "1:1", *shaper)
    chosen = ("u32", "match", "ip", *match, "flowid", "1:1")
    tc("filter", "parent", "1:", "protocol", "ip", "prio", "1", *chosen)


def clear(spec: LabSpec, node: str, detail: str) -> None:
    """Remove a fault, and an earlier fault of the same cable that it replaced."""
    fault, name = detail.partition(ON)[0], _network_of(spec, detail)
    switch, port = LabPaths(spec.instance).netns(SWITCH), switch_port(node, name)
    bridge, inner, _ = _shaper_names(node, name)
    if fault == CROSSED:
        _replug(spec, node, name, name)
        _replug(spec, node, "test", "test")
        return
    _connect(spec, node, name, name)
    for part in (inner, bridge):
        with contextlib.suppress(LabError):  # no slow cable: nothing to delete
            network.ip("-n", switch, "link", "del", part)
    with contextlib.suppress(LabError):
        network.run_program("tc", "-n", switch, "qdisc", "del", "dev", port, "root")
    if fault == "down":
        set_port(spec, node, name, "up")
