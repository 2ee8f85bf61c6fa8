"""Change the owner of a trial's folder, so that a lab's job user can write to it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def chown_all(folder: Path, uid: int | None = None, gid: int | None = None) -> None:
    """Change the owner of a folder and its content; by default to the current user."""
    uid = os.getuid() if uid is None else uid
    gid = os.getgid() if gid is None else gid
    os.chown(folder, uid, gid)
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # a job that ends removes its files
                os.chown(Path(root) / name, uid, gid, follow_symlinks=False)
