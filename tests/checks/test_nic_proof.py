"""Verification of the NIC profile of a job's nodes: the steps that verify, and their records."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.checks import activity, evidence, nic_proof
from seatrial.results.record import Activity, Case, Metric, Run

NODES = ["n1", "n2"]


def step(name, *numbers, nodes=None):
    return SimpleNamespace(name=name, node_numbers=[*numbers], nodes=nodes)


# -- the steps that verify


def test_one_step_verifies_before_and_after():
    assert nic_proof.occasions([step("a")], 2) == {"a": "both"}


def test_first_and_last_of_several():
    steps = [step("a"), step("b"), step("c")]
    assert nic_proof.occasions(steps, 4) == {"a": "before", "c": "after"}


def test_all_pairs_of_four_nodes():
    """The first and the last step of each node verify, the others do not."""
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    steps = [step(f"{a}-{b}", a, b) for a, b in pairs]
    assert nic_proof.occasions(steps, 4) == {
        "0-1": "before", "0-2": "before", "0-3": "both", "1-3": "after", "2-3": "after",
    }  # fmt: skip


def test_nodes_without_a_step_are_not_verified():
    assert nic_proof.node_numbers(step("a", nodes=2), 4) == [0, 1]
    assert nic_proof.occasions([step("a", nodes=2)], 4) == {"a": "both"}


@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=12))
def test_every_node_is_verified_before_its_first_and_after_its_last_step(sets):
    steps = [step(f"s{i}", *sorted(numbers)) for i, numbers in enumerate(sets)]
    when = nic_proof.occasions(steps, 10)
    for node in set().union(*sets):
        mine = [f"s{i}" for i, numbers in enumerate(sets) if node in numbers]
        assert when[mine[0]] in ("before", "both")
        assert when[mine[-1]] in ("after", "both")


# -- the records


def record(folder, node, when, ok=True, **more):
    data = {
        "node": node, "profile": "jumbo", "ok": ok, "reason": "", "seconds": 0.03,
        "owner": {"job": "7", "profile": "jumbo", "phase": "applied"},
        "interfaces": {"eth1": {"state": {"mtu": 9000}, "differences": []}}, **more,
    }  # fmt: skip
    (folder / f"nic-{when}.{node}.json").write_text(json.dumps(data))


@pytest.fixture
def job(tmp_path):
    for node in NODES:
        for when in ("before", "after"):
            record(tmp_path, node, when)
    return tmp_path


class FakeCheck:
    num_nodes = 2
    interface = "eth1"
    step_list = (step("net"),)


def held_against(folder, outcome="ran", reason="", profile="jumbo"):
    case = Case(check="netpipe", transport="tcp", profile=profile, nodes=2)
    metric = Metric(metric="latency_us", value=1, unit="us", better="lower")
    run = Run(case=case, outcome=outcome, reason=reason, phase="run" if reason else "",
              metrics=[metric])  # fmt: skip
    run.nic_proofs = nic_proof.proofs(nic_proof.read_records(folder))
    evidence.hold_against_profile(run, FakeCheck())
    return run


def test_as_declared(job):
    run = held_against(job)
    assert (run.outcome, run.reason, len(run.metrics)) == ("ran", "", 1)
    assert {(p.node, p.when, p.job, p.seconds) for p in run.nic_proofs} == {
        (node, when, "7", 0.03) for node in NODES for when in ("before", "after")
    }


def test_difference_is_an_error_that_names_it(job):
    record(job, "n2", "after", ok=False, reason="eth1 mtu is 1500, not 9000")
    run = held_against(job)
    assert (run.outcome, run.phase, run.metrics) == ("error", "profile", [])
    assert run.reason == "not under profile jumbo: n2: eth1 mtu is 1500, not 9000 (after the run)"


def test_the_differences_are_the_reason_if_there_is_no_other(job):
    wrong = {"setting": "mtu", "wanted": 9000, "actual": 1500}
    record(job, "n1", "before", ok=False,
         interfaces={"eth1": {"state": {}, "differences": [wrong]}})  # fmt: skip
    assert "n1: eth1: mtu is 1500, not 9000 (before the run)" in held_against(job).reason


def test_a_wrong_profile_comes_before_its_possible_effect(job):
    record(job, "n1", "before", ok=False, reason="eth1 mtu is 1500, not 9000")
    run = held_against(job, "error", "step net ran into its limit")
    assert run.phase == "profile"
    assert run.reason.endswith("; step net ran into its limit")


def test_a_missing_record_is_no_proof(job):
    (job / "nic-after.n2.json").unlink()
    run = held_against(job)
    assert (run.outcome, run.phase, run.metrics) == ("error", "profile", [])
    assert "only 1 of 2 nodes recorded their NIC settings after the run (n1)" in run.reason


def test_the_record_of_a_node_that_was_left_out_does_not_stand_for_another(job):
    (job / "nic-after.n1.json").unlink()
    case = Case(check="links", transport="tcp", profile="jumbo", nodes=2)
    run = Run(case=case, outcome="ran")
    run.nic_proofs = nic_proof.proofs(nic_proof.read_records(job))
    evidence.hold_against_profile(run, FakeCheck(), {"n2"})
    assert "only 0 of 1 nodes recorded their NIC settings after the run" in run.reason


def test_a_missing_record_comes_after_its_possible_cause(job):
    (job / "nic-after.n2.json").unlink()
    run = held_against(job, "error", "step net was ended by SIGKILL")
    assert (run.phase, run.reason) == ("run", "step net was ended by SIGKILL")


#: (rx-usecs, further state, interrupts/s): measured on the drivers of the virtual lab
FOLLOWED = [
    (125, {"channels.combined": 1}, 8053), (20, {"channels.combined": 1}, 19706),
    (333, {"driver": "e1000e"}, 14020), (0, {"channels.combined": 1}, 68415),
]  # fmt: skip
#: no limit is known of these
UNLIMITED = [
    (3, {"driver": "e1000e"}, 70000), (125, {"coalesce.adaptive-rx": "on"}, 70000),
    (125, {"driver": "mlx5_core", "coalesce.rx-frames": 32}, 70000), (None, {}, 70000),
    (125, {"channels.combined": 8}, 60000), (125, {}, None),
]  # fmt: skip


def under_load(job, usecs, state, rate):
    """A run whose node n2 reports ``usecs`` and counted ``rate``."""
    state = {"driver": "igb", "coalesce.rx-usecs": usecs, **state}
    run = held_against(job)
    run.nic = {"n2": {"eth1": {"before": state, "after": state}}}
    run.activity = [Activity(step="net", node="n2", seconds=1.0, interrupts_per_s={"eth1": rate})]
    evidence.hold_against_profile(run, FakeCheck())
    return run


@pytest.mark.parametrize(("usecs", "state", "rate"), [*FOLLOWED, *UNLIMITED])
def test_a_coalescing_value_that_may_be_in_effect(job, usecs, state, rate):
    assert under_load(job, usecs, state, rate).outcome == "ran"


def test_a_coalescing_value_that_is_reported_and_has_no_effect(job):
    """As behind an ethtool that lies: 68415 were counted without moderation."""
    run = under_load(job, 125, {"channels.combined": 1}, 68415)
    assert (run.outcome, run.phase, run.metrics) == ("error", "profile", [])
    assert run.reason == (
        "n2: eth1 reports coalesce.rx-usecs 125, which allows at most 8000 interrupts per second, "
        "but step net had 68415: the value has no effect"
    )


def test_many_differences_are_cut_short(job):
    for number in range(9):
        record(job, f"m{number}", "before", ok=False, reason=f"eth1 mtu is {number}, not 9000")
    assert "and 5 more" in held_against(job).reason


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"node": 1}', '{"node": "n2"}', '{"node": "n2", "ok": "true"}',
     '{"node": "n2", "ok": 1, "interfaces": 3, "owner": [], "seconds": "x"}', "\x00"],
)  # fmt: skip
def test_a_damaged_record_is_no_proof(job, text):
    (job / "nic-after.n2.json").write_text(text)
    run = held_against(job)
    assert (run.outcome, run.phase) == ("error", "profile")
    nic_proof.states(nic_proof.read_records(job))


def test_a_record_damaged_anywhere(job):
    whole = (job / "nic-after.n2.json").read_bytes()
    for end in range(len(whole)):
        (job / "nic-after.n2.json").write_bytes(whole[:end])
        assert held_against(job).outcome == "error"
    chance = random.Random(1)
    for _ in range(200):
        text = bytearray(whole)
        text[chance.randrange(len(text))] = chance.randrange(256)
        (job / "nic-after.n2.json").write_bytes(bytes(text))
        held_against(job)
        nic_proof.states(nic_proof.read_records(job))


def test_settings_that_are_left_out(job):
    kept = {"state": {}, "differences": [], "left_out": ["feature.rx-fcs", "vfs"]}
    record(job, "n1", "before", interfaces={"eth1": kept})
    record(job, "n2", "before", interfaces={"eth1": {**kept, "left_out": 5}})
    record(job, "n2", "after", interfaces={"eth1": {**kept, "left_out": ["x" * 9999] * 9999}})
    run = held_against(job)
    assert run.outcome == "ran"
    found = {(proof.node, proof.when): proof.left_out for proof in run.nic_proofs}
    assert found["n1", "before"] == ["eth1 feature.rx-fcs", "eth1 vfs"]
    assert found["n2", "before"] == []
    assert len(found["n2", "after"]) == 1000


def test_states_of_the_first_and_the_last_verification(job):
    states = nic_proof.states(nic_proof.read_records(job))
    merged = evidence.nic_states([], states)
    assert merged["n1"]["eth1"] == {"before": {"mtu": 9000}, "after": {"mtu": 9000}}


# -- the activity of the processors


def side(time, **more):
    return {
        "node": "n1", "time": time, "interfaces": {"eth1": {}, "eth0": {}}, "ticks_per_s": 100,
        "interrupts": {"eth1": 50, "eth0": None}, "cpu_ticks": [0, 0, 0, 0, 0, 2, 10, 0],
        "softirqs": {"NET_RX": 1000}, **more,
    }  # fmt: skip


LATER = {
    "interrupts": {"eth1": 90, "eth0": None}, "cpu_ticks": [9, 9, 9, 9, 9, 12, 60, 9],
    "softirqs": {"NET_RX": 5000},
}  # fmt: skip


def test_rates():
    result = activity.activity("net", {"before": side(10.0), "after": side(12.0, **LATER)})
    assert (result.step, result.node, result.seconds) == ("net", "n1", 2.0)
    assert result.interrupts_per_s == {"eth1": 20, "eth0": None}
    assert result.net_rx_per_s == 2000
    assert (result.softirq_percent, result.irq_percent) == (25, 5)
    metrics = activity.metrics([result], "eth1")
    assert {(m.metric, m.value, m.location, m.better) for m in metrics} == {
        ("interrupts_per_s", 20, "n1", "lower"), ("net_rx_per_s", 2000, "n1", "lower"),
        ("softirq_percent", 25, "n1", "lower"), ("irq_percent", 5, "n1", "lower"),
    }  # fmt: skip
    assert {m.metric for m in activity.metrics([result], "eth0")} == {
        "net_rx_per_s", "softirq_percent", "irq_percent",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [({"time": "x"}, {}), ({}, {"time": 10.0}), ({}, {"time": 9.0}), ({}, {"time": None})],
)
def test_no_time_no_rates(before, after):
    node = {"before": {**side(10.0), **before}, "after": {**side(12.0), **after}}
    assert activity.activity("net", node) is None


@pytest.mark.parametrize(
    "damage",
    [{"softirqs": {}}, {"softirqs": 3}, {"softirqs": {"NET_RX": "x"}}, {"softirqs": {"NET_RX": 0}}],
)
def test_a_missing_count_is_not_zero(damage):
    result = activity.activity("net", {"before": side(10.0), "after": side(12.0, **damage)})
    assert result.net_rx_per_s is None
    assert "net_rx_per_s" not in {m.metric for m in activity.metrics([result], "eth1")}


@pytest.mark.parametrize("ticks", [[], None, ["x"] * 8])
def test_missing_processor_times(ticks):
    result = activity.activity("net", {"before": side(10.0), "after": side(12.0, cpu_ticks=ticks)})
    assert (result.softirq_percent, result.irq_percent) == (None, None)


def used(node, own_s, idle=0, cpus=2, ticks=None):
    """A node's file of a step of 2 s: its own processes used so many seconds, so many ticks of
    the kernel were idle."""
    more = {"time": 12.0, "used_s": 3.0 + own_s, "cpus": cpus}
    first = {"cpu_ticks": [1000] * 8, "used_s": 3.0, "ticks_per_s": 100}
    last = {"cpu_ticks": ticks or [1000, 1000, 1000, 1000 + idle, *[1000] * 4], "ticks_per_s": 100}
    return {
        "before": {**side(10.0), **first, "node": node},
        "after": {**side(12.0), **last, **more, "node": node},
    }


@pytest.mark.parametrize(
    ("own_s", "idle", "cpus", "waited_s", "others", "waited"),
    [
        (2.0, 200, 2, 0.5, 0, 0),  # alone: it cannot have waited for another program
        (1.0, 200, 2, 0.5, 50, 25),
        (1.0, 0, 2, 1.0, 150, 50),
        (8.0, 0, 8, 0.0, 400, 0),  # other programs had other cores
    ],
)
def test_other_programs(own_s, idle, cpus, waited_s, others, waited):
    node = {**used("n1", own_s, idle, cpus), "waited_s": waited_s}
    (result,) = activity.of_step("net", [node], shared=False)
    assert (result.others_percent, result.waited_percent) == pytest.approx((others, waited))


def test_ranks_of_a_lab_do_not_count_as_other_programs():
    nodes = [used("n1", 2.0), used("n2", 1.0)]
    for result in activity.of_step("net", nodes, shared=True):
        assert result.others_percent == pytest.approx(50)
    apart = activity.of_step("net", nodes, shared=False)
    assert [one.others_percent for one in apart] == pytest.approx([100, 150])


def test_a_hypervisor_counts_as_another_program_and_interrupts_do_not():
    quiet = used("n1", 2.0, ticks=[1000, 1000, 1000, 1000, 1100, 1050, 1050, 1000])
    stolen = used("n1", 2.0, ticks=[1000, 1000, 1000, 1100, 1000, 1000, 1000, 1100])
    percents = [activity.of_step("net", [node], shared=False)[0].others_percent
                for node in (quiet, stolen)]  # fmt: skip
    assert percents == pytest.approx([0, 50])


@pytest.mark.parametrize("lacking", ["used_s", "cpus", "cpu_ticks"])
@pytest.mark.parametrize("how", ["gone", "null"])
def test_other_programs_with_missing_readings(lacking, how):
    node = {**used("n1", 1.0), "waited_s": 1.0}
    if how == "gone":
        del node["after"][lacking]
    else:
        node["after"][lacking] = None
    (result,) = activity.of_step("net", [node], shared=False)
    assert (result.others_percent, result.waited_percent) == (None, None)
    del node["waited_s"]
    (result,) = activity.of_step("net", [node], shared=False)
    assert result.waited_percent is None
