"""Run a program of the host as the lab's job user.

A trial runs ReFrame with this program, so that its checks and the jobs in the guest write files as
the same user. It runs nothing in the guest; see ``client`` for that.

Runs as ``python -P -S -m seatrial_lab.virtual.run_as_user JSON`` as root, with only the standard
library. JSON has ``argv``, ``uid``, ``gid``, ``cwd`` and ``paths`` (the paths that the program must
reach). If a folder above one of these paths is closed to ordinary users, a tmpfs covers the folder
in the program's mount namespace. The program then reaches the path and nothing else in the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from seatrial_lab.common import mounts


def make_reachable(paths: list[Path]) -> None:
    """Let every user reach ``paths``, in a mount namespace of this process. Raises OSError."""
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
    make_reachable([Path(path) for path in given["paths"]])
    os.setgroups([])
    os.setgid(given["gid"])
    os.setuid(given["uid"])
    os.umask(0o022)
    os.chdir(given["cwd"])
    os.environ.pop("PYTHONPATH", None)
    os.execvp(given["argv"][0], given["argv"])


if __name__ == "__main__":
    main(sys.argv[1:])
