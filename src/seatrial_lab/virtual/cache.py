"""What a virtual lab keeps of earlier starts: builds of QEMU, images and saved guests."""

from __future__ import annotations

from pathlib import Path


def outdated(used: Path, pattern: str, kept: int) -> list[Path]:
    """Note that an entry is used now, and return the entries beside it that are to be removed: all
    of ``pattern`` but the ``kept`` that were used last."""
    used.touch()
    return sorted(used.parent.glob(pattern), key=lambda path: path.stat().st_mtime)[:-kept]
