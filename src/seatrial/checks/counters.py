"""Byte counters of the nodes' interfaces, and the proof that the traffic took the right network.

A snapshot is an object that the node-side wrapper records on a node before and after a run::

    {"node": "n1", "boot_id": "...", "time": 1.5,
     "interfaces": {"eth1": {"network": "test", "rx_bytes": 1, "tx_bytes": 2,
                             "rx_packets": 3, "tx_packets": 4, ...}},
     "interrupts": {"eth1": 123}}

An interface with a ``master`` (bond, bridge) on the same network in the snapshot is left out: its
bytes are those of the master and would count twice. ``interrupts`` of an interface may be null or
absent: the kernel attributes none to it. Other keys (mtu, driver ...) are not used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.benchmarks.parsing import ParseError
from seatrial.results.record import Counters, PathProof

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
    for name, value in interrupts.items():
        if value is not None:
            _count(value, f"{where}: interrupts of {name}")
    return Snapshot(node, boot_id, float(time), interfaces, interrupts)


def diff(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> list[Counters]:
    """After minus before, for every node and interface, in the order of ``before``.

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
        differences += [_difference(node, name, old, new) for name in _countable(old)]
    return differences


def prove(
    network: str,
    required_bytes: int,
    counters: list[Counters],
    tolerance: float = 0.0,
    program: str = "the benchmark",
    reported: str = "",
) -> PathProof:
    """Whether every node carried the benchmark's volume on the network under test.

    A node's volume is rx + tx bytes over all its interfaces on ``network``. It must be at least
    ``required_bytes`` x (1 - ``tolerance``) on every node in ``counters``. Else ``reason`` names
    the first node below that and the way of its traffic. With ``required_bytes`` 0 nothing is
    proven, and ``reason`` says so.

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
        if not on or _volume(on) < need:
            crossed = False
            reason = f"{node}: " + _where(network, required_bytes, need, mine, program)
            break
    return PathProof(
        network=network,
        required_bytes=required_bytes,
        counters=counters,
        crossed=crossed,
        reason=reason,
        reported=reported,
    )


def _where(
    network: str, required_bytes: int, need: float, mine: list[Counters], program: str
) -> str:
    """The end of the reason: the volume on the network, and where the rest went."""
    on = [c for c in mine if c.network == network]
    moved = f"the {_human(required_bytes)} that {program} moved"
    if on:
        names = " and ".join(c.interface for c in on)
        text = f"{names} carried {_human(_volume(on))} of {moved}"
    else:
        text = f"it has no interface on the network {network}, which must carry {moved}"
    others = [c for c in mine if c.network != network and c.interface != "lo"]
    other = max(others, key=lambda c: _volume([c]), default=None)
    lo = [c for c in mine if c.interface == "lo"]
    missing = need - _volume(on)
    if other is not None and _volume([other]) >= missing:
        label = "management" if other.network == "mgmt" else other.network
        return (
            f"{text}; {other.interface} ({other.network}) carried {_human(_volume([other]))}: "
            f"the {label} network was used"
        )
    if lo and _volume(lo) >= missing:
        return f"{text}; lo carried {_human(_volume(lo))}: it did not leave the node: loopback"
    if on and _volume(on) >= need / 2:
        return f"{text}; no other interface carried the rest"
    return f"{text}; no other interface carried it: it did not leave the node: shared memory"


def _difference(node: str, name: str, old: Snapshot, new: Snapshot) -> Counters:
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
        **{key: now[key] - was[key] for key in COUNTS},
    )


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


def _volume(counters: Iterable[Counters]) -> int:
    return sum(c.rx_bytes + c.tx_bytes for c in counters)


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ParseError(f"{where}: expected {key} as a string, found {value!r}")
    return value


def _count(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{where}: expected a whole number, found {value!r}")


def _human(count: float) -> str:
    """Bytes in powers of ten: 559 MB, 13 KB."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
