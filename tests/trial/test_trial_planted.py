"""A fault that is planted in the lab is rejected, and the place that is named is the right one."""

from __future__ import annotations

import pytest
from trial_support import SMALL, make_site, run_of

from seatrial.lab import faults

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack, pytest.mark.timeout(120)]
LINKS = """
schema: 1
requirements:
  - {select: {check: pairs}, metric: bandwidth_MB_s, basis: model, peers: median, at_least: 0.2}
informative:
  - {select: {}, metric: "*", reason: a test}
"""
NODES = """
schema: 1
requirements:
  - {select: {check: node_compute}, metric: mops, basis: model, peers: median, at_least: 0.5}
  - {select: {check: hpl}, metric: blas_as_declared, basis: contract, source: a test, at_least: 1,
     unit: of 1}
informative:
  - {select: {}, metric: "*", reason: a test}
"""


def failed(results):
    """(check, place) of all that failed."""
    return {(j.case.check, j.place) for j in results.judgements if j.verdict == "fail"}


def test_slow_link_is_named(place, try_site, trial_lab):
    faults.slow_link(trial_lab, "n3", "20mbit")
    try:
        pairs = {**SMALL["pairs"], "repetitions": 5}
        results = try_site(make_site(place / "site", {"pairs": pairs}, LINKS))
    finally:
        faults.clear(trial_lab)
    assert failed(results) == {("pairs", "n1-n3"), ("pairs", "n2-n3"), ("pairs", "n3-n4")}
    assert results.verdict.verdict == "reject"
    assert any("n1-n3" in finding for finding in results.verdict.findings)
    assert any("link n3: rate 20mbit" in note for note in results.trial.notes), results.trial.notes


def test_slow_node_and_wrong_blas_are_named(place, try_site, trial_lab):
    """Node 4 computes slowly; the job of HPL has the reference BLAS forced upon it."""
    faults.slow_cpu(trial_lab, "n4", 10)
    wrong = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3"
    transports = {"mpich-ofi": {"env": {"LD_PRELOAD": wrong}}}
    benchmarks = {"node_compute": SMALL["node_compute"], "hpl": SMALL["hpl"]}
    try:
        results = try_site(make_site(place / "site", benchmarks, NODES, transports=transports))
    finally:
        faults.clear(trial_lab)
    assert run_of(results, "hpl", "mpich-ofi", "openblas").reason == ""
    assert failed(results) == {("node_compute", "n4"), ("hpl", "n1"), ("hpl", "n2")}
    assert results.verdict.verdict == "reject"
    loaded = run_of(results, "hpl", "mpich-ofi", "openblas").facts["BLAS mapped"]
    assert any(file.startswith("/usr/lib/x86_64-linux-gnu/blas/") for file in loaded["n1"])
