"""The owner of a trial's files: what a lab's job user may write, and taking it back.

A trial of a lab runs as root, its checks and jobs as the job user. The trial's folder belongs to
root. The job user gets the folders and files of its own that root makes there, and can change
nothing else.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from seatrial.base.files import remove_tree

#: extended attributes that hold ACLs; see acl(5)
ACLS = ("system.posix_acl_access", "system.posix_acl_default")
MAX_DEPTH = 32  # of folders in evidence; ReFrame's have 4
MAX_PATH_B = 1024  # of a folder's path in evidence: a path may have 4096 bytes in all
MAX_FILE_B = 1 << 28  # of one file: the raw times of comms, the largest evidence, have a few MB
MAX_TOTAL_B = 1 << 32  # of all files of a case, and of those that are in no case
CASES = "cases"  # the folder of a trial that has the evidence: <case>/r<repeat>


def give(path: Path, uid: int, gid: int) -> None:
    """Make a user the owner of one file or folder, not of its content.

    The folder that ``path`` is in must be root's: else ``path`` may be exchanged. Raises OSError.
    """
    os.chown(path, uid, gid, follow_symlinks=False)


def _remove_acls(path: str) -> None:
    """Remove the ACL of a file or folder, and the one that new files in a folder would get.

    Raises OSError if there is one that cannot be removed.
    """
    for name in ACLS:
        try:
            os.removexattr(path, name)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise


def take(folder: Path) -> dict[str, int]:
    """Make the current user the owner of a folder and its content, and the only one to change it.

    Only regular files and folders are left: a link, FIFO, socket or device, and a file with a
    second name, are removed, as are folders below MAX_DEPTH or MAX_PATH_B, files larger than
    MAX_FILE_B or beyond MAX_TOTAL_B (core dumps; each file is hashed), and all ACLs.

    A folder that is the current user's is that of a trial: MAX_TOTAL_B is of each case in it, and
    the user's own files outside the cases have no limit. Files in a case have limits also if they
    were taken before: a process of the job user may have one open, and make it longer.

    The folder that ``folder`` is in must be root's. The owner of a folder changes before that of
    its content, so nobody else can exchange what is in it meanwhile. A process that has a file open
    can still write to it. Returns the sizes of the files that are left, in bytes, by their names
    relative to the folder. Raises OSError.
    """
    owner = os.getuid(), os.getgid()
    folders: list[tuple[Path, int]] = [(folder, 0)]
    sizes: dict[str, int] = {}
    totals: dict[tuple[str, ...], int] = {}
    of_trial = folder.lstat().st_uid == owner[0]
    while folders:
        place, depth = folders.pop()
        if depth > MAX_DEPTH or len(os.fsencode(place.relative_to(folder))) > MAX_PATH_B:
            remove_tree(place)
            continue
        parts = place.relative_to(folder).parts
        case = parts[:3] if of_trial and parts[:1] == (CASES,) else ()
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, *owner)
            _remove_acls(f"/proc/self/fd/{descriptor}")
            os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o755 | 0o700)
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries]
            for name in names:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                of_user = of_trial and not case and status.st_uid == owner[0]
                left = MAX_TOTAL_B - totals.get(case, 0)
                if stat.S_ISDIR(status.st_mode):
                    folders.append((place / name, depth + 1))
                elif (
                    stat.S_ISREG(status.st_mode)
                    and status.st_nlink == 1
                    and (of_user or status.st_size <= min(MAX_FILE_B, left))
                ):
                    totals[case] = totals.get(case, 0) + (0 if of_user else status.st_size)
                    sizes[str((place / name).relative_to(folder))] = status.st_size
                    os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
                    _remove_acls(f"/proc/self/fd/{descriptor}/{name}")
                    os.chmod(name, status.st_mode & 0o755, dir_fd=descriptor)
                else:
                    os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    return sizes
