"""Readers of the table of settings: from files and programs to the flat keys of a state.

A value of None says that the driver lacks the setting; ethtool prints ``n/a`` for it. It is not 0.
The parsers take an unknown line as a further setting or skip it: a newer ethtool that prints more
must not break them.
"""

import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import programs
from .errors import Refused

State = Dict[str, Any]
#: from an interface and a setting's key to its part of the interface's state
Reader = Callable[[str, str], State]

SYSFS = "/sys/class/net"
PROC = "/proc"
MODULES = "/sys/module"
#: names that ethtool prints in another form than it takes them
PRINTED_AS = {
    "coalesce.rx-frame-low": "coalesce.rx-frames-low",
    "coalesce.tx-frame-low": "coalesce.tx-frames-low",
    "coalesce.rx-frame-high": "coalesce.rx-frames-high",
    "coalesce.tx-frame-high": "coalesce.tx-frames-high",
    "ring.tx-push-buff-len": "ring.tx-push-buf-len",
}
#: values that a driver shows for another value that was set, and refuses when they are set: igbvf
#: shows 1 us after 0 (drivers/net/ethernet/intel/igbvf/ethtool.c)
ANSWERED_FOR: Dict[Tuple[str, str], Dict[Any, Any]] = {("igbvf", "coalesce.rx-usecs"): {1: 0}}
#: root queueing disciplines that the kernel gives by itself; they come back when a root is removed
DEFAULT_QDISCS = (
    "noop", "noqueue", "pfifo_fast", "mq", "fq_codel", "fq", "pfifo", "sfq", "cake",
)  # fmt: skip
#: what tc counts as an option: packets of htb that no class took
COUNTED = ("direct_packets_stat",)
#: the vector of a line, above which the kernel may put the device (``pci_msi_domain_calc_hwirq``)
IRQ_VECTOR, MOST_VECTORS = "/sys/kernel/irq/%s/hwirq", 2048
#: part of a state, and no setting
LINK_OF_PAUSE = "pause.link"
#: keys of an identity that stay when a driver is loaded again
HARDWARE = ("permanent", "bus", "port")
_TWO_SIDED = re.compile(r"^(Adaptive|CQE mode) +RX: *(\S+) +TX: *(\S+)$")
_PAIR = re.compile(r"^([A-Za-z][A-Za-z0-9 _.-]*?):[ \t]*(\S.*)?$")
_FEATURE = re.compile(
    r"^\s*([a-z0-9][A-Za-z0-9_.-]*): (on|off)( \[fixed\])?( \[requested (on|off)\])?"
)


def value_of(text: str) -> Any:
    """An ethtool value: a number, on/off, or None for ``n/a``."""
    word = text.strip()
    if word.lower() == "n/a":
        return None
    return int(word) if re.match(r"^-?\d+$", word) else word


def coalescing(text: str) -> State:
    """``ethtool -c``: ``coalesce.<name>``; adaptive-rx and the like as on/off."""
    state: State = {}
    for line in text.splitlines():
        both = _TWO_SIDED.match(line.strip())
        if both:
            name = "adaptive" if both.group(1) == "Adaptive" else "cqe-mode"
            state["coalesce.%s-rx" % name] = value_of(both.group(2))
            state["coalesce.%s-tx" % name] = value_of(both.group(3))
            continue
        pair = _PAIR.match(line)
        if pair and pair.group(2) and " " not in pair.group(1):
            value = value_of(pair.group(2))
            if value is None or isinstance(value, int) or value in ("on", "off"):
                key = "coalesce." + pair.group(1)
                state[PRINTED_AS.get(key, key)] = value
    return state


def pause(text: str) -> State:
    """``ethtool -a``: ``pause.<name>``; not what the two ends of the cable have agreed on."""
    state: State = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        key = {"Autonegotiate": "autoneg", "RX": "rx", "TX": "tx"}.get(name)
        if key and value.strip() in ("on", "off"):
            state["pause." + key] = value.strip()
    return state


def flow_control(interface: str, key: str) -> State:
    """Flow control; ``pause.link`` is 1 with a link. Without one, ixgbe and others show something
    else (``ixgbe_device_supports_autoneg_fc``; ``an_info`` of i40e)."""
    state = pause(_output("ethtool", "-a", interface))
    if state:
        state[LINK_OF_PAUSE] = number("%s/%s/carrier" % (SYSFS, interface)) or 0
    return state


def current_part(text: str, group: str) -> State:
    """The second half of ``ethtool -g`` and ``-l``: the current values, not the maximums."""
    state: State = {}
    current = False
    for line in text.splitlines():
        if line.startswith("Current hardware settings"):
            current = True
            continue
        pair = _PAIR.match(line)
        if current and pair and pair.group(2):
            name = pair.group(1).strip().lower().replace(" ", "-")
            key = "%s.%s" % (group, name)
            state[PRINTED_AS.get(key, key)] = value_of(pair.group(2))
    return state


def rings(text: str) -> State:
    """``ethtool -g``: ``ring.<name>``."""
    return current_part(text, "ring")


def channels(text: str) -> State:
    """``ethtool -l``: ``channels.<name>``."""
    return current_part(text, "channels")


def features(text: str) -> State:
    """``ethtool -k``: on or off, or for instance ``off [requested on]`` where they part."""
    state: State = {}
    for line in text.splitlines():
        match = _FEATURE.match(line)
        if match:
            value = match.group(2)
            if match.group(5) and match.group(5) != value:
                value += " [requested %s]" % match.group(5)
            state["feature." + match.group(1)] = value
    return state


def fixed_features(text: str) -> Dict[str, str]:
    """Features that nobody can change, with their value: those that the driver fixes, and a sum of
    features if it fixes all of them. ethtool prints these indented below the sum."""
    found: Dict[str, str] = {}
    fixed = set()
    parts: Dict[str, List[str]] = {}
    above = ""
    for line in text.splitlines():
        match = _FEATURE.match(line)
        if not match:
            continue
        name = "feature." + match.group(1)
        found[name] = match.group(2)
        if match.group(3):
            fixed.add(name)
        if line[0].isspace():
            parts.setdefault(above, []).append(name)
        else:
            above = name
    fixed.update(name for name, below in parts.items() if fixed.issuperset(below))
    return {name: value for name, value in found.items() if name in fixed}


def private_flags(text: str) -> State:
    """``ethtool --show-priv-flags``: a driver's own switches."""
    state: State = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(":")
        if value.strip() in ("on", "off") and name.strip():
            state["private." + name.strip()] = value.strip()
    return state


def root_qdisc(text: str) -> State:
    """``tc -json qdisc show``: the root discipline, and its rate if it is a rate limit of ours.

    Each option has a key of its own, because another version of tc may print more of them. Earlier
    releases, which may read a journal of this one, look for all options in the value of ``qdisc``;
    ``compare.same_discipline`` does not.
    """
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        return {}
    if not isinstance(entries, list):
        return {}
    roots = [entry for entry in entries if isinstance(entry, dict) and entry.get("root")]
    if not roots:
        return {"qdisc": "none", "egress_bit_s": None}
    root = roots[0]
    kind, options = root.get("kind", ""), root.get("options") or {}
    if kind in DEFAULT_QDISCS and root.get("handle") == "0:":
        return {"qdisc": "default " + kind, "egress_bit_s": None}
    # A handle that nobody chose differs each time: it is no setting.
    name = "%s %s" % (kind, json.dumps(options, sort_keys=True))
    rate = options.get("rate") if kind == "tbf" else None
    state = {"qdisc": name, "egress_bit_s": rate * 8 if isinstance(rate, int) else None}
    settings = {key: options[key] for key in options if key not in COUNTED}
    state.update(_leaves("qdisc", settings))
    return state


def _leaves(key: str, value: Any) -> State:
    """``{"qdisc.rate": 1, "qdisc.map.0": 2}`` for ``{"rate": 1, "map": [2]}``."""
    if not isinstance(value, (dict, list)):
        return {key: value}
    leaves: State = {}
    for name, leaf in value.items() if isinstance(value, dict) else enumerate(value):
        leaves.update(_leaves("%s.%s" % (key, name), leaf))
    return leaves


def number(path: str) -> Optional[int]:
    there, text = programs.read_text(path)
    return int(text, 0) if there and re.match(r"^-?(0x[0-9a-f]+|\d+)$", text) else None


def names(folder: str) -> list:
    try:
        return sorted(os.listdir(folder), key=_natural)
    except OSError:
        return []


def _natural(name: str) -> list:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def file(path: str) -> Reader:
    """A number in a file of the interface's sysfs folder."""

    def read(interface: str, key: str) -> State:
        return {key: number("%s/%s/%s" % (SYSFS, interface, path))}

    return read


def queue_file(name: str) -> Reader:
    """A file of each queue: ``rps.rx-0``, ``rps.rx-1`` ... for the key ``rps.rx-``."""

    def read(interface: str, key: str) -> State:
        state: State = {}
        head, _, side = key.partition(".")
        folder = "%s/%s/queues" % (SYSFS, interface)
        for queue in names(folder):
            if queue.startswith(side):
                there, text = programs.read_text("%s/%s/%s" % (folder, queue, name))
                state["%s.%s" % (head, queue)] = text if there else None
        return state

    return read


def ethtool(option: str, parse: Callable[[str], State]) -> Reader:
    """What ``ethtool`` prints with an option."""

    def read(interface: str, key: str) -> State:
        return parse(_output("ethtool", option, interface))

    return read


def queueing_discipline(interface: str, key: str) -> State:
    """The root queueing discipline, and the rate limit that it may be."""
    return root_qdisc(_output("tc", "-json", "qdisc", "show", "dev", interface))


def sysctl(_: str, key: str) -> State:
    """A setting of the node as a whole: ``sysctl.net.core.busy_poll``."""
    return {key: number(sysctl_file(key))}


def irq_numbers(interface: str) -> Dict[int, str]:
    """The interrupt lines of an interface: place -> number of the line.

    Those of its device, by the vector of the device: a driver may make a vector later whose number
    is below those of others. Where the kernel shows no vectors, and for lines that are only named
    after the interface, the place is that among their numbers.
    """
    device = "%s/%s/device" % (SYSFS, interface)
    numbers = names(device + "/msi_irqs")
    vectors = {number(IRQ_VECTOR % irq): irq for irq in numbers}
    if numbers and None not in vectors and len(vectors) == len(numbers):
        return {vector % MOST_VECTORS: irq for vector, irq in vectors.items()}  # type: ignore
    # The table is the machine's in each network namespace. An interface without a device has no
    # line in it: one of its name is that of an interface of another namespace.
    if not numbers and os.path.exists(device):
        for line in programs.read_text(PROC + "/interrupts")[1].splitlines()[1:]:
            words = line.split()
            if words and words[0][:-1].isdigit() and _named_after(words[-1], interface):
                numbers.append(words[0][:-1])
    return dict(enumerate(sorted((name for name in numbers if name.isdigit()), key=int)))


def _named_after(word: str, interface: str) -> bool:
    return word == interface or word.startswith((interface + "-", interface + ":"))


def interrupts(interface: str, key: str) -> State:
    """Which CPUs take each interrupt line: ``irq.<place>``, as a CPU list.

    Not the kernel's number of the line: that is another one after a driver was reloaded.
    """
    state: State = {}
    for index, irq in irq_numbers(interface).items():
        there, text = programs.read_text(irq_file(irq))
        state["%s%d" % (key, index)] = text if there else None
    return state


def irq_file(irq: str) -> str:
    return "%s/irq/%s/smp_affinity_list" % (PROC, irq)


def driver(interface: str, key: str) -> State:
    """Kernel module of the device, and those of its parameters that the kernel shows."""
    link = "%s/%s/device/driver/module" % (SYSFS, interface)
    try:
        module = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None
    except OSError:
        module = None
    state: State = {key + "module": module}
    if module:
        folder = "%s/%s/parameters" % (MODULES, module)
        for name in names(folder):
            there, text = programs.read_text("%s/%s" % (folder, name))
            if there:
                state[key + "parameter." + name] = text
    return state


def program_versions() -> Dict[str, str]:
    """Versions of the programs that read settings, of these readers and of the kernel.

    The readers' version is a digest of their source: it changes with whatever they read.
    """
    digest = hashlib.sha256()
    for module in ("readers.py", "settings.py"):
        text = programs.read_text(os.path.join(os.path.dirname(os.path.abspath(__file__)), module))
        digest.update(text[1].encode("utf-8", "replace"))
    return {
        "ethtool": _output("ethtool", "--version").strip().rpartition(" ")[2],
        "iproute2": _output("ip", "-V").strip().partition("iproute2-")[2].partition(",")[0],
        "kernel": os.uname().release,
        "seatrial": digest.hexdigest()[:12],
    }


def driver_version(interface: str) -> str:
    """Name and version of the loaded driver; empty without one, as for virtual interfaces."""
    module = driver(interface, "")["module"]
    folder = "%s/%s/" % (MODULES, module)
    words = [programs.read_text(folder + name)[1] for name in ("version", "srcversion")]
    return " ".join([module, *filter(None, words)]) if module else ""


def _output(*argv: str) -> str:
    """The output of a program; empty where the driver lacks that kind of setting.

    Raises Refused where the program itself is missing or hangs: that says nothing of the driver.
    """
    answer = programs.run(argv)
    if answer.code in (124, 127):
        raise Refused("the node's settings cannot be read: " + answer.err)
    return answer.out


def master(interface: str, key: str) -> State:
    """The bond or bridge that the interface is a member of."""
    link = "%s/%s/master" % (SYSFS, interface)
    return {key: os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None}


def as_given(state: State) -> None:
    """Replace a value that a driver shows by the value that sets it."""
    for (module, key), values in ANSWERED_FOR.items():
        if state.get("driver.module") == module:
            state[key] = values.get(state.get(key), state.get(key))


def sysctl_file(key: str) -> str:
    return PROC + "/sys/" + key[len("sysctl.") :].replace(".", "/")


def permanent_address(interface: str) -> str:
    """The MAC address that the hardware has; empty where it has none."""
    word = _output("ethtool", "-P", interface).strip().rpartition(" ")[2].lower()
    known = re.match(r"^([0-9a-f]{2}:)+[0-9a-f]{2}\Z", word) and word.strip("0:")
    return word if known else ""


def identity(interface: str) -> Dict[str, Any]:
    """What tells an interface from another one of the same name.

    The kernel gives a new ``ifindex`` to each interface that appears, and no other one in a boot.
    The keys of ``HARDWARE`` stay when the driver is loaded again: the permanent MAC address, the
    address on the bus (``0000:01:00.0``; empty without a device) and the port of a card that has
    several there.
    """
    folder = "%s/%s" % (SYSFS, interface)
    device = folder + "/device"
    return {
        "ifindex": number(folder + "/ifindex"),
        "address": programs.read_text(folder + "/address")[1],
        "permanent": permanent_address(interface),
        "bus": os.path.basename(os.path.realpath(device)) if os.path.islink(device) else "",
        "port": number(folder + "/dev_port"),
    }


def same_hardware(then: Dict[str, Any], now: Dict[str, Any]) -> bool:
    """Whether two identities do not contradict each other in what a reload of a driver keeps.

    ``then`` may be of an earlier release, which recorded less."""
    return all(then[key] == now.get(key) for key in HARDWARE if key in then)


def find(identity_then: Dict[str, Any]) -> Optional[str]:
    """The present name of the interface that had this identity, or None.

    An interface with a new index is the same one only if its hardware is known.
    """
    indices = {name: number("%s/%s/ifindex" % (SYSFS, name)) for name in names(SYSFS)}
    known = identity_then.get("permanent") or identity_then.get("bus")
    first = [name for name in indices if indices[name] == identity_then.get("ifindex")]
    others = [
        name
        for name in indices
        # A VLAN or bridge can have the address of the interface below.
        if known and name not in first and os.path.exists("%s/%s/device" % (SYSFS, name))
    ]
    for name in first + others:
        if same_hardware(identity_then, identity(name)):
            return name
    return None
