import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.benchmarks.registry import registry
from seatrial.results.figures import POSITIVE_UNITS, _Waits
from seatrial.results.judge import PlainPasses, judge
from seatrial.results.locations import Locations
from seatrial.results.record import NO_OWN_PROCESSORS, Activity, Case, Job
from seatrial.results.verdict import conclude
from seatrial.results.wording import number, volume
from trial_maker import (
    CONTRACT,
    IMB,
    NETPIPE,
    NOW,
    PAIRS,
    error_run,
    judged,
    metric,
    requirements,
    run,
    runs_of,
    trial,
    unproven,
    verdict,
)

RATIO = """
  - select: {check: imb}
    metric: pingpong_us
    basis: relative
    relative_to: {check: netpipe, transport: tcp, metric: latency_us}
    at_most: 3.0
"""
SAME_RUN = """
  - select: {check: hpl}
    metric: hpl_GFLOPS
    basis: relative
    relative_to: {metric: dgemm_GFLOPS, same_run: true}
    at_least: 0.7
informative:
  - metric: dgemm_GFLOPS
    reason: context
"""
PEERS = """
  - select: {check: links}
    metric: bandwidth_MB_s
    basis: relative
    peers: median
    at_least: 0.5
"""


def verdicts(judgements):
    return [j.verdict for j in judgements]


# --- one figure ----------------------------------------------------------------------------


def test_explanations_stand_by_themselves():
    good = judged([30, 30.4, 29.9])
    assert (good.verdict, good.explanation) == ("pass", "")  # its fields say all
    good = judged([30, 30.1, 30, 30, 30.1, 30.2, 34])
    assert good.verdict == "pass"
    assert good.explanation == (
        "netpipe.tcp.default.2n: latency_us is 30.1 us (median of 7, spread 0.17 us), within the "
        "upper limit of 33 us of the contract (requirements.yaml:3)"
    )
    bad = judged([40])
    assert (bad.verdict, bad.lower, bad.reference, bad.spread) == ("fail", None, 30, None)
    assert bad.upper == pytest.approx(33)
    assert "is 40 us (measured once), above the upper limit of 33 us of" in bad.explanation
    doubt = judged([20, 30, 40])
    assert doubt.verdict == "inconclusive"
    assert "range from 20 to 40 us" in doubt.explanation


def test_a_value_just_beyond_is_told_apart_in_words():
    assert (
        "33.0004 us (measured once), above the upper limit of 33 us of"
        in judged([33.0004]).explanation
    )


@pytest.mark.parametrize(
    ("x", "text"),
    [(0, "0"), (940.94, "940.9"), (123456, "123456"), (1e-9, "1e-09"), (0.05, "0.05")],
)
def test_numbers(x, text):
    assert number(x) == text


def test_another_unit_is_an_error():
    assert judged([0.03], unit="ms").verdict == "error"
    assert "'ms'" in judged([0.03], unit="ms").explanation


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_an_error(bad):
    assert judged([30.0, bad]).verdict == "error"


def test_units_that_differ_between_runs_are_an_error():
    runs = [run(NETPIPE, metric(30.0)), run(NETPIPE, metric(30.0, unit="ms"), repeat=1)]
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == ["error"]


def test_both_bounds_and_zero_reference():
    both = CONTRACT.replace("upper: 0.10", "upper: 0.10\n    lower: -0.5")
    assert judged([30], both).verdict == "pass"
    scattered = judged([30] * 6 + [40], both)
    assert scattered.verdict == "pass"
    assert "between 15 us and 33 us" in scattered.explanation
    assert judged([3], both).verdict == "fail"
    zero = CONTRACT.replace("30.0", "0").replace("0.10", "2")
    assert (judged([1.5], zero).verdict, judged([2.5], zero).verdict) == ("pass", "fail")


def test_statistic_of_the_requirement():
    best = CONTRACT + "    statistic: best\n"
    assert judged([29, 300, 500], best).value == 29
    worst = judged([29, 29, 34], CONTRACT + "    statistic: worst\n")
    assert (worst.verdict, worst.value) == ("fail", 34)


def test_every_contract_is_judged():
    two = CONTRACT + CONTRACT.replace("30.0", "20.0")
    found = judge(trial(NETPIPE), runs_of(NETPIPE, [25.0]), requirements(two))
    assert verdicts(found) == ["pass", "fail"]


def test_a_figure_in_only_some_runs_is_no_pass():
    runs = [run(NETPIPE, metric(30.0)), run(NETPIPE, metric(1.0, "other"), repeat=1)]
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert found[0].verdict == "error"
    assert "only 1 of the 2 valid runs" in found[0].explanation


DOUBTFUL = replace(metric(99.0), doubt="DGEMM differs by 40 %")


def test_a_figure_in_doubt_is_inconclusive():
    for value in (30.0, 99.0):
        figure = replace(metric(value), doubt="DGEMM differs by 40 %")
        runs = [run(NETPIPE, figure), run(NETPIPE, figure, repeat=1)]
        (judgement,) = judge(trial(NETPIPE), runs, requirements(CONTRACT))
        assert (judgement.verdict, judgement.samples) == ("inconclusive", [value, value])
        assert judgement.in_doubt
        assert judgement.explanation.endswith("decides nothing: DGEMM differs by 40 %")


HPL_CASE = Case(check="hpl", transport="openmpi-tcp", profile="default", nodes=2)
SHARE = """
  - select: {check: hpl}
    metric: share
    basis: relative
    at_least: 5
    unit: percent
"""


def of_share(factors, bound=SHARE, value=30.0):
    """The judgement of a share of DGEMM whose runs have a doubt, with its factor or without."""
    one = replace(metric(value, "share"), unit="percent", better="higher", doubt="DGEMM differs")
    runs = [
        run(HPL_CASE, replace(one, doubt_factor=factor), repeat=i)
        for i, factor in enumerate(factors)
    ]
    (judgement,) = judge(trial(HPL_CASE, repeats=len(runs)), runs, requirements(bound))
    return judgement.verdict, judgement.in_doubt, judgement.explanation


@pytest.mark.parametrize("factors", [[1.7], [1.2, 1.7], [1.7, 1.2]])
def test_a_figure_passes_if_the_error_of_its_doubt_does_not_matter(factors):
    verdict, in_doubt, text = of_share(factors)
    assert (verdict, in_doubt) == ("pass", False)
    assert text.endswith(", even if it is wrong by a factor of 1.7: DGEMM differs")
    assert "30 percent" in text


@pytest.mark.parametrize("factors", [[6.1], [1.2, 6.1], [6.1, 1.2], [1.2, None], [None, 1.2]])
def test_a_figure_whose_doubt_may_matter_decides_nothing(factors):
    verdict, in_doubt, text = of_share(factors)
    assert (verdict, in_doubt) == ("inconclusive", True)
    assert text.endswith("decides nothing: DGEMM differs")


def test_a_figure_in_doubt_must_hold_both_bounds():
    both = SHARE.replace("at_least: 5", "at_least: 5\n    at_most: 45")
    assert of_share([1.4], both)[0] == "pass"
    assert of_share([1.6], both)[0] == "inconclusive"


def test_each_sample_in_doubt_must_hold_its_bounds():
    shares = [
        replace(metric(value, "share"), unit="percent", better="higher", doubt="DGEMM differs",
                doubt_factor=5.5)
        for value in (28.0, 27.0)
    ]  # fmt: skip
    runs = [run(HPL_CASE, share, repeat=i) for i, share in enumerate(shares)]
    (judgement,) = judge(trial(HPL_CASE, repeats=2), runs, requirements(SHARE))
    assert judgement.verdict == "inconclusive"


BESIDE = """
  - select: {check: hpl}
    metric: share
    basis: relative
    relative_to: {metric: ref%s}
    at_least: 0.5
    unit: percent
"""


@pytest.mark.parametrize("same_run", ["", ", same_run: true"])
@pytest.mark.parametrize("doubtful", [("share",), ("ref",), ("share", "ref")])
def test_a_doubt_beside_another_figure_decides_nothing(same_run, doubtful):
    """That one varies, or is in doubt as well."""
    figures = [
        replace(metric(30.0, name), unit="percent", better="higher",
                doubt="DGEMM differs" if name in doubtful else "",
                doubt_factor=1.1 if name in doubtful else None)
        for name in ("share", "ref")
    ]  # fmt: skip
    bound = requirements(BESIDE % same_run)
    found = judge(trial(HPL_CASE), [run(HPL_CASE, *figures)], bound)
    (judgement,) = [one for one in found if one.metric == "share"]
    assert (judgement.verdict, judgement.in_doubt) == ("inconclusive", True)
    assert "DGEMM differs" in judgement.explanation


def test_a_figure_in_doubt_never_fails():
    assert of_share([1.1], value=2.0)[0] == "inconclusive"


def test_a_sample_in_doubt_does_not_count_beside_others():
    runs = [run(NETPIPE, DOUBTFUL), *(run(NETPIPE, metric(30.0), repeat=i) for i in (1, 2))]
    for order in (runs, runs[::-1]):
        (judgement,) = judge(trial(NETPIPE), order, requirements(CONTRACT))
        assert (judgement.verdict, judgement.samples) == ("pass", [30.0, 30.0])


def test_a_pass_does_not_rest_on_fewer_samples_than_are_in_doubt_beyond_the_bound():
    runs = [run(NETPIPE, metric(30.0)), *(run(NETPIPE, DOUBTFUL, repeat=i) for i in (1, 2))]
    (judgement,) = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert (judgement.verdict, judgement.samples) == ("inconclusive", [30.0])
    assert "2 samples that do not count" in judgement.explanation
    within = replace(DOUBTFUL, value=31.0)
    runs = [runs[0], *(run(NETPIPE, within, repeat=i) for i in (1, 2))]
    (judgement,) = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert judgement.verdict == "pass"


def test_an_impossible_figure_is_an_error_of_its_case():
    bad = replace(metric(1.0), impossible="latency_us is 1 us, below its limit")
    error = error_run(NETPIPE, "latency_us is 1 us, below its limit").model_copy(
        update={"metrics": [bad], "phase": "limit"}
    )
    runs = [run(NETPIPE, metric(30.0)), error.model_copy(update={"repeat": 1})]
    judgements = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert [(judgement.verdict, judgement.samples) for judgement in judgements] == [
        ("error", []),
        ("pass", [30.0]),
    ]
    assert "limit: latency_us is 1 us, below its limit" in judgements[0].explanation
    assert verdict(trial(NETPIPE), runs, requirements(CONTRACT)).verdict == "incomplete"


# --- ratios --------------------------------------------------------------------------------


def imb_and_netpipe(imb, netpipe):
    runs = runs_of(IMB, imb, name="pingpong_us") + runs_of(NETPIPE, netpipe)
    found = judge(trial(IMB, NETPIPE), runs, requirements(RATIO + CONTRACT))
    return next(j for j in found if j.case == IMB)


def test_relative_to_another_check():
    good = imb_and_netpipe([50, 51, 52], [20, 20, 20])
    assert (good.verdict, good.reference, good.upper) == ("pass", 20, 60)
    bad = imb_and_netpipe([70, 71, 72], [20, 20, 20])
    assert bad.verdict == "fail"
    assert (
        "above the upper limit of 60 us of the relative requirement (requirements.yaml:3: at most "
        "3 x latency_us of netpipe.tcp; latency_us of netpipe.tcp.default.2n is 20 us)"
        in bad.explanation
    )


def test_noise_of_the_other_metric_counts():
    assert imb_and_netpipe([65, 66, 67], [10, 20, 30]).verdict == "inconclusive"
    assert imb_and_netpipe([650, 660, 670], [10, 20, 30]).verdict == "fail"


def test_another_check_has_variants_of_its_own():
    imb = Case(check="imb", variant="multi", transport="openmpi-tcp", nodes=2)
    runs = runs_of(imb, [50], name="pingpong_us") + runs_of(NETPIPE, [20])
    found = judge(trial(imb, NETPIPE), runs, requirements(RATIO + CONTRACT))
    assert verdicts(found) == ["pass", "pass"]


def test_relative_to_a_case_that_failed_is_an_error():
    runs = runs_of(IMB, [50], name="pingpong_us")
    (one,) = [j for j in judge(trial(IMB, NETPIPE), runs, requirements(RATIO)) if j.metric]
    assert one.verdict == "error"
    assert "latency_us of netpipe.tcp.default.2n, which this trial did not measure" in (
        one.explanation
    )


def test_relative_to_a_case_that_was_not_planned_decides_nothing():
    """A trial of a part of the matrix did not fail: the sentence names the option to add."""
    (one,) = judge(trial(IMB), runs_of(IMB, [50], name="pingpong_us"), requirements(RATIO))
    assert one.verdict == "inconclusive"
    assert one.explanation.endswith(
        "latency_us of netpipe.tcp.default.2n, which this trial did not measure (add --check "
        "netpipe)"
    ) or one.explanation.endswith("(add --check netpipe --transport tcp)")


def test_relative_to_another_unit_or_zero_is_an_error():
    other = runs_of(NETPIPE, [0.02], unit="ms")
    runs = runs_of(IMB, [50], name="pingpong_us")
    assert judge(trial(IMB), runs + other, requirements(RATIO))[0].verdict == "error"
    assert imb_and_netpipe([50], [0]).verdict == "error"


def test_same_run_compares_run_by_run():
    """A clock that varies between runs varies both figures, and must not look like noise."""
    hpl = Case(check="hpl", transport="openmpi-tcp", nodes=2)

    def runs(*pairs):
        return [
            run(
                hpl,
                metric(h, "hpl_GFLOPS", "GFLOPS", "higher"),
                metric(d, "dgemm_GFLOPS", "GFLOPS", "higher"),
                repeat=i,
            )
            for i, (h, d) in enumerate(pairs)
        ]

    (good,) = judge(trial(hpl), runs((80, 100), (40, 50), (160, 200)), requirements(SAME_RUN))
    assert (good.verdict, good.value, good.lower) == ("pass", pytest.approx(80), pytest.approx(70))
    assert good.spread == pytest.approx(0)
    (bad,) = judge(trial(hpl), runs((60, 100), (30, 50), (120, 200)), requirements(SAME_RUN))
    assert bad.verdict == "fail"


def pairs_runs(links, repeats=1, better="higher"):
    return [
        run(
            PAIRS,
            *(metric(v, "bandwidth_MB_s", "MB/s", better, location=k) for k, v in links.items()),
            repeat=i,
            nodes=sorted({node for link in links for node in link.split("-")}),
        )
        for i in range(repeats)
    ]


def on_nodes(repeat, *nodes, **fields):
    """A run on n1 and n2 that has the figure of these nodes."""
    figures = (metric(30.0, location=node) for node in nodes)
    return run(NETPIPE, *figures, repeat=repeat, nodes=["n1", "n2"]).model_copy(update=fields)


def test_a_node_without_the_figure_of_the_others_is_an_error():
    runs = [on_nodes(repeat, "n1") for repeat in range(3)]
    passed, error = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert (passed.verdict, error.verdict, error.location) == ("pass", "error", "n2")
    assert error.explanation.endswith(": no run reported latency_us of n2, as of other nodes")
    conclusion = verdict(trial(NETPIPE), runs, requirements(CONTRACT))
    assert (conclusion.verdict, conclusion.clauses[0].status) == ("incomplete", "not tested")


def test_nodes_that_ran_no_step_need_no_figure():
    """Slurm's account names all nodes of the job, or in a site without accounting none."""
    idle = [Activity(step="net", node="n1", seconds=1.0)]
    runs = [on_nodes(repeat, "n1", activity=idle) for repeat in range(3)]
    assert [one.verdict for one in judge(trial(NETPIPE), runs, requirements(CONTRACT))] == ["pass"]
    both = [*idle, Activity(step="net", node="n2", seconds=1.0)]
    runs = [on_nodes(repeat, "n1", activity=both) for repeat in range(3)]
    for one in runs:
        one.job.nodes.clear()
    assert "error" in {one.verdict for one in judge(trial(NETPIPE), runs, requirements(CONTRACT))}


def test_a_figure_of_a_node_in_only_some_runs_is_no_pass():
    runs = [on_nodes(0, "n1", "n2"), on_nodes(1, "n1"), on_nodes(2, "n1")]
    found = {one.location: one for one in judge(trial(NETPIPE), runs, requirements(CONTRACT))}
    assert (found["n1"].verdict, found["n2"].verdict) == ("pass", "error")
    assert "only 1 of the 3 valid runs on n2 reported it" in found["n2"].explanation
    # A run that says why it has none, and one on other nodes, miss nothing.
    runs[1].unmeasured["n2"] = "its link was down"
    runs[2].job.nodes[:] = ["n1", "n3"]
    found = {one.location: one for one in judge(trial(NETPIPE), runs, requirements(CONTRACT))}
    assert found["n2"].verdict == "error"
    assert "was not measured: its link was down" in found["n2"].explanation
    twice = [on_nodes(0, "n1", "n2", "n2"), on_nodes(1, "n1")]
    found = {one.location: one for one in judge(trial(NETPIPE), twice, requirements(CONTRACT))}
    assert found["n2"].verdict == "error"


def test_a_case_without_a_figure_is_an_error():
    result = verdict(trial(NETPIPE), [run(NETPIPE)], requirements(CONTRACT))
    assert result.verdict == "incomplete"
    assert f"{NETPIPE.id} ran and reported no figure" in result.findings


def test_peers_find_the_node_that_bad_links_share():
    links = {"n1-n2": 117, "n1-n3": 20, "n1-n4": 116, "n2-n3": 21, "n2-n4": 118, "n3-n4": 22}
    runs = pairs_runs(links)
    found = judge(trial(PAIRS), runs, requirements(PEERS))
    assert {j.location for j in found if j.verdict == "fail"} == {"n1-n3", "n2-n3", "n3-n4"}
    findings = conclude(trial(PAIRS), runs, found, ended=NOW).findings
    assert findings[0].startswith("node n3 is common to all 3 failing links of links.tcp")
    assert "3 of the 3 links of n3" in findings[0]
    assert "on link n1-n3 is 20 MB/s (measured once), below" in findings[1]


def test_peers_of_three_nodes_of_which_one_is_bad():
    """Two of the three links are bad: the median of all three would be a bad value."""
    found = judge(
        trial(PAIRS),
        pairs_runs({"n1-n2": 100, "n1-n3": 20, "n2-n3": 20}),
        requirements(PEERS),
    )
    assert verdicts(found) == ["pass", "fail", "fail"]


def test_peers_two_places_and_one():
    found = judge(trial(PAIRS), pairs_runs({"n1": 100, "n2": 40}), requirements(PEERS))
    assert verdicts(found) == ["pass", "fail"]
    assert "on node n2" in found[1].explanation
    alone = judge(trial(PAIRS), pairs_runs({"n1": 100}), requirements(PEERS))
    assert verdicts(alone) == ["inconclusive"]


def test_failing_links_without_a_common_node_accuse_none():
    links = {"n1-n2": 20, "n1-n3": 117, "n1-n4": 116, "n2-n3": 118, "n2-n4": 118, "n3-n4": 22}
    runs = pairs_runs(links)
    findings = verdict(trial(PAIRS), runs, requirements(PEERS)).findings
    assert not any("common" in finding for finding in findings)


# --- whole cases and trials -----------------------------------------------------------------


def test_accept():
    result = verdict(trial(NETPIPE), runs_of(NETPIPE, [30, 30.1, 30]), requirements(CONTRACT))
    assert (result.verdict, result.findings) == ("accept", [])
    assert result.counts == {"pass": 1, "fail": 0, "error": 0, "missing": 0, "inconclusive": 0}


MAJORITY = CONTRACT + "    statistic: majority\n"


def test_what_further_runs_did_not_confirm_is_noted():
    runs = runs_of(NETPIPE, [50, 30, 31])
    result = verdict(trial(NETPIPE, reruns=2), runs, requirements(MAJORITY))
    assert result.verdict == "accept"
    (note,) = result.findings
    assert note.startswith(
        "note: a figure was outside a bound at first and not in most reruns (50 us at first, "
        "within it in 2 of 2 reruns): "
        "netpipe.tcp.default.2n: latency_us is 31 us (median of 3, spread 12 us, decided by "
        "majority)"
    )
    planned = trial(NETPIPE, repeats=3)
    assert verdict(planned, runs, requirements(MAJORITY)).findings == []
    confirmed = verdict(trial(NETPIPE, reruns=2), runs_of(NETPIPE, [50, 30, 51]),
                        requirements(MAJORITY))  # fmt: skip
    assert confirmed.verdict == "reject"
    assert not any("rerun" in finding for finding in confirmed.findings)
    other = runs_of(NETPIPE, [30, 50, 31])  # run again for another figure of the case
    assert verdict(trial(NETPIPE, reruns=2), other, requirements(MAJORITY)).findings == []


def test_above_one_bound_and_below_the_other_is_no_majority_within():
    both = MAJORITY + "    lower: -0.1\n"
    assert judged([50, 30, 10], both).verdict == "inconclusive"
    assert judged([50, 30, 10, 31], both).verdict == "inconclusive"  # half is no majority
    assert judged([50, 30, 31], both).verdict == "pass"
    assert judged([50, 10, 51], both).verdict == "fail"


def test_majority_against_a_figure_that_was_measured_itself():
    """Its own two values are one of three and one of nothing: nobody measured their median."""
    of_two = RATIO.replace("at_most: 3.0", "at_most: 2.0\n    statistic: majority")
    runs = runs_of(IMB, [59, 59], name="pingpong_us") + runs_of(NETPIPE, [20, 40])
    (found,) = [j for j in judge(trial(IMB, NETPIPE), runs, requirements(of_two)) if j.requirement]
    assert found.verdict == "inconclusive"


def test_planned_and_not_run():
    result = verdict(trial(NETPIPE, IMB), runs_of(NETPIPE, [30]), requirements(CONTRACT))
    assert result.verdict == "incomplete"
    assert result.findings == ["imb.openmpi-tcp.default.2n was planned and did not run"]


def test_an_error_run_keeps_its_reason_and_the_other_runs_figures():
    runs = [run(NETPIPE, metric(30.0)), error_run(NETPIPE, "node n2 went down", repeat=1)]
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert [(j.metric, j.verdict) for j in found] == [("", "error"), ("latency_us", "pass")]
    assert "1 of 2 runs failed (repeat 2: run: node n2 went down)" in found[0].explanation
    assert conclude(trial(NETPIPE), runs, found).verdict == "incomplete"


def test_a_fail_beside_errors_rejects_and_tells_both():
    runs = [run(NETPIPE, metric(50.0)), error_run(NETPIPE, repeat=1)]
    result = verdict(trial(NETPIPE), runs, requirements(CONTRACT))
    assert result.verdict == "reject"
    assert "above the upper limit of 33 us" in result.findings[0]
    assert "timed out" in result.findings[1]


def test_a_run_whose_path_was_not_proven_is_an_error():
    runs = [unproven(NETPIPE, metric(30.0))]
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert [(j.metric, j.verdict) for j in found] == [("", "error")]
    assert "did not cross" in found[0].explanation


def test_fewer_runs_than_planned_and_runs_without_figures():
    short = verdict(trial(NETPIPE, repeats=3), runs_of(NETPIPE, [30, 30]), requirements(CONTRACT))
    assert short.verdict == "incomplete"
    assert "ran 2 times of the 3 planned" in short.findings[1]
    empty = verdict(trial(IMB), [run(IMB)], requirements(CONTRACT))
    assert empty.verdict == "incomplete"


def test_two_records_of_one_repeat_are_not_two_runs():
    runs = [run(NETPIPE, metric(30.0)), run(NETPIPE, metric(30.0))]
    twice = verdict(trial(NETPIPE, repeats=2), runs, requirements(CONTRACT))
    assert twice.verdict == "incomplete"
    assert "more than one record of repeat 1" in " ".join(twice.findings)


def test_missing_and_informative():
    runs = [run(NETPIPE, metric(30.0), metric(9.0, "stream_triad_MB_s"), metric(1.0, "x_us"))]
    rest = "informative:\n  - {metric: ['*_triad_*'], reason: context}\n"
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT, rest))
    assert [(j.metric, j.verdict) for j in found] == [("latency_us", "pass"), ("x_us", "missing")]
    result = conclude(trial(NETPIPE), runs, found)
    assert result.verdict == "incomplete"
    assert result.findings == ["netpipe.tcp.default.2n: no requirement applies to x_us"]


def test_a_requirement_wins_over_informative():
    rest = "informative:\n  - {metric: '*', reason: all}\n"
    found = judge(trial(NETPIPE), runs_of(NETPIPE, [50.0]), requirements(CONTRACT, rest))
    assert verdicts(found) == ["fail"]


def test_a_required_metric_that_no_run_produced():
    runs = [run(NETPIPE, metric(5.0, "bandwidth_MB_s"))]
    rest = "informative:\n  - {metric: 'bandwidth*', reason: r}\n"
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT, rest))
    assert verdicts(found) == ["error"]
    assert "no run reported latency_us, which requirements.yaml:3 requires" in found[0].explanation


def test_a_requirement_for_any_check_needs_its_metric_once():
    wide = CONTRACT.replace("{check: netpipe}", "{profile: default}")
    runs = [*runs_of(NETPIPE, [30.0]), run(IMB, metric(1.0, "x"))]
    found = judge(trial(NETPIPE, IMB), runs, requirements(wide))
    assert verdicts(found) == ["pass", "missing"]
    none = judge(trial(IMB), [run(IMB, metric(1.0, "x"))], requirements(wide))
    assert verdicts(none) == ["missing", "error"]


def test_a_requirement_outside_a_subset_is_a_note():
    result = verdict(
        trial(NETPIPE), runs_of(NETPIPE, [30.0]), requirements(CONTRACT + RATIO.strip("\n") + "\n")
    )
    assert result.verdict == "accept"
    assert result.findings[0].startswith(
        "note: the relative requirement requirements.yaml:10 (pingpong_us"
    )


def test_nothing_judged_is_incomplete():
    assert verdict(trial(), [], requirements()).verdict == "incomplete"
    rest = "informative:\n  - {metric: '*', reason: all}\n"
    result = verdict(trial(NETPIPE), runs_of(NETPIPE, [3.0]), requirements("", rest))
    assert (result.verdict, result.findings) == ("incomplete", ["t1: nothing was judged"])


def test_judgements_that_leave_a_case_out_do_not_hide_it():
    runs = runs_of(NETPIPE, [30.0])
    found = judge(trial(NETPIPE), runs, requirements(CONTRACT))
    assert conclude(trial(NETPIPE, IMB), runs, found).verdict == "incomplete"


def test_sixty_figures_of_one_cause_are_one_finding_with_their_number_and_range():
    cases = [Case(check=f"c{i}", transport="tcp", nodes=2) for i in range(60)]
    entries = CONTRACT.replace("check: netpipe", "check: c*")
    runs = [r for i, c in enumerate(cases) for r in runs_of(c, [40.0 + i])]
    result = verdict(trial(*cases), runs, requirements(entries))
    (finding,) = result.findings
    assert finding.startswith("60 figures break the contract (requirements.yaml:3: at most 33 us")
    assert "latency_us from 40 to 99 us in 60 cases" in finding
    assert "and 55 more); the worst: c59.tcp.default.2n: latency_us is 99 us" in finding
    assert result.counts["fail"] == 60  # each has its judgement


def test_cases_that_did_not_run_for_one_reason_are_one_finding():
    cases = [Case(check=f"c{i}", transport="tcp", nodes=2) for i in range(60)]
    runs = [error_run(case, "the node is down") for case in cases[:50]]
    one, other = conclude(trial(*cases), runs, judge(trial(*cases), runs, requirements())).findings
    assert one.startswith("50 cases (c0.tcp.default.2n, c1.tcp.default.2n, ")
    assert one.endswith("and 45 more), each: 1 of 1 runs failed (repeat 1: run: the node is down)")
    assert other.startswith("10 cases (")
    assert other.endswith(", each was planned and did not run")


def test_of_the_findings_none_is_cut_off():
    cases = [Case(check=f"c{i}", transport="tcp", nodes=2) for i in range(40)]
    entries = "".join(CONTRACT.replace("netpipe", case.check) for case in cases)
    runs = [r for i, c in enumerate(cases) for r in runs_of(c, [40.0 + i])]
    findings = verdict(trial(*cases), runs, requirements(entries)).findings
    assert len(findings) == 40
    assert findings[0].startswith("c39.tcp")


# --- properties ----------------------------------------------------------------------------

values = st.lists(st.floats(1, 100), min_size=1, max_size=7)


@given(values, values, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(imb, netpipe, rng: random.Random):
    runs = runs_of(IMB, imb, name="pingpong_us") + runs_of(NETPIPE, netpipe)
    runs.append(error_run(IMB, repeat=9))
    shuffled = list(runs)
    rng.shuffle(shuffled)
    reqs, plan = requirements(RATIO + CONTRACT), trial(IMB, NETPIPE)
    assert judge(plan, runs, reqs) == judge(plan, shuffled, reqs)
    assert verdict(plan, runs, reqs) == verdict(plan, shuffled, reqs)


@given(values, st.integers(0, 9), st.booleans())
def test_an_error_run_never_leads_to_accept(samples, repeat, unproven_path):
    runs = runs_of(NETPIPE, samples)
    runs.append(
        unproven(NETPIPE, metric(1.0)) if unproven_path else error_run(NETPIPE, repeat=repeat)
    )
    assert verdict(trial(NETPIPE), runs, requirements(CONTRACT)).verdict != "accept"


@given(values, st.data())
def test_worsening_a_sample_never_turns_reject_into_accept(samples, data):
    before = judged(samples).verdict
    worse = list(samples)
    worse[data.draw(st.integers(0, len(worse) - 1))] += data.draw(st.floats(0, 1000))
    assert (before, judged(worse).verdict) != ("fail", "pass")


@given(values)
def test_a_pass_lies_within_and_a_fail_beyond(samples):
    j = judged(samples)
    if j.verdict == "pass":
        assert j.value <= j.upper * (1 + 1e-9)
    if j.verdict == "fail":
        assert j.value > j.upper


def test_no_path_of_the_machine_is_recorded(tmp_path):
    from seatrial.results.requirements import load_requirements

    file = tmp_path / "requirements.yaml"
    file.write_text(f"schema: 1\nrequirements:{CONTRACT}")
    (j,) = judge(trial(NETPIPE), runs_of(NETPIPE, [50.0]), load_requirements(file))
    assert str(tmp_path) not in repr(j)


BEST_RATIO = RATIO.replace("at_most: 3.0", "at_most: 3.0\n    statistic: best")


def test_best_is_compared_with_the_best_of_the_other_metric():
    """What disturbs one repeat of either side must not decide: only worse figures come of it."""
    runs = runs_of(IMB, [50, 900], name="pingpong_us") + runs_of(NETPIPE, [20, 400])
    (found,) = [
        j for j in judge(trial(IMB, NETPIPE), runs, requirements(BEST_RATIO)) if j.case == IMB
    ]
    assert (found.verdict, found.reference, found.upper) == ("pass", 20, 60)
    # Nor does a disturbed other side excuse a figure that is beyond the bound of its best.
    runs = runs_of(IMB, [70, 900], name="pingpong_us") + runs_of(NETPIPE, [20, 400])
    (found,) = [
        j for j in judge(trial(IMB, NETPIPE), runs, requirements(BEST_RATIO)) if j.case == IMB
    ]
    assert found.verdict == "fail"


def test_best_is_compared_with_the_best_of_the_peers():
    links = {"n1-n2": [10, 100], "n1-n3": [99, 101], "n2-n3": [20, 100]}
    runs = [
        run(
            PAIRS,
            *(
                metric(values[i], "bandwidth_MB_s", "MB/s", "higher", location)
                for location, values in links.items()
            ),
            repeat=i,
        )
        for i in range(2)
    ]
    best = PEERS.replace("at_least: 0.5", "at_least: 0.5\n    statistic: best")
    found = judge(trial(PAIRS, repeats=2), runs, requirements(best))
    assert {j.location: (j.verdict, j.reference) for j in found} == {
        "n1-n2": ("pass", 100.5),
        "n1-n3": ("pass", 100),
        "n2-n3": ("pass", 100.5),
    }


BASELINE = """
  - select: {{check: {check}}}
    metric: latency_us
    basis: baseline
    reference: 30.0
    upper: 0.10
    unit: us
"""


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        (("imb",), "note: the baseline requirements.yaml:"),
        (("imb", "osu", "links", "hpl"), "note: 4 requirements ("),
    ],
)
def test_requirements_without_a_case_are_one_note(checks, expected):
    entries = CONTRACT + "".join(BASELINE.format(check=check) for check in checks)
    findings = conclude(trial(NETPIPE), [], [], requirements(entries)).findings
    (note,) = [text for text in findings if "no case of this trial" in text]
    assert note.startswith(expected)


def test_where_the_lab_is_not_the_sites_own_no_baseline_applies():
    """The figures are far beyond the baseline, which says nothing. Other requirements hold."""
    why = f"{NO_OWN_PROCESSORS}: cc is missing: apt-get install gcc"
    shared = trial(NETPIPE, notes=[why])
    runs = runs_of(NETPIPE, [90.0])
    baseline = requirements(BASELINE.format(check="netpipe"))
    assert verdict(trial(NETPIPE), runs, baseline).verdict == "reject"
    (judgement,) = judge(shared, runs, baseline)
    assert judgement.verdict == "missing"
    assert judgement.explanation.endswith(f"no requirement applies to it; baselines do not: {why}")
    concluded = verdict(shared, runs, baseline)
    assert concluded.verdict == "incomplete"
    (note,) = [
        finding for finding in concluded.findings if finding.endswith(f"to this trial: {why}")
    ]
    assert note.startswith("the site's baselines and relations between cases do not apply")
    both = requirements(BASELINE.format(check="netpipe") + CONTRACT)
    assert verdict(shared, runs, both).verdict == "reject"


def test_where_nodes_share_a_processor_no_relation_between_cases_applies():
    """Two nodes compute no faster than one there."""
    why = f"{NO_OWN_PROCESSORS}: cc is missing: apt-get install gcc"
    runs = [*runs_of(NETPIPE, [30.0]), run(IMB, metric(300.0, "pingpong_us"))]
    relative = requirements(RATIO)
    assert verdict(trial(NETPIPE, IMB), runs, relative).verdict == "reject"
    assert verdict(trial(NETPIPE, IMB, notes=[why]), runs, relative).verdict == "incomplete"


@pytest.mark.parametrize(
    "bound",
    [
        "at_most: 1, unit: us",
        "relative_to: {metric: other_us}, at_most: 3",
        "peers: median, at_most: 1.5",
    ],
)
def test_where_nodes_share_a_processor_relations_within_a_case_still_apply(bound):
    """Such as that HPL has the BLAS that its variant names."""
    places = [metric(30.0, location="n1"), metric(10.0, location="n2"), metric(10.0, location="n3")]
    runs = [run(NETPIPE, *places, metric(1.0, "other_us", location="n1"))]
    shared = trial(NETPIPE, notes=[f"{NO_OWN_PROCESSORS}: cc is missing"])
    entry = f"\n  - {{select: {{check: netpipe}}, metric: latency_us, basis: relative, {bound}}}"
    failed = [j for j in judge(shared, runs, requirements(entry)) if j.verdict == "fail"]
    assert "n1" in {j.location for j in failed}


def test_a_requirement_whose_cases_the_stack_lacks_is_a_note_of_its_own():
    entries = CONTRACT + BASELINE.format(check="imb") + BASELINE.format(check="osu")
    lacks = trial(NETPIPE, lacking=[IMB])
    notes = [f for f in conclude(lacks, [], [], requirements(entries)).findings if "note" in f]
    assert [note.rpartition(" was not judged: ")[2] for note in notes] == [
        "the stack has no program for its cases",
        "no case of this trial matches",
    ]


# --- a machine that other programs use ------------------------------------------------------


def disturbed(run_, percents, steps=("step",)):
    """The run, with how long its step waited on each node, in per cent of its time."""
    activity = [
        Activity(step=step, node=node, seconds=1, others_percent=120, waited_percent=percent)
        for step in steps
        for node, percent in percents.items()
    ]
    return run_.model_copy(update={"activity": activity})


def under_load(values, percents, entries=CONTRACT):
    runs = [
        disturbed(r, {"n1": percent})
        for r, percent in zip(runs_of(NETPIPE, values), percents, strict=True)
    ]
    (found,) = judge(trial(NETPIPE, reruns=4), runs, requirements(entries))
    return found


def test_what_the_load_explains_is_no_failure():
    assert under_load([50, 51], [5, 5]).verdict == "fail"
    found = under_load([50, 51], [90, 95])
    assert (found.verdict, found.disturbed) == ("inconclusive", 2)
    assert found.explanation.endswith(
        "but cannot be judged: in 2 of 2 samples the step waited for a processor, up to 95 % of "
        "its time, while other programs used 120 % of a core on n1"
    )
    # most samples broke the bound while nothing else ran
    assert under_load([50, 51, 52], [5, 5, 90]).verdict == "fail"
    # load makes no figure better, and is no reason to doubt a good one
    assert under_load([30, 30.1, 30], [90, 90, 90]).verdict == "pass"
    assert under_load([10, 11], [90, 90], CONTRACT + "    lower: -0.1\n").verdict == "fail"


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([36, 37], 6, "inconclusive"),  # a tenth is missing, a fortieth of the step's time at least
        ([36, 37], 4, "fail"),  # and what the node's daemons do is not load
        ([66, 67], 13, "inconclusive"),  # half is missing
        ([66, 67], 12, "fail"),
        ([3300, 3301], 24, "fail"),  # all of it: no such wait makes a link that slow
        ([3300, 3301], 26, "inconclusive"),
    ],
)
def test_a_wait_explains_what_it_may_have_cost(values, percent, expected):
    assert under_load(values, [percent] * 2).verdict == expected


@pytest.mark.parametrize(
    ("measured_s", "percent", "expected"),
    [(0.1, 6, "inconclusive"), (0.9, 40, "fail"), (0.9, 50, "inconclusive"), (5, 49, "fail")],
)
def test_how_long_a_figure_was_measured_counts_where_it_is_known(measured_s, percent, expected):
    """Half of it is missing; the step took a second."""
    sample = replace(metric(66), seconds=measured_s)
    runs = [disturbed(run(NETPIPE, sample, repeat=i), {"n1": percent}) for i in range(2)]
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == [expected]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3300, 3310, 3420], "fail"),  # a hundred times too slow, and each time the same
        ([3300, 3301], "inconclusive"),  # two may be alike by chance
        ([1208, 1888, 1434], "inconclusive"),  # as load has it
        ([320, 321, 322], "inconclusive"),  # ten times is what waits can cost
        ([335, 336, 337], "fail"),
        ([3300, 3301, 3500], "inconclusive"),  # not alike
    ],
)
def test_load_does_not_make_every_sample_equally_bad(values, expected):
    assert under_load(values, [90] * len(values)).verdict == expected


def test_waits_of_several_nodes_may_follow_each_other():
    for others, expected in ((0, "fail"), (8, "inconclusive")):
        runs = [disturbed(r, {"n1": 8, "n2": others}) for r in runs_of(NETPIPE, [66, 67])]
        assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == [expected]


@pytest.mark.parametrize(("step", "expected"), [("latency", "inconclusive"), ("", "fail")])
def test_the_wait_of_its_own_step_counts_beside_longer_steps(step, expected):
    """In a trial of a busy lab, mpich-ofi's latency had waited for 28 % of a third of a second; two
    other steps of a second each had not waited."""
    figure = replace(metric(66), step=step)
    waits = {"latency": (0.3, 28.0), "bw": (1.0, 0.0), "bibw": (1.0, 0.0)}
    activity = [
        Activity(step=name, node=node, seconds=seconds, others_percent=60, waited_percent=percent)
        for name, (seconds, percent) in waits.items()
        for node in ("n1", "n2")
    ]
    runs = [run(NETPIPE, figure, repeat=i).model_copy(update={"activity": activity})
            for i in range(2)]  # fmt: skip
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == [expected]


def test_waits_of_other_steps_count_as_well():
    """A machine that was busy in the rest of the run may have been so for a moment of the step."""
    figure = replace(metric(66), step="latency")
    activity = [
        Activity(step=name, node="n1", seconds=1, others_percent=60, waited_percent=percent)
        for name, percent in (("latency", 1.0), ("bw", 40.0))
    ]
    runs = [run(NETPIPE, figure, repeat=i).model_copy(update={"activity": activity})
            for i in range(2)]  # fmt: skip
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == ["inconclusive"]


@pytest.mark.parametrize("own", [0.0, 7.9, 8.1, 30.0])
def test_a_longer_wait_of_its_own_step_explains_no_less(own):
    """The waits of two nodes in all steps are 16 %, whatever its own step waited for."""
    figure = replace(metric(66), step="latency")
    waits = {"latency": (0.01, own, 0.0), "bw": (10.0, 8.0, 8.0)}
    activity = [
        Activity(step=name, node=node, seconds=seconds, others_percent=60, waited_percent=percent)
        for name, (seconds, *percents) in waits.items()
        for node, percent in zip(("n1", "n2"), percents, strict=True)
    ]
    runs = [run(NETPIPE, figure, repeat=i).model_copy(update={"activity": activity})
            for i in range(2)]  # fmt: skip
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == ["inconclusive"]


@pytest.mark.parametrize("own", [19.9, 20.1])
def test_the_part_of_a_step_that_a_figure_takes_is_of_that_step(own):
    """A figure of 0.1 s: all of its own step, a hundredth of all steps, which waited for 20 %."""
    figure = replace(metric(66), step="latency", seconds=0.1)
    activity = [
        Activity(step=name, node="n1", seconds=seconds, others_percent=60, waited_percent=percent)
        for name, seconds, percent in (("latency", 0.1, own), ("bw", 10.0, 20.0))
    ]
    runs = [run(NETPIPE, figure, repeat=i).model_copy(update={"activity": activity})
            for i in range(2)]  # fmt: skip
    assert verdicts(judge(trial(NETPIPE), runs, requirements(CONTRACT))) == ["inconclusive"]


@pytest.mark.parametrize(("value", "expected"), [(0, "fail"), (0.5, "inconclusive")])
def test_no_wait_explains_a_zero(value, expected):
    """Such as another BLAS library than the declared one."""
    least = CONTRACT.replace("    reference: 30.0\n    upper: 0.10\n", "    at_least: 1\n")
    least = least.replace("unit: us", "unit: of 1")
    given_runs = runs_of(NETPIPE, [value] * 2, better="higher", unit="of 1")
    runs = [disturbed(r, {"n1": 90}) for r in given_runs]
    assert verdicts(judge(trial(NETPIPE), runs, requirements(least))) == [expected]


def test_a_node_that_is_not_known_to_be_disturbed_excuses_nothing():
    assert under_load([50, 51], [None, None]).verdict == "fail"


def test_one_good_sample_of_many_is_no_pass():
    best = CONTRACT + "    statistic: best\n"
    quiet, busy = [0] * 6, [90] * 6
    assert under_load([30, 50], quiet[:2], best).verdict == "inconclusive"
    assert under_load([30, 50, 31], quiet[:3], best).verdict == "pass"
    assert under_load([30, 50, 50, 31], quiet[:4], best).verdict == "inconclusive"
    # what was disturbed does not count, but one sample alone is too few
    found = under_load([30, 50, 50, 50], busy[:4], best)
    assert found.verdict == "inconclusive"
    assert "but only 1 of its 4 samples is: at least 2 must be; it takes" in found.explanation
    found = under_load([30, 50, 50, 31], quiet[:4], best)
    text = (
        "but only 2 of its 4 samples are, and 2 that no program disturbed are not: more than 2 must"
    )
    assert text in found.explanation
    assert under_load([30, 50, 50, 31], busy[:4], best).verdict == "pass"


def test_a_figure_that_is_too_good_beside_a_disturbed_one():
    """By the load the other was too slow, not this one too fast."""
    least = RATIO.replace("at_most: 3.0", "at_least: 3.0\n    statistic: best")
    for percent, expected in ((0, "fail"), (90, "inconclusive")):
        runs = [
            *runs_of(IMB, [50, 51], name="pingpong_us"),
            *(disturbed(r, {"n1": percent}) for r in runs_of(NETPIPE, [20, 21])),
        ]
        found = [j for j in judge(trial(IMB, NETPIPE), runs, requirements(least)) if j.case == IMB]
        assert verdicts(found) == [expected]
    assert "while latency_us of netpipe.tcp.default.2n was measured" in found[0].explanation


@pytest.mark.parametrize(
    ("figure", "other", "own_wait", "wait", "expected"),
    [
        (50, 20, 0, 0, "pass"),  # the bound is 60
        (50, 20, 0, 4, "pass"),  # the daemons of a node are not load
        (50, 20, 0, 20, "inconclusive"),  # 16, so the bound may be 48
        (47, 20, 0, 20, "pass"),  # within that as well
        (50, 20, 20, 20, "pass"),  # both lost as much
        (5, 20, 0, 95, "pass"),  # ten times as long at most, however long the wait
        (7, 20, 0, 95, "inconclusive"),
        (65, 20, 0, 20, "fail"),
    ],
)
@pytest.mark.parametrize("statistic", ["median", "best", "majority"])
def test_a_figure_that_is_good_beside_a_disturbed_one_only(
    statistic, figure, other, own_wait, wait, expected
):
    """The bound is a multiple of a time that the load made longer."""
    most = RATIO.replace("at_most: 3.0", f"at_most: 3.0\n    statistic: {statistic}")
    runs = [
        *(
            disturbed(r, {"n1": own_wait})
            for r in runs_of(IMB, [figure, figure], name="pingpong_us")
        ),
        *(disturbed(r, {"n1": wait}) for r in runs_of(NETPIPE, [other, other])),
    ]
    given = trial(IMB, NETPIPE, reruns=2)
    (found,) = [j for j in judge(given, runs, requirements(most)) if j.case == IMB]
    assert found.verdict == expected
    if expected == "inconclusive":
        assert found.disturbed == 2, "it runs again"
        assert found.explanation.endswith(
            "but cannot be judged: other programs used the processors while latency_us of "
            "netpipe.tcp.default.2n was measured, so the limit may be too wide"
        )


@pytest.mark.parametrize(("times", "expected"), [((20, 40), "pass"), ((40, 20), "inconclusive")])
def test_of_the_best_of_the_other_metric_its_own_wait_counts(times, expected):
    """The first sample did not wait; the bound is 60."""
    runs = [
        *runs_of(IMB, [50, 50], name="pingpong_us"),
        *(
            disturbed(r, {"n1": percent})
            for r, percent in zip(runs_of(NETPIPE, times), (0, 50), strict=True)
        ),
    ]
    (found,) = [
        j for j in judge(trial(IMB, NETPIPE), runs, requirements(BEST_RATIO)) if j.case == IMB
    ]
    assert found.verdict == expected


LINKS = ("n1-n2", "n1-n3", "n1-n4", "n2-n3", "n2-n4", "n3-n4")


def links_under_load(bad, times, percent=90.0):
    """Runs of all links, those in ``bad`` slow each time, on a machine that is busy each time."""
    nodes = ("n1", "n2", "n3", "n4")
    return [
        disturbed(
            run(
                PAIRS,
                *(
                    metric(20 if link in bad else 100, "bandwidth_MB_s", "MB/s", "higher", link)
                    for link in LINKS
                ),
                repeat=i,
                nodes=nodes,
            ),
            dict.fromkeys(nodes, percent),
        )
        for i in range(times)
    ]


@pytest.mark.parametrize(
    ("times", "expected"),
    [(2, "inconclusive"), (3, "inconclusive"), (4, "fail")],  # three: by chance in 0.8 %
)
def test_load_does_not_choose_the_same_place_each_time(times, expected):
    bad = ("n1-n3", "n2-n3", "n3-n4")
    found = judge(trial(PAIRS), links_under_load(bad, times), requirements(PEERS))
    assert {j.location for j in found if j.verdict == expected} == set(bad)
    assert sum(j.verdict == "pass" for j in found) == 3
    if expected == "fail":
        assert "% of a core on n3. That is no excuse, because it is the" in found[1].explanation


def test_only_the_steps_of_a_place_count():
    quiet = links_under_load(("n1-n3",), 2, percent=0)
    busy = {link: 90.0 if link == "n1-n3" else 0.0 for link in LINKS}
    runs = []
    for r in quiet:
        activity = [
            Activity(step=link, node=node, seconds=1, waited_percent=percent)
            for link, percent in busy.items()
            for node in link.split("-")
        ]
        runs.append(r.model_copy(update={"activity": activity}))
    found = judge(trial(PAIRS), runs, requirements(PEERS))
    assert {j.location: j.disturbed for j in found if j.disturbed} == {"n1-n3": 2}
    assert {j.location: j.verdict for j in found}["n1-n3"] == "inconclusive"
    assert [j.verdict for j in judge(trial(PAIRS), quiet, requirements(PEERS))].count("fail") == 1


# --- what is judged quickly is judged alike ---------------------------------------------------


VALUES = st.sampled_from([40.0, 50.0, 50.5, 51.0, 60.0, 99.0, 120.0])
FORMS = {
    "peers": "    basis: relative\n    peers: median\n    at_least: 0.8\n    at_most: 2.0\n",
    "plain": "    basis: contract\n    source: t\n    at_most: 100\n    unit: us\n",
    "reference": (
        "    basis: contract\n    source: t\n    reference: 50\n    lower: -0.5\n    upper: 0.5\n"
        "    unit: us\n"
    ),
}


@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=7),
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(["median", "best", "worst", "p99", "majority"]),
    st.sampled_from(["lower", "higher"]),
    st.integers(0, 1),
)  # fmt: skip
def test_figures_that_plainly_pass_are_judged_like_all_others(
    of_links, form, statistic, better, reruns
):
    entry = (
        f"\n  - select: {{check: links}}\n    metric: latency_us\n    statistic: {statistic}\n"
        f"{FORMS[form]}"
    )
    runs = [
        run(
            PAIRS,
            *(
                metric(values[repeat], location=f"n{number}-n99", better=better)
                for number, values in enumerate(of_links)
                if repeat < len(values)
            ),
            repeat=repeat,
        )
        for repeat in range(max(map(len, of_links)))
    ]
    the_trial, reqs = trial(PAIRS, reruns=reruns), requirements(entry)
    quickly = judge(the_trial, runs, reqs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainPasses, "judgement", lambda self, figure: None)
        assert judge(the_trial, runs, reqs) == quickly


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 90), min_size=1, max_size=4
        ),
        max_size=6,
    ),
    st.sets(st.sampled_from(["n1", "n2", "n3"]), max_size=2),
    st.none() | st.just(0.25),
)
def test_the_wait_of_a_figure_is_that_of_the_steps_on_its_nodes(steps, nodes, measured_s):
    activity = [
        Activity(step=f"s{i}", node=node, seconds=1, others_percent=7, waited_percent=percent)
        for i, step in enumerate(steps)
        for node, percent in step.items()
    ]
    job = Job(nodes=["n1", "n2", "n3", "n4"])
    figure = replace(metric(1.0), location="-".join(sorted(nodes)), seconds=measured_s)
    the_run = run(PAIRS, figure).model_copy(update={"activity": activity, "job": job})
    longest = _Waits(the_run, Locations([the_run])).longest(figure)
    counted = [step for step in steps if nodes <= step.keys()]
    waits = {
        node: [step[node] for step in counted if node in step]
        for node in nodes or {node for step in counted for node in step}
    }
    if not counted:
        assert longest is None
        return
    means = {node: sum(values) / len(values) for node, values in waits.items()}
    assert longest.percent == pytest.approx(max(means.values()))
    assert means[longest.node] == pytest.approx(longest.percent)
    assert longest.total == pytest.approx(sum(means.values()))
    assert longest.part == (0.25 if measured_s is None else min(1.0, measured_s))


@pytest.mark.parametrize("value", [0.0, -0.0, -3.0])
@pytest.mark.parametrize("unit", ["us", "s", "MB/s", "GB/s", "GFLOPS", "Mop/s", "percent", "1/s"])
def test_a_time_or_rate_that_is_not_above_zero_was_not_measured(value, unit):
    better = "lower" if unit in ("us", "s", "percent", "1/s") else "higher"
    bound = "at_most: 40" if better == "lower" else "at_least: -5"
    entries = CONTRACT.replace("    reference: 30.0\n    upper: 0.10\n", f"    {bound}\n")
    entries = entries.replace("unit: us", f"unit: {unit}")
    runs = runs_of(NETPIPE, [30, value, 30], unit=unit, better=better)
    the_trial, rules = trial(NETPIPE, repeats=3), requirements(entries)
    (judgement,) = judge(the_trial, runs, rules)
    result = conclude(the_trial, runs, [judgement], rules)
    if unit in ("percent", "1/s"):
        assert result.verdict == "accept"
    else:
        assert (result.verdict, judgement.verdict) == ("incomplete", "error")
        assert f"a sample is {value:g} {unit}, and must be above zero" in judgement.explanation


def test_each_rate_or_time_that_a_benchmark_declares_is_held_above_zero():
    known = POSITIVE_UNITS | {"percent", "1/s", "of 1"}
    for name, kind in registry().items():
        several = name in ("tcp_streams", "mpi_pairs")
        settings = {"networks": ["a", "b"]} if several else {}
        units = {one.unit for one in kind(kind.Settings(**settings)).metrics().values()}
        assert units <= known, name


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (1.2346e6, "1.23 MB"), (2e9, "2 GB")],
)
def test_a_volume_has_three_digits(count, text):
    assert volume(count) == text
