"""The wires of a virtual lab: what a site asks for, in words, and what has passed them.

``emulator/hub-wire.c`` has the wires themselves.
"""

from __future__ import annotations

from typing import Any

from seatrial_lab.virtual import qemu
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.spec import VirtualSpec, Wire


def in_words(spec: VirtualSpec) -> str:
    """Return the rates of a lab's wires, switches and buses; empty: it has none."""
    texts = dict.fromkeys(
        f"{card.interface}: {_wire(card.wire)}" for card in spec.cards if card.wire
    )
    if not spec.bus_B_s:
        return "; ".join(texts)
    rate = f"{spec.bus_B_s / 1e6:g} MB/s in each node"
    buses: dict[int, dict[str, None]] = {}
    for card in spec.cards:
        buses.setdefault(card.bus, {})[card.interface] = None
    if len(buses) == 1:
        return "; ".join([*texts, f"a host bus of {rate}"])
    names = "; ".join(f"{', '.join(names)} on bus {number}" for number, names in buses.items())
    return "; ".join([*texts, f"host buses of {rate}", names])


def _wire(wire: Wire) -> str:
    text = f"cables of {wire.rate / 1e6:g} Mbit/s with a delay of {wire.delay_ns} ns"
    if wire.queue_B is None:
        return text
    return (
        f"{text}, a switch with a queue of {wire.queue_B / 1024:g} KiB for each port and a latency "
        f"of {wire.latency_ns} ns"
    )


def _queue_name(wire: Wire | None) -> str:
    """Where frames to a NIC wait: a port of the switch, or the wire's own line without one."""
    switch = wire is not None and wire.queue_B is not None
    return "the queue of the switch" if switch else "the line of 16 MiB before the card"


def counters(lab: VirtualLab) -> list[dict[str, Any]]:
    """Return the frames of each NIC with a wire or a bus since the lab started.

    ``sent`` and ``received`` are the NIC's. ``dropped`` frames found the ``queue`` before the NIC
    full (its name in words), ``missed`` ones the NIC's own memory: the host bus was too slow.
    ``queue_peak_B`` is the largest content of the queue. Raises LabError.
    """
    spec = lab.virtual_spec
    if lab.facts().get("processors") != "own" or not in_words(spec):
        return []
    with lab.control() as control:
        rows = {row["id"]: row for row in control.execute("x-query-hub-ports")}
    return [
        {"node": card.node, "interface": card.interface, "sent": row["sent"],
         "received": row["received"], "dropped": row["dropped"], "missed": row["missed"],
         "queue": _queue_name(card.wire), "queue_peak_B": row["peak"]}
        for number, card in enumerate(spec.cards)
        if (card.wire or spec.bus_B_s) and (row := rows.get(qemu.netdev(number)))
    ]  # fmt: skip
