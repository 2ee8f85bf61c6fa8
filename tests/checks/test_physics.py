"""The facts of a run that physical limits are computed from: plan, NIC profile, nodes' records."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks.limits import Latency, Peak
from seatrial.checks.physics import known, peak_facts
from seatrial.plan.model import Attachment, Plan, PlannedPartition, PlannedProfile, PlannedTransport

NODE = CHECKOUT / "src" / "seatrial" / "checks" / "node"


def plan(settings: dict[str, Any] | None = None, **more: Any) -> Plan:
    """Two networks; the profile ``set`` has the settings of the interfaces."""
    where = [
        Attachment(network="test", interface="eth1", env={}, profiles=["default"]),
        Attachment(network="test", interface=more.pop("under", "eth1"), env={}, profiles=["set"]),
    ]
    path = more.pop("data_path", "kernel")

    def profile(own: dict[str, Any]) -> PlannedProfile:
        return PlannedProfile(
            declared={"nodes": {"n1": own, "n2": own}},
            interfaces={"test": "eth1"},
            transports=["mpi"],
            benchmarks=[],
        )

    return Plan(
        site="s",
        partitions={"p": PlannedPartition()},
        partition="p",
        backend="slurm",
        own_interfaces={"test": "eth1", "second": "eth2"},
        profiles={"default": profile({}), "set": profile(settings or {})},
        transports={"mpi": PlannedTransport(benchmarks=[], attachments=where, data_path=path)},
        benchmarks={},
        repeats=1,
        reruns=0,
        round_limit_s=1,
        cases=[],
        **more,
    )


def node(speed: Any = None, mtu: int = 1500, **processor: Any) -> dict[str, Any]:
    own = {"flags": ["sse2"], "max_kHz": None, **processor}
    return {"after": {"interfaces": {"eth1": {"speed_Mbit_s": speed, "mtu": mtu}}},
            "processor": own}  # fmt: skip


def test_the_line_rate_of_the_site_wins() -> None:
    rates = {"test": 10**10}
    facts = known(plan(line_rates=rates), "mpi", "default", [node(1000), node(1000)])
    assert facts.interface == "eth1"
    assert facts.lines["eth1"].value == 1250
    assert facts.lines["eth1"].source == "the line rate of network test in site.yaml"
    assert "eth2" not in facts.lines


def test_the_lowest_speed_that_the_cards_report() -> None:
    facts = known(plan(), "mpi", "default", [node(100_000), node(25_000)])
    assert facts.lines["eth1"].value == 3125
    assert "its driver reports" in facts.lines["eth1"].source


@pytest.mark.parametrize(
    "nodes",
    [
        [], [node(None), node(1000)], [node(-1)], [node(0)], [node("1000")],
        [node(1000, flags=["hypervisor", "sse2"])],  # an emulated card has the speed of the host
        [{"after": {"interfaces": {"eth1": {"speed_Mbit_s": 1000}}}}],
        [{"after": {"interfaces": {}}, "processor": {"flags": []}}],
        [{**node(1000), "processor": 3}],
    ],
)  # fmt: skip
def test_an_unknown_speed_gives_no_line_rate(nodes: list[dict[str, Any]]) -> None:
    assert known(plan(), "mpi", "default", nodes).lines == {}


def test_emulated_cards_of_the_virtual_lab_have_no_line_rate() -> None:
    nodes = [node(1000, max_kHz=3_000_000)]
    facts = known(plan(virtual_time=True), "mpi", "default", nodes)
    assert (facts.lines, facts.core) == ({}, None)


def test_the_egress_rate_of_the_profile() -> None:
    shaped = plan({"eth1": {"egress_bit_s": 10**9}})
    assert known(shaped, "mpi", "default", [node()]).shapers == {}
    rate = known(shaped, "mpi", "set", [node()]).shapers["eth1"]
    assert (rate.value, rate.bucket) == (125, 31250)
    assert rate.source == "the egress rate of profile set"
    slow = plan({"eth1": {"egress_bit_s": 10**8}})
    assert known(slow, "mpi", "set", [node(mtu=9000)]).shapers["eth1"].bucket == 18000
    both = plan({"eth1": {"egress_bit_s": 10**8, "mtu": 4000}})
    assert known(both, "mpi", "set", [node(mtu=9000)]).shapers["eth1"].bucket == 8000


def test_the_peak_of_a_core_is_a_fact_of_what_it_limits() -> None:
    nodes = [node(max_kHz=3_000_000, flags=["fma", "sse2"])]
    nodes[0]["after"]["cpus"] = 2
    facts = known(plan(), "mpi", "default", nodes)
    limits = [Latency("latency_us"), Peak("hpl_GFLOPS", cores="cores")]
    peak = {
        "core_peak_GFLOPS": 48.0,
        "core_peak_source": "3 GHz x 16 operations per cycle (fma)",
    }
    assert peak_facts(limits, facts, nodes, shared=False) == peak
    assert peak_facts(limits, facts, nodes, shared=True) == {**peak, "shared_cores": 2}
    assert peak_facts(limits[:1], facts, nodes, shared=False) == {}
    assert peak_facts(limits, known(plan(), "mpi", "default", [node()]), nodes, shared=True) == {}


def test_verbs_do_not_pass_the_shaper() -> None:
    shaped = plan({"eth1": {"egress_bit_s": 10**9}}, data_path="verbs")
    assert known(shaped, "mpi", "set", [node()]).shapers == {}


def test_a_bond_carries_what_its_members_carry() -> None:
    members = {"name": "bond0", "members": ["eth1", "eth2"]}
    settings = {"eth1": {"egress_bit_s": 10**9, "bond": members}, "eth2": {"egress_bit_s": 10**9}}
    rates = {"test": 10**10, "second": 10**10}
    facts = known(plan(settings, under="bond0", line_rates=rates), "mpi", "set", [node()])
    assert facts.interface == "bond0"
    assert (facts.lines["bond0"].value, facts.shapers["bond0"].value) == (2500, 250)
    assert facts.shapers["bond0"].bucket == 62500
    del settings["eth2"]["egress_bit_s"]
    facts = known(plan(settings, under="bond0"), "mpi", "set", [node()])
    assert "bond0" not in facts.lines
    assert "bond0" not in facts.shapers


@pytest.mark.parametrize(
    ("flags", "cycle"),
    [(["avx512f", "fma", "avx"], 32), (["fma", "avx"], 16), (["avx", "sse2"], 8), (["sse2"], 4)],
)
def test_the_peak_of_a_core(flags: list[str], cycle: int) -> None:
    nodes = [node(max_kHz=2_000_000, flags=flags), node(max_kHz=3_000_000, flags=flags)]
    core = known(plan(), "mpi", "default", nodes).core
    assert core is not None
    assert core.value == 3 * cycle
    assert core.source.startswith(f"3 GHz x {cycle} operations per cycle")


def test_no_peak_without_clock_or_vector_unit() -> None:
    fast = node(max_kHz=3_000_000, flags=["fma"])
    assert known(plan(), "mpi", "default", [fast, node(flags=["fma"])]).core is None
    assert known(plan(), "mpi", "default", [fast, node(max_kHz=3_000_000, flags=[])]).core is None
    assert known(plan(), "mpi", "default", []).core is None


# -- dgemm.py


BLAS = """
#include <unistd.h>
void dgemm_(char *ta, char *tb, int *m, int *n, int *k, double *alpha, double *a, int *lda,
            double *b, int *ldb, double *beta, double *c, int *ldc)
{
    usleep(*m == 100 ? 1000 : 4000);
    c[0] = *alpha * a[0] * b[0] + *beta;
    if (*ta != 'N' || *tb != 'N' || *m != *n || *n != *k || *lda != *k || *ldb != *k || *ldc != *k)
        _exit(9);
}
"""


def dgemm(tmp_path, *order_calls: int, **env: str) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/python3", "-IS", str(NODE / "dgemm.py"), "step", str(tmp_path / "lib")]
    return subprocess.run(
        [*command, *map(str, order_calls)], cwd=tmp_path, env=env, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip


@pytest.fixture
def library(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    (tmp_path / "blas.c").write_text(BLAS)
    for name, source in (("libblas.so.3", "blas.c"), ("libatlas.so", "/dev/null")):
        command = ["gcc", "-shared", "-fPIC", "-x", "c", source, "-o", folder / name]
        subprocess.run(command, cwd=tmp_path, check=True)
    return folder / "libblas.so.3"


def test_rates_of_dgemm(tmp_path, library):
    done = dgemm(tmp_path, 100, SLURM_PROCID="3")
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "step.3.dgemm.json").read_text())
    assert data["library"] == str(library)
    ((order, rates),) = data["GFLOPS"].items()
    assert order == "100"
    assert len(rates) >= 8
    assert 0 < max(rates) <= 2e-9 * 100**3 / 0.001  # a call takes 1 ms, and more on a busy machine


def test_a_small_and_a_large_order(tmp_path, library):
    assert dgemm(tmp_path, 300).returncode == 0
    data = json.loads((tmp_path / "step.0.dgemm.json").read_text())
    assert list(data["GFLOPS"]) == ["256", "300"]


def test_a_number_of_calls(tmp_path, library):
    assert dgemm(tmp_path, 300, 1).returncode == 0
    data = json.loads((tmp_path / "step.0.dgemm.json").read_text())
    assert [len(rates) for rates in data["GFLOPS"].values()] == [1, 1]


def test_a_library_without_dgemm(tmp_path, library):
    library.unlink()
    done = dgemm(tmp_path, 100)
    assert done.returncode == 1
    assert f"no library in {tmp_path}/lib has the function dgemm_" in done.stderr
    (tmp_path / "lib" / "libatlas.so").unlink()
    (tmp_path / "lib").rmdir()
    assert "No such file or directory" in dgemm(tmp_path, 100).stderr
    assert not list(tmp_path.glob("*.json*"))


def test_only_the_standard_library() -> None:
    lines = (NODE / "dgemm.py").read_text().splitlines()
    names = {line.split()[1] for line in lines if line.startswith(("import", "from"))}
    assert names <= set(sys.stdlib_module_names)
