"""The founding documents' effects of two drivers, measured in two labs.

And the figures of lab-virtual: each within the bounds that the site's requirements put on it.
"""

from __future__ import annotations

import pytest
from published import Outcome, compare, load_published, measured_in
from virtual_support import Silent, running

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial.site.load import site_file
from seatrial.trial.run import run_trial
from seatrial_lab.virtual.machine import VirtualMachine

pytestmark = [
    pytest.mark.root, pytest.mark.slurm, pytest.mark.stack, pytest.mark.timeout(3600),
    pytest.mark.nightly(reason="the founding papers' effects, in four trials of the virtual lab"),
]  # fmt: skip

#: What takes longer is left to ci/founding/compare.py --check.
SELECTIONS = {
    "lab-virtual-apps": (
        Selection(
            ("netpipe", "tcp_stream"), profiles=("igb-off", "igb-20", "igb-125"), repeats=1
        ),
    ),
    "lab-virtual-smp": (
        Selection(
            ("npb",), ("openmpi-tcp",), profiles=("igb-off", "igb-20", "igb-125"), repeats=1
        ),
    ),
    "lab-virtual": (
        Selection(("netpipe",), profiles=("igb-off", "igb-125")),
        Selection(("tcp_stream",), profiles=("igb-gigabit", "igb-gigabit-125")),
    ),
}  # fmt: skip
FINDINGS = (
    "drivers-latency", "drivers-latency-modified", "drivers-pingpong-bandwidth", "cpu-receiver",
    "cpu-sender", "bandwidth-coalescing", "is-coalescing", "is-modified",
)  # fmt: skip


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Results]]:
    """The trials of each site. Only one lab is up at a time."""
    made = {}
    for site, selections in SELECTIONS.items():
        file = site_file(site)
        folder = tmp_path_factory.mktemp("founding") / "trials"  # pytest's own only root may enter
        folder.mkdir()
        with running(file, f"_{site.rpartition('-')[2]}") as lab:
            lab.add_bind(folder)
            made[site] = [
                run_trial(plan_trial(file, selection), file, VirtualMachine(lab), Silent(), folder)
                for selection in selections
            ]
    return made


@pytest.fixture(scope="module")
def outcomes(trials: dict[str, list[Results]]) -> dict[str, Outcome]:
    published = load_published(site_file("lab-virtual").with_name("published.yaml"))
    ours = [*trials["lab-virtual-apps"], *trials["lab-virtual-smp"]]
    measured = measured_in(published, ours)
    return {one.comparison.id: one for one in compare(published, measured)}


def test_all_ran(trials: dict[str, list[Results]]) -> None:
    runs = [run for several in trials.values() for trial in several for run in trial.runs]
    assert [run.reason for run in runs if run.outcome != "ran"] == []


@pytest.mark.parametrize("finding", FINDINGS)
def test_the_effect_agrees_as_far_as_the_docs_say(
    outcomes: dict[str, Outcome], finding: str
) -> None:
    assert outcomes[finding].as_held, outcomes[finding]


def test_none_of_them_is_held_to_nothing(outcomes: dict[str, Outcome]) -> None:
    """Of such a finding, the test above shows only that it was measured."""
    assert {outcomes[finding].comparison.agrees for finding in FINDINGS} == {"size", "direction"}


def test_the_figures_are_within_their_bounds(trials: dict[str, list[Results]]) -> None:
    judged = [judgement for trial in trials["lab-virtual"] for judgement in trial.judgements]
    assert [one.explanation for one in judged if one.verdict not in ("pass", "missing")] == []
    assert sum(one.verdict == "pass" for one in judged) == 10  # each figure has a bound
