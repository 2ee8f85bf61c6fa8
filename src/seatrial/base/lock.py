"""A lock file, for files that several commands write."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file. If another process holds it, report that with ``say`` and wait.

    The lock ends with the process at the latest.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {file}")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
