"""The cases of a trial, planned without running anything."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet

from plan_support import MPI, bare_stack
from seatrial.base.errors import InputError
from seatrial.checks.configuration import configuration
from seatrial.plan.model import Plan
from seatrial.plan.resolve import plan_trial, resolve
from seatrial.plan.selection import Selection, select
from seatrial.results.record import Machine
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Machine as SiteMachine
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


def ids(site, stack, **selection):
    return [case.id for case in resolve(select(site, Selection(**selection)), stack).cases]


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


def test_all_unknown_names_are_reported_at_once(site):
    with pytest.raises(InputError) as error:
        select(site, Selection(checks=("a",), transports=("b",), profiles=("c",)))
    assert str(error.value).count("matches nothing") == 3


def test_a_note_names_what_the_stack_lacks(site, stack):
    assert resolve(site, stack).left_out == [
        "imb does not run under openmpi-ofi: the stack has no program for it",
        "hpl does not run with atlas: not in the stack (known here: blis, openblas)",
    ]
    only = select(site, Selection(checks=("netpipe",)))
    assert resolve(only, stack).left_out == []


def test_the_note_has_the_reason_of_the_stack(site, stack):
    lacking = stack.model_copy(deep=True)
    lacking.transports["openmpi-tcp"].programs.pop("imb")
    lacking.transports["openmpi-tcp"].lacks = {"imb": "its binary is of another ABI"}
    imb = {case.transport for case in resolve(site, lacking).lacking if case.check == "imb"}
    assert imb == {"openmpi-tcp", "openmpi-ofi"}
    assert not set(resolve(site, lacking).lacking) & set(resolve(site, lacking).cases)
    assert [text for text in resolve(site, lacking).left_out if text.startswith("imb")] == [
        "imb does not run under openmpi-tcp: its binary is of another ABI",
        "imb does not run under openmpi-ofi: the stack has no program for it",
    ]


def test_reframe_gets_the_planned_cases_only(site, stack, tmp_path):
    """What is not selected has no feature, so that ReFrame does not run it either."""
    chosen = select(site, Selection(checks=("netpipe", "tcp_stream"), transports=("mpich-ofi",)))
    made = configuration(resolve(chosen, stack), None, tmp_path / "plan.json")
    offers = {env["name"]: env["features"] for env in made["environments"]}
    assert {name: checks for name, checks in offers.items() if checks} == {"mpich-ofi": ["netpipe"]}


def test_a_stack_with_one_program_for_each_kernel_and_blas(site, stack):
    """Spack's stack has no program that takes any kernel, class or BLAS."""
    stack = stack.model_copy(deep=True)
    part = stack.transports["mpich-ofi"]
    part.programs = {"npb_is.S": ["/opt/is.S.x"], "hpcc.blis": ["/opt/hpcc"], "xhpl.blis": ["/x"]}
    only = select(site, Selection(checks=("npb", "hpl")))
    assert [case.variant for case in resolve(only, stack).cases] == ["blis", "is.S"]
    notes = " ".join(resolve(only, stack).left_out)
    assert "npb ep.S does not run under mpich-ofi: the stack has no program" in notes
    assert "hpl openblas does not run under mpich-ofi" in notes


def test_the_part_of_a_benchmark_that_a_stack_cannot_measure_is_a_note(site, stack):
    site.benchmarks.npb.mpi_time = ["*"]
    before = ids(site, stack)
    assert (
        "npb does not measure under mpich-ofi the share of communication: the stack has no library "
        "mpi_time"
    ) in resolve(site, stack).left_out
    assert ids(site, stack) == before
    stack.transports["mpich-ofi"].programs["mpi_time"] = ["/x/mpi_time.so"]
    assert not any("mpi_time" in note for note in resolve(site, stack).left_out)


def test_prices_and_peaks_of_the_site_are_in_the_plan(site, stack):
    assert resolve(site, stack).machine == Machine(nodes=len(site.node_names))
    for group in site.nodes:
        group.GHz, group.flop_per_cycle = 2.0, 16
    cost = {"name": "purchase", "usd": 1000, "date": "2026-11-01", "includes": "all"}
    [rail] = site.rails
    others = [{**cost, "network": rail}, {**cost, "profile": "default"}]
    site.machine = SiteMachine.model_validate(
        {"costs": [cost, *others], "power": {"watts": 900, "source": "BMC", "load": "HPL"}}
    )
    machine = resolve(site, stack).machine
    assert machine.peaks == {
        name: 32.0 * group.cores for group in site.nodes for name in NodeSet(group.names)
    }
    assert machine.power.source == "BMC"
    # a site that measures one network has none in the names of its cases
    assert [(c.network, c.profile, c.date) for c in machine.costs] == [
        ("", "", "2026-11-01"), ("", "", "2026-11-01"), ("", "default", "2026-11-01"),
    ]  # fmt: skip


def test_a_plan_is_read_as_it_was_written(site, stack):
    plan = resolve(site, stack)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_selection_is_in_the_plan_with_the_cases_that_it_leaves_out(tmp_path, monkeypatch):
    file = make_site(tmp_path / "site", {"netpipe": {}, "tcp_stream": {}})
    monkeypatch.setattr("seatrial.plan.resolve.load_stack", lambda site: bare_stack())
    whole = plan_trial(file, Selection())
    assert (whole.selection, whole.outside) == ({}, [])
    assert whole.repeats == whole.site_repeats == 1
    part = plan_trial(file, Selection(checks=("netp*",), repeats=2))
    assert part.selection == {"--check": ["netp*"]}
    assert (part.repeats, part.site_repeats) == (2, 1)
    assert {case.check for case in part.cases} == {"netpipe"}
    assert {case.check for case in part.outside} == {"tcp_stream"}
    assert set(whole.cases) == {*part.cases, *part.outside}


@pytest.mark.parametrize(
    ("site", "nodes", "ranks_per_node", "expected"),
    [
        ("lab-virtual", 2, 1, False),  # a processor for each node
        ("lab-virtual", 1, 2, True),
        ("lab-virtual-smp", 4, 2, False),
        ("lab-virtual-mtu", 2, 1, True),  # one for all
        ("lab-virtual-mtu", 1, 1, False),
    ],
)
def test_where_waiting_ranks_must_sleep(site, nodes, ranks_per_node, expected):
    plan = resolve(load_site(site_file(site)), bare_stack())
    assert plan.has_too_few_cores(nodes, ranks_per_node) == expected
    if plan.own_cores:
        # as where the emulator with a processor for each node cannot be built
        shared = plan.model_copy(update={"own_cores": None})
        assert shared.has_too_few_cores(nodes, ranks_per_node) == (nodes * ranks_per_node > 1)
