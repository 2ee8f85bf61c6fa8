import pytest

from seatrial.base.errors import InputError
from seatrial.results.record import Case
from seatrial.results.requirements import load_requirements
from trial_maker import IMB, NETPIPE, requirements

PLAIN = "    basis: relative\n    at_most: 5\n    unit: us\n"


def entry(select="{}", metric="latency_us", rest=PLAIN):
    return f"\n  - select: {select}\n    metric: {metric}\n{rest}"


def problems(entries):
    with pytest.raises(InputError) as caught:
        requirements(entries)
    return caught.value.problems


@pytest.mark.parametrize(
    ("select", "hits"),
    [
        ("{}", True),
        ("{check: net*, transport: tcp, nodes: 2}", True),
        ("{check: [imb, netpipe], nodes: [2, 4]}", True),
        ('{variant: "", location: ""}', True),
        ("{location: '*'}", True),
        ("{location: '?*'}", False),
        ("{nodes: 4}", False),
        ("{profile: low}", False),
    ],
)
def test_selection(select, hits):
    rules = requirements(entry(select)).of(NETPIPE, "latency_us").matching(None)
    assert bool(rules) == hits


def test_all_contracts_and_the_most_specific_other_apply():
    contract = "    basis: contract\n    source: s\n    at_most: 9\n    unit: us\n"
    reqs = requirements(
        entry("{check: netpipe, nodes: 2}")
        + entry("{check: netpipe}")
        + entry("{}", rest=contract)
        + entry("{check: net*}", rest=contract)
    )
    lines = [rule.line for rule in reqs.applying(NETPIPE, "latency_us")]
    assert lines == [15, 22, 3]


def test_of_equally_specific_ones_the_later_applies():
    reqs = requirements(entry("{check: netpipe}") + entry("{transport: tcp}"))
    assert [rule.line for rule in reqs.applying(NETPIPE, "latency_us")] == [9]


@pytest.mark.parametrize("location", ["n1-n2", "n1-*", '["n1-n2", n9]'])
def test_rules_of_one_location_keep_their_order_among_the_others(location):
    here, general = entry(f"{{location: {location}}}"), entry("{check: netp*, transport: t*}")
    for first, second, one in ((here, general, 3), (general, here, 9)):
        reqs = requirements(first + second)
        of = reqs.of(NETPIPE, "latency_us")
        assert [rule.line for rule in of.matching("n1-n2")] == [3, 9]
        assert [rule.line for rule in of.matching("n2-n3")] == [12 - one]
        assert of.matching(None) == of.matching("n2-n3")
        rules = {rule.line: rule for rule in reqs.rules}
        assert rules[one].is_at_any({"n1-n2": 1, None: 2})
        assert not rules[one].is_at_any({"n2-n3": 1, None: 2})
        later = (
            9 if rules[3].weight == rules[9].weight else max(rules, key=lambda n: rules[n].weight)
        )
        assert [rule.line for rule in reqs.applying(NETPIPE, "latency_us", "n1-n2")] == [later]


@pytest.mark.parametrize(
    ("rest", "field", "words"),
    [
        ("    basis: contract\n    at_most: 5\n    unit: us\n", "source", "must name its source"),
        ("    basis: relative\n    at_most: 5\n", "unit", "needs its unit"),
        ("    basis: relative\n    unit: us\n", "", "there is no bound"),
        (
            "    basis: relative\n    reference: 3\n    unit: us\n",
            "reference",
            "needs a bound",
        ),
        (
            "    basis: relative\n    reference: 3\n    lower: 0.05\n    unit: us\n",
            "lower",
            "not be above zero",
        ),
        ("    basis: relative\n    upper: 0.1\n    unit: us\n", "upper", "which is not given"),
        (
            "    basis: relative\n    reference: 3\n    at_most: 4\n    unit: us\n",
            "at_most",
            "does not go with",
        ),
        (
            (
                "    basis: relative\n    peers: median\n    relative_to: {metric: x}\n"
                "    at_most: 1\n"
            ),
            "peers",
            "exclude each other",
        ),
        (
            (
                "    at_most: 1\n    basis: relative\n"
                "    relative_to: {metric: x, nodes: 2, same_run: true}\n"
            ),
            "relative_to.nodes",
            "same run",
        ),
        ("    basis: relative\n    peers: median\n    at_least: -1\n", "at_least", "above zero"),
        (
            "    basis: relative\n    peers: median\n    at_least: 80\n",
            "at_least",
            "times itself",
        ),
        (
            "    basis: relative\n    peers: median\n    at_most: 0.2\n",
            "at_most",
            "times itself",
        ),
    ],
)
def test_incoherent_entries_are_told_with_their_line(rest, field, words):
    (problem, *_) = problems(entry(rest=rest))
    assert words in problem.message
    assert problem.field == "requirements.0" + (f".{field}" if field else "")
    leaf = field.rpartition(".")[2]
    row = next((i for i, r in enumerate(rest.split("\n"), 5) if f"{leaf}:" in r), 3)
    assert problem.line == (row if field else 3)


def test_every_fault_is_told():
    found = problems(entry("{chek: x}") + entry(metric="[]") + entry(rest="    basis: treaty\n"))
    assert [(p.line, p.field) for p in found] == [
        (3, "requirements.0.select.chek"),
        (10, "requirements.1.metric"),
        (17, "requirements.2.basis"),
    ]
    assert found[0].correction == "did you mean 'check'?"
    assert "contract, baseline, relative" in found[2].message


def test_references_for_reframe():
    def reference(rest, case=NETPIPE):
        return requirements(entry(rest=rest)).reframe_reference(case, "latency_us")

    head = "    basis: relative\n    unit: us\n"
    assert reference(f"{head}    reference: 30\n    upper: 0.1\n") == (30, None, 0.1, "us")
    assert reference(f"{head}    at_most: 50\n") == (50, None, 0, "us")
    assert reference(f"{head}    at_least: 50\n") == (50, 0, None, "us")
    assert reference(f"{head}    at_least: 40\n    at_most: 50\n") == (50, 40 / 50 - 1, 0, "us")
    assert reference("    basis: relative\n    peers: median\n    at_most: 2\n", IMB) is None


@pytest.mark.parametrize(("least", "most"), [(-5, 50), (-9, 0), (-9, -3), (2, 7)])
def test_reframe_agrees_on_the_bounds(least, most):
    import reframe.utility.sanity as sanity

    rest = f"    basis: relative\n    unit: us\n    at_least: {least}\n    at_most: {most}\n"
    value, lower, upper, _ = requirements(entry(rest=rest)).reframe_reference(NETPIPE, "latency_us")
    low, high = sanity.reference_bounds(value, lower, upper)
    assert high == pytest.approx(most)
    assert low == pytest.approx(max(least, 0) if most > 0 else least)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_requirements(tmp_path / "none.yaml")


def test_defaults_and_an_empty_list(tmp_path):
    file = tmp_path / "requirements.yaml"
    file.write_text("schema: 1\ndefaults: {statistic: best}\nrequirements:\n")
    assert load_requirements(file).default_statistic == "best"
    assert load_requirements(file).applying(Case(check="x", transport="t", nodes=1), "m") == []
