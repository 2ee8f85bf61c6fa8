"""Several pairs over several interfaces: efficiency, balance, and a bond beside as many others."""

from __future__ import annotations

import math
import random

import pytest

from seatrial.analysis.conclusion import Measured
from seatrial.analysis.several_pairs import several_pairs
from seatrial.results.record import Case, Job, Metric, PathProof, Run

#: Strazdins, slide 11 and 8: MB/s of a ping-pong of 4 MB at 1, 2 and 4 pairs
INDEPENDENT = {1: 107.0, 2: 172.0, 4: 296.0}
BOND = {2: 144.0, 4: 256.0}
PATTERNS = ("pingpong", "uni", "bi")


def run(profile, pairs, rate, through, members, trial="t1", repeat=0, balance=1.0, **facts):
    """A run in which all patterns have the sum ``rate``, and the last pair is slower."""
    own = rate / (pairs - 1 + balance)
    of_pairs = [own] * (pairs - 1) + [own * balance]
    case = Case(
        check="mpi_pairs", variant=f"{pairs}-pairs", transport="openmpi-tcp", profile=profile,
        nodes=2,
    )  # fmt: skip
    metrics = [
        Metric(metric=f"{name}_MB_s", value=rate, unit="MB/s", better="higher") for name in PATTERNS
    ]
    metrics.append(Metric(metric="latency_us", value=20.0 * pairs, unit="us", better="lower"))
    made = {
        "pairs": pairs, "repetitions": 10, "cores": [[i, i] for i in range(pairs)],
        "pairs_MB_s": dict.fromkeys(PATTERNS, of_pairs), "message_B": 4 << 20,
        "scatter_percent": dict.fromkeys(("latency", *PATTERNS), 2.5),
        "through": through, "members": members, **facts,
    }  # fmt: skip
    nic = {
        node: {name: {"before": {"driver": "bonding" if name == "bond0" else "igb"}}
               for name in through}
        for node in ("n1", "n2")
    }  # fmt: skip
    proof = PathProof(network="test", required_bytes=1, counters=[], crossed=True)
    return Measured(trial, Run(case=case, repeat=repeat, round=repeat, outcome="ran",
                               metrics=metrics, nic=nic, facts=made, path=proof,
                               job=Job(nodes=["n1", "n2"])))  # fmt: skip


def own_interfaces(pairs, rate, profile="independent", **changed):
    names = [f"eth{i + 1}" for i in range(pairs)]
    return run(profile, pairs, rate, names, dict.fromkeys(names, 1), **changed)


def bonded(pairs, rate, members=None, **changed):
    members = members or pairs
    return run(f"bond-{members}", pairs, rate, ["bond0"] * pairs, {"bond0": members}, **changed)


def published(jitter=lambda: 1.0, repeats=1):
    return [
        one
        for repeat in range(repeats)
        for one in (
            *(own_interfaces(k, v * jitter(), repeat=repeat) for k, v in INDEPENDENT.items()),
            *(bonded(k, v * jitter(), repeat=repeat) for k, v in BOND.items()),
        )
    ]


def test_the_published_figures_have_the_published_efficiencies_and_ratios():
    [made] = several_pairs(published())
    points = {point.pairs: point for point in made.points["independent", "pingpong"]}
    assert points[2].efficiency.value == pytest.approx(0.80, abs=0.005)
    assert points[4].efficiency.value == pytest.approx(0.69, abs=0.005)
    assert points[1].efficiency is None
    ratios = {bond.pairs: bond.ratio.value for bond in made.bonds if bond.pattern == "pingpong"}
    assert ratios == pytest.approx({2: 0.84, 4: 0.86}, abs=0.005)
    assert {bond.bond for bond in made.bonds} == {"bond-2", "bond-4"}
    # measured once: no interval, and no answer
    assert {bond.decision.answer for bond in made.bonds} == {"measure more"}


def test_the_published_bond_of_one_interface_is_no_bond():
    """105 against 107 MB/s: one interface under a driver that could bond more."""
    [made] = several_pairs([*published(), bonded(1, 105.0)])
    [alone] = [p for p in made.points["bond-1", "pingpong"] if p.pairs == 1]
    of_own = made.points["independent", "pingpong"][0]
    assert alone.total.value / of_own.total.value == pytest.approx(0.98, abs=0.005)
    assert not alone.layout.bonded
    assert {bond.pairs for bond in made.bonds} == {2, 4}


def test_the_published_bypass_is_beside_the_independent_interfaces():
    """A guest with devices of its own: 200 and 296 MB/s at two and four pairs, none at one."""
    bypass = [own_interfaces(k, v, "bypass") for k, v in ((2, 200.0), (4, 296.0))]
    [made] = several_pairs([*published(), *bypass])
    total = {(name, p.pairs): p.total.value for name in ("independent", "bypass")
             for p in made.points[name, "pingpong"]}  # fmt: skip
    ratios = {k: total["bypass", k] / total["independent", k] for k in (2, 4)}
    assert ratios == pytest.approx({2: 1.16, 4: 1.00}, abs=0.005)
    # against one pair on one interface of the other profile: there is none of its own
    efficiencies = [p.efficiency.value for p in made.points["bypass", "pingpong"]]
    assert efficiencies == pytest.approx([200 / 214, 296 / 428])


def test_the_published_latencies_of_one_pair():
    """87 us on an interface of its own, 91 us through the driver's bond, 106 us from a guest."""
    runs = []
    for profile, rate, us in (("default", 107.0, 87.0), ("driver-bond", 105.0, 91.0),
                              ("guest-bond", 51.0, 106.0)):  # fmt: skip
        one = own_interfaces(1, rate, profile)
        one.run.metrics[-1].value = us
        runs.append(one)
    [made] = several_pairs(runs)
    found = {p: made.points[p, "latency"][0] for p in ("default", "driver-bond", "guest-bond")}
    assert [one.total.value for one in found.values()] == [87, 91, 106]
    assert all(one.efficiency is None for one in found.values())


def test_the_efficiency_of_a_bond_is_against_one_pair_on_one_interface():
    """One pair over a bond of four has up to four wires; it is not the B_1 of Strazdins."""
    runs = [*published(), bonded(1, 250.0, members=4)]
    [made] = several_pairs(runs)
    points = {point.pairs: point for point in made.points["bond-4", "pingpong"]}
    assert points[4].efficiency.value == pytest.approx(256 / (4 * 107))
    assert points[1].layout.bonded
    assert points[1].efficiency is None


def test_a_bond_is_compared_at_as_many_pairs_as_it_has_members():
    runs = [*published(), bonded(2, 200.0, members=4)]
    [made] = several_pairs(runs)
    assert {(bond.bond, bond.pairs) for bond in made.bonds} == {("bond-2", 2), ("bond-4", 4)}


def test_a_bond_beside_interfaces_of_their_own_is_no_bond_of_four():
    mixed = run("bond-2", 4, 270.0, ["bond0", "bond0", "eth3", "eth4"],
                {"bond0": 2, "eth3": 1, "eth4": 1})  # fmt: skip
    [made] = several_pairs([*published(), mixed])
    assert ("bond-2", 4) not in {(bond.bond, bond.pairs) for bond in made.bonds}
    point = next(p for p in made.points["bond-2", "uni"] if p.pairs == 4)
    assert (point.layout.interfaces, point.layout.members) == (3, 2)


def test_without_one_pair_on_one_interface_there_is_no_efficiency():
    runs = [one for one in published() if one.run.facts["pairs"] > 1]
    [made] = several_pairs(runs)
    assert all(p.efficiency is None for points in made.points.values() for p in points)


def test_balance_scatter_and_cores():
    runs = [own_interfaces(2, 100.0, balance=0.5),
            own_interfaces(4, 100.0, cores=[[0, 0], [0, 0], [1, 1], [1, 1]]),
            own_interfaces(1, 60.0, cores=[[-1, -1]])]  # fmt: skip
    [made] = several_pairs(runs)
    one, two, four = made.points["independent", "uni"]
    assert two.balance == pytest.approx(0.5)
    assert (two.scatter, two.repetitions) == (2.5, 10)
    assert (one.own_core, two.own_core, four.own_core) == (False, True, False)


def test_latency_has_no_efficiency_and_less_of_it_is_better():
    [made] = several_pairs(published())
    assert all(point.efficiency is None for point in made.points["independent", "latency"])
    assert made.points["independent", "latency"][0].total.value == 20.0


def test_pairs_inside_a_node_are_apart():
    inside = run("independent", 1, 530.0, [], {}, within_node="shared memory")
    case = Case(**{**_fields(inside.run.case), "variant": "1-pairs-within"})
    metrics = [Metric(metric="within_uni_MB_s", value=530.0, unit="MB/s", better="higher")]
    control = Measured("t1", inside.run.model_copy(update={"case": case, "metrics": metrics}))
    [made] = several_pairs([*published(), control])
    [within] = made.within
    assert (within.pairs, within.how) == (1, "shared memory")
    assert within.figures["uni"].value == 530.0
    assert [point.pairs for point in made.points["independent", "uni"]] == [1, 2, 4]


def test_facts_that_a_job_user_has_spoiled_are_no_run():
    spoiled = [{"cores": 3}, {"pairs": 0}, {"pairs_MB_s": {"uni": [float("nan")]}},
               {"through": [1]}, {"members": {"eth1": "x"}}]  # fmt: skip
    for facts in spoiled:
        one = own_interfaces(1, 1.0)
        one.run.facts |= facts
        assert several_pairs([one]) == []
    [made] = several_pairs([own_interfaces(1, 1.0, message_B="large")])
    assert made.message_B == 0


def _fields(case: Case) -> dict[str, object]:
    return {name: getattr(case, name) for name in ("check", "transport", "profile", "nodes")}


def answers(truth: float, seed: int) -> set[str]:
    """Who is best in both directions of two pairs; ``truth``: bond over independent."""
    noise = random.Random(seed)
    runs = [
        one
        for repeat in range(8)
        for one in (
            own_interfaces(2, 100 * noise.gauss(1, 0.01), repeat=repeat),
            bonded(2, 100 * truth * noise.gauss(1, 0.01), repeat=repeat),
        )
    ]
    [made] = several_pairs(runs)
    decision = next(bond.decision for bond in made.bonds if bond.pattern == "bi")
    return {decision.leaders[0] if decision.answer == "best" else decision.answer}


def test_a_made_up_truth_is_answered():
    trials = 60
    equal = [answers(1.0, seed) for seed in range(trials)]
    assert sum(one <= {"no difference"} for one in equal) >= 0.95 * trials
    slower = [answers(0.85, seed) for seed in range(trials)]
    assert sum(one == {"independent"} for one in slower) >= 0.95 * trials


@pytest.mark.parametrize("virtual_time", [False, True])
def test_the_runs_of_a_round_are_one_sample(virtual_time):
    """Six runs in three rounds have no interval; in virtual time each is a sample."""
    inside = own_interfaces(1, 530.0, within_node="shared memory").run
    case = Case(**{**_fields(inside.case), "variant": "1-pairs-within"})
    metrics = [Metric(metric="within_uni_MB_s", value=530.0, unit="MB/s", better="higher")]
    inside = inside.model_copy(update={"case": case, "metrics": metrics})
    runs = [
        Measured("t1", run.model_copy(update={"repeat": i, "round": i // 2}), virtual_time)
        for run in (inside, own_interfaces(1, 107.0).run, own_interfaces(2, 172.0).run)
        for i in range(6)
    ]
    [made] = several_pairs(runs)
    [within] = made.within
    one, two = made.points["independent", "uni"]
    bounded = [math.isfinite(e.high) for e in (within.figures["uni"], one.total, two.efficiency)]
    assert bounded == [virtual_time] * 3
