"""One coalescing value of a NIC profile changed by 12 %: that profile fails, and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from virtual_support import SITE, Silent, write_site

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.record import Results
from seatrial.site.load import load_site
from seatrial.trial.run import run_trial
from seatrial_lab.virtual.engine import VirtualLab
from seatrial_lab.virtual.machine import VirtualMachine
from seatrial_lab.virtual.site import virtual_spec

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack, pytest.mark.timeout(1200)]

PROFILES = ("igb-off", "igb-125")
CONFIRMED = "repeats: 1, reruns: 2"  # as in the lab's own site


def tried(lab: VirtualLab, file: Path, trials: Path) -> Results:
    """A trial of both profiles in a lab that has them as the site file does."""
    trials.mkdir()
    lab.add_bind(trials)
    selection = Selection(("netpipe",), profiles=PROFILES)
    results = run_trial(plan_trial(file, selection), file, VirtualMachine(lab), Silent(), trials)
    assert [run.reason for run in results.runs if run.outcome != "ran"] == []
    return results


def latencies(results: Results) -> dict[str, float]:
    """Profile -> latency in us."""
    return {
        run.case.profile: metric.value
        for run in results.runs
        for metric in run.metrics
        if metric.metric == "latency_us"
    }


def requirements(measured: dict[str, float]) -> str:
    """4 % about what was measured, both ways: more than the spread, less than what is seeded."""
    lines = ["schema: 1", "defaults: {statistic: majority}", "requirements:"]
    lines += [
        f"  - {{select: {{profile: {profile}}}, metric: latency_us, basis: baseline, unit: us, "
        f"reference: {value:.4f}, lower: -0.04, upper: 0.04}}"
        for profile, value in measured.items()
    ]
    lines += [
        "informative:",
        "  - {select: {}, metric: [bandwidth_MB_s, n_half_B], reason: of 64 bytes only}",
    ]
    return "\n".join(lines) + "\n"


def test_one_changed_value_fails_its_profile_and_no_other(lab: VirtualLab, tmp_path: Path) -> None:
    measured = latencies(tried(lab, write_site(tmp_path / "good"), tmp_path / "before"))
    assert set(measured) == set(PROFILES)

    # A lab of its own, as Prolog sets what the profile was when the lab was started.
    assert SITE.count("rx_usecs: 125") == 1
    text = SITE.replace("rx_usecs: 125", "rx_usecs: 140").replace("repeats: 1", CONFIRMED)
    file = write_site(tmp_path / "seeded", text)
    file.with_name("requirements.yaml").write_text(requirements(measured))
    other = VirtualLab(virtual_spec(load_site(file), f"v{os.getpid()}_seeded"))
    try:
        other.up()
        seeded = tried(other, file, tmp_path / "after")
    finally:
        other.down()

    verdicts = {one.case.profile: one.verdict for one in seeded.judgements}
    assert verdicts == {"igb-off": "pass", "igb-125": "fail"}
    assert len(seeded.judgements) == len(PROFILES)
    assert [run.repeat for run in seeded.runs if run.case.profile == "igb-125"] == [0, 1]
    assert seeded.verdict is not None
    assert seeded.verdict.verdict == "reject"
    # What was seeded is what the driver did: 15 us more between two interrupts.
    assert 8 < latencies(seeded)["igb-125"] - measured["igb-125"] < 22
