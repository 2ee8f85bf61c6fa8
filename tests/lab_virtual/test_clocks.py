"""The clocks of a guest whose hosts have a processor each. A guest is started for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs import clear_dead_sessions
from seatrial.base.paths import CHECKOUT
from seatrial_lab.virtual.spec import WINDOW_NS

sys.path.insert(0, str(CHECKOUT / "ci/bench"))
from clocks import SITE, Clocks, build, running_lab

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.usefixtures("built_qemu")]

TICK_NS = 280  # of the ACPI timer
#: a turn ends at the end of a translation block, which has 512 instructions at most
BLOCK_NS = 512


#: a processor that gets what it must not see yet is earlier by about as much
WIDE_NS = 100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clocks")
    folder.chmod(0o755)
    clear_dead_sessions()
    return folder


@pytest.fixture(scope="module")
def clocks(folder: Path) -> Iterator[Clocks]:
    with running_lab(SITE, folder, f"v{os.getpid()}_c") as lab:
        yield Clocks(lab, build(folder))


@pytest.fixture(scope="module")
def wide(folder: Path) -> Iterator[Clocks]:
    """The clocks of a lab whose window is wider than what a message takes."""
    with running_lab(SITE, folder, f"v{os.getpid()}_w", WIDE_NS) as lab:
        yield Clocks(lab, build(folder))


def test_no_message_arrives_before_it_was_sent(clocks: Clocks) -> None:
    for seen in (clocks.run("wake", 1, 2, 5000), clocks.datagrams(1000, 0)):
        for way in ("there", "back"):
            assert seen[f"{way}_number"] >= 1000
            assert seen[f"{way}_early"] == 0
            assert seen[f"{way}_least_ns"] > 1000


def test_no_frame_arrives_before_it_was_sent_at_a_processor_that_is_behind(wide: Clocks) -> None:
    seen = wide.streams(5000, 50_000)
    assert seen["stream_number"] > 9000
    assert seen["stream_early"] == 0


def test_no_interrupt_is_taken_before_it_was_sent_by_a_processor_that_is_behind(
    wide: Clocks,
) -> None:
    seen = wide.interrupts(3000)
    for kind in ("signals", "barriers"):
        assert seen[f"{kind}_number"] > 2900
        assert seen[f"{kind}_early"] == 0
        assert seen[f"{kind}_unsent"] < 10


def test_the_clock_waits_for_this_machine(clocks: Clocks) -> None:
    seen = clocks.files(500)
    assert seen["listed_number"] == 501
    assert seen["listed_mean_ns"] < 100_000


def test_processors_that_spin_differ_by_a_window_at_most(clocks: Clocks) -> None:
    seen = clocks.run("spin", 1, 2, 50_000)
    for way in ("there", "back"):
        assert seen[f"{way}_number"] == 50_000
        assert seen[f"{way}_least_ns"] >= -(WINDOW_NS + BLOCK_NS)
        assert seen[f"{way}_mean_ns"] <= 2 * (WINDOW_NS + BLOCK_NS)


def test_clocks_read_under_a_lock_go_back_by_a_window_at_most(clocks: Clocks) -> None:
    seen = clocks.run("lock", 1, 2, 50_000)
    for way in ("there", "back"):
        assert seen[f"{way}_number"] > 1000
        assert seen[f"{way}_early"] > 0  # else the processors take turns, and this proves nothing
        assert seen[f"{way}_least_ns"] >= -(WINDOW_NS + BLOCK_NS)


def test_interrupt_moderation_is_seen_on_both_ways(clocks: Clocks) -> None:
    plain, moderated = clocks.datagrams(200, 0), clocks.datagrams(200, 125)
    for way in ("there", "back"):
        assert plain[f"{way}_mean_ns"] < 30_000
        assert 100_000 < moderated[f"{way}_mean_ns"] < 250_000


def test_timers_keep_their_deadlines(clocks: Clocks) -> None:
    alone = clocks.run("timer", 1, 100_000, 500)
    busy = clocks.beside_busy("timer", 1, 100_000, 500)
    after_idle = clocks.run("timer", 1, 1_000_000_000, 5)
    for seen in (alone, busy, after_idle):
        assert seen["late_early"] == 0
        assert seen["late_mean_ns"] < 10_000
    assert abs(alone["late_mean_ns"] - busy["late_mean_ns"]) < WINDOW_NS


def test_each_instruction_takes_a_nanosecond(clocks: Clocks) -> None:
    # An interrupt of the guest's kernel in between adds its own instructions: the least of three.
    seen = [clocks.run("repeat", 100_000) for _ in range(3)]
    assert min(one["repeated_ns"] for one in seen) == pytest.approx(100_000, abs=100)
    assert min(one["instructions_ns"] for one in seen) == pytest.approx(150_000, abs=100)


def test_a_device_has_the_time_of_the_processor_that_reads_it(clocks: Clocks) -> None:
    seen = clocks.run("devices", 1, 1000)
    assert seen["device_least_ns"] > -2 * TICK_NS
    assert seen["device_largest_ns"] < 2 * TICK_NS


def test_a_node_has_its_processor_for_itself(clocks: Clocks) -> None:
    lab = clocks.lab
    assert lab.facts()["processors"] == "own"
    for number, node in enumerate(lab.spec.nodes, 1):
        lines = lab.run(["cat", "/proc/self/status"], node=node, check=True).stdout.splitlines()
        assert f"Cpus_allowed_list:\t{number}" in lines
    clocks.datagrams(200, 0)
    rows = lab.run(["cat", "/proc/interrupts"], check=True).stdout.splitlines()
    packets = [row.split() for row in rows if "eth1-rx" in row]
    counts = [[int(word) for word in row[1:5]] for row in packets]
    assert sorted(max(range(4), key=count.__getitem__) for count in counts) == [1, 2, 3]
