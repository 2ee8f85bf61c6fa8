"""Remove the files of a lab whose processes have ended, of either engine."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from seatrial.base.files import remove_tree
from seatrial_lab.common import network
from seatrial_lab.common.mount_table import detach_below
from seatrial_lab.common.paths import DATA_ROOT, LabPaths


def remove(instance: str, kept: Collection[Path] = ()) -> None:
    """Remove a lab's files except ``kept``, in its two folders. The caller holds its lock.

    First, all mounts below the folders are detached: a trial's folder may be bound there. Raises
    LabError, and removes nothing, if one of them is left; OSError if a file cannot be removed.
    """
    paths = LabPaths(instance)
    for folder in (paths.data, paths.run):
        detach_below(folder)
    # The engine's mark goes last but the lock: without it, ``down`` is that of the native lab.
    last = [paths.engine, paths.lock]
    for entry in (*_children(paths.data), *_children(paths.run)):
        if entry not in (*kept, *last):
            remove_tree(entry)
    for entry in last:
        if entry not in kept:
            entry.unlink(missing_ok=True)
    # Another process may have made files there again, as soon as the lock was removed.
    for folder in (paths.data, DATA_ROOT, paths.run):
        with suppress(OSError):
            folder.rmdir()
    if not paths.run.exists():
        network.remove_registry()


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
