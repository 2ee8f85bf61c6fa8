"""Byte counters of the nodes' interfaces, and the proof that the traffic took the right network.

A snapshot is an object that the node-side wrapper records on a node before and after a run::

    {"node": "n1", "boot_id": "...", "time": 1.5,
     "interfaces": {"eth1": {"network": "test", "rx_bytes": 1, "tx_bytes": 2,
                             "rx_packets": 3, "tx_packets": 4, ...}},
     "interrupts": {"eth1": 123}}

An interface with a ``master`` (bond, bridge) on the same network in the snapshot is left out: its
bytes are those of the master and would count twice. ``interrupts`` of an interface may be null or
absent: the kernel attributes none to it. Other keys (mtu, driver ...) are not used here.

An interface with an RDMA port has a key ``rdma`` (``rdma_port`` in node/run.py). An RDMA card's
traffic is not in the counters of the interface, that of a soft RoCE device is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.benchmarks.parsing import ParseError
from seatrial.nic.profile import DataPath
from seatrial.results.record import Counters, PathProof, RdmaCounters
from seatrial.results.wording import volume

#: the largest payload of an RDMA packet in bytes (InfiniBand Architecture Specification, MTU)
RDMA_MTU = 4096
#: bits of a counter that wraps. Those that run.py reads have 64, or are InfiniBand's first ones of
#: 32, which stop at their end (InfiniBand Architecture Specification, PortCounters).
WIDTH = 64
COUNTS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")


@dataclass(frozen=True)
class Snapshot:
    """The counters of one node at one time (seconds since the epoch)."""

    node: str
    boot_id: str
    time: float
    interfaces: dict[str, dict[str, Any]]
    interrupts: dict[str, int | None]


def parse(data: Any) -> Snapshot:
    """Check one node's snapshot. Raises ParseError, which names the node, interface and field."""
    if not isinstance(data, dict):
        raise ParseError("expected one JSON object of counters")
    node = _text(data, "node", "snapshot")
    where = f"snapshot of {node}"
    boot_id = _text(data, "boot_id", where)
    time = data.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 1e12:
        raise ParseError(f"{where}: expected time in seconds, found {time!r}")
    interfaces = data.get("interfaces")
    if not isinstance(interfaces, dict) or not interfaces:
        raise ParseError(f"{where}: expected at least one interface")
    interrupts = data.get("interrupts", {})
    if not isinstance(interrupts, dict):
        raise ParseError(f"{where}: expected interrupts as an object")
    for name, values in interfaces.items():
        if not isinstance(values, dict):
            raise ParseError(f"{where}: {name}: expected an object of counters")
        _text(values, "network", f"{where}: {name}")
        for key in COUNTS:
            _count(values.get(key), f"{where}: {name}: {key}")
        if "rdma" in values:
            _check_rdma(values["rdma"], f"{where}: {name}: rdma")
    for name, value in interrupts.items():
        if value is not None:
            _count(value, f"{where}: interrupts of {name}")
    return Snapshot(node, boot_id, float(time), interfaces, interrupts)


def diff(
    before: Sequence[Snapshot],
    after: Sequence[Snapshot],
    data_path: DataPath = "verbs",
    network: str | None = None,
) -> list[Counters]:
    """After minus before, for every node and interface, in the order of ``before``.

    An RDMA port that is not in use, or cannot be read, is an error for the data path ``verbs`` on
    the ``network`` under test (None: on any). Otherwise it is left out; but what cannot be read is
    an error where the port shares the interface's counters.

    Raises ParseError if a node or interface is missing on one side, a node was restarted, an
    interface changed its network, or a counter decreased.
    """
    first, second = _by_node(before, "before"), _by_node(after, "after")
    if not first:
        raise ParseError("expected at least one snapshot")
    for node in sorted(first.keys() ^ second.keys()):
        missing = "after" if node in first else "before"
        raise ParseError(f"{node}: no counters were taken {missing} the run")
    differences: list[Counters] = []
    for node, old in first.items():
        new = second[node]
        if old.boot_id != new.boot_id:
            raise ParseError(f"{node}: the node was restarted during the run (boot_id changed)")
        if new.time < old.time:
            raise ParseError(f"{node}: the snapshot after the run is older than the one before it")
        for name in sorted(old.interfaces.keys() ^ new.interfaces.keys()):
            when = "after" if name in old.interfaces else "before"
            raise ParseError(f"{node}: interface {name} is missing {when} the run")
        for name in _countable(old):
            tested = network in (None, old.interfaces[name]["network"])
            needs_port = data_path == "verbs" and tested
            differences.append(_difference(node, name, old, new, needs_port))
    return differences


def prove(
    network: str,
    required_bytes: int,
    counters: list[Counters],
    tolerance: float = 0.0,
    program: str = "the benchmark",
    reported: str = "",
    data_path: DataPath = "kernel",
) -> PathProof:
    """Whether every node carried the benchmark's volume on the network under test.

    A node's volume is rx + tx bytes over all its interfaces on ``network``. It must be at least
    ``required_bytes`` x (1 - ``tolerance``) on every node in ``counters``. Else ``reason`` names
    the first node below that and the way of its traffic. With ``required_bytes`` 0 nothing is
    proven, and ``reason`` says so. With verbs on a port that counts packets only, beside the
    kernel's traffic on the same interface, ``reason`` says what the counters cannot tell apart.

    Of the data path ``verbs`` the volume is that of the RDMA ports of these interfaces. Of the data
    path ``kernel``, what an RDMA port that shares the interface's counters carried does not count.

    Raises ValueError if ``required_bytes`` is negative or ``tolerance`` is not in [0, 1).
    """
    if required_bytes < 0 or not 0 <= tolerance < 1:
        raise ValueError(f"required_bytes {required_bytes}, tolerance {tolerance}")
    need = required_bytes * (1 - tolerance)
    reason, crossed = "", bool(counters)
    if not counters:
        reason = "no counters were taken: the path of the traffic is not known"
    elif required_bytes == 0:
        reason = f"{program} moves no volume that could prove a path"
    for node in dict.fromkeys(c.node for c in counters):
        mine = [c for c in counters if c.node == node]
        on = [c for c in mine if c.network == network]
        if data_path == "verbs":
            why = _verbs_reason(network, required_bytes, need, mine, program)
        elif not on or kernel_volume(on) < need:
            why = _where(network, required_bytes, need, mine, program)
        else:
            why = ""
        if why:
            crossed = False
            reason = f"{node}: {why}"
            break
        reason = reason or _doubt(on, data_path, need)
    return PathProof(
        network=network,
        data_path=data_path,
        required_bytes=required_bytes,
        counters=counters,
        crossed=crossed,
        reason=reason,
        reported=reported,
    )


def _verbs_reason(
    network: str, required_bytes: int, need: float, mine: list[Counters], program: str
) -> str:
    """Why the RDMA ports on the network did not carry the volume; empty if they did."""
    on = [c for c in mine if c.network == network]
    ports = [c.rdma for c in on if c.rdma]
    moved = f"the {volume(required_bytes)} that {program} moved"
    if not ports:
        return f"it has no RDMA port on the network {network}, which must carry {moved}"
    carried = sum(rdma_volume(c) for c in on)
    if carried >= need:
        return ""
    missing = need - carried
    names = " and ".join(port.port for port in ports)
    text = f"{names} carried {volume(carried)} of {moved} ({ports[0].source})"
    interfaces = " and ".join(c.interface for c in on)
    text = f"{text}; {interfaces} carried {volume(kernel_volume(on))} through the kernel"
    if kernel_volume(on) >= missing:
        return f"{text}: TCP, not verbs"
    others = [c for c in mine if c.network != network and c.interface != "lo"]
    if not others:
        return text
    most = max(others, key=rdma_volume)
    if most.rdma and rdma_volume(most) >= missing:
        return (
            f"{text}; {most.rdma.port} ({most.network}) carried "
            f"{volume(rdma_volume(most))}: the {most.network} network was used"
        )
    most = max(others, key=lambda c: kernel_volume([c]))
    if kernel_volume([most]) >= missing:
        return (
            f"{text}; {most.interface} ({most.network}) carried "
            f"{volume(kernel_volume([most]))}: TCP over the {_label(most.network)} network"
        )
    return text


def _doubt(on: list[Counters], data_path: DataPath, need: float) -> str:
    """What the proof cannot show where an RDMA port counts packets only; else empty."""
    for c in on:
        if c.rdma and c.rdma.shared and c.rdma.rx_bytes is None:
            packets = c.rdma.rx_packets + c.rdma.tx_packets
            if data_path == "verbs" or kernel_volume(on) - packets * RDMA_MTU < need:
                return (
                    f"{c.node}: {c.rdma.port} counts packets, not bytes ({c.rdma.source}), and "
                    f"{c.interface} counts verbs and the kernel's traffic together: its bytes "
                    "may be of either"
                )
    return ""


def _label(network: str) -> str:
    return "management" if network == "mgmt" else network


def rdma_volume(counters: Counters) -> int:
    """Bytes of an interface's RDMA port, both directions; 0 without a port.

    Of a port that counts packets only: the most that these can hold, and what the interface
    counted, if it shares the port's traffic. If it does not, they prove nothing.
    """
    port = counters.rdma
    if port is None:
        return 0
    if port.rx_bytes is not None and port.tx_bytes is not None:
        return port.rx_bytes + port.tx_bytes
    if not port.shared:
        return 0
    most = (port.rx_packets + port.tx_packets) * RDMA_MTU
    return min(most, counters.rx_bytes + counters.tx_bytes)


def _where(
    network: str, required_bytes: int, need: float, mine: list[Counters], program: str
) -> str:
    """The end of the reason: the volume on the network, and where the rest went."""
    on = [c for c in mine if c.network == network]
    moved = f"the {volume(required_bytes)} that {program} moved"
    if on:
        names = " and ".join(c.interface for c in on)
        text = f"{names} carried {volume(kernel_volume(on))} of {moved}"
    else:
        text = f"it has no interface on the network {network}, which must carry {moved}"
    others = [c for c in mine if c.network != network and c.interface != "lo"]
    other = max(others, key=lambda c: kernel_volume([c]), default=None)
    lo = [c for c in mine if c.interface == "lo"]
    missing = need - kernel_volume(on)
    if other is not None and kernel_volume([other]) >= missing:
        carried = volume(kernel_volume([other]))
        return (
            f"{text}; {other.interface} ({other.network}) carried {carried}: the "
            f"{_label(other.network)} network was used"
        )
    if lo and kernel_volume(lo) >= missing:
        return (
            f"{text}; lo carried {volume(kernel_volume(lo))}: it did not leave the node: loopback"
        )
    if on and kernel_volume(on) >= need / 2:
        return f"{text}; no other interface carried the rest"
    return f"{text}; no other interface carried it: it did not leave the node: shared memory"


def _difference(node: str, name: str, old: Snapshot, new: Snapshot, needs_port: bool) -> Counters:
    was, now = old.interfaces[name], new.interfaces[name]
    if was["network"] != now["network"]:
        raise ParseError(f"{node}: {name} moved from {was['network']} to {now['network']}")
    for key in COUNTS:
        if now[key] < was[key]:
            raise ParseError(
                f"{node}: {name}: {key} went from {was[key]} to {now[key]}: it was reset in the run"
            )
    irq_was, irq_now = old.interrupts.get(name), new.interrupts.get(name)
    interrupts = None
    if irq_was is not None and irq_now is not None:
        if irq_now < irq_was:
            raise ParseError(f"{node}: {name}: interrupts went from {irq_was} to {irq_now}")
        interrupts = irq_now - irq_was
    elif irq_was is not None or irq_now is not None:
        raise ParseError(f"{node}: {name}: interrupts were counted on one side of the run only")
    return Counters(
        node=node,
        interface=name,
        network=was["network"],
        interrupts=interrupts,
        rdma=_rdma_difference(f"{node}: {name}", was.get("rdma"), now.get("rdma"), needs_port),
        **{key: now[key] - was[key] for key in COUNTS},
    )


def _rdma_difference(
    where: str, was: dict[str, Any] | None, now: dict[str, Any] | None, needed: bool
) -> RdmaCounters | None:
    """The difference of a port's counters; None if the interface has no port, or one that is not
    needed and not in use."""
    if was is None and now is None:
        return None
    try:
        if was is None or now is None:
            raise ParseError(f"{where}: its RDMA port was counted on one side of the run only")
        for when, side in (("before", was), ("after", now)):
            if side["state"] != "ACTIVE":
                if not needed:
                    return None
                state = side["state"] or "absent"
                raise ParseError(f"{where}: RDMA port {side['port']} is {state} {when} the run")
        return _counted(where, was, now)
    except ParseError:
        if needed or any(side and side["shared"] for side in (was, now)):
            raise
        return None


def _counted(where: str, was: dict[str, Any], now: dict[str, Any]) -> RdmaCounters:
    """After minus before of a port in use. Raises ParseError."""
    identity = ("port", "source", "unit")
    if any(was[key] != now[key] for key in identity):
        raise ParseError(f"{where}: {was['port']} changed its counters in the run")
    if not was["source"] or any(
        side.get(f"{way}_packets") is None for side in (was, now) for way in ("rx", "tx")
    ):
        raise ParseError(f"{where}: {was['port']} has no counters of data and packets")
    values: dict[str, int | None] = {"rx_bytes": None, "tx_bytes": None}
    for key in ("rx_packets", "tx_packets"):
        values[key] = _since(f"{where}: {was['port']}: {key}", was[key], now[key])
    if was["unit"]:
        for key in ("rx", "tx"):
            moved = _since(f"{where}: {was['port']}: {key}", was[key], now[key])
            values[f"{key}_bytes"] = moved * was["unit"]
    return RdmaCounters(port=was["port"], source=was["source"], shared=was["shared"], **values)


def ports_not_in_use(nodes: Iterable[Mapping[str, Any]], network: str) -> str:
    """The end of a failed step's reason: the RDMA ports of a network that are not active.

    ``nodes`` are the records of the nodes (node/run.py). Empty if all ports are active.
    """
    faults = []
    for node in nodes:
        for side in (node["before"], node["after"]):
            for values in side["interfaces"].values():
                port = values.get("rdma")
                if port and values["network"] == network and port["state"] != "ACTIVE":
                    state = port["state"] or "absent"
                    faults.append(f"; {side['node']}: RDMA port {port['port']} is {state}")
    return "".join(dict.fromkeys(faults))


def _since(where: str, was: int, now: int) -> int:
    """The increase of a counter of 64 bits that may have wrapped once, or of one of 32 that stops.

    It has wrapped if it fell from the upper half of its range to the lower one.
    """
    if now == 2**32 - 1:
        raise ParseError(f"{where}: it stands at {now}, the end of a counter of 32 bits")
    if now >= was:
        return now - was
    half = 2 ** (WIDTH - 1)
    if half <= was < 2 * half and now < half:
        return now - was + 2 * half
    raise ParseError(f"{where} went from {was} to {now}: it was reset in the run")


def _countable(snapshot: Snapshot) -> list[str]:
    """The interfaces without a master that counts the same bytes."""

    def below_master(values: dict[str, Any]) -> bool:
        master = snapshot.interfaces.get(str(values.get("master")))
        return master is not None and master["network"] == values["network"]

    return [name for name, values in snapshot.interfaces.items() if not below_master(values)]


def _by_node(snapshots: Iterable[Snapshot], when: str) -> dict[str, Snapshot]:
    nodes: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if snapshot.node in nodes:
            raise ParseError(f"{snapshot.node}: counters were taken twice {when} the run")
        nodes[snapshot.node] = snapshot
    return nodes


def kernel_volume(counters: Iterable[Counters]) -> int:
    """Bytes that the kernel moved: those of an RDMA port that shares the counters are not."""
    total = 0
    for c in counters:
        total += c.rx_bytes + c.tx_bytes
        if c.rdma and c.rdma.shared and c.rdma.rx_bytes is not None:
            total -= min(c.rx_bytes + c.tx_bytes, rdma_volume(c))
    return total


def summed(rdma_counters: RdmaCounters, other: RdmaCounters) -> RdmaCounters:
    """The counters of a port over two steps."""
    total = rdma_counters.model_copy()
    for key in COUNTS:
        first, second = getattr(rdma_counters, key), getattr(other, key)
        setattr(total, key, None if first is None or second is None else first + second)
    return total


def _check_rdma(data: Any, where: str) -> None:
    if not isinstance(data, dict):
        raise ParseError(f"{where}: expected an object of counters")
    _text(data, "port", where)
    for key in ("state", "source"):
        if not isinstance(data.get(key), str):
            raise ParseError(f"{where}: expected {key} as a string, found {data.get(key)!r}")
    if data.get("unit") not in (None, 1, 4) or not isinstance(data.get("shared"), bool):
        raise ParseError(f"{where}: expected unit as null, 1 or 4, and shared as true or false")
    for key in ("rx", "tx") if data["unit"] else ():
        _count(data.get(key), f"{where}: {key}")
    for key in ("rx_packets", "tx_packets"):
        if data.get(key) is not None:
            _count(data[key], f"{where}: {key}")


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ParseError(f"{where}: expected {key} as a string, found {value!r}")
    return value


def _count(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{where}: expected a whole number, found {value!r}")
