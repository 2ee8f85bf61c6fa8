"""Requirements held against the plan of their site: each error with line, field and correction."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from plan_support import bare_stack
from seatrial.base.errors import InputError, Problem
from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks.benchmark import Benchmark, Settings
from seatrial.benchmarks.registry import registry
from seatrial.plan.check import CheckedSite, check_site
from seatrial.plan.resolve import plan_of
from seatrial.plan.selection import Selection
from seatrial.results.record import TransportUse
from seatrial.site.load import load_site
from seatrial.stack import complete
from seatrial.stack.complete import complete_stack
from trial_support import make_site

BENCHMARKS = {
    "netpipe": {},
    "imb": {"max_bytes": 1024, "profiles": ["default"]},
    "hpl": {"blas": ["openblas"], "profiles": ["default"], "size": 1000},
    "tcp_stream": {},
    "links": {"nodes": [4]},
    "node_compute": {"nodes": [4]},
}
JUMBO = {"jumbo": {"description": "j", "networks": ["test"], "mtu": 9000}}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """``make(requirements, **trial)``: the file of a small site whose stack is there."""
    folder = tmp_path / "stack"
    folder.mkdir()
    bare_stack().model_copy(update={"prefix": str(folder)}).save()
    monkeypatch.setenv("SEATRIAL_STACK", str(folder))

    def site(requirements: str, transports=("mpich-ofi", "openmpi-ofi"), **trial) -> Path:
        load_site.cache_clear()
        own = transports if isinstance(transports, dict) else {key: {} for key in transports}
        return make_site(tmp_path / "site", BENCHMARKS, requirements, own, JUMBO, **trial)

    return site


def entries(*texts: str) -> str:
    return "schema: 1\nrequirements:\n" + "".join(f"  - {{{text}}}\n" for text in texts)


def contract(select: str, metric: str = "latency_us", bound: str = "at_most: 9, unit: us") -> str:
    return f"select: {{{select}}}, metric: {metric}, basis: contract, source: t, {bound}"


def relative(select: str, to: str, metric: str = "latency_us", bound: str = "at_most: 9") -> str:
    return (
        f"select: {{{select}}}, metric: {metric}, basis: relative, relative_to: {{{to}}}, {bound}"
    )


def problems(file: Path) -> list[Problem]:
    with pytest.raises(InputError) as error:
        check_site(file)
    return error.value.problems


WRONG = [
    (contract("check: netpip"), "select.check", "'netpip' matches no check", "'netpipe'"),
    (contract("check: mpbench"), "select.check", "does not run benchmark 'mpbench'", "site.yaml"),
    (contract("check: netpipe, profile: jumb"), "select.profile", "no NIC profile", "'jumbo'"),
    (contract("check: netpipe, profile: [default, 'j?']"), "select.profile.1", "'j?'",
     "default, jumbo"),
    (contract("check: netpipe, transport: mpich-off"), "select.transport", "", "'mpich-ofi'"),
    (contract("check: netpipe, nodes: 8"), "select.nodes", "'8' matches no number", "2, 4"),
    (contract("check: hpl, variant: mkl"), "select.variant", "'mkl'", "openblas"),
    (contract("check: tcp_stream, transport: mpich-ofi"), "select.transport",
     "no case of check 'tcp_stream' has transport 'mpich-ofi'", "transport 'tcp'"),
    (contract("check: netpipe", "latncy_us"), "metric", "not a metric of netpipe", "'latency_us'"),
    (contract("check: netpipe", "'*_GFLOPS'"), "metric", "not a metric", "latency_us"),
    (contract("check: 'n*'"), "select.check", "check 'node_compute' has no metric", "mops"),
    (contract("check: imb", "pingpong_latency_us", "at_most: 9, unit: MB/s"), "unit",
     "measured in us, not in MB/s", "unit: us"),
    (contract("check: links, location: n1-n5"), "select.location", "'n1-n5'", "'n1-n"),
    (contract("check: links, location: n2-n1"), "select.location", "'n2-n1'", "'n1-n2'"),
    (contract("check: netpipe, location: n1"), "select.location", "", "case as a whole"),
    (contract("check: netpipe", bound="reference: 9, upper: 10, unit: us"), "upper",
     "10 allows +1000%", "as 0.1"),
    (contract("check: netpipe", "bandwidth_MB_s", "reference: 9, lower: -1, unit: MB/s"), "lower",
     "above 0 times", "-0.05"),
    (contract("check: netpipe", "bandwidth_MB_s", "reference: 9, lower: -0.9999, unit: MB/s"),
     "lower", "above 0.0001 times", "at_least"),
    (contract("check: links, location: n1-n2", bound="relative_to: {metric: latency_us, "
              "location: n1-n2}, at_most: 1.5"), "relative_to", "with itself", "location"),
    (contract("check: netpipe, transport: tcp", bound="relative_to: {check: netpipe, "
              "transport: tcp, metric: latency_us, location: ''}, at_most: 1.5"), "relative_to",
     "with itself", "another"),
    (contract("check: netpipe", "bandwidth_MB_s", "at_least: 0, unit: MB/s"), "at_least",
     "at least 0", "least acceptable"),
    (contract("check: netpipe", "bandwidth_MB_s", "at_least: -5, unit: MB/s"), "at_least",
     "at least -5", "least acceptable"),
    (contract("check: netpipe", bound="reference: 0, lower: -5, unit: us"), "reference",
     "at least 0", "least acceptable"),
    (contract("check: links, location: [n1-n2, n1-n5]"), "select.location.1", "'n1-n5'", "'n1-n"),
    (contract("check: netpipe", bound="peers: median, at_most: 2"), "peers", "no peers",
     "relative_to"),
    (relative("check: netpipe", "metric: latency_us"), "relative_to", "with itself", "another"),
    (relative("check: imb", "check: netpipe, transport: tpc, metric: latency_us",
              "pingpong_latency_us"), "relative_to", "'tpc' matches no transport", "'tcp'"),
    (relative("check: imb", "check: netpipe, metric: latncy_us", "pingpong_latency_us"),
     "relative_to.metric", "not a metric of netpipe", "'latency_us'"),
    (relative("check: imb", "check: netpipe, metric: bandwidth_MB_s", "pingpong_latency_us"),
     "relative_to.metric", "in MB/s, and pingpong_latency_us in us", "same unit"),
    (relative("check: tcp_stream", "check: imb, metric: pingpong_bandwidth_MB_s",
              "bandwidth_MB_s"), "relative_to", "imb.tcp.default.2n, which is not a case", ""),
    (relative("check: netpipe", "check: links, nodes: 4, location: n1-n9, transport: tcp, "
              "metric: latency_us"), "relative_to.location", "'n1-n9'", "'n1-n"),
    (relative("check: netpipe", "transport: tcp, metric: latency_us", bound="at_most: 5000"),
     "at_most", "5000 times", "1000"),
    (contract("check: netpipe", bound="at_least: 9, unit: us"), "at_least",
     "lower values of latency_us are better", "at_most"),
    (contract("check: netpipe", "bandwidth_MB_s", "reference: 9, upper: 0.1, unit: MB/s"), "upper",
     "higher values of bandwidth_MB_s are better", "lower"),
    (contract("check: links", bound="peers: median, at_least: 0.5"), "at_least",
     "lower values", "at_most"),
    (contract("check: netpipe", bound="at_most: 1e300, unit: us"), "at_most", "1e+300 us",
     "from 0.001 to 1e+07 us"),
    (contract("check: netpipe", bound="at_most: -3, unit: us"), "at_most", "-3 us", "0.001"),
    (contract("check: netpipe", "bandwidth_MB_s", "at_least: 1e-9, unit: MB/s"), "at_least",
     "1e-09 MB/s", "0.001"),
    (contract("check: netpipe", "bandwidth_MB_s", "reference: 1e9, lower: -0.1, unit: MB/s"),
     "reference", "9e+08 MB/s", "1e+07"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "field", "message", "correction"), WRONG)
def test_a_wrong_requirement(make, entry, field, message, correction):
    good = contract("check: netpipe", bound="reference: 9, upper: 0.1, unit: us")
    (problem,) = problems(make(entries(good, entry)))
    assert (problem.line, problem.field) == (4, f"requirements.1.{field}")
    assert str(problem.file).endswith("requirements.yaml")
    assert message in problem.message
    assert correction in problem.correction


RIGHT = [
    contract("check: netpipe", bound="at_least: 0, at_most: 9, unit: us"),
    contract("check: netpipe", "bandwidth_MB_s", "reference: 9, lower: -0.1, upper: 1, unit: MB/s"),
    # A profile may cost something, and interrupts can prove that it is in effect.
    relative("check: netpipe, profile: jumbo", "profile: default, metric: latency_us",
             bound="at_least: 1.5"),
    contract("check: tcp_stream", "cpu_sender_percent", "at_most: 0, unit: percent"),
]  # fmt: skip


@pytest.mark.parametrize("entry", RIGHT)
def test_a_right_requirement(make, entry):
    assert check_site(make(entries(entry))).requirements.rules


def test_informative_entries_are_checked_too(make):
    text = "schema: 1\ninformative:\n  - {select: {check: hpl}, metric: [mops], reason: r}\n"
    (problem,) = problems(make(text))
    assert (problem.line, problem.field) == (3, "informative.0.metric.0")


def test_only_a_contract_needs_its_benchmark(make):
    """Other entries of a benchmark that the site does not run may stay in the file."""
    other = relative("check: mpbench", "check: netpipe, metric: latency_us")
    assert check_site(make(entries(other))).judged == {}
    text = "schema: 1\ninformative:\n  - {select: {check: osu}, metric: xyz, reason: r}\n"
    assert check_site(make(text)).judged == {}


def peers(metric: str, bound: str) -> str:
    return f"select: {{check: links}}, metric: {metric}, basis: relative, peers: median, {bound}"


def test_a_suspect_factor_wider_than_a_bound_of_links_is_refused(make):
    text = entries(peers("latency_us", "at_most: 2.9"), peers("'stream_*'", "at_least: 0.8"),
                   peers("bandwidth_MB_s", "at_least: 0.4"))  # fmt: skip
    file = make(text)
    assert check_site(file)
    assert plan_of(file).benchmarks["links"]["suspect_factor"] == pytest.approx(1.25**0.9)
    site = file.read_text()
    file.write_text(site.replace("  links:\n", "  links:\n    suspect_factor: 1.5\n"))
    load_site.cache_clear()
    (problem,) = problems(file)
    assert (problem.line, problem.field) == (4, "requirements.1.at_least")
    assert "only links 1.5 times worse are measured again alone" in problem.message
    assert problem.correction == "suspect_factor: 1.22, or leave it out"


def test_the_suspect_factor_is_the_usual_one_beside_wide_bounds(make):
    assert plan_of(make(entries())).benchmarks["links"]["suspect_factor"] == 1.5


def test_errors_of_both_files_come_together(make):
    file = make(entries("select: {check: netpipe}, metric: latency_us, basis: contract"))
    file.write_text(file.read_text().replace("role: management", "role: mgmt"))
    assert {Path(problem.file).name for problem in problems(file)} == {
        "site.yaml",
        "requirements.yaml",
    }


def test_a_transport_that_the_stack_lacks(make):
    (problem,) = problems(make(entries(), transports=("mpich-ofi", "mpich-ofx")))
    assert problem.field == "transports.mpich-ofx"
    assert problem.message == "the stack has no transport 'mpich-ofx'"
    assert "'mpich-ofi'" in problem.correction
    assert problem.line


SMALL = {"base": "openmpi-ofi", "env": {"OMPI_MCA_btl_tcp_sndbuf": "16384"}}


def test_a_variant_of_a_transport_has_its_programs_and_variables_of_its_own(make):
    file = make(entries(), transports={"openmpi-ofi": {}, "openmpi-ofi-small": SMALL})
    plan = check_site(file).plan
    whole, variant = plan.transports["openmpi-ofi"], plan.transports["openmpi-ofi-small"]
    assert variant.programs == whole.programs
    assert whole.declared == TransportUse(name="openmpi-ofi")
    assert variant.declared == TransportUse(name="openmpi-ofi-small", **SMALL)
    assert variant.under("default").env == {**whole.under("default").env, **SMALL["env"]}
    names = {case.transport for case in plan.cases if case.check == "netpipe"}
    assert names == {"tcp", "openmpi-ofi", "openmpi-ofi-small"}


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize(
    ("name", "base", "message", "correction"),
    [
        ("openmpi-ofx-a", "openmpi-ofx", "no transport 'openmpi-ofx'", "'openmpi-ofi'"),
        ("openmpi-ofi-a-b", "openmpi-ofi-a", "no transport 'openmpi-ofi-a'", "'openmpi-ofi'"),
        ("small", "openmpi-ofi", "is not the name of its base", "openmpi-ofi-WORD"),
        ("openmpi-ofi-", "openmpi-ofi", "is not the name of its base", "openmpi-ofi-WORD"),
        ("openmpi-ofi-c", "openmpi-ofx", "is not the name of its base", "correct the base"),
        ("openmpi-ofi", "openmpi-ofi", "its own base", "leave base out"),
        ("tcp-a", "tcp", "'tcp' is for runs without MPI", "transport of an MPI"),
    ],
)
def test_a_base_that_cannot_be(make, monkeypatch, stack, name, base, message, correction):
    file = make(entries(), transports={"openmpi-ofi-a": SMALL, name: {"base": base}})
    if not stack:
        monkeypatch.setenv("SEATRIAL_STACK", "/nonexistent")
    (problem,) = problems(file)
    assert problem.field == f"transports.{name}.base"
    assert message in problem.message
    assert correction in problem.correction
    assert problem.line


def test_the_base_that_a_variant_lacks_is_suggested(make):
    (problem,) = problems(make(entries(), transports={"openmpi-ofi-a": {}}))
    assert problem.correction == "if it is a variant of openmpi-ofi, add base: openmpi-ofi"


def test_a_long_name_is_refused(make):
    """Folders of cases have several names in theirs."""
    file = make(entries(), transports={"openmpi-ofi": {}, f"openmpi-ofi-{'a' * 300}": SMALL})
    (problem,) = problems(file)
    assert "at most 64 characters" in f"{problem.message} {problem.correction}"
    assert problem.line


def test_a_variant_cannot_take_the_name_of_another_transport(make):
    stack = bare_stack()
    both = {**stack.transports, "openmpi-ofi-x": stack.transports["openmpi-ofi"]}
    file = make(entries(), transports={"openmpi-ofi-x": SMALL})
    stack.model_copy(update={"prefix": os.environ["SEATRIAL_STACK"], "transports": both}).save()
    (problem,) = problems(file)
    assert (problem.field, problem.message) == (
        "transports.openmpi-ofi-x", "the stack has a transport 'openmpi-ofi-x' of its own"
    )  # fmt: skip


def test_without_a_stack_every_program_is_assumed(make, monkeypatch):
    file = make(entries(contract("check: imb, transport: openmpi-ofi", "pingpong_latency_us")))
    monkeypatch.setenv("SEATRIAL_STACK", "/nonexistent")
    checked = check_site(file)
    assert "there is no stack" in checked.stack_missing
    assert "assumes a stack with every program" in checked.stack_missing
    assert [case.id for case in checked.judged["requirements.yaml:3"]] == [
        "imb.openmpi-ofi.default.2n"
    ]
    (problem,) = problems(make(entries(), transports=("mpich-ofx",)))
    assert problem.message == "a stack of the distribution has no transport 'mpich-ofx'"


def test_a_transport_that_only_spack_builds_is_found_before_the_stack_is_built(make, monkeypatch):
    monkeypatch.setenv("SEATRIAL_STACK", "/nonexistent")
    file = make(entries(), transports=("mpich-ofi", "mpich-sock"))
    (problem,) = problems(file)
    assert problem.message == "a stack of the distribution has no transport 'mpich-sock'"
    assert problem.line
    file.write_text(file.read_text().replace("source: distribution", "source: spack", 1))
    assert check_site(file).stack_missing


def test_the_cases_of_each_contract(make):
    checked = check_site(make(CONTRACTS))
    assert {id: [case.id for case in cases] for id, cases in checked.judged.items()} == {
        "requirements.yaml:3": [
            "netpipe.mpich-ofi.default.2n",
            "netpipe.openmpi-ofi.default.2n",
            "netpipe.tcp.default.2n",
        ],
        "requirements.yaml:4": ["links.tcp.default.4n"],
        "requirements.yaml:5": [],
        "requirements.yaml:6": [],
    }
    assert checked.untested == {
        "requirements.yaml:5": "trial.profiles leaves out jumbo",
        "requirements.yaml:6": "the stack has no program for imb.openmpi-ofi.default.2n",
    }


CONTRACTS = entries(
    contract("check: netpipe"),
    contract("check: links, location: n1-n2"),
    contract("check: netpipe, profile: jumbo"),
    contract("check: imb, transport: openmpi-ofi", "pingpong_latency_us"),
)


def test_a_selection_leaves_contracts_untested(make):
    checked = check_site(make(CONTRACTS), Selection(checks=("netpipe",), profiles=("jumbo",)))
    assert [case.profile for case in checked.judged["requirements.yaml:5"]] == ["jumbo"] * 3
    assert checked.untested["requirements.yaml:4"] == "the selection leaves out its cases"


def test_figures_without_a_requirement(make):
    checked: CheckedSite = check_site(make(entries(contract("check: netpipe"))))
    metrics = {(case.check, name, location) for case, name, location in checked.figures()}
    assert ("links", "bandwidth_MB_s", "n1-n2") in metrics
    assert ("node_compute", "mops", "n1") in metrics
    assert ("imb", "allreduce_1024B_us", None) in metrics


def test_a_complete_stack_has_a_program_without_a_recipe(monkeypatch):
    ring = type("Ring", (Benchmark,), {"name": "ring", "Settings": Settings, "program": "ring"})
    monkeypatch.setattr(complete, "registry", lambda: {"ring": ring})
    assert "ring" in complete_stack(["mpich-ofi"], []).programs("mpich-ofi")


@pytest.mark.parametrize("name", registry())
def test_a_complete_stack_has_the_programs_of_every_benchmark(name):
    kind = registry()[name]
    settings = kind.Settings(**({"networks": ["test"]} if kind.spans_networks else {}))
    benchmark = kind(settings)
    stack = complete_stack(["mpich-ofi"], ["atlas", "blis", "openblas"])
    transport = benchmark.pseudo_transport or "mpich-ofi"
    programs = stack.programs(transport)
    assert all(
        benchmark.has_program(variant, programs, stack.blas())
        or transport == "tcp"  # its benchmarks name their programs in their steps
        for variant in benchmark.variants()
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "refused"),
    [
        ("lab", "accounting: true", "accounting: false", True),
        ("lab", "accounting: true # ", "# accounting: ", False),
        ("lab-virtual-4", "backend: squeue", "backend: slurm", False),
    ],
)
def test_a_lab_without_accounting_needs_the_back_end_without_sacct(
    tmp_path, name, old, new, refused
):
    """But for virtual labs, whose checks run in held jobs."""
    folder = shutil.copytree(CHECKOUT / "site-configs" / name, tmp_path / name)
    file = folder / "site.yaml"
    text = file.read_text().replace(old, new, 1)
    assert text != file.read_text()
    file.write_text(text)
    found = []
    try:
        check_site(file)
    except InputError as error:
        found = [str(problem) for problem in error.problems]
    line = text[: text.index("backend:")].count("\n") + 1
    message = "slurm, which is the default, needs accounting, which this lab does not have"
    correction = "squeue, or lab.accounting: true"
    assert found == [f"{file}:{line}: slurm.backend: {message} ({correction})"] * refused
