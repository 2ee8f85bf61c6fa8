"""Tables of names and figures that stay readable on a terminal of 80 columns.

Rich folds the columns of a table that is too wide, within words. Here the last columns, which have
the long names and sentences, stand below their row instead. A pipe gets one line for each row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from seatrial.report.text import line

_GAP = "  "
_INDENT = "    "


def print_rows(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of untrusted cells below their headings. Columns of figures are right-aligned."""
    cells = [[line(cell) for cell in row] for row in rows]
    right = [all(_is_figure(row[at]) for row in cells) for at in range(len(headings) - 1)]
    right.append(False)
    cells = [list(headings), *cells]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(headings))]
    beside = len(headings)
    while out.is_terminal and beside > 1 and _width(widths[:beside]) > out.width:
        beside -= 1
    for number, row in enumerate(cells):
        style = "" if number else "bold"
        parts = [
            " " * (width - cell_len(cell)) + cell if to_right
            else cell + " " * (width - cell_len(cell))
            for cell, width, to_right in zip(row, widths[:beside], right, strict=False)
        ]  # fmt: skip
        out.print(Text(_GAP.join(parts).rstrip(), style))
        for text in _below(row[beside:], out.width):
            out.print(Text(text, style))


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _below(cells: Sequence[str], width: int) -> Iterator[str]:
    """The cells of a row that do not fit beside the others, in lines."""
    text = _GAP.join(filter(None, cells))
    yield from textwrap.wrap(
        text, max(width, 2 * len(_INDENT)), initial_indent=_INDENT, subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )  # fmt: skip


def _is_figure(cell: str) -> bool:
    """Such as ``12.5 us``, ``0.98 to 1.02``, a dash; a date is none."""
    return not cell or (cell[0] in "0123456789-–" and cell[4:5] != "-")
