"""ReFrame's two back ends for Slurm compared: ``slurm`` asks the accounting, ``squeue`` does not.

Each has a lab of its own, with and without slurmdbd and MariaDB, one after the other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ways
from ruamel.yaml import YAML

from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.trial.collect import REPORT_FILE
from seatrial.trial.reframe_run import reframe_command, variables
from seatrial.trial.run import write_config
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import spec_for_site

PROBE = Path(__file__).with_name("probe.py")
NODE_FAIL_S = 90
Say = Callable[[str], None]


def overlay(
    original: Path, folder: Path, instance: str, backend: str | None, lines: list[str]
) -> Path:
    """A copy of a site with lines added to its slurm.conf, and another back end; its file."""
    yaml = YAML()
    data = yaml.load(original.read_text())
    slurm = data.setdefault("slurm", {})
    slurm["config"] = [*slurm.get("config", []), *ways.slurm_lines(instance), *lines]
    if backend:
        slurm["backend"] = backend
        data["lab"]["accounting"] = backend == "slurm"
    target = folder / data["name"]
    target.mkdir(parents=True)
    for file in original.parent.glob("*.yaml"):
        (target / file.name).write_text(file.read_text())
    with (target / "site.yaml").open("w") as stream:
        yaml.dump(data, stream)
    return target / "site.yaml"


@contextmanager
def running(site_file: Path, instance: str, root: Path) -> Iterator[tuple[Lab, float]]:
    """The lab of a site, and how long it took to start; it is down again whatever happens."""
    lab = Lab(spec_for_site(str(site_file), instance, (root,)))
    try:
        begin = time.monotonic()
        lab.up()
        yield lab, time.monotonic() - begin
    finally:
        with ways.uninterrupted():
            lab.down()


def compare(
    original: Path, selection: Selection, instance: str, root: Path, lines: list[str],
    rounds: int, quick: bool, say: Say,
) -> dict[str, Any]:  # fmt: skip
    """Back end -> start of its lab, runs of the selection, and what it knows of failed jobs."""
    found: dict[str, Any] = {name: {"lab_up_s": [], "runs": []} for name in ("slurm", "squeue")}
    for number in range(rounds):
        for name, entry in found.items():
            say(f"back end {name}, round {number + 1} of {rounds}")
            folder = root / f"{name}-{number}"
            folder.mkdir()
            file = overlay(original, folder / "site", instance, name, lines)
            with running(file, instance, root) as (lab, seconds):
                entry["lab_up_s"].append(seconds)
                bench = ways.Bench(lab, plan_trial(file, selection), file, folder, {})
                entry["runs"].append(bench.run(ways.OURS))
                if number == 0 and not quick:
                    say(f"back end {name}: an exit code, and a node that dies")
                    entry["knows"] = probe(bench, folder / "probe")
    return found


def probe(bench: ways.Bench, folder: Path) -> list[dict[str, Any]]:
    """What ReFrame learns of a job that exits with 3, and of one whose node dies."""
    folder.mkdir()
    config = write_config(folder, bench.plan, bench.site_file)
    command = [
        f"--checkpath={PROBE}" if word.startswith("--checkpath") else word
        for word in reframe_command(bench.plan, config, ["x"], folder / REPORT_FILE)
    ]
    node = bench.lab.spec.nodes[-1]
    ways.write_part(bench.plan, config, folder)
    env = {**variables(bench.plan), "PROBE_NODE": node, "PROBE_FOLDER": str(folder)}
    process = ways.start(bench.lab, command, env, folder)
    try:
        deadline = time.monotonic() + NODE_FAIL_S
        while process.poll() is None and not [*folder.glob("stage/**/running")]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        faults.kill_node(bench.lab, node)
        process.wait(NODE_FAIL_S)
    finally:
        ways.end_group(process)
    return [json.loads(file.read_text()) for file in sorted(folder.glob("probe-*.json"))]
