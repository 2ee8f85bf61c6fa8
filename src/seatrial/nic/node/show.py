"""States and differences as text for a terminal. Reads and changes nothing."""

from typing import Any, Dict, List

from .settings import SETTINGS, of
from .values import Difference, shown

_PLACES = {setting.key: place for place, setting in enumerate(SETTINGS)}


def _key(setting: str) -> tuple:
    return (_PLACES.get(of(setting).key, len(_PLACES)), setting)


def columns(rows: List[List[str]]) -> str:
    """Rows of words as aligned columns."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = [word.ljust(widths[at]) for at, word in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def state_table(
    states: Dict[str, Dict[str, Any]], fixed: Dict[str, Dict[str, str]], everything: bool
) -> str:
    """One column an interface. Without ``everything``, lines are left out that no interface has,
    or lets anybody change (``fixed``: interface -> feature -> its value)."""
    keys = sorted({key for state in states.values() for key in state}, key=_key)
    rows = [["setting", *states]]
    hidden = 0
    for key in keys:
        row = [state.get(key) for state in states.values()]
        idle = all(state.get(key) is None or key in fixed[name] for name, state in states.items())
        if idle and not everything and key not in ("egress_bit_s", "master"):
            hidden += 1
            continue
        rows.append([key, *(shown(value, key) for value in row)])
    text = columns(rows)
    if hidden:
        text += (
            "\n%d settings that no interface here has or can change are not shown: --all shows them"
            % hidden
        )
    return text


def difference_table(of_interface: Dict[str, List[Difference]]) -> str:
    rows = [["interface", "setting", "here", "profile"]]
    for interface, differences in of_interface.items():
        for difference in differences:
            rows.append(
                [
                    interface,
                    difference.setting,
                    shown(difference.actual, difference.setting),
                    str(difference.wanted),
                ]
            )
    return columns(rows)
