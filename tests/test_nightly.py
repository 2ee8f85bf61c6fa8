"""ci/nightly: what it runs, keeps and sums up. The parts are stand-ins."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.base.paths import CHECKOUT

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


@pytest.fixture
def nightly(tmp_path, monkeypatch) -> Nightly:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "argv", [])
    loader = SourceFileLoader("nightly", SCRIPT)
    spec = spec_from_loader("nightly", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    module.CHECKOUT = tmp_path / "checkout"
    module.CHECKOUT.mkdir()
    module.LOGS = tmp_path / "logs"
    module.RESULTS = module.LOGS / "results.json"
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
    assert "commit with changes" in capsys.readouterr().out
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
