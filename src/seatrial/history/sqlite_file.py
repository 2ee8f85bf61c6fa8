"""The SQLite file of the index: how it is opened, written, and found to be damaged."""

from __future__ import annotations

import errno
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.history.checksums import Damaged

#: result codes of a file that is not, or no longer, a database of these tables
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


class Full(LabError):
    """The disk of the index is full."""


def connect(file: Path | None) -> sqlite3.Connection:
    """A connection that waits for others, and writes durably."""
    return sqlite3.connect(file or ":memory:", timeout=60, isolation_level=None)


def reader(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.execute("COMMIT")


def is_regular(file: Path) -> bool:
    return stat.S_ISREG(file.lstat().st_mode)


def is_full(error: BaseException) -> bool:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, Full)


def is_damage(error: Exception) -> bool:
    if not isinstance(error, sqlite3.DatabaseError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # not of SQLite but of Python's module: a text that is not UTF-8
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in _DAMAGED


def check_size(connection: sqlite3.Connection, file: Path) -> None:
    """Raise Damaged if a part of the last page is missing: SQLite takes that for zeros."""
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # ends what a killed writer began
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    if file.stat().st_size < pages * size:
        raise Damaged("its end is missing")
