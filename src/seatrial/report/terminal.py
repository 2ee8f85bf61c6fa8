"""The summary at the end of ``seatrial run``, for a terminal of 80 to 200 columns or a pipe."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.report import REPORT_FILE
from seatrial.report.summary import Matrix, gather, headline, matrix, slowest
from seatrial.report.text import STATUSES, check_name, clean, duration
from seatrial.results.record import Results

_COLOURS = {"accept": "bold green", "reject": "bold red", "incomplete": "bold yellow"}
_MOST_FINDINGS = 12
_KEYS = "abcdefghijklmnopqrstuvwxyz"


def print_summary(results: Results, console: Console) -> None:
    """Print verdict, matrix, findings, slowest case and where the report is.

    Plain ASCII without colour where the console is not a terminal or cannot encode more.
    """
    plain = not console.is_terminal or "utf" not in console.encoding.lower()
    views = gather(results)
    head = headline(results, views)

    def say(*parts: tuple[str, str] | str) -> None:
        # Text, never markup: a record may hold "[red]" or an escape sequence.
        line = Text()
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            text = clean(text)
            line.append(text.encode("ascii", "replace").decode() if plain else text, style)
        console.print(line, highlight=False, soft_wrap=plain)

    say((head.word, _COLOURS[head.key]), f"  {results.trial.site}  {results.trial.trial}")
    say(head.why)
    if results.verdict and results.verdict.findings:
        say("")
        for finding in results.verdict.findings[:_MOST_FINDINGS]:
            say(("- " if plain else "• "), finding)
        more = len(results.verdict.findings) - _MOST_FINDINGS
        if more > 0:
            say(f"  and {more} more, in the report")
    if views:
        say("")
        for part in _fit(matrix(views), console.width):
            _print_matrix(part, console, plain, say)
        used = {view.status.key for view in views.values()}
        legend = [
            f"{status.ascii if plain else status.symbol} {status.word}"
            for status in STATUSES.values()
            if status.key in used
        ]
        say("  ".join([*legend, "blank: not planned"]))
    say("")
    slow = slowest(views)
    if slow:
        say(
            f"took {duration(head.took)}; slowest: {check_name(slow.case)} {slow.case.transport} "
            f"{slow.case.profile}, {duration(slow.seconds)}"
        )
    else:
        say(f"took {duration(head.took)}")
    # A path must be whole to be of use, so it is not wrapped; Rich would also cut it at the width.
    path = clean(str(results.folder / REPORT_FILE))
    console.print(Text(f"report: {path}"), soft_wrap=True, highlight=False)


def _fit(whole: Matrix, width: int) -> list[Matrix]:
    """Cut the matrix into pieces that fit: two characters and a space per column."""
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


def _print_matrix(part: Matrix, console: Console, plain: bool, say) -> None:  # type: ignore[no-untyped-def]
    """One letter per column, explained under the table: names would not fit side by side."""

    def text(value: str, style: str = "") -> Text:
        value = clean(value).replace("·", "-") if plain else clean(value)
        return Text(value.encode("ascii", "replace").decode() if plain else value, style)

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=True)
    table.add_column("", no_wrap=True, max_width=40, overflow="ellipsis" if not plain else "crop")
    for index in range(len(part.columns)):
        table.add_column(_key(index), no_wrap=True, min_width=1, justify="left")
    for name, cells in part.rows:
        if all(cell is None for cell in cells):
            continue
        row = []
        for cell in cells:
            status = cell.status if cell else None
            symbol = (status.ascii if plain else status.symbol) if status else " "
            row.append(text(symbol, status.colour if status else ""))
        table.add_row(text(name), *row)
    console.print(table)
    by_transport: dict[str, list[str]] = {}
    for index, (transport, profile) in enumerate(part.columns):
        by_transport.setdefault(transport, []).append(f"{_key(index)} {profile}")
    for transport, profiles in by_transport.items():
        say(f"  {transport}: {', '.join(profiles)}")
