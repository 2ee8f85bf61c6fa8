"""What commands print on a trial, for a terminal of 80 to 200 columns or a pipe.

That is the summary at the end of ``seatrial trial``, and the conclusions of ``seatrial analyse``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.base.memory import no_collections
from seatrial.report import REPORT_FILE, contract
from seatrial.report.summary import Matrix, gather, headline, matrix, slowest, verdict_history
from seatrial.report.text import STATUSES, check_name, duration, line
from seatrial.results.folder import Results

if TYPE_CHECKING:
    from seatrial.analysis.trials import Analysis

_COLOURS = {"accept": "bold green", "reject": "bold red", "incomplete": "bold yellow"}
_MAX_FINDINGS = 12
_MAX_CLAUSES = 12
_ASCII = (("·", "-"), ("–", "-"), ("≤", "<="), ("≥", ">="))
_KEYS = "abcdefghijklmnopqrstuvwxyz"


_FOLDED_ROWS = 20  # of a table that is folded in the report; a longer one is there alone


class _Printer:
    """Prints the text of records literally: not as Rich's markup or as escape sequences."""

    def __init__(self, console: Console):
        self.console = console
        # A pipe may end in a log file or a mail: no colour, ASCII only.
        self.plain = not console.is_terminal or "utf" not in console.encoding.lower()

    def text(self, value: str, style: str = "") -> Text:
        value = line(value)
        if self.plain:
            for special, substitute in _ASCII:
                value = value.replace(special, substitute)
            return Text(value.encode("ascii", "replace").decode())
        return Text(value, style)

    def say(self, value: str = "", style: str = "") -> None:
        self.console.print(self.text(value, style), highlight=False, soft_wrap=self.plain)


@no_collections()
def print_summary(results: Results, console: Console) -> None:
    """Print verdict, findings, matrix and slowest case.

    Plain ASCII without colour if the console is not a terminal or cannot encode more.
    """
    out = _Printer(console)
    views = gather(results)
    head = headline(results, views)
    out.say(f"{head.word}  {results.trial.site}  {results.trial.trial}", _COLOURS[head.key])
    out.say(head.why)
    for note in results.trial.read_first:
        out.say(note, "bold yellow")
    for sentence in verdict_history(results):
        out.say(sentence)
    _print_contract(contract.rows(results), out)
    findings = results.verdict.findings if results.verdict else []
    notes = [finding for finding in findings if finding.startswith("note: ")]
    _print_findings([finding for finding in findings if finding not in notes], out)
    if views:
        out.say()
        for part in _fit(matrix(views), console.width):
            _print_matrix(part, out)
        used = {view.status.key for view in views.values()}
        legend = [
            f"{status.ascii if out.plain else status.symbol} {status.word}"
            for status in STATUSES.values()
            if status.key in used
        ]
        out.say("  ".join([*legend, "blank: not planned"]))
    _print_findings(notes, out)
    out.say()
    slow = slowest(views)
    slowness = ""
    if slow:
        case = slow.case
        name = f"{check_name(case)}, {case.route}, {case.profile}"
        slowness = f"; slowest: {name}, {duration(slow.seconds)}"
    out.say(f"the trial took {duration(head.took)}, without its set-up{slowness}")


def print_page(results: Results, console: Console, folder: Path | None = None) -> None:
    """Print the path of the report in a folder; by default in the trial's.

    A path is neither wrapped nor converted to ASCII, so that it can be copied.
    """
    path = line(str((folder or results.output) / REPORT_FILE))
    console.print(Text(f"report: {path}"), soft_wrap=True, highlight=False)


def _print_findings(sentences: list[str], out: _Printer) -> None:
    if not sentences:
        return
    out.say()
    for sentence in sentences[:_MAX_FINDINGS]:
        out.say(f"{'-' if out.plain else '•'} {sentence}")
    if len(sentences) > _MAX_FINDINGS:
        out.say(f"  and {len(sentences) - _MAX_FINDINGS} more, in the report")


def _print_contract(rows: list[contract.Row], out: _Printer) -> None:
    """One line for each clause; of many clauses, those that are met are only counted."""
    if not rows:
        return
    out.say()
    shown = [row for row in rows if row.clause.status != "met" or len(rows) <= _MAX_CLAUSES]
    for row in shown:
        clause = row.clause
        symbol = row.status.ascii if out.plain else row.status.symbol
        text = f"{symbol} {row.status.word}: {clause.source}: {clause.metric} {clause.required}"
        if clause.value is not None:
            text += f", measured {row.measured} (margin {row.margin})"
        if clause.hole:
            text += f" ({clause.reason})"
        out.say(text, row.status.colour)
    if len(shown) < len(rows):
        out.say(f"{len(rows) - len(shown)} more clauses are met")


@no_collections()
def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print the sentences and tables of the chapter "What it means"."""
    from seatrial.report.meaning.sections import sections  # its libraries are slow to import

    out = _Printer(console)
    made = sections(analysis)
    if not made:
        out.say("nothing to conclude: no run has figures that an analysis compares")
    for section in made:
        out.say(section.title, "bold")
        for sentence in section.sentences:
            word = f"[{sentence.word}] " if sentence.word else ""
            out.say(f"{'-' if out.plain else '•'} {word}{sentence.text}")
            if sentence.change:
                out.say(f"    what would change it: {sentence.change}", "dim")
            if sentence.basis:
                out.say(f"    from: {sentence.basis}", "dim")
        if section.change:
            out.say(f"  what would change these: {section.change}", "dim")
        if section.basis:
            out.say(f"  each from: {section.basis}", "dim")
        for grid in section.grids:
            if grid.folded and len(grid.rows) > _FOLDED_ROWS:
                out.say(f"  {grid.title}: a table of {len(grid.rows)} rows in report.html")
                continue
            out.say(f"  {grid.title}:")
            for first, *cells in grid.rows:
                pairs = zip(grid.header[1:], cells, strict=True)
                listed = "; ".join(
                    f"{name}: {cell.text}{f' ({cell.note})' if cell.note else ''}"
                    for name, cell in pairs
                )
                name = f"{first.text} ({first.note})" if first.note else first.text
                out.say(f"    {name}: {listed}")
        out.say()


def _fit(whole: Matrix, width: int) -> list[Matrix]:
    """Split the matrix into parts that fit the width: a column takes three characters."""
    names = max((len(name) for name, _ in whole.rows), default=0)
    room = max(4, (width - min(names, 40) - 2) // 3)
    pieces = math.ceil(len(whole.columns) / room)
    if pieces <= 1:
        return [whole]
    size = math.ceil(len(whole.columns) / pieces)
    return [
        Matrix(
            whole.columns[i : i + size],
            [(name, cells[i : i + size]) for name, cells in whole.rows],
        )
        for i in range(0, len(whole.columns), size)
    ]


def _key(index: int) -> str:
    return _KEYS[index] if index < 26 else _KEYS[index // 26 - 1] + _KEYS[index % 26]


def _print_matrix(part: Matrix, out: _Printer) -> None:
    """Print one letter per column, with a legend under the table."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    table.add_column("", no_wrap=True, max_width=40, overflow="crop" if out.plain else "ellipsis")
    for index in range(len(part.columns)):
        table.add_column(_key(index), no_wrap=True, min_width=1)
    for name, cells in part.rows:
        if all(cell is None for cell in cells):
            continue
        row = [out.text(name)]
        for cell in cells:
            if cell is None:
                row.append(Text(" "))
            else:
                status = cell.status
                symbol = status.ascii if out.plain else status.symbol
                row.append(out.text(symbol, status.colour))
        table.add_row(*row)
    out.console.print(table)
    by_transport: dict[str, list[str]] = {}
    for index, (transport, profile) in enumerate(part.columns):
        by_transport.setdefault(transport, []).append(f"{_key(index)} {profile}")
    if len({profile for _, profile in part.columns}) == 1:
        names = [f"{keys[0].split()[0]} {transport}" for transport, keys in by_transport.items()]
        out.say(f"  {', '.join(names)}; profile {part.columns[0][1]}")
        return
    for transport, profiles in by_transport.items():
        out.say(f"  {transport}: {', '.join(profiles)}")
