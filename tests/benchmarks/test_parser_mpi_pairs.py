"""The table of mpi_pairs, its steps over rails, and what the pairs moved."""

from __future__ import annotations

import json
import zlib
from statistics import median

import parser_cases as cases
import pytest

from seatrial.benchmarks.benchmark import Job, Rail, Step
from seatrial.benchmarks.mpi_pairs import (
    PATTERNS,
    MPIPairs,
    MPIPairsSettings,
    over_rails,
    parse,
)
from seatrial.benchmarks.parsing import ParseError

MS = 1_000_000
#: rounds; begin, start, end and end of the load in ms, of each pair
EVEN = [(10, 0, 2, 22, 23), (8, 1, 3, 23, 24)]


def table(places=(("n1", "n2", 0, 0), ("n1", "n2", 1, 1)), size=1000, window=4, repetitions=3,
          rows=None) -> str:  # fmt: skip
    """A run; ``rows``: (pattern, repetition) -> as EVEN, where a pair of it differs."""
    lines = [
        f"# mpi_pairs 1.0: {len(places)} pairs of ranks at once",
        "# MPI: made up",
        f"# messages: 1 and {size} bytes, {window} at once",
        f"# repetitions: {repetitions} of at least 5 ms and 1 rounds",
        *(
            f"# pair {i}: nodes {a} and {b}, cores {c} and {d}"
            for i, (a, b, c, d) in enumerate(places)
        ),
        "# Times in ns since the first pair's begin in the repetition.",
        "# pattern repetition pair rounds begin start end until",
    ]
    for pattern in PATTERNS:
        for i in range(repetitions):
            for pair, own in enumerate((rows or {}).get((pattern, i), EVEN)[: len(places)]):
                rounds, *times = own
                ends = " ".join(str(int(ms * MS)) for ms in times)
                lines.append(f"{pattern} {i} {pair} {rounds} {ends}")
    return sealed("".join(f"{line}\n" for line in lines))


def sealed(text: str) -> str:
    return f"{text}# crc32 {zlib.crc32(text.encode()):08x}\n"


def read(text: str, pairs=2, size=1000, window=4, repetitions=3, within=False):
    return parse(
        text, pairs=pairs, size=size, window=window, repetitions=repetitions, within=within
    )


def test_rates_are_sums_over_the_pairs_and_the_pairs_have_their_own():
    parsed = read(table())
    # a pair moves 2 x 1000 B a round trip; 10 and 8 of them in 20 ms
    assert parsed.value("pingpong_MB_s") == pytest.approx((20_000 + 16_000) / 20_000)
    assert parsed.value("uni_MB_s") == pytest.approx((40_000 + 32_000) / 20_000)
    assert parsed.value("bi_MB_s") == pytest.approx(2 * parsed.value("uni_MB_s"))
    assert parsed.value("slowest_pair_MB_s") == pytest.approx(32_000 / 20_000)
    assert parsed.value("latency_us") == pytest.approx((1000 + 1250) / 2)
    assert parsed.facts["pairs_MB_s"]["uni"] == pytest.approx([2.0, 1.6])
    assert parsed.facts["scatter_percent"]["uni"] == 0
    assert parsed.facts["cores"] == [[0, 0], [1, 1]]
    # per repetition: 18 rounds of 2 B, 2000 B, 4000 B and 8000 B
    assert parsed.moved_bytes == 3 * 18 * (2 + 2000 + 4000 + 8000)
    uni = next(m for m in parsed.metrics if m.metric == "uni_MB_s")
    assert uni.seconds == pytest.approx(0.02)


def test_inside_one_node_the_metrics_have_other_names():
    places = (("n1", "n1", 0, 2), ("n1", "n1", 1, 3))
    parsed = read(table(places), within=True)
    assert {m.metric for m in parsed.metrics} == {
        "within_latency_us", "within_pingpong_MB_s", "within_uni_MB_s", "within_bi_MB_s",
        "within_slowest_pair_MB_s",
    }  # fmt: skip
    with pytest.raises(ParseError, match="pair 0 on two nodes, found n1 and n1"):
        read(table(places))
    with pytest.raises(ParseError, match="pair 1 on one node, found n1 and n2"):
        read(table((places[0], ("n1", "n2", 1, 1))), within=True)


@pytest.mark.parametrize(
    "alone",
    [
        # it was measured before the other began, or after the other was done
        [(10, 0, 0, 20, 31), (99, 10, 11, 31, 31)],
        [(10, 0, 2, 22, 22), (99, 1, 3, 23, 24)],
    ],
)
def test_a_pair_that_had_the_wires_for_itself_is_refused(alone):
    with pytest.raises(ParseError, match="in repetition 1 of uni a pair was measured while"):
        read(table(rows={("uni", 1): alone}))


def test_a_pair_that_is_done_early_sends_until_the_others_are():
    early = {("uni", i): [(4, 0, 1, 9, 23), (10, 0, 1, 21, 22)] for i in range(3)}
    assert read(table(rows=early)).value("uni_MB_s") == pytest.approx(2 + 2)


def test_medians_are_over_the_repetitions_and_scatter_is_theirs():
    rows = {("bi", i): [(rounds, 0, 0, 20, 21), (8, 0, 0, 20, 21)] for i, rounds in
            enumerate((8, 16, 10))}  # fmt: skip
    parsed = read(table(rows=rows))
    assert parsed.value("bi_MB_s") == pytest.approx(8 * median((16, 24, 18)) / 20)
    assert parsed.facts["scatter_percent"]["bi"] == pytest.approx(21.53, abs=0.01)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("uni 1 0", "uni 2 0", r"expected the row of \('uni', 1, 0\)"),
        ("bi 0 1 8 1000000 3000000 ", "bi 0 1 8 1000000 23000000 ", "start < end <= until"),
        ("bi 0 1 8 ", "bi 0 1 0 ", "expected rounds"),
        ("bi 0 1 8 1000000 3000000 23", "bi 0 1 8 1000000 19000000 23", "at least 5000000 ns"),
        ("bi 0 1 8 ", "bi 0 1 8 8 ", "seven numbers"),
        ("# pair 1:", "# pair 2:", "expected pair 1, found pair 2"),
        ("messages: 1 and 1000 ", "messages: 1 and 2000 ", "pairs, size, window"),
        ("# pattern repetition", "# repetition pattern", "expected the heading"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(old, new, match):
    text = table().rpartition("# crc32")[0]
    assert old in text
    with pytest.raises(ParseError, match=match):
        read(sealed(text.replace(old, new, 1)))


def test_a_row_too_few_is_refused():
    lines = table().rpartition("# crc32")[0].splitlines(keepends=True)
    with pytest.raises(ParseError, match="expected 24 rows, found 23"):
        read(sealed("".join(lines[:-1])))


TCP = "OMPI_MCA_btl_tcp_if_include"


def job(**rails: Rail) -> Job:
    return Job(
        nodes=2, transport="openmpi-tcp", programs={"mpi_pairs": ["/b/mpi_pairs"]},
        interface="eth1", env={TCP: "eth1", "OMPI_MCA_pml": "ob1"}, rails=rails,
        within_env={"OMPI_MCA_btl": "^ofi"}, within_node="shared memory",
    )  # fmt: skip


def rail(network, interface) -> Rail:
    return Rail(network, interface, {TCP: interface, "OMPI_MCA_pml": "ob1"})


TWO = {"a": rail("a", "eth1"), "b": rail("b", "eth2")}


def steps(**changed) -> dict[str, Step]:
    settings = MPIPairsSettings(networks=["a", "b"], pairs=[1, 2], pairs_within=[1], **changed)
    return {step.variant: step for step in MPIPairs(settings).steps(job(**TWO))}


def test_each_pair_gets_the_variables_of_its_rail():
    made = steps()
    assert list(made) == ["1-pairs", "2-pairs", "1-pairs-within"]
    words = made["2-pairs"].command
    assert words[words.index("pin.py") + 1] == "2"
    # those of the network under test are the step's already
    assert json.loads(words[words.index("pin.py") + 2]) == [{}, {TCP: "eth2"}]
    assert (made["2-pairs"].nodes, made["2-pairs"].tasks_per_node) == (2, 2)
    assert made["2-pairs"].proves_path
    assert not made["2-pairs"].overcommit
    assert steps(share_cores=True)["2-pairs"].overcommit


def test_the_control_is_inside_one_node_over_its_memory():
    step = steps()["1-pairs-within"]
    assert (step.nodes, step.tasks_per_node) == (1, 2)
    assert step.env == {"OMPI_MCA_btl": "^ofi"}
    assert not step.proves_path
    assert json.loads(step.command[step.command.index("pin.py") + 2]) == [{}]


def test_the_volume_is_that_of_each_network():
    parsed = over_rails(read(table()), [TWO["a"], TWO["b"]], "eth1")
    of_pair = {"a": 3 * 10 * 14_002, "b": 3 * 8 * 14_002}
    assert parsed.moved_bytes == of_pair["a"]
    assert parsed.moved_beside == {"b": of_pair["b"]}
    assert parsed.facts["through"] == ["eth1", "eth2"]
    assert parsed.facts["members"] == {"eth1": 1, "eth2": 1}


def test_the_pairs_of_a_bond_have_one_interface():
    bond = Rail("a", "bond0", {TCP: "bond0"})
    parsed = over_rails(read(table()), [bond, bond], "bond0")
    assert parsed.moved_bytes == 3 * 18 * 14_002
    assert parsed.moved_beside == {}
    assert parsed.facts["through"] == ["bond0", "bond0"]
    assert parsed.facts["members"] == {"bond0": 2}


class Site:
    test_networks = ("a", "b")
    node_cores = 4
    node_memory_MiB = 1000


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"networks": ["a", "c"]}, "networks.1"),
        ({"pairs": [1, 8]}, "pairs"),
        ({"pairs_within": [1, 3]}, "pairs_within"),
        ({"nodes": [2, 1]}, "nodes"),
        ({"nodes": [1], "pairs": []}, ""),
        ({"pairs": [1, 8], "share_cores": True}, ""),
        ({}, ""),
    ],
)
def test_settings_that_the_site_cannot_run_are_named(changed, field):
    settings = MPIPairsSettings.model_validate({"networks": ["a", "b"], **changed})
    problems = list(MPIPairs(settings).problems(Site()))
    assert [problem.field for problem in problems] == ([field] if field else [])


def test_a_recorded_run_inside_one_node():
    parsed = cases.read("mpi_pairs_openmpi.txt")
    assert parsed.facts["nodes"] == ["n1"]
    # a ping-pong waits for each direction
    assert parsed.value("within_pingpong_MB_s") < parsed.value("within_bi_MB_s")
    rates = parsed.facts["pairs_MB_s"]["uni"]
    assert sum(rates) == pytest.approx(parsed.value("within_uni_MB_s"), rel=0.5)


def test_a_recorded_run_over_two_rails():
    parsed = cases.read("mpi_pairs_mpich.txt")
    assert parsed.facts["nodes"] == ["n1", "n2"]
    assert parsed.facts["cores"] == [[0, 0], [1, 1]]
    assert len(parsed.facts["pairs_MB_s"]["bi"]) == 2
    over = over_rails(parsed, [TWO["a"], TWO["b"]], "eth1")
    assert sum(over.moved_beside.values()) + over.moved_bytes == parsed.moved_bytes
