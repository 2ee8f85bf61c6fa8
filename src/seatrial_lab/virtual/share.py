"""The folders of this machine that a guest may write to, and its processes and logs.

QEMU exports one folder to the guest. Bind mounts in it show the other folders, so that the guest
can write to no folder outside it. QEMU writes there as the lab's job user.
"""

from __future__ import annotations

import re
from pathlib import Path

from seatrial_lab.common import mounts, processes

#: in the run folder, which only root writes to
BROKER_PID, QEMU_PID = PID_FILES = ("broker.pid", "qemu.pid")
CONSOLE = "console.log"
LOGS = (CONSOLE, "qemu.log", "broker.log")
#: lines that say why a guest has ended: of init, of the kernel, and of the agent's Python
REASON = re.compile(r"init: |Kernel panic|BUG: |kernel BUG|Oops: |RIP: \S*:\D|^\w+Error: ")
NO_REASON = re.compile(r"^qemu\S*: warning: |reboot: Power down")
MOST_LINES = 6


def make(folder: Path) -> None:
    """Make the share. The broker's mount namespace sees what is mounted there later."""
    folder.mkdir(parents=True)
    mounts.mount(str(folder), str(folder), "", mounts.MS_BIND)
    mounts.mount("none", str(folder), "", mounts.MS_SHARED)


def add(folder: Path, path: Path) -> str | None:
    """Bind ``path`` into the share. Returns its name there, or None if it is there already."""
    for entry in sorted(folder.iterdir()):
        if entry.samefile(path):
            return None
    name = f"folder{len(list(folder.iterdir()))}"
    place = folder / name
    place.mkdir()
    mounts.mount(str(path), str(place), "", mounts.MS_BIND)
    return name


def processes_of(run: Path) -> list[int]:
    """Return the process ids of the broker and the QEMU of a run folder that are alive."""
    pids = (processes.read_pid_file(run / name) for name in PID_FILES)
    return [pid for pid in pids if pid is not None]


def why_ended(run: Path, paths: bool = True) -> str:
    """Return the lines of the logs in a run folder that say why the guest has ended, or the last
    lines if none does, and with ``paths`` the path of each log."""
    parts = []
    for name in LOGS:
        try:
            text = (run / name).read_text(errors="replace")
        except OSError:
            continue
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        lines = [line for line in lines if not NO_REASON.search(line)]
        reasons = [line for line in lines if REASON.search(line)][-MOST_LINES:]
        if shown := reasons or lines[-3:]:
            parts.append(" | ".join(shown) + (f" ({run / name})" if paths else ""))
    return "; ".join(parts) or f"its logs in {run} are empty"
