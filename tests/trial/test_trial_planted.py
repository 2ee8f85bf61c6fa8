"""A fault that is planted in the lab is rejected, and the place that is named is the right one."""

from __future__ import annotations

import json
import os
import signal

import pytest

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import read_results
from seatrial.trial.run import run_trial
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from trial_support import FURTHER_FAULT, SMALL, Resuming, Silent, make_site, undisturbed

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
LINKS = """
schema: 1
requirements:
  - {select: {check: links}, metric: bandwidth_MB_s, basis: relative, peers: median, at_least: 0.2}
informative:
  - {select: {}, metric: "*", reason: a test}
"""
SPEED = """
schema: 1
defaults: {statistic: majority}
requirements:
  - select: {check: tcp_stream}
    metric: bandwidth_MB_s
    basis: relative
    at_least: 20
    unit: MB/s
informative:
  - {select: {}, metric: "*", reason: a test}
"""
NODES = """
schema: 1
requirements:
  - {select: {check: node_compute}, metric: mops, basis: relative, peers: median, at_least: 0.5}
  - {select: {check: hpl}, metric: blas_as_declared, basis: contract, source: a test, at_least: 1,
     unit: of 1}
informative:
  - {select: {}, metric: "*", reason: a test}
"""


def failed(results):
    """(check, place) of all that failed."""
    return {(j.case.check, j.location) for j in results.judgements if j.verdict == "fail"}


def test_slow_link_is_named(place, try_site, trial_lab):
    faults.slow_link(trial_lab, "n3", "50mbit")
    try:
        pairs = {**SMALL["links"], "repetitions": 5, "max_bytes": "16 KiB"}
        results = try_site(make_site(place / "site", {"links": pairs}, LINKS, reruns=2))
    finally:
        faults.clear(trial_lab)
    assert failed(results) == {("links", "n1-n3"), ("links", "n2-n3"), ("links", "n3-n4")}
    assert results.verdict.verdict == "reject"
    assert any("n1-n3" in finding for finding in results.verdict.findings)
    assert any("link n3: rate 50mbit" in note for note in results.trial.notes), results.trial.notes


class Mending(Silent):
    """Takes the planted fault away when cases are about to be run again."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.lab = lab

    def said(self, text: str) -> None:
        super().said(text)
        if text.startswith("rerun "):
            faults.clear(self.lab)


@pytest.mark.parametrize("lasts", [True, False])
@undisturbed()
def test_reruns_confirm_a_broken_bound_or_not(place, trial_lab, workplace, lasts):
    """The link is slow for ever, or in the first run only."""
    # Nothing is expected of the links here, and a slow link takes a minute for a few MiB.
    light = {**SMALL["links"], "max_bytes": 1024, "repetitions": 5, "stream_bytes": "64 KiB"}
    benchmarks = {"tcp_stream": SMALL["tcp_stream"], "links": light}
    file = make_site(place / "site", benchmarks, SPEED, reruns=2)
    trial_lab.add_bind(workplace)
    progress = Silent() if lasts else Mending(trial_lab)
    faults.slow_link(trial_lab, "n1", "20mbit")
    try:
        results = run_trial(
            plan_trial(file, Selection()), file, LabMachine(trial_lab), progress, place / "trials"
        )
    finally:
        faults.clear(trial_lab)
    runs = [run for run in results.runs if run.case.check == "tcp_stream"]
    times = 2 if lasts else 3  # two of three decide
    assert [run.repeat for run in runs] == list(range(times))
    assert [run.outcome for run in runs] == ["ran"] * times, runs
    assert len({run.evidence for run in runs}) == times
    assert all((results.folder / run.evidence / "evidence.json").is_file() for run in runs)
    assert [run.repeat for run in results.runs if run.case.check == "links"] == [0]
    again = [text for text in progress.lines if text.startswith("rerun ")]
    assert again == [
        f"rerun {number} of at most 2: 1 case with figures outside their bounds or in doubt, and "
        "those they are compared with, in 1 test"
        for number in range(1, times)
    ]
    reports = [results.folder / f"reframe-report{end}.json" for end in ("", "-rerun1", "-rerun2")]
    marks = [json.loads(file.read_text())["session_info"] for file in reports[:times]]
    assert [(mark["trial"], mark["rerun"]) for mark in marks] == [
        (results.folder.name, str(number)) for number in range(times)
    ]
    (one,) = [j for j in results.judgements if j.verdict != "error"]
    assert len(one.samples) == times
    notes = [text for text in results.verdict.findings if "within it in 2 of 2 reruns" in text]
    if lasts:
        assert (one.verdict, results.verdict.verdict, notes) == ("fail", "reject", [])
        assert max(one.samples) < 3
    else:
        assert (one.verdict, results.verdict.verdict, len(notes)) == ("pass", "accept", 1)
        assert one.samples[0] < 3 < 20 < min(one.samples[1:])
    assert read_results(results.folder).verdict == results.verdict


@undisturbed()
def test_a_rerun_uses_the_nodes_of_the_first_run(place, trial_lab, workplace):
    """Also where Slurm would choose others now."""
    file = make_site(place / "site", {"tcp_stream": SMALL["tcp_stream"]}, SPEED, reruns=1)
    trial_lab.add_bind(workplace)
    faults.slow_link(trial_lab, "n3", "20mbit")
    try:
        with Resuming(trial_lab, "n[1-2]") as progress:
            results = run_trial(
                plan_trial(file, Selection()),
                file,
                LabMachine(trial_lab),
                progress,
                place / "trials",
            )
    finally:
        faults.clear(trial_lab)
    assert [run.job.nodes for run in results.runs] == [["n3", "n4"]] * 2
    assert results.verdict.verdict == "reject"


class Interrupting(Silent):
    """Ends the trial when cases are about to be run again."""

    def said(self, text: str) -> None:
        super().said(text)
        if text.startswith("rerun "):
            os.kill(os.getpid(), signal.SIGINT)


@undisturbed()
def test_interrupted_during_a_rerun(place, trial_lab, workplace):
    """The figures are kept and judged. The interrupted run is a note, not an error of the site."""
    file = make_site(place / "site", {"tcp_stream": SMALL["tcp_stream"]}, SPEED, reruns=2)
    trial_lab.add_bind(workplace)
    progress = Interrupting()
    faults.slow_link(trial_lab, "n1", "20mbit")
    try:
        results = run_trial(
            plan_trial(file, Selection()), file, LabMachine(trial_lab), progress, place / "trials"
        )
    finally:
        faults.clear(trial_lab)
    assert [(run.repeat, run.outcome) for run in results.runs] == [(0, "ran")]
    assert results.verdict.verdict == "reject"
    (note,) = [text for text in results.trial.notes if text.startswith("fewer reruns than planned")]
    assert "tcp_stream.tcp.default.2n (the trial was interrupted by Ctrl-C)" in note
    assert read_results(results.folder).trial.notes == results.trial.notes


@FURTHER_FAULT
def test_slow_node_and_wrong_blas_are_named(place, try_site, trial_lab):
    """Node 4 computes slowly; the job of HPL has the reference BLAS forced upon it."""
    faults.slow_cpu(trial_lab, "n4", 10)
    wrong = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3"
    transports = {"mpich-ofi": {"env": {"LD_PRELOAD": wrong}}}
    benchmarks = {"node_compute": SMALL["node_compute"], "hpl": SMALL["hpl"]}
    try:
        # A quota and a busy machine look alike in one sample: the same node each time decides.
        file = make_site(place / "site", benchmarks, NODES, transports=transports, reruns=5)
        results = try_site(file)
    finally:
        faults.clear(trial_lab)
    assert {run.reason for run in results.runs} == {""}
    assert failed(results) == {("node_compute", "n4"), ("hpl", "n1"), ("hpl", "n2")}
    assert results.verdict.verdict == "reject"
    loaded = next(run.facts["BLAS mapped"] for run in results.runs if run.case.check == "hpl")
    assert any(file.startswith("/usr/lib/x86_64-linux-gnu/blas/") for file in loaded["n1"])
