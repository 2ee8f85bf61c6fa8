"""ci/nightly: what it runs, keeps and sums up. The parts are stand-ins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.base.paths import CHECKOUT
from trial_support import until

SCRIPT = str(CHECKOUT / "ci" / "nightly")


class Nightly:
    """The script in a checkout of its own, whose parts give what ``gives`` says."""

    def __init__(self, module: ModuleType, checkout: Path) -> None:
        self.module = module
        self.checkout = checkout
        self.gives = {"first": Counter(passed=3, skipped=1), "second": Counter(passed=2)}
        self.ran: list[str] = []

        def part(name: str):
            def run(log: Path) -> Counter[str]:
                self.ran.append(name)
                return self.gives[name]

            return module.Part(f"why {name}", run)

        module.PARTS = {name: part(name) for name in self.gives}
        module.SEATRIAL = ["true"]

    def __call__(self, *words: str) -> int:
        self.ran.clear()
        sys.argv = ["nightly", *words]
        return self.module.main()

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", self.checkout, *words], check=True, capture_output=True)

    def commit(self, text: str) -> None:
        (self.checkout / "file").write_text(text)
        self.git("add", "file")
        name = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        self.git(*name, "commit", "-m", text)


def loaded(folder: Path) -> ModuleType:
    """The script, for the checkout in a folder."""
    loader = SourceFileLoader("nightly", SCRIPT)
    spec = spec_from_loader("nightly", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    module.CHECKOUT = folder / "checkout"
    module.LOGS = folder / "logs"
    module.RESULTS = module.LOGS / "results.json"
    return module


@pytest.fixture
def nightly(tmp_path, monkeypatch) -> Nightly:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "argv", [])
    (tmp_path / "checkout").mkdir()
    module = loaded(tmp_path)
    made = Nightly(module, module.CHECKOUT)
    made.git("init")
    made.commit("one")
    return made


def test_it_sums_up_all_parts(nightly, capsys):
    assert nightly() == 0
    assert nightly.ran == ["first", "second"]
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed, 1 skipped"


def test_continue_runs_what_failed_and_counts_what_passed(nightly, capsys):
    nightly.gives["second"] = Counter(passed=1, failed=1)
    assert nightly() == 1
    nightly.gives["second"] = Counter(passed=2)
    assert nightly("--continue") == 0
    assert nightly.ran == ["second"]
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed, 1 skipped"
    assert nightly("--continue") == 0
    assert nightly.ran == []


def test_continue_runs_what_has_not_run(nightly):
    assert nightly("first") == 0
    assert nightly("--continue") == 0
    assert nightly.ran == ["second"]


def test_without_continue_all_runs_again(nightly):
    nightly()
    nightly()
    assert nightly.ran == ["first", "second"]


def test_another_commit_begins_from_the_start(nightly):
    nightly()
    nightly.commit("two")
    nightly("--continue")
    assert nightly.ran == ["first", "second"]


def test_a_checkout_with_changes_can_not_be_continued(nightly, capsys):
    (nightly.checkout / "file").write_text("changed")
    assert nightly() == 0
    assert capsys.readouterr().out.count("with changes") == 2
    with pytest.raises(SystemExit):
        nightly("--continue")
    assert "needs a checkout without changes" in capsys.readouterr().err
    nightly.git("checkout", "file")
    nightly("--continue")
    assert nightly.ran == ["first", "second"]


def test_a_part_in_which_the_checkout_changes_does_not_count(nightly):
    def run(log: Path) -> Counter[str]:
        (nightly.checkout / "new").write_text("")
        return Counter(passed=1)

    nightly.module.PARTS["second"] = nightly.module.Part("", run)
    nightly()
    (nightly.checkout / "new").unlink()
    nightly("--continue")
    assert nightly.ran == []
    assert nightly.module.results()["second"].commit is None
    assert nightly.module.results()["first"].commit is not None


def test_a_part_that_was_interrupted_has_not_passed(nightly):
    def run(log: Path) -> Counter[str]:
        raise KeyboardInterrupt

    whole = nightly.module.PARTS["first"]
    nightly()
    nightly.module.PARTS["first"] = nightly.module.Part("", run)
    with pytest.raises(KeyboardInterrupt):
        nightly("first")
    nightly.module.PARTS["first"] = whole
    nightly("--continue")
    assert nightly.ran == ["first"]


def test_a_part_that_skipped_all_or_was_another_users_runs_again(nightly, monkeypatch):
    nightly.gives["second"] = Counter(skipped=7)
    assert nightly() == 0
    nightly("--continue")
    assert nightly.ran == ["second"]
    monkeypatch.setattr(nightly.module.os, "getuid", lambda: 12345)
    nightly("--continue")
    assert nightly.ran == ["first", "second"]


def test_without_git_all_runs_and_no_commit_is_named(nightly, capsys):
    (nightly.checkout / ".git").rename(nightly.checkout.with_name("git"))
    assert nightly() == 0
    shown = capsys.readouterr().out
    assert "the commit is not known: fatal: not a git repository" in shown
    assert shown.count("with changes") == 2


def test_two_at_once_are_refused(nightly):
    def run(log: Path) -> Counter[str]:
        with pytest.raises(SystemExit, match="another ci/nightly runs in"):
            nightly.module.main()
        return Counter(passed=1)

    nightly.module.PARTS["first"] = nightly.module.Part("", run)
    assert nightly() == 0


def test_options_of_the_users_pytest_do_not_count(nightly, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    code, said = nightly.module.command(tmp_path / "log", "env")
    assert code == 0
    assert "PATH=" in said
    assert "PYTEST_ADDOPTS" not in said


def test_what_a_command_says_is_seen_before_its_line_ends(nightly, tmp_path):
    log, seen = tmp_path / "log", tmp_path / "seen"
    begun = f"printf 'caf\\303'; for _ in $(seq 600); do [ -e {seen} ] && break; sleep 0.1; done"
    words = ["sh", "-c", f"{begun}; printf '\\251'; test -e {seen}"]
    with ThreadPoolExecutor() as thread:
        done = thread.submit(nightly.module.command, log, *words)
        until(lambda: log.exists() and log.read_text().endswith("caf"), 5, "the first letters")
        seen.touch()
        assert done.result() == (0, "café")


SLOW = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_nightly import loaded

module = loaded(Path({folder!r}))

def run(log):
    with module.load(2):
        module.command(log, sys.executable, "-c", {command!r})

module.PARTS = {{"slow": module.Part("", run)}}
module.SEATRIAL = ["true"]
sys.argv = ["nightly"]
module.start()
"""


COMMAND = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(os.write(1, b"ended\\n") - 6))
print("begun", flush=True)
time.sleep(600)
"""


def test_a_sigterm_ends_what_a_part_started(nightly, tmp_path):
    slow = SLOW.format(tests=str(Path(__file__).parent), folder=str(tmp_path), command=COMMAND)
    process = subprocess.Popen(
        [sys.executable, "-c", slow], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout
    assert any(line == "begun\n" for line in process.stdout)
    process.terminate()
    assert "ended\n" in process.stdout
    assert process.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):  # nothing is left in its group
        os.killpg(process.pid, 0)


def test_a_part_that_breaks_or_runs_nothing_has_failed(nightly, capsys):
    def run(log: Path) -> Counter[str]:
        raise OSError("the disk is full")

    nightly.module.PARTS["first"] = nightly.module.Part("", run)
    nightly.gives["second"] = Counter()
    assert nightly() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 2 failed, 0 skipped"


def test_a_damaged_file_of_results_is_named_before_anything_runs(nightly):
    nightly.module.LOGS.mkdir()
    nightly.module.RESULTS.write_text("{")
    with pytest.raises(SystemExit, match=r"results\.json: not written by this script"):
        nightly()
    assert nightly.ran == []
