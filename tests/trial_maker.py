"""Small trials, runs and requirement files for the tests of the judging part."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from seatrial.base import yamlfile
from seatrial.results.folder import Results
from seatrial.results.judge import judge
from seatrial.results.record import Case, Job, Judgement, Metric, PathProof, Run, Trial
from seatrial.results.requirements import Document, Requirements, build
from seatrial.results.verdict import conclude

NOW = datetime(2026, 8, 1, tzinfo=UTC)
NETPIPE = Case(check="netpipe", transport="tcp", nodes=2)
IMB = Case(check="imb", transport="openmpi-tcp", nodes=2)
PAIRS = Case(check="links", transport="tcp", nodes=4)
CONTRACT = """
  - select: {check: netpipe}
    metric: latency_us
    basis: contract
    source: tender 7
    reference: 30.0
    upper: 0.10
    unit: us
"""


def requirements(entries: str = "", rest: str = "") -> Requirements:
    text = f"schema: 1\nrequirements:{entries or ' []'}\n{rest}"
    document, lines = yamlfile.loads(text, Document, "requirements.yaml")
    return build(document, lines, Path("requirements.yaml"))


def metric(value, name="latency_us", unit="us", better="lower", location=None):
    return Metric(metric=name, value=value, unit=unit, better=better, location=location)


def run(case, *metrics, repeat=0, nodes=()):
    return Run(
        case=case, repeat=repeat, outcome="ran", metrics=list(metrics), job=Job(nodes=list(nodes))
    )


def error_run(case, reason="the job timed out", repeat=0):
    return Run(case=case, repeat=repeat, outcome="error", phase="run", reason=reason)


def unproven(case, *metrics):
    proof = PathProof(network="fabric", required_bytes=9, counters=[], crossed=False)
    return run(case, *metrics).model_copy(update={"path": proof})


def runs_of(case, values, **kwargs):
    return [run(case, metric(v, **kwargs), repeat=i) for i, v in enumerate(values)]


def trial(*cases, **kwargs):
    kwargs = {"trial": "t1", "site": "lab", "started": NOW, "seatrial": "0", **kwargs}
    return Trial(cases=list(cases), **kwargs)


def results(case, values, name="t1", **kwargs):
    return Results(trial=trial(case, trial=name), runs=runs_of(case, values, **kwargs))


def verdict(the_trial, runs, reqs):
    return conclude(the_trial, runs, judge(the_trial, runs, reqs), reqs, ended=NOW)


def judged(values, entries=CONTRACT, case=NETPIPE, **kwargs) -> Judgement:
    """The one judgement of one metric with these samples."""
    (judgement,) = judge(trial(case), runs_of(case, values, **kwargs), requirements(entries))
    return judgement
