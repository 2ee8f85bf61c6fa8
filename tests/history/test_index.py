"""The index over trials: in step with the folders, whatever happens to it or to them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sqlite3
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history_support import (
    BEGIN,
    LINKS,
    NETPIPE,
    content,
    derived,
    in_child,
    make_night,
    read,
    runs_of,
    sealed,
)
from seatrial.base.errors import InputError
from seatrial.history import index as module
from seatrial.history import renamed, store
from seatrial.history.conditions import is_setting, of_nodes_text, value_on, values_of
from seatrial.history.entry import fingerprint
from seatrial.history.index import INDEX_FILE, opened
from seatrial.results import manifest
from seatrial.results.folder import RESULTS_FILE
from seatrial.results.record import Activity, Case, ProfileUse, TransportUse
from trial_folder import judge, make_trial

LATENCY = ("lab", f"{NETPIPE.id}: latency_us")


@pytest.fixture
def trials(tmp_path) -> Path:
    folder = tmp_path / "trials"
    for number in range(4):
        make_night(folder, number, (30.0 + number, 31.0 + number, 29.0 + number))
    return folder


def test_a_driver_that_nodes_differ_in_says_which_node_has_which(tmp_path):
    """Of a rolling upgrade each night differs. A node without a version counts; without a record
    of its NICs it does not."""
    name = "driver of eth1"
    seen = []
    for number, drivers in enumerate(
        [("5.1", "5.1", "5.1"), ("5.2", "5.1", "5.1"), ("5.2", "5.2", "5.1"), ("5.1", "5.2", "5.2"),
         ("5.2", None, "5.2"), ("5.2", "5.2", "5.2"), ("5.2", "5.2")]
    ):  # fmt: skip
        nic = {
            f"n{at}": {"eth1": {"after": {"driver": "igb", "version": own}}} if own else {}
            for at, own in enumerate(drivers)
        }
        versions = {name: ", ".join(sorted({f"igb {own}" for own in drivers if own}))}
        runs = runs_of(NETPIPE, "latency_us", (30.0, 31.0), versions=versions, nic=nic)
        make_night(tmp_path, number, runs=runs)
        with opened(tmp_path, print) as index:
            seen.append(index.points(index.series()[0])[-1].conditions[name])
    assert seen == [
        "igb 5.1", "igb 5.1, igb 5.2 (n0)", "igb 5.2, igb 5.1 (n2)", "igb 5.2, igb 5.1 (n0)",
        "igb 5.2, none (n1)", "igb 5.2", "igb 5.2",
    ]  # fmt: skip
    assert [value_on(seen[1], node) for node in ("n0", "n1")] == ["igb 5.2", "igb 5.1"]
    assert values_of(seen[4]) == {"igb 5.2", "none"}


def test_of_very_many_nodes_with_another_value_their_number_is_said():
    by_node = {f"node{at:05}": "2" if at < 400 else "1" for at in range(1000)}
    text = of_nodes_text(by_node)
    assert text.startswith("1, 2 (400 nodes; ")
    by_node["node00000"], by_node["node00999"] = "1", "2"
    assert of_nodes_text(by_node) != text
    assert value_on(text, "node00000") is None


def test_nodes_with_another_kernel_are_named(tmp_path):
    nic = {f"n{at}": {"eth1": {"after": {"kernel": f"6.{at // 2}"}}} for at in range(3)}
    runs = runs_of(NETPIPE, "latency_us", (30.0,), versions={"kernel": "6.0, 6.1"}, nic=nic)
    make_night(tmp_path, 0, (1,), runs=runs)
    with opened(tmp_path, print) as index:
        assert index.points(index.series()[0])[0].conditions["kernel"] == "6.0, 6.1 (n2)"


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
    assert [trial[0] for trial in trials] == ["lab-000", "lab-001"]
    assert left_out == []


def test_each_setting_of_the_profile_is_a_condition(tmp_path):
    driver = {"module": "e1000", "parameters": {"RxIntDelay": "0,0"}}
    default = ProfileUse(
        name="default",
        settings={
            "n1": {"eth1": {"driver": driver, "coalesce.rx-usecs": 125, "mtu": 1500}},
            "n2": {"eth1": {"driver": driver, "coalesce.rx-usecs": 125, "mtu": 9000}},
        },
        node_settings={"sysctl.net.core.busy_poll": 50},
    )
    other = ProfileUse(name="jumbo", settings={"n1": {"eth1": {"txqueuelen": 10}}})
    make_night(tmp_path, 0, profiles=[default, other])
    default.settings["n1"], default.settings["n2"] = default.settings["n2"], default.settings["n1"]
    make_night(tmp_path, 1, profiles=[default, other])
    points, _, _ = read(tmp_path)
    first, second = (
        {name: value for name, value in point[3].items() if name.startswith("setting ")}
        for point in points[LATENCY]
    )
    mtu = first.pop("setting mtu of eth1")
    assert first == {
        "setting coalesce.rx-usecs of eth1": "125",
        "setting driver.module of eth1": "e1000",
        "setting driver.parameters.RxIntDelay of eth1": "0,0",
        "setting sysctl.net.core.busy_poll": "50",
    }
    assert mtu == "1500, 9000 (n2)"
    assert second.pop("setting mtu of eth1") == "1500, 9000 (n1)"
    assert second == first


def test_settings_of_the_transport_and_the_benchmark_of_a_case_are_conditions(tmp_path):
    other = TransportUse(name="openmpi-tcp", env={"OMPI_MCA_btl": "tcp"})
    small = TransportUse(
        name="tcp", base="plain", options=["--hint=compute_bound", "-O"],
        env={"BUFFER": "16384", "EMPTY": "", "LONG": "x" * 3000},
    )  # fmt: skip
    benchmarks = {
        "netpipe": {"max_bytes": 65536, "repetitions": None, "same_core": True},
        "hpl": {"size": 2400},
        "links": {"cores": [0, 1]},
    }
    runs = runs_of(LINKS, "stream_MB_s", (9.0,), "MB/s", "higher", "n1>n2")
    runs += runs_of(NETPIPE, "latency_us", (30.0,))
    make_night(tmp_path, 0, runs=runs, transports=[other, small], benchmarks=benchmarks)
    points, _, _ = read(tmp_path)
    of_links = next(own for (_, name), own in points.items() if name.startswith("links."))
    assert of_links[0][3]["benchmark links.cores"] == "[0,1]"
    conditions = points[LATENCY][0][3]
    long = conditions.pop("variable LONG of tcp")
    assert re.fullmatch(r"x{200}\.\.\. \(3000 characters; [0-9a-f]{12}\)", long)
    assert {name: value for name, value in conditions.items() if is_setting(name)} == {
        "benchmark netpipe.max_bytes": "65536",
        "benchmark netpipe.repetitions": "none",
        "benchmark netpipe.same_core": "true",
        "variable BUFFER of tcp": "16384",
        "variable EMPTY of tcp": '""',
        "transport base of tcp": "plain",
        "transport data_path of tcp": "kernel",
        "transport options of tcp": "--hint=compute_bound -O",
    }


def test_a_setting_that_vanishes_on_some_nodes_is_named_with_them(tmp_path):
    settings = {f"n{at}": {"eth1": {"mtu": 9000}} for at in range(4)}
    make_night(tmp_path, 0, profiles=[ProfileUse(name="default", settings=settings)])
    settings |= {"n2": {"eth1": {"txqueuelen": 10}}, "n3": {}}
    make_night(tmp_path, 1, profiles=[ProfileUse(name="default", settings=settings)])
    points, _, _ = read(tmp_path)
    assert [point[3]["setting mtu of eth1"] for point in points[LATENCY]] == [
        "9000", "9000, none (n2 n3)",
    ]  # fmt: skip


def test_a_figure_of_0_that_must_be_above_counts_and_the_wait_of_each_case(tmp_path):
    runs = runs_of(LINKS, "stream_MB_s", (0.0, 0.0, 0.0), "MB/s", "higher", "n1>n2")
    runs += runs_of(LINKS, "stream_MB_s", (9.0, 0.0, 9.0), "MB/s", "higher", "n1>n3")
    runs += runs_of(NETPIPE, "latency_us", (30.0, 30.0, 30.0))
    for run, percent in zip(runs, (10, 20, 30, 10, 20, 30, 1, None, 3), strict=True):
        run.activity.append(Activity(step="a", node="n1", seconds=2, waited_percent=percent))
    make_night(tmp_path, 0, runs=runs)
    points, _, _ = read(tmp_path)
    assert {key[1]: own[0][2] for key, own in points.items()} == {
        "links.tcp.jumbo.3n: stream_MB_s at n1>n2": [0, 0, 0], LATENCY[1]: [30, 30, 30],
    }  # fmt: skip
    with opened(tmp_path, print) as index:
        assert index.waits() == {(1, LINKS.id): 20, (1, NETPIPE.id): 2}


def test_a_metric_in_another_unit_is_another_series(tmp_path):
    make_night(tmp_path, 0, (30, 31, 29))
    make_night(tmp_path, 1, runs=runs_of(NETPIPE, "latency_us", (0.03, 0.031, 0.029), "ms"))
    with opened(tmp_path, print) as index:
        series = index.series()
        assert {one.unit: [p.value for p in index.points(one)] for one in series} == {
            "ms": [0.03], "us": [30],
        }  # fmt: skip
        assert {key[2] for key, _, _ in index.points_of(index.trials())} == {"ms", "us"}


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
    monkeypatch.setattr(store, "read_entry", lambda folder: calls.append(folder))
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


@pytest.mark.parametrize("exists", [False, True])
def test_a_question_is_answered_on_a_disk_that_is_full(trials, monkeypatch, exists):
    if exists:
        read(trials)
        make_night(trials, 9, versions={"kernel": "6" * 20000})  # more than a page
    pages = "SELECT 1 FROM sqlite_master", "PRAGMA max_page_count = 1"  # at least as many as now

    connect = store.connect

    def full(file):
        connection = connect(file)
        for statement in pages if file else ():
            connection.execute(statement).fetchall()
        return connection

    monkeypatch.setattr(store, "connect", full)
    said: list[str] = []
    assert read(trials, said) == derived(trials)
    (note,) = said
    assert note.startswith("note: the index is in memory only (the index ")
    assert note.endswith("cannot be written: database or disk is full)")


def test_a_question_is_answered_if_not_even_the_lock_has_space(trials, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "lock")

    monkeypatch.setattr(module, "locked", full)
    said: list[str] = []
    assert read(trials, said) == derived(trials)
    assert said == [
        "note: the index is in memory only ([Errno 28] No space left on device: 'lock')"
    ]


def test_a_later_judgement_that_is_copied_in_two_parts_counts_when_it_is_whole(tmp_path):
    folder = make_trial(tmp_path / "trials" / "t1")
    judge(folder, folder / "config/lab/requirements.yaml")
    file = folder / "judgements" / "2" / "judgement.jsonl"
    (file.parent.parent / "\udcff").mkdir()  # a name that is no text
    whole = file.read_bytes()
    for harm in (lambda: file.write_bytes(whole[:99]), file.unlink):
        harm()
        (left_out,) = read(file.parents[3])[2]
        assert left_out.startswith(f"{file}: it was ")
        file.write_bytes(whole)
        assert read(file.parents[3])[1][0][0] == "t1"


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


def test_a_folder_that_cannot_be_read_blocks_no_other(trials, monkeypatch):
    (trials / "self").symlink_to("self")
    expected = [f"lab-00{number}" for number in range(4)]
    points, _, (left_out,) = read(trials)
    assert [point[0] for point in points[LATENCY]] == expected
    assert left_out.startswith(f"{trials / 'self'}: cannot be read: ")
    (trials / "self").unlink()
    make_night(trials, 4)
    entry = store.read_entry

    def refuse(place):
        if place.name == "lab-004":
            raise PermissionError(13, "Permission denied")
        return entry(place)

    monkeypatch.setattr(store, "read_entry", refuse)
    points, _, (left_out,) = read(trials)
    assert [point[0] for point in points[LATENCY]] == expected
    assert left_out == f"{trials / 'lab-004'}: cannot be read: [Errno 13] Permission denied"
    monkeypatch.undo()  # rights change, no file does
    points, _, left_out = read(trials)
    assert [point[0] for point in points[LATENCY]] == [*expected, "lab-004"]
    assert left_out == []


def test_a_folder_that_may_not_be_looked_into_has_a_fingerprint(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    assert fingerprint(tmp_path) == "error 13 error 13 error 13"


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (
            [*runs_of(NETPIPE, "half_bandwidth_B", (1,)), *runs_of(NETPIPE, "n_half_B", (1,))],
            "two figures of netpipe.tcp.default.2n belong to the series n_half_B",
        ),
        (
            [
                *runs_of(Case(check="stream", transport="tcp", nodes=2), "x_us", (1,)),
                *runs_of(Case(check="tcp_stream", transport="tcp", nodes=2), "y_us", (1,)),
            ],
            "two cases have the name tcp_stream.tcp.default.2n: check=stream, ",
        ),
        (
            [
                *runs_of(Case(check="a-b", transport="tcp", nodes=2), "x_us", (1,)),
                *runs_of(Case(check="a", variant="b", transport="tcp", nodes=2), "y_us", (1,)),
            ],
            "two cases have the name a-b.tcp.default.2n: check=a-b, ",
        ),
    ],
)
def test_a_trial_with_two_figures_for_one_series_does_not_count(trials, runs, why):
    file = make_night(trials, 4, (1,), runs=runs) / RESULTS_FILE
    points, known, (left_out,) = read(trials)
    assert [one[0] for one in known] == [f"lab-00{number}" for number in range(4)]
    assert list(points) == [LATENCY]
    assert left_out.startswith(f"{file}: ")
    assert why in left_out


def test_what_the_tables_refuse_blocks_no_other_trial(trials, monkeypatch):
    entry = store.read_entry

    def doubled(place):
        one = entry(place)
        return replace(one, figures=one.figures * 2) if place.name == "lab-001" else one

    monkeypatch.setattr(store, "read_entry", doubled)
    points, _, (left_out,) = read(trials)
    assert [point[0] for point in points[LATENCY]] == ["lab-000", "lab-002", "lab-003"]
    assert left_out.startswith(f"{trials / 'lab-001'}: the index cannot hold it: UNIQUE")


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
    make_night(tmp_path, 3, started=datetime(1970, 1, 1, 0, 5, tzinfo=UTC))
    file = make_night(tmp_path, 4, started=BEGIN) / RESULTS_FILE
    text = file.read_text()
    assert "2026-08-01T22:05:00Z" in text
    file.write_text(text.replace("2026-08-01T22:05:00Z", "2026-11-01T22:05:00Z"))
    notes = {one[0]: one[4] for one in read(tmp_path)[1]}
    assert notes["lab-000"] == []
    assert notes[late.name] == ["a clock is wrong: the trial began later than now"]
    assert notes["lab-002"] == ["a clock is wrong: the trial ended before it began"]
    assert notes["lab-003"] == ["a clock is wrong: the trial began on 1970-01-01"]
    assert notes["lab-004"] == ["a clock is wrong: the trial took 92 days"]


def test_a_trial_without_sums_counts_with_a_mark_and_one_that_differs_does_not_count(trials):
    for number in (0, 1, 3):
        sealed(trials / f"lab-00{number}")
    file = trials / "lab-003" / RESULTS_FILE
    file.write_text(file.read_text().replace("33.0", "11.0"))
    with opened(trials, print) as index:
        marks = {trial.folder.name: trial.marks for trial in index.trials()}
        (series,) = index.series(check=["netpipe"])
        of_points = {point.trial.folder.name: point.trial.marks for point in index.points(series)}
        (left_out,) = index.left_out()
    assert marks == {"lab-000": [], "lab-001": [], "lab-002": ["no SHA256SUMS"]}
    assert of_points == marks
    assert left_out.startswith(f"{file}: it was changed since the manifest was written")
    sealed(trials / "lab-002")
    (trials / "lab-001" / manifest.MANIFEST).unlink()
    with opened(trials, print) as index:
        marks = {trial.folder.name: trial.marks for trial in index.trials()}
    assert marks == {"lab-000": [], "lab-001": ["no SHA256SUMS"], "lab-002": []}


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


def changed(*statements):
    """A change of the tables, as a bit that flips can make one."""

    def change(file):
        with sqlite3.connect(file) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return change


def cut(file):
    os.truncate(file, file.stat().st_size - 100)


def damage_table(file):
    data = file.read_bytes()
    file.write_bytes(data.replace(b"CREATE TABLE series", b"CREATE \x94ABLE series"))


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        cut,
        damage_table,
        changed("DELETE FROM point WHERE trial = 2"),
        changed("UPDATE point SET trial = 3 WHERE trial = 2 AND series = 2"),
        changed("UPDATE point SET trial = 77 WHERE trial = 2 AND series = 2"),
        changed("UPDATE point SET figures = x'94' WHERE trial = 2"),
        changed("UPDATE point SET figures = zeroblob(24) WHERE trial = 2"),
        changed("UPDATE trial SET verdict = 'reject' WHERE id = 2"),
        changed("UPDATE under SET waited = 7 WHERE trial = 2"),
        changed("UPDATE trial SET copy_of = 1 WHERE id = 2"),
        changed("UPDATE trial SET figures = figures + iif(id = 2, 1, -1) WHERE id IN (2, 3)"),
        changed("UPDATE series SET unit = 'ns'"),
        changed("UPDATE series SET points = points + iif(id = 1, 1, -1)"),
        changed("UPDATE under SET conditions = 77 WHERE trial = 2"),
        changed("UPDATE under SET conditions = 'x' WHERE trial = 2"),
        changed("UPDATE under SET trial = 77 WHERE trial = 2"),
        changed("UPDATE conditions SET text = replace(text, '5.1', '5.2')"),
        changed("UPDATE trial SET notes = '['"),
        changed("UPDATE trial SET started = 'x'"),
        changed("UPDATE trial SET name = CAST(x'94' AS TEXT)"),
        changed("UPDATE series SET facts = '[]'"),
        changed("UPDATE series SET facts = '{\"check\": 1}'"),
        changed("UPDATE conditions SET text = CAST(x'94' AS TEXT) WHERE id = 1"),
        changed("UPDATE conditions SET text = '{' WHERE id = 1"),
    ],
)
def test_damage_that_sqlite_does_not_see_is_seen(trials, monkeypatch, damage, memory):
    # a series of one trial only, whose point can be moved to another
    make_night(trials, 5, runs=runs_of(NETPIPE, "x_us", (1,)))
    shutil.rmtree(trials / "lab-001")
    make_night(trials, 1, runs=[*runs_of(NETPIPE, "latency_us", (1,)),
                                *runs_of(NETPIPE, "x_us", (1,))])  # fmt: skip
    expected = read(trials)
    file = trials / INDEX_FILE
    damage(file)
    if memory:
        monkeypatch.setattr(module.os, "access", lambda *_: False)
    said: list[str] = []
    assert read(trials, said) == expected
    if not (memory and damage in (cut, damage_table)):  # then the file is not copied
        assert said[0].startswith(f"{file} is built again from the trials: ")
    assert len(said) <= 1
    assert damage is not cut or memory or said[0].endswith("its end is missing")


@pytest.mark.parametrize(
    "globs", [["*" * 60_000], ["x*"] * 1100, ["\udcff"]], ids=["long", "many", "no text"]
)
def test_a_question_of_odd_globs_leaves_the_index(trials, globs):
    read(trials)
    before = (trials / INDEX_FILE).read_bytes()
    said: list[str] = []
    with opened(trials, said.append) as index:
        every = 1 if globs[0][0] == "*" else 0
        assert len(index.series(check=globs)) == every
        assert len(index.columns(index.trials(), check=globs)) == every
        assert len(index.series()) == 1
    assert said == []
    assert (trials / INDEX_FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "glob", "text"),
    [
        ("location", "n1-n[23", r"n1-n\[23: '\[' without '\]'"),
        ("location", "n1>n[3-2]", r"n1>n\[3-2\]: \[3-2\] is no range: 2 comes before 3"),
        (
            "location",
            "n1-n3",
            "--location n1-n3: no series has such a location; did you mean 'n1>n",
        ),
        ("check", "link", "--check link: no series has such a check; did you mean 'links'"),
    ],
)
def test_a_glob_that_matches_nothing_is_named(tmp_path, name, glob, text):
    runs = [
        run
        for to in (2, 3, 12)
        for run in runs_of(LINKS, "bandwidth_MB_s", (9,), "MB/s", "higher", f"n1>n{to}")
    ]
    make_night(tmp_path, 0, (1,), runs=runs)
    with opened(tmp_path, print) as index:
        chosen = index.series(location=["n1>n[3-12]"])
        assert [one.location for one in chosen] == ["n1>n12", "n1>n3"]
        index.check_selection(location=["n1>n[3-12]", "*"], check=[])
        with pytest.raises(InputError, match=text):
            index.check_selection(**{name: [glob]})


def test_a_question_of_several_selects_sees_one_state(trials, monkeypatch):
    """A writer beside it waits until the question is answered."""
    ask = store.Store.rows
    refused = []

    def beside(index, question, values=()):
        if question.startswith("SELECT trial, figures"):
            writer = sqlite3.connect(trials / INDEX_FILE, timeout=0, isolation_level=None)
            try:
                writer.execute("DELETE FROM point")
            except sqlite3.OperationalError as error:
                refused.append(str(error))
            writer.close()
        return ask(index, question, values)

    monkeypatch.setattr(store.Store, "rows", beside)
    with opened(trials, print) as index:
        (column,) = index.columns(index.trials())
    assert column.values.tolist() == [30, 31, 32, 33]
    assert refused == ["database is locked"]


def test_a_reader_takes_no_other_trial_for_one_that_has_gone(trials):
    with opened(trials, print) as index:
        known = index.trials()
        last = max(known, key=lambda one: one.id)  # SQLite itself gives its number again
        left = [one.name for one in known if one != last]
        values = [value for one, value in zip(known, (30, 31, 32, 33), strict=True) if one != last]
        points = index.points_of(known)
        shutil.rmtree(last.folder)
        make_night(trials, 9, runs=runs_of(NETPIPE, "new_us", (99,)))
        read(trials)
        assert [point.trial.name for _, _, point in points] == left
        (column,) = index.columns(known)
        assert column.values.tolist() == values


def test_damage_between_two_questions_does_not_mix_trials(trials):
    """In an index that is built again, trials keep the numbers that callers know."""
    make_night(trials, 9)
    shutil.rmtree(trials / "lab-000")
    said: list[str] = []
    with opened(trials, said.append) as index:
        known = index.trials()
        with sqlite3.connect(trials / INDEX_FILE) as connection:
            connection.execute("UPDATE conditions SET text = CAST(x'94' AS TEXT)")
        connection.close()
        make_night(trials, 4, (50,))  # read by the new index: it has another number
        names = [one.name for one in known]
        assert [point.trial.name for _, _, point in index.points_of(known)] == names
        (text,) = said
        assert text.startswith(f"{trials / INDEX_FILE} is built again from the trials: ")
        assert index.trials()[: len(known)] != known
        assert [trial for trial in index.trials() if trial in known] == known


def test_each_byte_of_a_figure_that_changes_is_seen(trials):
    """By a question about all trials, and by one about one of them: they read other pages."""
    expected = read(trials)
    file = trials / INDEX_FILE
    data = file.read_bytes()
    places = [match.start() for match in re.finditer(re.escape(np.array([31.0]).tobytes()), data)]
    assert len(places) == 2 * 4  # a value and three samples, in the table and its index
    for byte, place in enumerate(places):
        damaged = bytearray(data)
        damaged[place + byte] ^= 4
        file.write_bytes(damaged)
        said: list[str] = []
        with opened(trials, said.append) as index:
            known = index.trials()
            by_trial = [point.samples for _, _, point in index.points_of(known)]
            (column,) = index.columns(known)
            assert content(index) == expected
        assert by_trial == [point[2] for point in expected[0][LATENCY]]
        assert column.values.tolist() == [point[1] for point in expected[0][LATENCY]]
        assert [text.partition(": ")[2] for text in said] == ["a figure is not as it was written"]


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
        connect = store.connect

        def killing(file):
            connection = connect(file)
            connection.set_progress_handler(self.step, 1)
            return connection

        monkeypatch.setattr(store, "connect", killing)

    def step(self) -> int:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


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
        connect = store.connect

        def counting(file):
            connection = connect(file)
            connection.set_progress_handler(step, 1)
            return connection

        patch.setattr(store, "connect", counting)
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


@pytest.mark.parametrize("damage", ["", "gibberish", "another version", "no file"])
def test_who_may_only_read_begins_with_a_copy_of_the_index(trials, monkeypatch, damage):
    """And reads only what it lacks, with the same answers whatever the file holds."""
    read(trials)
    make_night(trials, 77)
    expected = derived(trials)
    file = trials / INDEX_FILE
    if damage == "gibberish":
        file.write_bytes(b"gibberish" * 999)
    elif damage == "another version":
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE made SET version = 'x'")
    elif damage:
        file.unlink()
    before = file.read_bytes() if file.exists() else None
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    folders = []
    entry = store.read_entry
    monkeypatch.setattr(store, "read_entry", lambda place: [folders.append(place), entry(place)][1])
    assert read(trials) == expected
    assert (len(folders) == 1) == (damage == "")
    assert (file.read_bytes() if file.exists() else None) == before


def test_a_failure_of_the_index_is_a_warning_after_a_trial(trials):
    (trials / INDEX_FILE).mkdir()
    said: list[str] = []
    module.update(trials, said.append)
    (text,) = said
    assert text.startswith("warning: the history was not updated")
    assert manifest.exposure(trials) is None
