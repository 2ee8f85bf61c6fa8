"""One process at a time: for what several commands, or tests, would make in the same place."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file; ``say`` is told where another process has it. It goes with the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that has {file}")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
