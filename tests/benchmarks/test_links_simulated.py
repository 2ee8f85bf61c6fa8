"""Simulated clusters: rounds under load, what is measured alone, the record, and the verdict of it.

The coordinator, the parser and the judge are the real ones; figures come from made-up truth.
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_links_record import PROGRAMS, SETTINGS, pair

from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks import links
from seatrial.benchmarks.benchmark import Job
from seatrial.plan.requirement_problems import suspect_factor
from seatrial.results import two_way
from seatrial.results.judge import judge
from seatrial.results.record import Case, Run, Trial, Verdict
from seatrial.results.record import Job as RanJob
from seatrial.results.requirements import Requirements, load_requirements
from seatrial.results.verdict import conclude

SPEC = importlib.util.spec_from_file_location(
    "rounds_simulated", CHECKOUT / "src" / "seatrial" / "checks" / "node" / "rounds.py"
)
assert SPEC is not None
assert SPEC.loader is not None
rounds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rounds)

RULES = """
schema: 1
requirements:
  - {{select: {{check: links}}, metric: latency_us, basis: relative, peers: median,
     at_most: {most}}}
  - {{select: {{check: links}}, metric: "*_MB_s", basis: relative, peers: median,
     at_least: {least}}}
  - {{select: {{check: links}}, metric: latency_us, basis: contract, source: t, unit: us,
     at_most: {limit}}}
informative:
  - {{select: {{}}, metric: n_half_B, reason: the curve}}
"""


def requirements(folder: Path, least: float, most: float, limit: float = 1e6) -> Requirements:
    file = folder / "requirements.yaml"
    file.write_text(RULES.format(least=least, most=most, limit=limit))
    return load_requirements(file)


def simulate(
    count: int,
    rules: Requirements,
    seed: int,
    *,
    factor: float | None = None,
    bad: dict[tuple[int, ...], float] | None = None,
    loaded: float = 0.03,
    usual_us: float = 10.0,
) -> tuple[Run, Verdict]:
    """A trial of one run. ``bad``: node or link -> by which factor it is slow; ``loaded``: the
    fraction of the figures of rounds that the load makes one to five times worse."""
    rng, bad = random.Random(seed), bad or {}
    case = Case(check="links", transport="tcp", nodes=count)
    own = SETTINGS.model_copy(update={"suspect_factor": factor or suspect_factor(rules, [case])})
    lines: list[dict[str, Any]] = []

    def measure(wanted: list[tuple[int, int]], _: int, number: int | None) -> dict:
        measured = {}
        for low, high in wanted:
            truth = math.prod(bad.get(at, 1.0) for at in ((low,), (high,), (low, high)))

            def worse(truth: float = truth) -> float:
                if number is not None and rng.random() < loaded:
                    truth *= rng.uniform(1, 5)
                return truth * math.exp(rng.gauss(0, 0.01 if number is None else 0.03))

            line = pair(low, high, number, usual_us * worse(), 100 / worse(), 100 / worse())
            lines.append(line)
            measured[low, high] = rounds.figures_of(line)
        return measured

    coordinator = rounds.Coordinator.__new__(rounds.Coordinator)
    coordinator.options = {
        "suspect_factor": own.factor, "most_alone": links.ALONE_PER_NODE * count,
        "two_way": two_way.__file__, "at_once": own.at_once(count),
    }  # fmt: skip
    coordinator.connections, coordinator.failed = dict.fromkeys(range(count)), []
    coordinator.apart = {}
    coordinator.begun, coordinator.measure = rounds.time.monotonic(), measure
    in_rounds: dict = {}
    for number, one in enumerate(rounds.schedule(count)):
        in_rounds.update(measure(one, 0, number))
    coordinator.alone(in_rounds, rounds.time.monotonic() + 600)
    names = {str(number): f"n{number + 1}" for number in range(count)}
    record = [{"nodes": names}, *lines, {"end": True, "seconds": 1.0, "absent": {}}]
    job = Job(nodes=count, transport="tcp", programs=PROGRAMS, interface="eth1")
    parsed = links.parse("".join(json.dumps(line) + "\n" for line in record), [], job, own)
    run = Run(case=case, outcome="ran", metrics=parsed.metrics, suspects=parsed.suspects,
              unmeasured=parsed.unmeasured, job=RanJob(nodes=list(names.values())))  # fmt: skip
    trial = Trial(trial="t", site="s", started=datetime(2026, 1, 1, tzinfo=UTC), seatrial="1",
                  cases=[case])  # fmt: skip
    return run, conclude(trial, [run], judge(trial, [run], rules), rules)


BOUNDS = [(0.8, 1.25), (0.6, 1.6), (0.4, 3.0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("simulated")


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 24), st.integers(0, 10**6), st.sampled_from(BOUNDS), st.floats(1.2, 4.0))
def test_no_healthy_cluster_is_rejected_whatever_the_suspect_factor(
    folder: Path, count: int, seed: int, bounds: tuple[float, float], factor: float
) -> None:
    _, verdict = simulate(count, requirements(folder, *bounds), seed, factor=factor)
    assert verdict.counts.get("fail", 0) == 0, verdict.findings


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_derived_factor_accepts_a_healthy_cluster(
    folder: Path, bounds: tuple[float, float]
) -> None:
    for seed in range(3):
        _, verdict = simulate(32, requirements(folder, *bounds), seed)
        assert verdict.verdict == "accept", verdict.findings


def test_what_is_slower_than_a_tight_bound_is_measured_alone_and_fails(folder: Path) -> None:
    rules = requirements(folder, 0.8, 1.25)
    run, verdict = simulate(32, rules, 1, bad={(4, 9): 1.35, (20,): 1.35})
    assert verdict.verdict == "reject"
    faults = {suspect.location for suspect in run.suspects if suspect.conclusion == "fault"}
    assert {"n10-n5", "n21"} <= faults <= {"n10-n5", "n10>n5", "n5>n10", "n21"}
    assert "node n21 is common to" in verdict.findings[0]
    assert any("n10-n5" in finding for finding in verdict.findings)


@pytest.mark.parametrize("loaded", [0.0, 0.03])
def test_a_fabric_that_is_slow_everywhere_breaks_its_contract(folder: Path, loaded: float) -> None:
    rules = requirements(folder, 0.6, 1.6, limit=15.0)
    _, verdict = simulate(16, rules, 1, usual_us=20.0, loaded=loaded)
    assert verdict.verdict == "reject"
    assert verdict.counts["fail"] >= rounds.CONTROLS


@pytest.mark.parametrize("count", [8, 16])
def test_each_of_half_of_the_nodes_is_named(folder: Path, count: int) -> None:
    slow = range(0, count, 2)
    rules = requirements(folder, 0.6, 1.6)
    _, verdict = simulate(count, rules, 1, bad={(at,): 3.0 for at in slow})
    assert verdict.verdict in ("reject", "incomplete")
    names = ", ".join(f"n{at + 1}" for at in slow)
    assert any(
        "are slow in their rounds and alone" in finding and f": {names}: check each" in finding
        for finding in verdict.findings
    )
