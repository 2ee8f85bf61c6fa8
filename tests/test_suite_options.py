"""Which tests the option --long selects, and what the suite does when it is ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import schedule
from seatrial.base.paths import CHECKOUT
from trial_support import until

PYTEST = [sys.executable, "-P", "-m", "pytest"]
OURS = [str(CHECKOUT / "seatrial"), "test", "--no-provision", "--"]
PLAIN = "test_no_ranks_is_an_error"
PROPERTY = "test_grid_uses_every_rank"
CAMPAIGN = "test_killed_at_random_moments"
MARKED = "test_a_node_shows_its_own_processors"


def test_long_selects_what_takes_longer_at_night() -> None:
    files = (
        "tests/benchmarks/test_hpl_input.py",
        "tests/nic/test_real_interfaces.py",
        "tests/lab_virtual/test_several_processors.py",
    )
    command = [*PYTEST, "--collect-only", "-q", "--long"]
    done = subprocess.run(
        [*command, *files], cwd=CHECKOUT, capture_output=True, text=True, timeout=900
    )
    names = set(re.findall(r"::(\w+)(?:\[.*)?$", done.stdout, re.MULTILINE))
    assert names & {PLAIN, PROPERTY, CAMPAIGN, MARKED} == {PROPERTY, CAMPAIGN, MARKED}


def test_each_worker_collects_all_files_and_none_starts_where_another_does() -> None:
    tests = CHECKOUT / "tests"
    orders = [schedule.collected_by(tests, worker, 4) for worker in range(4)]
    for order in orders:
        files = [file for place in order for file in Path(place).rglob("test_*.py")]
        files += [Path(place) for place in order if place.endswith(".py")]
        assert sorted(files) == sorted(tests.rglob("test_*.py"))
    assert len({order[0] for order in orders}) == 4


ENDLESS = """
import time
import pytest

@pytest.fixture
def lab(tmp_path):
    print("up", file=open({file!r}, "a"))
    yield
    print("down", file=open({file!r}, "a"))

def test_endless(lab):
    print("sleeps", file=open({file!r}, "a"))
    time.sleep(600)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    ("start", "send"), [(PYTEST, os.killpg), (OURS, os.kill)], ids=["pytest", "seatrial"]
)
def test_sigterm_ends_what_fixtures_started(
    tmp_path: Path, start: list[str], send: Callable[[int, int], None], workers: str
) -> None:
    """Sent to the group, as a terminal or a CI system does; and to the command alone."""
    file = tmp_path / "lab"
    (tmp_path / "test_endless.py").write_text(ENDLESS.format(file=str(file)))
    command = [*start, "-p", "conftest", "-q", "-n", workers, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as suite:  # fmt: skip
        try:
            until(lambda: file.exists() and "sleeps" in file.read_text(), 120, "the test")
            send(suite.pid, signal.SIGTERM)
            said, _ = suite.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, with its workers
                os.killpg(suite.pid, signal.SIGKILL)
    assert file.read_text().split() == ["up", "sleeps", "down"], said
    assert suite.returncode == 2, said


def test_processes_of_the_tests_save_what_python_compiles(tmp_path: Path) -> None:
    """Also where the environment forbids it, as in a container."""
    text = "import sys\n\ndef test_saves():\n    assert not sys.dont_write_bytecode\n"
    (tmp_path / "test_saves.py").write_text(text)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*OURS, "-q", "-n", "0", str(tmp_path)], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_failed_test_is_named_at_once(tmp_path: Path) -> None:
    text = "def test_a():\n    assert False\n\ndef test_b(missing): ...\n\n"
    (tmp_path / "test_fails.py").write_text(text + "def test_c(): ...\n")
    done = subprocess.run(
        [*PYTEST, "-p", "conftest", "-q", "-n", "1", str(tmp_path)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    begin, _, _ = done.stdout.partition("100%")
    named = re.findall(r"^(?:FAILED|ERROR) .*::(\w+)$|^(\.)", begin, re.M)
    assert ["".join(words) for words in named] == ["test_a", "test_b", "."], done.stdout
    assert "1 failed, 1 passed, 1 error" in done.stdout


def test_a_campaign_names_rounds_in_its_own_file() -> None:
    """Otherwise --long does not find its tests."""
    tests = CHECKOUT / "tests"
    files = {str(file.relative_to(tests)): file.read_text() for file in tests.rglob("*.py")}
    lines = {name: re.findall(r"^(?:from|import) campaigns.*", text, re.M)
             for name, text in files.items()}  # fmt: skip
    others = {
        name for name, own in lines.items() if own and own != ["from campaigns import rounds"]
    }
    assert others == {"conftest.py"}
    names = {Path(name).name for name, own in lines.items() if own}
    assert all(name.startswith("test_") for name in names - {"conftest.py"}), names
