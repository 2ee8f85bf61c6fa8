"""What scripts do, with stubs for Slurm: all-pairs, the pinning of ranks, HPL's sizes."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_support import APPLICATION, harbour, rendered, run_stubbed, surroundings

from seatrial.benchmarks.hpl_input import grid
from seatrial.job import hpl
from seatrial.site.model import Nodes

# A pair is noted when it begins and when it ends; its figure is made of the nodes' numbers. The
# first ones wait until as many as can be have begun, for at most a minute.
SRUN = r"""
pair=$(printf '%s\n' "$@" | sed -n 's/^--nodelist=//p')
echo "begin $pair" >>"$OUT/log"
for _ in $(seq 600); do
    [ "$(grep -c begin "$OUT/log")" -ge "$AT_ONCE" ] && break
    sleep 0.1
done
echo "end $pair" >>"$OUT/log"
echo '# Size  Bandwidth'
echo "1  ${pair//[^0-9]/}"
case $pair in $BAD) exit 3 ;; esac
"""


def run_pairs(tmp_path, count, bad="none", **values):
    around = surroundings()
    site = around.site
    site.nodes[:] = [Nodes(names=f"n[1-{count}]", cores=2)]
    site.partitions["compute"].nodes = f"n[1-{count}]"
    text = rendered("all-pairs", around, values, nodes=count)
    stubs = {"srun": SRUN, "scontrol": f"printf 'n%d\\n' $(seq {count})"}
    done = run_stubbed(text, tmp_path, stubs, BAD=bad, AT_ONCE=str(count // 2))
    log = (tmp_path / "log").read_text().split("\n")[:-1]
    return done, [line.split() for line in log]


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_all_pairs_in_rounds_of_disjoint_pairs(tmp_path, count):
    done, log = run_pairs(tmp_path, count)
    assert done.returncode == 0, done.stderr
    nodes = [f"n{number}" for number in range(1, count + 1)]
    begun = [tuple(pair.split(",")) for what, pair in log if what == "begin"]
    assert sorted(begun) == list(itertools.combinations(nodes, 2))  # each once, in this order
    busy: set[str] = set()
    most = 0
    for what, pair in log:
        ends = set(pair.split(","))
        if what == "begin":
            assert not busy & ends, f"{ends} while {busy} are busy"
            busy |= ends
        else:
            busy -= ends
        most = max(most, len(busy) // 2)
    assert most == count // 2  # and as many at a time as can be
    assert f"n1-n{count}" in done.stdout


def test_all_pairs_tells_which_failed_and_the_slowest_last(tmp_path):
    done, _ = run_pairs(tmp_path, 4, bad="n2,n3", test="latency", program="./lat")
    assert done.returncode == 1
    assert "failed: n2-n3" in done.stderr
    figures = [line.split("\t") for line in done.stdout.splitlines()[1:]]
    assert [float(figure) for _, figure in figures] == sorted(float(f) for _, f in figures)


@pytest.mark.parametrize(
    ("local", "rail", "cpus"), [(0, "eth1", "0"), (1, "eth2", "4"), (2, "eth1", "1")]
)
def test_ranks_are_pinned_near_their_rail(tmp_path, local, rail, cpus):
    """The wrapper on a made-up machine: eth1 at NUMA node 0 (CPUs 0-3), eth2 at 1 (4-7)."""
    values = {**APPLICATION, "rails": "per-rank"}
    text = rendered("multirail", values=values, transport="mpich-ofi")
    machine = tmp_path / "sys"
    for number, interface in enumerate(("eth1", "eth2")):
        device = machine / "class" / "net" / interface / "device"
        device.mkdir(parents=True)
        (device.parent / "carrier").write_text("1\n")
        (device / "numa_node").write_text(f"{number}\n")
        node = machine / "devices" / "system" / "node" / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{4 * number}-{4 * number + 3}\n")
    status = tmp_path / "status"
    status.write_text("Cpus_allowed_list:\t0-7\n")
    text = text.replace("/sys/", f"{machine}/").replace("/proc/self/status", str(status))
    stubs = {
        "srun": 'while [ "$1" != bash ]; do shift; done; exec "$@"',
        "taskset": 'echo "$2 $FI_TCP_IFACE $4 $5"',
    }
    done = run_stubbed(text, tmp_path, stubs, SLURM_LOCALID=str(local))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{cpus} {rail} --cargo fresh fish\n"


@pytest.mark.parametrize("carrier", [None, "0\n"])
def test_a_rail_without_a_link_ends_the_job(tmp_path, carrier):
    text = rendered("multirail", values=APPLICATION, transport="openmpi-tcp")
    for interface, linked in (("eth1", "1\n"), ("eth2", carrier)):
        folder = tmp_path / "sys" / "class" / "net" / interface
        folder.mkdir(parents=True)
        if linked is not None:
            (folder / "carrier").write_text(linked)
    text = text.replace("/sys/", f"{tmp_path}/sys/")
    stubs = {
        "srun": 'while [ "$1" != bash ]; do shift; done; exec "$@"', "taskset": "echo started",
    }  # fmt: skip
    done = run_stubbed(text, tmp_path, stubs, SLURM_LOCALID="0")
    assert done.returncode
    assert "interface eth2 has no link" in done.stderr
    assert "started" not in done.stdout


@given(
    memory=st.integers(64, 1 << 22), nodes=st.integers(1, 5000),
    fraction=st.floats(0.1, 0.95), nb=st.integers(1, 512),
)  # fmt: skip
def test_hpl_order_is_the_largest_that_fits(memory, nodes, fraction, nb):
    n = hpl.order(memory, nodes, fraction, nb)
    room = fraction * nodes * memory * 2**20
    assert n % nb == 0
    assert 8 * n * n <= room < 8 * (n + nb) ** 2


def test_hpl_order_of_the_faq():
    # "4 nodes with 256 Mb each [...] The square root of that number is 11585"
    assert hpl.order(256, 4, 1.0, 1) == 11585


@given(ranks=st.integers(1, 4000))
def test_grid_is_nearest_to_a_square(ranks):
    p, q = grid(ranks)
    assert p * q == ranks
    assert p <= q
    assert not any(ranks % wider == 0 for wider in range(p + 1, int(ranks**0.5) + 1))


def test_hpl_dat_has_the_figures_of_the_job():
    text = rendered("hpl", nodes=4, ranks_per_node=2, values={"blas": "openblas"})
    found = dict(reversed(line.split()) for line in re.findall(r"^\d+ +(?:NB?|P|Q)$", text, re.M))
    memory = min(group.memory_MiB for group in harbour().nodes)
    n = hpl.order(memory, 4, 0.8, 192)
    assert found == {"N": str(n), "NB": "192", "P": "2", "Q": "4"}
