"""Atomic writes of files, complete or not at all, and reading what somebody else may change."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO


def sha256(file: Path) -> str:
    """Hex digest of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_whole(
    file: Path,
    content: str | bytes,
    mode: int = 0o644,
    *,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
    below: Path | None = None,
    writer: str | None = None,
) -> None:
    """Replace ``file`` by ``content``; text is encoded as UTF-8. See ``replacing``."""
    with replacing(file, mode, owner=owner, durable=durable, below=below, writer=writer) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(
    file: Path,
    mode: int = 0o644,
    *,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
    below: Path | None = None,
    writer: str | None = None,
) -> Iterator[BinaryIO]:
    """A stream whose content replaces ``file`` when the block ends.

    A reader sees the old or the new content, never a part. ``owner`` is (uid, gid). If
    ``durable``, the new content is on the disk before it replaces the old content. If the block
    raises an error, ``file`` keeps its content and the temporary file is removed. No symbolic link
    below the folder ``below``, which ``file`` is in, is followed. ``writer`` is in the name of the
    temporary file; the default is the process id, which another machine may have, too. Raises
    OSError.
    """
    root = below or file.parent
    draft = f".{file.name}.{writer or os.getpid()}.draft"
    with _folder(root, file.parent.relative_to(root), os.O_PATH) as folder:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)  # of a process that was killed
        try:
            # O_EXCL: never into a file, a link or a FIFO of somebody who may write to the folder.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(draft, flags, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                if owner:
                    os.fchown(descriptor, *owner)
                os.fchmod(descriptor, mode)
                if durable:
                    os.fsync(descriptor)
            os.replace(draft, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            if isinstance(error, OSError) and error.filename == draft:
                error.filename = str(file)  # a name without its folder says little
            raise


def folder_below(root: Path, relative: Path) -> AbstractContextManager[int]:
    """The descriptor of the folder ``relative`` below ``root``, for arguments such as ``dir_fd``.

    No symbolic link below ``root`` is followed, also if somebody exchanges folders meanwhile.
    Raises OSError if there is no such folder, ValueError if ``relative`` leads out of ``root``.
    """
    return _folder(root, relative, os.O_RDONLY)


@contextmanager
def _folder(root: Path, relative: Path, access: int) -> Iterator[int]:
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{relative} is not below {root}")
    flags = access | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(root, flags)
    try:
        for name in relative.parts:
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def names_below(root: Path, relative: Path) -> list[str]:
    """The sorted names of what is in a folder; empty if there is none. Raises as ``folder_below``,
    so also OSError if a link is in its place."""
    try:
        with folder_below(root, relative) as folder, os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return []


def files_below(root: Path, relative: Path, most: int) -> tuple[list[str], bool]:
    """The names of files below a folder, relative to it, and whether these are all.

    They are the first of each folder in the order of names, before those of the folders in it.
    At most ``most`` names are returned, and ``4 * most`` entries are looked at. No symbolic link is
    followed, and none is a file. Raises as ``folder_below``.
    """
    names: list[str] = []
    folders, left = [Path()], 4 * most
    while folders and len(names) < most:
        here = folders.pop(0)
        try:
            with folder_below(root, relative / here) as folder, os.scandir(folder) as entries:
                first = sorted(islice(entries, left + 1), key=lambda entry: entry.name)
                files = [entry.name for entry in first if entry.is_file(follow_symlinks=False)]
                inner = [entry.name for entry in first if entry.is_dir(follow_symlinks=False)]
        except OSError:
            if not here.parts:
                raise
            continue  # somebody removed or closed it
        names += [str(here / name) for name in files]
        folders = [*(here / name for name in inner), *folders]
        left -= len(first)
        if left <= 0:
            return names[:most], False
    return names[:most], not folders and len(names) <= most


@contextmanager
def regular_below(root: Path, relative: Path) -> Iterator[BufferedReader]:
    """A stream to read the regular file ``relative`` below ``root``.

    No symbolic link below ``root`` is followed, and a FIFO does not block. Raises OSError, and
    ValueError if ``relative`` leads out of ``root``.
    """
    with folder_below(root, relative.parent) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(relative.name, flags, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(root / relative))
        yield stream


def read_below(root: Path, relative: Path, limit: int) -> bytes:
    """The content of the regular file ``relative`` below ``root``, of at most ``limit`` bytes.

    Raises OSError and ValueError as ``regular_below``.
    """
    with regular_below(root, relative) as stream:
        content = stream.read(limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(root / relative))
        return content


def remove_tree(path: Path) -> None:
    """Remove a file, or a folder with its content, if it is there. It follows no symbolic link.

    The program rm also removes what is too deep for Python's recursion. Raises OSError.
    """
    done = subprocess.run(
        ["rm", "-rf", "--one-file-system", "--", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(done.stderr.strip() or f"{path} cannot be removed")
