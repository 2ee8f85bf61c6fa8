"""From settings as people write them to the flat keys that nodes have.

The keys are those of the policy file, the journal and the evidence: ``coalesce.rx-usecs``,
``feature.tcp-segmentation-offload``, ``sysfs.threaded`` ... ``docs/write-a-nic-profile.md`` has the
table. A value of None in ``changes`` takes the setting of a base profile away again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from seatrial.nic.settings import Settings, offload

Value = int | str | dict[str, Any]
Flat = dict[str, Value]

#: groups that are one value: the key on nodes
SINGLE = {
    "mtu": "mtu",
    "txqueuelen": "txqueuelen",
    "irq_affinity": "irq_affinity",
    "rps_cpus": "rps_cpus",
    "rps_flow_cnt": "rps_flow_cnt",
    "xps_cpus": "xps_cpus",
    "egress_rate": "egress_bit_s",
    "virtual_functions": "vfs",
    "napi_defer_hard_irqs": "sysfs.napi_defer_hard_irqs",
    "gro_flush_timeout_ns": "sysfs.gro_flush_timeout",
    "napi_threaded": "sysfs.threaded",
}
#: groups of many values: the first word of the key on nodes
PREFIX = {
    "coalescing": "coalesce",
    "rings": "ring",
    "channels": "channels",
    "offloads": "feature",
    "private_flags": "private",
}
#: groups that go to a node as they are
WHOLE = {"driver": "driver", "bonding": "bond"}
NODE = {
    "busy_poll_us": "sysctl.net.core.busy_poll",
    "busy_read_us": "sysctl.net.core.busy_read",
}
#: every group of settings, and its key or first word of key on nodes
GROUPS = {**WHOLE, **PREFIX, **SINGLE, **NODE}


def _dashed(word: str) -> str:
    return word.replace("_", "-")


#: how the words of a group become ethtool's; of the others by ``_dashed``
NAMES: dict[str, Callable[[str], str]] = {"offloads": offload, "private_flags": str}


def group_of(key: str) -> str:
    """The group, as people write it, that a flat key belongs to. Raises KeyError."""
    for group, flat in (*SINGLE.items(), *WHOLE.items(), *NODE.items()):
        if key == flat:
            return group
    word = key.partition(".")[0]
    return next(group for group, prefix in PREFIX.items() if prefix == word)


def changes(settings: Settings) -> Iterator[tuple[str, Value | None]]:
    """What the file gives, in the model's order: flat key and value, None to take it away.

    A key that ends in ``.`` with None takes a whole group away.
    """
    for group in type(settings).model_fields:
        if group in settings.model_fields_set and group in GROUPS:
            value = getattr(settings, group)
            if group in PREFIX:
                yield from _many(group, value)
            else:
                yield GROUPS[group], None if value is None else _one(group, value)


def overlay(onto: Flat, settings: Settings) -> None:
    """Change ``onto`` by what ``settings`` gives: its own values win."""
    for key, value in changes(settings):
        if value is None:
            for old in [old for old in onto if old == key or _within(old, key)]:
                del onto[old]
        elif key == "driver":
            onto[key] = _driver_over(onto.get(key), value)
        else:
            onto[key] = value


def _within(key: str, group: str) -> bool:
    return group.endswith(".") and key.startswith(group)


def _many(group: str, value: Any) -> Iterator[tuple[str, Value | None]]:
    prefix = PREFIX[group]
    if value is None:
        yield f"{prefix}.", None
        return
    name = NAMES.get(group, _dashed)
    given = value if isinstance(value, dict) else value.model_dump(exclude_unset=True)
    for word, one in given.items():
        yield f"{prefix}.{name(word)}", _on_off(one)


def _on_off(value: bool | int | None) -> int | str | None:
    return ("on" if value else "off") if isinstance(value, bool) else value


def _one(group: str, value: Any) -> Value:
    if group == "driver":
        return {
            "module": value.module,
            "parameters": {key: _parameter(one) for key, one in sorted(value.parameters.items())},
            "link_timeout_s": value.link_timeout_s,
            "allow_shared": value.allow_shared,
        }
    if group == "bonding":
        return {
            "name": value.name,
            "mode": value.mode,
            "members": list(value.members),
            "miimon_ms": value.miimon_ms,
        }
    return int(value) if isinstance(value, bool) else value


def _parameter(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _driver_over(old: Any, new: Any) -> Value:
    """Parameters of the same module add up; another module replaces the whole."""
    if isinstance(old, dict) and old["module"] == new["module"]:
        return {**new, "parameters": {**old["parameters"], **new["parameters"]}}
    return new
