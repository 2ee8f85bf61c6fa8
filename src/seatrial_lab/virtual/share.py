"""The folders of this machine that a guest may write to, and its processes and logs.

QEMU exports one folder to the guest. Bind mounts in it show the other folders, so that the guest
can write to no folder outside it. QEMU writes there as the lab's job user.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from seatrial_lab.common import mounts, processes

#: in the run folder, which only root writes to
BROKER_PID, QEMU_PID = PID_FILES = ("broker.pid", "qemu.pid")
LOGS = ("console.log", "qemu.log", "broker.log")


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


def log_tail(run: Path) -> str:
    """Return the last lines of the logs in a run folder."""
    words = []
    for name in LOGS:
        with contextlib.suppress(OSError):
            words += (run / name).read_text(errors="replace").splitlines()[-3:]
    return " | ".join(words) or "its logs are empty"
