#!/usr/bin/env python3
"""What a report costs for 64 to 1024 nodes: bytes, seconds, and bytes per figure.

    .venv/bin/python ci/bench/report.py [--nodes 64 --nodes 256 ...]
    .venv/bin/python ci/bench/report.py --failing 10000 --failing 100000 --failing 1000000

The trials are made up, in the shape of real records: every figure is invented. The last column is
the growth of the time over that of the row before, divided by the growth of the figures: about 1
where the report is linear.

With ``--failing``, each of so many figures of one case breaks a clause: the trial that costs most,
because nothing of a judgement that failed is left out of the records. The times are those of
``seatrial report``: reading the results, then report.html, junit.xml and the summary.
"""

from __future__ import annotations

import io
import itertools
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from judging import made_up
from rich.console import Console
from rich.table import Table

from seatrial.base import yamlfile
from seatrial.report.html import write_html
from seatrial.report.junit import write_junit
from seatrial.report.terminal import print_summary
from seatrial.results.folder import Results, read_results, write_results
from seatrial.results.judge import judge
from seatrial.results.record import (
    Activity,
    Case,
    Counters,
    Curve,
    Job,
    Judgement,
    Metric,
    NicProof,
    PathProof,
    Run,
    Trial,
)
from seatrial.results.requirements import Document, Requirements, build
from seatrial.results.verdict import conclude

START = datetime(2031, 3, 14, 21, 5, 0, tzinfo=UTC)
SIZES = [float(4**k) for k in range(10)]
CURVES = 2000  # links of a run with a curve
TRANSPORTS = ("tcp", "openmpi-tcp", "openmpi-ucx", "mpich-ofi")
PROFILES = ("default", "lowlat", "jumbo")
CONTRACT = """
schema: 1
requirements:
  - select: {check: links}
    metric: latency_us
    basis: contract
    source: annex B, line 1
    at_most: 20
    unit: us
  - select: {check: links}
    metric: bandwidth_MB_s
    basis: contract
    source: annex B, line 2
    at_least: 9000
    unit: MB/s
  - select: {check: node_compute}
    metric: mops
    basis: contract
    source: annex B, line 3
    at_least: 900
    unit: Mop/s
"""
UNMET = """
schema: 1
requirements:
  - {select: {}, metric: bandwidth_MB_s, basis: contract, source: "annex B, line 1", at_least: 5000,
     unit: MB/s}
  - {select: {}, metric: latency_us, basis: contract, source: "annex B, line 2",
     at_most: 3, unit: us}
"""
METRICS = {  # metric: typical value, unit, better, lower limit, upper limit
    "latency_us": (12.0, "us", "lower", None, 20.0),
    "bandwidth_MB_s": (11500.0, "MB/s", "higher", 9000.0, None),
    "mops": (1000.0, "Mop/s", "higher", 900.0, None),
}


def requirements() -> Requirements:
    document, lines = yamlfile.loads(CONTRACT, Document, "requirements.yaml")
    return build(document, lines, Path("requirements.yaml"))


def large_trial(nodes: int, links_per_node: int = 0) -> Results:
    """A trial of ``nodes`` nodes: all its links (or about ``links_per_node`` of each), all nodes by
    themselves, and pairs of nodes under several transports and profiles. One node and one link
    are bad."""
    chance = random.Random(1)
    width = len(str(nodes))
    names = [f"node{number:0{width}}" for number in range(1, nodes + 1)]
    most = links_per_node // 2 or nodes
    links = [f"{a}-{b}" for i, a in enumerate(names) for b in names[i + 1 : i + 1 + most]]
    bad = {names[nodes // 2], links[len(links) // 3]}
    runs = [
        _located("links", names, links, ("latency_us", "bandwidth_MB_s"), bad, chance),
        _located("node_compute", names, names, ("mops",), bad, chance),
    ]
    for transport in TRANSPORTS:
        for profile in PROFILES:
            case = Case(check="netpipe", transport=transport, profile=profile, nodes=2)
            metrics = [_metric("latency_us", None, 1.0, chance)]
            runs.append(_run(case, names[:2], metrics, [_curve("netpipe", 1.0)]))
            case = Case(check="osu", variant="c", transport=transport, profile=profile, nodes=nodes)
            runs.append(_run(case, names, [_metric("latency_us", None, 1.0, chance)], []))
    trial = Trial(
        trial="20310314-210500-example",
        site="example",
        description=f"INVENTED figures of {nodes} nodes",
        started=START,
        seatrial="0",
        cases=[run.case for run in runs],
    )
    judgements = [judged for run in runs for judged in _judged(run)]
    verdict = conclude(trial, runs, judgements, requirements(), ended=START + timedelta(hours=2))
    return Results(trial=trial, runs=runs, judgements=judgements, verdict=verdict)


def _located(
    check: str,
    names: list[str],
    locations: list[str],
    metrics: tuple[str, ...],
    bad: set[str],
    chance: random.Random,
) -> Run:
    case = Case(check=check, transport="tcp", nodes=len(names))
    worse = {
        location: 2.5 if location in bad or not bad.isdisjoint(location.split("-")) else 1.0
        for location in locations
    }
    figures = [
        _metric(metric, location, factor, chance)
        for location, factor in worse.items()
        for metric in metrics
    ]
    links = list(worse.items())[:CURVES] if check == "links" else []
    return _run(case, names, figures, [_curve(f"netpipe {link}", x) for link, x in links])


def _metric(name: str, location: str | None, worse: float, chance: random.Random) -> Metric:
    typical, unit, better, *_ = METRICS[name]
    value = typical * chance.lognormvariate(0, 0.03)
    return Metric(
        metric=name,
        value=value * worse if better == "lower" else value / worse,
        unit=str(unit),
        location=location,
        better="lower" if better == "lower" else "higher",
    )


def _curve(name: str, worse: float) -> Curve:
    points = [(size, worse * (12.0 + size / 11500)) for size in SIZES]
    return Curve(name=name, y_name="latency", y_unit="us", points=points)


def _run(case: Case, names: list[str], metrics: list[Metric], curves: list[Curve]) -> Run:
    state = {"driver": "mlx5_core", "mtu": 9000, "ring.rx": 8192, "coalesce.rx-usecs": 8}
    return Run(
        case=case,
        outcome="ran",
        metrics=metrics,
        curves=curves,
        job=Job(id="7", state="COMPLETED", nodes=names, started=START, ended=START),
        path=PathProof(
            network="fabric",
            required_bytes=10**9,
            crossed=True,
            counters=[
                Counters(
                    node=name, interface="eth1", network="fabric", rx_bytes=10**9,
                    tx_bytes=10**9, rx_packets=10**6, tx_packets=10**6,
                )
                for name in names
            ],
        ),
        nic={name: {"eth1": {"before": state, "after": state}} for name in names},
        nic_proofs=[NicProof(node=name, when="before", ok=True) for name in names],
        activity=[
            Activity(step="step", node=name, seconds=1.0, net_rx_per_s=1e5) for name in names
        ],
        evidence=f"cases/{case.id}/r0",
    )  # fmt: skip


def _judged(run: Run) -> Iterator[Judgement]:
    """Each figure against the contract, if a clause applies to it."""
    rules = {
        (rule.threshold.select.check, rule.threshold.metric): rule
        for rule in requirements().contract
    }
    applied = {key: rule.record for key, rule in rules.items()}
    for metric in run.metrics:
        key = (run.case.check, metric.metric)
        if key not in rules:
            continue
        _, _, _, lower, upper = METRICS[metric.metric]
        beyond = (upper is not None and metric.value > float(upper)) or (
            lower is not None and metric.value < float(lower)
        )
        yield Judgement(
            case=run.case,
            metric=metric.metric,
            location=metric.location,
            verdict="fail" if beyond else "pass",
            value=metric.value,
            unit=metric.unit,
            samples=[metric.value],
            lower=None if lower is None else float(lower),
            upper=None if upper is None else float(upper),
            requirement=applied[key],
            explanation=f"{run.case.id}: {key[1]} on {metric.location} is {metric.value:.4g}",
        )


def report_failing(sizes: list[int]) -> None:
    """Print the time of each part of ``seatrial report`` on trials of which every figure fails."""
    document, lines = yamlfile.loads(UNMET, Document, "requirements.yaml")
    unmet = build(document, lines, Path("requirements.yaml"))
    parts = ("read", "report.html", "junit.xml", "summary")
    table = Table("figures", *(f"{part} s" for part in parts), "all s", "peak MiB", "growth")
    before: tuple[int, float] | None = None
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="seatrial-report-") as name:
            folder = Path(name)
            trial, runs = made_up(size, 1)
            judgements = judge(trial, runs, unmet)
            assert {judgement.verdict for judgement in judgements} == {"fail"}
            verdict = conclude(trial, runs, judgements, unmet)
            write_results(folder / "results.jsonl", [trial, *runs, *judgements, verdict])
            del runs, judgements
            marks = [time.process_time()]
            results = read_results(folder)
            marks.append(time.process_time())
            write_html(results, folder / "report.html")
            marks.append(time.process_time())
            write_junit(results, folder / "junit.xml")
            marks.append(time.process_time())
            print_summary(results, Console(file=io.StringIO()))
            marks.append(time.process_time())
        seconds = [b - a for a, b in itertools.pairwise(marks)]
        growth = f"{sum(seconds) / before[1] / (size / before[0]):.2f}" if before else ""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        each = [f"{second:.2f}" for second in (*seconds, sum(seconds))]
        table.add_row(str(size), *each, str(peak), growth)
        before = size, sum(seconds)
    Console().print(table)


def main(
    nodes: Annotated[list[int] | None, typer.Option(help="Sizes of the made-up trials.")] = None,
    failing: Annotated[
        list[int] | None, typer.Option(help="Numbers of figures that all fail, instead.")
    ] = None,
) -> None:
    """Print the size and the time of the report of a trial of all links between N nodes."""
    if failing:
        report_failing(failing)
        return
    table = Table(
        "nodes", "figures", "report.html MB", "junit.xml MB", "report s", "peak MiB", "growth"
    )
    before: tuple[int, float] | None = None
    for count in nodes or [64, 128, 256, 512]:
        results = large_trial(count)
        figures = sum(len(run.metrics) for run in results.runs)
        with tempfile.TemporaryDirectory() as folder:
            page, junit = Path(folder, "report.html"), Path(folder, "junit.xml")
            begin = time.process_time()
            write_html(results, page)
            seconds = time.process_time() - begin
            write_junit(results, junit)
            sizes = [f"{file.stat().st_size / 1e6:.2f}" for file in (page, junit)]
        growth = f"{seconds / before[1] / (figures / before[0]):.2f}" if before else ""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        table.add_row(str(count), str(figures), *sizes, f"{seconds:.1f}", str(peak), growth)
        before = figures, seconds
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
