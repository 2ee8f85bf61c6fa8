"""Raw evidence goes when the site says; all else stays, also if the process is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history_support import BEGIN, derived, in_child, make_night, read, sealed, with_evidence
from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.history import prune
from seatrial.history.changes import findings
from seatrial.history.index import opened
from seatrial.results import manifest, signature
from seatrial.results.folder import RESULTS_FILE
from seatrial.results.pruned import PRUNED_FILE, is_evidence, read_pruned
from trial_folder import content, judge, make_key

NOW = BEGIN + timedelta(days=100)
COMMAND = ["seatrial", "history", "prune", "--remove"]
FILES = 8  # of ``with_evidence``


@pytest.fixture
def trials(tmp_path) -> Path:
    """Three trials, 100, 99 and 98 days ago."""
    for number in range(3):
        with_evidence(make_night(tmp_path / "trials", number))
    return tmp_path / "trials"


def survey(trials: Path, days: int | None = None, now=NOW) -> prune.Survey:
    with opened(trials, print) as index:
        return prune.survey(index, days, now)


def names(trials: Path, **options) -> list[str]:
    return [one.name for one in survey(trials, **options).removable]


def reasons(trials: Path) -> dict[str, str]:
    return {candidate.name: candidate.kept for candidate in survey(trials).candidates}


def remove_all(trials: Path) -> list[str]:
    return [prune.remove(one, COMMAND, "0.1.0") for one in survey(trials).removable]


def stays(folder: Path) -> dict[str, bytes | None]:
    """What no removal may change: all files but raw evidence, the record and the manifest."""
    special = (PRUNED_FILE, manifest.MANIFEST)
    return {
        name: data
        for name, data in content(folder).items()
        if data is not None and not is_evidence(name) and name not in special
    }


def test_the_site_says_how_long(trials, tmp_path, monkeypatch):
    assert names(trials) == ["lab-000", "lab-001"]  # 90 days, and never the newest
    assert names(trials, days=100) == ["lab-000"]
    assert names(trials, days=101) == []
    assert survey(trials, days=100).younger == 2
    sites = tmp_path / "sites"
    shutil.copytree(CHECKOUT / "site-configs" / "lab", sites / "lab")
    file = sites / "lab" / "site.yaml"
    file.write_text(
        file.read_text().replace("  repeats: 2\n", "  repeats: 2\n  evidence_days: 100\n")
    )
    monkeypatch.setenv("SEATRIAL_SITES", str(sites))
    assert names(trials) == ["lab-000"]
    file.write_text(file.read_text().replace("evidence_days: 100", "evidence_days: 0"))
    with pytest.raises(InputError, match=r"site.yaml:\d+: trial.evidence_days"):
        survey(trials)
    shutil.move(sites / "lab", trials.parent / "elsewhere")
    assert names(trials) == ["lab-000", "lab-001"]  # by the copy in the newest trial
    copy = trials / "lab-002" / "config" / "lab" / "site.yaml"
    copy.write_text(copy.read_text().replace("  repeats: 2\n", "  evidence_days: 100\n"))
    assert names(trials) == ["lab-000"]


@pytest.mark.parametrize(
    ("where", "text", "is_named"),
    [
        ("requirements.yaml", "# accepted after lab-000.", True),
        ("requirements.yaml", "# lab-0001, xlab-000, lab-00 and lab_000 are others", False),
        ("notes.md", "**lab-000** is the acceptance trial", True),
        ("notes.md", "_lab-000_", True),
        ("notes.md", "contract: lab-000!", True),
        ("notes.md", "is it lab-000?", True),
        ("notes.md", "lab-000..lab-007", True),
        ("notes.md", "lab-007\u2013lab-000", True),
        ("notes.md", "see \u201clab-000\u201d", True),
        ("notes.md", "lab-007&lab-000", True),
        ("notes.md", "~lab-000~", True),
        ("notes.md", "\u2192lab-000", True),
        ("notes.md", "Lab-000 is the first", True),
        ("changes.jsonl", "'source': 'lab-000, lab-007'", True),
        ("judgement", "source: see trials/lab-000/report.html", True),
    ],
)
def test_a_trial_that_a_text_names_is_kept(trials, tmp_path, monkeypatch, text, is_named, where):
    file = tmp_path / "sites" / "lab" / where
    if where == "judgement":
        file = trials / "lab-001" / "judgements" / "2" / "requirements.yaml"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("SEATRIAL_SITES", str(tmp_path / "sites"))
    file.write_text(text)
    assert reasons(trials)["lab-000"] == (f"named in {file}" if is_named else "")


def test_a_trial_that_the_requirements_of_a_site_elsewhere_name_is_kept(tmp_path):
    """No folder of site-configs has them: the copy of the newest trial counts, and no older one."""
    for number in range(4):
        folder = make_night(tmp_path, number, site="elsewhere")
        config = folder / "config" / "elsewhere"
        config.mkdir(parents=True)
        (config / "requirements.yaml").write_text(f"# by lab-00{max(0, number - 2)}")
        (folder / "reframe.out").write_text("raw")
        sealed(folder)
    kept = reasons(tmp_path)
    file = tmp_path / "lab-003" / "config" / "elsewhere" / "requirements.yaml"
    assert (kept["lab-000"], kept["lab-001"]) == ("", f"named in {file}")


def test_the_folder_of_a_trial_that_is_a_link_is_not_followed(trials, tmp_path):
    (trials / "lab-000").rename(tmp_path / "archive")
    (trials / "lab-000").symlink_to(tmp_path / "archive")
    before = content(tmp_path / "archive")
    text = f"it is a symbolic link to {tmp_path / 'archive'}, which is not followed"
    assert reasons(trials)["lab-000"] == text
    one = next(candidate for candidate in survey(trials).candidates if candidate.name == "lab-000")
    assert prune.remove(one, COMMAND, "0.1.0") == text
    assert content(tmp_path / "archive") == before


def test_the_trials_of_a_change_are_kept(tmp_path):
    for number in range(20):
        factor = 1 if number < 5 else 1.25
        values = [30 * factor * (1 + (number * 7 + at * 3) % 5 / 500) for at in range(3)]
        with_evidence(make_night(tmp_path, number, values))
    with opened(tmp_path, print) as index:
        (change,) = findings(index)
    kept = {name: why for name, why in reasons(tmp_path).items() if why}
    names = ["lab-004", "lab-005", change.found.folder.name]
    assert kept == dict.fromkeys(names, f"named in the change {change.id}")
    assert survey(tmp_path).younger == 9


def test_a_trial_with_an_odd_name_is_found_in_a_text(trials, tmp_path, monkeypatch):
    (trials / "lab-000").rename(trials / "before, after")
    (tmp_path / "sites" / "lab").mkdir(parents=True)
    monkeypatch.setenv("SEATRIAL_SITES", str(tmp_path / "sites"))
    (tmp_path / "sites" / "lab" / "notes.md").write_text("as in before, after.")
    assert reasons(trials)["before, after"].startswith("named in ")


def test_no_age_follows_from_a_clock_that_was_wrong(trials):
    with_evidence(make_night(trials, 3, started=datetime(1970, 1, 1, 0, 5, tzinfo=UTC)))
    with_evidence(make_night(trials, 4, started=datetime.now(UTC) + timedelta(days=400)))
    late = (NOW + timedelta(days=1000)).replace(microsecond=0)
    (early, *others) = survey(trials, days=0, now=late).candidates
    assert {one.name: one.kept for one in (early, *others)} == {
        "lab-000": "", "lab-001": "", "lab-002": "the newest trial of its site",
        "lab-003": "a clock is wrong: the trial began on 1970-01-01",
        "lab-004": "a clock is wrong: the trial began later than now",
    }  # fmt: skip
    assert prune.remove(early, COMMAND, "0.1.0") == early.kept != ""
    assert (early.trial.folder / "cases" / "a" / "r0" / "b.out").exists()


def test_other_reasons_to_keep(trials, tmp_path):
    for number in range(3, 6):
        with_evidence(make_night(trials, number))
    signature.sign(trials / "lab-000", make_key(tmp_path / "key"))
    (trials / "lab-001" / manifest.MANIFEST).unlink()
    for number in (2, 3):
        file = trials / f"lab-00{number}" / RESULTS_FILE
        first, *rest = file.read_text().splitlines(keepends=True)
        file.write_text("".join([first, *rest[:-1]]))
        (file.parent / manifest.MANIFEST).unlink()
    (trials / "lab-003" / "results.jsonl").write_text("damaged")
    os.chmod(trials / "lab-004", 0o777)  # noqa: PTH101
    expected = {
        "lab-000": "it is signed",
        "lab-001": "it has no SHA256SUMS: 'seatrial judge' writes one",
        "lab-002": "it has no verdict",
        "lab-005": "the newest trial of its site",
    }
    kept = reasons(trials)
    assert kept.pop("lab-004").startswith(f"{trials / 'lab-004'}: ")
    assert kept == expected
    assert survey(trials).removable == []


def test_a_removal_keeps_figures_and_verdicts_and_is_on_record(trials):
    before = {one.name: stays(one) for one in trials.glob("lab-*")}
    index = read(trials)
    assert remove_all(trials) == ["", ""]
    assert {one.name: stays(one) for one in trials.glob("lab-*")} == before
    assert read(trials) == index == derived(trials)
    for number in (0, 1):
        folder = trials / f"lab-00{number}"
        assert not [name for name in content(folder) if is_evidence(name) or name == "cases"]
        assert manifest.check(folder) == []
        record = read_pruned(folder)
        assert record is not None
        assert (record.files, record.days, record.command) == (FILES, 90, COMMAND)
        assert record.bytes == 7 * len("raw evidence of lab-000")
        assert record.user
    assert (trials / "lab-002" / "cases" / "a" / "r0" / "b.out").exists()
    again = survey(trials)
    assert ([candidate.name for candidate in again.candidates], again.pruned) == (["lab-002"], 2)


def test_a_pruned_trial_is_judged_again(trials):
    remove_all(trials)
    said: list[str] = []
    later = judge(trials / "lab-000", say=said.append)
    assert later.verdict
    assert later.verdict.number == 2
    assert not any("warning" in text for text in said)
    assert not any("note: " in text for text in later.verdict.findings)
    assert manifest.check(trials / "lab-000") == []


@pytest.mark.parametrize("harm", ["change", "remove", "add"])
def test_evidence_that_is_not_as_in_the_manifest_stays(trials, harm):
    folder = trials / "lab-000"
    if harm == "change":
        (folder / "cases" / "a" / "r0" / "b.out").write_text("other")
    elif harm == "remove":
        (folder / "reframe.out").unlink()
    else:
        (folder / "cases" / "added").touch()
    before = content(folder)
    (why,) = [text for text in remove_all(trials) if text]
    assert why.startswith("1 file not as in SHA256SUMS")
    assert content(folder) == before


def test_a_record_hides_nothing_else(trials):
    """Who removes or changes a file that is no evidence, or the record, is found."""
    remove_all(trials)
    folder = trials / "lab-000"
    for name in ("report.html", "config/lab/requirements.yaml"):
        (folder / name).rename(folder.parent / "away")
        assert [str(one) for one in manifest.check(folder)] == [f"removed: {name}"]
        (folder.parent / "away").rename(folder / name)
    file = folder / PRUNED_FILE
    whole = file.read_text()
    file.write_text(whole.replace('"days": 90', '"days": 1'))
    kinds = [str(one) for one in manifest.check(folder)]
    assert f"changed: {PRUNED_FILE}" in kinds
    assert "removed: cases/a/r0/b.out" in kinds
    file.unlink()
    assert len(manifest.check(folder)) == FILES + 1
    file.write_text(whole)
    assert manifest.check(folder) == []


def test_a_record_without_a_line_in_the_manifest_excuses_nothing(trials):
    remove_all(trials)
    other = trials / "lab-002"
    shutil.copy(trials / "lab-000" / PRUNED_FILE, other)
    shutil.rmtree(other / "cases")
    kinds = {str(one) for one in manifest.check(other)}
    assert {f"added: {PRUNED_FILE}", "removed: cases/a/r0/b.out"} <= kinds


@pytest.mark.parametrize("text", ["", "{", "{}", json.dumps({"schema": 1, "files": -1})])
def test_a_damaged_record_is_named(trials, text):
    (trials / "lab-000" / PRUNED_FILE).write_text(text)
    with pytest.raises(InputError, match=r"lab-000/pruned\.json"):
        read_pruned(trials / "lab-000")


CALLS = ("unlink", "replace", "rmdir", "mkdir", "fsync", "open")


class Killer:
    """Ends the process with SIGKILL at a call of the operating system that changes files."""

    def __init__(self, patch: pytest.MonkeyPatch, left: float, after: bool = False):
        self.count, self.left, self.after = 0, left, after
        for name in CALLS:
            patch.setattr(os, name, self.wrapped(getattr(os, name)))

    def wrapped(self, call):
        def counted(*words, **options):
            self.count += 1
            if not self.after:
                self.check()
            result = call(*words, **options)
            self.check()
            return result

        return counted

    def check(self) -> None:
        if self.count > self.left:
            os.kill(os.getpid(), signal.SIGKILL)


@settings(max_examples=20)
@given(steps=st.integers(0, 145), after=st.booleans(), again=st.integers(0, 60))
def test_killed_at_any_step_nothing_is_lost_that_stays(steps, after, again):
    with tempfile.TemporaryDirectory() as name:
        trials = Path(name)
        for number in range(2):
            with_evidence(make_night(trials, number))
        folder, other = trials / "lab-000", trials / "lab-001"
        before, untouched, index = stays(folder), content(other), read(trials)
        (one,) = survey(trials).removable
        for left in (steps, again):  # the second removal is killed, too

            def killed(left: int = left) -> None:
                with pytest.MonkeyPatch.context() as patch:
                    Killer(patch, left, after)
                    manifest.settle(folder)  # as the command does first
                    prune.remove(one, COMMAND, "0.1.0")

            status = in_child(killed)
            assert status in (0, signal.SIGKILL)
            assert stays(folder).items() >= before.items()
        manifest.settle(folder)
        assert manifest.check(folder) == []
        assert read(trials) == index == derived(trials)
        for late in survey(trials).removable:
            assert prune.remove(late, COMMAND, "0.1.0") == ""
        assert stays(folder) == before
        assert content(other) == untouched
        assert not (folder / "cases").exists()
        assert read_pruned(folder)
        assert manifest.check(folder) == []


def test_the_range_of_steps_covers_a_removal(trials, monkeypatch):
    """Else the test above would never kill at the end."""
    (one, _) = survey(trials).removable
    killer = Killer(monkeypatch, float("inf"))
    prune.remove(one, COMMAND, "0.1.0")
    assert 80 < killer.count < 145
