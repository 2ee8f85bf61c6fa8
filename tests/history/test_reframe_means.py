"""ReFrame's database and the history have the same figures; the reruns are marked in both.

The sessions and the records in ``data/`` are parts of a trial of the lab: NetPIPE and links under
the profile gigabit, two repeats and three reruns. The marks ``trial`` and ``rerun``, which ReFrame
writes today, were added to the sessions. tests/trial has the same for a trial that is run.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from seatrial.history.index import opened
from seatrial.results.folder import RESULTS_FILE, read_results

DATA = Path(__file__).parent / "data"
TRIAL = "lab-20261122-170259"
TABLES = """
CREATE TABLE sessions(uuid TEXT PRIMARY KEY, session_start_unix REAL, session_end_unix REAL,
    json_blob TEXT, report_file TEXT);
CREATE TABLE testcases(name TEXT, system TEXT, partition TEXT, environ TEXT,
    job_completion_time_unix REAL, session_uuid TEXT, uuid TEXT,
    FOREIGN KEY(session_uuid) REFERENCES sessions(uuid) ON DELETE CASCADE);
CREATE TABLE metadata(schema_version TEXT);
INSERT INTO metadata VALUES ('1.0');
"""
SETTINGS = """
site_configuration = {"systems": [{"name": "here", "hostnames": [".*"], "partitions": [
    {"name": "default", "scheduler": "local", "launcher": "local", "environs": ["builtin"]}]}]}
"""


@pytest.fixture
def compared(tmp_path):
    """ReFrame's means: of the planned repeats, and of the reruns, by case and metric."""
    database = tmp_path / "lab.sqlite"
    connection = sqlite3.connect(database)
    connection.executescript(TABLES)
    for session in json.loads((DATA / "reframe-sessions.json").read_text()):
        info = session["session_info"]
        times = info["time_start_unix"], info["time_end_unix"]
        row = (info["uuid"], *times, json.dumps(session), "")
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
        for case in session["runs"][0]["testcases"]:
            names = ("name", "system", "partition", "environ", "job_completion_time_unix")
            row = (*(case[name] for name in names), info["uuid"], case["uuid"])
            connection.execute("INSERT INTO testcases VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    (tmp_path / "settings.py").write_text(SETTINGS)
    sides = f'?trial=="{TRIAL}" and rerun=="0"', f'?trial=="{TRIAL}" and rerun!="0"'
    groups = "benchmark,num_nodes,sysenv,pvar,punit"
    done = subprocess.run(
        [Path(sys.executable).with_name("reframe"), "-C", tmp_path / "settings.py",
         "--table-format=csv", f"--performance-compare={sides[0]}/{sides[1]}/mean:{groups}/"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "RFM_ENABLE_RESULTS_STORAGE": "y", "RFM_SQLITE_DB_FILE": str(database)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout[done.stdout.index("benchmark,") :].splitlines()
    return {
        (row["benchmark"], row["sysenv"], row["pvar"], row["punit"]): tuple(
            float(row[f"pval (mean) ({side})"]) for side in ("lhs", "rhs")
        )
        for row in csv.DictReader(lines)
        if row["pvar"]
    }


def test_means_are_those_of_the_planned_repeats_and_of_the_reruns(compared, tmp_path):
    folder = tmp_path / "trials" / TRIAL
    folder.mkdir(parents=True)
    shutil.copy(DATA / "results.jsonl", folder / RESULTS_FILE)
    results = read_results(folder)
    with opened(folder.parent, print) as index:
        samples = {
            (series.case.check, series.metric, series.location): (series.unit, point.samples)
            for series in index.series()
            for point in index.points(series)
        }
    again: dict[tuple[str, str, str], list[float]] = {}
    for run in results.runs:
        if results.trial.is_rerun(run):
            for one in run.metrics:
                key = (run.case.check, one.metric, one.location or "")
                again.setdefault(key, []).append(one.value)
    expected = {}
    for (check, metric, location), (unit, planned) in samples.items():
        name = f"{metric}@{location}" if location else metric
        key = (check, "lab:compute_gigabit+tcp", name, unit)
        assert len(planned) == 2
        expected[key] = pytest.approx((fmean(planned), fmean(again[check, metric, location])))
    assert compared == expected
    assert len(expected) == 21
