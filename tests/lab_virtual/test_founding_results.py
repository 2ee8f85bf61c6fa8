"""The founding documents' effects, measured anew in lab-virtual's own igb profiles.

And the figures themselves: each within the bounds that the site's requirements put on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from published import Outcome, compare, load_published
from virtual_support import Silent, running

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.record import Results
from seatrial.site.load import site_file
from seatrial.trial.run import run_trial
from seatrial_lab.virtual.machine import VirtualMachine

pytestmark = [
    pytest.mark.root, pytest.mark.slurm, pytest.mark.stack, pytest.mark.timeout(3600),
    pytest.mark.nightly(reason="the founding papers' effects, in six trials of the virtual lab"),
]  # fmt: skip

#: What takes longer, and HPL, which repeats least, is left to ci/founding/compare.py --check.
PROFILES = ("igb-off", "igb-125")
SELECTIONS = (
    Selection(("netpipe",), profiles=PROFILES),
    Selection(("tcp_stream",), profiles=("igb-gigabit", "igb-gigabit-125")),
    Selection(("npb",), profiles=PROFILES, transports=("openmpi-tcp",)),
)
FINDINGS = (
    "latency-throttling", "cpu-receiver", "cpu-sender", "bandwidth-coalescing", "is-coalescing",
)  # fmt: skip


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Results]]:
    file = site_file("lab-virtual")
    folder = tmp_path_factory.mktemp("founding") / "trials"  # pytest's own only root may enter
    folder.mkdir()
    with running(file, "_founding") as lab:
        lab.add_bind(folder)
        yield [
            run_trial(plan_trial(file, selection), file, VirtualMachine(lab), Silent(), folder)
            for selection in SELECTIONS
        ]


@pytest.fixture(scope="module")
def outcomes(trials: list[Results]) -> dict[str, Outcome]:
    published = load_published(site_file("lab-virtual").with_name("published.yaml"))
    return {one.comparison.id: one for one in compare(published, trials)}


def test_all_ran(trials: list[Results]) -> None:
    for trial in trials:
        assert [run.reason for run in trial.runs if run.outcome != "ran"] == []


@pytest.mark.parametrize("finding", FINDINGS)
def test_the_effect_agrees_as_far_as_the_docs_say(
    outcomes: dict[str, Outcome], finding: str
) -> None:
    assert outcomes[finding].as_held, outcomes[finding]


def test_what_does_not_agree_is_named(outcomes: dict[str, Outcome]) -> None:
    """Of a finding that is held to nothing, the test above shows only that it was measured."""
    held = {finding for finding in FINDINGS if outcomes[finding].comparison.agrees != "no"}
    assert set(FINDINGS) - held == {"cpu-sender"}


def test_the_figures_are_within_their_bounds(trials: list[Results]) -> None:
    judged = [one for trial in trials for one in trial.judgements]
    assert [one.explanation for one in judged if one.verdict not in ("pass", "missing")] == []
    assert sum(one.verdict == "pass" for one in judged) > 10
