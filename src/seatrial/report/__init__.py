"""Report: from the records of a trial to something that a person, or a CI server, reads.

``report.html`` is the whole story in one file, ``junit.xml`` is for CI, and the
terminal summary is for whoever started the trial. Input is `Results` alone: the
report judges nothing, and leaves out no judgement. What a record says is hostile
(a node may be called ``<script>``), so every format escapes it in its own way.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.results.record import Results

REPORT_FILE = "report.html"
JUNIT_FILE = "junit.xml"


def write_all(results: Results) -> tuple[Path, Path]:
    """Write report.html and junit.xml beside results.jsonl; return their paths in that order."""
    # Imported late: the command line imports this package for commands that write no report.
    from seatrial.report.html import write_html
    from seatrial.report.junit import write_junit

    page, junit = results.folder / REPORT_FILE, results.folder / JUNIT_FILE
    write_html(results, page)
    write_junit(results, junit)
    return page, junit
