"""Series that have no figure any more, and series in another unit."""

from __future__ import annotations

import numpy as np
import pytest

from history_support import LINKS, NETPIPE, make_night, runs_of
from seatrial.base.errors import InputError
from seatrial.history.accept import new_level
from seatrial.history.changes import Scope, findings
from seatrial.history.compare import compare
from seatrial.history.index import opened
from seatrial.report import history_page
from seatrial.report.changes import effect, sentences
from seatrial.report.message import sentence

NIGHTS, GONE = 30, 20
PLACES = ("n1>n2", "n2>n1", "n1>n3", "n3>n1", "n2>n3", "n3>n2")


def nights(trials, value, number=NIGHTS, nodes=("n1", "n2", "n3")):
    """Nights of streams on all links and of NetPIPE. ``value``: night, place -> figure; None: it is
    missing."""
    draw = np.random.default_rng(3)
    for night in range(number):
        runs = runs_of(NETPIPE, "latency_us", 30 * (1 + 0.01 * draw.normal(size=3)))
        for place in PLACES:
            scatter = 1 + 0.01 * draw.normal(size=3)
            figure = value(night, place)
            if figure is not None:
                own = figure * scatter
                runs += runs_of(LINKS, "stream_MB_s", own, "MB/s", "higher", place)
        for run in runs:
            if run.case == LINKS:
                run.job.nodes = list(nodes(night) if callable(nodes) else nodes)
        make_night(trials, night, runs=runs)


def found(trials):
    with opened(trials, print) as index:
        return findings(index)


@pytest.mark.parametrize(
    ("value", "words", "after"),
    [(0.0, "fell to 0", "0 MB/s"), (None, "no figure any more", "no figure")],
)
def test_a_link_without_figures_is_a_finding_that_says_so(tmp_path, value, words, after):
    nights(tmp_path, lambda night, place: value if night >= GONE and place == "n1>n2" else 100)
    (one,) = found(tmp_path)
    assert (one.last.name, one.first.name) == (f"lab-{GONE - 1:03}", f"lab-{GONE:03}")
    assert one.found.name == f"lab-{GONE + 1:03}"
    assert effect(one) == words
    (change,) = one.worse
    assert (change.series.location, change.lasts, change.before.nights) == ("n1>n2", True, GONE)
    assert any(f"to {after}, worse" in line for line in sentences(one))
    assert f"({round(change.before.value)} MB/s -> {after})" in sentence(one).replace(
        f"{change.before.value:.4g}", str(round(change.before.value))
    )  # fmt: skip
    with opened(tmp_path, print) as index:
        with pytest.raises(InputError, match="a series without figures has no level"):
            new_level(index, one.id, "lab")
        history_page.write_history(index, tmp_path / "history.html", {})
    assert words in (tmp_path / "history.html").read_text()


def test_a_node_whose_links_have_no_figures_is_one_finding(tmp_path):
    nights(tmp_path, lambda night, place: None if night >= GONE and "n3" in place else 100)
    (one,) = found(tmp_path)
    assert one.scope == Scope("node", "n3")
    assert {c.series.location for c in one.changes} == {place for place in PLACES if "n3" in place}
    assert effect(one) == "4 series: no figure any more"


def test_a_figure_that_is_back_is_said(tmp_path):
    nights(tmp_path, lambda night, place: 0.0 if night in range(GONE, GONE + 4) else 100)
    (one,) = found(tmp_path)
    assert len(one.changes) == len(PLACES)
    back = one.changes[0].back
    assert (back.name, one.changes[0].lasts) == (f"lab-{GONE + 4:03}", False)
    assert f"worse; measured again since {back.started:%Y-%m-%d}" in sentences(one)[2]


@pytest.mark.parametrize(
    "lacks",
    [
        lambda night: night == GONE,  # one night is none
        lambda night: night % 3 == 0,  # often
        lambda night: night in (1, 2),  # few nights had it
    ],
)
def test_a_figure_that_is_missing_now_and_then_is_no_finding(tmp_path, lacks):
    nights(tmp_path, lambda night, place: None if lacks(night) and place == "n1>n2" else 100)
    assert found(tmp_path) == []


def test_a_node_that_the_case_did_not_run_on_has_lost_nothing(tmp_path):
    """A case that ran on fewer nodes than planned has: the node is absent."""
    for absent, lost in ((("n1", "n2", "n4"), 0), (("n1", "n2"), 4)):
        folder = tmp_path / str(lost)
        nights(
            folder, lambda night, place: None if night >= GONE and "n3" in place else 100,
            nodes=lambda night, absent=absent: absent if night >= GONE else ("n1", "n2", "n3"),
        )  # fmt: skip
        assert sum(len(one.changes) for one in found(folder) if not one.swapped) == lost


def test_figures_in_another_unit_are_not_compared_and_that_is_said(tmp_path):
    for night in range(24):
        value, unit = ((30, 31, 29), "us") if night < 12 else ((0.03, 0.031, 0.029), "ms")
        make_night(tmp_path, night, runs=runs_of(NETPIPE, "latency_us", value, unit))
    (one,) = found(tmp_path)
    assert (one.worse, one.better, one.first.name) == ([], [], "lab-012")
    assert effect(one) == "another unit since then, not compared with the older figures"
    assert "to figures in ms, not compared" in sentences(one)[2]
    with opened(tmp_path, print) as index, pytest.raises(InputError, match="latency_us in us and"):
        compare(index, "lab-00*", "lab-02*")


def test_a_comparison_names_what_has_another_unit(tmp_path):
    for night in range(8):
        unit = "us" if night < 4 else "ms"
        runs = runs_of(NETPIPE, "latency_us", (30, 31, 29), unit)
        runs += runs_of(NETPIPE, "bandwidth_MB_s", (30, 31, 29), "MB/s", "higher")
        merged = [run.model_copy(update={"metrics": [*run.metrics, *other.metrics]})
                  for run, other in zip(runs[:3], runs[3:], strict=True)]  # fmt: skip
        make_night(tmp_path, night, runs=merged)
    with opened(tmp_path, print) as index:
        result = compare(index, "lab-00[0-3]", "lab-00[4-7]")
    assert [row.series.metric for row in result.rows] == ["bandwidth_MB_s"]
    assert any(
        note.endswith(f"the unit differs: {NETPIPE.id}: latency_us in us and in ms")
        for note in result.notes
    )  # fmt: skip
