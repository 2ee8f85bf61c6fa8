"""From the settings of a profile to the flat keys of the nodes.

The keys are those of the policy file, the journal and the evidence: ``coalesce.rx-usecs``,
``feature.tcp-segmentation-offload``, ``sysfs.threaded``. The table ``node/settings.py`` has them. A
value of None in ``changes`` removes the setting of a base profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seatrial.nic.node.settings import BY_NAME
from seatrial.nic.schema import Settings, offload

Value = int | str | dict[str, Any]
Flat = dict[str, Value]


def changes(settings: Settings) -> Iterator[tuple[str, Value | None]]:
    """Flat keys and values that a profile gives, in the order of the table; None removes.

    A key that ends in ``.`` with None removes all values of a setting.
    """
    for name, setting in BY_NAME.items():
        if name in settings.model_fields_set:
            value = getattr(settings, name)
            if value is None or not setting.key.endswith("."):
                yield setting.key, None if value is None else _single(name, value)
            else:
                given = value if isinstance(value, dict) else value.model_dump(exclude_unset=True)
                for word, switch in given.items():
                    yield setting.key + _word(name, word), _on_off(switch)


def overlay(onto: Flat, settings: Settings) -> None:
    """Change ``onto`` by what ``settings`` gives: its own values win."""
    for key, value in changes(settings):
        if value is None:
            for old in [old for old in onto if old == key or _is_part(old, key)]:
                del onto[old]
        elif key == "driver":
            onto[key] = _driver_over(onto.get(key), value)
        else:
            onto[key] = value


def _is_part(key: str, whole: str) -> bool:
    return whole.endswith(".") and key.startswith(whole)


def _word(name: str, word: str) -> str:
    """The word of ethtool for one value of a setting."""
    if name == "offloads":
        return offload(word)
    return word if name == "private_flags" else word.replace("_", "-")


def _on_off(value: bool | int | None) -> int | str | None:
    return ("on" if value else "off") if isinstance(value, bool) else value


def _single(name: str, value: Any) -> Value:
    if name == "driver":
        parameters = {
            key: _parameter(parameter) for key, parameter in sorted(value.parameters.items())
        }
        return {**value.model_dump(), "parameters": parameters}
    if name == "bonding":
        return value.model_dump()
    return int(value) if isinstance(value, bool) else value


def _parameter(value: str | int | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _driver_over(old: Any, new: Any) -> Value:
    """Parameters of the same module add up; another module replaces the whole."""
    if isinstance(old, dict) and old["module"] == new["module"]:
        return {**new, "parameters": {**old["parameters"], **new["parameters"]}}
    return new
