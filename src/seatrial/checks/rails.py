"""Why a step went wrong on its rail: no interface, a link that was lost, cables exchanged.

Sentences for the reason of an error, from the wrapper's readings on the nodes. The path proof
itself is in ``seatrial.checks.counters``, the findings on error counters in
``seatrial.results.wire``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

LOST = "carrier_down_count"  # of the kernel, for each interface
# An interface that carries so many times more one way than the other. A connection that fails is
# a dozen frames, and a few broadcasts of other nodes come in beside it.
ONE_WAY = 4
Readings = Mapping[str, Any]


def lost_links(nodes: Iterable[Readings], network: str, interface: str) -> str:
    """A sentence on the nodes whose interface under test lost its link; "" if there are none.

    A figure over a link that was lost is none of the healthy network.
    """
    sentences = []
    for node in nodes:
        name, before, after = node["after"]["node"], _of(node, "before"), _of(node, "after")
        was, now = before.get(interface, {}), after.get(interface, {})
        lost = _count(now, "errors", LOST) - _count(was, "errors", LOST)
        if lost > 0:
            times = "" if lost == 1 else f" {lost} times"
            state = "is down" if now.get("link") == "down" else "is up again"
            sentences.append(
                f"{name}: {interface} ({network}) lost its link{times} during the step, and {state}"
            )
        elif now.get("link") == "down":
            sentences.append(f"{name}: {interface} ({network}) has no link")
    return "; ".join(sentences)


def without_interface(nodes: Iterable[Readings], network: str, interface: str) -> str:
    """A sentence on the nodes that have no interface of the network under test; "" if all have."""
    names = [
        node["after"]["node"]
        for node in nodes
        if interface not in _of(node, "before") or interface not in _of(node, "after")
    ]
    return f"{' and '.join(names)}: no interface {interface} of network {network}" if names else ""


def exchanged(
    nodes: Iterable[Readings], network: str, interface: str, tested: Collection[str]
) -> str:
    """A sentence if what the nodes send on the interface under test comes in on another rail.

    "" if it does not. ``tested``: the interfaces of all networks under test. Linux answers for each
    of its addresses on each interface, so a connection may work although a node's cables are
    exchanged. If it fails (strict rp_filter), at least its first frames show it. Which end is wrong
    shows only in the steps of several pairs.
    """
    nodes = list(nodes)
    sent, received = (_by_node(nodes, interface, key) for key in ("tx_packets", "rx_packets"))
    if sum(received.values()) * ONE_WAY > sum(sent.values()) or not any(sent.values()):
        return ""
    for other in tested:
        came, went = (_by_node(nodes, other, key) for key in ("rx_packets", "tx_packets"))
        if other == interface:
            continue
        if 2 * (sum(came.values()) - sum(went.values())) < sum(sent.values()):
            continue
        of = next(str(at[other].get("network")) for at in map(_after, nodes) if other in at)
        return (
            f"{_names(sent)} sent on {interface} ({network}) and {_names(came)} received on "
            f"{other} ({of}): the cables of {interface} and {other} are exchanged on one of the "
            "nodes, or at its switches"
        )
    return ""


def _by_node(nodes: Iterable[Readings], interface: str, key: str) -> dict[str, int]:
    """How many packets each node moved on an interface."""
    return {
        str(node["after"]["node"]): _moved(node, interface, key)
        for node in nodes
        if interface in _of(node, "before") and interface in _after(node)
    }


def _names(packets: Mapping[str, int]) -> str:
    """The nodes that moved most of the packets."""
    most = max(packets.values())
    return " and ".join(node for node, count in packets.items() if count * ONE_WAY > most)


def _after(node: Readings) -> Mapping[str, Any]:
    return _of(node, "after")


def _of(node: Readings, when: str) -> Mapping[str, Any]:
    interfaces: Mapping[str, Any] = node[when]["interfaces"]
    return interfaces


def _moved(node: Readings, interface: str, key: str) -> int:
    return _count(_of(node, "after")[interface], key) - _count(_of(node, "before")[interface], key)


def _count(reading: Any, *keys: str) -> int:
    """A count in a reading; 0 if there is none, because a job user can write the readings."""
    for key in keys:
        reading = reading.get(key) if isinstance(reading, dict) else None
    return reading if isinstance(reading, int) else 0
