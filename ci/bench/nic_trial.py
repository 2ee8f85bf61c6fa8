"""How often a trial switches profiles: from the notes of the nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import ways

from seatrial.results.folder import read_results
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab


@dataclass
class Switches:
    """Of one profile in one trial: checks that ran under it, and on each node how often it was
    applied and restored."""

    profile: str
    runs: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)


def count(
    site_file: Path, instance: str, root: Path, profiles: list[str], checks: list[str]
) -> list[Switches]:
    """Try a site with these profiles in a lab of its own. Raises ValueError where it fails."""
    output = root / "trial"
    command = [sys.executable, "-I", "-m", "seatrial", "trial", "--site", str(site_file)]
    command += ["--keep-lab", "--output", str(output), "--repeats", "1"]
    command += [word for name in profiles for word in ("--profile", name)]
    command += [word for name in checks for word in ("--check", name)]
    env = {**os.environ, "SEATRIAL_LAB_INSTANCE": instance}
    lab = Lab(LabSpec(instance=instance))
    try:
        with (root / "trial.out").open("w") as said:
            child = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = child.wait()
            except BaseException:
                ways.end_group(child)
                raise
        files = sorted(output.glob("*/results.jsonl"))
        if not files:
            said_text = (root / "trial.out").read_text()
            raise ValueError(f"seatrial trial ended with {code}: {said_text}")
        return _read(files[-1], lab.paths.data / "nic")
    finally:
        with ways.uninterrupted():
            lab.down()


def _read(results: Path, nodes: Path) -> list[Switches]:
    found: dict[str, Switches] = {}
    for run in read_results(results.parent).runs:
        switches = found.setdefault(run.case.profile, Switches(run.case.profile))
        switches.runs += 1
    for folder in sorted(nodes.iterdir()):
        seen: Counter[tuple[str, str]] = Counter()
        file = folder / "history.jsonl"
        for entry in map(json.loads, file.read_text().splitlines() if file.exists() else []):
            seen[entry["event"], entry.get("profile", "")] += 1
        for name, switches in found.items():
            if name != "default":
                switches.applied[folder.name] = seen["applied", name]
                switches.restored[folder.name] = seen["restored", name]
    return list(found.values())
