"""The index over trials: in step with the folders, whatever happens to it or to them."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history_support import BEGIN, LINKS, NETPIPE, derived, make_night, read, runs_of
from seatrial.base.errors import InputError
from seatrial.history import index as module
from seatrial.history import renamed
from seatrial.history.index import INDEX_FILE, opened
from seatrial.results import manifest
from seatrial.results.record import RESULTS_FILE
from trial_folder import judge, make_trial

LATENCY = ("lab", f"{NETPIPE.id}: latency_us")


@pytest.fixture
def trials(tmp_path) -> Path:
    folder = tmp_path / "trials"
    for number in range(4):
        make_night(folder, number, (30.0 + number, 31.0 + number, 29.0 + number))
    return folder


def test_a_series_has_the_figure_and_the_conditions_of_each_trial(tmp_path):
    make_night(tmp_path, 1, (40, 20, 30), {"kernel": "6.12"})
    make_night(tmp_path, 0, (10, 11), {"kernel": "6.1", "openmpi": "5.0/abcdefg"})
    points, trials, left_out = read(tmp_path)
    first, second = points[LATENCY]
    assert first[:3] == ("lab-000", 10.5, [10, 11])
    assert second[:3] == ("lab-001", 30, [40, 20, 30])
    assert first[3]["openmpi"] == "5.0/abcdefg"
    assert first[3]["kernel"] == "6.1"
    assert first[3]["nodes"] == "n1, n2"
    assert second[3]["kernel"] == "6.12"
    assert "openmpi" not in second[3]
    assert first[3]["settings of the profile"] == second[3]["settings of the profile"] != ""
    assert [one[0] for one in trials] == ["lab-000", "lab-001"]
    assert left_out == []


def test_reruns_errors_and_figures_in_doubt_are_no_points(tmp_path):
    runs = runs_of(NETPIPE, "latency_us", (30, 31, 99))
    runs[0].metrics += runs_of(NETPIPE, "dgemm_percent", (50,), "percent")[0].metrics
    runs[0].metrics[1].doubt = "its denominator is uncertain"
    runs += [run.model_copy(update={"outcome": "error"}) for run in runs_of(LINKS, "x_us", (1,))]
    make_night(tmp_path, 0, (1, 1), runs=runs, reruns=1)
    points, trials, _ = read(tmp_path)
    assert {key: [point[2] for point in own] for key, own in points.items()} == {
        LATENCY: [[30, 31]]
    }
    assert trials[0][-1] == 1


def test_locations_are_series_and_globs_select(tmp_path):
    runs = [
        *runs_of(LINKS, "bandwidth_MB_s", (100,), "MB/s", "higher", "n1>n2"),
        *runs_of(LINKS, "bandwidth_MB_s", (50,), "MB/s", "higher", "n1>n3"),
        *runs_of(NETPIPE, "latency_us", (30,)),
    ]
    make_night(tmp_path, 0, (1,), runs=runs)
    with opened(tmp_path, print) as index:
        (series,) = index.series(check=["link*"], location=["*n3"])
        assert (series.case, series.metric, series.location) == (LINKS, "bandwidth_MB_s", "n1>n3")
        assert (series.unit, series.better) == ("MB/s", "higher")
        assert [point.value for point in index.points(series)] == [50]
        assert len(index.series(profile=["jumbo", "no"])) == 2
        assert len(index.series(nodes=["2"])) == 1
        assert index.series(check=["netpip"]) == []


def test_the_index_follows_its_folders(trials):
    before = read(trials)
    shutil.rmtree(trials / "lab-001")
    make_night(trials, 7)
    after = read(trials)
    assert [one[0] for one in after[1]] == ["lab-000", "lab-002", "lab-003", "lab-007"]
    assert after == derived(trials) != before
    (trials / INDEX_FILE).unlink()
    assert read(trials) == after
    assert read(trials, rebuild=True) == after


def test_nothing_is_read_twice(trials, monkeypatch):
    read(trials)
    calls = []
    monkeypatch.setattr(module, "read_entry", lambda folder: calls.append(folder))
    expected = [f"lab-00{number}" for number in range(4)]
    assert [one[0] for one in read(trials)[1]] == expected
    assert calls == []


def test_a_later_judgement_changes_the_verdict_of_its_trial(tmp_path):
    folder = make_trial(tmp_path / "trials" / "t1")
    assert read(tmp_path / "trials")[1][0][3] == "reject"
    looser = tmp_path / "looser.yaml"
    looser.write_text((folder / "config/lab/requirements.yaml").read_text().replace("20", "40"))
    judge(folder, looser)
    points, trials, _ = read(tmp_path / "trials")
    assert trials[0][3] == "accept"
    assert [len(own) for own in points.values()] == [1]


def test_a_trial_that_was_changed_does_not_count_and_is_named(tmp_path):
    folder = make_trial(tmp_path / "t1")
    file = folder / RESULTS_FILE
    file.write_text(file.read_text().replace("30.1", "10.1"))
    points, trials, (left_out,) = read(tmp_path)
    assert (points, trials) == ({}, [])
    assert left_out.startswith(f"{file}: it was changed since the manifest was written")


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.95])
def test_a_folder_that_is_written_in_part_counts_when_it_is_whole(trials, part):
    source = trials / "lab-002" / RESULTS_FILE
    whole = source.read_bytes()
    source.write_bytes(whole[: int(len(whole) * part)])
    points, _, (left_out,) = read(trials)
    assert left_out.startswith(f"{source}:")
    assert [point[0] for point in points[LATENCY]] == ["lab-000", "lab-001", "lab-003"]
    source.write_bytes(whole)
    assert read(trials) == derived(trials)
    assert len(read(trials)[0][LATENCY]) == 4
    assert read(trials)[2] == []


def test_a_folder_without_results_and_a_database_are_no_trials(trials):
    (trials / "lab-009").mkdir()
    (trials / "notes.txt").write_text("x")
    shutil.copytree(trials / "lab-000", trials / "reframe-1000")
    shutil.copytree(trials / "lab-000", trials / ".hidden")
    assert len(read(trials)[1]) == 4
    assert read(trials)[2] == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_copy_of_a_trial_counts_once_in_any_order(trials, order):
    for name in ["a-copy", "z-copy"][::order]:
        shutil.copytree(trials / "lab-001", trials / name)
        read(trials)
    points, known, left_out = read(trials)
    assert [point[0] for point in points[LATENCY]] == [f"lab-00{n}" for n in range(4)]
    assert [one[0] for one in known] == [f"lab-00{n}" for n in range(4)]
    assert left_out == ["a-copy is a copy of lab-001", "z-copy is a copy of lab-001"]
    shutil.rmtree(trials / "lab-001")
    points, _, left_out = read(trials)
    assert "a-copy" in [point[0] for point in points[LATENCY]]
    assert left_out == ["z-copy is a copy of a-copy"]


def test_two_trials_of_one_name_both_count(trials):
    make_night(trials, 5, (50,), trial="lab-001", folder="other")
    assert [point[1] for point in read(trials)[0][LATENCY]] == [30, 31, 32, 33, 50]


def test_times_of_several_zones_are_in_order(tmp_path):
    east = timezone(timedelta(hours=9))
    make_night(tmp_path, 0, (1,), started=datetime(2026, 8, 2, 6, tzinfo=east))  # 21:00 UTC
    make_night(tmp_path, 1, (2,), started=datetime(2026, 8, 1, 22))  # without a zone: UTC
    make_night(tmp_path, 2, (3,), started=datetime(2026, 8, 1, 23, tzinfo=UTC))
    assert [point[1] for point in read(tmp_path)[0][LATENCY]] == [1, 2, 3]


def test_a_clock_that_jumps_is_named(tmp_path):
    make_night(tmp_path, 0)
    late = make_night(tmp_path, 1, started=datetime.now(UTC) + timedelta(days=2))
    file = make_night(tmp_path, 2) / RESULTS_FILE
    ended = (BEGIN + timedelta(days=2, minutes=5)).isoformat().replace("+00:00", "Z")
    text = file.read_text()
    assert ended in text
    file.write_text(text.replace(ended, "2026-07-01T00:00:00Z"))
    notes = {one[0]: one[4] for one in read(tmp_path)[1]}
    assert notes["lab-000"] == []
    assert notes[late.name] == ["a clock is wrong: the trial began later than now"]
    assert notes["lab-002"] == ["its clock jumped: the trial ended before it began"]


def test_a_renamed_metric_and_check_continue_their_series(tmp_path, monkeypatch):
    old = make_night(tmp_path, 0, (1,), runs=runs_of(LINKS, "half_bandwidth_B", (900,), "B"))
    file = old / RESULTS_FILE
    older = file.read_text().replace('"location"', '"place"').replace('"links"', '"pairs"')
    file.write_text(older.replace('"reruns"', '"confirm"').replace('"held"', '"former_field"'))
    make_night(tmp_path, 1, (1,), runs=runs_of(LINKS, "n_half_B", (901,), "B"))
    points, _, left_out = read(tmp_path)
    assert left_out == []
    (own,) = points.values()
    assert [point[1] for point in own] == [900, 901]
    assert list(points) == [("lab", f"{LINKS.id}: n_half_B")]
    said: list[str] = []
    for name in ("half_bandwidth_B", "n_half_B"):
        monkeypatch.setitem(renamed.METRICS, name, "half_B")
    assert list(read(tmp_path, said)[0]) == [("lab", f"{LINKS.id}: half_B")]
    assert any("of another version" in text for text in said)


@pytest.mark.parametrize("names", [renamed.METRICS, renamed.CHECKS, renamed.FIELDS])
def test_each_old_name_leads_to_a_name_of_today(names):
    assert not set(names) & set(names.values())


def test_an_older_trial_with_a_field_that_nothing_knows_is_named_with_its_line(tmp_path):
    file = make_night(tmp_path, 0) / RESULTS_FILE
    file.write_text(file.read_text().replace('"location"', '"where"').replace("reruns", "confirm"))
    _, _, (left_out,) = read(tmp_path)
    assert left_out.startswith(f"{file}:2: ")
    assert "where" in left_out


def test_hostile_names_are_kept_as_they_are(tmp_path):
    name = "'; DROP TABLE point; --\n\x1b[2J"
    os.mkdir(os.fsencode(tmp_path) + b"/lab-\xff")  # noqa: PTH102 - not a text
    make_night(tmp_path, 0, runs=runs_of(NETPIPE, name, (1,), location="n1\u202en2"))
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/lab-\xff"))
    shutil.copy(make_night(tmp_path, 1) / RESULTS_FILE, odd)
    damaged = Path(os.fsdecode(os.fsencode(tmp_path) + b"/lab-\xfe"))
    damaged.mkdir()
    (damaged / RESULTS_FILE).write_text("{")
    points, _, (why, left_out) = read(tmp_path)
    assert why.startswith(f"{tmp_path}/lab-?/{RESULTS_FILE}:1: ")
    assert ("lab", f"{NETPIPE.id}: {name} at n1\u202en2") in points
    assert left_out == f"{odd.name} is a copy of lab-001"


def damage_header(data: bytearray) -> bytearray:
    data[:16] = b"no database here"
    return data


def damage_pages(data: bytearray) -> bytearray:
    data[1024:] = os.urandom(len(data) - 1024)
    return data


@pytest.mark.parametrize(
    "damage",
    [
        damage_header,
        damage_pages,
        lambda data: data[: len(data) // 2],
        lambda data: data[:100],
        lambda data: bytearray(b"text\n"),
    ],
)
def test_a_damaged_index_is_built_again_and_said_so(trials, damage):
    expected = read(trials)
    file = trials / INDEX_FILE
    file.write_bytes(damage(bytearray(file.read_bytes())))
    said: list[str] = []
    assert read(trials, said) == expected
    assert [text for text in said if f"{file} is built again from the trials" in text]
    said.clear()
    assert read(trials, said) == expected
    assert said == []


def test_an_index_of_other_tables_is_built_again(trials):
    expected = read(trials)
    with sqlite3.connect(trials / INDEX_FILE) as connection:
        connection.execute("DROP TABLE point")
    connection.close()
    said: list[str] = []
    assert read(trials, said) == expected
    assert "is built again" in said[0]


def test_no_folder_and_a_link_for_the_index_are_errors(trials, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read(tmp_path / "none")
    (trials / INDEX_FILE).symlink_to(tmp_path / "victim")
    with pytest.raises(InputError, match="not a regular file"):
        read(trials)
    assert not (tmp_path / "victim").exists()


class Killer:
    """Ends the process with SIGKILL after so many steps of SQLite's machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int):
        self.left = steps
        connect = module.connect

        def killing(file):
            connection = connect(file)
            connection.set_progress_handler(self.step, 1)
            return connection

        monkeypatch.setattr(module, "connect", killing)

    def step(self) -> int:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def in_child(action) -> int:
    """The status with which a child process ends that runs ``action``."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@settings(max_examples=20, deadline=None)
@given(steps=st.integers(0, 4000), exists=st.booleans())
def test_killed_at_any_step_nothing_is_lost_or_counted_twice(steps, exists):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        trials = Path(name)
        for number in range(3):
            make_night(trials, number)
        if exists:
            read(trials)
            shutil.rmtree(trials / "lab-001")
            file = trials / "lab-002" / RESULTS_FILE
            file.write_text(file.read_text().replace("31.0", "33.5"))
            make_night(trials, 3)

        def killed() -> None:
            Killer(patch, steps)
            read(trials)

        status = in_child(killed)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
        assert read(trials) == derived(trials)
        with sqlite3.connect(trials / INDEX_FILE) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_the_range_of_steps_covers_an_update(tmp_path):
    """Else the test above would never kill at the end."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    with pytest.MonkeyPatch.context() as patch:
        connect = module.connect

        def counting(file):
            connection = connect(file)
            connection.set_progress_handler(step, 1)
            return connection

        patch.setattr(module, "connect", counting)
        for number in range(3):
            make_night(tmp_path, number)
        with opened(tmp_path, print):
            pass
    assert 1000 < count < 8000


def test_two_writers_at_once_count_nothing_twice(trials):
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            code = 1
            try:
                read(trials)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert read(trials) == derived(trials)


@pytest.mark.root
def test_root_writes_nothing_in_the_folder_of_another_user(trials):
    expected = derived(trials)
    os.chown(trials, 1000, 1000)
    names = sorted(path.name for path in trials.iterdir())
    said: list[str] = []
    assert read(trials, said) == expected
    assert said == [f"note: the index is in memory only ({trials}: user 1000 owns it)"]
    module.update(trials, said.append)
    assert sorted(path.name for path in trials.iterdir()) == names


def test_a_failure_of_the_index_is_a_warning_after_a_trial(trials):
    (trials / INDEX_FILE).mkdir()
    said: list[str] = []
    module.update(trials, said.append)
    (text,) = said
    assert text.startswith("warning: the history was not updated")
    assert manifest.exposure(trials) is None
