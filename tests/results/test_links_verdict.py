"""From the figures of links to names: load, alone, one direction, three faults at once, missing."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations, permutations
from pathlib import Path

import pytest

from seatrial.results.figures import slow_alone
from seatrial.results.judge import judge
from seatrial.results.record import Activity, Case, Job, Metric, Run, Suspect, Trial, Verdict
from seatrial.results.requirements import load_requirements
from seatrial.results.verdict import conclude

CASE = Case(check="links", transport="tcp", nodes=8)
NODES = [f"n{number}" for number in range(1, 9)]
RULES = """
schema: 1
requirements:
  - {select: {check: links}, metric: latency_us, basis: BASIS, peers: median, at_most: 3.0}
  - {select: {check: links}, metric: stream_MB_s, basis: BASIS, peers: median, at_least: 0.4}
"""


def run(slow: dict[str, float], alone: dict[str, float] | None = None, **fields) -> Run:
    """Figures of all links; ``slow``: location -> factor in its round, ``alone``: in us or MB/s."""
    alone = alone or {}
    metrics = []
    for one, other in combinations(NODES, 2):
        at = f"{one}-{other}"
        value = alone.get(at, 100.0 * slow.get(at, 1))
        metrics.append(Metric(metric="latency_us", value=value, unit="us", location=at,
                              better="lower", alone=at in alone))  # fmt: skip
    for one, other in permutations(NODES, 2):
        at = f"{one}>{other}"
        value = alone.get(at, 1000.0 / slow.get(at, 1))
        metrics.append(Metric(metric="stream_MB_s", value=value, unit="MB/s", location=at,
                              better="higher", alone=at in alone))  # fmt: skip
    return Run(case=CASE, outcome="ran", metrics=metrics, job=Job(nodes=NODES), **fields)


def conclusion(tmp_path: Path, *runs: Run, basis: str = "relative") -> Verdict:
    file = tmp_path / "requirements.yaml"
    text = RULES.replace("BASIS", basis)
    if basis == "contract":
        text = text.replace("basis: contract", "basis: contract, source: annex B")
    file.write_text(text)
    rules = load_requirements(file)
    trial = Trial(
        trial="t", site="s", started=datetime(2026, 1, 1, tzinfo=UTC), seatrial="1", cases=[CASE],
        repeats=len(runs),
    )  # fmt: skip
    numbered = [one.model_copy(update={"repeat": at}) for at, one in enumerate(runs)]
    return conclude(trial, numbered, judge(trial, numbered, rules), rules)


def of_rules(tmp_path: Path, text: str, one: Run) -> Verdict:
    file = tmp_path / "requirements.yaml"
    file.write_text(text)
    rules = load_requirements(file)
    trial = Trial(
        trial="t", site="s", started=datetime(2026, 1, 1, tzinfo=UTC), seatrial="1", cases=[CASE],
    )  # fmt: skip
    return conclude(trial, [one], judge(trial, [one], rules), rules)


def of(node: str, factor: float) -> dict[str, float]:
    links = {f"{a}-{b}": factor for a, b in combinations(NODES, 2) if node in (a, b)}
    return links | {f"{a}>{b}": factor for a, b in permutations(NODES, 2) if node in (a, b)}


def fault(metric: str, location: str, side: str = "", factor: float = 9.0) -> Suspect:
    return Suspect(metric=metric, location=location, direction=side, factor=factor,
                   alone_factor=factor, conclusion="fault")  # fmt: skip


def test_a_link_that_is_slow_in_its_round_and_normal_alone_is_load(tmp_path):
    # Alone all are ten times faster: only among themselves can they be compared.
    alone = {"n1-n2": 11.0, "n3-n4": 10.0, "n5-n6": 9.0, "n7-n8": 10.0}
    suspect = Suspect(
        metric="latency_us", location="n1-n2", factor=9.0, alone_factor=1.1, conclusion="load"
    )
    verdict = conclusion(tmp_path, run({"n1-n2": 9.0}, alone, suspects=[suspect]))
    assert verdict.verdict == "accept"
    (note,) = (finding for finding in verdict.findings if "load of the rounds" in finding)
    assert note.startswith(f"note: latency_us of {CASE.id}: 1 location (n1-n2) slow in a round")


@pytest.mark.parametrize("found", [True, False])
def test_load_is_no_excuse_of_what_is_slow_alone_too(tmp_path, found):
    """The step measured it again with nothing beside it, and so knows more than the waits."""
    conclusions = [("latency_us", "n3", ""), ("stream_MB_s", "n3", "sends")]
    conclusions += [("stream_MB_s", "n3", "receives"), ("latency_us", "n7-n8", "")]
    suspects = [
        Suspect(metric=metric, location=at, direction=side, factor=9.0,
                alone_factor=9.0 if found else None,
                conclusion="fault" if found else "unknown")
        for metric, at, side in conclusions
    ]  # fmt: skip
    busy = [Activity(step="links", node=node, seconds=60, others_percent=90, waited_percent=90)
            for node in NODES]  # fmt: skip
    slow = {**of("n3", 9.0), "n7-n8": 9.0}
    verdict = conclusion(tmp_path, run(slow, suspects=suspects, activity=busy))
    assert verdict.counts.get("fail", 0) == (7 + 14 + 1 if found else 0), verdict.counts
    assert verdict.counts.get("inconclusive", 0) == (0 if found else 22)


def test_half_of_the_runs_are_enough_for_what_is_slow_alone():
    found, fine = run({}, suspects=[fault("latency_us", "n1-n2", factor=5.0)]), run({})
    assert slow_alone([found, fine]) == {(CASE, "latency_us"): {("", "n1-n2"): 5.0}}
    assert slow_alone([found, fine, fine]) == {(CASE, "latency_us"): {}}


def test_a_link_that_is_slow_alone_is_a_fault_although_others_are_slower_in_their_rounds(tmp_path):
    alone = {"n1-n2": 90.0, "n3-n4": 10.0, "n5-n6": 9.0, "n7-n8": 10.0}
    verdict = conclusion(tmp_path, run({}, alone))
    assert verdict.verdict == "reject"
    assert "on link n1-n2 is 90 us" in verdict.findings[0]


def test_a_round_does_not_count_where_another_run_measured_the_link_alone(tmp_path):
    alone = {"n1-n2": 11.0, "n3-n4": 10.0, "n5-n6": 9.0}
    verdict = conclusion(tmp_path, run({}, alone), run({"n1-n2": 2.9}))
    assert verdict.verdict == "accept"
    # Rounds are ten times slower: beside peers measured alone they say nothing.
    assert conclusion(tmp_path, run({}, alone), run({}), run({})).verdict == "accept"


@pytest.mark.parametrize("basis", ["relative", "contract"])
def test_what_only_a_round_found_slow_decides_nothing(tmp_path, basis):
    """It is within the suspect factor, so that it was not measured alone, and beyond a bound."""
    slow = {"n1-n2": 3.5, "n3>n4": 3.5}
    verdict = conclusion(tmp_path, run(slow), basis=basis)
    assert verdict.verdict == "incomplete"
    assert (verdict.counts.get("fail", 0), verdict.counts["inconclusive"]) == (0, 2)
    assert all("lower suspect_factor of links" in finding for finding in verdict.findings[:2])
    found = run(slow, suspects=[fault("latency_us", "n1-n2", factor=3.5)])
    assert conclusion(tmp_path, found, basis=basis).counts["fail"] == 1


def test_an_absolute_bound_is_not_broken_by_a_round(tmp_path):
    """A link that is too fast is no effect of the load, and a link without a round has none."""
    rule = "select: {check: links}, metric: latency_us, basis: contract, source: t, unit: us"
    rule = f"schema: 1\nrequirements:\n  - {{{rule}, at_least: 50, at_most: 300}}\n"
    rule += "informative:\n  - {select: {}, metric: stream_MB_s, reason: r}\n"
    assert of_rules(tmp_path, rule, run({"n1-n2": 4.0})).counts["inconclusive"] == 1
    assert of_rules(tmp_path, rule, run({"n1-n2": 0.1})).counts["fail"] == 1
    no_round = run({"n1-n2": 4.0})
    for metric in no_round.metrics:
        metric.alone = None
    assert of_rules(tmp_path, rule, no_round).counts["fail"] == 1


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "accept"), (5.0, "incomplete")])
def test_the_only_link_left_of_the_rounds_is_compared_with_those_alone(tmp_path, factor, verdict):
    links = [f"{a}-{b}" for a, b in combinations(NODES, 2)]
    links += [f"{a}>{b}" for a, b in permutations(NODES, 2)]
    alone = {at: 1000.0 if ">" in at else 100.0 for at in links if at not in ("n1-n2", "n1>n2")}
    own = conclusion(tmp_path, run({"n1-n2": factor, "n1>n2": factor}, alone))
    assert own.verdict == verdict
    assert not [finding for finding in own.findings if "no peers" in finding]


def test_a_link_slow_in_one_direction_is_named_with_its_direction(tmp_path):
    alone = {"n4>n2": 50.0, "n2>n4": 990.0, "n1>n3": 1000.0, "n3>n1": 1000.0, "n5>n6": 1000.0}
    verdict = conclusion(tmp_path, run({}, alone))
    assert verdict.verdict == "reject"
    direction = [finding for finding in verdict.findings if "one direction only" in finding]
    assert direction == [
        "a link of links.tcp.default.8n is slow in one direction only (stream_MB_s): from n4 to n2"
    ]


def test_three_faults_at_once_are_all_named(tmp_path):
    slow = of("n5", 10.0) | {"n1-n2": 8.0, "n3>n7": 20.0}
    suspects = [fault("latency_us", "n5"), fault("latency_us", "n1-n2"),
                fault("stream_MB_s", "n5", "sends"), fault("stream_MB_s", "n5", "receives"),
                fault("stream_MB_s", "n3>n7")]  # fmt: skip
    away = {"n8": "it did not answer for 30 s"}
    verdict = conclusion(tmp_path, run(slow, suspects=suspects, unmeasured=away))
    text = "\n".join(verdict.findings)
    assert verdict.verdict == "reject"
    assert "node n5 is common to 7 of 8 failing links of links.tcp.default.8n: latency_us" in text
    assert "8 figures break the relative requirement" in text
    assert "n1-n2" in text
    assert "from n3 to n7" in text
    assert "n8 was not measured: it did not answer for 30 s" in text


def test_a_node_that_is_slow_in_what_it_sends(tmp_path):
    slow = {f"n2>{other}": 10.0 for other in NODES if other != "n2"}
    suspects = [fault("stream_MB_s", "n2", "sends")]
    verdict = conclusion(tmp_path, run(slow, suspects=suspects))
    assert verdict.findings[0].startswith(
        "node n2 is common to all 7 failing links in what it sends"
    )


@pytest.mark.parametrize("factor", [9.0, 1.6])
def test_links_as_slow_as_most_others_are_not_passed_if_the_fit_finds_them_slow(tmp_path, factor):
    """Three bad nodes of eight have more than half of the links, and their median is a bad one."""
    slow: dict[str, float] = {}
    for node in ("n1", "n2", "n3"):
        slow |= of(node, factor)
    suspects = [
        fault(metric, node, side, factor)
        for node in ("n1", "n2", "n3")
        for metric, side in (
            ("latency_us", ""),
            ("stream_MB_s", "sends"),
            ("stream_MB_s", "receives"),
        )
    ]
    verdict = conclusion(tmp_path, run(slow, suspects=suspects))
    text = "\n".join(verdict.findings)
    if factor < 2:  # within the bounds of the requirements
        assert verdict.verdict == "accept", text
    else:
        assert verdict.verdict == "incomplete"
        assert verdict.counts["inconclusive"] == 18 + 36
        assert "the fit over all links finds n1, n2, n3 slow, alone too" in text
        assert "9 times worse than usual" in text
        assert "3 nodes of links.tcp.default.8n are slow in their rounds and alone" in text


def test_the_fit_names_a_node_of_which_few_links_break_the_bound(tmp_path):
    slow = of("n5", 2.5) | {"n5-n6": 4.0, "n5-n7": 4.0, "n1-n2": 4.0}
    links = [fault("latency_us", at) for at in ("n5-n6", "n5-n7", "n1-n2")]
    node = fault("latency_us", "n5", factor=2.5)
    with_fit = conclusion(tmp_path, run(slow, suspects=[node, *links]))
    assert "node n5 is common to 2 of 3 failing links" in "\n".join(with_fit.findings)
    assert "node n5 is" not in "\n".join(conclusion(tmp_path, run(slow, suspects=links)).findings)


@pytest.mark.parametrize("location", ["n8", "n1-n8"])
def test_what_was_not_measured_leaves_a_trial_incomplete_and_its_clause_untested(
    tmp_path, location
):
    one = run({}, unmeasured={location: "no answer"})
    assert conclusion(tmp_path, one).verdict == "incomplete"
    contract = conclusion(tmp_path, one, basis="contract")
    assert contract.verdict == "incomplete"
    assert [clause.status for clause in contract.clauses] == ["not tested", "not tested"]
    assert any(location in finding for finding in contract.findings)


def test_a_network_in_two_parts_is_named_by_its_sides(tmp_path):
    side = {"n2", "n3", "n8"}
    whole = run({})
    kept = [
        m for m in whole.metrics
        if len(side & set((m.location or "").replace(">", "-").split("-"))) != 1
    ]  # fmt: skip
    away = {f"{a}-{b}": "no route" for a, b in combinations(NODES, 2) if len(side & {a, b}) == 1}
    two = whole.model_copy(update={"metrics": kept, "unmeasured": away})
    verdict = conclusion(tmp_path, two)
    assert verdict.verdict == "incomplete"
    assert verdict.findings[0] == (
        "the network under links.tcp.default.8n is in 2 parts: no link between them works, and all "
        "within each do: n2, n3, n8; n1, n4, n5, n6, n7: check what joins their switches"
    )
    holed = [m for m in kept if m.location not in ("n2-n3", "n2>n3", "n3>n2")]
    hole = two.model_copy(update={"metrics": holed, "unmeasured": {**away, "n2-n3": "no route"}})
    assert "in 2 parts" not in "\n".join(conclusion(tmp_path, hole).findings)
