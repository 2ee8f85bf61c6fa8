"""Which cases a trial consists of, told without running anything."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from trial_support import MPI, make_site

from seatrial.base import yamlfile
from seatrial.base.errors import InputError
from seatrial.results.record import Case, Job, Judgement, Run, Trial
from seatrial.results.record import Requirement as RequirementRecord
from seatrial.results.requirements import Document, Requirements, build
from seatrial.site.load import load_site
from seatrial.stack.model import Blas, Stack, Transport
from seatrial.trial.plan import Selection, not_offered, planned, select
from seatrial.trial.rerun import doubtful, first_nodes

MPI_PROGRAMS = ("netpipe", "imb", "osu_latency", "hpcc", "npb_is", "npb_ep")


@pytest.fixture(scope="module")
def stack():
    """A stack that has everything but IMB under openmpi-ofi and the BLAS library atlas."""
    transports = {
        name: Transport(
            name=name,
            description="",
            family="mpich",
            programs={
                program: ["true"]
                for program in MPI_PROGRAMS
                if (name, program) != ("openmpi-ofi", "imb")
            },
        )
        for name in MPI
    }
    for name in ("tcp", "none"):
        transports[name] = Transport(name=name, description="", family="")
    blas = {name: Blas(folder="/", version="1", package=name) for name in ("blis", "openblas")}
    return Stack(
        id="x", prefix="/x", distribution="d", versions={}, origins={},
        transports=transports, blas_libraries=blas,
    )  # fmt: skip


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
    cases = planned(site, stack)
    now = datetime(2026, 8, 1, tzinfo=UTC)
    trial = Trial(trial="t", site="s", started=now, seatrial="0", cases=cases, reruns=2)

    def call(*judgements, requirements=None):
        return [one.id for one in doubtful(trial, judgements, requirements or Requirements())]

    return call


@pytest.fixture
def by_id(site, stack):
    return {case.id: case for case in planned(site, stack)}


def test_what_is_run_again(again, by_id):
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


def test_what_further_runs_cannot_change_is_not_run_again(again, by_id):
    tcp = by_id["netpipe.tcp.default.2n"]
    assert again(judgement(tcp, "error", "")) == []
    assert again(judgement(tcp), judgement(tcp, "error", "")) == []
    assert again(judgement(tcp, samples=[50, 30])) == [tcp.id]
    assert again(judgement(tcp, samples=[50, 51])) == []  # two of at most three
    best = {"update": {"statistic": "best"}}
    assert again(judgement(tcp).model_copy(**best)) == [tcp.id]
    assert again(judgement(tcp, samples=[50, 51]).model_copy(**best)) == []
    for statistic in ("worst", "p99"):
        assert again(judgement(tcp).model_copy(update={"statistic": statistic})) == []
    assert again(judgement(tcp, "inconclusive").model_copy(update={"upper": None})) == []


def test_what_other_programs_disturbed_is_run_again_as_often_as_the_site_says(again, by_id):
    tcp = by_id["netpipe.tcp.default.2n"]
    load = {"update": {"disturbed": 2}}
    assert again(judgement(tcp, "inconclusive", samples=[50, 51]).model_copy(**load)) == [tcp.id]
    assert again(judgement(tcp, "fail", samples=[50, 51]).model_copy(**load)) == []


def test_what_is_compared_is_run_again_as_well(again, by_id):
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
    found = again(judgement(mpi, rule=rule), requirements=rules)
    assert sorted(found) == sorted([mpi.id, tcp.id])
    found = again(judgement(mpi, "pass", rule=rule), judgement(tcp), requirements=rules)
    assert sorted(found) == sorted([mpi.id, tcp.id])


def test_places_are_those_of_the_first_run():
    case = Case(check="tcp_stream", transport="tcp", nodes=2)
    runs = [
        Run(case=case, repeat=at, outcome="ran", job=Job(nodes=nodes))
        for at, nodes in ((1, ["n3", "n4"]), (0, ["n1", "n2"]))
    ]
    assert first_nodes(runs) == {case: ["n1", "n2"]}


def ids(site, stack, **selection):
    return [case.id for case in planned(select(site, Selection(**selection)), stack)]


def test_all_cases(site, stack):
    assert sorted(ids(site, stack)) == sorted(
        [f"netpipe.{name}.default.2n" for name in [*MPI, "tcp"]]
        + [f"imb.{t}.default.{n}n" for t in ("openmpi-tcp", "openmpi-ucx") for n in (2, 4)]
        + [f"hpl-{blas}.mpich-ofi.default.2n" for blas in ("blis", "openblas")]
        + [f"npb-{kernel}.S.mpich-ofi.default.2n" for kernel in ("is", "ep")]
        + ["tcp_stream.tcp.default.2n", "node_compute.none.default.4n"]
    )


def test_selections(site, stack):
    assert ids(site, stack, checks=("netpipe",), transports=("mpich-*",)) == [
        "netpipe.mpich-ucx.default.2n",
        "netpipe.mpich-ofi.default.2n",
    ]
    assert ids(site, stack, transports=("none",)) == ["node_compute.none.default.4n"]
    assert ids(site, stack, checks=("tcp_str*",)) == ["tcp_stream.tcp.default.2n"]
    assert ids(site, stack, checks=("tcp_stream",), transports=("mpich-ofi",)) == []
    # a pattern of profiles becomes the names it stands for: a site file holds names only
    assert select(site, Selection(profiles=("def*",))).trial.profiles == ["default"]
    assert select(site, Selection(repeats=7)).trial.repeats == 7
    assert select(site, Selection()).trial.repeats == site.trial.repeats


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"checks": ("netpip",)}, "--check 'netpip' matches nothing (did you mean 'netpipe'?)"),
        ({"checks": ("osu",)}, "--check 'osu' matches nothing (known here: hpl, imb,"),
        ({"transports": ("openmpi-tpc",)}, "did you mean 'openmpi-tcp'?"),
        ({"profiles": ("quick",)}, "--profile 'quick' matches nothing (known here: default)"),
    ],
)
def test_unknown_names(site, selection, sentence):
    with pytest.raises(InputError) as error:
        select(site, Selection(**selection))
    assert sentence in str(error.value)
    assert error.value.exit_code == 3


def test_all_unknown_names_are_told_at_once(site):
    with pytest.raises(InputError) as error:
        select(site, Selection(checks=("a",), transports=("b",), profiles=("c",)))
    assert str(error.value).count("matches nothing") == 3


def test_what_the_stack_cannot_give_is_said(site, stack):
    assert list(not_offered(site, stack)) == [
        "imb did not run under openmpi-ofi: the stack has no program for it",
        "hpl did not run with atlas: not in the stack (known here: blis, openblas)",
    ]
    only = select(site, Selection(checks=("netpipe",)))
    assert list(not_offered(only, stack)) == []


def test_the_stack_says_why_it_has_no_program(site, stack):
    lacking = stack.model_copy(deep=True)
    lacking.transports["openmpi-tcp"].programs.pop("imb")
    lacking.transports["openmpi-tcp"].lacks = {"imb": "its binary is of another ABI"}
    assert [text for text in not_offered(site, lacking) if text.startswith("imb")] == [
        "imb did not run under openmpi-tcp: its binary is of another ABI",
        "imb did not run under openmpi-ofi: the stack has no program for it",
    ]


def test_reframe_is_offered_exactly_what_is_planned(site, stack, monkeypatch, tmp_path):
    """What is not selected has no feature, so that ReFrame does not run it either."""
    from seatrial.checks import configuration as reframe

    monkeypatch.setattr(reframe, "load_stack", lambda site: stack)
    chosen = select(site, Selection(checks=("netpipe", "tcp_stream"), transports=("mpich-ofi",)))
    offers = {env["name"]: env["features"] for env in reframe._environments(chosen)}
    assert {name: found for name, found in offers.items() if found} == {"mpich-ofi": ["netpipe"]}


def test_a_stack_with_a_program_per_kernel_and_blas_gives_what_it_has(site, stack):
    """Spack's stack has no program that takes any kernel, class or BLAS."""
    stack = stack.model_copy(deep=True)
    part = stack.transports["mpich-ofi"]
    part.programs = {"npb_is.S": ["/opt/is.S.x"], "hpcc.blis": ["/opt/hpcc"], "xhpl.blis": ["/x"]}
    only = select(site, Selection(checks=("npb", "hpl")))
    assert [case.variant for case in planned(only, stack)] == ["blis", "is.S"]
    told = " ".join(not_offered(only, stack))
    assert "npb ep.S did not run under mpich-ofi: the stack has no program" in told
    assert "hpl openblas did not run under mpich-ofi" in told
