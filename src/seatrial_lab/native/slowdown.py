"""A node's share of the processor: first before the machine's other work, or slowed on purpose.

Both are settings of one cgroup around all processes of the node.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial_lab.common import processes
from seatrial_lab.common.paths import LabPaths

# Short, so that a slow node is slow at the scale of one message exchange too.
_PERIOD_US = 10_000
_MIN_QUOTA_US = 1_000
# The greatest that the kernel takes; other work of the machine has 1024 (v1) or 100 (v2).
_SHARES, _WEIGHT = 262_144, 10_000


def _hierarchies() -> list[tuple[str, Path, str]]:
    """(kind, mount point, options) of every cgroup hierarchy that is mounted."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [(row[2], Path(row[1]), row[3]) for row in rows if row[2] in ("cgroup", "cgroup2")]


def controller() -> tuple[str, Path] | None:
    """The hierarchy that has the cpu controller: (``v1`` or ``v2``, its root)."""
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
    """Let a node's processes run before the machine's other work; False where it cannot be done.

    A rank that waits for its turn behind something else would be measured as a slow network.
    A niceness is not enough: the kernel may group processes by session and weigh only the groups.
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
    """Give a node ``percent`` of the time of its ``cpus`` processors. Raises LabError.

    It holds for all processes of the node and what they start, jobs included.
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
        # Twice: a process that was started while the others moved.
        for _ in range(2):
            _move(processes.in_node(first), group)
    except OSError as error:
        raise LabError(f"{node} cannot be slowed: {error}") from error


def _move(pids: dict[int, str] | list[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def remove_quota(instance: str, node: str) -> None:
    """Take a node's quota away; nothing to do is no error."""
    for _, root, _ in _hierarchies():
        group = root / LabPaths(instance).netns(node)
        for name, unlimited in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
            # Opening a file that a cgroup does not have is refused, not missing.
            if (group / name).exists():
                (group / name).write_text(unlimited)


def remove_all(instance: str) -> None:
    """Remove every group of the instance, wherever it is."""
    for _, root, _ in _hierarchies():
        for group in root.glob(LabPaths(instance).netns_prefix + "*"):
            _remove_group(group)


def _remove_group(group: Path) -> None:
    pids = [int(word) for word in (group / "cgroup.procs").read_text().split()]
    _move(pids, group.parent)
    with contextlib.suppress(FileNotFoundError):
        group.rmdir()
