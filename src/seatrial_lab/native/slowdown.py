"""A node's share of the processors: a high priority, or a quota as a planted fault.

Both are settings of one cgroup that holds all processes of the node. Only a file system that the
kernel says is one of cgroups, and that belongs to root, is written to: any user may mount one of
FUSE, and choose what the table of mounts says about it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial_lab.common import mounts, processes
from seatrial_lab.common.mount_table import mounted
from seatrial_lab.common.paths import LabPaths

#: CGROUP_SUPER_MAGIC and CGROUP2_SUPER_MAGIC of statfs(2)
_MAGIC = {"cgroup": 0x27E0EB, "cgroup2": 0x63677270}
_VERSIONS = {"cgroup": "v1", "cgroup2": "v2"}
# A short period, so that a slow node is slow within one message exchange too.
_PERIOD_US = 10_000
_MIN_QUOTA_US = 1_000
# The maxima of the kernel; other processes of the machine have 1024 (v1) or 100 (v2).
_SHARES, _WEIGHT = 262_144, 10_000


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy: ``v1`` or ``v2``, its folder, and a descriptor of the folder."""

    version: str
    place: Path
    folder: int
    controllers: tuple[str, ...]


@contextmanager
def _hierarchies() -> Iterator[list[Hierarchy]]:
    """The hierarchies that are mounted; their descriptors are open for the block."""
    with ExitStack() as opened:
        hierarchies = []
        for mount in mounted():
            folder = _folder(mount.place, mount.kind) if mount.kind in _MAGIC else None
            if folder is not None:
                opened.callback(os.close, folder)
                version = _VERSIONS[mount.kind]
                names = mount.options.split(",")
                if version == "v2":
                    with suppress(OSError):
                        names = _read(folder, "cgroup.controllers").split()
                hierarchies.append(Hierarchy(version, mount.place, folder, tuple(names)))
        yield hierarchies


def _folder(place: Path, kind: str) -> int | None:
    """Return a descriptor of root's cgroups at ``place``, None if something else is there."""
    try:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if mounts.file_system(folder) == _MAGIC[kind] and os.fstat(folder).st_uid == 0:
        return folder
    os.close(folder)
    return None


@contextmanager
def controller() -> Iterator[Hierarchy | None]:
    """The hierarchy with the cpu controller; None if there is none."""
    with _hierarchies() as hierarchies:
        with_cpu = [hierarchy for hierarchy in hierarchies if "cpu" in hierarchy.controllers]
        yield min(with_cpu, key=lambda hierarchy: hierarchy.version, default=None)


def prioritise(instance: str, node: str, first: int) -> bool:
    """Give a node's processes priority over the machine's other processes.

    If a rank waits for a processor, a check measures the wait as a slow network. A niceness is not
    enough: the kernel can group processes by session and weigh only the groups. Returns False if
    the machine does not allow it.
    """
    with controller() as hierarchy:
        if hierarchy is None:
            return False
        v1 = hierarchy.version == "v1"
        setting = ("cpu.shares", str(_SHARES)) if v1 else ("cpu.weight", str(_WEIGHT))
        try:
            _set(hierarchy, instance, node, first, [setting])
        except OSError:
            return False
    return True


def slow_down(instance: str, node: str, first: int, percent: float, cpus: int) -> None:
    """Limit a node to ``percent`` of the time of its ``cpus`` processors. Raises LabError.

    The limit holds for all processes of the node and their children, jobs included.
    """
    quota = max(_MIN_QUOTA_US, int(_PERIOD_US * cpus * percent / 100))
    with controller() as hierarchy:
        if hierarchy is None:
            raise LabError("this machine has no cgroup cpu controller: a node cannot be slowed")
        settings = [("cpu.max", f"{quota} {_PERIOD_US}")]
        if hierarchy.version == "v1":
            settings = [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
        try:
            _set(hierarchy, instance, node, first, settings)
        except OSError as error:
            raise LabError(f"{node} cannot be slowed: {error}") from error


def _set(
    hierarchy: Hierarchy, instance: str, node: str, first: int, settings: list[tuple[str, str]]
) -> None:
    """Write settings of a node's group, which is made if missing, and move the node into it."""
    name = LabPaths(instance).netns(node)
    if hierarchy.version == "v2":
        _write(hierarchy.folder, "cgroup.subtree_control", "+cpu")
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=hierarchy.folder)
    with _group(hierarchy, name) as group:
        for file, value in settings:
            _write(group, file, value)
        # Twice, for processes that started during the first move.
        for _ in range(2):
            _move(processes.in_node(first), group)


@contextmanager
def _group(hierarchy: Hierarchy, name: str) -> Iterator[int]:
    """A descriptor of a group's folder. Raises FileNotFoundError if there is no such group."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    group = os.open(name, flags, dir_fd=hierarchy.folder)
    try:
        yield group
    finally:
        os.close(group)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor) as stream:
        return stream.read()


def _write(folder: int, name: str, text: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _move(pids: Iterable[int], group: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            _write(group, "cgroup.procs", str(pid))


def remove_quota(instance: str, node: str) -> None:
    """Remove a node's quota. A node without a quota is no error."""
    with _hierarchies() as hierarchies:
        for hierarchy in hierarchies:
            with (
                suppress(FileNotFoundError),
                _group(hierarchy, LabPaths(instance).netns(node)) as group,
            ):
                files = _names(group)
                for name, unlimited in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
                    if name in files:
                        _write(group, name, unlimited)


def remove_all(instance: str) -> None:
    """Remove all cgroups of the instance, in every hierarchy."""
    prefix = LabPaths(instance).netns_prefix
    with _hierarchies() as hierarchies:
        for hierarchy in hierarchies:
            for name in _names(hierarchy.folder):
                if name.startswith(prefix):
                    with suppress(FileNotFoundError):
                        with _group(hierarchy, name) as group:
                            pids = [int(word) for word in _read(group, "cgroup.procs").split()]
                        _move(pids, hierarchy.folder)
                        os.rmdir(name, dir_fd=hierarchy.folder)
