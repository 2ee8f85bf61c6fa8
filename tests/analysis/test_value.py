"""Share of the peak, price, power and equivalent nodes: the published figures, and what lacks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis_maker import JITTER, app, over_network, trial
from seatrial.analysis.conclusion import Estimate
from seatrial.analysis.trials import analyse
from seatrial.analysis.value import equivalent_nodes, per
from seatrial.results.record import Cost, Job, Machine, Metric, Power

NODES = [f"n{i}" for i in range(1, 9)]
PEAK = 1.756 * 2  # GFLOPS of a node
COSTS = [
    Cost(name="purchase", usd=2490, date="2004-03-01", includes="all"),
    Cost(name="today", usd=2063, date="2004-08-01", includes="all"),
    Cost(name="without cases", usd=1961, date="2004-08-01", includes="no cases"),
]
MACHINE = Machine(
    nodes=8, peaks=dict.fromkeys(NODES, PEAK), costs=COSTS,
    power=Power(watts=900, source="meter", load="HPL"),
)  # fmt: skip


def runs(profile="default", GFLOPS=14.53, nodes=8, repeats=6):
    made = [
        app("hpl", "atlas", profile, GFLOPS * JITTER[i], i, nodes=nodes) for i in range(repeats)
    ]
    for run in made:
        run.job = Job(nodes=NODES[:nodes])
    return made


def analysed(own, machine=MACHINE):
    return analyse([trial(own, machine=machine)])


@pytest.mark.parametrize(("GFLOPS", "percent"), [(14.53, 51.7), (12.74, 45.3), (7.45, 26.5)])
def test_the_published_shares_of_the_peak(GFLOPS, percent):
    [value] = analysed(runs(GFLOPS=GFLOPS)).values
    assert value.peak_GFLOPS == pytest.approx(28.096)
    share = value.peak_share
    assert 100 * share.value == pytest.approx(percent, abs=0.1)
    assert share.low < share.value < share.high


def test_the_published_prices_and_power():
    [value] = analysed(runs()).values
    prices = {p.cost.name: p.usd_per_GFLOPS for p in value.prices}
    for name, usd in (("purchase", 171.4), ("today", 142.0), ("without cases", 135.0)):
        assert prices[name].value == pytest.approx(usd, abs=0.1)
        assert prices[name].low < prices[name].value < prices[name].high
    assert value.MFLOPS_per_W.value == pytest.approx(16.14, abs=0.01)
    assert value.power.source == "meter"


@pytest.mark.parametrize(("rounds", "virtual"), [(1, False), (5, False), (6, False), (1, True)])
def test_the_repeats_of_a_round_are_one_sample(rounds, virtual):
    """An interval takes six rounds; in virtual time each repeat is a sample."""
    made = [
        run.model_copy(update={"round": run.repeat % rounds, "metrics": [
            *run.metrics,
            Metric(metric="hpl_percent_of_dgemm", value=80 + run.repeat, unit="percent",
                   better="higher")]})
        for run in runs()
    ]  # fmt: skip
    [value] = analyse([trial(made, machine=MACHINE, virtual_time=virtual)]).values
    own = [value.GFLOPS, value.peak_share, value.dgemm_percent, value.MFLOPS_per_W]
    for one in [*own, *(price.usd_per_GFLOPS for price in value.prices)]:
        assert math.isfinite(one.high) == (virtual or rounds == 6)
    assert value.unit == ("repeat" if virtual else "round")


def test_the_published_gain_is_worth_three_nodes():
    assert equivalent_nodes(Estimate(14.53 / 10.6, 1.3, 1.4), 8).value == pytest.approx(2.97, 0.005)
    analysis = analysed([*runs(GFLOPS=10.6), *runs("tuned", 14.53)])
    [gain] = analysis.gains
    assert gain.equivalent_nodes.value == pytest.approx(2.97, abs=0.02)
    assert gain.equivalent_nodes.low > 2.9
    assert gain.usd_per_GFLOPS is None  # no price of each


def test_a_price_of_each_profile_gives_the_price_of_the_gain():
    costs = [
        Cost(name="purchase", usd=2000, date="2004-03-01", includes="all", profile="default"),
        Cost(name="purchase", usd=2393, date="2004-03-01", includes="all", profile="tuned"),
    ]
    own = [*runs(GFLOPS=10.6), *runs("tuned", 14.53)]
    analysis = analysed(own, MACHINE.model_copy(update={"costs": costs}))
    price = analysis.gains[0].usd_per_GFLOPS
    assert price.value == pytest.approx(393 / 3.93, rel=0.005)
    assert price.low < price.value < price.high
    names = {v.case.profile: [p.cost.usd for p in v.prices] for v in analysis.values}
    assert names == {"default": [2000], "tuned": [2393]}


def test_a_price_of_each_network_gives_the_price_of_the_faster_one():
    """Sokolowski's fabrics with the value cluster's machine: HPL has 1.71 times the performance."""
    costs = [
        Cost(name="purchase", usd=usd, date="2004-03-01", includes="all", network=network)
        for network, usd in (("fast", 2000), ("gigabit", 2377))
    ]
    own = [
        over_network(network, run)
        for network, GFLOPS in (("gigabit", 12.74), ("fast", 7.45))
        for run in runs(GFLOPS=GFLOPS)
    ]
    analysis = analysed(own, MACHINE.model_copy(update={"costs": costs}))
    [gain] = analysis.gains
    assert (gain.option, gain.response.base) == ("gigabit", "fast")
    assert gain.response.ratios["gigabit"].value == pytest.approx(1.71, abs=0.005)
    assert gain.usd_per_GFLOPS.value == pytest.approx(377 / 5.29, rel=0.01)
    assert gain.usd_per_GFLOPS.low < 377 / 5.29 < gain.usd_per_GFLOPS.high
    assert gain.equivalent_nodes.value == pytest.approx(8 * 5.29 / 7.45, rel=0.01)
    other = [cost.model_copy(update={"profile": "other"}) for cost in costs]
    [gain] = analysed(own, MACHINE.model_copy(update={"costs": other})).gains
    assert gain.usd_per_GFLOPS is None


def test_a_difference_within_the_spread_is_no_gain():
    [gain] = analysed([*runs(GFLOPS=10.6), *runs("tuned", 10.65)]).gains
    assert (gain.equivalent_nodes, gain.none) == (None, True)


def test_a_gain_that_is_not_certain_is_not_excluded():
    [gain] = analysed([*runs(GFLOPS=10.6)[:2], *runs("tuned", 12.0)[:2]]).gains
    assert (gain.equivalent_nodes, gain.none) == (None, False)


def test_the_price_of_a_gain_holds_the_truth():
    rng = np.random.default_rng(1)
    costs = [
        Cost(name="x", usd=usd, date="2004-03-01", includes="all", profile=profile)
        for profile, usd in (("default", 2000), ("tuned", 2400))
    ]
    said = held = 0
    for _ in range(100):
        own = [*runs(GFLOPS=10.0), *runs("tuned", 12.0)]
        for run in own:
            run.metrics[0].value *= float(np.exp(rng.normal(0, 0.03)))
        [gain] = analysed(own, MACHINE.model_copy(update={"costs": costs})).gains
        if price := gain.usd_per_GFLOPS:
            said += 1
            held += price.low <= 200 <= price.high
    assert said >= 90
    assert held / said >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / said)


def test_what_the_site_file_does_not_say_has_no_figure():
    assert analysed(runs(), Machine(nodes=8)).values == []
    [value] = analysed(runs(), MACHINE.model_copy(update={"power": None, "costs": []})).values
    assert (value.prices, value.MFLOPS_per_W) == ([], None)
    [value] = analysed(runs(), MACHINE.model_copy(update={"peaks": {}})).values
    assert value.peak_share is None


def of_processors(GFLOPS=60.0, **facts):
    made = runs(GFLOPS=GFLOPS)
    own = {"cores": 8, "core_peak_GFLOPS": 12.0, "core_peak_source": "3 GHz x 4 (sse2)", **facts}
    for run in made:
        run.facts |= own
    return made


def test_without_a_peak_in_the_site_file_it_is_that_of_the_processors():
    [value] = analysed(of_processors(), Machine(nodes=8)).values
    assert value.peak_GFLOPS == 96
    assert value.peak_share.value == pytest.approx(60 / 96, rel=0.01)
    assert value.peak_source == "of 8 cores, 3 GHz x 4 (sse2)"
    [stated] = analysed(of_processors(14.53)).values
    assert stated.peak_GFLOPS == pytest.approx(28.096)
    assert stated.peak_source == "of its nodes, by site.yaml"


def test_nodes_that_share_the_cores_of_a_machine_have_its_peak():
    [value] = analysed(of_processors(GFLOPS=15.0, shared_cores=2), Machine(nodes=8)).values
    assert value.peak_GFLOPS == 24


@pytest.mark.parametrize("core", [None, "12", 0, -1, [12]])
def test_a_peak_that_is_not_on_record_is_not_known(core):
    analysis = analysed(of_processors(core_peak_GFLOPS=core), Machine(nodes=8))
    assert analysis.values == []
    assert "neither site.yaml nor the processors" in analysis.missing[-1].reason


def test_the_share_of_DGEMM_stands_beside():
    made = runs()
    for run in made:
        share = Metric(metric="hpl_percent_of_dgemm", value=80, unit="percent", better="higher")
        run.metrics.append(share)
    [value] = analysed(made, Machine(nodes=8)).values
    assert value.dgemm_percent.value == 80
    assert value.peak_share is None
    made[0].metrics[-1].doubt = "its DGEMM is uncertain"
    made[1].metrics[-1].value = 90
    assert analysed(made, Machine(nodes=8)).values[0].dgemm_percent.value == 80


def test_the_price_is_of_the_whole_machine_alone():
    analysis = analysed(runs(nodes=4, GFLOPS=7.0))
    [value] = analysis.values
    assert value.peak_GFLOPS == pytest.approx(4 * PEAK)  # of the nodes that ran
    assert value.prices == []
    assert "4 of the 8 nodes" in analysis.missing[-1].reason


def test_more_than_the_peak_is_an_error_of_the_site_file():
    analysis = analysed(runs(GFLOPS=30.0))
    [value] = analysis.values
    assert value.peak_share is None
    assert "above the peak, 28.1 (of its nodes, by site.yaml)" in analysis.missing[-1].reason


def test_nodes_without_a_peak_and_trials_of_other_prices():
    some = MACHINE.model_copy(update={"peaks": {"n1": PEAK}})
    analysis = analysed(runs(), some)
    assert analysis.values[0].peak_share is None
    assert "the peak of its nodes is not known" in analysis.missing[-1].reason
    other = MACHINE.model_copy(update={"costs": COSTS[:1]})
    analysis = analyse([trial(runs(), machine=MACHINE), trial(runs(), "t2", machine=other)])
    assert analysis.values[0].prices == []
    assert "different prices" in analysis.missing[-1].reason


def test_a_price_over_an_interval_without_an_end():
    assert per(10, Estimate(2, -math.inf, math.inf)).high == math.inf
