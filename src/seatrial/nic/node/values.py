"""Comparing settings: what a profile wants or a node had, against what is found. Pure functions."""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Set

from .errors import Refused

State = Dict[str, Any]
Difference = NamedTuple("Difference", [("setting", str), ("wanted", Any), ("found", Any)])

#: what ethtool derives from other features that it prints below them
DERIVED_FEATURES = frozenset(
    "feature." + name for name in ("tx-checksumming", "scatter-gather", "tcp-segmentation-offload")
)
#: part of a state, but nothing that is set by itself
NOT_SET = frozenset(("driver.module", "master", "egress_bit_s"))
#: those of them that follow from others; a ``master`` that is left over must be seen
FOLLOWING = frozenset(("driver.module", "egress_bit_s"))
#: what adaptive moderation moves by itself; the values for low and high rates are its own settings
MODERATED = re.compile(r"^coalesce\.(rx|tx)-(usecs|frames)(-irq)?\Z")
#: of a profile, for all queues or interrupt lines; of a state, one key each
SPREAD = {
    "rps_cpus": "rps.",
    "xps_cpus": "xps.",
    "rps_flow_cnt": "rps_flows.",
    "irq_affinity": "irq.",
}


def group_of(setting: str) -> str:
    """``coalesce`` for ``coalesce.rx-usecs``: the word of a profile's ``if_supported``."""
    head = setting.split(".")[0]
    return {"rps": "rps_cpus", "xps": "xps_cpus", "rps_flows": "rps_flow_cnt",
            "irq": "irq_affinity"}.get(head, head)  # fmt: skip


def cpu_set(text: str) -> set:
    """CPUs of a list such as ``0-3,8``. Raises ValueError."""
    found: Set[int] = set()
    for part in text.split(","):
        match = re.match(r"^([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", part.strip())
        if not match or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise ValueError("%r is not a list of CPUs" % text)
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        found.update(range(first, last + 1))
    return found


def cpu_mask(cpus: Any) -> str:
    """A set of CPUs as sysfs takes it: hexadecimal, in groups of 32 bits."""
    number = sum(1 << cpu for cpu in cpus)
    groups = []
    while True:
        groups.append(number & 0xFFFFFFFF)
        number >>= 32
        if not number:
            break
    head = "%x" % groups[-1]
    return ",".join([head] + ["%08x" % one for one in reversed(groups[:-1])])


def normal(setting: str, value: Any) -> Any:
    """A value in the form in which equal settings are equal."""
    if value is None:
        return None
    if setting.startswith(("rps.", "xps.")):
        try:
            return int(str(value).replace(",", ""), 16)
        except ValueError:
            return value
    if setting.startswith("irq."):
        try:
            return frozenset(cpu_set(str(value)))
        except ValueError:
            return value
    if setting == "egress_bit_s" and isinstance(value, int):
        return value // 8  # tc counts whole bytes
    return value


def same(setting: str, wanted: Any, found: Any, exact: bool) -> bool:
    """Whether a setting is as wanted; ``exact`` also tells what was asked for from what came."""
    if setting.startswith("feature.") and not exact:
        return str(wanted).split(" ")[0] == str(found).split(" ")[0]
    if setting == "qdisc" and "default noop" in (wanted, found):
        # An interface that was never up has none yet: the kernel gives it one when it is.
        return str(wanted).startswith("default ") and str(found).startswith("default ")
    return bool(normal(setting, wanted) == normal(setting, found))


def _moderated(setting: str, state: State) -> bool:
    """Whether the driver itself moves this value at the moment, which makes it no setting."""
    match = MODERATED.match(setting)
    return bool(match) and state.get("coalesce.adaptive-" + match.group(1)) == "on"  # type: ignore


def differences(target: State, state: State, exact: bool = False) -> List[Difference]:
    """What differs, over the keys of ``target``.

    Static coalescing values mean nothing while adaptive moderation is wanted, and cannot be seen.
    """
    found = []
    for setting in sorted(target):
        wanted, now = target[setting], state.get(setting)
        if _moderated(setting, target):
            continue
        if now is None and not exact and _is_off(setting, wanted):
            continue
        if not same(setting, wanted, now, exact):
            found.append(Difference(setting, wanted, now))
    return found


def sides_to_still(wanted: State, state: State) -> List[str]:
    """``adaptive-rx`` and ``-tx`` that are on and hide values which ``wanted`` will change."""
    found = []
    for side in moderated_sides(wanted):
        if not _moderated("coalesce.%s-usecs" % side, wanted):
            found.append("coalesce.adaptive-" + side)
    for side in ("rx", "tx"):
        if wanted.get("coalesce.adaptive-" + side) == "off":
            found.append("coalesce.adaptive-" + side)
    return sorted({side for side in found if state.get(side) == "on"})


def moderated_sides(settings: State) -> List[str]:
    """``rx`` and ``tx``, where the settings have values that adaptive moderation would hide."""
    matches = [MODERATED.match(key) for key in settings]
    return sorted({match.group(1) for match in matches if match})


def static_values(state: State, sides: List[str]) -> State:
    """The coalescing values of these sides, seen while adaptive moderation is off."""
    heads = tuple("coalesce.%s-" % side[-2:] for side in sides)
    return {
        key: state[key]
        for key in state
        if MODERATED.match(key) and key.startswith(heads) and state[key] is not None
    }


def to_put_back(before: State, now: State) -> List[Difference]:
    """What keeps an interface from being as it was. Keys that came or went count as well."""
    keys = {key: before.get(key) for key in set(before) | set(now) if key not in FOLLOWING}
    return differences(keys, now, exact=True)


def spread(settings: State, state: State, cpus: List[int]) -> State:
    """A profile's settings as keys of a state: what stands for all queues becomes one key each.

    ``cpus`` are the node's. Raises Refused for a list of CPUs that is none, or none of the node's.
    """
    found: State = {}
    for setting, value in settings.items():
        prefix = SPREAD.get(setting)
        if prefix is None:
            found[setting] = value
            continue
        keys = [key for key in state if key.startswith(prefix) and state[key] is not None]
        for index, key in enumerate(sorted(keys, key=_number)):
            found[key] = _one(setting, value, index, cpus)
        if not keys:
            found[setting] = value
    return found


def with_queues(state: State, wanted: State) -> State:
    """A state with as many queues as there will be under ``wanted``; what is unknown is empty."""
    found = dict(state)
    for side, kinds in (("rx", ("rps", "rps_flows")), ("tx", ("xps",))):
        names = ["channels." + side, "channels.combined"]
        if not any(name in wanted for name in names):
            continue
        count = sum(int(wanted.get(name, state.get(name)) or 0) for name in names)
        for kind in kinds:
            prefix = "%s.%s-" % (kind, side)
            for key in [key for key in state if key.startswith(prefix) and _number(key) >= count]:
                del found[key]
            for index in range(count if found.get(prefix + "0") is not None else 0):
                found.setdefault(prefix + str(index), "")
    return found


def _number(key: str) -> int:
    digits = re.findall(r"\d+", key)
    return int(digits[-1]) if digits else 0


def _one(setting: str, value: Any, index: int, cpus: List[int]) -> str:
    if setting == "rps_flow_cnt":
        return str(value)
    if value == "spread":
        chosen = {cpus[index % len(cpus)]}
    elif value in ("all", "none"):
        chosen = set(cpus) if value == "all" else set()
    else:
        try:
            chosen = cpu_set(str(value)) & set(cpus)
        except ValueError as error:
            raise Refused("%s: %s" % (setting, error))
        if not chosen:
            # None at all would switch steering off, which nobody asked for.
            raise Refused("%s: this node has none of the CPUs %s" % (setting, value))
    if setting == "irq_affinity":
        return ",".join(str(cpu) for cpu in sorted(chosen))
    return cpu_mask(chosen)


def unsupported(target: State, state: State) -> List[str]:
    """Settings that the driver does not have."""
    # No limit is the usual state of an egress rate, not a missing ability; a reload or a bond
    # is not a value of the interface at all.
    always = ("egress_bit_s", "driver", "bond")
    return [
        key
        for key in sorted(target)
        if key not in always and state.get(key) is None and not _is_off(key, target[key])
    ]


def _is_off(setting: str, wanted: Any) -> bool:
    """Whether lacking a setting is as good as having it so: no moderation is none switched on."""
    return setting.startswith(("coalesce.adaptive-", "coalesce.cqe-mode-")) and wanted == "off"


def shown(value: Optional[Any]) -> str:
    """A value for people: what the driver lacks is not 0."""
    return "unsupported" if value is None else str(value)
