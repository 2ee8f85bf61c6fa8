"""The chapter "What it means": several pairs over several interfaces, and the MTU by throttling."""

from __future__ import annotations

import random
from dataclasses import fields

import plotly.graph_objects as go
import pytest

from analysis_maker import (
    MYRINET_RECV,
    MYRINET_SEND,
    measured,
    npb_time,
    over_network,
    repeated,
    stream,
    trial,
    with_shares,
)
from seatrial.analysis.trials import analyse
from seatrial.report.html import render
from seatrial.report.meaning.figures import meaning_figures
from seatrial.report.meaning.sections import sections
from seatrial.results.folder import Results
from seatrial.results.record import (
    Case,
    Cost,
    Counters,
    Curve,
    Job,
    Machine,
    Metric,
    PathProof,
    ProfileUse,
    Run,
)

PATTERNS = ("pingpong", "uni", "bi")


def proof(frame=1514) -> PathProof:
    counted = [
        Counters(node=node, interface="eth1", network="test", rx_bytes=frame * 100, rx_packets=100,
                 tx_bytes=66, tx_packets=1)
        for node in ("n1", "n2")
    ]  # fmt: skip
    return PathProof(network="test", required_bytes=1, counters=counted, crossed=True)


def pairs(profile, count, rate, through, repeat=0, within=False) -> Run:
    prefix, variant = ("within_", f"{count}-pairs-within") if within else ("", f"{count}-pairs")
    metrics = [
        Metric(metric=f"{prefix}{name}_MB_s", value=rate, unit="MB/s", better="higher")
        for name in PATTERNS
    ]
    metrics.append(Metric(metric=f"{prefix}latency_us", value=20, unit="us", better="lower"))
    facts = {
        "pairs": count, "repetitions": 10, "cores": [[0, 0]] * count, "message_B": 1 << 20,
        "pairs_MB_s": dict.fromkeys(PATTERNS, [rate / count] * count), "through": through,
        "scatter_percent": dict.fromkeys(PATTERNS, 1.5), "within_node": "shared memory",
        "members": {name: through.count(name) for name in through},
    }  # fmt: skip
    nic = {
        node: {name: {"before": {"driver": "bonding" if "bond" in name else "igb"}}
               for name in through}
        for node in ("n1", "n2")
    }  # fmt: skip
    case = Case(check="mpi_pairs", variant=variant, transport="mpich-ofi", profile=profile,
                nodes=2)  # fmt: skip
    return Run(case=case, repeat=repeat, round=repeat, outcome="ran", metrics=metrics,
               facts=facts, nic=nic, job=Job(nodes=["n1", "n2"]), path=proof())  # fmt: skip


def bonds(bonded: float, repeats=6) -> Results:
    noise = random.Random(1)
    runs = [
        run
        for repeat in range(repeats)
        for jitter in [noise.gauss(1, 0.002)]
        for run in (
            pairs("independent", 1, 100 * jitter, ["eth1"], repeat),
            pairs("independent", 2, 190 * jitter, ["eth1", "eth2"], repeat),
            pairs("bond-2", 2, bonded * jitter, ["bond0", "bond0"], repeat),
            pairs("independent", 1, 900 * jitter, [], repeat, within=True),
        )
    ]
    return trial(runs)


def mtus(truth: dict[tuple[int, int], float], repeats=6, sigma=0.002) -> Results:
    """``truth``: (usecs, MTU) -> MB/s of a stream."""
    noise = random.Random(2)
    runs, uses = [], []
    for (usecs, mtu), rate in truth.items():
        name = f"mtu-{mtu}-{usecs}"
        own = {"coalesce.rx-usecs": usecs, "mtu": mtu}
        uses.append(ProfileUse(name=name, settings={n: {"eth1": own} for n in ("n1", "n2")}))
        nic = {n: {"eth1": {"before": {"network": "test", "mtu": mtu, "driver": "igb"}}}
               for n in ("n1", "n2")}  # fmt: skip
        case = Case(check="tcp_stream", transport="tcp", profile=name, nodes=2)
        for repeat in range(repeats):
            value = rate * noise.gauss(1, sigma)
            metric = Metric(metric="bandwidth_MB_s", value=value, unit="MB/s", better="higher")
            runs.append(Run(case=case, repeat=repeat, round=repeat, outcome="ran",
                            metrics=[metric], nic=nic, path=proof(mtu + 14),
                            job=Job(nodes=["n1", "n2"])))  # fmt: skip
    return trial(runs, profiles=uses)


def texts(results, title) -> list[str]:
    made = [section for section in sections(analyse([results])) if section.title.startswith(title)]
    return [
        f"{s.word}: {s.text} | {s.basis}; {one.basis} | {s.change}"
        for one in made
        for s in one.sentences
    ]


SEVERAL, MTU = "Several interfaces", "Which MTU"


def test_independent_interfaces_have_their_efficiency():
    growth, bond, within = texts(bonds(160.0), SEVERAL)
    assert growth.startswith(": independent, mpich-ofi on driver igb, messages of 1 MiB: 2 pairs")
    assert "one direction 190 MB/s, efficiency 95 % (94." in growth
    assert "the slowest pair has 100 % of the fastest" in growth
    assert "Ranks of a node share a core" in growth
    assert "24 samples of 4 cases, trial t1" in growth
    assert bond.startswith("best: bond-2 against independent")
    assert "one direction 0.84" in bond
    assert "Use independent for programs that send on all interfaces at once." in bond
    assert "Inside one node, mpich-ofi, one pair, by shared memory: " in within
    assert "9 times (8.9" in within
    assert "the best between nodes: the memory is not what limits them" in within


def test_a_bond_that_is_as_good_is_no_difference():
    assert texts(bonds(190.0), SEVERAL)[1].startswith("no difference: bond-2")


def test_one_repeat_is_too_few():
    growth, bond, within = texts(bonds(160.0, repeats=1), SEVERAL)
    for text in (growth, bond, within):
        assert text.count("too few rounds for an interval") == 1
    assert "efficiency 95 %, the slowest" in growth
    assert bond.startswith("measure more: ")
    assert "--rounds 5" in bond  # three patterns share the error


PEAK = {1500: 100.0, 3000: 105.0, 4500: 108.0, 6000: 112.0, 7500: 109.0, 9000: 108.0}


def test_the_best_mtu_and_an_interaction():
    truth = {(0, mtu): rate for mtu, rate in PEAK.items()}
    truth |= {(125, mtu): 90.0 for mtu in PEAK}
    off, on, both = texts(mtus(truth), MTU)
    assert off.startswith("best: tcp_stream (bandwidth), tcp on test (driver igb), 2 nodes, ")
    assert "rx-usecs 0: an MTU of 6000 B is the best: 112 MB/s, 1.12 times" in off
    assert "as good as 1500 B. It leads all others by more than the spread" in off
    assert "MTUs of 1500, 3000, 4500, 6000, 7500 and 9000 B" in off
    assert on.startswith("no difference: ")
    assert "plateau of 1500 to 9000 B" in on
    assert both.startswith("together: ")
    assert "choose MTU and throttling together: 6000 B gains less under rx-usecs 125 than" in both


def test_without_an_interaction_each_is_chosen_by_itself():
    truth = {(u, mtu): rate * (0.9 if u else 1) for u in (0, 125) for mtu, rate in PEAK.items()}
    assert texts(mtus(truth), MTU)[2].startswith("no interaction: ")
    wide = texts(mtus(truth, sigma=0.05), MTU)[2]
    assert wide.startswith("measure more: ")
    once = texts(mtus(truth, repeats=1), MTU)
    assert all(text.startswith("measure more: ") for text in once)
    assert "6000 B has the best median, " in once[0]


def test_wide_steps_and_unproven_frames_are_said():
    truth = {(0, 1500): 100.0, (0, 6000): 110.0}
    results = mtus(truth)
    for run in results.runs:
        run.path = proof(1514)
    [text] = texts(results, MTU)
    assert "; MTU 6000: no frames of that size in the counters" in text
    assert text.endswith("| MTUs between those that were measured")
    assert "It is at the end of what was measured" in text
    for run in results.runs:
        run.path = proof(55255)
    [text] = texts(results, MTU)
    assert "; MTU 1500 and 6000: the counters do not count frames of the wire" in text
    note = "up to 55255 B per frame: the counters do not count frames of the wire"
    assert render(results).count(note) == 2


@pytest.mark.parametrize(
    ("results", "kind", "count"),
    [
        (bonds(160.0), "pairs", 3),
        (mtus({(u, mtu): rate for u in (0, 125) for mtu, rate in PEAK.items()}), "frames", 1),
    ],
)
def test_pictures_and_tables_are_in_the_report(results, kind, count):
    figures = meaning_figures(analyse([results]))[kind]
    assert len(figures) == count
    for figure in figures:
        go.Figure(data=figure.data, layout=figure.layout)  # raises where a field is wrong
    page = render(results)
    assert ("Several interfaces, several pairs" in page) == (kind == "pairs")
    assert ("Which MTU, and whether throttling changes that" in page) == (kind == "frames")


def of_all_kinds() -> Results:
    """A trial from which each kind of conclusion is made, answers and "measure more"."""
    machine = Machine(
        nodes=2, peaks=dict.fromkeys(("n1", "n2"), 14.0),
        costs=[Cost(name="purchase", usd=2000, date="2004-03-01", includes="all")],
    )  # fmt: skip
    runs = repeated("hpl", "atlas", default=10.0, tuned=14.0)
    for run in runs:
        run.job = Job(nodes=["n1", "n2"])
    for i in range(8):
        share, ratio = 0.05 + 0.3 * (i % 2) + i / 1000, 0.6 + i / 10
        own = with_shares(f"k{i}.S", share, default=100.0, tuned=100 * ratio)
        for run in own:  # two groups
            run.facts["mpi"] |= {"bytes": 10**6 * (1 + 99 * (i % 2)), "calls": 10 + 90 * (i % 2)}
        runs += own
    runs += [stream(p, 100.0 + i, 50.0, 50.0, i) for p in ("default", "tuned") for i in range(6)]
    runs += [npb_time("ft.A", p, 10 / p).run for p in (2, 4, 8)]
    runs.append(measured(MYRINET_SEND, MYRINET_RECV).run)
    for profile, factor in (("default", 1), ("tuned", 1.1)):  # once: not known which is faster
        points = [(float(n), 10.0 * factor) for n in (1, 64, 4096, 2**20)]
        curve = Curve(name="netpipe", y_name="latency", y_unit="us", points=points)
        case = Case(check="netpipe", transport="tcp", nodes=2, profile=profile)
        runs.append(Run(case=case, outcome="ran", curves=[curve]))
    own = repeated("npb", "is.S", tuned=100.0)
    runs += [over_network(network, run) for network in ("rail1", "rail2") for run in own]
    sweep = mtus({(u, mtu): rate for u in (0, 125) for mtu, rate in PEAK.items()})
    return trial(
        [*runs, *bonds(160.0).runs, *sweep.runs], machine=machine, profiles=sweep.trial.profiles
    )


def test_every_conclusion_has_its_inputs():
    analysis = analyse([of_all_kinds()])
    kinds = {field.name: getattr(analysis, field.name) for field in fields(analysis)}
    for without in ("trials", "missing", "features"):  # no conclusions from records
        del kinds[without]
    kinds["groups"] = [kinds["groups"]]
    for kind, conclusions in kinds.items():
        assert conclusions, kind
        for conclusion in conclusions:
            inputs = conclusion.response.inputs if kind == "gains" else conclusion.inputs
            assert inputs.trials == ("t1",), kind
            assert inputs.cases, kind
            assert inputs.samples > 0, kind


def test_every_sentence_says_what_it_was_made_from():
    """But what is not known for want of a record, and answers that sum up those above."""
    said = {
        sentence: f"{part.basis}; {sentence.basis}"
        for part in sections(analyse([of_all_kinds()]))
        for sentence in part.sentences
    }
    groups = [one for one in said if one.text.startswith("Group ")]
    assert len(groups) > 1
    for one, basis in said.items():
        if one.word == "not known" or one in groups[1:]:  # the basis is under the first group
            continue
        assert "samples of" in basis or "the answers above" in basis, one.text
    [unsure] = [one for one in said if "Of netpipe" in one.text and one.word == "measure more"]
    assert "8 samples of 2 cases, trial t1" in said[unsure]
