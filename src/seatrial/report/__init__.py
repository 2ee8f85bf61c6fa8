"""Reports of a trial: report.html, junit.xml for CI servers, and a summary for the terminal.

The only input is `Results`. A report judges nothing and omits no judgement. The text of records
is untrusted (a node may be called ``<script>``), so every format escapes it in its own way.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.results.record import Results

REPORT_FILE = "report.html"
JUNIT_FILE = "junit.xml"


def write_all(results: Results) -> tuple[Path, Path]:
    """Write report.html and junit.xml beside results.jsonl; return their paths in that order."""
    # Imported here because most commands import this package and write no report.
    from seatrial.report.html import write_html
    from seatrial.report.junit import write_junit

    page, junit = results.folder / REPORT_FILE, results.folder / JUNIT_FILE
    write_html(results, page)
    write_junit(results, junit)
    return page, junit
