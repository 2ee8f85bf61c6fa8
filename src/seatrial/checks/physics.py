"""The facts of a run that physical limits are computed from, of the plan and of its nodes.

Not here: the limits (``seatrial.benchmarks.limits``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.benchmarks.limits import (
    CORE_PEAK,
    CORE_PEAK_SOURCE,
    SHARED_CORES,
    Known,
    Limit,
    Peak,
    Rate,
)
from seatrial.nic.node.writers import bucket_bytes
from seatrial.plan.model import Plan

#: flag of /proc/cpuinfo -> operations per cycle in double precision: two units of fused
#: multiply-add, or one of each without it; widest first (Intel's and AMD's optimization manuals)
FLOPS_PER_CYCLE = {"avx512f": 32, "fma": 16, "avx": 8, "sse2": 4}
MB_S_PER_BIT_S = 1 / 8e6


def known(
    plan: Plan, transport: str, profile: str, nodes: Iterable[dict[str, Any]], network: str = ""
) -> Known:
    """The facts of a run. ``nodes``: the records of the node-side wrapper."""
    records = list(nodes)
    planned = plan.profiles[profile]
    # A profile sets the same on all its nodes.
    settings: dict[str, dict[str, Any]] = next(iter(planned.declared["nodes"].values()), {})
    bonds: dict[str, list[str]] = {
        of_interface["bond"]["name"]: of_interface["bond"]["members"]
        for of_interface in settings.values()
        if of_interface.get("bond")
    }
    lines = _lines(plan, records)
    shapers = {
        name: Rate(
            of_interface["egress_bit_s"] * MB_S_PER_BIT_S,
            f"the egress rate of profile {profile}",
            bucket_bytes(of_interface["egress_bit_s"], of_interface.get("mtu") or _mtu(records)),
        )
        for name, of_interface in settings.items()
        if of_interface.get("egress_bit_s")
    }
    if plan.transports[transport].data_path != "kernel":
        shapers = {}  # messages do not pass the queueing discipline
    for rates in (lines, shapers):
        for bond, names in bonds.items():
            rates_of = [rates[name] for name in names if name in rates]
            rates.pop(bond, None)
            if len(rates_of) == len(names):
                source = " and ".join(dict.fromkeys(rate.source for rate in rates_of))
                value, bucket = (
                    sum(rate.value for rate in rates_of),
                    sum(rate.bucket for rate in rates_of),
                )
                rates[bond] = Rate(value, f"{source}, for each member of {bond}", bucket)
    interface = plan.transports[transport].under(profile, network).interface
    return Known(interface, lines, shapers, None if plan.virtual_time else _core(records))


def peak_facts(
    limits: Sequence[Limit], known: Known, nodes: Sequence[dict[str, Any]], *, shared: bool
) -> dict[str, Any]:
    """Facts on the peak of a core, for a benchmark that it limits; empty if it is not known.

    ``shared``: all nodes are on one machine, so that its cores are all that there are.
    """
    if known.core is None or not any(isinstance(limit, Peak) for limit in limits):
        return {}
    facts: dict[str, Any] = {CORE_PEAK: known.core.value, CORE_PEAK_SOURCE: known.core.source}
    cpus = [node["after"].get("cpus") for node in nodes] if shared else []
    if cpus and isinstance(cpus[0], int):
        facts[SHARED_CORES] = cpus[0]
    return facts


def _lines(plan: Plan, records: list[dict[str, Any]]) -> dict[str, Rate]:
    """Interface -> line rate: that of the site file, else the lowest that the nodes report."""
    lines = {}
    for network, interface in plan.own_interfaces.items():
        if network in plan.line_rates:
            value = plan.line_rates[network] * MB_S_PER_BIT_S
            lines[interface] = Rate(value, f"the line rate of network {network} in site.yaml")
        elif not plan.virtual_time and (speed := _reported(interface, records)):
            source = f"the link speed of {interface} that its driver reports"
            lines[interface] = Rate(speed * 1e6 * MB_S_PER_BIT_S, source)
    return lines


def _reported(interface: str, records: list[dict[str, Any]]) -> int:
    """The lowest link speed of the nodes in Mbit/s; 0 if one does not report it.

    The speed of an emulated card limits nothing, so those of virtual machines do not count.
    """
    speeds = [
        record["after"]["interfaces"].get(interface, {}).get("speed_Mbit_s") for record in records
    ]
    virtual = any("hypervisor" in _processor(record)["flags"] for record in records)
    whole = all(isinstance(speed, int) and speed > 0 for speed in speeds)
    return min(speeds) if speeds and whole and not virtual else 0


def _mtu(records: list[dict[str, Any]]) -> int:
    """The largest MTU of the nodes' interfaces in bytes; Ethernet's default if none is known."""
    sides = [record["after"]["interfaces"].values() for record in records]
    return (
        max((of_interface.get("mtu") or 0 for side in sides for of_interface in side), default=0)
        or 1500
    )


def _processor(record: dict[str, Any]) -> dict[str, Any]:
    processor = record.get("processor")
    good = isinstance(processor, dict) and isinstance(processor.get("flags"), list)
    return processor if good and processor else {"flags": ["hypervisor"]}


def _core(records: list[dict[str, Any]]) -> Rate | None:
    """The peak of a core in GFLOPS, of the fastest node; None if a node does not report it."""
    peaks = []
    for record in records:
        processor = _processor(record)
        kHz = processor.get("max_kHz")
        flag = next((flag for flag in FLOPS_PER_CYCLE if flag in processor["flags"]), "")
        if not flag or not isinstance(kHz, int) or kHz <= 0:
            return None
        cycle = FLOPS_PER_CYCLE[flag]
        source = f"{kHz / 1e6:g} GHz x {cycle} operations per cycle ({flag})"
        peaks.append(Rate(kHz / 1e6 * cycle, source))
    return max(peaks, key=lambda peak: peak.value, default=None)
