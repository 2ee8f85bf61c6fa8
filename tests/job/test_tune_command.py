"""The command line of ``seatrial job tune``: plan, limits, continuation, exit codes."""

from __future__ import annotations

import json

import pytest
from job_support import HERE
from tune_support import FakeSlurm, Job
from typer.testing import CliRunner

from seatrial.base.errors import InputError, LabError
from seatrial.cli import app
from seatrial.cli import tune as command

SITE = str(HERE / "harbour" / "site.yaml")
SECONDS = {"default": 3.0, "low-latency": 1.0, "cpu-saving": 2.0}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm in the place of the real one; runs of a folder ``tmp_path / "t"``."""
    fake = FakeSlurm(tmp_path / "t", lambda profile, n: Job(SECONDS[profile] * (1 + n % 5 / 200)))
    monkeypatch.setattr(command, "ThisMachine", lambda: fake)
    monkeypatch.setattr(command, "run_here", lambda argv, stdin: fake.sbatch(argv, stdin))
    monkeypatch.setattr(command, "_has_sbatch", lambda around: True)
    monkeypatch.chdir(tmp_path)
    return fake


def run(*words):
    given = ["job", "tune", "--site", SITE, *words]
    return CliRunner().invoke(app, given, catch_exceptions=False)


def test_a_dry_run_prints_the_plan_and_starts_nothing(slurm, tmp_path):
    slurm.refuses = "--constraint=nic_cpu_saving"
    done = run("--dry-run", "-n", "1", "--run-limit", "100", "--node-hours", "3", "--",
               "sleep", "two words")  # fmt: skip
    assert done.exit_code == 0
    said = done.output
    assert "sleep 'two words': 2 nodes, 2 ranks, wall time\n" in said
    assert "  default over tcp: no constraint, network rail1 (eth1)\n" in said
    assert "  low-latency over tcp: --constraint=nic_low_latency, network rail1" in said
    refused = "Slurm takes no such job: no such node"
    constraint = "--constraint=nic_cpu_saving"
    assert f"cpu-saving over tcp: {constraint}, network rail1 (eth1), {refused}\n" in said
    # 100 s and a minute are 3 whole minutes, on 2 nodes
    assert "at most 100 s and 0.1 node hours" in said
    assert "first look after 6 runs of each: 12 runs, at most 1.2 node hours" in said
    assert "limits: 3 node hours, 120 minutes" in said
    assert slurm.started == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_measured_is_kept_and_continued(slurm, tmp_path):
    words = ("-n", "1", "-o", "t", "--run-limit", "30")
    first = run(*words, "--node-hours", "0.15", "--", "sleep", "1")
    assert first.exit_code == 2, first.output
    assert "measure more: " in first.output
    assert "Stopped: the limit of 0.15 node hours" in " ".join(first.output.split())
    runs = len(slurm.started)
    again = run("-o", "t", "--node-hours", "8")
    assert again.exit_code == 0, again.output
    assert f"{runs // 3} run" in again.output  # what was measured before
    assert "best: use NIC profile low-latency" in again.output
    assert slurm.started == list(range(1, len(slurm.started) + 1))
    data = json.loads((tmp_path / "t" / "answer.json").read_text())
    assert sum(candidate["runs"] for candidate in data["candidates"]) == len(slurm.started)
    once_more = run(*words, "--", "sleep", "1")
    assert "best: use NIC profile low-latency" in once_more.output
    assert len(slurm.started) == sum(candidate["runs"] for candidate in data["candidates"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-n", "1", "--", "sleep", "2"), "program ['sleep', '1'], not ['sleep', '2']"),
        (("-n", "2", "--", "sleep", "1"), "ranks_per_node 1, not 2"),
        (("-n", "1", "--run-limit", "9", "--", "sleep", "1"), "run_limit_s 600, not 9"),
        (("-n", "1"), "a tune is continued as it began"),
        (("-n", "1", "--figure", "x", "--better", "lower", "--", "sleep", "1"), "figure ''"),
    ],
)  # fmt: skip
def test_another_request_does_not_continue_a_tune(slurm, words, text):
    run("-n", "1", "-o", "t", "-p", "default", "-p", "low-latency", "--", "sleep", "1")
    before = len(slurm.started)
    with pytest.raises(InputError) as error:
        run("-o", "t", *words)
    assert text in str(error.value)
    assert len(slurm.started) == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "PROGRAM is missing"),
        (("--node-hours", "0", "--", "sleep"), "--node-hours: 0; it must be above zero"),
        (("--time-limit", "nan", "--", "sleep"), "--time-limit: nan"),
        (("--node-hours", "0.01", "--", "sleep"), "one run may take 0.367 node hours"),
        (("--figure", "x", "--", "sleep"), "--figure needs --better"),
        (("--better", "lower", "--", "sleep"), "--better is of a --figure"),
        (("--figure", "x", "--better", "more", "--", "sleep"), "neither higher nor lower"),
        (("--unit", "s", "--", "sleep"), "--unit is of a --figure"),
        (("--figure", "x", "--better", "lower", "--unit", "a\nb", "--", "sleep"), "--unit: 'a"),
        (("--set", "time=3", "--", "sleep"), "--set time: not a value of job tune"),
    ],
)
def test_bad_options(slurm, tmp_path, words, text):
    with pytest.raises(InputError) as error:
        run("-n", "1", "-o", "t", *words)
    assert text in str(error.value)
    assert slurm.started == []
    assert list(tmp_path.iterdir()) == []


def test_candidates_that_slurm_refuses_are_left_out(slurm):
    slurm.refuses = "--constraint=nic_low_latency"
    done = run("-n", "1", "-o", "t", "--", "sleep", "1")
    assert "best: use NIC profile cpu-saving" in done.output
    assert "left out: low-latency over tcp: Slurm takes no such job: no such node" in done.output
    slurm.refuses = "#SBATCH"
    with pytest.raises(InputError, match=r"nothing to compare: .*no such node"):
        run("-n", "1", "-o", "t2", "--", "sleep", "1")
    slurm.complaint = "sbatch: error: Could not establish a configuration source"
    with pytest.raises(InputError, match=r"nothing to compare: .*this machine has no slurm.conf"):
        run("-n", "1", "-o", "t2", "--", "sleep", "1")


def test_without_slurm_and_as_root_of_a_lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/sbin")
    with pytest.raises(LabError, match="sbatch is not installed here"):
        run("-n", "1", "-o", "t", "--", "/bin/sleep", "1")
    words = ["job", "tune", "-n", "1", "-o", "t", "--", "/bin/sleep", "1"]
    with pytest.raises(LabError, match=r"lab shell --site lab -- .*seatrial job tune --site lab"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    done = run("-n", "1", "--dry-run", "--", "/bin/sleep", "1")
    assert "there is no sbatch here, so Slurm was not asked" in done.output
