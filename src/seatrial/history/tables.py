"""The tables of the index, and how a trial is added to them and removed."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from seatrial.history import renamed
from seatrial.history.checksums import mark_of_case, mark_of_row, marks_of_points
from seatrial.history.entry import Entry, Figure
from seatrial.history.series import KnownTrial, Series
from seatrial.history.sqlite_file import transaction
from seatrial.results.record import SCHEMA, Case

VERSION = 11  # of the tables and of what is read from a trial
_MOST = 2**63 - 1  # of SQLite
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TABLES = """
CREATE TABLE made (version TEXT NOT NULL);
CREATE TABLE trial (
    -- never used again: a reader beside a writer must not take another trial for one that has gone
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    folder BLOB NOT NULL UNIQUE,  -- a name may be no text
    fingerprint TEXT NOT NULL,
    name TEXT, site TEXT, started INTEGER, verdict TEXT, word TEXT, judged INTEGER, notes TEXT,
    figures INTEGER NOT NULL,  -- number of its points
    cases INTEGER NOT NULL,    -- number of its rows of "under"
    proven INTEGER,
    block_runs INTEGER,
    short TEXT,              -- as in the entry
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
OF_TRIAL = (
    "id, folder, name, site, started, verdict, notes, figures, proven, block_runs, short, word, "
    "cases, judged, fingerprint, fault"
)
FAULT, _JUDGED = map(OF_TRIAL.split(", ").index, ("fault", "judged"))  # places in a row
OF_SERIES = 'id, site, facts, metric, location, unit, better, "case"'
#: numbers that are the same in a whole index: an expression and a table
ALIKE = (
    (
        ("sum(figures)", "trial"), ("sum(points)", "series"), ("count(*)", "point NOT INDEXED"),
        ("count(*)", "point INDEXED BY point_of_series"),
    ),
    (("sum(cases)", "trial"), ("count(*)", "under")),
)  # fmt: skip
ONE_SERIES = (
    'FROM series WHERE site = ? AND "case" = ? AND metric = ? AND location = ? AND unit = ?'
)
CASES = 'SELECT trial, "case", conditions, waited, mark FROM under'


def version() -> str:
    names = [renamed.METRICS, renamed.CHECKS, renamed.FIELDS]
    return json.dumps([VERSION, SCHEMA, names], sort_keys=True)


def drop(connection: sqlite3.Connection, number: int) -> None:
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


def replace(
    connection: sqlite3.Connection, number: int | None, folder: str, mark: str,
    entry: Entry | None, fault: str, new_number: int | None = None,
) -> None:  # fmt: skip
    with transaction(connection):
        if number is not None:
            drop(connection, number)
        add(connection, folder, mark, entry, fault, new_number)


def add(
    connection: sqlite3.Connection, folder: str, fingerprint: str, entry: Entry | None, fault: str,
    number: int | None = None,
) -> int:  # fmt: skip
    """Add a trial. ``number``: of it; None for a new one. Returns its number."""
    cases: dict[Case, dict[str, str]] = {}
    if entry:
        cases = {figure.case: {} for figure in entry.figures} | entry.conditions
    fields: dict[str, Any] = {
        "id": number, "folder": os.fsencode(folder), "fingerprint": fingerprint, "figures": 0,
        "cases": len(cases), "fault": fault.encode(errors="replace").decode(),
    }  # fmt: skip
    if entry:
        fields |= {
            "name": entry.trial, "site": entry.site,
            "started": (entry.started - _EPOCH) // timedelta(microseconds=1),
            "verdict": entry.verdict, "word": entry.word, "judged": min(entry.judged, _MOST),
            "notes": json.dumps(entry.notes), "figures": len(entry.figures),
            "proven": entry.proven, "block_runs": entry.block_runs,
            "short": json.dumps(entry.short),
        }  # fmt: skip
    number = connection.execute(
        f"INSERT INTO trial ({', '.join(fields)}) VALUES ({', '.join('?' * len(fields))})",
        tuple(fields.values()),
    ).lastrowid
    assert number is not None
    set_mark(connection, number)
    if entry:
        numbers = [
            _series_number(
                connection,
                (entry.site, figure.case.id, figure.metric, figure.location, figure.unit),
                figure,
            )
            for figure in entry.figures
        ]
        add_points(
            connection, number, numbers, [figure.value for figure in entry.figures],
            [np.array(figure.samples, dtype=float).tobytes() for figure in entry.figures],
        )  # fmt: skip
        _count(connection, number, 1)
    for case, conditions in cases.items():
        text = _conditions_number(connection, json.dumps(conditions, sort_keys=True))
        waited = entry.waits.get(case) if entry else None
        mark = mark_of_case(number, zlib.crc32(case.id.encode()), text, waited)
        connection.execute(
            "INSERT INTO under VALUES (?, ?, ?, ?, ?)", (number, case.id, text, waited, mark)
        )
    return number


def set_mark(connection: sqlite3.Connection, number: int) -> None:
    """Set the mark of a trial, of the row as SQLite returns it."""
    row = connection.execute(f"SELECT {OF_TRIAL} FROM trial WHERE id = ?", (number,)).fetchone()
    connection.execute("UPDATE trial SET mark = ? WHERE id = ?", (mark_of_row(row), number))


def add_points(
    connection: sqlite3.Connection, trial: int, series: Sequence[int], values: Sequence[float],
    samples: Sequence[bytes],
) -> None:  # fmt: skip
    parts = [
        np.float64(value).tobytes() + packed for value, packed in zip(values, samples, strict=True)
    ]
    numbers = np.full(len(series), trial, np.int64)
    _, _, marks = marks_of_points(
        numbers, np.array(series, np.int64), [part + bytes(8) for part in parts]
    )
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
    new_row = (last + 1, text)
    connection.execute("INSERT INTO conditions VALUES (?, ?, ?)", (*new_row, mark_of_row(new_row)))
    return int(new_row[0])


def _series_number(connection: sqlite3.Connection, key: tuple[str, ...], figure: Figure) -> int:
    if row := connection.execute(f"SELECT id {ONE_SERIES}", key).fetchone():
        return int(row[0])
    (last,) = connection.execute("SELECT ifnull(max(id), 0) FROM series").fetchone()
    site, case, metric, location, unit = key
    facts = json.dumps(asdict(figure.case))
    row = (last + 1, site, facts, metric, location, unit, figure.better, case)
    connection.execute(
        f"INSERT INTO series ({OF_SERIES}, mark) VALUES ({', '.join('?' * 9)})",
        (*row, mark_of_row(row)),
    )
    return int(row[0])


def mark_copies(connection: sqlite3.Connection) -> None:
    """Mark folders that hold the same trial."""
    connection.execute("UPDATE trial SET copy_of = NULL WHERE copy_of IS NOT NULL")
    rows = connection.execute(f"SELECT {OF_TRIAL} FROM trial").fetchall()
    pairs = [(original, copy) for copy, original in copies(rows).items()]
    connection.executemany("UPDATE trial SET copy_of = ? WHERE id = ?", pairs)


def copies(rows: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Number of a trial -> the one whose copy it is: of the same name, site and begin. One counts.

    That is the folder with the trial's own name, else the one with most judgements, else the first
    name: it does not depend on the order in which the folders were made.
    """
    counts = Counter(row[2:5] for row in rows if not row[FAULT])
    same: dict[tuple[str, str, int], list[tuple[bool, int, bytes, int]]] = {}
    for row in rows:
        if not row[FAULT] and counts[row[2:5]] > 1:
            number, folder, name, judged = row[0], row[1], row[2], row[_JUDGED]
            order = (os.fsdecode(folder) != name, -judged, folder, number)
            same.setdefault(row[2:5], []).append(order)
    result: dict[int, int] = {}
    for several in same.values():
        (*_, first), *copies = sorted(several)
        result |= {number: first for *_, number in copies}
    return result


def trial_of_row(row: Sequence[Any], trials: Path) -> KnownTrial:
    number, folder, name, site, started, verdict, notes, figures = row[:8]
    proven, block, short, word = row[8:12]
    begin = _EPOCH + timedelta(microseconds=started)
    return KnownTrial(
        number, trials / os.fsdecode(folder), name, site, begin, verdict, json.loads(notes),
        figures, bool(proven), block, json.loads(short), word,
    )  # fmt: skip


def series_of_row(row: Sequence[Any]) -> Series:
    _, site, facts, metric, location, unit, better = row[:7]
    return Series(site, Case(**json.loads(facts)), metric, location, unit, better)
