"""Predictions: the measured cases that they are compared with, their error, and its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis_maker import npb_time
from seatrial.analysis.conclusion import Inputs
from seatrial.predict import prediction
from seatrial.predict.calibration import Network, Part, Range
from seatrial.predict.prediction import Calibrated, Comparison, Prediction
from seatrial.predict.simulation import Messages, Simulated
from seatrial.report import prediction as words
from seatrial.results.record import PathProof

NOTHING = Part(0.0, 0.0)
NETWORK = Network(
    [Range(0, NOTHING, NOTHING, NOTHING, Part(1e-5, 1e-8))], 1e4, (1.0, 1e6), {}, "comms",
    Inputs((), (), 0),
)  # fmt: skip
OUTPUT = (Path(__file__).parents[1] / "benchmarks/data/npb_is_S2.txt").read_text()


def simulated(runs):
    """Notes what is simulated; each run is the recorded output."""

    def one(variant, nodes, speed):
        runs.append((variant, nodes, speed))
        return Simulated(OUTPUT, 1.0, messages=Messages(4, 4 * 65_536, 65_536, 0))

    return one


MEASURED = [
    *(npb_time("ep.W", 2, t) for t in (2.0, 2.1, 1.9)),
    *(npb_time("is.W", p, t) for p in (2, 4) for t in (0.011, 0.012, 0.013)),
    npb_time("is.S", 1, 0.1),
]


def test_cases_with_several_ranks_a_node_are_named():
    other = npb_time("is.W", 2, 1.0)
    other.run.facts["processes"] = 8
    times, skipped = prediction.cases_of_npb([*MEASURED, other])
    assert times["is.W", 2] == [0.011, 0.012, 0.013]
    assert skipped == ["npb is.W on 2 nodes has 8 ranks"]


def test_the_case_of_the_calibration_is_no_proof_of_it():
    runs = []
    of = Calibrated(NETWORK, {}, 0.5, ("ep.W", 2))
    assert prediction.compare(of, MEASURED, "ep", simulated(runs)) == []
    assert runs == []
    compared = prediction.compare(of, MEASURED, "is", simulated(runs))
    assert runs == [("is.W", 2, 0.5), ("is.W", 4, 0.5)]  # of one node nothing is communicated
    assert [(one.variant, one.nodes, one.measured_s, one.samples) for one in compared] == [
        ("is.W", 2, 0.012, 3), ("is.W", 4, 0.012, 3),
    ]  # fmt: skip
    expected = compared[0].predicted_s / 0.012 - 1
    assert compared[0].error == pytest.approx(expected)


@pytest.fixture
def speed_of(monkeypatch):
    """Calibrates with measured cases, without SimGrid: what was simulated, and the result."""
    monkeypatch.setattr(prediction, "calibrate", lambda measured: NETWORK)
    monkeypatch.setattr(prediction, "half_round_trips", lambda *_: {})

    def one(measured, variant=""):
        runs = []
        of = prediction.calibrated(measured, Path("x"), lambda _: simulated(runs), 1, variant)
        return runs, of

    return one


def test_the_speed_is_that_of_EP_on_the_fewest_nodes(speed_of):
    own = [*MEASURED, npb_time("ep.W", 4, 9.0), npb_time("ep.S", 2, 0.2)]
    runs, of = speed_of(own)
    assert [run[:2] for run in runs] == [("ep.W", 2)]
    assert of.speed_case == ("ep.W", 2)
    # as of a slow machine, for more digits
    here = runs[0][2] * prediction.npb.parse(OUTPUT).value("time_s")
    assert of.speed == pytest.approx(here / 2.0)
    _, of = speed_of(MEASURED[3:])
    assert (of.speed, of.speed_case) == (1.0, None)


@pytest.mark.parametrize(
    ("variant", "case"),
    [
        ("ft.S", ("ft.S", 1)),
        ("ft.A", ("ft.W", 1)),  # the longest of other classes
        ("is.A", ("is.S", 1)),
        ("cg.S", ("ep.W", 2)),  # on several nodes its time is not of computing alone
        ("", ("ep.W", 2)),
    ],
)
def test_the_kernel_itself_on_one_node_gives_the_speed_before_EP(speed_of, variant, case):
    own = [
        *MEASURED, npb_time("ft.S", 1, 0.1), npb_time("ft.W", 1, 0.3), npb_time("cg.S", 2, 0.1)
    ]  # fmt: skip
    runs, of = speed_of(own, variant)
    assert [run[:2] for run in runs] == [case]
    assert of.speed_case == case


def test_a_prediction_with_the_speed_of_another_kernel_says_so():
    for case, said in ((("ep.W", 2), True), (("is.W", 1), False), (None, False)):
        of = Calibrated(NETWORK, {}, 0.5, case)
        made = prediction.predict(of, [], "is", "S", 2, simulated([]))
        assert any("npb is on 1 node shows it" in flaw for flaw in made.flaws) == said


@pytest.mark.parametrize(
    ("nodes", "flaw"), [(4, ""), (8, ""), (16, "beyond twice the calibrated range: measured on at")]
)
def test_beyond_twice_the_measured_nodes_it_says_so(nodes, flaw):
    compared = [Comparison("is.W", 4, 1.0, 1.1, 3), Comparison("is.W", 2, 1.0, 0.8, 3)]
    of = Calibrated(NETWORK, {})
    made = prediction.predict(of, compared, "is", "S", nodes, simulated([]))
    first, *notes = words.predictions([made], compared)
    assert first.startswith(f"{nodes} nodes: ")
    assert "error of the measured cases up to 20 % [1]" in first
    assert notes[0] == "  [1] the measured cases took 0.909 to 1.25 times the prediction"
    beyond = [note for note in notes if "beyond" in note]
    assert (len(beyond) == 1 and flaw in beyond[0]) if flaw else not beyond


def test_a_note_that_several_predictions_share_is_printed_once():
    compared = [Comparison("is.W", 2, 1.0, 1.1, 3)]
    made = [Prediction(2, 1.0, None, []), *(Prediction(n, 1.0, None, ["far"]) for n in (8, 16))]
    assert list(words.predictions(made, compared)) == [
        "2 nodes: 1 s, error of the measured cases up to 10 % [1]",
        "  [1] the measured cases took 0.909 times the prediction",
        "8 nodes: 1 s, error of the measured cases up to 10 % [1] [2]",
        "  [2] far",
        "16 nodes: 1 s, error of the measured cases up to 10 % [1] [2]",
    ]


def test_a_prediction_that_nothing_was_compared_with_says_so():
    made = prediction.predict(Calibrated(NETWORK, {}), [], "is", "S", 2, simulated([]))
    text = "\n".join(words.predictions([made], []))
    assert "error not known" in text
    assert "no measured case says how good it is" in text


def test_messages_beyond_twice_the_measured_sizes():
    """Ten messages of 10 kB in all."""
    assert prediction.outside(Messages(10, 10_000, 2001, 1000), (1, 1000)) == []
    [flaw] = prediction.outside(Messages(10, 10_000, 2001, 4002), (1, 1000))
    assert "messages of up to 2001 B have 40 % of its bytes, measured were 1 to 1000 B" in flaw
    assert "beyond twice the calibrated range" in flaw
    [flaw] = prediction.outside(Messages(10_000, 10_000, 1, 0), (4, 1000))
    assert "its mean message has 1 B, measured were 4 to 1000 B" in flaw
    assert prediction.outside(Messages(10_000, 20_000, 2, 0), (4, 1000)) == []
    [flaw] = prediction.outside(None, (1, 1000))
    assert "could not be counted" in flaw


def test_one_node_has_no_messages():
    of = Calibrated(NETWORK, {})
    compared = [Comparison("", 2, 1.0, 1.1, 1)]
    assert prediction.flaws_of(of, compared, 1, Simulated("", 1.0)) == []
    assert len(prediction.flaws_of(of, compared, 2, Simulated("", 1.0))) == 1


def test_the_measured_times_of_a_program_are_compared_with_what_is_predicted():
    compared = prediction.compare_program({8: 2.0, 4: 3.0}, {4: 3.3, 8: 1.0}.__getitem__)
    assert [(one.nodes, round(one.error, 3)) for one in compared] == [(4, 0.1), (8, -0.5)]
    assert list(words.comparisons(compared))[1] == (
        "measured on 8 nodes: 2 s (1 sample), predicted 1 s: -50 %"
    )


@pytest.mark.parametrize(
    ("run", "compared", "flaw"),
    [
        (("ompi", "pairwise", False), ["linear", "pairwise"], ""),
        (("ompi", "pairwise", False), ["linear"], "another algorithm in all measured cases"),
        (("ompi", "pairwise", False), [], ""),  # then nothing says how good it is
        (("ompi", "pairwise", True), ["pairwise"], "the MPI itself chooses another algorithm"),
    ],
)
def test_a_prediction_names_its_algorithm_of_alltoallv_and_what_it_says(run, compared, flaw):
    of = Calibrated(NETWORK, {})
    own = [Comparison("is.W", 2, 1.0, 1.1, 3, name) for name in compared]
    made = prediction.predict(of, own, "is", "S", 2, lambda *_: Simulated(OUTPUT, 1.0, *run))
    text = "\n".join(words.predictions([made], own))
    assert f"MPI_Alltoallv {run[1]}" in text
    flaws = [x for x in made.flaws if "Alltoallv" in x]
    assert (len(flaws) == 1 and flaw in flaws[0]) if flaw else not flaws


@pytest.mark.parametrize(
    ("selector", "largest", "slow"),
    [("ompi", 10_001, True), ("ompi", 10_000, False), ("mpich", 10_001, False)],
)
def test_messages_above_the_eager_limit_may_be_slower_by_Open_MPI(selector, largest, slow):
    run = Simulated("", 1.0, selector, messages=Messages(1, largest, largest, 0))
    flaws = prediction.flaws_of(Calibrated(NETWORK, {}), [], 2, run)
    assert (prediction.RENDEZVOUS in flaws) == slow


def test_runs_of_two_drivers_are_one_too_many():
    runs = [npb_time("is.W", 2, 1.0) for _ in range(2)]
    assert prediction.selected(runs, "openmpi-tcp", "jumbo") == []
    assert len(prediction.selected(runs, "openmpi-tcp", "default")) == 2
    for run, network in zip(runs, ("rail1", "rail2"), strict=True):
        run.run.path = PathProof(network=network, required_bytes=1, counters=[], crossed=True)
    with pytest.raises(ValueError, match="several networks or drivers: rail1, rail2"):
        prediction.selected(runs, "openmpi-tcp", "default")
