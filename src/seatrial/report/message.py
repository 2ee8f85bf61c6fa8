"""What changed, in at most ten lines of plain text, for a mail or a chat.

It decides nothing: ``seatrial.history.notify`` says what is new.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.history.changes import Finding
from seatrial.history.notify import Joined, News, verdict_of
from seatrial.report import changes
from seatrial.report.text import line, quantity
from seatrial.results.wording import number, plural

LINES = 10
WIDTH = 300  # characters of a line; the rest is cut
NOT_COUNTED = 2  # folders that are named


def message(news: News, where: str) -> str:
    """The text about a site; ``where`` is the last line: where the reader finds more."""
    findings = sorted(
        news.findings,
        key=lambda finding: (
            not (finding.worse or finding.better),
            min([0.0, *(c.gain for c in finding.worse)]),
        ),
    )
    not_counted = not_counted_rows(news.not_counted)
    not_counted += first_of(news.notes, "note: ", "note")
    room = LINES - 2 - len(not_counted)
    rows = [sentence(finding, news.joined.get(finding.id)) for finding in findings]
    if len(rows) > room:
        rows = [*rows[: room - 1], f"and {plural(len(rows) - room + 1, 'more change')}"]
    return "".join(f"{_cut(line(row))}\n" for row in (headline(news), *not_counted, *rows, where))


def not_counted_rows(sentences: Sequence[str]) -> list[str]:
    """A line for each of the newest folders by name that do not count, and one for the others."""
    return first_of(sentences, "not counted: ", "folder")


def first_of(sentences: Sequence[str], prefix: str, what: str) -> list[str]:
    rows = [f"{prefix}{one}" for one in reversed(sentences)]
    if (more := len(rows) - NOT_COUNTED) > 0:
        text = f"{plural(more, f'more {what}')}, which 'seatrial history' names"
        rows[NOT_COUNTED:] = [f"{prefix}{text}"]
    return rows


def headline(news: News) -> str:
    """Such as ``harbour: 2 changes, verdict reject (before: accept), trial harbour-20261120``."""
    parts = []
    if news.findings:
        parts.append(plural(len(news.findings), "change"))
    if news.not_counted:
        parts.append(f"{plural(len(news.not_counted), 'folder')} not counted")
    if news.notes:
        parts.append(plural(len(news.notes), "note"))
    verdict = verdict_of(news.trial)
    before = news.verdict_before
    parts.append(f"verdict {verdict}" + (f" (before: {before})" if before != verdict else ""))
    return f"{news.trial.site}: {', '.join(parts)}, trial {news.trial.folder.name}"


def sentence(finding: Finding, joined: Joined | None = None) -> str:
    """A finding on one line: where and by how much, the largest change, since when, what else.

    ``joined``: it was sent before, and has become worse since.
    """
    text = f"{changes.subject(finding)}: {changes.effect(finding)}"
    if finding.changes:
        largest = changes.largest(finding.worse or finding.better or finding.changes)
        before, after = quantity(largest.before.value, largest.series.unit), changes.after(largest)
        name = "" if finding.scope.kind == "series" else f"{largest.series.name} "
        text += f" ({name}{before} -> {after})"
    text += f", since {'about ' if finding.drift else ''}{finding.first.started:%Y-%m-%d}"
    if joined:
        sent = f"as worse by {number(joined.worst, 2)} %" if joined.worst else "as not worse"
        text += f"; sent before {sent}"
        if joined.changes:
            text += f", {len(joined.changes)} worse series joined"
    versions = changes.versions(finding) if finding.conditions else ""
    return "; ".join(filter(None, [text, versions, changes.waited(finding)]))


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
