"""The folder of ReFrame's results database: one for each user who runs ReFrame.

The job user of a lab can put links into its folder, and ReFrame follows them. So no other user's
ReFrame, and above all not root's, may open what is there.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from seatrial.base.errors import LabError

DATABASE = "reframe"


def database_of(trials: Path, uid: int) -> Path:
    """The folder of a user's database: that of the owner of ``trials`` has no number in its name.

    Raises OSError if there is no folder ``trials``.
    """
    return trials / (DATABASE if trials.stat().st_uid == uid else f"{DATABASE}-{uid}")


def is_database(folder: Path) -> bool:
    """Whether a folder beside the trials is a database, by its name."""
    return re.fullmatch(rf"{DATABASE}(-\d+)?", folder.name) is not None


def require_own_database(folder: Path, uid: int) -> None:
    """Raise LabError if ReFrame, as the user ``uid``, could open the file of somebody else there.

    The folder, if it is there, and all in it (the database, its lock, journals of SQLite) must be
    the user's, and in it only regular files. Raises OSError.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    expected = f"ReFrame runs as uid {uid}: move it away, and the trial makes a new one"
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
        raise LabError(f"{folder} is not a folder of the user of ReFrame; {expected}")
    for file in folder.iterdir():
        try:
            status = file.lstat()
        except FileNotFoundError:  # such as a journal of SQLite whose transaction has ended
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_nlink > 1:
            raise LabError(f"{file} is not a regular file of the user of ReFrame; {expected}")
