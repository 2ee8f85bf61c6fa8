"""The cases that a trial runs again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plan_support import bare_stack
from seatrial.base import yamlfile
from seatrial.plan.resolve import resolve
from seatrial.results.record import Case, Job, Judgement, Run, Trial
from seatrial.results.record import Requirement as RequirementRecord
from seatrial.results.requirements import Document, Requirements, build
from seatrial.site.load import load_site
from seatrial.trial.rerun import cases_to_rerun, first_nodes
from trial_support import make_site


@pytest.fixture
def stack():
    return bare_stack()


@pytest.fixture
def site(tmp_path):
    return load_site(
        make_site(
            tmp_path / "site",
            {
                "netpipe": {},
                "imb": {"nodes": [2, 4], "transports": ["openmpi-*"]},
                "hpl": {"transports": ["mpich-ofi"]},
                "npb": {"transports": ["mpich-ofi"]},
                "tcp_stream": {},
                "node_compute": {},
            },
        )
    )


def judgement(case, verdict="fail", metric="latency_us", rule="", samples=(50.0,)):
    applied = RequirementRecord(id=rule, basis="relative", text="") if rule else None
    return Judgement(
        case=case, metric=metric, verdict=verdict, requirement=applied, explanation="a test",
        samples=list(samples), upper=33.0,
    )  # fmt: skip


@pytest.fixture
def again(site, stack):
    """``again(judgement, ...)``: the ids of the cases that are run again."""
    cases = resolve(site, stack).cases
    now = datetime(2026, 8, 1, tzinfo=UTC)
    trial = Trial(trial="t", site="s", started=now, seatrial="0", cases=cases, reruns=2)

    def call(*judgements, requirements=None):
        return [one.id for one in cases_to_rerun(trial, judgements, requirements or Requirements())]

    return call


@pytest.fixture
def by_id(site, stack):
    return {case.id: case for case in resolve(site, stack).cases}


def test_cases_to_rerun(again, by_id):
    tcp, mpi = by_id["netpipe.tcp.default.2n"], by_id["netpipe.mpich-ofi.default.2n"]
    assert again(judgement(tcp, "pass"), judgement(mpi, "missing")) == []
    assert again(judgement(tcp), judgement(tcp, "inconclusive", "bandwidth_MB_s")) == [tcp.id]
    # all variants are of one job
    ep = by_id["npb-ep.S.mpich-ofi.default.2n"]
    npb = [name for name in by_id if name.startswith("npb")]
    assert len(npb) > 1
    assert again(judgement(ep)) == npb
    # ReFrame runs all pairs of a check's transports and numbers of nodes
    small, large = by_id["imb.openmpi-tcp.default.2n"], by_id["imb.openmpi-ucx.default.4n"]
    assert again(judgement(small)) == [small.id]
    imb = [name for name in by_id if name.startswith("imb")]
    assert len(imb) == 4
    assert again(judgement(small), judgement(large)) == imb


def test_no_rerun_if_it_cannot_change_the_verdict(again, by_id):
    tcp = by_id["netpipe.tcp.default.2n"]
    assert again(judgement(tcp, "error", "")) == []
    assert again(judgement(tcp), judgement(tcp, "error", "")) == []
    assert again(judgement(tcp, samples=[50, 30])) == [tcp.id]
    assert again(judgement(tcp, samples=[50, 51])) == []  # two of at most three
    assert again(replace(judgement(tcp), statistic="best")) == [tcp.id]
    assert again(replace(judgement(tcp, samples=[50, 51]), statistic="best")) == []
    for statistic in ("worst", "p99"):
        assert again(replace(judgement(tcp), statistic=statistic)) == []
    assert again(replace(judgement(tcp, "inconclusive"), upper=None)) == []


def test_disturbed_cases_run_again_up_to_the_limit(again, by_id):
    tcp = by_id["netpipe.tcp.default.2n"]
    doubt = judgement(tcp, "inconclusive", samples=[50, 51])
    assert again(replace(doubt, disturbed=2)) == [tcp.id]
    assert again(replace(judgement(tcp, "fail", samples=[50, 51]), disturbed=2)) == []


def test_a_figure_in_doubt_runs_again_though_it_has_no_bounds(again, by_id):
    case = by_id["npb-ep.S.mpich-ofi.default.2n"]
    doubtful = replace(judgement(case, "inconclusive"), upper=None)
    assert again(doubtful) == []  # as without peers, of which more runs make no more
    doubtful = replace(doubtful, in_doubt=True)
    assert case.id in again(doubtful)
    assert case.id in again(replace(doubtful, statistic="worst"))


def test_cases_that_are_compared_run_again_too(again, by_id):
    text = """
schema: 1
requirements:
  - select: {check: netpipe}
    metric: latency_us
    basis: relative
    relative_to: {transport: tcp, metric: latency_us}
    at_most: 2
"""
    rules = build(*yamlfile.loads(text, Document, "requirements.yaml"), Path("requirements.yaml"))
    rule = rules.rules[0].id
    tcp, mpi = by_id["netpipe.tcp.default.2n"], by_id["netpipe.mpich-ofi.default.2n"]
    ids = again(judgement(mpi, rule=rule), requirements=rules)
    assert sorted(ids) == sorted([mpi.id, tcp.id])
    ids = again(judgement(mpi, "pass", rule=rule), judgement(tcp), requirements=rules)
    assert sorted(ids) == sorted([mpi.id, tcp.id])


def test_nodes_of_a_rerun_are_the_nodes_of_the_first_run():
    case = Case(check="tcp_stream", transport="tcp", nodes=2)
    runs = [
        Run(case=case, repeat=at, outcome="ran", job=Job(nodes=nodes))
        for at, nodes in ((1, ["n3", "n4"]), (0, ["n1", "n2"]))
    ]
    assert first_nodes(runs) == {case: ["n1", "n2"]}
