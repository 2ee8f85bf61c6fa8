"""The index over the trials of one folder: a SQLite file beside them, ``history.sqlite``.

It is derived from the trials' folders and can be removed at any time. ``opened`` compares it with
the folders, so that it needs no command to be kept in step: a trial that is new or has changed is
read, one that has gone is dropped. A file lock admits one writer at a time.

In a folder that this user cannot write to, or that another user could exchange meanwhile, or on a
disk that is full, the index is in memory and ends with the process. Unless another user could
exchange it, it begins as a copy of the file, so that only what the file lacks is read.

Each row has a checksum (``seatrial.history.checksums``), which is checked whenever the row is read,
and each trial and each series has the number of its rows. What is damaged is built again
(``seatrial.history.store``).

SQLite and rows instead of DuckDB or arrays: docs/dev/benchmarks.md has the measurement.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.base import globs
from seatrial.base.errors import InputError, LabError, Problem, explained
from seatrial.base.lock import locked
from seatrial.base.say import Say
from seatrial.base.suggest import suggest
from seatrial.history.checksums import Damaged, check_cases, marks_of_points
from seatrial.history.series import Column, KnownTrial, Point, Series, SeriesKey
from seatrial.history.sqlite_file import is_full
from seatrial.history.store import LOCK_FILE, Store
from seatrial.history.tables import CASES, FAULT, ONE_SERIES
from seatrial.results import manifest
from seatrial.results.folder import trial_of

INDEX_FILE = "history.sqlite"
_SAMPLED = 5  # trials of a column with their samples


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
    if exposed := manifest.exposure(trials):
        say(f"note: the index is in memory only ({exposed.path}: {exposed.who})")
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
                    index.rebuild()
                else:
                    index.refresh()
    except BaseException as error:
        index.close()
        if is_full(error):
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
        self._store = Store(trials, file, say, copy)

    def close(self) -> None:
        self._store.close()

    def refresh(self) -> None:
        """Bring the index in step with the folders. The caller holds the lock."""
        self._store.refresh()

    def rebuild(self) -> None:
        """The same, from the folders alone."""
        self._store.begin_again()
        self._store.refresh()

    def trials(self) -> list[KnownTrial]:
        """The trials that count, in the order of their begin."""
        rows = self._store.answer(self._store.trial_rows)
        return [self._store.trial(row) for row in rows if not row[FAULT] and row[-1] is None]

    def left_out(self) -> list[str]:
        """A sentence for each folder whose figures do not count, in the order of the folders."""
        rows = self._store.answer(self._store.trial_rows)
        folders = {row[0]: row[1] for row in rows}
        return [
            row[FAULT] or f"{os.fsdecode(row[1])} is a copy of {os.fsdecode(folders[row[-1]])}"
            for row in sorted(rows, key=lambda row: row[1])
            if row[FAULT] or row[-1] is not None
        ]

    def series(self, **patterns: Sequence[str]) -> list[Series]:
        """The series that match and have points, in the order of their names.

        ``patterns``: a field of the case, ``metric``, ``location`` or ``site`` -> globs, of which
        one must match (``seatrial.base.globs``).
        """
        return list(self._store.answer(lambda: self._numbered(**patterns)))

    def check_selection(self, **patterns: Sequence[str]) -> None:
        """Raise InputError if a glob of a selection is wrong, or matches none of the series."""
        known = self.series()
        for name, several in patterns.items():
            globs.check(several)
            values = {_value(series, name) for series in known}
            for glob in several:
                if not any(map(globs.matcher(glob), values)):
                    hint = suggest(glob, values - {""})
                    raise InputError(f"--{name} {glob}: no series has such a {name}; {hint}")

    def _numbered(self, **patterns: Sequence[str]) -> dict[Series, tuple[int, int]]:
        """As ``series``, each with its number and that of its points."""
        of_copies: set[int] = set()  # series of copies only
        if self._store.rows("SELECT 1 FROM trial WHERE copy_of IS NOT NULL LIMIT 1"):
            of_copies = {
                number for (number,) in self._store.rows(
                    "SELECT id FROM series s WHERE NOT EXISTS (SELECT 1 FROM point p JOIN trial t "
                    "ON t.id = p.trial WHERE p.series = s.id AND t.copy_of IS NULL)"
                )
            }  # fmt: skip
        wanted = [
            (name, [globs.matcher(glob) for glob in several])
            for name, several in patterns.items() if several
        ]  # fmt: skip
        result = {}
        for row in self._store.series_rows():
            if row[-1] and row[0] not in of_copies:
                series = self._store.series(row)
                if all(
                    any(fits(_value(series, name)) for fits in allowed) for name, allowed in wanted
                ):
                    result[series] = (row[0], row[-1])
        return result

    def points(self, series: Series) -> list[Point]:
        """The points of a series, in the order of the trials."""

        def ask() -> tuple[list[Any], _Points, dict[int, int], dict[int, dict[str, str]]]:
            key = (series.site, series.case.id, series.metric, series.location, series.unit)
            which = self._store.rows(f"SELECT id, points {ONE_SERIES}", key)
            points = self._points_of_series(*which[0]) if which else self._points("trial", 0, [])
            cases = self._store.rows(f'{CASES} WHERE "case" = ?', (series.case.id,))
            check_cases(cases)
            under = {trial: number for trial, _, number, _, _ in cases}
            if not under.keys() >= set(points.keys.tolist()):
                raise Damaged("it does not hold the conditions of each case")
            return self._store.trial_rows(), points, under, self._store.texts(set(under.values()))

        rows, points, under, texts = self._store.answer(ask)
        at = {number: position for position, number in enumerate(points.keys.tolist())}
        return [
            Point(
                self._store.trial(row), float(points.values[at[row[0]]]),
                points.samples(at[row[0]]), texts[under[row[0]]],
            )
            for row in rows
            if row[0] in at and row[-1] is None
        ]  # fmt: skip

    def _points_of_series(self, number: int, count: int) -> _Points:
        rows = self._store.rows("SELECT trial, figures FROM point WHERE series = ?", (number,))
        if len(rows) != count:
            raise Damaged("it does not hold the figures of each trial")
        return self._points("trial", number, rows)

    def _points(self, kind: Literal["trial", "series"], other: int, rows: Sequence[Any]) -> _Points:
        """The points of rows whose key of ``kind`` comes first; ``other``: their other key."""
        keys, figures = zip(*rows, strict=True) if rows else ((), ())
        try:
            trials = numbers = np.array(keys, np.int64)
            series = np.full(len(rows), other, np.int64)
            if kind == "series":
                trials, series = series, trials
            values, written, true = marks_of_points(trials, series, figures)
        except (ValueError, TypeError, OverflowError) as error:
            raise Damaged(f"a figure cannot be read: {error}") from None
        if not np.array_equal(written, true):
            raise Damaged("a figure is not as it was written")
        return _Points(numbers, values, figures)

    def points_of(self, trials: Sequence[KnownTrial]) -> Iterator[tuple[SeriesKey, str, Point]]:
        """All points of trials, in their order: key of the series, case, point."""

        def ask() -> tuple[dict[int, Series], dict[tuple[int, str], dict[str, str]]]:
            numbers = {row[0]: self._store.series(row) for row in self._store.series_rows()}
            return numbers, self.conditions([trial.id for trial in trials])

        built = -1
        for trial in trials:  # not one transaction: a writer would wait for the caller
            points = self._store.answer(partial(self._points_of_trial, trial.id))
            if built != self._store.built:  # then the series have other numbers
                series, under = self._store.answer(ask)
                names = {at: (each.key, each.case.id) for at, each in series.items()}
                built = self._store.built
            for row, (at, value) in enumerate(
                zip(points.keys.tolist(), points.values.tolist(), strict=True)
            ):
                name, case = names[at]
                yield name, case, Point(trial, value, points.samples(row), under[trial.id, case])

    def _points_of_trial(self, number: int) -> _Points:
        rows = self._store.rows("SELECT series, figures FROM point WHERE trial = ?", (number,))
        expected = self._store.rows("SELECT figures FROM trial WHERE id = ?", (number,))
        if expected and expected[0][0] != len(rows):
            raise Damaged("it does not hold the figures of each trial")
        return self._points("series", number, rows)

    def columns(self, trials: Sequence[KnownTrial], **patterns: Sequence[str]) -> list[Column]:
        """The finite figures of the series that match, in the order of ``trials``."""
        if not trials:
            return []
        return self._store.answer(lambda: list(self._columns(trials, **patterns)))

    def _columns(self, trials: Sequence[KnownTrial], **patterns: Sequence[str]) -> Iterator[Column]:
        position = np.full(max(trial.id for trial in trials) + 1, -1)
        position[[trial.id for trial in trials]] = np.arange(len(trials))
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
            rows = self._store.rows(f"{CASES}{of_rows}", values)
            check_cases(rows)
            (expected,) = self._store.rows(f"SELECT sum(cases) FROM trial{of_trials}", values)
            if (expected[0] or 0) != len(rows):
                raise Damaged("it does not hold the conditions of each case")
            return rows, self._store.texts({number for _, _, number, _, _ in rows})

        rows, texts = self._store.answer(ask)
        return {(trial, case): texts[number] for trial, case, number, _, _ in rows}

    def waits(self) -> dict[tuple[int, str], float]:
        """Trial's number and case -> how long the case waited for a processor, in per cent of its
        time. Where that is not on record, there is none."""

        def ask() -> list[Any]:
            rows = self._store.rows(f"{CASES} WHERE waited IS NOT NULL")
            check_cases(rows)
            return rows

        return {(trial, case): waited for trial, case, _, waited, _ in self._store.answer(ask)}


def _value(series: Series, name: str) -> str:
    """A field of a series or of its case, as a text."""
    of = series if name in ("metric", "location", "site") else series.case
    return str(getattr(of, name))
