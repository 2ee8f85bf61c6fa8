"""The index over the trials of one folder: a SQLite file beside them, ``history.sqlite``.

It is derived from the trials' folders and can be removed at any time. ``opened`` compares it with
the folders, so that it needs no command to be kept in step: a trial that is new or has changed is
read, one that has gone is dropped. Each trial is one transaction. A process that is killed leaves
whole trials, and the next one continues. A file lock admits one writer at a time. A damaged index,
and one of another version, is built again from the folders.

SQLite has no checksums: a byte that changed could change an answer. Each row has one here,
``mark``, which is checked whenever the row is read, and each trial and each series has the number
of its rows. They find what a disk or an editor changed, and do not stop who means to deceive.

In a folder that this user cannot write to, or that another user could exchange meanwhile, or on a
disk that is full, the index is in memory and ends with the process. Unless another user could
exchange it, it begins as a copy of the file, so that only what the file lacks is read.

SQLite and rows instead of DuckDB or arrays: docs/dev/benchmarks.md has the measurement.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from seatrial.base import globs
from seatrial.base.errors import InputError, LabError, Problem, explained
from seatrial.base.lock import locked
from seatrial.base.suggest import suggest
from seatrial.checks.database import is_database
from seatrial.history import renamed
from seatrial.history.entry import Entry, Figure, fingerprint, read_entry
from seatrial.history.series import Column, KnownTrial, Point, Series, SeriesKey
from seatrial.results import manifest
from seatrial.results.record import SCHEMA, Case, trial_of
from seatrial.results.wording import plural

INDEX_FILE = "history.sqlite"
LOCK_FILE = ".history.lock"
VERSION = 7  # of the tables and of what is read from a trial
_MOST = 2**63 - 1  # of SQLite
_SAMPLED = 5  # trials of a column with their samples
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES = """
CREATE TABLE made (version TEXT NOT NULL);
CREATE TABLE trial (
    -- never used again: a reader beside a writer must not take another trial for one that has gone
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    folder BLOB NOT NULL UNIQUE,  -- a name may be no text
    fingerprint TEXT NOT NULL,
    name TEXT, site TEXT, started INTEGER, verdict TEXT, judged INTEGER, notes TEXT,
    figures INTEGER NOT NULL,  -- number of its points
    cases INTEGER NOT NULL,    -- number of its rows of "under"
    proven INTEGER,
    fault TEXT NOT NULL,     -- why it cannot be read
    mark INTEGER,            -- of what is above
    copy_of INTEGER          -- the trial whose copy this folder is: its figures count once
);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, site TEXT NOT NULL, "case" TEXT NOT NULL, facts TEXT NOT NULL,
    metric TEXT NOT NULL, location TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL,
    mark INTEGER NOT NULL,
    points INTEGER NOT NULL DEFAULT 0,  -- their number
    UNIQUE (site, "case", metric, location, unit)
);
CREATE TABLE conditions (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, mark INTEGER NOT NULL
);
CREATE TABLE under (
    trial INTEGER NOT NULL, "case" TEXT NOT NULL, conditions INTEGER NOT NULL,
    waited REAL,             -- as longest_wait of seatrial.results.figures
    mark INTEGER NOT NULL,
    PRIMARY KEY ("case", trial)
) WITHOUT ROWID;
CREATE TABLE point (
    trial INTEGER NOT NULL, series INTEGER NOT NULL,
    figures BLOB NOT NULL,  -- the value, the samples and the mark, 8 bytes each
    PRIMARY KEY (trial, series)
) WITHOUT ROWID;
-- with all columns: the points of a series are read from the index, side by side
CREATE INDEX point_of_series ON point (series, trial, figures);
"""
#: result codes of a file that is not, or no longer, a database of these tables
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
Say = Callable[[str], None]
T = TypeVar("T")


class _Damaged(Exception):
    """The file is no index, it is of another version, or it does not hold what was written."""


class _Full(LabError):
    """The disk of the index is full."""


class _Points(NamedTuple):
    """Some rows of points."""

    keys: NDArray[np.int64]  # of the trials, or of the series
    values: NDArray[np.float64]
    figures: Sequence[bytes]  # as in the table

    def samples(self, row: int) -> list[float]:
        return np.frombuffer(self.figures[row])[1:-1].tolist()


@contextmanager
def opened(trials: Path, say: Say, rebuild: bool = False) -> Iterator[Index]:
    """The index over ``trials``, in step with the folders.

    ``say`` gets a sentence on what takes time or is wrong. Raises InputError if there is no such
    folder, or if it is in that of a trial, LabError if the index cannot be read or written.
    """
    if not trials.is_dir():
        text, correction = "no such folder", "name the folder that holds the trials"
        raise InputError([Problem(trials, None, "", text, correction)])
    if trial := trial_of(trials):
        text = f"it is in the folder of the trial {trial.name}, whose files stay as they are"
        correction = f"name the folder that holds the trials, {trial.parent}"
        raise InputError([Problem(trials, None, "", text, correction)])
    file: Path | None = trials / INDEX_FILE
    copy = None
    if one := manifest.exposure(trials):
        say(f"note: the index is in memory only ({one.path}: {one.who})")
        file = None
    elif not os.access(trials, os.W_OK):
        file, copy = None, file
    index = Index(trials, file, say, copy)
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
        if _is_full(error):
            say(f"note: the index is in memory only ({error})")
            index = Index(trials, None, say, None if rebuild else file)
            index.refresh()
        elif isinstance(error, OSError):
            raise LabError(f"the index cannot be used: {explained(error)}") from None
        else:
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

    def __init__(self, trials: Path, file: Path | None, say: Say, copy: Path | None = None):
        self.trials_folder = trials
        self.file = file
        self.copy = copy  # of an index in memory: the file that it begins as
        self.say = say
        self.connection: sqlite3.Connection | None = None
        self.built = 0  # how often it was built again
        self._numbers: dict[str, int] = {}  # folder -> number, of the trials that callers have
        self._made: dict[tuple[Any, ...], Any] = {}  # row -> trial or series

    # --- the file -----------------------------------------------------------------------

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
        except (_Damaged, sqlite3.DatabaseError) as error:
            if not _is_damage(error):
                raise self._unwritable(error) from None
            self.say(f"{self.file or self.copy} is built again from the trials: {error}")
            self.begin_again()
            try:
                self._refresh()
            except sqlite3.DatabaseError as again:
                raise self._unwritable(again) from None

    def _unwritable(self, error: Exception) -> LabError:
        full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        return (_Full if full else LabError)(f"the index {self.file} cannot be written: {error}")

    def _open(self) -> sqlite3.Connection:
        try:
            return self._opened()
        except UnicodeDecodeError as error:  # of SQLite's message, which cites a damaged table
            raise _Damaged(f"its tables cannot be read: {error}") from None

    def _opened(self) -> sqlite3.Connection:
        if self.connection is None:
            if self.file and os.path.lexists(self.file) and not _is_regular(self.file):
                text, correction = "it is not a regular file", "remove it"
                raise InputError([Problem(self.file, None, "", text, correction)])
            self.connection = connect(self.file)
            if self.copy and os.path.lexists(self.copy) and _is_regular(self.copy):
                with (
                    suppress(_Damaged, OSError, sqlite3.Error),
                    closing(_reader(self.copy)) as source,
                ):
                    _check_size(source, self.copy)
                    source.backup(self.connection)
            version = _version()
            if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                with closing(self.connection.cursor()) as cursor:
                    cursor.execute("BEGIN IMMEDIATE")
                    for statement in _TABLES.split(";"):
                        cursor.execute(statement)
                    cursor.execute("INSERT INTO made VALUES (?)", (version,))
                    last = max(self._numbers.values(), default=0)
                    cursor.execute("INSERT INTO sqlite_sequence VALUES ('trial', ?)", (last,))
                    cursor.execute("COMMIT")
            made = self.connection.execute("SELECT version FROM made").fetchall()
            if made != [(version,)]:
                raise _Damaged("it is of another version of Seatrial")
            if self.file:
                _check_size(self.connection, self.file)
            self._check_content()
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
                now[folder] = ""  # no file of it has to change before it can be read
            number = known[folder][0] if folder in known else None
            # Built again, a trial has the number by which callers know it.
            own = None if known else self._numbers.get(folder)
            try:
                _replace(connection, number, folder, now[folder], entry, fault, own)
            except (
                sqlite3.IntegrityError,
                sqlite3.DataError,
                OverflowError,
                UnicodeError,
            ) as error:
                fault = f"{place}: the index cannot hold it: {error}"
                _replace(connection, number, folder, now[folder], None, fault, own)
        if gone or changed:
            with _transaction(connection):
                _mark_copies(connection)

    def _check_content(self) -> None:
        """Raise _Damaged if rows are missing or are not as they were written. SQLite does not
        notice a page that is lost where it expects none, and has no sums."""
        numbers = [
            {self._rows(f"SELECT ifnull({one}, 0) FROM {table}")[0] for one, table in alike}
            for alike in _ALIKE
        ]
        if any(len(different) > 1 for different in numbers):
            raise _Damaged("it does not hold the figures of each trial")
        try:
            rows = self._trial_rows()
            for row in rows:
                if not row[_FAULT]:
                    self._trial(row)
            for row in self._series_rows():
                self._series(row)
            self._texts()
        except (ValueError, TypeError, OverflowError) as error:
            raise _Damaged(f"a row cannot be read: {error}") from None
        if {row[0]: row[-1] for row in rows if row[-1] is not None} != _copies(rows):
            raise _Damaged("a copy of a trial is not marked as one")

    def _trial_rows(self) -> list[Any]:
        """The columns ``_OF_TRIAL`` of all trials, in the order of their begin."""
        rows = self._rows(f"SELECT {_OF_TRIAL}, mark, copy_of FROM trial ORDER BY started, folder")
        _check_marks([row[:-1] for row in rows])
        return rows

    def _series_rows(self) -> list[Any]:
        """The columns ``_OF_SERIES`` of all series, in the order of their names."""
        order = 'site, "case", metric, location'
        rows = self._rows(f"SELECT {_OF_SERIES}, mark, points FROM series ORDER BY {order}")
        _check_marks([row[:-1] for row in rows])
        return rows

    def _trial(self, row: tuple[Any, ...]) -> KnownTrial:
        if row not in self._made:
            self._made[row] = _trial(row, self.trials_folder)
        one: KnownTrial = self._made[row]
        self._numbers[one.folder.name] = one.id
        return one

    def _series(self, row: tuple[Any, ...]) -> Series:
        key = row[:-1]  # without the number of its points
        if key not in self._made:
            self._made[key] = _series(row)
        one: Series = self._made[key]
        return one

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._open().execute(question, values).fetchall()

    def _answer(self, ask: Callable[[], T]) -> T:
        """What ``ask`` returns, from one state of the index: its selects are one transaction.

        If the file proves damaged, it is built again, with the same numbers of trials, and ``ask``
        is called once more.
        """
        if self.connection and self.connection.in_transaction:  # a part of another question
            return ask()
        try:
            return self._asked(ask)
        except (_Damaged, sqlite3.DatabaseError) as error:
            if not _is_damage(error) or not (self.file or self.copy):
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
        except (_Damaged, sqlite3.DatabaseError) as error:
            raise LabError(f"the index {self.file} cannot be read: {error}") from None

    def _asked(self, ask: Callable[[], T]) -> T:
        connection = self._open()
        connection.execute("BEGIN")
        try:
            return ask()
        finally:
            connection.rollback()

    # --- questions ----------------------------------------------------------------------

    def trials(self) -> list[KnownTrial]:
        """The trials that count, in the order of their begin."""
        rows = self._answer(self._trial_rows)
        return [self._trial(row) for row in rows if not row[_FAULT] and row[-1] is None]

    def left_out(self) -> list[str]:
        """A sentence for each folder whose figures do not count, in the order of the folders."""
        rows = self._answer(self._trial_rows)
        folders = {row[0]: row[1] for row in rows}
        return [
            row[_FAULT] or f"{os.fsdecode(row[1])} is a copy of {os.fsdecode(folders[row[-1]])}"
            for row in sorted(rows, key=lambda row: row[1])
            if row[_FAULT] or row[-1] is not None
        ]

    def series(self, **patterns: Sequence[str]) -> list[Series]:
        """The series that match and have points, in the order of their names.

        ``patterns``: a field of the case, ``metric``, ``location`` or ``site`` -> globs, of which
        one must match (``seatrial.base.globs``).
        """
        return list(self._answer(lambda: self._numbered(**patterns)))

    def check_selection(self, **patterns: Sequence[str]) -> None:
        """Raise InputError if a glob of a selection is wrong, or matches none of the series."""
        known = self.series()
        for name, several in patterns.items():
            globs.check(several)
            values = {_value(one, name) for one in known}
            for glob in several:
                if not any(map(globs.matcher(glob), values)):
                    hint = suggest(glob, values - {""})
                    raise InputError(f"--{name} {glob}: no series has such a {name}; {hint}")

    def _numbered(self, **patterns: Sequence[str]) -> dict[Series, tuple[int, int]]:
        """As ``series``, each with its number and that of its points."""
        of_copies: set[int] = set()  # series of copies only
        if self._rows("SELECT 1 FROM trial WHERE copy_of IS NOT NULL LIMIT 1"):
            of_copies = {
                number for (number,) in self._rows(
                    "SELECT id FROM series s WHERE NOT EXISTS (SELECT 1 FROM point p JOIN trial t "
                    "ON t.id = p.trial WHERE p.series = s.id AND t.copy_of IS NULL)"
                )
            }  # fmt: skip
        wanted = [
            (name, [globs.matcher(glob) for glob in several])
            for name, several in patterns.items() if several
        ]  # fmt: skip
        result = {}
        for row in self._series_rows():
            if row[-1] and row[0] not in of_copies:
                one = self._series(row)
                if all(any(fits(_value(one, name)) for fits in own) for name, own in wanted):
                    result[one] = (row[0], row[-1])
        return result

    def points(self, series: Series) -> list[Point]:
        """The points of a series, in the order of the trials."""

        def ask() -> tuple[list[Any], _Points, dict[int, int], dict[int, dict[str, str]]]:
            key = (series.site, series.case.id, series.metric, series.location, series.unit)
            which = self._rows(f"SELECT id, points {_ONE_SERIES}", key)
            points = self._points_of_series(*which[0]) if which else self._points("trial", 0, [])
            cases = self._rows(f'{_CASES} WHERE "case" = ?', (series.case.id,))
            _check_marks_of_cases(cases)
            under = {trial: number for trial, _, number, _, _ in cases}
            if not under.keys() >= set(points.keys.tolist()):
                raise _Damaged("it does not hold the conditions of each case")
            return self._trial_rows(), points, under, self._texts(set(under.values()))

        rows, points, under, texts = self._answer(ask)
        at = {number: position for position, number in enumerate(points.keys.tolist())}
        return [
            Point(
                self._trial(row), float(points.values[at[row[0]]]),
                points.samples(at[row[0]]), texts[under[row[0]]],
            )
            for row in rows
            if row[0] in at and row[-1] is None
        ]  # fmt: skip

    def _points_of_series(self, number: int, count: int) -> _Points:
        rows = self._rows("SELECT trial, figures FROM point WHERE series = ?", (number,))
        if len(rows) != count:
            raise _Damaged("it does not hold the figures of each trial")
        return self._points("trial", number, rows)

    def _points(self, kind: Literal["trial", "series"], other: int, rows: Sequence[Any]) -> _Points:
        """The points of rows whose key of ``kind`` comes first; ``other``: their other key."""
        keys, figures = zip(*rows, strict=True) if rows else ((), ())
        try:
            trials = numbers = np.array(keys, np.int64)
            series = np.full(len(rows), other, np.int64)
            if kind == "series":
                trials, series = series, trials
            values, written, true = _marks(trials, series, figures)
        except (ValueError, TypeError, OverflowError) as error:
            raise _Damaged(f"a figure cannot be read: {error}") from None
        if not np.array_equal(written, true):
            raise _Damaged("a figure is not as it was written")
        return _Points(numbers, values, figures)

    def _texts(self, numbers: Collection[int] | None = None) -> dict[int, dict[str, str]]:
        """Number -> conditions. ``numbers``: None for all."""
        rows = self._rows("SELECT id, text, mark FROM conditions")
        _check_marks(rows)
        return {
            number: json.loads(text)
            for number, text, _ in rows
            if numbers is None or number in numbers
        }

    def points_of(self, trials: Sequence[KnownTrial]) -> Iterator[tuple[SeriesKey, str, Point]]:
        """All points of trials, in their order: key of the series, case, point."""

        def ask() -> tuple[dict[int, Series], dict[tuple[int, str], dict[str, str]]]:
            numbers = {row[0]: self._series(row) for row in self._series_rows()}
            return numbers, self.conditions([one.id for one in trials])

        built = -1
        for trial in trials:  # not one transaction: a writer would wait for the caller
            points = self._answer(partial(self._points_of_trial, trial.id))
            if built != self.built:  # then the series have other numbers
                series, under = self._answer(ask)
                names = {at: (one.key, one.case.id) for at, one in series.items()}
                built = self.built
            for row, (at, value) in enumerate(
                zip(points.keys.tolist(), points.values.tolist(), strict=True)
            ):
                name, case = names[at]
                yield name, case, Point(trial, value, points.samples(row), under[trial.id, case])

    def _points_of_trial(self, number: int) -> _Points:
        rows = self._rows("SELECT series, figures FROM point WHERE trial = ?", (number,))
        expected = self._rows("SELECT figures FROM trial WHERE id = ?", (number,))
        if expected and expected[0][0] != len(rows):
            raise _Damaged("it does not hold the figures of each trial")
        return self._points("series", number, rows)

    def columns(self, trials: Sequence[KnownTrial], **patterns: Sequence[str]) -> list[Column]:
        """The finite figures of the series that match, in the order of ``trials``."""
        if not trials:
            return []
        return self._answer(lambda: list(self._columns(trials, **patterns)))

    def _columns(self, trials: Sequence[KnownTrial], **patterns: Sequence[str]) -> Iterator[Column]:
        position = np.full(max(one.id for one in trials) + 1, -1)
        position[[one.id for one in trials]] = np.arange(len(trials))
        for series, (number, count) in self._numbered(**patterns).items():
            points = self._points_of_series(number, count)
            known = np.flatnonzero(points.keys < len(position))
            at = position[points.keys[known]]
            order = np.argsort(at, kind="stable")
            order = order[(at[order] >= 0) & np.isfinite(points.values[known[order]])]
            if len(order):
                rows = known[order]
                samples = [points.samples(row) for row in rows[:_SAMPLED]]
                yield Column(series, at[order], points.values[rows], samples)

    def conditions(
        self, trials: Sequence[int] | None = None
    ) -> dict[tuple[int, str], dict[str, str]]:
        """Trial's number and case -> the conditions of the case in the trial."""
        of_trials, of_rows = "", ""
        values: tuple[str, ...] = ()
        if trials is not None:
            these = "(SELECT value FROM json_each(?))"
            of_trials, of_rows = f" WHERE id IN {these}", f" WHERE trial IN {these}"
            values = (json.dumps(trials),)

        def ask() -> tuple[list[Any], dict[int, dict[str, str]]]:
            rows = self._rows(f"{_CASES}{of_rows}", values)
            _check_marks_of_cases(rows)
            (expected,) = self._rows(f"SELECT sum(cases) FROM trial{of_trials}", values)
            if (expected[0] or 0) != len(rows):
                raise _Damaged("it does not hold the conditions of each case")
            return rows, self._texts({number for _, _, number, _, _ in rows})

        rows, texts = self._answer(ask)
        return {(trial, case): texts[number] for trial, case, number, _, _ in rows}

    def waits(self) -> dict[tuple[int, str], float]:
        """Trial's number and case -> how long the case waited for a processor, in per cent of its
        time. Where that is not on record, there is none."""

        def ask() -> list[Any]:
            rows = self._rows(f"{_CASES} WHERE waited IS NOT NULL")
            _check_marks_of_cases(rows)
            return rows

        return {(trial, case): waited for trial, case, _, waited, _ in self._answer(ask)}


_OF_TRIAL = (
    "id, folder, name, site, started, verdict, notes, figures, proven, cases, judged, "
    "fingerprint, fault"
)
_FAULT, _JUDGED = map(_OF_TRIAL.split(", ").index, ("fault", "judged"))  # places in a row
_OF_SERIES = 'id, site, facts, metric, location, unit, better, "case"'
#: numbers that are the same in a whole index: an expression and a table
_ALIKE = (
    (
        ("sum(figures)", "trial"), ("sum(points)", "series"), ("count(*)", "point NOT INDEXED"),
        ("count(*)", "point INDEXED BY point_of_series"),
    ),
    (("sum(cases)", "trial"), ("count(*)", "under")),
)  # fmt: skip
_ONE_SERIES = (
    'FROM series WHERE site = ? AND "case" = ? AND metric = ? AND location = ? AND unit = ?'
)
_CASES = 'SELECT trial, "case", conditions, waited, mark FROM under'


def _value(series: Series, name: str) -> str:
    """A field of a series or of its case, as a text."""
    of = series if name in ("metric", "location", "site") else series.case
    return str(getattr(of, name))


# --- marks -----------------------------------------------------------------------------


def _mark(row: Sequence[Any]) -> int:
    return zlib.crc32(repr(row).encode(errors="surrogatepass"))


def _check_marks(rows: Sequence[tuple[Any, ...]]) -> None:
    """``rows``: each with its mark as the last value."""
    if any(_mark(row[:-1]) != row[-1] for row in rows):
        raise _Damaged("a row is not as it was written")


def _mark_of_case(trial: int, case: int, conditions: int, waited: float | None) -> int:
    """``case``: the checksum of its name. As ``_mark``; of very many rows, that takes longer."""
    return zlib.crc32(b"%d %d %a" % (trial, conditions, waited), case)


def _check_marks_of_cases(rows: Sequence[tuple[int, str, int, float | None, int]]) -> None:
    try:
        sums = {case: zlib.crc32(case.encode()) for case in {row[1] for row in rows}}
        same = all(
            _mark_of_case(trial, sums[case], number, waited) == mark
            for trial, case, number, waited, mark in rows
        )
    except (TypeError, AttributeError):  # a value of another type
        same = False
    if not same:
        raise _Damaged("a row is not as it was written")


def _marks(
    trials: NDArray[np.int64], series: NDArray[np.int64], figures: Sequence[bytes]
) -> tuple[NDArray[np.float64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Of points: the values, the marks that are written in their figures, and the true ones.

    A mark is a sum of the mixed words of the row. Of millions of rows, a call of zlib for each
    would take longer than the question. Raises ValueError if figures cannot be of a point.
    """
    lengths = np.fromiter(map(len, figures), np.int64, len(figures))
    if (lengths % 8).any() or (lengths < 16).any():
        raise ValueError("a part is missing")
    lengths //= 8
    words = np.frombuffer(b"".join(figures), np.uint64)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    place = np.arange(len(words)) - np.repeat(begins, lengths)
    sums = np.concatenate([[np.uint64(0)], np.cumsum(_mixed(words, place + 2), dtype=np.uint64)])
    true = sums[ends - 1] - sums[begins]
    for number, column in enumerate((trials, series)):
        true += _mixed(column.view(np.uint64), np.int64(number))
    return words[begins].view(np.float64), words[ends - 1], true


def _mixed(words: NDArray[np.uint64], place: NDArray[np.int64] | np.int64) -> NDArray[np.uint64]:
    """Each word at a place, so that one bit of it changes half of the result: the finalizer of
    SplitMix64 (G. L. Steele et al., OOPSLA 2014)."""
    x = words + np.asarray(place).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# --- rows ------------------------------------------------------------------------------


def connect(file: Path | None) -> sqlite3.Connection:
    """A connection that waits for others, and writes durably."""
    return sqlite3.connect(file or ":memory:", timeout=60, isolation_level=None)


def _reader(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


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


def _is_full(error: BaseException) -> bool:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, _Full)


def _is_damage(error: Exception) -> bool:
    if not isinstance(error, sqlite3.DatabaseError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # not of SQLite but of Python's module: a text that is not UTF-8
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in _DAMAGED


def _check_size(connection: sqlite3.Connection, file: Path) -> None:
    """Raise _Damaged if a part of the last page is missing: SQLite takes that for zeros."""
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # ends what a killed writer began
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    if file.stat().st_size < pages * size:
        raise _Damaged("its end is missing")


def _version() -> str:
    names = [renamed.METRICS, renamed.CHECKS, renamed.FIELDS]
    return json.dumps([VERSION, SCHEMA, names], sort_keys=True)


def _folders(trials: Path) -> Iterator[Path]:
    """What may be trials. ReFrame's database belongs to the user of the jobs."""
    for path in trials.iterdir():
        if not path.name.startswith(".") and not is_database(path):
            yield path


def _drop(connection: sqlite3.Connection, number: int) -> None:
    _count(connection, number, -1)
    connection.execute("DELETE FROM point WHERE trial = ?", (number,))
    connection.execute("DELETE FROM under WHERE trial = ?", (number,))
    connection.execute("DELETE FROM trial WHERE id = ?", (number,))


def _count(connection: sqlite3.Connection, trial: int, more: int) -> None:
    """Change the number of points of the series of a trial."""
    of_trial = "(SELECT series FROM point WHERE trial = ?)"
    connection.execute(
        f"UPDATE series SET points = points + ? WHERE id IN {of_trial}", (more, trial)
    )


def _replace(
    connection: sqlite3.Connection, number: int | None, folder: str, mark: str,
    entry: Entry | None, fault: str, new_number: int | None = None,
) -> None:  # fmt: skip
    with _transaction(connection):
        if number is not None:
            _drop(connection, number)
        _add(connection, folder, mark, entry, fault, new_number)


def _add(
    connection: sqlite3.Connection, folder: str, fingerprint: str, entry: Entry | None, fault: str,
    number: int | None = None,
) -> int:  # fmt: skip
    """Add a trial. ``number``: of it; None for a new one. Returns its number."""
    cases: dict[Case, dict[str, str]] = {}
    if entry:
        cases = {one.case: {} for one in entry.figures} | entry.conditions
    fields: dict[str, Any] = {
        "id": number, "folder": os.fsencode(folder), "fingerprint": fingerprint, "figures": 0,
        "cases": len(cases), "fault": fault.encode(errors="replace").decode(),
    }  # fmt: skip
    if entry:
        fields |= {
            "name": entry.trial, "site": entry.site,
            "started": (entry.started - _EPOCH) // timedelta(microseconds=1),
            "verdict": entry.verdict, "judged": min(entry.judged, _MOST),
            "notes": json.dumps(entry.notes), "figures": len(entry.figures),
            "proven": entry.proven,
        }  # fmt: skip
    number = connection.execute(
        f"INSERT INTO trial ({', '.join(fields)}) VALUES ({', '.join('?' * len(fields))})",
        tuple(fields.values()),
    ).lastrowid
    assert number is not None
    _set_mark(connection, number)
    if entry:
        numbers = [
            _series_number(
                connection, (entry.site, one.case.id, one.metric, one.location, one.unit), one
            )
            for one in entry.figures
        ]
        _add_points(
            connection, number, numbers, [one.value for one in entry.figures],
            [np.array(one.samples, dtype=float).tobytes() for one in entry.figures],
        )  # fmt: skip
        _count(connection, number, 1)
    for case, conditions in cases.items():
        text = _conditions_number(connection, json.dumps(conditions, sort_keys=True))
        waited = entry.waits.get(case) if entry else None
        mark = _mark_of_case(number, zlib.crc32(case.id.encode()), text, waited)
        connection.execute(
            "INSERT INTO under VALUES (?, ?, ?, ?, ?)", (number, case.id, text, waited, mark)
        )
    return number


def _set_mark(connection: sqlite3.Connection, number: int) -> None:
    """Set the mark of a trial, of the row as SQLite returns it."""
    row = connection.execute(f"SELECT {_OF_TRIAL} FROM trial WHERE id = ?", (number,)).fetchone()
    connection.execute("UPDATE trial SET mark = ? WHERE id = ?", (_mark(row), number))


def _add_points(
    connection: sqlite3.Connection, trial: int, series: Sequence[int], values: Sequence[float],
    samples: Sequence[bytes],
) -> None:  # fmt: skip
    parts = [np.float64(one).tobytes() + own for one, own in zip(values, samples, strict=True)]
    own = np.full(len(series), trial, np.int64)
    _, _, marks = _marks(own, np.array(series, np.int64), [one + bytes(8) for one in parts])
    rows = [
        (trial, number, part + mark.tobytes())
        for number, part, mark in zip(series, parts, marks, strict=True)
    ]
    connection.executemany("INSERT INTO point VALUES (?, ?, ?)", sorted(rows))


def _conditions_number(connection: sqlite3.Connection, text: str) -> int:
    find = "SELECT id FROM conditions WHERE text = ?"
    if row := connection.execute(find, (text,)).fetchone():
        return int(row[0])
    (last,) = connection.execute("SELECT ifnull(max(id), 0) FROM conditions").fetchone()
    own = (last + 1, text)
    connection.execute("INSERT INTO conditions VALUES (?, ?, ?)", (*own, _mark(own)))
    return int(own[0])


def _series_number(connection: sqlite3.Connection, key: tuple[str, ...], figure: Figure) -> int:
    if row := connection.execute(f"SELECT id {_ONE_SERIES}", key).fetchone():
        return int(row[0])
    (last,) = connection.execute("SELECT ifnull(max(id), 0) FROM series").fetchone()
    site, case, metric, location, unit = key
    facts = json.dumps(asdict(figure.case))
    row = (last + 1, site, facts, metric, location, unit, figure.better, case)
    connection.execute(
        f"INSERT INTO series ({_OF_SERIES}, mark) VALUES ({', '.join('?' * 9)})", (*row, _mark(row))
    )
    return int(row[0])


def _mark_copies(connection: sqlite3.Connection) -> None:
    """Mark folders that hold the same trial."""
    connection.execute("UPDATE trial SET copy_of = NULL WHERE copy_of IS NOT NULL")
    rows = connection.execute(f"SELECT {_OF_TRIAL} FROM trial").fetchall()
    copies = [(original, copy) for copy, original in _copies(rows).items()]
    connection.executemany("UPDATE trial SET copy_of = ? WHERE id = ?", copies)


def _copies(rows: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Number of a trial -> the one whose copy it is: of the same name, site and begin. One counts.

    That is the folder with the trial's own name, else the one with most judgements, else the first
    name: it does not depend on the order in which the folders were made.
    """
    counts = Counter(row[2:5] for row in rows if not row[_FAULT])
    same: dict[tuple[str, str, int], list[tuple[bool, int, bytes, int]]] = {}
    for row in rows:
        if not row[_FAULT] and counts[row[2:5]] > 1:
            number, folder, name, judged = row[0], row[1], row[2], row[_JUDGED]
            order = (os.fsdecode(folder) != name, -judged, folder, number)
            same.setdefault(row[2:5], []).append(order)
    result: dict[int, int] = {}
    for several in same.values():
        (*_, first), *copies = sorted(several)
        result |= {number: first for *_, number in copies}
    return result


def _trial(row: Sequence[Any], trials: Path) -> KnownTrial:
    number, folder, name, site, started, verdict, notes, figures, proven = row[:9]
    begin = _EPOCH + timedelta(microseconds=started)
    return KnownTrial(
        number, trials / os.fsdecode(folder), name, site, begin, verdict, json.loads(notes),
        figures, bool(proven),
    )  # fmt: skip


def _series(row: Sequence[Any]) -> Series:
    _, site, facts, metric, location, unit, better = row[:7]
    return Series(site, Case(**json.loads(facts)), metric, location, unit, better)
