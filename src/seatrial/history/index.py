"""The index over the trials of one folder: a SQLite file beside them, ``history.sqlite``.

It is derived from the trials' folders and can be removed at any time. ``opened`` compares it with
the folders, so that it needs no command to be kept in step: a trial that is new or has changed is
read, one that has gone is dropped. Each trial is one transaction. A process that is killed leaves
whole trials, and the next one continues. A file lock admits one writer at a time. A damaged index,
and one of another version, is built again from the folders.

In a folder that this user cannot write to, or that another user could exchange meanwhile, the index
is in memory and ends with the process.

SQLite and rows instead of DuckDB or arrays: docs/dev/benchmarks.md has the measurement.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from seatrial.base.errors import InputError, LabError, Problem, explained
from seatrial.base.lock import locked
from seatrial.checks.database import is_database
from seatrial.history import renamed
from seatrial.history.entry import Entry, Figure, fingerprint, read_entry
from seatrial.results import manifest
from seatrial.results.record import SCHEMA, Case
from seatrial.results.wording import plural

INDEX_FILE = "history.sqlite"
LOCK_FILE = ".history.lock"
VERSION = 1  # of the tables and of what is read from a trial
_MOST = 2**63 - 1  # of SQLite
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES = """
CREATE TABLE made (version TEXT NOT NULL);
CREATE TABLE trial (
    id INTEGER PRIMARY KEY, folder BLOB NOT NULL UNIQUE,  -- a name may be no text
    fingerprint TEXT NOT NULL,
    name TEXT, site TEXT, started INTEGER, verdict TEXT, judged INTEGER, notes TEXT,
    figures INTEGER NOT NULL,
    fault TEXT NOT NULL,     -- why it cannot be read
    copy_of INTEGER          -- the trial whose copy this folder is: its figures count once
);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, site TEXT NOT NULL, "case" TEXT NOT NULL, facts TEXT NOT NULL,
    metric TEXT NOT NULL, location TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL,
    UNIQUE (site, "case", metric, location)
);
CREATE TABLE conditions (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE under (
    trial INTEGER NOT NULL, "case" TEXT NOT NULL, conditions INTEGER NOT NULL,
    PRIMARY KEY ("case", trial)
) WITHOUT ROWID;
CREATE TABLE point (
    trial INTEGER NOT NULL, series INTEGER NOT NULL, value REAL NOT NULL, samples BLOB NOT NULL,
    PRIMARY KEY (trial, series)
) WITHOUT ROWID;
-- with all columns: the points of a series are read from the index, side by side
CREATE INDEX point_of_series ON point (series, trial, value, samples);
"""
#: result codes of a file that is not, or no longer, a database of these tables
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
Say = Callable[[str], None]


class _Damaged(Exception):
    """The file is no index, or it is of another version."""


@dataclass(frozen=True)
class KnownTrial:
    """One trial's folder, as the index has it."""

    id: int
    folder: Path
    name: str
    site: str
    started: datetime  # UTC
    verdict: str  # accept, reject, incomplete; "": interrupted, or it runs
    notes: list[str]
    figures: int


@dataclass(frozen=True)
class Series:
    """One metric of one case at one location ("": the case as a whole) of one site."""

    site: str
    case: Case
    metric: str
    location: str
    unit: str
    better: str

    @property
    def name(self) -> str:
        at = f" at {self.location}" if self.location else ""
        return f"{self.case.id}: {self.metric}{at}"


@dataclass(frozen=True)
class Point:
    """The figure of one trial in a series."""

    trial: KnownTrial
    value: float  # median of the samples
    samples: list[float]
    conditions: dict[str, str]  # versions, nodes, settings: name -> value


@contextmanager
def opened(trials: Path, say: Say, rebuild: bool = False) -> Iterator[Index]:
    """The index over ``trials``, in step with the folders.

    ``say`` gets a sentence on what takes time or is wrong. Raises InputError if there is no such
    folder, LabError if the index cannot be read or written.
    """
    if not trials.is_dir():
        text, correction = "no such folder", "name the folder that holds the trials"
        raise InputError([Problem(trials, None, "", text, correction)])
    file: Path | None = trials / INDEX_FILE
    if (one := manifest.exposure(trials)) or not os.access(trials, os.W_OK):
        why = f"{one.path}: {one.who}" if one else "this user cannot write to the folder"
        say(f"note: the index is in memory only ({why})")
        file = None
    index = Index(trials, file, say)
    try:
        if file is None:
            index.refresh()
        else:
            with locked(trials / LOCK_FILE, say):
                if rebuild:
                    index.begin_again()
                index.refresh()
    except BaseException as error:
        index.close()
        if isinstance(error, OSError):
            raise LabError(f"the index cannot be used: {explained(error)}") from None
        raise
    with closing(index):
        yield index


def update(trials: Path, say: Say) -> None:
    """Bring the index over ``trials`` in step with the folders, if this user may write it.

    An index that cannot be written is a warning: it changes no trial.
    """
    try:
        if not manifest.exposure(trials):
            with opened(trials, say):
                pass
    except (OSError, InputError, LabError) as error:
        say(f"warning: the history was not updated, the next command does it: {error}")


class Index:
    """Use ``opened`` to make one. Every method raises LabError if SQLite fails."""

    def __init__(self, trials: Path, file: Path | None, say: Say):
        self.trials_folder = trials
        self.file = file
        self.say = say
        self.connection: sqlite3.Connection | None = None

    # --- the file -----------------------------------------------------------------------

    def close(self) -> None:
        if self.connection:
            self.connection.close()
            self.connection = None

    def begin_again(self) -> None:
        """Remove the index. The journal goes last: without a database, SQLite ignores it."""
        self.close()
        if self.file:
            for name in (self.file, Path(f"{self.file}-journal")):
                name.unlink(missing_ok=True)

    def refresh(self) -> None:
        """Bring the index in step with the folders. The caller holds the lock."""
        try:
            self._refresh()
        except (_Damaged, sqlite3.DatabaseError) as error:
            if not _is_damage(error):
                raise LabError(f"the index {self.file} cannot be written: {error}") from None
            self.say(f"{self.file} is built again from the trials: {error}")
            self.begin_again()
            try:
                self._refresh()
            except sqlite3.DatabaseError as again:
                text = f"the index {self.file} cannot be written: {again}"
                raise LabError(text) from None

    def _open(self) -> sqlite3.Connection:
        if self.connection is None:
            if self.file and os.path.lexists(self.file) and not _is_regular(self.file):
                text, correction = "it is not a regular file", "remove it"
                raise InputError([Problem(self.file, None, "", text, correction)])
            self.connection = connect(self.file)
            version = _version()
            if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                with closing(self.connection.cursor()) as cursor:
                    cursor.execute("BEGIN IMMEDIATE")
                    for statement in _TABLES.split(";"):
                        cursor.execute(statement)
                    cursor.execute("INSERT INTO made VALUES (?)", (version,))
                    cursor.execute("COMMIT")
            made = self.connection.execute("SELECT version FROM made").fetchall()
            if made != [(version,)]:
                raise _Damaged("it is of another version of Seatrial")
        return self.connection

    def _refresh(self) -> None:
        connection = self._open()
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
            with _transaction(connection):
                _drop(connection, number)
        for folder in changed:
            place = self.trials_folder / folder
            try:
                entry, fault = read_entry(place), ""
            except InputError as error:
                entry, fault = None, str(error.problems[0])
            except OSError as error:
                entry, fault = None, f"{place}: cannot be read: {error}"
            with _transaction(connection):
                if folder in known:
                    _drop(connection, known[folder][0])
                _add(connection, folder, now[folder], entry, fault)
        if gone or changed:
            with _transaction(connection):
                _mark_copies(connection)

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of an answer. If the file proves damaged, it is built again first."""
        try:
            return self._open().execute(question, values).fetchall()
        except (_Damaged, sqlite3.DatabaseError) as error:
            if not _is_damage(error) or self.file is None:
                raise LabError(f"the index {self.file} cannot be read: {error}") from None
            self.say(f"{self.file} is built again from the trials: {error}")
        try:
            with locked(self.trials_folder / LOCK_FILE, self.say):
                self.begin_again()
                self._refresh()
            return self._open().execute(question, values).fetchall()
        except (_Damaged, sqlite3.DatabaseError) as error:
            raise LabError(f"the index {self.file} cannot be read: {error}") from None

    # --- questions ----------------------------------------------------------------------

    def trials(self) -> list[KnownTrial]:
        """The trials that count, in the order of their begin."""
        return [
            _trial(row, self.trials_folder)
            for row in self._rows(
                f"SELECT {_OF_TRIAL} FROM trial t WHERE fault = '' AND copy_of IS NULL "
                "ORDER BY started, folder"
            )
        ]

    def left_out(self) -> list[str]:
        """A sentence for each folder whose figures do not count, in the order of the folders."""
        rows = self._rows(
            "SELECT t.folder, t.fault, o.folder FROM trial t LEFT JOIN trial o ON o.id = t.copy_of "
            "WHERE t.fault != '' OR t.copy_of IS NOT NULL ORDER BY t.folder"
        )
        return [
            fault or f"{os.fsdecode(folder)} is a copy of {os.fsdecode(other)}"
            for folder, fault, other in rows
        ]

    def series(self, **patterns: Sequence[str]) -> list[Series]:
        """The series that match and have points, in the order of their names.

        ``patterns``: a field of the case, ``metric``, ``location`` or ``site`` -> globs, of which
        one must match.
        """
        has_points = (
            "EXISTS (SELECT 1 FROM point p JOIN trial t ON t.id = p.trial "
            "WHERE p.series = s.id AND t.copy_of IS NULL)"
        )
        conditions = [has_points]
        values: list[str] = []
        for name, globs in patterns.items():
            if globs:
                column = name if name in ("metric", "location", "site") else f"facts ->> '{name}'"
                conditions.append(f"({' OR '.join([f'{column} GLOB ?'] * len(globs))})")
                values += globs
        rows = self._rows(
            f"SELECT {_OF_SERIES} FROM series s WHERE {' AND '.join(conditions)} "
            'ORDER BY site, "case", metric, location',
            values,
        )
        return list(map(_series, rows))

    def points(self, series: Series) -> list[Point]:
        """The points of a series, in the order of the trials."""
        rows = self._rows(
            f"SELECT {_OF_TRIAL}, p.value, p.samples, u.conditions FROM series s "
            "JOIN point p ON p.series = s.id JOIN trial t ON t.id = p.trial "
            'LEFT JOIN under u ON u."case" = s."case" AND u.trial = t.id '
            'WHERE s.site = ? AND s."case" = ? AND s.metric = ? AND s.location = ? '
            "AND t.copy_of IS NULL ORDER BY t.started, t.folder",
            (series.site, series.case.id, series.metric, series.location),
        )
        texts = self._texts({row[-1] for row in rows})
        return [
            Point(
                _trial(row, self.trials_folder),
                row[-3],
                np.frombuffer(row[-2]).tolist(),
                texts.get(row[-1], {}),
            )
            for row in rows
        ]

    def _texts(self, numbers: Collection[int | None]) -> dict[int, dict[str, str]]:
        """Number -> conditions."""
        rows = self._rows("SELECT id, text FROM conditions")
        return {number: json.loads(text) for number, text in rows if number in numbers}

    def points_of(
        self, trials: Sequence[KnownTrial]
    ) -> Iterator[tuple[tuple[str, str], str, Point]]:
        """All points of trials, in their order: site and name of the series, case, point."""
        names = {
            number: ((one.site, one.name), one.case.id)
            for number, one in (
                (row[-1], _series(row))
                for row in self._rows(f"SELECT {_OF_SERIES}, s.id FROM series s")
            )
        }
        under = self.conditions([one.id for one in trials])
        for trial in trials:
            for number, value, samples in self._rows(
                "SELECT series, value, samples FROM point WHERE trial = ?", (trial.id,)
            ):
                series, case = names[number]
                conditions = under.get((trial.id, case), {})
                yield series, case, Point(trial, value, np.frombuffer(samples).tolist(), conditions)

    def conditions(
        self, trials: Sequence[int] | None = None
    ) -> dict[tuple[int, str], dict[str, str]]:
        """Trial's number and case -> the conditions of the case in the trial."""
        question = 'SELECT trial, "case", conditions FROM under'
        if trials is None:
            rows = self._rows(question)
        else:
            chosen = json.dumps(trials)
            rows = self._rows(
                f"{question} WHERE trial IN (SELECT value FROM json_each(?))", (chosen,)
            )
        texts = self._texts({number for _, _, number in rows})
        return {(trial, case): texts[number] for trial, case, number in rows}


_OF_TRIAL = "t.id, t.folder, t.name, t.site, t.started, t.verdict, t.notes, t.figures"
_OF_SERIES = "s.site, s.facts, s.metric, s.location, s.unit, s.better"


def connect(file: Path | None) -> sqlite3.Connection:
    """A connection that waits for others, and writes durably."""
    return sqlite3.connect(file or ":memory:", timeout=60, isolation_level=None)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.execute("COMMIT")


def _is_regular(file: Path) -> bool:
    return stat.S_ISREG(file.lstat().st_mode)


def _is_damage(error: Exception) -> bool:
    if isinstance(error, sqlite3.DatabaseError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
    return True


def _version() -> str:
    names = [renamed.METRICS, renamed.CHECKS, renamed.FIELDS]
    return json.dumps([VERSION, SCHEMA, names], sort_keys=True)


def _folders(trials: Path) -> Iterator[Path]:
    """What may be trials. ReFrame's database belongs to the user of the jobs."""
    for path in trials.iterdir():
        if not path.name.startswith(".") and not is_database(path):
            yield path


def _drop(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM point WHERE trial = ?", (number,))
    connection.execute("DELETE FROM under WHERE trial = ?", (number,))
    connection.execute("DELETE FROM trial WHERE id = ?", (number,))


def _add(
    connection: sqlite3.Connection, folder: str, mark: str, entry: Entry | None, fault: str
) -> None:
    if entry is None:
        connection.execute(
            "INSERT INTO trial (folder, fingerprint, figures, fault) VALUES (?, ?, 0, ?)",
            (os.fsencode(folder), mark, fault.encode(errors="replace").decode()),
        )
        return
    number = connection.execute(
        "INSERT INTO trial (folder, fingerprint, name, site, started, verdict, judged, notes, "
        "figures, fault) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
        (
            os.fsencode(folder), mark, entry.trial, entry.site,
            (entry.started - _EPOCH) // timedelta(microseconds=1), entry.verdict,
            min(entry.judged, _MOST), json.dumps(entry.notes), len(entry.figures),
        ),
    ).lastrowid  # fmt: skip
    rows = []
    for figure in entry.figures:
        key = (entry.site, figure.case.id, figure.metric, figure.location)
        rows.append((number, _series_number(connection, key, figure), figure.value,
                     np.array(figure.samples, dtype=float).tobytes()))  # fmt: skip
    connection.executemany("INSERT INTO point VALUES (?, ?, ?, ?)", sorted(rows))
    for case, conditions in entry.conditions.items():
        text = json.dumps(conditions, sort_keys=True)
        connection.execute("INSERT OR IGNORE INTO conditions (text) VALUES (?)", (text,))
        connection.execute(
            "INSERT INTO under SELECT ?, ?, id FROM conditions WHERE text = ?",
            (number, case.id, text),
        )


def _series_number(connection: sqlite3.Connection, key: tuple[str, ...], figure: Figure) -> int:
    find = 'SELECT id FROM series WHERE site = ? AND "case" = ? AND metric = ? AND location = ?'
    if row := connection.execute(find, key).fetchone():
        return int(row[0])
    case = figure.case
    facts = {
        "check": case.check, "variant": case.variant, "transport": case.transport,
        "profile": case.profile, "nodes": case.nodes, "network": case.network,
    }  # fmt: skip
    return int(
        connection.execute(
            'INSERT INTO series (site, "case", metric, location, facts, unit, better) '
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, json.dumps(facts), figure.unit, figure.better),
        ).lastrowid
        or 0
    )


def _mark_copies(connection: sqlite3.Connection) -> None:
    """Mark folders that hold the same trial: of one name and begin. One counts.

    That is the folder with the trial's own name, else the one with most judgements, else the first
    name: it does not depend on the order in which the folders were made.
    """
    connection.execute("UPDATE trial SET copy_of = NULL WHERE copy_of IS NOT NULL")
    rows = connection.execute(
        "SELECT id, folder, name, site, started, judged FROM trial WHERE fault = '' AND "
        "(name, site, started) IN (SELECT name, site, started FROM trial WHERE fault = '' "
        "GROUP BY name, site, started HAVING count(*) > 1)"
    ).fetchall()
    same: dict[tuple[str, str, int], list[Any]] = {}
    for row in rows:
        same.setdefault(row[2:5], []).append(row)
    for several in same.values():
        first, *copies = sorted(
            several, key=lambda row: (os.fsdecode(row[1]) != row[2], -row[5], row[1])
        )
        for copy in copies:
            connection.execute("UPDATE trial SET copy_of = ? WHERE id = ?", (first[0], copy[0]))


def _trial(row: Sequence[Any], trials: Path) -> KnownTrial:
    number, folder, name, site, started, verdict, notes, figures = row[:8]
    begin = _EPOCH + timedelta(microseconds=started)
    return KnownTrial(
        number, trials / os.fsdecode(folder), name, site, begin, verdict, json.loads(notes), figures
    )


def _series(row: Sequence[Any]) -> Series:
    site, facts, metric, location, unit, better = row[:6]
    return Series(site, Case(**json.loads(facts)), metric, location, unit, better)
