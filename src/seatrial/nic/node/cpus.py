"""Sets of CPUs: the kernel's lists (``0-3,8``) and masks (``ff,00000000``)."""

import re
from typing import Any, List, Set

from .errors import Refused


def cpu_set(text: str) -> Set[int]:
    """CPUs of a list such as ``0-3,8``. Raises ValueError."""
    cpus: Set[int] = set()
    for part in text.split(","):
        match = re.match(r"^([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", part.strip())
        if not match or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise ValueError("%r is not a list of CPUs" % text)
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        cpus.update(range(first, last + 1))
    return cpus


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
    return ",".join([head] + ["%08x" % group for group in reversed(groups[:-1])])


def plain(setting: str, value: Any, index: int, cpus: List[int]) -> str:
    """The same value for each queue."""
    return str(value)


def queue_mask(setting: str, value: Any, index: int, cpus: List[int]) -> str:
    """The mask of one queue for a profile's ``all``, ``none`` or CPU list. Raises Refused."""
    if value in ("all", "none"):
        return cpu_mask(cpus if value == "all" else ())
    return cpu_mask(_on_this_node(setting, value, cpus))


def line_cpus(setting: str, value: Any, index: int, cpus: List[int]) -> str:
    """The CPU list of interrupt line ``index`` for ``spread`` or a CPU list. Raises Refused."""
    chosen = {cpus[index % len(cpus)]} if value == "spread" else _on_this_node(setting, value, cpus)
    return ",".join(str(cpu) for cpu in sorted(chosen))


def _on_this_node(setting: str, value: Any, cpus: List[int]) -> Set[int]:
    try:
        chosen = cpu_set(str(value)) & set(cpus)
    except ValueError as error:
        raise Refused("%s: %s" % (setting, error))
    if not chosen:
        # An empty mask would switch steering off, which nobody asked for.
        raise Refused("%s: this node has none of the CPUs %s" % (setting, value))
    return chosen
