"""All links of many nodes: planted faults of a node, a link and a direction are named, no others;
a node that dies in the middle is named, and the others are measured."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from labs import own_name, running
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.machine import LabMachine
from seatrial_lab.native.site import lab_spec
from trial_support import FURTHER_FAULT, SMALL, Silent, make_site, until

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]
#: A fault is 100 times as slow. What disturbs a busy machine is not, not even five times in a row.
RULES = """
schema: 1
requirements:
  - {select: {check: links}, metric: stream_MB_s, basis: relative, peers: median, at_least: 0.05}
informative:
  - {select: {}, metric: "*", reason: a test}
"""
LIGHT = {"max_bytes": "16 KiB", "repetitions": 3, "stream_bytes": "1 MiB", "pairs_at_once": 2,
         "cores": list(range(min(os.cpu_count() or 1, 2))), "suspect_factor": 3.0,
         "time_limit_s": 40}  # fmt: skip


def many_nodes(folder: Path, count: int) -> Path:
    """The site of a lab of light nodes; returns its file."""
    file = make_site(folder, {"links": {"nodes": [count], **LIGHT}}, RULES, time_limit_s=3000)
    yaml = YAML()
    site = yaml.load(file.read_text())
    site["lab"]["accounting"] = False
    site["slurm"]["backend"] = "squeue"
    names = f"n[1-{count}]"
    site["nodes"] = [{"names": names, "cores": 2, "memory_MiB": 256}]
    site["partitions"] = {"compute": {"nodes": names}}
    with file.open("w") as stream:
        yaml.dump(site, stream)
    return file


def try_many(place: Path, count: int, plant: Callable[[Lab], None]) -> Results:
    """A trial of the links of many nodes, with what is planted."""
    file = many_nodes(place / f"many{count}", count)
    with running(lab_spec(load_site(file), own_name("many"))) as lab:
        plant(lab)
        lab.add_bind(place)
        selected = plan_trial(file, Selection())
        return run_trial(selected, file, LabMachine(lab), Silent(), place / "trials")


def named(results: Results) -> set[str | None]:
    return {j.location for j in results.judgements if j.verdict == "fail"}


#: a node, a node with its slow peer, and a sender with the peer that it is slow to
FAULTS = {12: (9, (2, 7), (4, 10)), 64: (9, (20, 33), (40, 50)), 240: (9, (20, 33), (40, 50))}


def plant_three(lab: Lab, count: int) -> None:
    node, both, one_way = FAULTS[count]
    faults.slow_link(lab, f"n{node}", "100mbit")
    faults.slow_link(lab, f"n{both[0]}", "100mbit", peer=f"n{both[1]}")
    faults.slow_link(lab, f"n{one_way[0]}", "100mbit", peer=f"n{one_way[1]}", only="sends")


def check_three(results: Results, count: int) -> None:
    node, both, one_way = FAULTS[count]
    (run,) = results.runs
    assert run.outcome == "ran", run.reason
    assert run.unmeasured == {}
    assert len({m.location for m in run.metrics if m.metric == "latency_us"}) == len(
        list(combinations(range(count), 2))
    )
    others = [f"n{number}" for number in range(1, count + 1) if number != node]
    of_node = {f"n{node}>{one}" for one in others} | {f"{one}>n{node}" for one in others}
    of_pair = {f"n{both[0]}>n{both[1]}", f"n{both[1]}>n{both[0]}"}
    direction = f"n{one_way[0]}>n{one_way[1]}"
    assert named(results) == of_node | of_pair | {direction}
    text = "\n".join(results.verdict.findings if results.verdict else [])
    assert f"node n{node} is common to" in text
    where = direction.replace(">", " to ")
    assert f"slow in one direction only (stream_MB_s): from {where}" in text
    blamed = {s.location for s in run.suspects if s.conclusion == "fault"}
    assert {f"n{node}", direction, *of_pair} <= blamed


def left(count: int, timeout: int) -> object:
    marks = (
        pytest.mark.nightly(reason=f"all links of {count} nodes"),
        pytest.mark.timeout(timeout),
    )
    return pytest.param(count, marks=marks)


# 64 * 63 neighbours are more than the kernel has room for by default, all nodes together.
@pytest.mark.parametrize("count", [12, left(64, 1800), left(240, 14400)])
def test_three_faults_in_many_nodes_are_named_and_nothing_else(place: Path, count: int) -> None:
    check_three(try_many(place, count, lambda lab: plant_three(lab, count)), count)


@FURTHER_FAULT
def test_a_node_that_dies_is_named_and_the_other_links_are_measured(
    place: Path, trial_lab: Lab, try_site: Callable[..., Results]
) -> None:
    # Slow enough that the node dies before all rounds are over.
    links = {**SMALL["links"], "repetitions": 1500, "pairs_at_once": 1, "time_limit_s": 15,
             "suspect_factor": 1000.0}  # fmt: skip
    file = make_site(place / "site", {"links": links}, RULES)

    def has_begun() -> bool:
        return any('"nodes"' in file.read_text() for file in place.rglob("links.pairs.jsonl"))

    def kill() -> None:
        until(has_begun, 60, "the first round")  # then n3 has started
        faults.kill_node(trial_lab, "n3")

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        results = try_site(file)
    finally:
        killer.join()
        faults.clear(trial_lab)
    (run,) = results.runs
    assert run.outcome == "ran", run.reason
    assert set(run.unmeasured) == {"n3"}
    others = {"n1-n2", "n1-n4", "n2-n4"}
    assert others <= {m.location for m in run.metrics if m.metric == "latency_us"}
    assert results.verdict is not None
    assert results.verdict.verdict == "incomplete"
    assert any("n3 was not measured" in finding for finding in results.verdict.findings)


def test_a_cable_without_carrier_is_a_node_without_links(
    place: Path, trial_lab: Lab, try_site: Callable[..., Results]
) -> None:
    faults.cut_link(trial_lab, "n2")
    try:
        results = try_site(make_site(place / "site", {"links": SMALL["links"]}, RULES))
    finally:
        faults.clear(trial_lab)
    (run,) = results.runs
    assert set(run.unmeasured) == {"n2"}
    assert "n2: eth1 (test) has no link" in run.unmeasured["n2"]
    assert "none of its first 3 links worked" in run.unmeasured["n2"]
    assert {m.location for m in run.metrics if m.metric == "latency_us"} == {
        "n1-n3", "n1-n4", "n3-n4",
    }  # fmt: skip
