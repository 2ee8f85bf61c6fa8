"""NIC profiles on the page: what each sets, by which job, on how many nodes it is proven."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import synthetic
from lxml import html

from seatrial.report.cases import nic_states
from seatrial.report.html import render
from seatrial.report.profiles import (
    activity_rows,
    brief,
    cost_table,
    declared_settings,
    profile_views,
    settings_text,
    usual_states,
)
from seatrial.results.folder import Results
from seatrial.results.record import (
    Activity,
    Allocation,
    Case,
    Job,
    Metric,
    NicProof,
    ProfileUse,
    Run,
)

STREAM = Case(check="tcp_stream", transport="tcp", profile="jumbo", nodes=2)


def proof(node, ok=True, when="before"):
    reason = "" if ok else f"{node}: eth1 mtu is 1500, not 9000"
    return NicProof(node=node, when=when, ok=ok, reason=reason, job="7", seconds=0.04)


def results(*runs, **use):
    """A trial of one profile."""
    held = Allocation(job=Job(id="7", nodes=["n1", "n2"]), waited_s=0.5, released_s=0.25, cases=2)
    given = {"name": "jumbo", "settings": {n: {"eth1": {"mtu": 9000}} for n in ("n1", "n2")},
             "allocations": [held], **use}  # fmt: skip
    trial = synthetic.empty().trial.model_copy(
        update={"profiles": [ProfileUse(**given)], "cases": [STREAM]}
    )
    return Results(trial=trial, runs=list(runs))


def run(*proofs, **fields):
    job = Job(id="7", nodes=["n1", "n2"])
    return Run(**{"case": STREAM, "outcome": "ran", "job": job, "nic_proofs": proofs, **fields})


def words(page, section):
    document = html.document_fromstring(page)
    (found,) = document.xpath(f"//section[@aria-labelledby='{section}']")
    return " ".join(found.text_content().split())


def test_proven():
    found = results(run(proof("n1"), proof("n2")), run(proof("n1"), proof("n2")))
    (view,) = profile_views(found)
    assert view.proven
    assert (view.verified, view.verifications, view.passed, view.runs) == (["n1", "n2"], 4, 4, 2)
    text = words(render(found), "profiles")
    assert "on 2 of 2 nodes" in text
    assert "4 of 4 verifications in 2 runs passed; one takes 40 ms" in text
    assert "1 time by job 7 on 2 nodes, for 2 runs; in force 500 ms after its submission, " in text
    assert "eth1: mtu 9000" in text


def test_a_setting_that_is_left_out_is_named():
    left = [proof(node).model_copy(update={"left_out": ["eth1 vfs"]}) for node in ("n1", "n2")]
    text = words(render(results(run(*left))), "profiles")
    assert "eth1: mtu 9000 left out, as if_supported allows: eth1 vfs on n[1-2]" in text


def test_one_node_that_differs_is_named():
    bad = run(proof("n1"), proof("n2", ok=False), outcome="error", phase="profile",
              reason="not under profile jumbo: n2: eth1 mtu is 1500, not 9000")  # fmt: skip
    (view,) = profile_views(results(bad))
    assert not view.proven
    assert (view.nodes, view.verified) == (["n1", "n2"], ["n1"])
    text = words(render(results(bad)), "profiles")
    assert "error on 1 of 2 nodes" in text
    assert "n2: eth1 mtu is 1500, not 9000" in text


def test_node_without_a_look_is_not_verified():
    (view,) = profile_views(results(run(proof("n1"))))
    assert not view.proven
    assert view.verified == ["n1"]


def test_profile_that_was_never_in_force():
    lost = Allocation(job=Job(id="8"), reason="its job 8 did not start: CANCELLED (Prolog)")
    case = run(outcome="error", phase="profile", reason="NIC profile jumbo was not in force",
               job=Job())  # fmt: skip
    text = words(render(results(case, allocations=[lost])), "profiles")
    assert "by job 8: not in force" in text
    assert "on 0 of 0 nodes" in text
    assert "its job 8 did not start: CANCELLED (Prolog)" in text


def test_settings_are_said_once_for_nodes_that_are_alike():
    use = ProfileUse(
        name="x",
        settings={
            "n1": {"eth1": {"mtu": 9000}, "eth2": {"egress_bit_s": 10**9}},
            "n2": {"eth1": {"mtu": 9000}},
        },
        node_settings={"sysctl.net.core.busy_poll": 50},
    )
    assert settings_text(use) == [
        "eth1: mtu 9000",
        "eth2 on n1: egress_bit_s 1000000000 (1000 Mbit/s)",
        "node: sysctl.net.core.busy_poll 50",
    ]


def test_costs_beside_the_bandwidth():
    def metric(name, value, location=None):
        return Metric(metric=name, value=value, unit="u", location=location, better="lower")

    metrics = [
        metric("bandwidth_MB_s", 100.0),
        metric("net_rx_per_s", 5.0, "n1"),
        metric("net_rx_per_s", 7.0, "n2"),
        metric("softirq_percent", math.nan, "n1"),
    ]
    header, rows = cost_table(results(run(metrics=metrics)))
    assert header == ["profile", "bandwidth (MB/s)", "NET_RX softirqs (1/s)"]
    assert rows == [["jumbo", "100", "6 (5 to 7)"]]
    page = render(results(run(metrics=metrics)))
    assert "The kernel attributes no interrupts" in words(page, "profiles")
    assert "net_rx_per_s per node" not in page


def test_activity_of_a_run():
    one = Activity(step="net", node="n1", seconds=1, interrupts_per_s={"eth1": 3, "eth0": None},
                   net_rx_per_s=None, softirq_percent=1.5)  # fmt: skip
    (row,) = activity_rows(run(activity=[one]))
    assert (row.step, row.node, row.cells) == ("net", "n1", ["3", "–", "1.5", "–"])


def test_long_state_shows_what_matters():
    """What the profile sets, and what is not as under the default profile; the rest is counted."""
    many = {f"feature.x{i}": "off" for i in range(40)}
    usual = run(nic={"n1": {"eth1": {"before": {"mtu": 1500, **many}}}})
    usual.case = replace(STREAM, profile="default")
    state = {"mtu": 9000, "driver": "veth", **many, "feature.x7": "on"}
    other = run(nic={"n1": {"eth1": {"before": state, "after": state}}})
    (shown,), _ = nic_states(other, usual_states([usual]), declared_settings(results()))
    assert shown.same == "mtu=9000  driver=veth  feature.x7=on"
    assert shown.others == 39
    (short,), _ = nic_states(run(nic={"n1": {"eth1": {"before": {"a": 1}, "after": {"a": 1}}}}))
    assert (short.same, short.others) == ("a=1", 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0461, "46 ms"), (0.9999, "1000 ms"), (2.5, "2.5 s"), (90, "1 min 30 s")],
)
def test_brief(seconds, text):
    assert brief(seconds) == text


def test_trial_of_before_there_were_profiles():
    old = results(run())
    old.trial.profiles = []
    assert 'aria-labelledby="profiles"' not in render(old)
