"""The groups of NIC settings that a profile may have, as a person writes them.

Every field may be given as ``null``: it then stays as the node boots, whatever the base profile
says. ``flat`` has the keys that the same settings have on nodes.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from seatrial.base.fields import (
    Interface,
    LineCpus,
    Model,
    QueueCpus,
    Rate,
    Switch,
    at_least,
    matching,
)
from seatrial.base.yamlfile import Fault, nearest

#: short names of offloads, and the names that ``ethtool -k`` prints
OFFLOADS = {
    "rx": "rx-checksumming",
    "rx_checksum": "rx-checksumming",
    "tx": "tx-checksumming",
    "tx_checksum": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "rx_vlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "tx_vlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
    "rx_hash": "receive-hashing",
}
UNDASHED = ("loopback", "highdma")  # the kernel's only names of features without a dash

Count = Annotated[int, Field(ge=0, le=2**32 - 1)]


def offload(name: str) -> str:
    """The name that ``ethtool -k`` prints for an offload, from it or a short name.

    Raises Fault, a ValueError.
    """
    if name in OFFLOADS:
        return OFFLOADS[name]
    if name in UNDASHED or re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name):
        return name
    names = [*OFFLOADS, *UNDASHED]
    raise Fault(f"unknown offload {name!r}", nearest(name, names), name)


def _offloads(given: dict[str, Switch | None]) -> dict[str, Switch | None]:
    seen: dict[str, str] = {}
    for name in given:
        long = offload(name)
        if long in seen:
            raise Fault(f"{name} and {seen[long]} are one and the same", "keep one of them", name)
        seen[long] = name
    return given


def _private_flags(given: dict[str, Switch | None]) -> dict[str, Switch | None]:
    for name in given:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,30}", name):
            raise Fault(
                f"{name!r} is not a flag's name",
                "write it as ethtool --show-priv-flags prints it",
                name,
            )
    return given


def _parameters(given: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise Fault(f"{name!r} is not a parameter's name", "see modinfo -p MODULE", name)
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_.,:/+-]*", value):
            raise Fault("blanks and quotes cannot be in a value", "write for example 0,0", name)
    return given


def _power_of_two(count: int | None) -> int | None:
    if count and count & (count - 1):
        # The kernel rounds up, and would read back another number than the one set.
        raise Fault(f"{count} is not a power of two", f"write {1 << count.bit_length()}")
    return count


class Driver(Model):
    """Parameters that a kernel module takes only when it is loaded: it is reloaded."""

    module: Annotated[
        str, *matching(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,54}", "a module", "see lsmod")
    ] = Field(examples=["e1000e"])
    parameters: Annotated[dict[str, str | int | bool], AfterValidator(_parameters)] = {}
    link_timeout_s: int = Field(
        default=30, ge=1, le=60, description="how long the link may take to be up again"
    )
    allow_shared: Switch = Field(
        default=False,
        description="reload although other interfaces have the driver too, which lose their link",
    )


class Coalescing(Model):
    """``ethtool -C``: how long, or for how many frames, an interrupt is held back."""

    adaptive_rx: Switch | None = None
    adaptive_tx: Switch | None = None
    rx_usecs: Count | None = None
    rx_frames: Count | None = None
    rx_usecs_irq: Count | None = None
    rx_frames_irq: Count | None = None
    tx_usecs: Count | None = None
    tx_frames: Count | None = None
    tx_usecs_irq: Count | None = None
    tx_frames_irq: Count | None = None
    stats_block_usecs: Count | None = None
    sample_interval: Count | None = None
    pkt_rate_low: Count | None = None
    rx_usecs_low: Count | None = None
    rx_frames_low: Count | None = None
    tx_usecs_low: Count | None = None
    tx_frames_low: Count | None = None
    pkt_rate_high: Count | None = None
    rx_usecs_high: Count | None = None
    rx_frames_high: Count | None = None
    tx_usecs_high: Count | None = None
    tx_frames_high: Count | None = None
    cqe_mode_rx: Switch | None = None
    cqe_mode_tx: Switch | None = None


class Rings(Model):
    """``ethtool -G``: how many descriptors. A change takes some drivers' link down."""

    rx: Count | None = None
    rx_mini: Count | None = None
    rx_jumbo: Count | None = None
    tx: Count | None = None


class Channels(Model):
    """``ethtool -L``: how many queues, each with its interrupt line."""

    rx: Count | None = None
    tx: Count | None = None
    other: Count | None = None
    combined: Count | None = None


class Bonding(Model):
    """Several interfaces as one. Without it they are independent, each in its own network."""

    name: Interface = Field(default="bond0", description="of the interface that is made")
    mode: Literal[
        "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
        "balance-alb",
    ]  # fmt: skip
    members: Annotated[list[Interface], *at_least(2, "write for example members: [eth1, eth2]")] = (
        Field(examples=["[eth1, eth2]"])
    )
    miimon_ms: int = Field(default=100, ge=0, le=60_000, description="how often to look at links")


class Settings(Model):
    """Settings of one interface."""

    driver: Driver | None = None
    virtual_functions: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="SR-IOV functions to make"
    )
    mtu: Annotated[int, Field(ge=1280, le=65535)] | None = Field(
        default=None,
        description="bytes; below 1280 the kernel takes IPv6 addresses away for good",
    )
    txqueuelen: Count | None = Field(default=None, description="packets")
    rings: Rings | None = None
    channels: Channels | None = None
    offloads: Annotated[dict[str, Switch | None], AfterValidator(_offloads)] | None = Field(
        default=None, description="tso, gso, gro, lro ... or ethtool -k's names: on or off"
    )
    private_flags: Annotated[dict[str, Switch | None], AfterValidator(_private_flags)] | None = (
        Field(default=None, description="the driver's own switches: on or off")
    )
    coalescing: Coalescing | None = None
    irq_affinity: LineCpus | None = Field(
        default=None, description="CPUs of all interrupt lines, or spread: line i to CPU i"
    )
    rps_cpus: QueueCpus | None = Field(default=None, description="CPU list, all or none")
    rps_flow_cnt: Annotated[Count, AfterValidator(_power_of_two)] | None = None
    xps_cpus: QueueCpus | None = Field(default=None, description="CPU list, all or none")
    napi_defer_hard_irqs: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="empty polls before interrupts are enabled again"
    )
    gro_flush_timeout_ns: Count | None = None
    napi_threaded: Switch | None = Field(default=None, description="poll in kernel threads")
    egress_rate: Rate | None = Field(default=None, examples=["1 Gbit/s"])


class ProfileSettings(Settings):
    """Settings of a profile: those of each interface, and those of the node as a whole."""

    busy_poll_us: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="node-wide: microseconds that poll and select spin"
    )
    busy_read_us: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="node-wide: microseconds that a socket's read spins"
    )
    bonding: Bonding | None = None
