"""Finding and ending the processes of a lab, and no others.

A process belongs to a lab when it is in one of the lab's network namespaces
(by inode), or when it is the process whose id and start time the lab wrote
down. Names are never enough. Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

NamespaceId = tuple[int, int]  # device and inode


def _stat_fields(pid: int) -> list[str]:
    # The command name may hold spaces and brackets: fields count from its end.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot. Raises OSError if it is gone."""
    return int(_stat_fields(pid)[19])


def is_alive(pid: int, started: int | None = None) -> bool:
    """Whether a process exists, is no zombie and, if given, started at ``started``."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return False
    return fields[0] not in "ZX" and (started is None or int(fields[19]) == started)


def read_pid_file(path: Path) -> int | None:
    """The process a pid file means, or None if it is not that process any more."""
    try:
        pid, started = (int(word) for word in path.read_text().split())
    except (OSError, ValueError):
        return None
    return pid if is_alive(pid, started) else None


def namespace_id(path: Path) -> NamespaceId | None:
    """What tells a namespace from others, or None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def all_pids() -> Iterator[int]:
    """The ids of all processes of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def in_namespaces(kind: str, wanted: Iterable[NamespaceId]) -> list[int]:
    """Living processes whose namespace of a kind (``net``, ``pid``) is one of ``wanted``."""
    identities = set(wanted)
    return [
        pid
        for pid in all_pids()
        if namespace_id(Path(f"/proc/{pid}/ns/{kind}")) in identities and is_alive(pid)
    ]


def own_ancestry() -> set[int]:
    """This process and its ancestors: never to be killed."""
    ancestry: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in ancestry:
        ancestry.add(pid)
        try:
            pid = int(_stat_fields(pid)[1])
        except OSError:
            break
    return ancestry


def command_name(pid: int) -> str:
    """A process's name (at most 15 characters), empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to each; those already gone are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_gone(pids: Iterable[int], timeout: float) -> list[int]:
    """Wait until the processes have ended; returns those still there after ``timeout`` s."""
    left = list(pids)
    deadline = time.monotonic() + timeout
    while True:
        left = [pid for pid in left if is_alive(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def node_starters(prefix: str) -> list[int]:
    """Node starters and first processes whose configuration file is below ``prefix``."""
    pids = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            ours = "seatrial_lab.common.nodeinit" in words and words[-2].startswith(prefix)
            if ours and is_alive(pid):
                pids.append(pid)
    return pids


def in_node(first: int) -> dict[int, str]:
    """Living processes of a node: those in the pid namespace of its first process."""
    identity = namespace_id(Path(f"/proc/{first}/ns/pid"))
    return {pid: command_name(pid) for pid in in_namespaces("pid", [identity] if identity else [])}


def names_in_node(first: int) -> set[str]:
    """The names of a node's processes."""
    return set(in_node(first).values())
