"""Nodes that were swapped for others: what is said of them, and what is not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from history_support import BEGIN
from seatrial.history.changes import Scope, SiteHistory
from seatrial.history.series import Column, KnownTrial, Series
from seatrial.report.changes import effect, subject
from seatrial.results.record import Case

SWAP = 30
LINKS = Case(check="links", transport="tcp", nodes=4)
NPB = Case(check="npb", variant="is.S", transport="openmpi-tcp", nodes=4)
PAIR = Case(check="netpipe", transport="tcp", nodes=2)
METRICS = ("latency_us", "n_half_us")


def site(
    nights, slow=1.0, driver=None, back=None, names=("n1", "n2", "n3", "n4"), new="n9",
    changed=(), unit="us",
):  # fmt: skip
    """The last node is swapped for ``new``, which is slower, until the night ``back``; a driver is
    slower by 10 % for all from the night ``driver`` on. ``changed``: metric and location of what
    is slower by 20 % since the swap; ``unit``: of latencies since then."""
    draw = np.random.default_rng(3)
    figures: dict[Series, list[tuple[int, float]]] = {}
    conditions = {}
    for night in range(nights):
        swapped = SWAP <= night < (back or nights)
        here = [*names[:3], new if swapped else names[3]]
        step = 1.1 if driver is not None and night >= driver else 1.0
        under = {"driver of eth1": "igb 5.2" if step > 1 else "igb 5.1"}
        links = [(a, b) for at, a in enumerate(here) for b in here[at + 1 :]]
        for case, ends in ((LINKS, links), (NPB, [()]), (PAIR, [()])):
            conditions[night + 1, case.id] = under | {"nodes": ", ".join(here[: case.nodes])}
            for metric in METRICS:
                for own in ends:
                    at_new = new in own or (case == NPB and swapped)
                    location = "-".join(own)
                    value = 100 * np.exp(draw.normal(0, 0.008)) * step * (slow if at_new else 1)
                    value *= 1.2 if night >= SWAP and (metric, location) in changed else 1
                    own_unit = unit if night >= SWAP and metric == "latency_us" else "us"
                    value /= 1000 if own_unit == "ms" else 1
                    series = Series("lab", case, metric, location, own_unit, "lower")
                    figures.setdefault(series, []).append((night, value))
    trials = [
        KnownTrial(
            at + 1, Path(f"lab-{at:03}"), f"lab-{at:03}", "lab", BEGIN + timedelta(days=at),
            "accept", [], 1,
        )
        for at in range(nights)
    ]  # fmt: skip
    columns = [
        Column(
            one, np.array([at for at, _ in own]), np.array([value for _, value in own]),
            [[value] for _, value in own[:3]],
        )
        for one, own in figures.items()
    ]  # fmt: skip
    return SiteHistory("lab", trials, conditions, columns)


def of_swap(history):
    (one,) = (
        finding
        for finding in history.findings
        if finding.first.name == f"lab-{SWAP:03}" and finding.swapped
    )
    return one


@pytest.mark.parametrize("nights", [SWAP + 1, SWAP + 2, SWAP + 5, 45])
def test_a_driver_of_the_night_of_a_swap_is_a_finding_beside_it(nights):
    """A healthy node takes no blame."""
    history = site(nights, driver=SWAP)
    swap = of_swap(history)
    assert swap.changes == []
    assert subject(swap) == "node n4 was swapped for n9"
    if nights > SWAP + 3:
        (driver,) = (finding for finding in history.findings if finding is not swap)
        assert driver.scope == Scope("site")
        assert driver.swapped is None
        assert len({change.series for change in driver.changes}) == len(METRICS) * 8


def test_a_slow_new_node_beside_a_driver_has_its_own_series_only():
    history = site(45, slow=1.2, driver=SWAP)
    swap = of_swap(history)
    (driver,) = (finding for finding in history.findings if finding is not swap)
    assert {
        "n9" in change.series.location or change.series.case == NPB for change in swap.changes
    } == {True}
    assert len(swap.changes) == len(METRICS) * 4
    assert len(driver.changes) == len(METRICS) * 4


@pytest.mark.parametrize(
    ("names", "new"), [(("n1", "n2", "n3", "n4"), "n9"), (("a-1", "a-2", "b-c-3", "d-4"), "e-f-9")]
)
def test_what_was_said_of_a_node_stays_when_the_other_returns(names, new):
    def said(history):
        own = of_swap(history)
        return own.id, own.found.name, subject(own), effect(own)[:14], {
            change.series for change in own.changes
        }  # fmt: skip

    before = said(site(45, slow=1.2, names=names, new=new))
    assert len(before[4]) == len(METRICS) * 4
    assert before[2] == f"node {names[3]} was swapped for {new}"
    for nights in (51, 53, 70):
        history = site(nights, slow=1.2, back=50, names=names, new=new)
        assert said(history) == before
        (back,) = (finding for finding in history.findings if finding.first.name == "lab-050")
        assert subject(back) == f"node {new} was swapped for {names[3]}"
        # Of a case as a whole, the node is not in the name of the series.
        assert {change.series.case for change in back.changes} <= {NPB}


def test_several_nodes_were_swapped():
    finding = of_swap(site(45))
    finding.swapped = (["n3", "n4"], ["n8", "n9"])
    assert subject(finding) == "nodes n3, n4 were swapped for n8, n9"


def test_a_series_of_other_nodes_that_changes_with_a_swap_is_a_finding_beside_it():
    history = site(45, changed=[("latency_us", "n1-n2")])
    swap = of_swap(history)
    (link,) = (finding for finding in history.findings if finding is not swap)
    assert [change.series.location for change in link.changes] == ["n1-n2"]
    assert (link.first.name, link.scope.kind) == (f"lab-{SWAP:03}", "series")
    assert swap.changes == []


def test_a_series_in_another_unit_does_not_continue_that_of_the_node_that_went():
    history = site(45, unit="ms")
    changes = [change for own in history.findings for change in own.changes]
    assert {change.lost for change in changes} == {"unit"}
    assert {change.unit for change in changes} == {"ms"}
