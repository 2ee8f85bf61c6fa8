"""From changed values of one setting to the actions that change them.

A writer gets the interface, the changed values of its setting, all values that are wanted, and the
state of the interface. ``changes`` calls the writers in the order of the table of settings.
"""

from typing import Any, Callable, Dict, List

from . import programs, readers
from .actions import Action, command, wait_for_link, write
from .kinds import Fields

State = Dict[str, Any]
Writer = Callable[[str, State, State, State], List[Action]]

SHAPER_QUEUE_MS = 50


def word_of(key: str) -> str:
    """``rx-usecs`` for ``coalesce.rx-usecs``."""
    return key.partition(".")[2]


def ip_link(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """``ip link set``; the key is its word."""
    return [
        command(key, "ip", "link", "set", "dev", interface, key, str(changed[key]))
        for key in sorted(changed)
    ]


def virtual_functions(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """The kernel only goes from 0 to a number, and from a number to 0."""
    path = "%s/%s/device/sriov_numvfs" % (readers.SYSFS, interface)
    ((key, count),) = changed.items()
    return [write(key, path, number) for number in ([0, count] if count else [0])]


def ethtool(option: str) -> Writer:
    """One call of ``ethtool`` for all values."""

    def writer(interface: str, changed: State, target: State, state: State) -> List[Action]:
        return [_ethtool(option, interface, changed)]

    return writer


def _ethtool(option: str, interface: str, values: State) -> Action:
    keys = sorted(values)
    words = [word for key in keys for word in (word_of(key), str(values[key]))]
    return command(", ".join(keys), "ethtool", option, interface, *words)


def offloads(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """One call: ethtool refuses none of them only because of their order."""
    asked = {
        key: str(value).partition("[requested ")[2].rstrip("]") or str(value)
        for key, value in changed.items()
    }
    return [_ethtool("-K", interface, asked)]


def behind_switches(option: str, fields: Fields, waits_for_link: bool = False) -> Writer:
    """``ethtool`` for values that a switch hides: switch off, then the values, then the switch.

    i40e refuses values while adaptive moderation is on; other drivers hide or overwrite them. A
    switch that hides none of the changed values is left alone.
    """
    switch_of = {
        name.replace("_", "-"): kind.behind.replace("_", "-")
        for name, kind in fields.items()
        if kind.behind
    }
    switches = set(switch_of.values())

    def writer(interface: str, changed: State, target: State, state: State) -> List[Action]:
        head = next(iter(changed)).partition(".")[0] + "."
        last = {key: changed[key] for key in changed if word_of(key) in switches}
        values = {key: changed[key] for key in changed if key not in last}
        hiding = {head + switch_of[word_of(key)] for key in values if word_of(key) in switch_of}
        on = {key: "off" for key in hiding if state.get(key) == "on"}
        if on:
            # A value of the target that is only hidden now must be written too.
            for key, value in target.items():
                hidden = key.startswith(head) and head + switch_of.get(word_of(key), "") in on
                if hidden and value is not None:
                    values[key] = value
            last.update({key: "on" for key in on if target.get(key) == "on"})
        actions = [_ethtool(option, interface, words) for words in (on, values, last) if words]
        carrier = "%s/%s/carrier" % (readers.SYSFS, interface)
        if waits_for_link and readers.number(carrier) == 1:
            actions.append(wait_for_link(actions[-1].setting, interface, programs.TIMEOUT_S))
        return actions

    return writer


def file(path: str) -> Writer:
    """A file of the interface's sysfs folder."""

    def writer(interface: str, changed: State, target: State, state: State) -> List[Action]:
        full = "%s/%s/%s" % (readers.SYSFS, interface, path)
        return [write(key, full, value) for key, value in changed.items()]

    return writer


def queue_file(name: str) -> Writer:
    """A file of each queue."""

    def writer(interface: str, changed: State, target: State, state: State) -> List[Action]:
        folder = "%s/%s/queues" % (readers.SYSFS, interface)
        return [
            write(key, "%s/%s/%s" % (folder, word_of(key), name), changed[key])
            for key in sorted(changed)
        ]

    return writer


def interrupts(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """The CPU list of each interrupt line, by the line's place among those of the interface."""
    lines = readers.irq_numbers(interface)
    return [
        write(key, readers.irq_file(lines[int(word_of(key))]), changed[key])
        for key in sorted(changed)
        if int(word_of(key)) in lines
    ]


def default_discipline(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """Give the kernel's own queueing discipline back.

    The kernel chooses it by the length of the queue, and only when another one goes. Options of
    another discipline cannot be set back: the verification finds them.
    """
    if "qdisc" not in changed:
        return []
    root = ("dev", interface, "root")
    actions: List[Action] = []
    if str(state.get("qdisc")).startswith("default "):
        actions.append(command("qdisc", "tc", "qdisc", "replace", *root, "pfifo"))
    return [*actions, command("qdisc", "tc", "qdisc", "del", *root)]


def bucket_bytes(bit_s: int, mtu: int) -> int:
    """The token bucket of a shaper: a quarter millisecond of its rate, and at least two frames.

    As much leaves at the speed of the unshaped interface.
    """
    return max(bit_s // 8 // 4000, 2 * mtu)


def shaper(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """tbf at the root: ``tc-tbf(8)``. It cuts larger segments of the TCP stack into frames."""
    ((key, bit_s),) = changed.items()
    burst = bucket_bytes(bit_s, target.get("mtu") or state.get("mtu") or 1500)
    return [
        command(
            key, "tc", "qdisc", "replace", "dev", interface, "root", "tbf",
            "rate", "%dbit" % bit_s, "burst", "%db" % burst, "latency", "%dms" % SHAPER_QUEUE_MS,
        )
    ]  # fmt: skip


def sysctl(_: str, changed: State, target: State, state: State) -> List[Action]:
    """A setting of the node as a whole."""
    return [write(key, readers.sysctl_file(key), value) for key, value in changed.items()]
