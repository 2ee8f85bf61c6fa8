"""Write an initramfs: a cpio archive in the format ``newc``.

The source of the format is Documentation/driver-api/early-userspace/buffer-format.rst of the
kernel. All files belong to root and have time 0, so the same content gives the same bytes.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Archive:
    """The content of an archive. A file adds the folders above it."""

    entries: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def folder(self, path: str) -> None:
        """Add a folder and the folders above it."""
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            self.entries.setdefault("/".join(parts[:count]), (stat.S_IFDIR | 0o755, b""))

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file."""
        self._add(path, stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def _add(self, path: str, mode: int, content: bytes) -> None:
        path = path.strip("/")
        if "/" in path:
            self.folder(path.rpartition("/")[0])
        self.entries[path] = (mode, content)

    def to_bytes(self) -> bytes:
        return b"".join(self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        for number, (name, (mode, content)) in enumerate(self.entries.items(), 1):
            yield _entry(number, name, mode, content)
        yield _entry(0, "TRAILER!!!", 0, b"")


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    links = 2 if stat.S_ISDIR(mode) else 1
    named = name.encode() + b"\0"
    # magic, inode, mode, uid, gid, links, time, size, device (2), device of (2), name, checksum
    fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(named), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + named
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
