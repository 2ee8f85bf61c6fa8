"""What a virtual lab keeps of earlier starts: builds of QEMU, images and saved guests."""

from __future__ import annotations

from pathlib import Path

from seatrial.base.files import sha256


def outdated(used: Path, pattern: str, kept: int) -> list[Path]:
    """Note that an entry is used now, and return the entries beside it that are to be removed: all
    of ``pattern`` but the ``kept`` that were used last."""
    used.touch()
    return sorted(used.parent.glob(pattern), key=lambda path: path.stat().st_mtime)[:-kept]


def sum_file(saved: Path) -> Path:
    """The file with the SHA-256 of a saved one, beside it."""
    return saved.with_suffix(".sha256")


def is_whole(saved: Path) -> bool:
    """Whether a file is there, as it was saved."""
    try:
        return sha256(saved).encode() == sum_file(saved).read_bytes()
    except OSError:  # missing, or something else in its place
        return False
