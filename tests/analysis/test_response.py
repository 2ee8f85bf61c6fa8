"""Responses of applications to profiles and networks, and the costs of profiles, from records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analysis_maker import JITTER, app, over_network, repeated, stream, trial
from seatrial.analysis.axis import NETWORK, TRANSPORT
from seatrial.analysis.profile_cost import CPU, cpu_time, profile_costs
from seatrial.analysis.response import responses
from seatrial.analysis.trials import analyse
from seatrial.results.record import Activity, Job, PathProof


def test_the_published_responses_and_what_they_mean():
    """Celebioglu: HPL 133 and 225 GFLOPS, FT 1.34, IS 0.66, CG about 1 of bcm5700 over tg3."""
    runs = [
        *repeated("hpl", "atlas", tg3=133.0, bcm5700=225.0),
        *repeated("npb", "ft.B", tg3=100.0, bcm5700=134.0),
        *repeated("npb", "is.B", tg3=100.0, bcm5700=66.0),
        *repeated("npb", "cg.B", tg3=100.0, bcm5700=100.0),
    ]
    made, missing = responses([trial(runs)])
    assert missing == []
    by_name = {one.application: one for one in made}
    for name, ratio in (("hpl atlas", 1.692), ("npb ft.B", 1.34), ("npb is.B", 0.66)):
        response = by_name[name].ratios["bcm5700"]
        assert response.value == pytest.approx(ratio, rel=0.002)
        assert response.low < response.value < response.high
        assert not response.low < 1 < response.high
    assert by_name["hpl atlas"].decision.leaders == ("bcm5700",)
    assert by_name["npb ft.B"].decision.leaders == ("bcm5700",)
    assert by_name["npb is.B"].decision.leaders == ("tg3",)
    assert by_name["npb cg.B"].decision.answer == "no difference"
    assert by_name["npb cg.B"].base == "tg3"  # without a profile default: the first
    assert by_name["npb cg.B"].inputs.samples == 12


def test_the_published_modified_driver_is_better_than_its_own_and_worse_than_tg3():
    """Celebioglu: IS with bcm5700 0.66 of tg3, and 30 % more with its coalescing modified."""
    profiles = {"tg3": 100.0, "bcm5700": 66.0, "modified": 66.0 * 1.3}
    [made] = responses([trial(repeated("npb", "is.B", **profiles))])[0]
    assert made.ratios["modified"].value == pytest.approx(0.86, abs=0.003)
    assert made.ratios["modified"].high < 1
    assert made.decision.leaders == ("tg3",)
    [own] = responses([trial(repeated("npb", "is.B", bcm5700=66.0, modified=66.0 * 1.3))])[0]
    assert own.ratios["modified"].value == pytest.approx(1.3, rel=0.002)
    assert own.decision.leaders == ("modified",)


@pytest.mark.parametrize(
    ("base", "other", "ratio"),
    [
        (7.45, 12.74, 1.71),  # Fast and Gigabit Ethernet
        (12.74, 13.26, 1.041),  # throttling, and none
        (13.26, 11.45, 0.864),  # ATLAS and ACML, in the place of profiles
        (13.26, 14.53, 1.096),  # an MTU of 1500 and 6000, tuned again
    ],
)
def test_the_published_responses_of_hpl_in_seed_003(base, other, ratio):
    [made] = responses([trial(repeated("hpl", "atlas", first=base, second=other))])[0]
    response = made.ratios["second"]
    assert response.value == pytest.approx(ratio, abs=0.003)
    assert response.low < ratio < response.high
    assert made.decision.leaders == ("second" if ratio > 1 else "first",)


def test_the_published_fabrics_do_not_differ_for_ep():
    """Sokolowski: EP is the same on all within 3 %. The rates themselves are made up."""
    fabrics = {"fast": 100.0, "gigabit": 101.0, "myrinet-tcp": 99.5, "gm": 101.5}
    [made] = responses([trial(repeated("npb", "ep.A", 8, **fabrics))])[0]
    assert made.decision.answer == "no difference"
    assert made.decision.apart < 0.03
    fabrics["gm"] = 106.0  # beyond 3 %
    [made] = responses([trial(repeated("npb", "ep.A", 8, **fabrics))])[0]
    assert made.decision.leaders == ("gm",)


def test_default_is_the_base():
    made, _ = responses([trial(repeated("npb", "is.S", jumbo=2.0, default=1.0))])
    assert made[0].base == "default"
    assert made[0].ratios["jumbo"].value == pytest.approx(2, rel=0.01)


def test_runs_that_prove_nothing_and_reruns_do_not_count():
    runs = repeated("npb", "is.S", default=1.0, jumbo=1.0)
    off_path = PathProof(network="test", required_bytes=1, counters=[], crossed=False)
    extra = [
        app("npb", "is.S", "jumbo", 100.0, 4, path=off_path),
        app("npb", "is.S", "jumbo", 100.0, 5, outcome="error", phase="profile", reason="wrong MTU"),
        app("npb", "is.S", "jumbo", 100.0, 6),  # a rerun
    ]
    made, missing = responses([trial([*runs, *extra], repeats=6, reruns=2)])
    assert made[0].medians["jumbo"] == pytest.approx(1, rel=0.01)
    assert made[0].inputs.samples == 12
    assert "wrong MTU" in missing[0].reason


def test_trials_are_pooled_only_where_each_has_all_profiles():
    both = [trial(repeated("npb", "is.S", 3, default=1.0, jumbo=2.0), f"t{i}") for i in (1, 2)]
    alone = trial(repeated("npb", "is.S", 6, default=50.0), "fast machine")
    other = trial(repeated("npb", "is.S", 6, gigabit=1.0), "other")
    assert responses([other, alone, *both])[0] == responses([*both, alone, other])[0]
    made, missing = responses([*both, alone, other])
    assert made[0].inputs.trials == ("t1", "t2")
    assert made[0].ratios["jumbo"].value == pytest.approx(2, rel=0.01)
    assert made[0].decision.answer == "best"  # three repeats in one trial would not do
    assert "gigabit" in missing[0].subject


def test_other_classes_nodes_and_routes_are_other_applications():
    runs = [
        app("npb", "is.S", "default", 1.0), app("npb", "is.A", "jumbo", 1.0),
        app("npb", "is.S", "jumbo", 1.0, nodes=4),
    ]  # fmt: skip
    made, missing = responses([trial(runs)])
    assert made == []
    assert len(missing) == 3
    assert "alone" in missing[0].reason


def test_a_zero_is_a_reason_and_no_figure():
    runs = repeated("npb", "is.S", default=1.0, jumbo=1.0)
    runs.append(app("npb", "is.S", "jumbo", 0.0, 7))
    made, missing = responses([trial(runs)])
    assert made == []
    assert "must be above zero" in missing[0].reason


def test_units_that_differ_are_not_compared():
    runs = repeated("npb", "is.S", default=1.0, jumbo=1.0)
    for run in runs[:6]:
        run.metrics[0].unit = "Gop/s"
    made, missing = responses([trial(runs)])
    assert made == []
    assert "unit" in missing[0].reason


@pytest.mark.parametrize(
    ("rate", "send", "receive", "cost"),
    [
        (940.79, 61.98, 83.67, 12.39), (940.84, 55.69, 87.05, 12.14), (940.9, 49.38, 87.47, 11.64),
        (940.64, 51.8, 19.05, 6.03), (940.94, 44.52, 19.53, 5.45), (940.72, 41.75, 19.42, 5.20),
    ],
)  # fmt: skip
def test_the_published_processor_time_per_MB(rate, send, receive, cost):
    """Table 1 of Celebioglu at 4, 8 and 32 KB: tg3, then bcm5700."""
    [made] = cpu_time(stream("x", rate / 8, send, receive))
    assert round(made, 2) == cost


def test_a_stream_of_no_rate_has_no_cost():
    assert cpu_time(stream("x", 0.0, 1.0, 1.0)) == []
    assert cpu_time(stream("x", math.nan, 1.0, 1.0)) == []


def test_the_costs_of_profiles_have_intervals():
    runs = [
        stream(profile, rate * JITTER[i], cpu, cpu, i, interrupts=1.0 if profile == "x" else 0.0)
        for profile, rate, cpu in (("default", 100.0, 60.0), ("x", 120.0, 30.0))
        for i in range(6)
    ]
    [made] = analyse([trial(runs)]).costs
    assert made.base == "default"
    cost = made.costs["x"]
    assert cost["bandwidth_MB_s"].ratio.value == pytest.approx(1.2, rel=0.01)
    assert cost["bandwidth_MB_s"].ratio.low > 1
    assert cost[CPU].ratio.value == pytest.approx(1 / 2.4, rel=0.01)
    assert cost["interrupts_per_s"].ratio is None  # of zero there is none
    assert made.costs["default"][CPU].ratio is None


def test_one_profile_costs_nothing_in_comparison():
    assert profile_costs([]) == []
    assert analyse([trial([stream("a", 1.0, 1.0, 1.0)])]).costs == []


def test_the_costs_of_a_profile_that_another_trial_has_alone_are_not_compared():
    both = trial([stream(p, 100.0, 60.0, 60.0, i) for p in ("default", "x") for i in range(4)])
    alone = trial([stream("default", 900.0, 60.0, 60.0, i) for i in range(9)], "fast machine")
    [made] = analyse([both, alone]).costs
    assert made.inputs.trials == ("t1",)
    assert made.costs["default"]["bandwidth_MB_s"].value == 100.0


def disturbed(run, percent=80.0):
    """A run whose first rank waited for a processor on one of two nodes."""
    own = [Activity(step="run", node=node, seconds=10, others_percent=95, waited_percent=waited)
           for node, waited in (("n1", 0.1), ("n2", percent))]  # fmt: skip
    return run.model_copy(update={"activity": own})


def test_disturbed_runs_are_left_out_and_said():
    runs = repeated("npb", "is.S", default=100.0, jumbo=150.0)
    runs += [disturbed(app("npb", "is.S", "default", 900.0, i)) for i in (6, 7)]
    runs += [disturbed(app("npb", "is.S", "jumbo", 150.0, 6), percent=5.0)]  # by daemons
    made = analyse([trial(runs)])
    [response] = made.responses
    assert response.decision.leaders == ("jumbo",)
    assert response.decision.answer == "best"
    assert response.inputs.samples == 12  # round 6 has no run of default
    [missing] = [one for one in made.missing if one.what == "undisturbed runs"]
    assert missing.subject.endswith("(2 of 8 runs left out)")
    assert missing.reason.startswith("it waited more than 5 % of the time for a processor")
    assert "default" in missing.subject


def test_a_profile_that_was_disturbed_in_each_run_may_be_the_best():
    runs = repeated("npb", "is.S", default=100.0, jumbo=150.0)
    slow = [disturbed(run) for run in repeated("npb", "is.S", fast=60.0)]
    [made], _ = responses([trial([*runs, *slow])])
    assert made.decision.answer == "measure more"
    assert "other programs disturbed the runs under fast" in made.decision.reason
    assert set(made.decision.leaders) == {"default", "jumbo"}
    assert made.decision.worse == ()


def test_costs_are_those_of_undisturbed_runs():
    runs = [stream(p, 100.0, 60.0, 60.0, i) for p in ("default", "x") for i in range(6)]
    runs += [disturbed(stream("x", 1.0, 60.0, 60.0, i)) for i in range(6, 20)]
    [made] = analyse([trial(runs)]).costs
    assert made.costs["x"]["bandwidth_MB_s"].value == 100.0


def test_a_profile_that_fails_more_often_is_not_the_best():
    runs = repeated("npb", "is.S", default=100.0, jumbo=150.0)
    late = {"outcome": "error", "phase": "limit", "reason": "the job ran into its time limit"}
    jumbo = [app("npb", "is.S", "jumbo", 1.0, i, **late) for i in (6, 7, 8)]
    [made], _ = responses([trial([*runs, *jumbo])])
    assert made.decision.answer == "measure more"
    assert "3 of 9 runs under jumbo failed, of default 0 of 6" in made.decision.reason
    other = [app("npb", "is.S", "default", 1.0, i, **late) for i in (6, 7, 8)]
    for extra in (other, [*other, *jumbo]):
        [made], _ = responses([trial([*runs, *extra])])
        assert made.decision.leaders == ("jumbo",)
        assert made.decision.answer == "best"


def test_profiles_without_a_difference_that_fail_unequally_are_not_alike():
    runs = repeated("npb", "is.S", default=100.0, jumbo=100.0)
    crash = {"outcome": "error", "phase": "run", "reason": "the program ended with 139"}
    lost = app("npb", "is.S", "jumbo", 1.0, 6, **crash)
    [made], _ = responses([trial([*runs, lost])])
    assert made.decision.answer == "measure more"
    never = app("npb", "is.S", "jumbo", 1.0, 6, **{**crash, "phase": "setup"})  # no node was free
    [made], _ = responses([trial([*runs, never])])
    assert made.decision.answer == "no difference"


def test_the_profile_cannot_be_told_from_other_nodes():
    def on(other):
        runs = repeated("npb", "is.S", default=100.0, jumbo=150.0)
        runs += [stream(p, 100.0 * JITTER[i], 60.0, 60.0 * (1 + (p == "jumbo")), i)
                 for p in ("default", "jumbo") for i in range(6)]  # fmt: skip
        for run in runs:
            run.job = Job(nodes=["n1", "n2"] if run.case.profile == "default" else other)
        return analyse([trial(runs)])

    made = on(["n3", "n10"])
    assert made.responses[0].decision.answer == "measure more"
    why = (
        "the profile cannot be told from the nodes, which differ (default: n1, n2; jumbo: n3, n10)"
    )
    assert made.responses[0].decision.reason == why
    assert made.costs[0].nodes_differ == why
    made = on(["n2", "n1"])
    assert made.responses[0].decision.leaders == ("jumbo",)
    assert made.costs[0].nodes_differ == ""


def test_trials_that_contradict_each_other_are_not_pooled_into_no_difference():
    def night(name, jumbo):
        return trial(repeated("npb", "is.S", default=100.0, jumbo=jumbo), name)

    [made], _ = responses([night("monday", 150.0), night("tuesday", 66.0)])
    assert made.decision.answer == "measure more"
    assert "the trials disagree: " in made.decision.reason
    assert "monday" in made.decision.reason
    assert "tuesday" in made.decision.reason
    [made], _ = responses([night("monday", 150.0), night("tuesday", 130.0)])  # in size only
    assert made.decision.leaders == ("jumbo",)
    assert made.decision.answer == "best"
    [made], _ = responses([night("monday", 100.5), night("tuesday", 99.5)])  # too little to count
    assert made.decision.answer == "no difference"


def in_rounds(rounds, repeats, **profiles):
    """Runs whose numbers count through the rounds; those of a round are alike."""
    return [
        app("npb", "is.S", profile, value * JITTER[number], number * repeats + i).model_copy(
            update={"round": number}
        )
        for profile, value in profiles.items()
        for number in range(rounds)
        for i in range(repeats)
    ]


def test_the_repeats_of_one_round_are_one_sample():
    runs = in_rounds(1, 6, default=1.0, jumbo=9.0)
    [made], _ = responses([trial(runs, repeats=6)])
    assert (made.decision.answer, made.decision.needs) == ("measure more", 5)
    assert "one round alone" in made.decision.reason
    assert made.inputs.samples == 12
    runs = in_rounds(5, 3, default=1.0, jumbo=9.0)
    [made], _ = responses([trial(runs, repeats=3, rounds=5)])
    assert (made.decision.answer, made.decision.repeats) == ("best", 5)
    assert made.inputs.samples == 30


def test_rounds_of_several_trials_are_pooled():
    """Five nights of one round each, as five rounds of one night."""
    nights = [
        trial([run.model_copy(update={"round": 0}) for run in
               in_rounds(5, 3, default=1.0, jumbo=9.0) if run.round == night],
              f"t{night}", repeats=3)
        for night in range(5)
    ]  # fmt: skip
    [made], _ = responses(nights)
    assert (made.decision.answer, made.decision.repeats) == ("best", 5)
    assert responses(nights[:4])[0][0].decision.needs == 5


def test_in_virtual_time_repeats_are_samples():
    runs = in_rounds(1, 6, default=1.0, jumbo=9.0)
    [made], _ = responses([trial(runs, repeats=6, virtual_time=True)])
    assert (made.decision.answer, made.decision.unit) == ("best", "repeat")
    few = responses([trial(runs[:3] + runs[6:9], repeats=3, virtual_time=True)])[0][0].decision
    assert "3 repeats, and 2 profiles need 5 repeats each" in few.reason


def test_no_comparison_of_profiles_takes_the_repeats_of_one_round_for_samples():
    """The costs of profiles, as the response."""
    runs = [
        stream(profile, rate * JITTER[i], 50.0, 50.0, i).model_copy(update={"round": 0})
        for profile, rate in (("default", 100.0), ("jumbo", 120.0))
        for i in range(6)
    ]
    for virtual in (False, True):
        one = analyse([trial(runs, repeats=6, virtual_time=virtual)]).costs[0]
        estimate = one.costs["jumbo"]["bandwidth_MB_s"].ratio
        assert math.isfinite(estimate.high) == virtual
        assert one.unit == ("repeat" if virtual else "round")


@pytest.mark.parametrize(
    ("fields", "unit", "older"),
    [
        ({"notes": ["figures are in virtual time: an emulated machine"]}, "repeat", True),
        ({"notes": ["figures are in virtual time: x"], "virtual_time": False}, "round", False),
        ({"virtual_time": True}, "repeat", False),
        ({}, "round", False),
    ],
)
def test_an_older_record_of_a_virtual_lab_is_known_by_its_note(fields, unit, older):
    made = trial(repeated("npb", "is.S", 2, default=100.0, jumbo=150.0), **fields)
    assert bool(made.trial.lacking_in_record) is older
    [response], _ = responses([made])
    assert response.decision.unit == unit


# --- networks ------------------------------------------------------------------------------------


def fabrics(check, variant, repeats=6, **networks):
    made = repeated(check, variant, repeats, **networks)
    return [
        over_network(run.case.profile, run.model_copy(update={"case": replace(
            run.case, profile="igb-off")}))
        for run in made
    ]  # fmt: skip


def test_a_code_that_communicates_responds_to_the_network_and_one_that_computes_does_not():
    """Tessera: IS over Fast Ethernet is far behind, EP is equal across fabrics within 3 %."""
    own = [*fabrics("npb", "is.S", fast=5.32, gigabit=30.77),
           *fabrics("npb", "ep.S", fast=38.58, gigabit=38.57)]  # fmt: skip
    (to_is, to_ep), missing = responses([trial(own)], NETWORK)
    assert missing == []
    assert (to_is.route, to_is.profile, to_is.base) == ("openmpi-tcp", "igb-off", "fast")
    assert to_is.hardware == "fast, gigabit"
    assert to_is.decision.answer == "best"
    assert to_is.ratios["gigabit"].value == pytest.approx(5.78, abs=0.02)
    assert to_ep.decision.answer == "no difference"
    assert to_ep.base == "fast"  # as of IS, though the median of EP is better there
    assert responses([trial(own)], TRANSPORT) == ([], [])


def test_one_network_is_no_comparison_and_no_gap():
    own = [run for run in fabrics("npb", "is.S", fast=5.0, gigabit=30.0)
           if run.case.network == "fast"]  # fmt: skip
    assert responses([trial(own)], NETWORK) == ([], [])
    one_network = repeated("npb", "is.S", default=1.0, jumbo=2.0)
    assert responses([trial(one_network)], NETWORK) == ([], [])


def test_networks_on_different_nodes_have_no_answer():
    own = fabrics("npb", "is.S", fast=5.0, gigabit=30.0)
    for run in own:
        run.job = Job(nodes=["n1", "n2"] if run.case.network == "fast" else ["n3", "n4"])
    ([made], _) = responses([trial(own)], NETWORK)
    assert made.decision.answer == "measure more"
    assert "the network cannot be told from the nodes" in made.decision.reason
    assert made.decision.takes == "runs of each network on the same nodes"


def test_one_round_of_two_networks_is_too_few():
    ([made], _) = responses([trial(fabrics("npb", "is.S", 1, fast=5.0, gigabit=30.0))], NETWORK)
    assert made.decision.answer == "measure more"
    assert "2 networks need 5 rounds each" in made.decision.reason


def of_rounds(value, rounds, profile, name="t1"):
    return [app("npb", "is.S", profile, value * JITTER[i % len(JITTER)], i) for i in rounds]


def test_a_profile_that_lost_the_slow_rounds_is_not_better():
    """From round 6 on the cluster is slower. The profiles do not differ."""
    slow, quick = range(6, 12), range(6)
    runs = [*of_rounds(77.0, slow, "default"), *of_rounds(100.0, quick, "jumbo")]
    runs += [disturbed(run) for run in of_rounds(100.0, quick, "default")]
    runs += [disturbed(run) for run in of_rounds(77.0, slow, "jumbo")]
    made, missing = responses([trial(runs)])
    assert made == []
    assert any("no round has an undisturbed run of each profile" in one.reason for one in missing)
    # one round has both
    [made], _ = responses([trial([*runs, *of_rounds(90.0, [12], "default"),
                                  *of_rounds(90.0, [12], "jumbo")])])  # fmt: skip
    assert (made.decision.answer, made.decision.repeats) == ("measure more", 1)


def test_trials_of_different_levels_with_different_numbers_of_runs_are_no_response():
    first = [*of_rounds(100.0, range(5), "default"), *of_rounds(100.0, range(1), "jumbo")]
    second = [*of_rounds(130.0, range(1), "default"), *of_rounds(130.0, range(5), "jumbo")]
    [made], _ = responses([trial(first), trial(second, "t2")])
    assert made.decision.answer == "measure more"
    assert made.ratios["jumbo"].value == pytest.approx(1.0, rel=0.05)
