"""Planted faults do what they say, are on record, and go away."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator

import pytest
from lab_support import SESSION, job_state, wait_for

from seatrial.base.errors import InputError, LabError
from seatrial_lab.native import faults, slowdown
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.status import status

pytestmark = [pytest.mark.root, pytest.mark.slurm]
#: Mbit/s that a TCP stream has over a link of 100 Mbit/s
SLOW = 95 * 0.92, 95 * 1.08


@pytest.fixture
def mended(lab: Lab) -> Iterator[Lab]:
    """The shared lab; whatever a test plants is cleared after it."""
    yield lab
    faults.clear(lab)
    assert status(SESSION)["faults"] == []
    assert set(lab.node_states().values()) == {"idle"}


def _mbit(lab: Lab, reverse: bool = False, peer: str = "n2") -> float:
    """What n1 sends to its peer, or receives from it."""
    server = lab.popen(["iperf3", "-s", "-1", "-p", "5998"], node=peer, stdout=subprocess.DEVNULL)
    listening = ["sh", "-c", "ss -Hltn sport = :5998 | grep -q ."]
    wait_for(lambda: lab.run(listening, node=peer).returncode == 0, 5, "iperf3 listens")
    client = ["iperf3", "-c", f"{peer}-test", "-p", "5998", "-t", "2", "-O", "1", "--json"]
    out = lab.run(client + (["-R"] if reverse else []), node="n1", check=True, timeout=600)
    server.wait(timeout=600)
    return json.loads(out.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


def _carries(
    lab: Lab, low: float, high: float = math.inf, reverse: bool = False, peer: str = "n2"
) -> None:
    """Some measurement of ten is between ``low`` and ``high`` Mbit/s.

    A busy machine makes one slower. It also makes one faster: sender and receiver leave out the
    first second at different moments, and 2 s of a link of 100 Mbit/s were 107 Mbit/s once.
    """
    measured: list[float] = []
    while not any(low <= one <= high for one in measured) and len(measured) < 10:
        measured.append(_mbit(lab, reverse, peer))
    assert any(low <= one <= high for one in measured), measured


@pytest.mark.parametrize("reverse", [False, True])
def test_a_slow_link_is_as_slow_as_asked_in_both_directions(mended: Lab, reverse: bool) -> None:
    faults.slow_link(mended, "n1", "100mbit")
    _carries(mended, *SLOW, reverse)
    assert [str(f) for f in mended.faults()] == ["link n1: rate 100mbit"]


@pytest.mark.parametrize(
    ("only", "slow"),
    [(None, {False, True}), ("sends", {False}), ("receives", {True})],
)
def test_a_path_between_two_nodes_is_slow_and_no_other(
    mended: Lab, only: str | None, slow: set[bool]
) -> None:
    """Of n1 with n2; ``slow``: where n1 receives (True), where it sends (False)."""
    faults.slow_link(mended, "n1", "100mbit", peer="n2", only=only)
    detail = "rate 100mbit with n2" + (f" {only} only" if only else "")
    assert [str(f) for f in mended.faults()] == [f"link n1: {detail}"]
    for reverse in (False, True):
        if reverse in slow:
            _carries(mended, *SLOW, reverse)
        else:
            _carries(mended, 400, reverse=reverse)
    _carries(mended, 400, reverse=only == "receives", peer="n3")


def test_a_slow_direction_of_all_links_of_a_node(mended: Lab) -> None:
    faults.slow_link(mended, "n1", "100mbit", only="receives")
    _carries(mended, *SLOW, reverse=True, peer="n3")
    _carries(mended, 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "both"}, "direction 'both' is not sends or receives"),
        ({"peer": "n1"}, "no other compute node 'n1': n1, n2"),
        ({"peer": "n99"}, "no other compute node 'n99'"),
    ],
)
def test_a_slow_path_that_is_none(lab: Lab, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        faults.slow_link(lab, "n1", "100mbit", **options)
    assert lab.faults() == []


def test_clear_makes_the_link_fast_again(mended: Lab) -> None:
    faults.slow_link(mended, "n1", "100mbit")
    faults.clear(mended)
    _carries(mended, 400)


def test_a_cut_link_loses_its_carrier_and_only_that(mended: Lab) -> None:
    def carrier(interface: str) -> str:
        return mended.run(["cat", f"/sys/class/net/{interface}/carrier"], node="n3").stdout.strip()

    faults.cut_link(mended, "n3")
    wait_for(lambda: carrier("eth1") == "0", 5, "carrier lost")
    assert carrier("eth0") == "1"
    faults.clear(mended, "n3")
    wait_for(lambda: carrier("eth1") == "1", 5, "carrier back")


def _throttled(lab: Lab, node: str) -> int:
    """How often the kernel held a node back for its quota, whatever else the machine does."""
    with slowdown.controller() as controller:
        assert controller is not None
        stat = (controller.place / lab.paths.netns(node) / "cpu.stat").read_text()
    return int(dict(line.split() for line in stat.splitlines())["nr_throttled"])


def test_a_slow_processor_slows_later_jobs(mended: Lab) -> None:
    # How much of a processor a busy second gets.
    work = (
        "from time import process_time as used, time\nbegun, end = used(), time() + 1\n"
        "while time() < end: pass\nprint(used() - begun)"
    )

    def busy(node: str) -> tuple[float, bool]:
        """Of a job: its share of a processor, and whether it was held back."""
        before = _throttled(mended, node)
        srun = ["srun", "-w", node, "/usr/bin/python3", "-c", work]
        share = float(mended.run(srun, check=True, timeout=600).stdout)
        return share, _throttled(mended, node) > before

    faults.slow_cpu(mended, "n2", 5)
    share, held_back = busy("n2")
    assert share < 0.2  # a twentieth of two processors is 0.1 of one
    assert held_back
    assert not busy("n1")[1]
    faults.clear(mended)
    assert not busy("n2")[1]


def test_a_dead_node_fails_its_job_and_comes_back(mended: Lab) -> None:
    job = mended.run(
        ["sbatch", "--parsable", "-w", "n4", "--wrap", "sleep 300"], check=True
    ).stdout.strip()
    wait_for(lambda: job_state(mended, job) == "RUNNING", 10, "job runs")
    faults.kill_node(mended, "n4")
    assert status(SESSION)["state"] == "broken"
    with pytest.raises(LabError, match="not running"):
        mended.run(["true"], node="n4")
    wait_for(lambda: job_state(mended, job) == "NODE_FAIL", 30, "job is NODE_FAIL")
    assert mended.up() is False
    assert mended.faults() == []
    out = mended.run(["srun", "-w", "n4", "hostname"], check=True, timeout=600)
    assert out.stdout == "n4\n"


def test_slurmd_dies_and_returns(mended: Lab) -> None:
    faults.kill_slurmd(mended, "n1")
    hosts = {host["name"]: host for host in status(SESSION)["hosts"]}
    assert set(hosts["n1"]["daemons"]) == {"munged"}
    with pytest.raises(LabError, match="no slurmd"):
        faults.kill_slurmd(mended, "n1")
    faults.start_slurmd(mended, "n1")
    out = mended.run(["srun", "-w", "n1", "hostname"], check=True, timeout=600)
    assert out.stdout == "n1\n"


def test_faults_of_what_is_not_there_are_refused(mended: Lab) -> None:
    with pytest.raises(InputError, match="n9"):
        faults.cut_link(mended, "n9")
    with pytest.raises(InputError, match="percent"):
        faults.slow_cpu(mended, "n1", 100)
    assert mended.faults() == []
