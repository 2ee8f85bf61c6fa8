"""Whether a setting is as wanted. ``exact`` also compares what was requested."""

from typing import Any

from .cpus import cpu_set


def equal(wanted: Any, actual: Any, exact: bool) -> bool:
    return bool(wanted == actual)


def same_feature(wanted: Any, actual: Any, exact: bool) -> bool:
    """``off [requested on]`` is off, but not exactly."""
    if exact:
        return bool(wanted == actual)
    return str(wanted).split(" ")[0] == str(actual).split(" ")[0]


def same_discipline(wanted: Any, actual: Any, exact: bool) -> bool:
    """An interface that was never up has no queueing discipline yet: the kernel gives it one."""
    if "default noop" in (wanted, actual):
        return str(wanted).startswith("default ") and str(actual).startswith("default ")
    return bool(_kind(wanted) == _kind(actual))


def _kind(discipline: Any) -> Any:
    """``htb`` of ``htb {"r2q": 10}``: the options are keys of the state, too."""
    return discipline.partition(" {")[0] if isinstance(discipline, str) else discipline


def same_rate(wanted: Any, actual: Any, exact: bool) -> bool:
    """tc counts whole bytes."""
    return bool(_bytes(wanted) == _bytes(actual))


def _bytes(bit_s: Any) -> Any:
    return bit_s // 8 if isinstance(bit_s, int) else bit_s


def same_mask(wanted: Any, actual: Any, exact: bool) -> bool:
    """Whether two masks are equal, however many zeros lead them."""
    return bool(_number(wanted) == _number(actual))


def same_list(wanted: Any, actual: Any, exact: bool) -> bool:
    """Whether two lists name the same CPUs."""
    return bool(_cpus(wanted) == _cpus(actual))


def _number(mask: Any) -> Any:
    try:
        return mask if mask is None else int(str(mask).replace(",", ""), 16)
    except ValueError:
        return mask


def _cpus(text: Any) -> Any:
    try:
        return text if text is None else cpu_set(str(text))
    except ValueError:
        return text
