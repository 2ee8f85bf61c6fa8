"""Plant faults in the cables of a running virtual lab, and remove them.

A fault changes no rate of a wire. A slow cable delays frames: QEMU holds them and releases them at
the end of each interval of the guest's clock (``filter-buffer``; qemu(1), "Network filter
objects"). No setting of the node's NIC changes. Faults end with the guest.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict

from seatrial.base.errors import InputError
from seatrial.base.files import write_whole
from seatrial_lab.common import state
from seatrial_lab.common.network import TEST
from seatrial_lab.common.state import ON, interface_of
from seatrial_lab.virtual.engine import FAULTS_FILE, VirtualLab
from seatrial_lab.virtual.qemu import netdev
from seatrial_lab.virtual.snapshot import QmpConnection

_DELAY = re.compile(r"(\d+)(us|ms)")
MAX_DELAY_US = 1_000_000
#: QEMU names a filter's queue from the side of the wire, not of the node
_QUEUES = {None: "all", "sends": "rx", "receives": "tx"}


def parse_delay(text: str) -> int:
    """Return the microseconds of ``500us`` or ``2ms``. Raises InputError."""
    match = _DELAY.fullmatch(text.strip().lower())
    delay = int(match[1]) * (1000 if match[2] == "ms" else 1) if match else 0
    if not 0 < delay <= MAX_DELAY_US:
        raise InputError(f"delay {text!r} is not like 500us or 2ms, above zero and at most 1000ms")
    return delay


def delay_link(
    lab: VirtualLab, node: str, delay: str, interface: str, only: str | None = None
) -> None:
    """Hold the frames of a node's cable for up to ``delay``, such as 2ms, in each direction.

    ``only``: only what the node ``sends`` or ``receives``. Replaces another fault of the cable.
    Raises InputError, LabError.
    """
    interval = parse_delay(delay)
    if only not in _QUEUES:
        raise InputError(f"direction {only!r} is not sends or receives")
    detail = f"delay {delay}" + (f" {only} only" if only else "")
    with _planting(lab, node, interface, detail) as (control, wire):
        control.execute(
            "object-add", **{"qom-type": "filter-buffer"}, id=_filter(wire), netdev=wire,
            queue=_QUEUES[only], interval=interval,
        )  # fmt: skip


def cut_link(lab: VirtualLab, node: str, interface: str) -> None:
    """Take the link of a node's cable away, as if it were pulled. Raises InputError, LabError."""
    with _planting(lab, node, interface, "down") as (control, wire):
        control.execute("set_link", name=wire, up=False)


def clear(lab: VirtualLab, node: str | None = None) -> list[state.Fault]:
    """Remove all planted faults, or the faults of one node. Returns the removed faults."""
    if node is not None and node not in lab.spec.nodes:
        raise InputError(f"no compute node {node!r}: {', '.join(lab.spec.nodes)}")
    with lab.control() as control:
        faults = lab.faults()
        chosen = [fault for fault in faults if node in (None, fault.node)]
        for fault in chosen:
            _remove(control, _wire(lab, fault.node, interface_of(fault.detail)), fault)
        _save(lab, [fault for fault in faults if fault not in chosen])
    return chosen


@contextlib.contextmanager
def _planting(
    lab: VirtualLab, node: str, interface: str, fault: str
) -> Iterator[tuple[QmpConnection, str]]:
    """Remove the earlier fault of a cable; yields QEMU and its name of the cable."""
    wire = _wire(lab, node, interface)
    with lab.control() as control:
        kept = []
        for other in lab.faults():
            if (other.node, interface_of(other.detail)) == (node, interface):
                _remove(control, wire, other)
            else:
                kept.append(other)
        _save(lab, kept)
        yield control, wire
        detail = fault if interface == TEST else f"{fault}{ON}{interface}"
        _save(lab, [*kept, state.Fault("link", node, detail)])


def _remove(control: QmpConnection, wire: str, fault: state.Fault) -> None:
    if fault.detail.startswith("down"):
        control.execute("set_link", name=wire, up=True)
    else:
        control.execute("object-del", id=_filter(wire))


def _filter(wire: str) -> str:
    return f"slow-{wire}"


def _wire(lab: VirtualLab, node: str, interface: str) -> str:
    """Return QEMU's name of a node's cable. Raises InputError."""
    if node not in lab.spec.nodes:
        raise InputError(f"no compute node {node!r}: {', '.join(lab.spec.nodes)}")
    cables = {card.interface: netdev(number) for number, card in enumerate(lab.virtual_spec.cards)
           if card.node == node}  # fmt: skip
    if interface not in cables:
        raise InputError(f"no cable of {interface!r}: {', '.join(cables)}")
    return cables[interface]


def _save(lab: VirtualLab, faults: list[state.Fault]) -> None:
    text = json.dumps([asdict(fault) for fault in faults], indent=1)
    write_whole(lab.paths.run / FAULTS_FILE, text, durable=False)
