"""The checksums of the index's rows.

SQLite has none: a byte that changed could change an answer. They find what a disk or an editor
changed, and do not stop who means to deceive.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Damaged(Exception):
    """The file is no index, it is of another version, or it does not hold what was written."""


def mark_of_row(row: Sequence[Any]) -> int:
    return zlib.crc32(repr(row).encode(errors="surrogatepass"))


def check_rows(rows: Sequence[tuple[Any, ...]]) -> None:
    """``rows``: each with its mark as the last value."""
    if any(mark_of_row(row[:-1]) != row[-1] for row in rows):
        raise Damaged("a row is not as it was written")


def mark_of_case(trial: int, case: int, conditions: int, waited: float | None) -> int:
    """``case``: the checksum of its name. Of very many rows, ``mark_of_row`` takes longer."""
    return zlib.crc32(b"%d %d %a" % (trial, conditions, waited), case)


def check_cases(rows: Sequence[tuple[int, str, int, float | None, int]]) -> None:
    try:
        sums = {case: zlib.crc32(case.encode()) for case in {row[1] for row in rows}}
        same = all(
            mark_of_case(trial, sums[case], number, waited) == mark
            for trial, case, number, waited, mark in rows
        )
    except (TypeError, AttributeError):  # a value of another type
        same = False
    if not same:
        raise Damaged("a row is not as it was written")


def marks_of_points(
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
