"""Who owns a trial's folder while a lab's job user writes to it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def chown_all(folder: Path, uid: int | None = None, gid: int | None = None) -> None:
    """Give a folder and all in it to a user; by default to the one that runs this."""
    uid = os.getuid() if uid is None else uid
    gid = os.getgid() if gid is None else gid
    os.chown(folder, uid, gid)
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # a job that ends removes its files
                os.chown(Path(root) / name, uid, gid, follow_symlinks=False)
