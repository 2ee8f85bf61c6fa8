"""Several streams at once: the node side with a real iperf3 on loopback, the sum of reports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks import tcp_streams as streams
from seatrial.benchmarks.parsing import ParseError

NODE = CHECKOUT / "src" / "seatrial" / "checks" / "node" / "streams.py"
RECORDED = (CHECKOUT / "tests" / "benchmarks" / "data" / "iperf3_fwd.json").read_text()


SECONDS = json.loads(RECORDED)["end"]["sum_received"]["seconds"]


NETWORKS = {"eth1": "rail1", "eth2": "rail2", "eth3": "rail3", "a": "one", "b": "other"}


def ends(*late: float) -> str:
    """The ends of streams, as JSON, by their starts in seconds after the first."""
    return json.dumps([1000 + one + SECONDS for one in late])


def plan(*through: tuple[str, str]) -> str:
    return json.dumps([{"interface": one, "through": two} for one, two in through])


def test_bandwidths_are_added_and_volumes_belong_to_their_interface():
    parsed = streams.parse(
        plan(("eth1", "eth1"), ("eth2", "eth2")), [RECORDED] * 2, ends(0, 0), "eth1", NETWORKS
    )
    one = streams.parse(plan(("eth1", "eth1")), [RECORDED], ends(0), "eth1", NETWORKS)
    assert parsed.value("bandwidth_MB_s") == pytest.approx(2 * one.value("bandwidth_MB_s"))
    assert parsed.value("slowest_stream_MB_s") == one.value("bandwidth_MB_s")
    assert parsed.moved_bytes == one.moved_bytes > 0
    assert (one.moved_beside, parsed.moved_beside) == ({}, {"rail2": one.moved_bytes})


def test_the_volume_of_a_bond_is_that_of_its_members():
    alone = streams.parse(plan(("eth1", "eth1")), [RECORDED], ends(0), "eth1", NETWORKS).moved_bytes
    through = ("eth1", "bond0"), ("eth2", "bond0"), ("eth3", "eth3")
    bond = streams.parse(plan(*through), [RECORDED] * 3, ends(0, 0, 0), "bond0", NETWORKS)
    assert (bond.moved_bytes, bond.moved_beside) == (2 * alone, {"rail3": alone})
    assert bond.facts["through"] == ["bond0", "bond0", "eth3"]


def test_a_stream_over_an_unknown_interface_proves_nothing():
    with pytest.raises(ParseError, match="used eth9, of no network of tcp_streams"):
        streams.parse(plan(("eth9", "eth9")), [RECORDED], ends(0), "eth1", NETWORKS)


@pytest.mark.parametrize("bad", ["", "[]", "{}", '[{"interface": 1}]', "null"])
def test_a_damaged_list_of_streams_is_an_error(bad):
    with pytest.raises(ParseError):
        streams.parse(bad, [], "[]", "eth1", NETWORKS)


def test_a_missing_report_is_an_error():
    with pytest.raises(ParseError, match="expected reports of 2 streams, found 1"):
        streams.parse(plan(("a", "a"), ("b", "b")), [RECORDED], ends(0), "a", NETWORKS)


def test_bandwidths_of_streams_one_after_another_are_not_added():
    two = plan(("a", "a"), ("b", "b"))
    late = streams.parse(two, [RECORDED] * 2, ends(0, 0.05 * SECONDS), "a", NETWORKS)
    assert late.facts["together_percent"] == pytest.approx(95)
    with pytest.raises(ParseError, match=r"did not run at the same time.* overlap for 50 %"):
        streams.parse(two, [RECORDED] * 2, ends(0, 0.5 * SECONDS), "a", NETWORKS)
    with pytest.raises(ParseError, match="overlap for 0 %"):
        streams.parse(two, [RECORDED] * 2, ends(0, 2 * SECONDS), "a", NETWORKS)


@pytest.mark.parametrize("bad", ["", "{}", "[1]", '[1, "2"]', "[1, true]", "[1, NaN]", "null"])
def test_damaged_ends_are_an_error(bad):
    with pytest.raises(ParseError, match="end"):
        streams.parse(plan(("a", "a"), ("b", "b")), [RECORDED] * 2, bad, "a", NETWORKS)


@pytest.mark.stack
def test_both_ends_on_loopback(tmp_path: Path):
    with socket.socket() as free:  # another test session on this machine may use fixed ports
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-IS", str(NODE), "s", "lo,lo", port, "3", "iperf3", "--"]
    command += ["-t", "5", "-b", "10M"]  # a busy machine starts them up to half a second apart
    ranks = [
        subprocess.Popen(
            command, cwd=tmp_path, env={"PATH": os.environ["PATH"], "SLURM_PROCID": rank}
        )
        for rank in "01"
    ]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    reports = [(tmp_path / f"s.{number}.json").read_text() for number in range(3)]
    ended = (tmp_path / "s.ended.json").read_text()
    parsed = streams.parse((tmp_path / "s.streams.json").read_text(), reports, ended, "lo", {})
    assert parsed.facts["through"] == ["lo"] * 3
    assert parsed.value("bandwidth_MB_s") == pytest.approx(3 * 1.25, rel=0.3)
    assert not list(tmp_path.glob("*.partial"))
