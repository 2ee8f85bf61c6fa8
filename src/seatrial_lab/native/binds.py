"""Make a path of the machine visible on hosts that already run.

Runs as ``python -P -S -m seatrial_lab.native.binds PATH PID`` in a process of its own, because
it cannot return from the mount namespace that it enters. It imports only the standard library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.paths import SOURCE
from seatrial_lab.common import mounts


def attach(path: str, first_process: int) -> None:
    """Bind ``path`` of this mount namespace at the same place in a node's. Raises OSError.

    If the node already shows the same folder or file, do nothing: no cover
    hides it, or an earlier bind shows it.
    """
    tree = mounts.open_tree(path)
    namespace = os.open(f"/proc/{first_process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    mounts.check(mounts.LIBC.setns(namespace, mounts.CLONE_NEWNS), "setns mnt")
    os.close(namespace)
    # This process is root and passes a closed folder; the job user does not.
    mounts.attach_below_cover(tree, path)


def add(path: Path, first_processes: list[int]) -> None:
    """Bind a path into the hosts with these first processes. Raises LabError."""
    if not path.is_absolute() or not path.exists():
        raise LabError(f"{path} must be an absolute path that exists")
    for pid in first_processes:
        answer = subprocess.run(
            [sys.executable, "-P", "-S", "-m", "seatrial_lab.native.binds", str(path), str(pid)],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8"},
            cwd="/",
        )
        if answer.returncode:
            last = answer.stderr.strip().splitlines()[-1:]
            raise LabError(f"{path} cannot be mounted in the lab: {''.join(last)}")


if __name__ == "__main__":
    attach(sys.argv[1], int(sys.argv[2]))
