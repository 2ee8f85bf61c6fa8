"""A node's share of the processors: a high priority, or a quota as a planted fault.

Both are settings of one cgroup that holds all processes of the node.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial_lab.common import processes
from seatrial_lab.common.paths import LabPaths

# A short period, so that a slow node is slow within one message exchange too.
_PERIOD_US = 10_000
_MIN_QUOTA_US = 1_000
# The maxima of the kernel; other processes of the machine have 1024 (v1) or 100 (v2).
_SHARES, _WEIGHT = 262_144, 10_000


def _hierarchies() -> list[tuple[str, Path, str]]:
    """Return (kind, mount point, options) of each mounted cgroup hierarchy."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [(row[2], Path(row[1]), row[3]) for row in rows if row[2] in ("cgroup", "cgroup2")]


def controller() -> tuple[str, Path] | None:
    """Return the hierarchy with the cpu controller, (``v1`` or ``v2``, its root), or None."""
    for kind, root, options in _hierarchies():
        if kind == "cgroup" and "cpu" in options.split(","):
            return "v1", root
    for kind, root, _ in _hierarchies():
        if kind == "cgroup2":
            with contextlib.suppress(OSError):
                if "cpu" in (root / "cgroup.controllers").read_text().split():
                    return "v2", root
    return None


def prioritise(instance: str, node: str, first: int) -> bool:
    """Give a node's processes priority over the machine's other processes.

    If a rank waits for a processor, a check measures the wait as a slow network. A niceness is not
    enough: the kernel can group processes by session and weigh only the groups. Returns False if
    the machine does not allow it.
    """
    hierarchy = controller()
    if hierarchy is None:
        return False
    kind, root = hierarchy
    group = root / LabPaths(instance).netns(node)
    try:
        if kind == "v2":
            (root / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir(exist_ok=True)
        name, value = ("cpu.shares", _SHARES) if kind == "v1" else ("cpu.weight", _WEIGHT)
        (group / name).write_text(str(value))
        for _ in range(2):
            _move(processes.in_node(first), group)
    except OSError:
        return False
    return True


def slow_down(instance: str, node: str, first: int, percent: float, cpus: int) -> None:
    """Limit a node to ``percent`` of the time of its ``cpus`` processors. Raises LabError.

    The limit holds for all processes of the node and their children, jobs included.
    """
    hierarchy = controller()
    if hierarchy is None:
        raise LabError("this machine has no cgroup cpu controller: a node cannot be slowed")
    kind, root = hierarchy
    group = root / LabPaths(instance).netns(node)
    quota = max(_MIN_QUOTA_US, int(_PERIOD_US * cpus * percent / 100))
    try:
        if kind == "v2":
            (root / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir(exist_ok=True)
        if kind == "v1":
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        # Twice, for processes that started during the first move.
        for _ in range(2):
            _move(processes.in_node(first), group)
    except OSError as error:
        raise LabError(f"{node} cannot be slowed: {error}") from error


def _move(pids: dict[int, str] | list[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def remove_quota(instance: str, node: str) -> None:
    """Remove a node's quota. A node without a quota is no error."""
    for _, root, _ in _hierarchies():
        group = root / LabPaths(instance).netns(node)
        for name, unlimited in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
            # To open a missing file of a cgroup fails with a permission error, not as missing.
            if (group / name).exists():
                (group / name).write_text(unlimited)


def remove_all(instance: str) -> None:
    """Remove all cgroups of the instance, in every hierarchy."""
    for _, root, _ in _hierarchies():
        for group in root.glob(LabPaths(instance).netns_prefix + "*"):
            _remove_group(group)


def _remove_group(group: Path) -> None:
    pids = [int(word) for word in (group / "cgroup.procs").read_text().split()]
    _move(pids, group.parent)
    with contextlib.suppress(FileNotFoundError):
        group.rmdir()
