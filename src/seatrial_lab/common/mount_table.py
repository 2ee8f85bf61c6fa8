"""The mounts that this machine has now. ``mounts`` makes and removes them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from seatrial.base.errors import LabError
from seatrial.base.files import folder_below
from seatrial.nic.node import programs
from seatrial_lab.common import mounts

TABLE = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_PASSES = 5  # a user who mounts as fast as root unmounts must not keep root busy


class Mount(NamedTuple):
    """A line of mountinfo, see proc(5). A user chooses all of it but the kind of a FUSE mount."""

    place: Path
    kind: str
    options: str


def mounted() -> list[Mount]:
    """Return all mounts of this mount namespace, in the order of the kernel."""
    rows = programs.mounts(os.fsdecode(TABLE.read_bytes()))
    return [Mount(_path(place), kind, options) for _, place, kind, _, options in rows]


def _path(escaped: str) -> Path:
    return Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), escaped))


def detach_below(folder: Path) -> None:
    """Unmount lazily all that is mounted below a folder of root. Raises LabError if one is left.

    Links below the folder are not followed: what is between it and a mount may be a user's.
    """
    root = folder.resolve()
    for _ in range(_PASSES):
        places = [mount.place for mount in mounted() if root in mount.place.parents]
        if not places:
            return
        for place in places:
            # A mount in another one goes with it.
            if not any(other in place.parents for other in places):
                with suppress(OSError):
                    _detach(root, place)
    raise LabError(f"{places[0]} is mounted and cannot be unmounted: nothing of the lab is removed")


def _detach(root: Path, place: Path) -> None:
    with folder_below(root, place.parent.relative_to(root)) as parent:
        target = os.fsencode(f"/proc/self/fd/{parent}/{place.name}")
        flags = mounts.MNT_DETACH | mounts.UMOUNT_NOFOLLOW
        mounts.check(mounts.LIBC.umount2(target, flags), f"umount {place}")
