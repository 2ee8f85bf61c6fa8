"""A lock file, for files that several commands write."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.base.say import Say

#: of a file system without locks: NFS without its lock daemon, Lustre without the option flock
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

_REMOVALS = 10  # of the folder while the lock is opened


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


def hold(descriptor: int, file: Path, wait: bool = True) -> None:
    """Take the lock of an open ``file``. Raises BlockingIOError if another process holds it and
    this one does not ``wait``, and OSError, which names the file, if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        text = error.strerror
        if error.errno in NO_LOCKS:
            text = (
                f"the file system has no locks ({text}): choose a folder of another one, or mount "
                "it with them (Lustre: flock; NFS: not nolock, with rpc.statd)"
            )
        raise OSError(error.errno, text, str(file)) from None


def is_held(file: Path) -> bool:
    """Whether another process holds a lock file. One that this user cannot open counts as free."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks there
        return False
    finally:
        os.close(descriptor)
    return False


def holder(file: Path) -> int | None:
    """The process that holds a lock file, by the kernel's list; None if it does not say: the
    process is of another machine or container."""
    try:
        status = file.stat(follow_symlinks=False)
        listed = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    major, minor = os.major(status.st_dev), os.minor(status.st_dev)
    place = f"{major:02x}:{minor:02x}:{status.st_ino}"
    for line in listed:
        words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and int(words[4]) > 0:
            return int(words[4])
    return None


@contextmanager
def locked(file: Path, say: Say) -> Iterator[int]:
    """Hold a lock file; yields its descriptor. If another process holds it, report that with
    ``say`` and wait.

    The lock ends with the process at the latest. Who holds it may remove the file: a process that
    waited for it then takes the lock of the new one. Raises OSError as ``open_lock`` and ``hold``.
    """
    said = False
    missing = 0
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_lock(file)
        except FileNotFoundError:  # the folder was removed meanwhile; in /proc no file can be made
            missing += 1
            if missing > _REMOVALS:
                raise
            continue
        try:
            try:
                hold(descriptor, file, wait=False)
            except BlockingIOError:
                if not said:
                    say(f"waiting for another process that holds {file}")
                said = True
                hold(descriptor, file)
            if _is_same_file(descriptor, file):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_same_file(descriptor: int, file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), file.stat(follow_symlinks=False))
    return False
