"""Frozen predictions: what is in the repository, and that they are not made after a measurement."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median

import pytest

from seatrial.base.paths import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "ci/bench"))
import prediction_frozen as frozen

FILES = sorted(path for path in frozen.FOLDER.glob("*.json") if path.suffixes == [".json"])


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_what_was_measured_is_compared_with_what_was_frozen(file):
    assert f"{frozen.sum_of(file)}  {file.name}" in frozen.SUMS.read_text().splitlines()
    kept = json.loads(file.read_text())
    measured = json.loads(file.with_suffix(".measured.json").read_text())
    assert measured["predictions_sha256"] == frozen.sum_of(file)
    assert kept["frozen"] < measured["measured"]
    for case, other in zip(kept["cases"], measured["cases"], strict=True):
        assert case.items() <= other.items()
        assert len(other["measured_s"]) >= 1


@pytest.mark.simgrid
@pytest.mark.stack  # which has the archive with NPB
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_frozen_prediction_follows_from_the_frozen_network(file):
    kept = json.loads(file.read_text())
    cases = [(tuple(one["program"]), one["nodes"]) for one in kept["cases"]]
    chosen = [case for case in cases if case[1] == 8 and case[0][0] in ("halo", "sweep")]
    assert chosen
    made = frozen.predicted(frozen.network_of(kept["network"]), chosen, 600)
    for case, time_s in zip(chosen, made, strict=True):
        assert time_s == pytest.approx(kept["cases"][cases.index(case)]["predicted_s"], rel=0.02)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a prediction that is frozen and not yet committed; git."""

    def git(*words):
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *own, *words], check=True, capture_output=True)

    folder = tmp_path / "docs/dev/predictions"
    folder.mkdir(parents=True)
    (tmp_path / "model.py").write_text("the model")
    git("init", "-q")
    git("add", "model.py")
    git("commit", "-q", "-m", "the model")
    monkeypatch.setattr(frozen, "CHECKOUT", tmp_path)
    monkeypatch.setattr(frozen, "FOLDER", folder)
    monkeypatch.setattr(frozen, "SUMS", folder / "SHA256SUMS")
    monkeypatch.setattr(frozen, "MODEL", ("model.py",))
    file = folder / "a.json"
    file.write_text(json.dumps({"model": frozen.model(), "cases": []}))
    frozen.SUMS.write_text(f"{frozen.sum_of(file)}  a.json\n")
    return git


def test_only_a_committed_prediction_is_measured(repository):
    with pytest.raises(SystemExit, match="is not committed: a prediction precedes"):
        frozen.frozen("a")
    repository("add", ".")
    repository("commit", "-q", "-m", "frozen")
    assert frozen.frozen("a")[0] == frozen.FOLDER / "a.json"


def test_a_changed_prediction_or_model_is_refused(repository):
    repository("add", ".")
    repository("commit", "-q", "-m", "frozen")
    model = frozen.CHECKOUT / "model.py"
    model.write_text("a better model")
    with pytest.raises(SystemExit, match=r"was made with another model\.py"):
        frozen.measure(argparse.Namespace(name="a"))
    model.write_text("the model")
    file = frozen.FOLDER / "a.json"
    text = file.read_text()
    file.write_text(text + " ")
    with pytest.raises(SystemExit, match=r"is not the file of which .*SHA256SUMS has the sum"):
        frozen.frozen("a")
    frozen.SUMS.write_text(f"{frozen.sum_of(file)}  a.json\n")
    repository("commit", "-q", "-a", "-m", "changed, with its sum")
    with pytest.raises(SystemExit, match="was changed by a later commit"):
        frozen.frozen("a")


def test_neither_is_done_twice(repository):
    repository("add", ".")
    repository("commit", "-q", "-m", "frozen")
    with pytest.raises(SystemExit, match="a frozen prediction is not made again"):
        frozen.freeze(argparse.Namespace(name="a"))
    (frozen.FOLDER / "a.measured.json").write_text("{}")
    with pytest.raises(SystemExit, match="what was measured stays"):
        frozen.measure(argparse.Namespace(name="a"))


def test_every_figure_counts_also_of_a_measurement_that_was_ended(tmp_path):
    case, other = (("halo", "1", "2"), 8), (("halo", "1", "2"), 64)
    notes = frozen.Notes(tmp_path / "notes", "sum")
    notes.add("slow", case, 1.0)
    notes.add("failed", case, 0.0, "crashed")
    frozen.Notes(tmp_path / "notes", "of another prediction").add("slow", case, 9.0)
    notes = frozen.Notes(tmp_path / "notes", "sum")
    notes.add("slow", case, 3.0)
    assert notes.times("slow", case) == [1.0, 3.0]
    assert median(notes.times("slow", case)) == 2.0
    assert notes.times("slow", other) == []
    assert len(notes.times("failed", case)) == 1
