"""Atomic writes of files: complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_whole(
    file: Path,
    content: str | bytes,
    mode: int = 0o644,
    *,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
) -> None:
    """Replace ``file`` by ``content``; text is encoded as UTF-8. See ``replacing``."""
    with replacing(file, mode, owner=owner, durable=durable) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(
    file: Path, mode: int = 0o644, *, owner: tuple[int, int] | None = None, durable: bool = True
) -> Iterator[BinaryIO]:
    """A stream whose content replaces ``file`` when the block ends.

    A reader sees the old or the new content, never a part. ``owner`` is (uid, gid). If
    ``durable``, the new content is on the disk before it replaces the old content. If the block
    raises an error, ``file`` keeps its content and the temporary file is removed. Raises OSError.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            if owner:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
