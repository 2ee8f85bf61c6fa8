"""A coalescing value changed by 12 %: the profile that has it fails, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual_support import CARDS, figure, tried, write_site

from seatrial.lab.virtual.engine import VirtualLab

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.stack]

#: profile -> the one whose figure it is held to
HELD_TO = {"igb-off": "igb-off", "igb-125": "igb-125", "igb-140": "igb-125"}


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
        "  - {select: {}, metric: [bandwidth_MB_s, half_bandwidth_B], reason: of 64 bytes only}",
    ]
    return "\n".join(lines) + "\n"


def test_one_changed_value_fails_its_profile_and_no_other(
    lab: VirtualLab, trial, tmp_path: Path
) -> None:
    measured = {
        profile: figure(trial.runs, "netpipe", held_to, "latency_us")
        for profile, held_to in HELD_TO.items()
    }
    file = write_site(tmp_path / "seeded", CARDS, requirements(measured))
    seeded = tried(lab, file, tmp_path / "trials", *HELD_TO)

    verdicts = {one.case.profile: one.verdict for one in seeded.judgements}
    assert verdicts == {"igb-off": "pass", "igb-125": "pass", "igb-140": "fail"}
    assert len(seeded.judgements) == len(HELD_TO)
    assert [run.repeat for run in seeded.runs if run.case.profile == "igb-140"] == [0, 1]
    assert seeded.verdict is not None
    assert seeded.verdict.verdict == "reject"
    # What was seeded is what the driver did: 15 us more between two interrupts.
    again = {name: figure(seeded.runs, "netpipe", name, "latency_us") for name in HELD_TO}
    assert 8 < again["igb-140"] - measured["igb-125"] < 22
    for profile in ("igb-off", "igb-125"):  # figures repeat
        assert again[profile] == pytest.approx(measured[profile], rel=0.05), profile
