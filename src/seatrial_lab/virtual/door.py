"""Runs a program of the host as the lab's job user: a trial's ReFrame, whose checks then write what
the jobs in the guest can write too.

Runs as ``python -S -m seatrial_lab.virtual.door JSON`` as root, with only the standard library.
JSON has ``argv``, ``uid``, ``gid``, ``cwd`` and ``paths``: what the program must reach. Where a
folder above one of these is closed to ordinary users, it is covered in the program's own view of
the file system, so that the path can be reached and nothing else in that folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from seatrial_lab.common import mounts


def open_way(paths: list[Path]) -> None:
    """Let every user reach ``paths``, in this process's view of the file system only."""
    covers, binds = mounts.plan(paths, {})
    if not covers:
        return
    mounts.check(mounts.LIBC.unshare(mounts.CLONE_NEWNS), "unshare")
    mounts.mount("none", "/", "", mounts.MS_REC | mounts.MS_SLAVE)
    trees = [(mounts.open_tree(source), target) for source, target in binds]
    for folder, mode in covers.items():
        mounts.mount("tmpfs", folder, "tmpfs", mounts.MS_NOSUID, f"mode={mode}")
    for tree, target in trees:
        mounts.attach_tree(tree, target)


def main(arguments: list[str]) -> None:
    given = json.loads(arguments[0])
    open_way([Path(path) for path in given["paths"]])
    os.setgroups([])
    os.setgid(given["gid"])
    os.setuid(given["uid"])
    os.umask(0o022)
    os.chdir(given["cwd"])
    os.environ.pop("PYTHONPATH", None)
    os.execvp(given["argv"][0], given["argv"])


if __name__ == "__main__":
    main(sys.argv[1:])
