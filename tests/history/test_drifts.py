"""Slow drifts, and versions that come to one node after the other: one cause, one finding."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns import rounds
from history_support import made_up
from seatrial.history.changes import Scope
from seatrial.history.conditions import of_nodes_text
from seatrial.history.drift import Course, Span, drift_of
from seatrial.history.series import Series
from seatrial.report.changes import headline, sentences
from seatrial.report.message import sentence
from seatrial.results.record import Case

NODES = ("n1", "n2", "n3", "n4")
CASES = [Case(check="links", transport="tcp", nodes=4, profile=one) for one in ("default", "jumbo")]
LINKS = [f"{a}-{b}" for at, a in enumerate(NODES) for b in NODES[at + 1 :]]
BEGIN, NIGHTS = 20, 60
SEEDS = rounds(range(1, 3), range(1, 5))
WEEKLY = 0.01


def history(seed, size, conditions, places=LINKS, nights=NIGHTS):
    """``size``: case, location, nights -> how much slower, as a logarithm."""
    draw = np.random.default_rng(seed)
    at = np.arange(nights)
    figures = {
        Series("lab", case, "latency_us", place, "us", "lower"): 30
        * np.exp(0.01 * draw.normal(size=nights) + size(case, place, at))
        for case in CASES for place in places
    }  # fmt: skip
    return made_up(
        figures, lambda night, case: {"nodes": ", ".join(NODES)} | conditions(night, case)
    )


def slope(at):
    return WEEKLY / 7 * np.maximum(0, at - BEGIN)


def kernel_at(begin):
    return lambda night, case: {"kernel": "6.12" if night >= begin else "6.1"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernel", [25, 30, 40])
def test_a_drift_of_all_series_is_one_finding_and_no_kernel_within_it_is_its_cause(kernel, seed):
    site = history(seed, lambda case, place, at: slope(at), kernel_at(kernel))
    (one,) = [own for own in site.findings if len(own.changes) > 1]
    assert len(site.findings) == 1
    assert one.drift
    assert one.until is None
    assert one.scope == Scope("site")
    assert one.conditions == []
    assert {change.series for change in one.changes} == {c.series for c in site.columns}
    assert abs(int(one.first.name[-3:]) - BEGIN) <= 5
    assert np.median([change.ratio for change in one.changes]) == pytest.approx(1.056, abs=0.01)
    assert "12 of 12 series drift worse by " in headline(one)
    assert sentences(one)[1].startswith(f"since about {one.first.started:%Y-%m-%d} (")
    assert "kernel" not in "".join([*sentences(one, 20), sentence(one)])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_drift_of_a_node_is_of_the_node_and_a_driver_beside_it_is_another_finding(seed):
    def size(case, place, at):
        return slope(at) * ("n3" in place) + 0.08 * (at >= 35) * (case.profile == "jumbo")

    def conditions(night, case):
        new = night >= 35 and case.profile == "jumbo"
        return {"driver of eth1": "igb 5.2" if new else "igb 5.1"}

    findings = history(seed, size, conditions).findings
    drift = max(
        (finding for finding in findings if finding.drift), key=lambda one: len(one.changes)
    )
    assert drift.scope == Scope("node", "n3")
    (driver,) = [finding for finding in findings if finding.conditions]
    assert not driver.drift
    assert [condition.name for condition in driver.conditions] == ["driver of eth1"]
    assert driver.first.name == "lab-035"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("percent", [2, 4])
def test_a_step_with_a_kernel_is_no_drift(percent, seed):
    site = history(seed, lambda case, place, at: percent / 100 * (at >= 30), kernel_at(30))
    one = max(site.findings, key=lambda own: len(own.changes))
    assert not one.drift
    assert [c.name for c in one.conditions] == ["kernel"]
    assert (one.first.name, len(one.changes)) == ("lab-030", 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_nodes_that_become_slow_on_two_nights_are_two_findings(seed):
    def size(case, place, at):
        return 0.05 * ((at >= 30) * ("n1" in place) + (at >= 34) * ("n4" in place))

    first, second = history(seed, size, kernel_at(99)).findings
    assert [one.scope for one in (first, second)] == [Scope("node", "n1"), Scope("node", "n4")]
    assert not first.drift
    assert not second.drift


@pytest.mark.parametrize("drifts", [True, False])
def test_a_small_change_beside_a_known_drift_of_many_series_is_decided_by_its_own_series(drifts):
    """It is a part of the drift if its figures are, however many others drift by more."""
    draw = np.random.default_rng(1)
    at = np.arange(NIGHTS)
    span = Span(21, 50)
    ramp, step = np.clip((at - span.begin) / (span.end - span.begin), 0, 1), 1.0 * (at >= 35)

    def course(size, shape, **fields):
        return Course(at.astype(float), 0.003 * draw.normal(size=NIGHTS) + size * shape, **fields)

    known = [course(0.3, ramp, steps=[], drifts=True) for _ in range(45)]
    small = [course(0.05, ramp if drifts else step, steps=[(35, 35)]) for _ in range(6)]
    assert drift_of([*known, *small], span) == (span if drifts else None)


def test_a_drift_that_ended_says_when():
    def size(case, place, at):
        return np.minimum(slope(at), slope(np.array(45)))

    (one,) = history(1, size, kernel_at(99), nights=80).findings
    assert one.drift
    assert abs(int(one.until.name[-3:]) - 45) <= 4
    assert f"until about {one.until.started:%Y-%m-%d}" in sentences(one)[1]


def of_nodes(new, name="driver of eth1"):
    """``new``: for each node the night with which it gets another version."""
    return lambda night, case: {
        name: of_nodes_text(
            {node: "5.2" if night >= new[node] else "5.1" for node in NODES if node in new}
        )
    }


@pytest.mark.parametrize("name", ["driver of eth1", "kernel"])
@pytest.mark.parametrize("apart", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_version_that_comes_to_one_node_after_the_other_is_one_finding(seed, apart, name):
    new = {node: 30 + apart * number for number, node in enumerate(NODES)}

    def size(case, place, at):
        return 0.1 * (at >= new[place])

    (one,) = history(seed, size, of_nodes(new, name), places=NODES).findings
    assert [(c.name, c.before, c.after) for c in one.conditions] == [(name, "5.1", "5.2")]
    assert (one.scope, one.first.name) == (Scope("site"), "lab-030")
    assert one.until.name == f"lab-{new['n4']:03}"
    assert len({change.series for change in one.changes}) == 8
    assert (
        f"changed on one node after the other until {one.until.started:%Y-%m-%d}: {name} 5.1 -> 5.2"
    ) in sentences(one)[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_slow_while_a_version_comes_to_others_is_another_finding(seed):
    """n4 becomes slow on the night on which n2 gets the version."""
    new = {"n1": 30, "n2": 34, "n3": 90, "n4": 90}

    def size(case, place, at):
        return 0.1 * (at >= (30 if place == "n1" else 34 if place == "n4" else 90))

    first, second = history(seed, size, of_nodes(new), places=NODES).findings
    assert {c.series.location for c in first.changes} == {"n1"}
    assert {c.series.location for c in second.changes} == {"n4"}
