"""What all tests share: which of them run, where, and what the summary says of the others.

The markers ``root``, ``slurm``, ``stack``, ``spack``, ``simgrid``, ``prometheus`` and ``parquet``
name what a test needs. Where it is missing the test is skipped, and the summary counts it. With
CI=true in the environment nothing may be skipped that a set-up could have made possible: such a
test fails. Spack is on GitHub only, so tests of it may be skipped there too.

Tests marked ``nightly`` run with ``--nightly`` or ``--long`` only. ``--nightly`` also makes random
campaigns longer (`campaigns`). ``--long`` does the same, but runs only tests marked so, properties,
and tests of a campaign's file. The summary counts what is left out with the marker's reason.

Under pytest-xdist the tests that share a lab or Spack stay together (`schedule`).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest
import typer.main
from hypothesis import HealthCheck, settings

import schedule
from campaigns import NIGHTLY, rounds
from labs import clear_dead_sessions, plain, running
from seatrial.base.errors import LabError, SeatrialError
from seatrial.base.paths import CHECKOUT
from seatrial.predict.simulation import require
from seatrial.stack import load_stack
from seatrial.stack.paths import check_spack
from seatrial_lab.common.programs import check_machine, check_root
from seatrial_lab.native.engine import Lab


def check_prometheus() -> None:
    for program in ("prometheus", "promtool"):
        if not shutil.which(program):
            raise LabError(f"there is no program {program}: install the Debian package prometheus")


def check_parquet() -> None:
    if not importlib.util.find_spec("pyarrow"):
        raise LabError("pyarrow is not installed: pip install -r requirements-parquet.lock")


NEEDS = {
    "root": check_root,
    "slurm": lambda: check_machine(accounting=True),
    "stack": load_stack,
    "spack": check_spack,
    "simgrid": require,
    "prometheus": check_prometheus,
    "parquet": check_parquet,
}
#: beginnings of reasons to skip that no set-up of this machine could change
UNAVOIDABLE = ("this release has no ", "spack: ")
TESTS = CHECKOUT / "tests"
NIGHTLY_SCRIPT = str(CHECKOUT / "ci" / "nightly")
#: reason -> number of tests that are left to ci/nightly
LEFT = pytest.StashKey[Counter]()


# Typer makes the commands from their functions each time an application is called: half of the
# processor time of the tests that call it. Once is enough for a process. typer.testing, which test
# files import later, takes this one.
typer.main.get_command = functools.cache(typer.main.get_command)

# A shell that starts the tests in the background has them ignore Ctrl-C, and so all that they
# start: tests of what an interrupt does would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM is as Ctrl-C: fixtures end their labs.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "run the tests that are left to ci/nightly as well, and long random campaigns"
    parser.addoption("--nightly", action="store_true", help=words)
    words = "run only the tests that --nightly adds or may make longer"
    parser.addoption("--long", action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT] = Counter()
    if config.option.nightly or config.option.long:
        os.environ[NIGHTLY] = "1"
    # Time per example says nothing on a machine that also runs a lab: no deadlines.
    settings.register_profile(
        "seatrial", deadline=None, suppress_health_check=[HealthCheck.too_slow],
        max_examples=rounds(25, 1000),
    )  # fmt: skip
    settings.load_profile("seatrial")
    if hasattr(config, "workerinput") and config.args == config.getini("testpaths"):
        config.args = schedule.collected_by(
            TESTS, int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ctrl-C ends the workers before they can end their labs."""
    if not hasattr(config, "workerinput") and os.geteuid() == 0:
        clear_dead_sessions()


@pytest.fixture
def hangup_ends() -> Iterator[None]:
    """SIGHUP ends programs, also where the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def plain_lab() -> Iterator[Lab]:
    """A lab with Slurm's accounting, of which the tests of several folders have need."""
    with running(plain()) as lab:
        yield lab


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
    """Take out what is left to ci/nightly; put first what takes longest."""
    left = []
    if config.option.long:
        left = [item for item in items if not is_longer_at_night(item)]
    elif not config.option.nightly:
        left = [item for item in items if item.get_closest_marker("nightly")]
        for item in left:
            mark = item.get_closest_marker("nightly")
            assert mark is not None
            config.stash[LEFT][mark.kwargs["reason"]] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        others = set(left)
        items[:] = [item for item in items if item not in others]
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        if os.environ.get(NIGHTLY) and is_longer_at_night(item):
            item.add_marker(pytest.mark.timeout(14400))  # 1800 s were too few on a busy machine
        elif item.get_closest_marker("spack"):
            item.add_marker(pytest.mark.timeout(3600))  # the first one has Spack itself set up
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (schedule.turn(item.nodeid), item.path))


def is_longer_at_night(item: pytest.Item) -> bool:
    """Whether ``--nightly`` adds a test, or may make it longer: a property, a campaign's file."""
    function, module = getattr(item, "obj", None), getattr(item, "module", None)
    return (
        item.get_closest_marker("nightly") is not None
        or hasattr(function, "hypothesis")
        or getattr(module, "rounds", None) is rounds
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    config.option.loadscopereorder = False
    return schedule.ByGroup(config, log)


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


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name a test that fails at once: the summary comes at the end, at night after an hour."""
    if not report.failed or hasattr(report, "wasxfail"):
        return None
    category = "failed" if report.when == "call" else "error"
    return category, f"\n{category.upper()} {report.nodeid}\n", category.upper()


def reason_of(report: pytest.TestReport) -> str:
    """The reason that a skipped test gave."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["left"] = dict(session.config.stash[LEFT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error: object) -> None:
    """Each worker of pytest-xdist collects all tests, so each has the same counts."""
    node.config.stash[LEFT].update(
        {} if node.config.stash[LEFT] else getattr(node, "workeroutput", {}).get("left", {})
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests were not run, by what was missing, and why."""
    write = terminalreporter.write_line
    skipped = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("not run")
    else:
        write("skipped: none")
    for marker in NEEDS if skipped else ():
        count = sum(n for reason, n in skipped.items() if reason.startswith(f"{marker}: "))
        why = f": {missing(marker)}" if count else ""
        write(f"marker {marker}: {count} tests skipped{why}")
    for reason, count in skipped.items():
        if reason.partition(": ")[0] not in NEEDS:
            write(f"no marker: {count} tests skipped: {reason}")
    left = terminalreporter.config.stash[LEFT]
    if left:
        terminalreporter.section("left to ci/nightly, as it takes long")
        for reason, count in left.items():
            write(f"{count} {'test' if count == 1 else 'tests'}: {reason}")
        write(subprocess.check_output([NIGHTLY_SCRIPT, "--list"], text=True).rstrip())
