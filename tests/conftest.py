"""What all tests share: which of them can run on this machine, and saying so when they cannot.

The markers ``root``, ``slurm``, ``stack`` and ``spack`` name what a test needs. Where it is missing
the test is skipped, and the summary counts it. With CI=true in the environment nothing may be
skipped that a set-up could have made possible: such a test fails. Spack is on GitHub only, so
tests of it may be skipped there too.
"""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter

import pytest

from seatrial.base.errors import SeatrialError
from seatrial.stack import load_stack
from seatrial.stack.paths import check_spack
from seatrial_lab.common.programs import check_machine, check_root

NEEDS = {
    "root": check_root,
    "slurm": lambda: check_machine(accounting=True),
    "stack": load_stack,
    "spack": check_spack,
}
#: beginnings of reasons to skip that no set-up of this machine could change
UNAVOIDABLE = ("this release has no ", "spack: ")


# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they
# start: tests of what an interrupt does would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def missing(marker: str) -> str:
    """Why tests with a marker cannot run here; empty where they can."""
    try:
        NEEDS[marker]()
    except SeatrialError as error:
        return str(error)
    return ""


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test with a real Slurm gets a second try, of which the summary tells: where five to twenty
    nodes share two busy cores, a daemon is late now and then."""
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in NEEDS:
        if item.get_closest_marker(marker) and missing(marker):
            pytest.skip(f"{marker}: {missing(marker)}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if not report.skipped or hasattr(report, "wasxfail") or not in_ci():
        return
    reason = reason_of(report)
    if not reason.startswith(UNAVOIDABLE):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where set-up could have made it possible: {reason}"


def reason_of(report: pytest.TestReport) -> str:
    """The reason that a skipped test gave."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests were not run, by what was missing, and why."""
    skipped = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if not skipped:
        terminalreporter.write_line(f"skipped: none; {', '.join(NEEDS)} are all here")
        return
    terminalreporter.section("not run")
    for marker in NEEDS:
        count = sum(n for reason, n in skipped.items() if reason.startswith(f"{marker}: "))
        why = f": {missing(marker)}" if count else ""
        terminalreporter.write_line(f"marker {marker}: {count} tests skipped{why}")
    for reason, count in skipped.items():
        if reason.partition(": ")[0] not in NEEDS:
            terminalreporter.write_line(f"no marker: {count} tests skipped: {reason}")
