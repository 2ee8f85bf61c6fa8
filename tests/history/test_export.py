"""What leaves the history is what is in it, in CSV, Parquet and OpenMetrics text."""

from __future__ import annotations

import csv
import json
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from history_support import BEGIN, LINKS, NETPIPE, make_night, runs_of, sealed
from seatrial.base.errors import InputError
from seatrial.history.export import export
from seatrial.history.index import opened
from seatrial.results import statistics
from seatrial.results.record import ProfileUse, TransportUse

ODD = 'a "b" \\ c\nd=1,\x1b é'


@pytest.fixture
def trials(tmp_path) -> Path:
    """Two trials of one site and one of another; the newest has one series less."""
    folder = tmp_path / "trials"
    for number, kernel in ((0, "6.1"), (1, "6.12")):
        runs = runs_of(NETPIPE, "latency_us", (30.1 + number, 31.7), versions={"kernel": kernel})
        if number == 0:
            runs += runs_of(LINKS, "stream_MB_s", (900,), "MB/s", "higher", ODD)
        make_night(folder, number, (1, 2), runs=runs)
    make_night(folder, 2, (1.5e-17,), site="other")
    sealed(folder / "lab-000")
    return folder


def points(trials: Path):
    with opened(trials, print) as index:
        return [
            (series, point)
            for series in sorted(index.series(), key=lambda one: one.name)
            for point in index.points(series)
        ]


def written(trials: Path, style: str, file: Path, **options) -> int:
    with opened(trials, print) as index:
        return export(index, style, file, **options)


@pytest.fixture(params=["csv", pytest.param("parquet", marks=pytest.mark.parquet)])
def rows(request, trials, tmp_path):
    """The rows of a file, each a dict of values of Python."""
    file = tmp_path / "figures"
    assert written(trials, request.param, file) == 4
    if request.param == "parquet":
        from pyarrow import parquet

        rows = parquet.read_table(file).to_pylist()
        return [{**row, "conditions": dict(row["conditions"])} for row in rows]
    with file.open(newline="") as stream:
        return [
            {
                **row,
                "began": datetime.fromisoformat(row["began"]),
                "nodes": int(row["nodes"]),
                "value": float(row["value"]),
                "spread": float(row["spread"]) if row["spread"] else None,
                "samples": [float(text) for text in row["samples"].split()],
                "conditions": json.loads(row["conditions"]),
            }
            for row in csv.DictReader(stream)
        ]


def test_a_row_has_all_of_a_figure(rows, trials):
    expected = [
        {
            "trial": point.trial.folder.name, "site": series.site, "began": point.trial.started,
            "verdict": "accept", "check": series.case.check, "variant": "", "transport": "tcp",
            "network": "", "profile": series.case.profile, "nodes": series.case.nodes,
            "location": series.location, "metric": series.metric, "unit": series.unit,
            "better": series.better, "value": point.value,
            "spread": statistics.spread(point.samples), "samples": point.samples,
            "conditions": point.conditions,
            "notes": "" if point.trial.folder.name == "lab-000" else "no SHA256SUMS",
        }
        for series, point in points(trials)
    ]  # fmt: skip

    def key(row):
        return row["trial"], row["metric"], row["location"]

    assert sorted(rows, key=key) == sorted(expected, key=key)
    assert [row["trial"] for row in rows] == ["lab-000", "lab-000", "lab-001", "lab-002"]


SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)(?: (\S+))?')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def samples(file: Path):
    """Metric, labels, value and time of each sample, and the other lines."""
    result, others = [], []
    for text in file.read_text().split("\n"):
        if match := SAMPLE.fullmatch(text):
            labels = {
                name: re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], value)
                for name, value in LABEL.findall(match[2])
            }
            result.append((match[1], labels, float(match[3]), match[4]))
        else:
            others.append(text)
    return result, others


def test_openmetrics_has_each_figure_at_its_time(trials, tmp_path):
    file = tmp_path / "all.om"
    assert written(trials, "openmetrics", file) == 4
    lines, others = samples(file)
    figures = [
        (labels["site"], labels["case"], labels["metric"], labels["location"], value, time)
        for metric, labels, value, time in lines
        if metric == "seatrial_figure"
    ]
    assert sorted(figures) == sorted(
        (series.site, series.case.id, series.metric, series.location, point.value,
         f"{point.trial.started.timestamp():.3f}")
        for series, point in points(trials)
    )  # fmt: skip
    assert {labels["unit"] for metric, labels, *_ in lines if metric == "seatrial_figure"} == {
        "us", "MB/s",
    }  # fmt: skip
    assert others[-2:] == ["# EOF", ""]
    assert all(text.startswith(("# HELP ", "# TYPE ")) for text in others[:-2])
    kernels = {
        (labels["value"], time)
        for metric, labels, _, time in lines
        if metric == "seatrial_condition_info"
        if (labels["site"], labels["condition"]) == ("lab", "kernel")
    }
    begin = [f"{(BEGIN + timedelta(days=n)).timestamp():.3f}" for n in range(2)]
    unproven = {
        t: v for m, ls, v, t in lines if (m, ls["site"]) == ("seatrial_trial_unproven", "lab")
    }
    assert unproven == {begin[0]: 0, begin[1]: 1}
    assert kernels == {("6.1", begin[0]), ("6.12", begin[1])}


def test_settings_are_of_their_profile_and_a_long_value_is_cut(tmp_path):
    for number in range(2):
        jumbo = {"mtu": 9000, "list": f"{'x' * 200}{number}"}
        profiles = [
            ProfileUse(name="default", settings={"n1": {"eth1": {"mtu": 1500 + number}}}),
            ProfileUse(name="jumbo", settings={"n1": {"eth1": jumbo}}),
        ]
        runs = runs_of(NETPIPE, "latency_us", (30,)) + runs_of(LINKS, "latency_us", (30,))
        make_night(
            tmp_path / "trials", number, (1, 2), runs=runs, profiles=profiles,
            transports=[TransportUse(name="tcp", env={"BUFFER": "16384"})],
            benchmarks={"netpipe": {"max_bytes": 1024}},
        )  # fmt: skip
    written(tmp_path / "trials", "openmetrics", tmp_path / "all.om")
    lines, _ = samples(tmp_path / "all.om")
    labels = [ls for metric, ls, *_ in lines if metric == "seatrial_setting_info"]
    shown = {(label["profile"], label["setting"], label["value"]) for label in labels}
    (cut, other) = sorted(value for _, name, value in shown if name.startswith("list"))
    assert cut != other
    assert cut[:120] == other[:120] == "x" * 120
    assert len(cut) == 120 + len("... (0123456789ab)")
    assert {one for one in shown if one[1] == "mtu of eth1"} == {
        ("default", "mtu of eth1", "1500"), ("default", "mtu of eth1", "1501"),
        ("jumbo", "mtu of eth1", "9000"),
    }  # fmt: skip
    assert {one[1:] for one in shown if not one[0]} == {
        ("BUFFER of tcp", "16384"), ("data_path of tcp", "kernel"), ("base of tcp", "none"),
        ("options of tcp", "none"), ("netpipe.max_bytes", "1024"),
    }  # fmt: skip
    versions = {ls["condition"] for m, ls, *_ in lines if m == "seatrial_condition_info"}
    assert versions == {"seatrial"}


def test_the_newest_trials_have_no_times_and_no_figure_of_an_older_one(trials, tmp_path):
    file = tmp_path / "new.prom"
    assert written(trials, "openmetrics", file, newest=True) == 2
    lines, _ = samples(file)
    assert {time for *_, time in lines} == {None}
    figures = {(ls["site"], ls["metric"]): v for m, ls, v, _ in lines if m == "seatrial_figure"}
    assert figures == {
        ("lab", "latency_us"): pytest.approx(31.4), ("other", "latency_us"): 1.5e-17,
    }  # fmt: skip
    verdicts = {(ls["site"], ls["verdict"]): v for m, ls, v, _ in lines if "verdict" in m}
    assert verdicts["lab", "accept"] == 1
    assert sum(verdicts.values()) == 2


def test_trials_that_began_at_one_time_have_different_times(tmp_path):
    for number in range(3):
        make_night(tmp_path / "trials", number, (number + 1,), started=BEGIN)
    written(tmp_path / "trials", "openmetrics", tmp_path / "all.om")
    lines, _ = samples(tmp_path / "all.om")
    times = [float(time) for metric, _, _, time in lines if metric == "seatrial_figure"]
    begin = BEGIN.timestamp()
    assert times == [pytest.approx(begin + n / 1000, abs=1e-4) for n in range(3)]


def test_a_selection_is_written(trials, tmp_path):
    file = tmp_path / "some.csv"
    assert written(trials, "csv", file, patterns={"check": ["link*"]}) == 1
    assert ODD in next(csv.DictReader(file.open(newline="")))["location"]


def test_a_failure_leaves_the_old_file(trials, tmp_path, monkeypatch):
    file = tmp_path / "figures"
    file.write_text("old")
    monkeypatch.setattr(statistics, "spread", lambda samples: 1 / 0)
    for style in ("csv", "openmetrics"):
        with pytest.raises(ZeroDivisionError):
            written(trials, style, file)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pip install --require-hashes -r requirements-parquet"):
        written(trials, "parquet", file)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["figures", "trials"]
    assert file.read_text() == "old"
