"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``file`` by ``text``: a reader sees the old content or the new, never a part.

    The new content is on the disk before it takes the place of the old. Raises OSError; ``file``
    is then as it was, and no draft is left.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
