"""The specification of a virtual lab: a LabSpec, the NICs of its nodes, and the guest."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.base.errors import InputError, Problem
from seatrial_lab.common.spec import LOGIN, LabSpec

#: NIC model -> QEMU's name of the card, with options
MODELS = {
    "igb": "igb",
    "igb-vf": "igb",  # the node has a virtual function of the card, not the card
    "e1000": "e1000-82545em",  # the plain model refuses ethtool -C
    "e1000e": "e1000e",
    # A timer of the guest's clock sends the guest's packets. Otherwise QEMU's main loop sends
    # them when this machine schedules it, and virtual time jumps meanwhile.
    "virtio-net": "virtio-net-pci,ioeventfd=off,tx=timer,x-txtimer=1000",
    "vmxnet3": "vmxnet3",
}
SRIOV = ("igb", "igb-vf")  # cards that need a root port of their own
MAX_CARDS = 24  # the number of slots on the guest's bus
#: The firmware gives each root port 4 KiB of the 64 KiB of I/O addresses. With 15 ports it
#: halts without a message; with 14 the kernel starts (QEMU 10.0.2, SeaBIOS of Debian 12).
MAX_SRIOV_CARDS = 14
#: a processor may be this far ahead of another: docs/dev/virtual-lab.md has the error
WINDOW_NS = 1000


@dataclass(frozen=True)
class Wire:
    """The cable of a NIC. ``rate`` is in bits per second, of each direction.

    ``delay_ns`` is the propagation delay to the other NIC, or to the switch. ``queue_B`` bytes wait
    for the NIC at most in the queue of the switch; None: there is no switch. ``latency_ns`` is the
    switch's. ``bus`` is the number of the host bus of the NIC.
    """

    rate: int
    delay_ns: int = 0
    queue_B: int | None = None
    latency_ns: int = 0
    bus: int = 1


@dataclass(frozen=True)
class Card:
    """A NIC of a node. ``network`` counts from 0: cards with the same number share a network.

    ``rdma`` is the name of the soft RoCE device on the card; empty: it has none. Without a
    ``wire``, frames arrive at once.
    """

    node: str
    interface: str
    model: str
    network: int
    subnet: str
    mtu: int = 1500
    rdma: str = ""
    wire: Wire | None = None

    @property
    def bus(self) -> int:
        """Return the number of the card's host bus in its node."""
        return self.wire.bus if self.wire else 1


def _too_many(text: str) -> InputError:
    return InputError([Problem("", None, "nodes", text)])


@dataclass(frozen=True)
class VirtualSpec:
    """One virtual lab. Raises InputError if a field is not valid.

    ``lab`` has the fields in common with a native lab; its test network is not used.
    ``memory_MiB`` is the memory of the guest. ``kernel`` is the Debian suite of its kernel; empty:
    the machine's release. ``cpu`` is QEMU's name of the processor model. ``own_processors``: the
    login node has a processor of its own and each node ``lab.cpus``, if QEMU can be built; else all
    hosts share one, cards have no wires and nodes no bus. ``bus_B_s`` is the rate, in bytes per
    second, of each host bus of a node; None: without limit. ``window_ns``: how far a processor may
    be ahead of another.
    """

    lab: LabSpec
    cards: tuple[Card, ...]
    memory_MiB: int = 4096
    kernel: str = ""
    drivers: tuple[str, ...] = ()
    #: with AVX2, which Intel MPI needs; without "enhanced rep movsb": QEMU counts an instruction
    #: for each byte of it, which makes copies eight times too slow
    cpu: str = "Haswell-v4,-erms"
    own_processors: bool = False
    bus_B_s: int | None = None
    window_ns: int = WINDOW_NS

    def __post_init__(self) -> None:
        if len(self.cards) > MAX_CARDS:
            raise _too_many(f"{len(self.cards)} NICs are more than {MAX_CARDS}")
        ports = sum(card.model in SRIOV for card in self.cards)
        if ports > MAX_SRIOV_CARDS:
            raise _too_many(
                f"{ports} NICs of {' and '.join(SRIOV)} are more than {MAX_SRIOV_CARDS}: "
                "the guest's firmware has no I/O addresses for more"
            )
        for card in self.cards:
            if card.model not in MODELS:
                raise InputError(f"no NIC model {card.model!r}: {', '.join(MODELS)}")
            if card.node not in self.lab.nodes:
                raise InputError(f"a NIC for an unknown node {card.node!r}")
        devices = [card.rdma for card in self.cards if card.rdma]
        if len(set(devices)) < len(devices):
            raise InputError(
                "nodes share a kernel, so each RDMA device needs its own name: "
                "networks.NAME.device as rxe_%n:1"
            )

    @property
    def instance(self) -> str:
        return self.lab.instance

    def address(self, card: Card) -> str:
        """Return a card's IPv4 address, with prefix length."""
        net = ipaddress.IPv4Network(card.subnet)
        return f"{net.network_address + 1 + self.lab.nodes.index(card.node)}/{net.prefixlen}"

    def processors(self, host: str) -> list[int]:
        """Return the numbers of the processors that a host has for itself."""
        if host == LOGIN:
            return [0]
        first = 1 + self.lab.nodes.index(host) * self.lab.cpus
        return list(range(first, first + self.lab.cpus))

    @property
    def guest_processors(self) -> int:
        """The number of all hosts' processors, if they have their own."""
        return 1 + len(self.lab.nodes) * self.lab.cpus

    def differences(self, other: VirtualSpec) -> list[str]:
        """Return the names of the fields in which two specs differ; of ``lab``, its fields."""
        names = [each.name for each in dataclasses.fields(self) if each.name != "lab"]
        differing = [name for name in names if getattr(self, name) != getattr(other, name)]
        return [*self.lab.differences(other.lab), *differing]

    def without_wires(self) -> VirtualSpec:
        """Return the lab with cables and buses that have no limit, and the usual window."""
        cards = tuple(dataclasses.replace(card, wire=None) for card in self.cards)
        return dataclasses.replace(self, cards=cards, bus_B_s=None, window_ns=WINDOW_NS)

    def hardware_address(self, card: Card) -> str:
        index = self.lab.nodes.index(card.node)
        return f"52:54:00:73:{card.network + 1:02x}:{index + 1:02x}"

    def physical_address(self, card: Card) -> str:
        """Return the MAC address of the physical card; a node may have a function of it only."""
        address = self.hardware_address(card)
        return address.replace("52:54:00:73", "52:54:00:74") if card.model == "igb-vf" else address

    def to_json(self) -> str:
        data = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        data["lab"] = json.loads(self.lab.to_json())
        data["cards"] = [dataclasses.asdict(card) for card in self.cards]
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> VirtualSpec:
        data: dict[str, Any] = json.loads(text)
        lab: Mapping[str, Any] = data["lab"]
        data["lab"] = LabSpec.from_json(json.dumps(lab))
        for card in data["cards"]:
            card["wire"] = Wire(**wire) if (wire := card.get("wire")) else None
        data["drivers"] = tuple(data["drivers"])
        data["cards"] = tuple(Card(**card) for card in data["cards"])
        return cls(**data)
