"""From settings that differ to the commands that change them, in an order that drivers accept.

Nothing is done here: an :class:`Action` says what would be, so that a dry run prints exactly
what is carried out.
"""

import shlex
from typing import Any, Dict, List, NamedTuple, Optional

from . import programs, readers
from .values import (
    DERIVED_FEATURES,
    MODERATED,
    NOT_SET,
    differences,
    moderated_sides,
    to_put_back,
)

State = Dict[str, Any]

Action = NamedTuple(
    "Action",
    [
        ("setting", str),  # what it sets, for the message if it is refused
        ("argv", Optional[List[str]]),  # a program, or
        ("path", Optional[str]),  # a file of the kernel and what is written to it, or
        ("text", str),
        ("wait_s", float),  # how long it may take
        ("until", str),  # what to wait for: the interface ``text`` is "there", or has its "link"
        ("address", str),  # permanent MAC address by which the interface is known, if it has one
    ],
)

SHAPER_QUEUE_MS = 50


def command(setting: str, *argv: str) -> Action:
    return Action(setting, list(argv), None, "", programs.TIMEOUT_S, "", "")


def write(setting: str, path: str, value: Any) -> Action:
    return Action(setting, None, path, str(value), 0.0, "", "")


def wait(setting: str, interface: str, seconds: float, address: str = "") -> Action:
    """Wait until an interface is there, which is given its name back if it has another one."""
    return Action(setting, None, None, interface, seconds, "there", address)


def wait_for_link(setting: str, interface: str, seconds: float) -> Action:
    return Action(setting, None, None, interface, seconds, "link", "")


def text_of(action: Action) -> str:
    """The action as a line of shell."""
    if action.argv is not None:
        argv = [programs.find(action.argv[0]), *action.argv[1:]]
        return " ".join(shlex.quote(word) for word in argv)
    if action.path is not None:
        return "echo %s > %s" % (shlex.quote(action.text), shlex.quote(action.path))
    what = {"there": "is there", "link": "has a link"}[action.until]
    known = ", known by its MAC address %s" % action.address if action.address else ""
    return "# wait up to %g s until %s %s%s" % (action.wait_s, action.text, what, known)


def still(interface: str, sides: List[str]) -> Action:
    """Adaptive moderation off, so that the values behind it can be seen and set."""
    words = [word for key in sides for word in (key[len("coalesce.") :], "off")]
    return command(", ".join(sides), "ethtool", "-C", interface, *words)


def to_apply(interface: str, target: State, state: State) -> List[Action]:
    """Actions that bring an interface from ``state`` to the values in ``target``."""
    changed = {one.setting: one.wanted for one in differences(target, state)}
    return _ordered(interface, changed, target, state)


def to_restore(interface: str, before: State, now: State) -> List[Action]:
    """Actions that bring an interface back from ``now`` to ``before``."""
    changed = {
        one.setting: one.wanted
        for one in to_put_back(before, now)
        if one.wanted is not None or one.setting == "qdisc"
    }
    leaves = {key: value for key, value in changed.items() if key not in DERIVED_FEATURES}
    # Where only the sum of features differs, it is what must be set.
    if not any(key.startswith("feature.") for key in leaves):
        leaves = changed
    return _ordered(interface, leaves, before, now)


def _ordered(interface: str, changed: State, target: State, state: State) -> List[Action]:
    actions: List[Action] = []
    if "txqueuelen" in changed:
        length = str(changed["txqueuelen"])
        actions.append(
            command("txqueuelen", "ip", "link", "set", "dev", interface, "txqueuelen", length)
        )
    if "qdisc" in changed:
        # The kernel chooses its own one by the length of the queue, so that this comes after it,
        # and only when another one goes.
        root = ("dev", interface, "root")
        if str(state.get("qdisc")).startswith("default "):
            actions.append(command("qdisc", "tc", "qdisc", "replace", *root, "pfifo"))
        actions.append(command("qdisc", "tc", "qdisc", "del", *root))
    # Functions take queues away, and some drivers start anew.
    if changed.get("vfs") is not None:
        actions += _functions(interface, changed["vfs"])
    # Fewer or more queues come next: what follows is said of each queue.
    actions += _ethtool("channels", "-L", interface, changed)
    actions += _ethtool("ring", "-G", interface, changed)
    actions += _ethtool("private", "--set-priv-flags", interface, changed)
    # Before the offloads and after: segmentation is limited by the MTU on some drivers, and a
    # larger MTU may need an offload off. The order of rising and falling is the same.
    if "mtu" in changed:
        actions.append(
            command("mtu", "ip", "link", "set", "dev", interface, "mtu", str(changed["mtu"]))
        )
    actions += _features(interface, changed)
    actions += _coalescing(interface, changed, target, state)
    actions += _files(interface, changed)
    if changed.get("egress_bit_s"):
        actions.append(
            _shaper(interface, changed["egress_bit_s"], target.get("mtu") or state.get("mtu"))
        )
    return actions


def _words(group: str, changed: State) -> List[str]:
    words: List[str] = []
    for key in sorted(changed):
        if key.startswith(group + "."):
            words += [key[len(group) + 1 :], str(changed[key])]
    return words


def _ethtool(group: str, option: str, interface: str, changed: State) -> List[Action]:
    words = _words(group, changed)
    if not words:
        return []
    return [command(_named(group, words), "ethtool", option, interface, *words)]


def _named(group: str, words: List[str]) -> str:
    return ", ".join("%s.%s" % (group, name) for name in words[::2])


def _features(interface: str, changed: State) -> List[Action]:
    words: List[str] = []
    for key in sorted(changed):
        if key.startswith("feature."):
            value = str(changed[key])
            asked = value.partition("[requested ")[2].rstrip("]") or value
            words += [key[len("feature.") :], asked]
    # One call: ethtool refuses none of them only because of their order.
    return [command(_named("feature", words), "ethtool", "-K", interface, *words)] if words else []


def _coalescing(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """Adaptive moderation off, then the values, then adaptive as it shall be.

    i40e refuses values while it is on, others hide or overwrite them. The side on which no value
    changes is left alone.
    """
    prefix = "coalesce."
    wanted = {key: changed[key] for key in changed if key.startswith(prefix)}
    if not wanted:
        return []
    adaptive = {key: wanted[key] for key in wanted if "adaptive" in key}
    static = {key: wanted[key] for key in wanted if key not in adaptive}
    actions: List[Action] = []
    if static:
        sides = moderated_sides(static)
        on = [prefix + "adaptive-" + side for side in sides]
        on = [key for key in on if state.get(key) == "on"]
        if on:
            words = [word for key in on for word in (key[len(prefix) :], "off")]
            actions.append(command(_named("coalesce", words), "ethtool", "-C", interface, *words))
            # Said of them, for a value that is only hidden now must be written too.
            for key, value in target.items():
                match = MODERATED.match(key)
                hidden = match and prefix + "adaptive-" + match.group(1) in on
                if hidden and value is not None:
                    static[key] = value
            for key in on:
                if target.get(key) == "on":
                    adaptive[key] = "on"
        words = [word for key in sorted(static) for word in (key[len(prefix) :], str(static[key]))]
        actions.append(command(_named("coalesce", words), "ethtool", "-C", interface, *words))
    if adaptive:
        words = [
            word for key in sorted(adaptive) for word in (key[len(prefix) :], str(adaptive[key]))
        ]
        actions.append(command(_named("coalesce", words), "ethtool", "-C", interface, *words))
    return actions


def _files(interface: str, changed: State) -> List[Action]:
    folder = "%s/%s" % (readers.SYSFS, interface)
    actions: List[Action] = []
    for key in sorted(changed):
        if key in NOT_SET or changed[key] is None:
            continue
        head, _, rest = key.partition(".")
        files = {"rps": "rps_cpus", "xps": "xps_cpus", "rps_flows": "rps_flow_cnt"}
        if head == "sysfs":
            actions.append(write(key, "%s/%s" % (folder, rest), changed[key]))
        elif head in files:
            actions.append(
                write(key, "%s/queues/%s/%s" % (folder, rest, files[head]), changed[key])
            )
        elif head == "irq":
            lines = readers.irq_numbers(interface)
            if int(rest) < len(lines):
                actions.append(write(key, readers.irq_file(lines[int(rest)]), changed[key]))
    return actions


def _functions(interface: str, count: int) -> List[Action]:
    """The kernel only goes from 0 to a number, and from a number to 0."""
    path = "%s/%s/device/sriov_numvfs" % (readers.SYSFS, interface)
    return [write("vfs", path, number) for number in ([0, count] if count else [0])]


def _shaper(interface: str, bit_s: int, mtu: Optional[int]) -> Action:
    """tbf at the root: ``tc-tbf(8)``. The burst is what a quarter millisecond lets through, two
    frames at least: as much leaves at the speed of the unshaped interface. tbf cuts larger segments
    of the TCP stack into frames.
    """
    burst = max(bit_s // 8 // 4000, 2 * (mtu or 1500))
    return command(
        "egress_bit_s", "tc", "qdisc", "replace", "dev", interface, "root", "tbf",
        "rate", "%dbit" % bit_s, "burst", "%db" % burst, "latency", "%dms" % SHAPER_QUEUE_MS,
    )  # fmt: skip


def of_node(target: State, state: State) -> List[Action]:
    """Actions for node-wide settings, in either direction."""
    return [
        write(one.setting, readers.sysctl_file(one.setting), one.wanted)
        for one in differences(target, state)
        if one.wanted is not None
    ]
