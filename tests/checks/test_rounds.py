"""Rounds of disjoint pairs: the schedule, the choice of suspects, and pairs on loopback."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
import threading
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.base.paths import CHECKOUT
from seatrial.results import two_way

NODE = CHECKOUT / "src" / "seatrial" / "checks" / "node"
SPEC = importlib.util.spec_from_file_location("rounds", NODE / "rounds.py")
assert SPEC is not None
assert SPEC.loader is not None
rounds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rounds)


@given(st.integers(2, 130))
def test_each_pair_once_and_disjoint_within_a_round(count: int) -> None:
    made = rounds.schedule(count)
    assert len(made) == count - 1 + count % 2
    for one in made:
        nodes = [node for pair in one for node in pair]
        assert len(nodes) == len(set(nodes)) == count - count % 2
    pairs = [pair for one in made for pair in one]
    assert sorted(pairs) == list(combinations(range(count), 2))


def figures(count: int, slow: dict[tuple[int, ...], float]) -> dict:
    """Figures of all links, by what is slow: a node ``(3,)``, a link ``(1, 2)``, or a direction
    ``(1, 2, 0)`` from 1 to 2; -> by which factor."""
    made = {}
    for low, high in combinations(range(count), 2):
        both = slow.get((low,), 1) * slow.get((high,), 1) * slow.get((low, high), 1)
        there = both * slow.get((low, high, 0), 1)
        back = both * slow.get((high, low, 0), 1)
        made[low, high] = {
            ("latency_us",): 10.0 * (there + back) / 2,
            ("bandwidth_MB_s",): 1000.0 / (there + back) * 2,
            ("stream_MB_s", low, high): 1000.0 / there,
            ("stream_MB_s", high, low): 1000.0 / back,
        }
    return made


@pytest.mark.parametrize(
    ("slow", "suspects"),
    [
        ({}, set()),
        ({(1, 2): 4.0}, {(1, 2)}),
        ({(5, 2, 0): 4.0}, {(2, 5)}),
        ({(1, 2): 4.0, (0, 7, 0): 3.0}, {(1, 2), (0, 7)}),
    ],
)
def test_slow_links_are_suspects(slow, suspects) -> None:
    chosen, good, _ = rounds.choose(figures(12, slow), 0.4, two_way)
    assert set(chosen) == suspects
    assert not set(good) & suspects


def test_of_a_slow_node_only_some_links_are_suspects_beside_other_faults() -> None:
    chosen, good, _ = rounds.choose(figures(16, {(3,): 5.0, (1, 2): 4.0}), 0.4, two_way)
    assert (1, 2) in chosen
    of_node = [link for link in chosen if 3 in link]
    assert 0 < len(of_node) <= len(rounds.BETTER) * 2 * rounds.NODE_LINKS < 30
    assert len(chosen) == len(of_node) + 1
    assert not any(3 in link for link in good)


NPTCP = """#!{python}
import socket, sys
words = sys.argv[1:]
port = int(words[words.index("-P") + 1])
if "-h" in words:
    socket.create_connection(("127.0.0.1", port)).close()
    print("a table")
else:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.settimeout(120)  # outlives the worker of a node that is killed
        s.bind(("", port)); s.listen(1); s.accept()
"""
#: number of the node -> what goes wrong there
TROUBLE = """#!/bin/sh
if [ "$SLURM_PROCID" = {number} ]; then {trouble}; fi
exec {nptcp} "$@"
"""


def free_ports() -> int:
    """The first of 200 ports that nobody listens on, below those that the kernel gives."""
    while True:
        first = random.randrange(10000, 32000, 200)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + 200):
                stack.enter_context(socket.socket()).bind(("", port))
            return first


def run_nodes(folder: Path, count: int, trouble: str = ":", number: int = 0, **options) -> list:
    """All nodes of a step on loopback, with a false NPtcp. Returns the lines of the record."""
    false, wrapper = folder / "false", folder / "nptcp"
    false.write_text(NPTCP.replace("{python}", sys.executable))
    wrapper.write_text(TROUBLE.format(number=number, trouble=trouble, nptcp=false))
    for one in (false, wrapper):
        one.chmod(0o755)
    settings = {
        "limit_s": 60, "budget_s": 300, "at_once": max(1, count // 2), "stream_bytes": 1 << 20,
        "suspect_factor": 1e9, "most_alone": 0, "cores": [], "two_way": two_way.__file__, **options,
    }  # fmt: skip
    words = [sys.executable, "-IS", str(NODE / "rounds.py"), "links", "lo", str(free_ports())]
    words += [json.dumps(settings), str(wrapper), "-P", "{port}"]
    nodes = [
        subprocess.Popen(
            words,
            cwd=folder,
            env={
                **os.environ,
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": str(count),
                "SLURMD_NODENAME": f"n{rank + 1}",
            },
        )
        for rank in range(count)
    ]
    try:
        assert nodes[0].wait(250) == 0
    finally:
        for node in nodes:
            node.kill()
            node.wait()
        # the programs of a node that was killed
        subprocess.run(["pkill", "-KILL", "-f", str(folder)], check=False)
    return [json.loads(line) for line in (folder / "links.pairs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("count", [2, 5])
def test_all_pairs_are_measured_in_both_directions(tmp_path: Path, count: int) -> None:
    nodes, *pairs, end = run_nodes(tmp_path, count)
    assert nodes["nodes"] == {str(rank): f"n{rank + 1}" for rank in range(count)}
    assert end["end"]
    assert end["absent"] == {}
    assert sorted(tuple(pair["pair"]) for pair in pairs) == list(combinations(range(count), 2))
    for pair in pairs:
        assert "failed" not in pair or pair["failed"] == ""
        assert pair["text"] == "a table\n"
        assert [size for size, _ in pair["streams"]] == [1 << 20, 1 << 20]
        assert all(carried["lo"] > 2 << 20 for carried in pair["bytes"])


def test_a_pair_runs_on_the_core_that_the_site_names(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    shown = "grep Cpus_allowed_list /proc/self/status"
    _, pair, _ = run_nodes(tmp_path, 2, shown, cores=[len(allowed) - 1])
    assert pair["text"] == f"Cpus_allowed_list:\t{allowed[-1]}\na table\n"


def test_a_core_that_the_job_has_not_is_the_reason(tmp_path: Path) -> None:
    _, pair, _ = run_nodes(tmp_path, 2, cores=[9999])
    assert "no core 9999: the job has " in pair["failed"]


def test_an_interface_without_an_address_is_no_way_to_the_coordinator(monkeypatch) -> None:
    monkeypatch.setattr(rounds.socket, "if_nameindex", lambda: [(1, "lo"), (7, "no-such0")])
    coordinator = rounds.Coordinator.__new__(rounds.Coordinator)
    coordinator.interface = "lo"
    assert coordinator._addresses() == ["127.0.0.1"]


def gathering(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> tuple:
    """A coordinator that waits for its nodes, its thread, and what the nodes read."""
    monkeypatch.chdir(folder)
    coordinator = rounds.Coordinator("links", count, "lo", 0, {}, [])
    thread = threading.Thread(target=coordinator.gather, daemon=True)
    thread.start()
    file = folder / "links.coordinator"
    rounds.pairs_of_ranks.until(file.exists, 200, "the coordinator")
    return coordinator, thread, json.loads(file.read_text())


def greet(known: dict, **changed: object) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", known["port"]), 20)
    hello = {"token": known["token"], "number": 0, "node": "n1", **changed}
    connection.sendall(json.dumps(hello).encode() + b"\n")
    return connection


STRANGERS = [
    b"[]\n", b"[" * 4000 + b"\n", b"7\n", b"null\n", b"\xff\n", b"{}\n", b"\n", b"x" * 9000,
    b'{"token": [], "number": 0, "node": "n1"}\n',
    b'{"token": "\\ud800", "number": 0, "node": "n1"}\n',
    b'{"token": "\xc3\xa4", "number": 0, "node": "n1"}\n',
    b'{"token": "", "number": 0, "node": "n1"}\n',
]  # fmt: skip


def test_a_stranger_neither_ends_nor_delays_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers connect from any machine; some say nothing, and stay."""
    coordinator, thread, known = gathering(tmp_path, monkeypatch, 2)
    with contextlib.ExitStack() as stack:
        for _ in range(2 + rounds.MOST_STRANGERS + 8):  # more than are kept
            silent = socket.create_connection(("127.0.0.1", known["port"]), 20)
            stack.enter_context(silent).sendall(b'{"token"')
        for text in STRANGERS:
            one = stack.enter_context(socket.create_connection(("127.0.0.1", known["port"]), 20))
            with contextlib.suppress(ConnectionError):
                one.sendall(text)
                assert one.recv(1) == b"", text
        for number in (-1, 2, 0.0, True, "0", None, [], 10**300):
            one = stack.enter_context(greet(known, number=number))
            assert one.recv(1) == b"", number
        assert thread.is_alive()
        for number in (0, 0, 1):
            stack.enter_context(greet(known, number=number, node=f"n{number + 1}"))
        thread.join(200)
        assert not thread.is_alive()
    assert (coordinator.names, coordinator.absent) == ({0: "n1", 1: "n2"}, {})


def test_a_greeting_that_does_not_end_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One limit for the whole line, not for each part of it."""
    monkeypatch.setattr(rounds, "GREETING_S", 1.5)
    _, thread, known = gathering(tmp_path, monkeypatch, 1)
    with socket.create_connection(("127.0.0.1", known["port"]), 0.5) as slow:
        slow.settimeout(0.5)
        for _ in range(40):
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is open after 20 s")
    greet(known).close()
    thread.join(200)
    assert not thread.is_alive()


def test_a_node_that_dies_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    # The process of the node, two parents up from its NPtcp: the worker, then the node.
    kill = "kill -9 $(ps -o ppid= -p $PPID) $PPID"
    _, *pairs, end = run_nodes(tmp_path, 4, kill, number=2)
    assert set(end["absent"]) == {"2"}
    assert "ended" in end["absent"]["2"]
    good = {tuple(pair["pair"]) for pair in pairs if "text" in pair}
    assert good == {(0, 1), (0, 3), (1, 3)}
    assert all("n3" in pair["failed"] for pair in pairs if "text" not in pair)


def test_a_node_that_hangs_is_named_and_waited_for_once(tmp_path: Path) -> None:
    stop = "kill -STOP $(ps -o ppid= -p $PPID) $PPID; kill -STOP $$"
    _, *pairs, end = run_nodes(tmp_path, 4, stop, number=2, limit_s=5)
    assert "did not answer" in end["absent"]["2"]
    assert {tuple(pair["pair"]) for pair in pairs if "text" in pair} == {(0, 1), (0, 3), (1, 3)}
    assert sum(2 in pair["pair"] for pair in pairs) == 1


def test_a_node_none_of_whose_links_works_is_left_out(tmp_path: Path) -> None:
    _, *pairs, end = run_nodes(tmp_path, 8, "exit 3", number=5)
    assert "none of its first 3 links worked" in end["absent"]["5"]
    assert sum(5 in pair["pair"] for pair in pairs) == 3
    assert sum("text" in pair for pair in pairs) == 21


@pytest.mark.parametrize("count", [4, 9, 16, 40])
def test_bad_nodes_are_no_reason_to_leave_out_a_good_one(count: int) -> None:
    """Half of the nodes, one beside the other, are the first partners of some of the others."""
    for first in range(count):
        bad = {(first + at) % count for at in range(count // 2)}
        coordinator = record_rounds(count, lambda pair, bad=bad: not bad & set(pair))
        assert set(coordinator.absent) <= bad
        assert count < 9 or set(coordinator.absent) == bad


def record_rounds(count: int, works) -> Any:
    """A coordinator after the rounds of which ``works`` says which pairs work."""
    coordinator = rounds.Coordinator.__new__(rounds.Coordinator)
    coordinator.options = {"limit_s": 5}
    coordinator.names, coordinator.absent, coordinator.silent = {}, {}, {}
    coordinator.works, coordinator.failed = set(), []
    coordinator.write = lambda _: None
    coordinator.apart = coordinator.absent
    result = {"bytes": {}, "received": [1, 1.0], "text": "", "failed_nptcp": ""}
    for number, one in enumerate(rounds.schedule(count)):
        for low, high in one:
            if not {low, high} & set(coordinator.absent):
                pair = rounds.Pair(low, high, 1, None)
                said = {"result": result} if works((low, high)) else {"failed": "no route"}
                pair.said = {low: said, high: said}
                coordinator._record(pair, number)
    return coordinator


def test_a_pair_that_never_works_does_not_take_the_time_of_suspects() -> None:
    in_rounds = figures(8, {(5, 6): 4.0})
    del in_rounds[0, 1]
    coordinator = rounds.Coordinator.__new__(rounds.Coordinator)
    coordinator.options = {"suspect_factor": 1.5, "most_alone": 99, "two_way": two_way.__file__,
                           "at_once": 4}  # fmt: skip
    coordinator.connections, coordinator.failed = dict.fromkeys(range(8)), [(0, 1)]
    coordinator.begun, coordinator.apart, tried = rounds.time.monotonic(), {}, []

    def measure(wanted: list, *_: object) -> dict:
        tried.extend(wanted)
        return {one: in_rounds[one] for one in wanted if one in in_rounds}

    coordinator.measure = measure
    coordinator.alone(in_rounds, rounds.time.monotonic() + 60)
    assert tried.count((0, 1)) == 1
    assert tried.count((5, 6)) == rounds.TRIES
    assert tried.index((5, 6)) < tried.index((0, 1))


@pytest.mark.parametrize("partly", [False, True])
def test_what_works_beside_others_and_fails_alone_is_tried_once_more(partly: bool) -> None:
    in_rounds = figures(8, {(5, 6): 4.0})
    coordinator = rounds.Coordinator.__new__(rounds.Coordinator)
    coordinator.options = {"suspect_factor": 1.5, "most_alone": 99, "two_way": two_way.__file__,
                           "at_once": 4}  # fmt: skip
    coordinator.connections, coordinator.failed = dict.fromkeys(range(8)), []
    coordinator.begun, coordinator.apart, tried = rounds.time.monotonic(), {}, []

    def measure(wanted: list, *_: object) -> dict:
        tried.extend(wanted)
        whole = {one: in_rounds[one] for one in wanted}
        if (5, 6) in whole:
            streams = {key: 1.0 for key in in_rounds[5, 6] if key[0] == "stream_MB_s"}
            return {(5, 6): streams} if partly else {}
        return whole

    coordinator.measure = measure
    coordinator.alone(in_rounds, rounds.time.monotonic() + 60)
    assert tried.count((5, 6)) == rounds.FAILURES


def test_what_failed_once_is_measured_alone_until_it_is_as_good_as_others(tmp_path: Path) -> None:
    """The higher number of this pair serves."""
    once = "[ -e failed ] || { touch failed; exit 3; }"
    _, *pairs, _ = run_nodes(tmp_path, 4, once, number=2, most_alone=10)
    failed = [tuple(pair["pair"]) for pair in pairs if pair.get("failed")]
    assert failed == [(1, 2)]
    alone = [tuple(pair["pair"]) for pair in pairs if pair["round"] is None]
    assert alone.count((1, 2)) == 1
    assert len(alone) == len(set(alone)) > 2


def test_a_broken_record_of_rounds_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    """The time of the step is over before the first round."""
    _, *rest, end = run_nodes(tmp_path, 4, budget_s=-1)
    assert [list(one) for one in rest] == [["stopped"]]
    assert end["end"]


@pytest.mark.parametrize("file", [*sorted(NODE.glob("rounds*.py")), Path(two_way.__file__)])
def test_the_grammar_is_that_of_python_3_6(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 6))
    names = {
        (alias.name if isinstance(node, ast.Import) else node.module or "").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    own = {file.stem for file in NODE.glob("*.py")}
    assert names - own <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("count", "side"), [(8, {1, 2, 3}), (12, {6, 7, 8, 9, 10, 11}), (9, {0, 8})]
)
def test_both_sides_of_a_network_in_two_parts_are_measured(count: int, side: set[int]) -> None:
    """And not the dead node that is silent beside them."""
    dead, lines = 4, []
    coordinator = record_rounds(0, None)
    coordinator.count, coordinator.options = count, {"at_once": count // 2, "limit_s": 5}
    coordinator.connections, coordinator.absent, coordinator.apart = set(range(count)), {}, {}
    coordinator.write = lines.append

    def measure(wanted: list, _: int, number: int) -> dict:
        result = {"bytes": {}, "received": [1, 1.0], "text": "", "failed_nptcp": ""}
        measured = {}
        for low, high in wanted:
            works = (low in side) == (high in side) and dead not in (low, high)
            pair = rounds.Pair(low, high, 1, None)
            said = {"result": result} if works else {"failed": "no route"}
            pair.said = {low: said, high: said}
            if coordinator._record(pair, number):
                measured[low, high] = {}
        return measured

    def drop(node: int, why: str) -> None:
        coordinator.absent[node] = why
        coordinator.connections.discard(node)

    coordinator.measure, coordinator.drop = measure, drop
    figures: dict = {}
    for number, one in enumerate(rounds.schedule(count)):
        one = [pair for pair in one if not coordinator.apart.keys() & set(pair)]
        figures.update(measure(one, 0, number))
    figures.update(coordinator.among_silent(count, rounds.time.monotonic() + 60))
    assert set(coordinator.absent) == {dead}
    within = {
        (a, b) for a, b in combinations(sorted(set(range(count)) - {dead}), 2)
        if (a in side) == (b in side)
    }  # fmt: skip
    assert set(figures) == within
    named = {tuple(line["pair"]) for line in lines}
    assert named >= set(combinations(sorted(set(range(count)) - {dead}), 2))
