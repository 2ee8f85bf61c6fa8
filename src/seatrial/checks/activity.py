"""The nodes' processors during a step: interrupts, softirqs, and the load of other programs.

Computed from the readings of the node-side wrapper right before and right after the step. Not here:
the processor time of the benchmark, which some benchmarks report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seatrial.benchmarks.parsing import lower
from seatrial.results.record import Activity, Metric

IDLE, IOWAIT, IRQ, SOFTIRQ = 3, 4, 5, 6  # fields of the line "cpu" of /proc/stat, after its name


def activity(step: str, node: dict[str, Any]) -> Activity | None:
    """Rates of one step on one node; None if its times are missing or do not increase."""
    before, after = node["before"], node["after"]
    try:
        seconds = float(after["time"]) - float(before["time"])
    except (KeyError, TypeError, ValueError):
        return None
    if not seconds > 0:
        return None
    return Activity(
        step=step,
        node=after["node"],
        seconds=seconds,
        interrupts_per_s={
            name: _rate(_at(before, "interrupts", name), _at(after, "interrupts", name), seconds)
            for name in after["interfaces"]
        },
        net_rx_per_s=_rate(
            _at(before, "softirqs", "NET_RX"), _at(after, "softirqs", "NET_RX"), seconds
        ),
        softirq_percent=_percent(before, after, SOFTIRQ, seconds),
        irq_percent=_percent(before, after, IRQ, seconds),
    )


def of_step(step: str, nodes: list[dict[str, Any]], shared: bool) -> list[Activity]:
    """The activity of each node's kernel. ``shared``: all nodes have one kernel, as in a lab."""
    activities = []
    for node in nodes:
        if (of_node := activity(step, node)) is not None:
            of_node.others_percent = _others(node, nodes if shared else [node], of_node.seconds)
            waited = node.get("waited_s")
            if waited is not None and of_node.others_percent is not None:
                of_node.waited_percent = min(100 * waited / of_node.seconds, of_node.others_percent)
            activities.append(of_node)
    return activities


def _others(node: dict[str, Any], nodes: list[dict], seconds: float) -> float | None:
    """Processor time of programs of ``node`` that are not the step's, in per cent of one core.

    It is all processor time without idle time, interrupts, and the time of the step's processes on
    the ``nodes`` of this kernel. Time that a hypervisor gave to others is included. None if a
    number is missing.
    """
    before, after = node["before"], node["after"]
    try:
        sides = before["cpu_ticks"], after["cpu_ticks"]
        ticks = [now - then for then, now in zip(*sides, strict=True)]
        excluded = sum(ticks[at] for at in (IDLE, IOWAIT, IRQ, SOFTIRQ)) / after["ticks_per_s"]
        used_s = sum(each["after"]["used_s"] - each["before"]["used_s"] for each in nodes)
        return 100 * max(0.0, int(after["cpus"]) - (excluded + used_s) / seconds)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None


def metrics(activities: list[Activity], interface: str) -> list[Metric]:
    """The activities as metrics, each with its node as location.

    ``interface``: the interface under test; the interrupts of others are left out.
    """
    return [
        replace(lower(name, value, unit), location=one.node)
        for one in activities
        for name, value, unit in (
            ("interrupts_per_s", one.interrupts_per_s.get(interface), "1/s"),
            ("net_rx_per_s", one.net_rx_per_s, "1/s"),
            ("softirq_percent", one.softirq_percent, "percent"),
            ("irq_percent", one.irq_percent, "percent"),
        )
        if value is not None
    ]


def _at(side: dict[str, Any], group: str, name: str) -> int | None:
    counted = side.get(group)
    value = counted.get(name) if isinstance(counted, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / seconds


def _percent(
    before: dict[str, Any], after: dict[str, Any], field: int, seconds: float
) -> float | None:
    try:
        ticks = after["cpu_ticks"][field] - before["cpu_ticks"][field]
        return max(0.0, 100.0 * ticks / float(after["ticks_per_s"]) / seconds)
    except (KeyError, IndexError, TypeError, ZeroDivisionError):
        return None
