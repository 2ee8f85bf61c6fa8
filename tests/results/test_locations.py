import pytest

from seatrial.results.locations import Locations, natural
from trial_maker import PAIRS, metric, run


@pytest.mark.parametrize(
    ("location", "nodes", "ends"),
    [
        ("n1-n2", ["n1", "n2"], ("n1", "n2")),
        ("rack-1-rack-2", ["rack-1", "rack-2"], ("rack-1", "rack-2")),
        ("node-1-node-12", ["node-1", "node-12"], ("node-1", "node-12")),
        ("node-1-node-12", [], ("node-1", "node-12")),
        ("n1-n2", [], ("n1", "n2")),
        ("n3", ["n3"], ()),
        ("node-1", ["node-1", "node-12"], ()),
        ("node-3", ["node-3", "node-4"], ()),
        ("a-b-c", [], ()),
        ("-", [], ()),
        ("n1-", [], ()),
    ],
)
def test_ends_of_a_link(location, nodes, ends):
    runs = [run(PAIRS, metric(1.0), nodes=nodes)] if nodes else []
    assert Locations(runs).ends(location) == ends


def test_numbers_in_names_sort_by_value():
    names = ["n10", "n2", "n1-n10", "n1-n2", "rack-a", "n", "9" * 30, "\u00b2"]
    assert sorted(names, key=natural) == [
        "9" * 30, "n", "n1-n2", "n1-n10", "n2", "n10", "rack-a", "\u00b2",
    ]  # fmt: skip
