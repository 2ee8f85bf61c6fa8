"""The store of the index: its SQLite file, in step with the trials' folders, or in memory.

Each trial is one transaction. A process that is killed leaves whole trials, and the next one
continues. A store that is damaged, or of another version, is built again from the folders.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.lock import locked
from seatrial.base.say import Say
from seatrial.checks.database import is_database
from seatrial.history.checksums import Damaged, check_rows
from seatrial.history.entry import fingerprint, read_entry
from seatrial.history.series import KnownTrial, Series
from seatrial.history.sqlite_file import (
    Full,
    check_size,
    connect,
    is_damage,
    is_regular,
    reader,
    transaction,
)
from seatrial.history.tables import (
    ALIKE,
    FAULT,
    OF_SERIES,
    OF_TRIAL,
    TABLES,
    copies,
    drop,
    mark_copies,
    replace,
    series_of_row,
    trial_of_row,
    version,
)
from seatrial.results.wording import plural

LOCK_FILE = ".history.lock"
T = TypeVar("T")


class Store:
    """The rows of the index over the folder ``trials``."""

    def __init__(self, trials: Path, file: Path | None, say: Say, copy: Path | None = None):
        self.trials_folder = trials
        self.file = file
        self.copy = copy  # of a store in memory: the file that it begins as
        self.say = say
        self.connection: sqlite3.Connection | None = None
        self.built = 0  # how often it was built again
        self._numbers: dict[str, int] = {}  # folder -> number, of the trials that callers have
        self._made: dict[tuple[Any, ...], Any] = {}  # row -> trial or series

    def close(self) -> None:
        if self.connection:
            self.connection.close()
            self.connection = None

    def begin_again(self) -> None:
        """Remove the index. The journal goes last: without a database, SQLite ignores it."""
        self.close()
        self.copy = None
        self.built += 1
        if self.file:
            for name in (self.file, Path(f"{self.file}-journal")):
                name.unlink(missing_ok=True)

    def refresh(self) -> None:
        """Bring the index in step with the folders. The caller holds the lock."""
        try:
            self._refresh()
        except (Damaged, sqlite3.DatabaseError) as error:
            if not is_damage(error):
                raise self._unwritable(error) from None
            self.say(f"{self.file or self.copy} is built again from the trials: {error}")
            self.begin_again()
            try:
                self._refresh()
            except sqlite3.DatabaseError as again:
                raise self._unwritable(again) from None

    def _unwritable(self, error: Exception) -> LabError:
        full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        return (Full if full else LabError)(f"the index {self.file} cannot be written: {error}")

    def open(self) -> sqlite3.Connection:
        try:
            return self._opened()
        except UnicodeDecodeError as error:  # of SQLite's message, which cites a damaged table
            raise Damaged(f"its tables cannot be read: {error}") from None

    def _opened(self) -> sqlite3.Connection:
        if self.connection is None:
            if self.file and os.path.lexists(self.file) and not is_regular(self.file):
                text, correction = "it is not a regular file", "remove it"
                raise InputError([Problem(self.file, None, "", text, correction)])
            self.connection = connect(self.file)
            if self.copy and os.path.lexists(self.copy) and is_regular(self.copy):
                with (
                    suppress(Damaged, OSError, sqlite3.Error),
                    closing(reader(self.copy)) as source,
                ):
                    check_size(source, self.copy)
                    source.backup(self.connection)
            made = [(version(),)]
            if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                with closing(self.connection.cursor()) as cursor:
                    cursor.execute("BEGIN IMMEDIATE")
                    for statement in TABLES.split(";"):
                        cursor.execute(statement)
                    cursor.executemany("INSERT INTO made VALUES (?)", made)
                    last = max(self._numbers.values(), default=0)
                    cursor.execute("INSERT INTO sqlite_sequence VALUES ('trial', ?)", (last,))
                    cursor.execute("COMMIT")
            if self.connection.execute("SELECT version FROM made").fetchall() != made:
                raise Damaged("it is of another version of Seatrial")
            if self.file:
                check_size(self.connection, self.file)
            self._check_content()
        return self.connection

    def _refresh(self) -> None:
        connection = self.open()
        known = {
            os.fsdecode(folder): (number, mark)
            for number, folder, mark in connection.execute(
                "SELECT id, folder, fingerprint FROM trial"
            )
        }
        now = {folder.name: mark for folder in _folders(self.trials_folder)
               if (mark := fingerprint(folder))}  # fmt: skip
        gone = [number for folder, (number, _) in known.items() if folder not in now]
        changed = [folder for folder, mark in now.items() if known.get(folder, (0, ""))[1] != mark]
        if len(changed) > 100:
            self.say(f"reading {plural(len(changed), 'trial')} of {self.trials_folder}")
        for number in gone:
            with transaction(connection):
                drop(connection, number)
        for folder in changed:
            number = known[folder][0] if folder in known else None
            # Built again, a trial has the number by which callers know it.
            number_of = None if known else self._numbers.get(folder)
            self._read(connection, folder, now[folder], number, number_of)
        if gone or changed:
            with transaction(connection):
                mark_copies(connection)

    def _read(
        self, connection: sqlite3.Connection, folder: str, mark: str, number: int | None,
        new_number: int | None,
    ) -> None:  # fmt: skip
        """Read a trial's folder, and put what it has in the place of what is known of it."""
        place = self.trials_folder / folder
        try:
            entry, fault = read_entry(place), ""
        except InputError as error:
            entry, fault = None, str(error.problems[0])
        except OSError as error:
            entry, fault = None, f"{place}: cannot be read: {error}"
            mark = ""  # no file of it has to change before it can be read
        try:
            replace(connection, number, folder, mark, entry, fault, new_number)
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError) as error:
            fault = f"{place}: the index cannot hold it: {error}"
            replace(connection, number, folder, mark, None, fault, new_number)

    def _check_content(self) -> None:
        """Raise Damaged if rows are missing or are not as they were written. SQLite does not
        notice a page that is lost where it expects none, and has no sums."""
        numbers = [
            {self.rows(f"SELECT ifnull({column}, 0) FROM {table}")[0] for column, table in alike}
            for alike in ALIKE
        ]
        if any(len(different) > 1 for different in numbers):
            raise Damaged("it does not hold the figures of each trial")
        try:
            rows = self.trial_rows()
            for row in rows:
                if not row[FAULT]:
                    self.trial(row)
            for row in self.series_rows():
                self.series(row)
            self.texts()
        except (ValueError, TypeError, OverflowError) as error:
            raise Damaged(f"a row cannot be read: {error}") from None
        if {row[0]: row[-1] for row in rows if row[-1] is not None} != copies(rows):
            raise Damaged("a copy of a trial is not marked as one")

    def trial_rows(self) -> list[Any]:
        """The columns ``OF_TRIAL`` of all trials, in the order of their begin."""
        rows = self.rows(f"SELECT {OF_TRIAL}, mark, copy_of FROM trial ORDER BY started, folder")
        check_rows([row[:-1] for row in rows])
        return rows

    def series_rows(self) -> list[Any]:
        """The columns ``OF_SERIES`` of all series, in the order of their names."""
        order = 'site, "case", metric, location'
        rows = self.rows(f"SELECT {OF_SERIES}, mark, points FROM series ORDER BY {order}")
        check_rows([row[:-1] for row in rows])
        return rows

    def trial(self, row: tuple[Any, ...]) -> KnownTrial:
        if row not in self._made:
            self._made[row] = trial_of_row(row, self.trials_folder)
        trial: KnownTrial = self._made[row]
        self._numbers[trial.folder.name] = trial.id
        return trial

    def series(self, row: tuple[Any, ...]) -> Series:
        key = row[:-1]  # without the number of its points
        if key not in self._made:
            self._made[key] = series_of_row(row)
        series: Series = self._made[key]
        return series

    def rows(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        return self.open().execute(question, values).fetchall()

    def answer(self, ask: Callable[[], T]) -> T:
        """What ``ask`` returns, from one state of the index: its selects are one transaction.

        If the file proves damaged, it is built again, with the same numbers of trials, and ``ask``
        is called once more.
        """
        if self.connection and self.connection.in_transaction:  # a part of another question
            return ask()
        try:
            return self._asked(ask)
        except (Damaged, sqlite3.DatabaseError) as error:
            if not is_damage(error) or not (self.file or self.copy):
                raise LabError(f"the index {self.file} cannot be read: {error}") from None
            self.say(f"{self.file or self.copy} is built again from the trials: {error}")
        try:
            if self.file:
                with locked(self.trials_folder / LOCK_FILE, self.say):
                    self.begin_again()
                    self._refresh()
            else:
                self.begin_again()
                self._refresh()
            return self._asked(ask)
        except (Damaged, sqlite3.DatabaseError) as error:
            raise LabError(f"the index {self.file} cannot be read: {error}") from None

    def _asked(self, ask: Callable[[], T]) -> T:
        connection = self.open()
        connection.execute("BEGIN")
        try:
            return ask()
        finally:
            connection.rollback()

    def texts(self, numbers: Collection[int] | None = None) -> dict[int, dict[str, str]]:
        """Number -> conditions. ``numbers``: None for all."""
        rows = self.rows("SELECT id, text, mark FROM conditions")
        check_rows(rows)
        return {
            number: json.loads(text)
            for number, text, _ in rows
            if numbers is None or number in numbers
        }


def _folders(trials: Path) -> Iterator[Path]:
    """What may be trials. ReFrame's database belongs to the user of the jobs."""
    for path in trials.iterdir():
        if not path.name.startswith(".") and not is_database(path):
            yield path
