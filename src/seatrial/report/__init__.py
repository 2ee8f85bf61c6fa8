"""Reports of a trial: report.html, junit.xml for CI servers, and a summary for the terminal.

The only input is `Results`. A report judges nothing and omits no judgement. The text of records
is untrusted (a node may be called ``<script>``), so every format escapes it in its own way.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.results.folder import Results

REPORT_FILE = "report.html"
JUNIT_FILE = "junit.xml"
HISTORY_FILE = "history.html"  # of all trials, beside their folders


def write_all(results: Results, folder: Path | None = None) -> tuple[Path, Path]:
    """Write report.html and junit.xml; return their paths in that order.

    Without ``folder``: beside results.jsonl, or into the folder of a later judgement.
    """
    # Imported here because most commands import this package and write no report.
    from seatrial.report.html import write_html
    from seatrial.report.junit import write_junit

    folder = folder or results.output
    page, junit = folder / REPORT_FILE, folder / JUNIT_FILE
    write_html(results, page)
    write_junit(results, junit)
    return page, junit
