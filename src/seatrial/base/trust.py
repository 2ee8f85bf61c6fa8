"""Which users can exchange a folder: those with rights to it, or to a folder or link above it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import InputError

_LINKS = 40  # as Linux


@dataclass(frozen=True)
class Exposed:
    """A folder, or a link to one, that other users can change."""

    path: Path
    who: str  # such as "user 1000 owns it"
    correction: str  # such as "chown root /srv"


def exposed(folder: Path, trusted: Collection[int], group: bool = True) -> Iterator[Exposed]:
    """The folders and links on the way to ``folder``, and itself, that others can change.

    Others are owners who are not among the user ids ``trusted``, and everybody or a ``group`` with
    the right to write; an ACL counts as the group. A folder above with the sticky bit does not
    count: only an owner renames what is in it. Raises InputError if links lead nowhere, OSError.
    """
    way = passed(folder)
    for path in way:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            if path.parent.stat().st_mode & 0o022 and status.st_uid not in trusted:
                yield Exposed(path, f"user {status.st_uid} owns it", f"chown -h root {path}")
            continue
        if not (path != way[-1] and status.st_mode & stat.S_ISVTX):
            yield from _writable(path, status, group)
        if status.st_uid not in trusted:
            yield Exposed(path, f"user {status.st_uid} owns it", f"chown root {path}")


def _writable(path: Path, status: os.stat_result, group: bool) -> Iterator[Exposed]:
    by_group = group and status.st_mode & stat.S_IWGRP
    if status.st_mode & stat.S_IWOTH:
        fix = "go-w" if by_group else "o-w"
        yield Exposed(path, "everybody can write to it", f"chmod {fix} {path}")
    elif by_group:
        yield Exposed(path, "its group can write to it", f"chmod g-w {path}")


def passed(folder: Path) -> list[Path]:
    """The folders and links on the way to ``folder`` that exist; the innermost folder is last."""
    here, links = Path("/"), 0
    names = list(reversed(folder.absolute().parts[1:]))
    result = {here: None}
    while names:
        name = names.pop()
        there = here.parent if name == ".." else here / name
        if there.is_symlink():
            links += 1
            if links > _LINKS:
                raise InputError(f"{folder}: {os.strerror(errno.ELOOP)}")
            result[there] = None
            target = there.readlink()
            here = Path("/") if target.is_absolute() else here
            names += [part for part in reversed(target.parts) if part != "/"]
        elif there.is_dir():
            here = there
            result.pop(here, None)
            result[here] = None
        else:
            break  # made later, or an error there
    return list(result)
