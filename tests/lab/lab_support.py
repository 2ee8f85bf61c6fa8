"""What the lab's tests share besides their fixtures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from labs import own_name
from seatrial_lab.common import processes
from seatrial_lab.native.engine import Lab

#: a machine with ten times as much to do as it has cores
PATIENCE = 10
SESSION = own_name()


def job_state(lab: Lab, job: str) -> str:
    """Slurm's state of a job, from the controller."""
    text = lab.run(["scontrol", "-o", "show", "job", job], user="root").stdout
    found = re.search(r"JobState=(\S+)", text)
    return found[1] if found else "GONE"


def wait_for(condition: Callable[[], bool], timeout: float, what: str) -> float:
    """Wait until a condition holds; returns the seconds it took. Fails after ``timeout``, which is
    what an idle machine takes at most, and PATIENCE times that on a busy one."""
    timeout *= PATIENCE
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < timeout, f"not in {timeout} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begun


def traces(instance: str) -> list[str]:
    """Everything on the machine that is called after an instance."""
    name = f"seatrial-{instance}-"
    found = [str(path) for path in Path("/run/netns").glob(name + "*")]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [line for line in mounts if name in line or f"/seatrial/{instance}" in line]
    found += [
        str(p) for root in ("/run", "/var/lib") for p in Path(root, "seatrial").glob(instance)
    ]
    for kind in Path("/sys/fs/cgroup").glob("*"):
        found += [str(path) for path in kind.glob(name + "*")] if kind.is_dir() else []
    found += [
        f"process {pid}" for pid in processes.nodeinit_processes(f"/run/seatrial/{instance}/")
    ]
    return found
