"""A lock file, for files that several commands write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def open_lock(file: Path) -> int:
    """Return the descriptor of a lock file, which only its owner can open; made if missing.

    Who can open a file can hold its lock. Its content stays. Raises OSError, also if ``file`` is
    a symbolic link or not a regular file; a FIFO does not block.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "a lock is a regular file", str(file))
    with contextlib.suppress(PermissionError):  # of another owner, in a folder of a group
        os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def locked(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file. If another process holds it, report that with ``say`` and wait.

    The lock ends with the process at the latest. Raises OSError as ``open_lock``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_lock(file)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {file}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
