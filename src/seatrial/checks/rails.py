"""Why a step went wrong on its rail: no interface, a link that was lost, cables exchanged.

Sentences for the reason of an error, from the wrapper's readings on the nodes. The path proof
itself is in ``seatrial.checks.counters``, the findings on error counters in
``seatrial.results.wire``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

LOST = "carrier_down_count"  # of the kernel, for each interface
ONE_WAY = 10  # an interface that carries so many times more one way than the other
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
    """A sentence on nodes that send on the interface under test and receive on another rail.

    "" if there are none. ``tested``: the interfaces of all networks under test. Linux answers for
    each of its addresses on each interface, so a connection may work although a node's cables are
    exchanged: what one end sends on its first interface comes in on the other's second. If the
    connection fails (strict rp_filter), at least its first frames show it. Which end is wrong shows
    only in the steps of several pairs.
    """
    others: dict[str, tuple[list[str], str]] = {}
    for node in nodes:
        moved = {
            name: [_moved(node, name, key) for key in ("tx_packets", "rx_packets")]
            for name in tested
            if name in _of(node, "before") and name in _of(node, "after")
        }
        sent, received = moved.pop(interface, [0, 0])
        if not sent or received * ONE_WAY > sent:
            continue
        for name, (_, came) in moved.items():
            if came > received * ONE_WAY:
                of = str(_of(node, "after")[name].get("network"))
                others.setdefault(name, ([], of))[0].append(str(node["after"]["node"]))
                break
    return "; ".join(
        f"{' and '.join(names)} sent on {interface} ({network}) and received on {name} ({of}): the "
        f"cables of {interface} and {name} are exchanged on one of the nodes, or at its switches"
        for name, (names, of) in others.items()
    )


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
