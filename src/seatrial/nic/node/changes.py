"""From settings that differ to the actions that change them, in an order that drivers accept."""

from typing import Any, Dict, List

from . import settings
from .actions import Action
from .values import DERIVED_FEATURES, differences, not_restored

State = Dict[str, Any]


def turn_off(interface: str, switches: List[str]) -> List[Action]:
    """Switches off, so that the values behind them can be seen and set."""
    return _ordered(interface, dict.fromkeys(switches, "off"), {}, {})


def to_apply(interface: str, target: State, state: State) -> List[Action]:
    """Actions that bring an interface from ``state`` to the values in ``target``, as far as one
    round can: ``left_to_apply`` has the others."""
    return _ordered(interface, _of_these_queues(_wanted(target, state)), target, state)


def left_to_apply(interface: str, target: State, state: State) -> List[Action]:
    """What ``to_apply`` leaves to the next round."""
    changed = _wanted(target, state)
    now = _of_these_queues(changed)
    later = {key: value for key, value in changed.items() if key not in now}
    return _ordered(interface, later, target, state)


def _wanted(target: State, state: State) -> State:
    """The settings that differ, but for a switch that the writer of a value behind it turns off."""
    differing = {key: wanted for key, wanted, _ in differences(target, state)}
    written = {settings.switch_of(key) for key in differing if key in target}
    return {key: wanted for key, wanted in differing.items() if key in target or key not in written}


def to_restore(interface: str, before: State, now: State) -> List[Action]:
    """Actions that bring an interface back from ``now`` to ``before``."""
    changed = {
        difference.setting: difference.wanted
        for difference in not_restored(before, now)
        if difference.wanted is not None or difference.setting == "qdisc"
    }
    leaves = {key: value for key, value in changed.items() if key not in DERIVED_FEATURES}
    # Where only the sum of features differs, it is what must be set.
    if not any(key.startswith("feature.") for key in leaves):
        leaves = changed
    return _ordered(interface, _of_these_queues(leaves), before, now)


def _of_these_queues(changed: State) -> State:
    """Without what the driver exchanges with the queues, if their number changes: with another
    number it has other interrupt lines, and a number of today may be another device's then. The
    next round sets them."""
    if not any(key.startswith("channels.") for key in changed):
        return changed
    return {key: value for key, value in changed.items() if not settings.of(key).comes_and_goes}


def of_node(target: State, state: State) -> List[Action]:
    """Actions for node-wide settings, in either direction."""
    changed = {key: value for key, value in _wanted(target, state).items() if value is not None}
    return _ordered("", changed, target, state)


def _ordered(interface: str, changed: State, target: State, state: State) -> List[Action]:
    """The writers' actions, in the order of the table."""
    actions: List[Action] = []
    for setting in settings.SETTINGS:
        of_setting = {key: value for key, value in changed.items() if setting.has(key)}
        if setting.spread:
            of_setting.pop(setting.key, None)  # no queue has it
        if of_setting and setting.write:
            actions += setting.write(interface, of_setting, target, state)
    return actions
