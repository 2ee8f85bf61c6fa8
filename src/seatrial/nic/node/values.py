"""Comparison of a state with the settings of a profile or with an earlier state. Pure functions."""

import re
from typing import Any, Container, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import settings
from .readers import LINK_OF_PAUSE
from .settings import switch_of

State = Dict[str, Any]
Difference = NamedTuple("Difference", [("setting", str), ("wanted", Any), ("actual", Any)])

#: features that are sums of others -> those of the others that TCP over IPv4 and IPv6 uses.
#: ethtool's sum is also on where only another one is, such as tx-checksum-sctp.
DERIVED_FEATURES = {
    "feature.tx-checksumming": (
        "feature.tx-checksum-ipv4",
        "feature.tx-checksum-ipv6",
        "feature.tx-checksum-ip-generic",
    ),
    "feature.scatter-gather": ("feature.tx-scatter-gather",),
    "feature.tcp-segmentation-offload": (
        "feature.tx-tcp-segmentation",
        "feature.tx-tcp6-segmentation",
    ),
}
#: keys of a state that follow from others; a ``master`` that is left over must be seen
FOLLOWING = frozenset(("driver.module", "egress_bit_s", LINK_OF_PAUSE))


def same(key: str, wanted: Any, actual: Any, exact: bool) -> bool:
    """Whether a setting is as wanted; ``exact`` also compares what was requested."""
    return settings.of(key).same(wanted, actual, exact)


def same_parameter(wanted: Any, actual: Any) -> bool:
    """Whether a parameter of a module is as wanted, by its first value. The kernel prints a switch
    as Y or N, and numbers as decimal ones."""
    return _plain_parameter(wanted) == _plain_parameter(actual)


def _plain_parameter(value: Any) -> Any:
    first = str(value).split(",")[0].strip()
    if first.upper() in ("Y", "N"):
        return int(first.upper() == "Y")
    try:
        return int(first, 0)
    except ValueError:
        return first


def _moved(key: str, state: State) -> bool:
    """Whether the driver itself moves this value at the moment, so that it is no setting."""
    switch = switch_of(key)
    return bool(switch) and state.get(switch) == "on"


def differences(target: State, state: State, exact: bool = False) -> List[Difference]:
    """Differences in the keys of ``target``.

    A value behind a switch that is on in ``target`` has no effect, and is not compared. One behind
    a switch that ``target`` does not have needs it off.
    """
    differing = []
    if not exact:
        switches = sorted({switch_of(key) for key in target}.difference(target, ("",)))
        differing = [Difference(key, "off", "on") for key in switches if state.get(key) == "on"]
    for key in sorted(target):
        wanted, now = target[key], state.get(key)
        if _moved(key, target):
            continue
        if now is None and not exact and settings.is_off(key, wanted):
            continue
        if not same(key, wanted, now, exact):
            differing.append(Difference(key, wanted, now))
        elif key in DERIVED_FEATURES and wanted == "on" and not exact:
            parts = [state[part] for part in DERIVED_FEATURES[key] if part in state]
            if parts and "on" not in parts:
                differing.append(Difference(key, wanted, "off"))
    return differing


def switches_to_turn_off(wanted: State, state: State) -> List[str]:
    """Switches that are on and hide values which ``wanted`` will change."""
    switches = {switch_of(key) for key in wanted if switch_of(key) and not _moved(key, wanted)}
    switches.update(key for key in settings.SWITCHES if wanted.get(key) == "off")
    return sorted(key for key in switches if state.get(key) == "on")


def hidden_values(state: State, switches: List[str]) -> State:
    """The values behind these switches, seen while the switches are off."""
    return {
        key: value
        for key, value in state.items()
        if switch_of(key) in switches and value is not None
    }


def not_restored(before: State, now: State) -> List[Difference]:
    """Differences from an earlier state, keys that came or went included.

    But for those that come and go by themselves: which of them there are is no setting.
    """
    keys = {key: before.get(key) for key in set(before) | set(now) if key not in FOLLOWING}
    for key in [key for key in keys if settings.of(key).comes_and_goes]:
        if before.get(key) is None or now.get(key) is None:
            del keys[key]
    return differences(keys, now, exact=True)


def comparable(
    before: State, now: State, ignored: Iterable[str], across: bool, needed: Container[str] = ()
) -> Tuple[State, State, List[str]]:
    """Two states without the keys that cannot be compared, and which of these only one state knows.

    Not compared is what begins with one of ``ignored``, and what needs a link that one of the
    states lacks; ``across`` versions of the programs that read the states also what only one
    version knows. What is in ``needed`` is compared in both cases.
    """
    passed = tuple(ignored)
    keys = {key for key in set(before) | set(now) if not key.startswith(passed)} - FOLLOWING
    if 0 in (before.get(LINK_OF_PAUSE), now.get(LINK_OF_PAUSE)):
        keys = {key for key in keys if key in needed or not settings.of(key).needs_link}
    unknown = sorted(
        key
        for key in keys
        if across and key not in needed and _knows(before, key) != _knows(now, key)
    )
    keys -= set(unknown)
    return (
        {key: before[key] for key in before if key in keys},
        {key: now[key] for key in now if key in keys},
        unknown,
    )


def _knows(state: State, key: str) -> bool:
    """Whether a state says something of a setting: None mostly says that the driver lacks it."""
    return state.get(key) is not None or (key in state and settings.of(key).none_is_unset)


def spread(wanted: State, state: State, cpus: List[int]) -> State:
    """Settings of a profile as keys of a state: a value for all queues becomes one key for each.

    A key of one queue, which a bond or a reload keeps from before, stays as it is. ``cpus`` are
    those of the node. Raises Refused for a CPU list without any of them.
    """
    by_queue: State = {}
    for key, value in wanted.items():
        setting = settings.of(key)
        keys = []
        if setting.spread and key == setting.key:
            keys = [name for name in state if setting.has(name) and state[name] is not None]
        for index, name in enumerate(sorted(keys, key=_number)):
            by_queue[name] = setting.spread(key, value, index, cpus)  # type: ignore
        if not keys:
            by_queue[key] = value
    return by_queue


def with_queues(state: State, wanted: State) -> State:
    """A state with the number of queues that ``wanted`` gives; values of new queues are empty."""
    complete = dict(state)
    for side in ("rx", "tx"):
        names = ["channels." + side, "channels.combined"]
        if not any(name in wanted for name in names):
            continue
        count = sum(int(wanted.get(name, state.get(name)) or 0) for name in names)
        for prefix in settings.queue_prefixes(side):
            for key in [key for key in state if key.startswith(prefix) and _number(key) >= count]:
                del complete[key]
            for index in range(count if complete.get(prefix + "0") is not None else 0):
                complete.setdefault(prefix + str(index), "")
    return complete


def _number(key: str) -> int:
    digits = re.findall(r"\d+", key)
    return int(digits[-1]) if digits else 0


def unsupported(target: State, state: State) -> List[str]:
    """Settings that the driver does not have."""
    return [
        key
        for key in sorted(target)
        if state.get(key) is None
        and not settings.of(key).none_is_unset
        and not settings.is_off(key, target[key])
    ]


#: what stands for None where it does not say that the driver lacks the setting
_UNSET = {"egress_bit_s": "no limit", "master": "none", "bond": "none"}


def shown(value: Optional[Any], key: str = "") -> str:
    """The value of a setting as text; None is a setting that the driver lacks."""
    return _UNSET.get(key, "unsupported") if value is None else str(value)
