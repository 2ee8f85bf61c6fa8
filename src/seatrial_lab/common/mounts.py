"""Mount system calls through ctypes, and the plan of a node's mounts.

This module imports only the standard library: a node's first process uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000
MS_SHARED = 0x100000
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
CLONE_NEWNS = 0x00020000

# These numbers are the same on every architecture (the calls came with Linux 5.2).
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_FSOPEN = 430
SYS_FSCONFIG = 431
SYS_FSMOUNT = 432
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOVE_MOUNT_T_EMPTY_PATH = 0x40
FSOPEN_CLOEXEC = 1
FSCONFIG_SET_STRING = 1
FSCONFIG_CMD_CREATE = 6
FSMOUNT_CLOEXEC = 1
MOUNT_ATTR_NOSUID = 2

LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return the result of a C call. Raises OSError with ``what`` if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    check(
        LIBC.mount(
            source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
        ),
        f"mount {kind or source} on {target}",
    )


def detach(target: str) -> None:
    """Unmount all mounts on ``target``, lazily. No mount there is no error."""
    while LIBC.umount2(target.encode(), MNT_DETACH) == 0:
        pass


def file_system(descriptor: int) -> int:
    """Return the magic number of the file system of an open file, see statfs(2). Raises OSError."""
    status = ctypes.create_string_buffer(512)  # struct statfs; its first word is f_type
    check(LIBC.fstatfs(descriptor, status), "fstatfs")
    return ctypes.c_long.from_buffer(status).value


def open_tree(path: str) -> int:
    """Return a descriptor of a detached copy of the mounts at ``path``. Raises OSError."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    return check(
        LIBC.syscall(SYS_OPEN_TREE, AT_FDCWD, path.encode(), ctypes.c_uint(flags)),
        f"open_tree {path}",
    )


def attach_tree(tree: int, target: str) -> None:
    """Mount the tree of :func:`open_tree` at ``target``. Creates a missing ``target``.

    It follows symbolic links of root only: a job user may have put one of its own into /tmp.
    Raises OSError.
    """
    start = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        place = _made(start, Path(target).parts[1:], stat.S_ISDIR(os.fstat(tree).st_mode))
        _move(tree, place, target)
    finally:
        os.close(start)


def attach_below_cover(tree: int, target: str) -> None:
    """:func:`attach_tree`, and a tmpfs over the topmost folder above it that is closed to others.

    Does nothing if an ordinary user already sees the same folder or file at ``target``. Nothing is
    mounted if a link of a user is on the way; the tmpfs comes on the folder that was looked at,
    also if somebody exchanges folders meanwhile. Raises OSError.
    """
    names = Path(target).parts[1:]
    place = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for number, name in enumerate(names):
        if not os.fstat(place).st_mode & 0o001:
            cover = _tmpfs()
            inner = _made(cover, names[number:], stat.S_ISDIR(os.fstat(tree).st_mode))
            _move(cover, place, "/".join(("", *names[:number])))
            _move(tree, inner, target)
            return
        outside = place
        try:
            place = _no_link_of_a_user(name, outside)
        except FileNotFoundError:
            break
        finally:
            os.close(outside)
    else:
        same = os.path.samestat(os.fstat(place), os.fstat(tree))
        os.close(place)
        if same:
            return
    attach_tree(tree, target)


def _tmpfs() -> int:
    """Return a descriptor of a tmpfs, mode 755, that is mounted nowhere."""
    context = check(LIBC.syscall(SYS_FSOPEN, b"tmpfs", FSOPEN_CLOEXEC), "fsopen tmpfs")
    try:
        done = LIBC.syscall(SYS_FSCONFIG, context, FSCONFIG_SET_STRING, b"mode", b"755", 0)
        check(done, "fsconfig tmpfs")
        done = LIBC.syscall(SYS_FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0)
        check(done, "fsconfig tmpfs")
        done = LIBC.syscall(SYS_FSMOUNT, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID)
        return check(done, "fsmount tmpfs")
    finally:
        os.close(context)


def _move(tree: int, place: int, target: str) -> None:
    """Mount a detached tree on the descriptor ``place`` and close both."""
    try:
        flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
        result = LIBC.syscall(SYS_MOVE_MOUNT, tree, b"", place, b"", ctypes.c_uint(flags))
        check(result, f"move_mount to {target}")
    finally:
        os.close(place)
        os.close(tree)


def _made(start: int, names: Sequence[str], is_folder: bool) -> int:
    """Return a descriptor of a file or folder below ``start``, which is created if missing."""
    place = os.dup(start)
    for number, name in enumerate(names, 1):
        outside = place
        try:
            try:
                place = _no_link_of_a_user(name, outside)
            except FileNotFoundError:
                if number < len(names) or is_folder:
                    os.mkdir(name, 0o755, dir_fd=outside)
                else:
                    os.mknod(name, 0o644, dir_fd=outside)
                place = _no_link_of_a_user(name, outside)
        finally:
            os.close(outside)
    return place


def _no_link_of_a_user(name: str, folder: int) -> int:
    """Return a descriptor of ``name`` in a folder. Raises OSError if it is a link not of root."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    status = os.fstat(place)
    if not stat.S_ISLNK(status.st_mode):
        return place
    os.close(place)
    if status.st_uid:
        raise OSError(errno.ELOOP, f"{name} is a symbolic link of user {status.st_uid}")
    return os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=folder)


def covered_by(path: Path, covers: list[Path]) -> bool:
    """Return whether ``path`` is one of ``covers`` or below one."""
    return any(path == cover or cover in path.parents for cover in covers)


def closed_ancestor(path: Path) -> Path | None:
    """Return the topmost folder above ``path`` without execute permission for others, or None."""
    for folder in reversed(path.parents):
        with contextlib.suppress(FileNotFoundError):
            if not folder.stat().st_mode & 0o001:
                return folder
    return None


def plan(paths: list[Path], covers: dict[str, str]) -> tuple[dict[str, str], list[list[str]]]:
    """Return the folders to cover with a tmpfs, and the paths to bind over the covers.

    ``covers`` maps folders that are always covered to their mode (octal). If a
    path is below a folder closed to others, that folder is covered as well: an
    ordinary user then reaches the path and nothing else in the folder. Returns
    (covers, [[source, target], ...]) with parents before children.
    """
    result = dict(covers)
    ordered = sorted(set(paths))
    for path in ordered:
        if not covered_by(path, [Path(c) for c in result]):
            closed = closed_ancestor(path)
            if closed is not None:
                result[str(closed)] = "755"
    folders = [Path(c) for c in result]
    binds: list[list[str]] = []
    for path in ordered:
        # A bind includes everything below it, except below a cover.
        parents = [Path(bound) for _, bound in binds]
        inside = [p for p in parents if p in path.parents]
        hidden = any(p in c.parents for p in inside for c in folders if covered_by(path, [c]))
        if covered_by(path, folders) and (not inside or hidden):
            binds.append([str(path), str(path)])
    return dict(sorted(result.items())), binds
