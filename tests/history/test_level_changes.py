"""Changes of level, and what joins them to findings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from history_support import made_up, make_night, runs_of
from seatrial.history.changes import Scope, findings, newest
from seatrial.history.index import opened
from seatrial.history.series import Series
from seatrial.report import message
from seatrial.report.changes import effect, headline, sentences
from seatrial.results.record import Activity, Case, Job, Metric, Run
from seatrial.results.requirements import Document, Requirements

NIGHTS = 20
NODES = ("n1", "n2", "n3", "n4")
BASE = {"kernel": "6.1", "driver of eth1": "igb 5.1"}


def links_case(profile: str) -> Case:
    return Case(check="links", transport="tcp", nodes=4, profile=profile)


PAIR = Case(check="netpipe", transport="tcp", nodes=2)


class Nights:
    """Nights of links under two profiles and of NetPIPE, with 1 % noise."""

    def __init__(self, folder):
        self.folder, self.draw = folder, np.random.default_rng(17)

    def make(self, number, factor=None, nodes=NODES, versions=BASE, waits=(), **fields):
        """``factor``: (case, location) -> how much slower. ``waits``: (node, seconds of a step, per
        cent of them), of each run."""
        runs = []
        cases = [links_case("default"), links_case("jumbo"), PAIR]
        for case in cases:
            links = [""] if case == PAIR else [
                f"{a}-{b}" for at, a in enumerate(nodes) for b in nodes[at + 1 :]
            ]  # fmt: skip
            for repeat in range(3):
                metrics = [
                    Metric(
                        metric="latency_us", unit="us", better="lower", location=link or None,
                        value=30 * (1 + 0.01 * self.draw.normal())
                        * (factor(case, link) if factor else 1),
                    )
                    for link in links
                ]  # fmt: skip
                runs.append(
                    Run(
                        case=case, repeat=repeat, outcome="ran", metrics=metrics,
                        job=Job(nodes=list(nodes[: case.nodes])), versions=versions,
                        activity=[
                            Activity(step=str(at), node=node, seconds=s, waited_percent=percent)
                            for at, (node, s, percent) in enumerate(waits)
                        ],
                    )
                )  # fmt: skip
        make_night(self.folder, number, (1, 1, 1), runs=runs, **fields)

    def findings(self, last=None, **patterns):
        with opened(self.folder, print) as index:
            return newest(index, last, **patterns) if last else findings(index, **patterns)


@pytest.fixture
def nights(tmp_path) -> Nights:
    return Nights(tmp_path)


def test_steady_nights_and_a_bad_one_are_no_change(nights):
    for number in range(NIGHTS):
        nights.make(number, factor=(lambda case, link: 1.3) if number == 12 else None)
    assert nights.findings() == []


def test_huge_figures_give_no_warning():
    values = np.array([30.0] * 10 + [-1.7e308, 1.7e308, 5e-324, 0.0] * 3)
    series = Series("lab", PAIR, "count", "", "1", "lower")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made_up({series: values}, lambda *_: BASE).findings  # noqa: B018


def test_a_slow_node_is_one_finding(nights):
    for number in range(NIGHTS):
        slow = number >= 15
        nights.make(number, lambda case, link, slow=slow: 1.08 if slow and "n3" in link else 1)
    (one,) = nights.findings()
    assert one.scope == Scope("node", "n3")
    assert (one.last.name, one.first.name) == ("lab-014", "lab-015")
    assert one.found.name == "lab-017"
    assert len(one.changes) == len(one.worse) == 6
    assert one.conditions == []
    for change in one.changes:
        assert change.low < 1.08 < change.high
        assert change.before.low < 30 < change.before.high
        assert change.lasts
        assert not change.drift
    assert headline(one).startswith(f"{one.id}: node n3: 6 series worse by ")


@pytest.mark.parametrize(
    ("waits", "waited"),
    [
        ([("n1", 3, 20.0), ("n1", 1, 40.0), ("n2", 1, 9.0)], "25"),  # 25 % of the time on n1
        ([("n1", 3, 0.0), ("n1", 1, 19.9), ("n2", 1, None)], ""),
        ([("n2", 1, None)], ""),
    ],
)
def test_a_finding_says_that_its_first_trial_waited_for_a_processor(nights, waits, waited):
    """As a verdict does: from 5 % of the time on. Another night that waited is no matter."""
    for number in range(NIGHTS):
        slow = number >= 15
        nights.make(
            number, lambda case, link, slow=slow: 1.1 if slow else 1,
            waits=waits if number == 15 else [("n1", 1, 50.0)] if number in (14, 16) else [],
        )  # fmt: skip
    (one,) = nights.findings()
    assert one.first.name == "lab-015"
    end = f"; a case of these waited {waited} % of its time for a processor that night"
    end = end if waited else ""
    for line in (sentences(one)[1], message.sentence(one)):
        assert line.endswith(end)
        assert ("waited" in line) == bool(waited)


def test_a_slow_link_is_one_finding(nights):
    for number in range(NIGHTS):
        slow = number >= 15
        nights.make(number, lambda case, link, slow=slow: 1.1 if slow and link == "n1-n3" else 1)
    (one,) = nights.findings()
    assert one.scope == Scope("link", "n1-n3")
    assert len(one.changes) == 2


def test_a_driver_is_named_where_figures_changed_and_a_harmless_kernel_is_not(nights):
    for number in range(NIGHTS):
        new = number >= 14
        versions = {
            "kernel": "6.1" if number < 8 else "6.1-renamed",
            "driver of eth1": "igb 5.2" if new else "igb 5.1",
        }
        nights.make(
            number, lambda case, link, new=new: 1.1 if new and case.profile == "jumbo" else 1,
            versions=versions,
        )  # fmt: skip
    (one,) = nights.findings()
    assert [(c.name, c.before, c.after) for c in one.conditions] == [
        ("driver of eth1", "igb 5.1", "igb 5.2")
    ]
    assert {change.series.case.profile for change in one.changes} == {"jumbo"}
    assert len(one.changes) == 6
    assert "changed that night: driver of eth1 igb 5.1 -> igb 5.2" in sentences(one)[1]


def test_a_version_that_comes_and_goes_is_not_named(nights):
    for number in range(NIGHTS):
        slow = number >= 14
        versions = {**BASE, "kernel": f"6.{number % 2}"}
        nights.make(number, lambda case, link, slow=slow: 1.1 if slow else 1, versions=versions)
    (one,) = nights.findings()
    assert one.scope == Scope("site")
    assert one.conditions == []


def test_two_causes_of_one_night_are_two_findings(nights):
    for number in range(NIGHTS):

        def factor(case, link, slow=number >= 15):
            return 1.1 if slow and ("n3" in link or case == PAIR) else 1

        nights.make(number, factor)
    scopes = {finding.scope.kind: finding for finding in nights.findings()}
    assert set(scopes) == {"node", "series"}
    assert scopes["node"].scope.name == "n3"
    assert scopes["series"].scope.name == f"{PAIR.id}: latency_us"


def test_a_finding_keeps_its_name_and_counts_while_worse_series_join(nights):
    seen = []
    for number in range(NIGHTS):
        slow = number >= 15
        nights.make(number, lambda case, link, slow=slow: 1.05 if slow and "n2" in link else 1)
        seen.append([finding.id for finding in nights.findings(last=1)])
    counted = [number for number, own in enumerate(seen) if own]
    (one,) = nights.findings()
    assert counted == sorted({int(change.found.name[-3:]) for change in one.changes})
    assert {16, 17, 18} >= {*counted}
    assert [own for own in seen if own] == [[one.id]] * len(counted)


def test_a_selection_changes_neither_cause_nor_name(nights):
    """Of the selected series all have moved, so that they alone would be a matter of the site."""
    for number in range(NIGHTS):
        nights.make(number, lambda case, link, n=number: 1.1 if n >= 14 and "n3" in link else 1)
    (whole,) = nights.findings()
    assert whole.scope == Scope("node", "n3")
    for selection in ({"location": ["*n3*"], "profile": ["jumbo"]}, {"metric": ["latency*"]}):
        with opened(nights.folder, print) as index:
            (part,) = findings(index, **selection)
            assert findings(index, location=["n1-n2"]) == []
            assert findings(index, location=["none"]) == []
        assert headline(part) == headline(whole)
        assert (part.found, part.changes) == (whole.found, whole.changes)
    with opened(nights.folder, print) as index:
        (part,) = findings(index, location=["*n3*"], profile=["jumbo"])
    assert [one.series.case.profile for one in part.listed] == ["jumbo"] * 3
    assert "3 of 6 series shown" in sentences(part)
    assert "2 of 6 series shown; 1 more are selected" in sentences(part, 2)


def test_a_selection_of_a_node_that_went_has_the_series_that_follow_it(nights):
    for number in range(NIGHTS):
        nodes = NODES if number < 14 else ("n1", "n2", "n3", "n9")
        nights.make(number, lambda case, link: 1.1 if "n9" in link else 1, nodes=nodes)
    for place in ("*n4", "*n9"):
        with opened(nights.folder, print) as index:
            (one,) = findings(index, location=[place])
        assert len(one.listed) == 6


def test_the_largest_per_cent_is_said():
    """Half as much is a larger change than 1.8 times as much, and 50 % is less than 80 %."""
    case = [Case(check="links", transport=name, nodes=2) for name in ("a", "b")]
    figures = {
        Series("lab", case[0], "rate", "", "MB/s", "higher"): 1.0,
        Series("lab", case[1], "time", "", "us", "lower"): 1.0,
    }
    steps = dict(zip(figures, (0.5, 1.8), strict=True))
    draw = np.random.default_rng(3)
    noise = {figure: np.exp(0.005 * draw.normal(size=NIGHTS)) for figure in figures}
    moved = {figure: 30 * noise[figure] * np.where(np.arange(NIGHTS) < 12, 1, steps[figure])
             for figure in figures}  # fmt: skip
    (one,) = made_up(moved, lambda night, case: {}).findings
    assert [change.series.metric for change in one.changes] == ["rate", "time"]
    assert effect(one) == "2 of 2 series worse by 80 % at most"
    assert "time " in message.sentence(one).partition("(")[2]


def informative(metric: str) -> Requirements:
    entry = {"select": {}, "metric": metric, "reason": "it is no measure of quality"}
    document = Document.model_validate({"schema": 1, "informative": [entry]})
    return Requirements(informative=tuple(document.informative))


def test_informative_series_come_last_and_decide_nothing(nights):
    """NetPIPE's latency is informative here, and has the largest change."""
    for number in range(NIGHTS):
        nights.make(
            number, lambda case, link, n=number: 1 if n < 14 else 3 if case == PAIR else 1.1
        )
    with opened(nights.folder, print) as index:
        (judged,) = findings(index)
        (one,) = findings(index, {"lab": _of_netpipe()})
        (none,) = newest(index, NIGHTS, {"lab": informative("latency_us")})
    assert judged.changes[0].series.case == PAIR
    assert [change.series.case == PAIR for change in one.changes] == [False] * 12 + [True]
    assert "12 of 13 series worse by 1" in effect(one)
    assert effect(one).endswith(" at most, 1 of 13 informative series changed")
    assert "(links." in message.sentence(one)
    assert (none.worse, none.better, len(none.informative)) == ([], [], 13)
    assert effect(none) == "13 of 13 informative series changed"


def _of_netpipe() -> Requirements:
    (entry,) = informative("*").informative
    select = entry.select.model_copy(update={"check": "netpipe"})
    return Requirements(informative=(entry.model_copy(update={"select": select}),))


@pytest.mark.parametrize("slow", [1.0, 1.1])
def test_a_node_in_the_place_of_another_is_said(nights, slow):
    for number in range(NIGHTS):
        nodes = NODES if number < 14 else ("n1", "n2", "n3", "n9")
        nights.make(number, lambda case, link: slow if "n9" in link else 1, nodes=nodes)
    (one,) = nights.findings()
    assert one.swapped == (["n4"], ["n9"])
    assert one.first.name == "lab-014"
    assert "node n4 was swapped for n9" in headline(one)
    if slow > 1:
        assert len(one.changes) == 6
        assert {change.series.location for change in one.changes} == {"n1-n9", "n2-n9", "n3-n9"}
    else:
        assert one.changes == []


def test_nodes_that_differ_each_night_are_no_swap(nights):
    for number in range(NIGHTS):
        nights.make(number, nodes=NODES if number % 2 else ("n1", "n2", "n3", f"m{number}"))
    assert nights.findings() == []


def test_a_drift_is_one_finding(nights):
    for number in range(60):
        up = 1 + 0.01 * max(0, number - 20) / 7
        nights.make(number, lambda case, link, up=up: up if case == PAIR else 1)
    (one,) = nights.findings()
    (change,) = one.changes
    assert change.drift
    assert change.ratio == pytest.approx(1.055, abs=0.012)
    at_found = 1 + 0.01 * (int(one.found.name[-3:]) - 20) / 7
    assert at_found < 1.05
    assert "drifts worse by" in headline(one)


def test_figures_that_can_be_zero_and_those_that_are_not_finite(tmp_path):
    case = Case(check="x", transport="none", nodes=1)
    for number in range(NIGHTS):
        values = [0.0, 0.0, 0.0] if number < 12 else [40.0, 41.0, 42.0]
        runs = runs_of(case, "drops", values, "")
        runs += runs_of(case, "rate", [float("inf")] * 3, "")
        make_night(tmp_path, number, values, runs=runs)
    with opened(tmp_path, print) as index:
        (one,) = findings(index)
    (change,) = one.changes
    assert (change.series.metric, change.before.value, change.after.value) == ("drops", 0, 41)
    assert one.first.name == "lab-012"


def test_a_few_nights_show_a_large_change(tmp_path):
    """Five nights, and a value that is ten times as slow from the third on."""
    for number in range(5):
        values = (30.0, 31.0, 29.5) if number < 2 else (300.0, 310.0, 290.0)
        make_night(tmp_path, number, values)
    with opened(tmp_path, print) as index:
        (one,) = findings(index)
    assert one.first.name == "lab-002"


def test_nothing_is_found_in_no_nights(tmp_path):
    with opened(tmp_path, print) as index:
        assert findings(index) == []
        assert newest(index) == []
    make_night(tmp_path, 0)
    with opened(tmp_path, print) as index:
        assert findings(index) == []


def test_sites_do_not_mix(nights, tmp_path):
    for number in range(NIGHTS):
        slow = number >= 15
        nights.make(number, lambda case, link, slow=slow: 1.1 if slow else 1)
    other = [runs_of(PAIR, "latency_us", (50.0, 50.1, 50.2))] * NIGHTS
    from datetime import timedelta

    from history_support import BEGIN
    from seatrial.results.folder import write_results
    from seatrial.results.record import Trial

    for number, runs in enumerate(other):
        (tmp_path / f"far-{number}").mkdir()
        begin = BEGIN + timedelta(days=number, hours=1)
        trial = Trial(trial=f"far-{number}", site="far", started=begin, seatrial="0", repeats=3)
        write_results(tmp_path / f"far-{number}" / "results.jsonl", [trial, *runs])
    (one,) = nights.findings()
    assert (one.site, one.last.name, one.scope) == ("lab", "lab-014", Scope("site"))
    (same,) = nights.findings(last=5)
    assert same.id == one.id


def test_of_thirty_nights_three_changes_are_named_and_a_harmless_one_is_not(nights):
    for number in range(30):

        def factor(case, link, number=number):
            node = 1.08 if number >= 11 and "n3" in link else 1
            driver = 1.1 if number >= 17 and case.profile == "jumbo" else 1
            return node * driver * (0.9 if number >= 24 and case == PAIR else 1)

        versions = {
            "kernel": "6.1" if number < 6 else "6.1-renamed",
            "driver of eth1": "igb 5.1" if number < 17 else "igb 5.2",
            "netpipe": "3.7" if number < 24 else "5.1",
        }
        nights.make(number, factor, versions=versions)
    node, driver, program = nights.findings()
    assert [one.first.name for one in (node, driver, program)] == ["lab-011", "lab-017", "lab-024"]
    assert (node.scope, node.conditions) == (Scope("node", "n3"), [])
    assert [condition.name for condition in driver.conditions] == ["driver of eth1"]
    assert all(one.low < 1.1 < one.high for one in driver.changes)
    assert len(driver.changes) == 6
    assert [condition.name for condition in program.conditions] == ["netpipe"]
    (change,) = program.better
    assert change.low < 0.9 < change.high
