"""Which changes of level are one finding, and what its cause is, in made-up months."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from campaigns import rounds
from history_support import made_up
from seatrial.history.changes import Scope
from seatrial.history.series import Series
from seatrial.report.changes import effect, headline, sentences, subject
from seatrial.results.record import Case

NIGHTS, CHANGE = 45, 25
NODES = ("n1", "n2", "n3", "n4")
LINKS = [f"{a}-{b}" for at, a in enumerate(NODES) for b in NODES[at + 1 :]]
DRIVER = {"driver of eth1": ("igb 5.1", "igb 5.2")}
KERNEL = {"kernel": ("6.1", "6.12")}
LIBRARY = {"mpich": ("4.0", "4.2")}
SETTING = {"setting coalesce.rx-usecs of eth1": ("125", "150")}
ITERATIONS = {"benchmark osu.iterations": ("100", "10")}
BUFFERS = {"variable BUFFERS of tcp": ("65536", "16384")}
SEEDS = rounds(range(1, 3), range(1, 7))
FEW = rounds(range(1, 2), range(1, 5))
EVERY_OTHER = set(range(CHANGE % 2, NIGHTS, 2))


def all_series() -> list[Series]:
    """Of links and nodes, and of two programs of two MPIs, under two profiles."""
    result = []
    for profile in ("default", "jumbo"):
        links = Case(check="links", transport="tcp", nodes=4, profile=profile)
        result += [Series("lab", links, "latency_us", link, "us", "lower") for link in LINKS]
        node = Case(check="node_compute", transport="none", nodes=4, profile=profile)
        result += [Series("lab", node, "dgemm", one, "GFLOPS", "higher") for one in NODES]
        for check in ("imb", "osu"):
            for transport in ("openmpi-tcp", "mpich-ofi"):
                case = Case(check=check, transport=transport, nodes=2, profile=profile)
                result.append(Series("lab", case, "latency_us", "", "us", "lower"))
    return result


ALL = all_series()


def history(
    changed, versions, of_case=lambda case: True, sigma=0.01, size=0.05, seed=1, every=ALL,
    nodes=lambda case: ", ".join(NODES[: case.nodes]),
):  # fmt: skip
    """``changed``: the series that become slower. ``versions``: that change in some cases."""
    draw = np.random.default_rng(seed)
    after = np.arange(NIGHTS) >= CHANGE

    def conditions(night, case):
        new = night >= CHANGE and of_case(case)
        return {"nodes": nodes(case)} | {name: pair[new] for name, pair in versions.items()}

    figures = {
        one: 30 * np.exp(sigma * draw.normal(size=NIGHTS) + np.log1p(size) * after * changed(one))
        for one in every
    }
    return made_up(figures, conditions)


def stepped(changed, *nights):
    """The figures of all series; those of the ``changed`` rise on each of the nights."""
    draw = np.random.default_rng(1)
    steps = [np.arange(NIGHTS) >= night for night in nights or (CHANGE,)]
    return {
        one: 30 * np.exp(0.01 * draw.normal(size=NIGHTS) + 0.2 * sum(steps) * changed(one))
        for one in ALL
    }


def at_change(site):
    """Findings of the planted night. A false alarm of another night is no matter of causes."""
    return [finding for finding in site.findings if abs(int(finding.first.name[-3:]) - CHANGE) <= 3]


def over_network(series):
    return series.case.transport != "none"


def at_n3(series):
    return "n3" in series.location


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize(
    ("slow", "of_case"),
    [
        (over_network, lambda case: case.transport != "none"),
        (over_network, lambda case: True),
        (lambda one: one.case.profile == "jumbo", lambda case: case.profile == "jumbo"),
        (lambda one: over_network(one) and one.case.profile == "jumbo", lambda case: True),
    ],
)
def test_one_driver_change_is_one_finding_and_is_of_no_node(slow, of_case, seed):
    (finding,) = at_change(history(slow, DRIVER, of_case, seed=seed))
    assert finding.first.name == f"lab-{CHANGE:03}"
    assert finding.scope.kind not in ("node", "link")
    assert [condition.name for condition in finding.conditions] == ["driver of eth1"]
    assert {change.series for change in finding.changes} == set(filter(slow, ALL))


def test_what_older_trials_do_not_record_has_not_changed():
    """The night of a new Seatrial, which records settings, and of a new MPI."""
    figures = stepped(over_network)

    def conditions(night, case):
        if night < CHANGE:
            return {"nodes": "n1, n2", "openmpi": "4.1"}
        settings = {f"benchmark {case.check}.{name}": "1" for name in "abcdefgh"}
        declared = {f"transport data_path of {case.transport}": "kernel"}
        variable = {f"variable BUFFERS of {case.transport}": "1"}
        return {"nodes": "n1, n2", "openmpi": "5.0"} | settings | declared | variable

    (finding,) = at_change(made_up(figures, conditions))
    assert [condition.name for condition in finding.conditions] == ["openmpi"]


def test_a_variable_that_is_declared_in_addition_has_changed():
    figures = stepped(lambda one: one.case.transport == "openmpi-tcp")

    def conditions(night, case):
        declared = {f"transport data_path of {case.transport}": "kernel"}
        if night >= CHANGE and case.transport == "openmpi-tcp":
            declared["variable BUFFERS of openmpi-tcp"] = "16384"
        return {"nodes": "n1, n2"} | declared

    (finding,) = at_change(made_up(figures, conditions))
    (one,) = finding.conditions
    assert (one.name, one.before, one.after) == (
        "variable BUFFERS of openmpi-tcp", "none", "16384",
    )  # fmt: skip
    assert finding.scope == Scope("transport", "openmpi-tcp")


def test_a_variable_with_commas_comes_to_no_node():
    """It changes twice, as would a version that comes to one node after the other."""
    figures = stepped(over_network, CHANGE, CHANGE + 6)

    def conditions(night, case):
        value = ("tcp", "tcp, self", "self")[(night >= CHANGE) + (night >= CHANGE + 6)]
        declared = {f"transport data_path of {case.transport}": "kernel"}
        return {"nodes": "n1, n2", f"variable UCX_TLS of {case.transport}": value} | declared

    site = made_up(figures, conditions)
    assert len(site.findings) > 1
    assert [finding for finding in site.findings if finding.until] == []


def test_in_large_noise_what_later_nights_show_joins_what_an_earlier_one_showed():
    """Of ten changes of 10 % at 3 % noise, which several nights show, at least eight are one
    finding; none is of a node."""
    single = 0
    for seed in range(1, 11):
        findings = at_change(history(over_network, DRIVER, sigma=0.03, size=0.1, seed=seed))
        single += len(findings) == 1
        largest = max(findings, key=lambda one: len(one.changes))
        assert len({change.found.name for change in largest.changes}) > 1
        assert [condition.name for condition in largest.conditions] == ["driver of eth1"]
        assert "node" not in [finding.scope.kind for finding in findings]
    assert single >= 8


def test_a_finding_of_a_night_too_early_moves_to_that_of_the_version():
    """The first series jumps the night before, by chance, and keeps the name of its finding."""
    first = next(filter(over_network, ALL))
    draw = np.random.default_rng(5)
    figures = {}
    for one in ALL:
        begin = CHANGE - 2 if one == first else CHANGE
        step = 0.1 * (np.arange(NIGHTS) >= begin) * over_network(one)
        figures[one] = 30 * np.exp(0.01 * draw.normal(size=NIGHTS) + step)

    def conditions(night, case):
        return {"driver of eth1": DRIVER["driver of eth1"][night >= CHANGE]}

    (early,) = made_up({one: x[:CHANGE] for one, x in figures.items()}, conditions).findings
    assert early.first.name == f"lab-{CHANGE - 2:03}"
    (finding,) = made_up(figures, conditions).findings
    assert (finding.id, finding.found.name) == (early.id, early.found.name)
    assert (finding.last.name, finding.first.name) == (f"lab-{CHANGE - 1:03}", f"lab-{CHANGE:03}")
    assert [condition.name for condition in finding.conditions] == ["driver of eth1"]


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize(
    ("versions", "of_case", "named"),
    [
        (LIBRARY, lambda case: case.transport == "mpich-ofi", []),
        (DRIVER, lambda case: case.check != "links" and case.transport != "none", []),
        # The version is of all series: that the others did not move says what it was not.
        (KERNEL, lambda case: True, ["kernel"]),
    ],
)
def test_a_slower_node_is_the_cause_beside_a_version_that_changed_elsewhere(
    versions, of_case, named, seed
):
    (finding,) = at_change(history(at_n3, versions, of_case, seed=seed))
    assert finding.scope == Scope("node", "n3")
    assert [condition.name for condition in finding.conditions] == named
    assert {change.series for change in finding.changes} == set(filter(at_n3, ALL))


@pytest.mark.parametrize("seed", FEW)
def test_a_slower_node_and_a_version_that_makes_others_slower_are_two_findings(seed):
    def with_mpich(series):
        return series.case.transport == "mpich-ofi"

    site = history(
        lambda one: at_n3(one) or with_mpich(one), LIBRARY,
        lambda case: case.transport == "mpich-ofi", seed=seed,
    )  # fmt: skip
    findings = at_change(site)
    assert [sorted(c.name for c in finding.conditions) for finding in findings] in (
        [[], ["mpich"]], [["mpich"], []],
    )  # fmt: skip
    node, version = sorted(findings, key=lambda one: len(one.conditions))
    assert node.scope == Scope("node", "n3")
    assert {change.series for change in version.changes} == set(filter(with_mpich, ALL))


def beside_a_driver(effect, seed, versions=DRIVER, every=ALL, nights=NIGHTS):
    """``effect``: series -> the factor of its figures since the change, as a logarithm."""
    draw = np.random.default_rng(seed)
    after = np.arange(NIGHTS) >= CHANGE
    figures = {
        one: (30 * np.exp(0.01 * draw.normal(size=NIGHTS) + effect(one) * after))[:nights]
        for one in every
    }

    def conditions(night, case):
        new = {name: pair[night >= CHANGE] for name, pair in versions.items()}
        return {"nodes": ", ".join(NODES[: case.nodes])} | new

    return at_change(made_up(figures, conditions))


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("versions", [DRIVER, {}])
@pytest.mark.parametrize(("common", "fault"), [(-0.08, 0.22), (0.1, 0.26), (0.1, 0.1)])
def test_a_fault_of_a_node_beside_a_change_of_all_is_a_finding_of_its_own(
    common, fault, versions, seed
):
    """From the night on that shows it, with the same names for good."""
    seen = set()
    for nights in (CHANGE + 3, CHANGE + 6, NIGHTS):
        findings = beside_a_driver(
            lambda one: over_network(one) * common + at_n3(one) * over_network(one) * fault,
            seed, versions, nights=nights,
        )  # fmt: skip
        (node,) = (finding for finding in findings if finding.scope == Scope("node", "n3"))
        (other,) = (finding for finding in findings if finding is not node)
        seen.add((node.id, other.id))
        assert "node" not in other.scope.kind
        assert node.beside[0] == other.id
        assert node.beside[1] == pytest.approx(fault, abs=0.02)
        assert {condition.name for condition in other.conditions} == set(versions)
    assert {change.series for change in node.changes} == {
        x for x in ALL if at_n3(x) and over_network(x)
    }
    assert {change.series for change in other.changes} == {
        one for one in ALL if over_network(one) and not at_n3(one)
    }
    assert len(seen) == 1
    assert f"% worse than that of the other series of that night ({other.id})" in sentences(node)[1]


@pytest.mark.parametrize("seed", FEW)
def test_a_faulty_link_or_rail_beside_a_change_of_all_is_a_finding_of_its_own(seed):
    cases = [replace(ALL[0].case, network=rail) for rail in ("rail1", "rail2", "rail3")]
    every = [
        Series("lab", case, metric, link, "us", "lower")
        for case in cases for metric in ("latency_us", "n_half_us") for link in LINKS
    ]  # fmt: skip
    for place, fits in (
        (Scope("link", "n1-n4"), lambda one: one.location == "n1-n4"),
        (Scope("network", "rail2"), lambda one: one.case.network == "rail2"),
    ):
        apart, other = beside_a_driver(
            lambda one, fits=fits: -0.06 + 0.15 * fits(one), seed, every=every
        )
        assert (apart.scope, other.scope) == (place, Scope("site"))
        assert {change.series for change in apart.changes} == set(filter(fits, every))
        assert {change.series for change in other.changes} == {
            one for one in every if not fits(one)
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_several_slow_nodes_of_a_night_are_named(seed):
    """All links but that of the two others are slow: the site is not."""
    every = [one for one in ALL if one.case.check == "links"]

    def slow(one):
        return "n2" in one.location or "n4" in one.location

    (finding,) = at_change(history(slow, {}, size=0.2, seed=seed, every=every))
    assert finding.scope == Scope("nodes", "n2, n4")
    assert headline(finding).partition(": ")[2].startswith("nodes n2, n4: 10 series worse by 2")
    (finding,) = at_change(
        history(lambda one: slow(one) or one.case.profile == "jumbo", {}, size=0.2, seed=seed)
    )
    assert finding.scope.kind != "nodes"


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_that_were_exchanged_are_named(seed):
    draw = np.random.default_rng(seed)
    figures, other = {}, {}
    for one in ALL:
        before, now = 0.2 * ("n4" in one.location), 0.2 * ("n2" in one.location)
        noise = 30 * np.exp(0.01 * draw.normal(size=NIGHTS))
        after = np.arange(NIGHTS) >= CHANGE
        figures[one] = noise * np.exp(np.where(after, now, before))
        other[one] = noise * np.exp(after * (0.2 * at_n3(one) - 0.2 * ("n1" in one.location)))
    findings = at_change(made_up(figures, lambda night, case: {"nodes": ", ".join(NODES)}))
    assert {finding.exchanged for finding in findings} == {("n2", "n4")}
    assert "nodes n2 and n4 seem to be exchanged" in sentences(findings[0])[1]
    findings = at_change(made_up(other, lambda night, case: {"nodes": ", ".join(NODES)}))
    assert {finding.exchanged for finding in findings} == {None}  # n1 is better than n3 was


@pytest.mark.parametrize("seed", SEEDS)
def test_a_version_that_changes_series_by_different_amounts_is_one_finding(seed):
    """By 8 to 14 %, and other metrics by another amount or not at all."""
    amount = random.Random(seed)
    effects = {one: amount.uniform(0.08, 0.14) for one in ALL if over_network(one)}
    (finding,) = beside_a_driver(lambda one: effects.get(one, 0.0), seed)
    assert {change.series for change in finding.changes} == set(effects)


@pytest.mark.parametrize("seed", FEW)
def test_of_two_versions_of_a_night_that_is_the_cause_which_divides_best(seed):
    """A kernel of all nodes and an MPI change; only what uses the MPI becomes slower."""

    def with_mpich(series):
        return series.case.transport == "mpich-ofi"

    draw = np.random.default_rng(seed)
    figures = {
        one: 30 * np.exp(0.01 * draw.normal(size=NIGHTS)
                         + 0.1 * (np.arange(NIGHTS) >= CHANGE) * with_mpich(one))
        for one in ALL
    }  # fmt: skip

    def conditions(night, case):
        new = night >= CHANGE
        library = {"mpich": ("4.0", "4.2")[new]} if case.transport == "mpich-ofi" else {}
        return {"kernel": ("6.1", "6.12")[new]} | library

    (finding,) = at_change(made_up(figures, conditions))
    assert finding.scope == Scope("transport", "mpich-ofi")
    assert {condition.name for condition in finding.conditions} == {"kernel", "mpich"}


@pytest.mark.parametrize(
    ("versions", "of_case", "words"),
    [
        (SETTING, lambda case: case.profile == "jumbo", "profile jumbo"),
        (
            LIBRARY,
            lambda case: case.id == "imb.mpich-ofi.jumbo.2n",
            "imb.mpich-ofi.jumbo.2n: latency_us",
        ),
        (LIBRARY, lambda case: case.transport == "mpich-ofi", "transport mpich-ofi"),
        (LIBRARY, lambda case: case.check == "osu", "check osu"),
        (ITERATIONS, lambda case: case.check == "osu", "check osu"),
        (LIBRARY, lambda case: case.check in ("imb", "osu"), "cases with another mpich"),
        (KERNEL, lambda case: True, "the whole site"),
    ],
)
def test_the_scope_of_a_version_is_what_its_cases_have_in_common(versions, of_case, words):
    """Whichever half of their series moved."""
    having = [one for one in ALL if of_case(one.case)]
    for seed in SEEDS:
        moved = set(random.Random(seed).sample(having, -(-len(having) // 2)))
        (finding,) = at_change(history(moved.__contains__, versions, of_case, size=0.1, seed=seed))
        assert subject(finding) == words
        assert {change.series for change in finding.changes} == moved
        assert (f" of {len(ALL)} series" in effect(finding)) == (words == "the whole site")


def test_a_setting_is_of_its_owner_and_a_version_of_its_case():
    """Where a profile, a transport and a check have one case only."""
    own = Case(check="mpbench", transport="tcp-16k", nodes=2, profile="throttled")
    series = [Series("lab", own, name, "", "us", "lower") for name in ("latency_us", "n_half_us")]
    for versions, words in (
        (SETTING, "profile throttled"),
        (BUFFERS, "transport tcp-16k"),
        (ITERATIONS, "check mpbench"),
        (LIBRARY, "case mpbench.tcp-16k.throttled.2n"),
    ):
        for changed in (series, series[:1]):
            site = history(
                changed.__contains__, versions, lambda case: case == own, every=ALL + series
            )
            (finding,) = at_change(site)
            assert subject(finding) == words
            assert effect(finding).startswith(f"{len(changed)} series worse by ")


def links_of_three_nodes() -> list[Series]:
    """And NPB on two of them, and NetPIPE between two others."""
    names = ("igb1-igb2", "igb2-igb3", "igb1-igb3")
    links = Case(check="links", transport="tcp", nodes=3)
    npb = Case(check="npb", variant="is.S", transport="openmpi-tcp", nodes=2)
    pair = Case(check="netpipe", transport="tcp", nodes=2, profile="other")
    metrics = ("latency_us", "bandwidth_us", "n_half_us")
    both = [name.replace("-", ">") for name in names] + [
        ">".join(name.split("-")[::-1]) for name in names
    ]
    return [
        *(
            Series("lab", links, metric, name, "us", "lower")
            for metric in metrics
            for name in names
        ),
        *(Series("lab", links, "stream_us", one, "us", "lower") for one in both),
        *(Series("lab", npb, metric, "", "us", "lower") for metric in ("time_us", "inverse_us")),
        *(Series("lab", pair, metric, "", "us", "lower") for metric in metrics),
    ]


@pytest.mark.parametrize("metrics", [("latency_us", "bandwidth_us"), ("latency_us", "n_half_us")])
def test_a_slower_node_is_named_with_a_case_on_it_and_metrics_that_do_not_move(metrics):
    """Four of ten series of its links move, and a case without a location."""

    def of_node(one):
        at_links = one.metric in metrics and "igb2" in one.location
        return at_links or one.case.check == "npb"

    every = links_of_three_nodes()
    nodes = {"links": "igb1, igb2, igb3", "npb": "igb1, igb2", "netpipe": "emu1, emu2"}
    for seed in SEEDS:
        site = history(
            of_node, {}, size=0.1, seed=seed, every=every, nodes=lambda case: nodes[case.check]
        )
        (finding,) = at_change(site)
        assert finding.scope == Scope("node", "igb2")
        assert {change.series for change in finding.changes} == set(filter(of_node, every))


def of_driver(new, levels, seed):
    """Figures of two cases, slower by 10 % on the nights of ``levels``, and their conditions.
    ``new``: the nights with the new driver."""
    cases = ("links.tcp.jumbo.4n", "osu.mpich-ofi.default.2n")
    every = [one for one in ALL if one.case.id in cases]
    draw = np.random.default_rng(seed)
    step = 0.1 * np.isin(np.arange(NIGHTS), levels)
    figures = {one: 30 * np.exp(0.01 * draw.normal(size=NIGHTS) + step) for one in every}
    return figures, lambda night, case: {"driver of eth1": DRIVER["driver of eth1"][night in new]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nights", [4, 5, 7, 9, 10, 12])
def test_a_version_that_is_taken_back_is_named_both_times(nights, seed):
    new = range(CHANGE, CHANGE + nights)
    figures, conditions = of_driver(new, new, seed)
    seen = set()
    for end in (CHANGE + 4, CHANGE + nights + 1, CHANGE + nights + 3, NIGHTS):
        for finding in made_up({one: x[:end] for one, x in figures.items()}, conditions).findings:
            if finding.first.name in (f"lab-{CHANGE:03}", f"lab-{CHANGE + nights:03}"):
                seen.add((finding.first.name, *((c.before, c.after) for c in finding.conditions)))
    old_driver, new_driver = DRIVER["driver of eth1"]
    assert seen == {
        (f"lab-{CHANGE:03}", (old_driver, new_driver)),
        (f"lab-{CHANGE + nights:03}", (new_driver, old_driver)),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "new",
    [
        EVERY_OTHER,
        {night for night in range(NIGHTS) if (night - CHANGE) % 4 < 2},
        # as by chance: the same on the three nights before the change, and on the three since
        EVERY_OTHER - {CHANGE - 2} | {CHANGE + 1},
        {CHANGE, CHANGE + 1},  # and the figures stay as they are
    ],
)  # fmt: skip
def test_a_value_that_alternates_or_goes_at_once_is_never_named(new, seed):
    figures, conditions = of_driver(new, range(CHANGE, NIGHTS), seed)
    for end in (CHANGE + 3, CHANGE + 4, CHANGE + 6, NIGHTS):
        site = made_up({one: x[:end] for one, x in figures.items()}, conditions)
        assert {name for finding in site.findings for name in finding.conditions} == set()
