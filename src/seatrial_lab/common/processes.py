"""Find and end the processes of a lab, and no others.

A process belongs to a lab if it is in one of the lab's network namespaces (by
inode), or if its id and start time are in one of the lab's pid files. A name
alone never identifies a process. This module imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

NamespaceId = tuple[int, int]  # device and inode
COMMAND_LINE_B = 1 << 16


def _stat_fields(pid: int) -> list[str]:
    # The command name can hold spaces and brackets: count the fields after its end.
    text = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
    return text.decode("ascii").split()


def start_time(pid: int) -> int:
    """Return a process's start time in clock ticks since boot. Raises OSError if it ended."""
    return int(_stat_fields(pid)[19])


def is_alive(pid: int, started: int | None = None) -> bool:
    """Return whether a process exists, is no zombie and has start time ``started``, if given."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return False
    return fields[0] not in "ZX" and (started is None or int(fields[19]) == started)


def read_pid_file(path: Path) -> int | None:
    """Return the process id in a pid file, or None if that process has ended."""
    try:
        pid, started = (int(word) for word in path.read_text().split())
    except (OSError, ValueError):
        return None
    return pid if is_alive(pid, started) else None


def write_pid_file(path: Path, pid: int | None = None) -> None:
    """Write a process's id and start time, of this process by default. See :func:`read_pid_file`.

    A process that may outlive who starts it writes its own, between fork and exec.
    """
    pid = os.getpid() if pid is None else pid
    path.write_text(f"{pid} {start_time(pid)}\n")


def namespace_id(path: Path) -> NamespaceId | None:
    """Return the identity of a namespace, or None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def all_pids() -> Iterator[int]:
    """Yield the ids of all processes of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def in_namespaces(kind: str, wanted: Iterable[NamespaceId]) -> list[int]:
    """Return the live processes whose namespace of a kind (``net``, ``pid``) is in ``wanted``."""
    identities = set(wanted)
    return [
        pid
        for pid in all_pids()
        if namespace_id(Path(f"/proc/{pid}/ns/{kind}")) in identities and is_alive(pid)
    ]


def own_ancestry() -> set[int]:
    """Return this process and its ancestors, which must not be killed."""
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
    """Return a process's name (at most 15 characters), empty if it ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_bytes().decode(errors="replace").strip("\n")
    return ""


def kill_all(pids: Iterable[int]) -> None:
    """Send SIGKILL to each process. A process that has ended is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def of_group(group: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    pids = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            fields = _stat_fields(pid)
            if int(fields[2]) == group and fields[0] not in "ZX":
                pids.append(pid)
    return pids


def wait_gone(pids: Iterable[int], timeout: float) -> list[int]:
    """Wait until the processes end. Returns the ones still alive after ``timeout`` seconds."""
    left = list(pids)
    deadline = time.monotonic() + timeout
    while True:
        left = [pid for pid in left if is_alive(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def command_line(pid: int) -> list[str]:
    """Return the words of a process's command; empty if it ended or has a title of its own.

    The read can wait for ever if the process's user wants that (a page fault in a file of FUSE
    holds the lock that it takes). Read only that of root.
    """
    try:
        with Path(f"/proc/{pid}/cmdline").open("rb") as stream:
            return stream.read(COMMAND_LINE_B).decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def is_of_root(pid: int) -> bool:
    """Return whether a process belongs to root: by its real user id, which a user cannot change."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_bytes().split(b"\n")
        # Of the name, which its user chooses, the kernel escapes newlines only.
        return any(line.startswith(b"Uid:") and line.split()[1] == b"0" for line in lines)
    return False


def nodeinit_processes(prefix: str) -> list[int]:
    """Return root's nodeinit processes whose configuration file is below ``prefix``."""
    pids = []
    for pid in filter(is_of_root, all_pids()):
        words = command_line(pid)
        ours = "seatrial_lab.common.nodeinit" in words and words[-1].startswith(prefix)
        if ours and is_alive(pid):
            pids.append(pid)
    return pids


def in_node(first: int) -> dict[int, str]:
    """Return pid -> name of a node's live processes: all in the first process's pid namespace."""
    identity = namespace_id(Path(f"/proc/{first}/ns/pid"))
    return {pid: command_name(pid) for pid in in_namespaces("pid", [identity] if identity else [])}


def names_in_node(first: int) -> set[str]:
    """Return the names of a node's processes."""
    return set(in_node(first).values())
