#!/usr/bin/env python3
"""What Seatrial costs: a trial's wall time over its benchmarks' own, against plain ReFrame
and against a bare sbatch loop. See docs/dev/benchmarks.md.

    .venv/bin/python ci/bench/harness.py [--quick]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

import backends
import tables
import timeline
import typer
import ways
from rich.console import Console

from seatrial.base.errors import SeatrialError
from seatrial.cli.provision import provision_lab
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.site.load import site_file
from seatrial.trial.host import host_facts, version_with_commit
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.native.engine import Lab

PARTS = ("trial", "ways", "backends")
out = Console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    out.print(f"  {time.strftime('%H:%M:%S')} {text}", style="dim", markup=False)


def whole_trial(file: Path, instance: str, root: Path, repeats: int | None) -> dict[str, Any]:
    """``seatrial trial`` of all that the site has, with the start and the end of its lab."""
    output = root / "whole"
    command = [sys.executable, "-I", "-m", "seatrial", "trial", "--site", str(file), "--keep-lab"]
    command += ["--output", str(output)]
    command += ["--repeats", str(repeats)] if repeats else []
    env = {**os.environ, "SEATRIAL_LAB_INSTANCE": instance}
    lab = Lab(LabSpec(instance=instance))
    begin = time.time()
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
        done = time.time()
        log = timeline.read_log(ways.controller_log(instance))
    finally:
        with ways.uninterrupted():
            lab.down()
    down = time.time() - done
    folders = sorted(output.glob("*/results.jsonl"))
    if not folders:
        raise ValueError(f"seatrial trial ended with {code}: {(root / 'trial.out').read_text()}")
    folder = folders[-1].parent
    marks = [next(folder.glob("config/*/settings.py")), folder / "reframe.out"]
    marks += [folder / "results.jsonl", folder / "report.html"]
    start, end, judged, reported = (mark.stat().st_mtime for mark in marks)
    return {
        "command_s": done - begin + down,
        "exit_code": code,
        "parts_s": {
            "start, software check, lab up": start - begin,
            "ReFrame": end - start,
            "evidence and judgement": judged - end,
            "report and summary": max(reported, done) - judged,
            "lab down": down,
        },
        "measured": timeline.measure(folder, start, end, log),
    }


def run_ways(
    file: Path, selection: Selection, instance: str, root: Path, names: list[str],
    rounds: int, general: dict[str, float],
) -> dict[str, list[timeline.Measured]]:  # fmt: skip
    """Way -> its runs; the rounds are interleaved, so that a slow minute falls on all."""
    found: dict[str, list[timeline.Measured]] = {name: [] for name in names}
    with backends.running(file, instance, root) as (lab, _):
        bench = ways.Bench(lab, plan_trial(file, selection), file, root, general)
        for number in range(rounds):
            for name in names:
                say(f"{name}, round {number + 1} of {rounds}")
                found[name].append(bench.run(name))
    return found


def plain(value: Any) -> Any:
    """For json.dumps: what a measurement is made of."""
    if isinstance(value, timeline.Measured):
        return value.as_dict()
    if isinstance(value, Path) or is_dataclass(value):
        return str(value)
    raise TypeError(f"no JSON for {type(value)}")


def numbers(settings: list[str]) -> dict[str, float]:
    pairs = (setting.partition("=") for setting in settings)
    return {name: float(value) for name, _, value in pairs}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One round, no whole trial.")] = False,
    site: Annotated[str, typer.Option("--site", "-s", help="A site with a lab.")] = "lab",
    check: Annotated[list[str] | None, typer.Option("--check", "-c")] = None,
    transport: Annotated[list[str] | None, typer.Option("--transport", "-t")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Of each case in one run.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Runs of each way.")] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", "-p", help=f"Only these: {', '.join(PARTS)}.")
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option("--way", "-w", help=f"Only these: {', '.join(ways.SHORT.values())}."),
    ] = None,
    slurm_config: Annotated[
        list[str] | None, typer.Option(help="A line for the lab's slurm.conf, to try it.")
    ] = None,
    general: Annotated[
        list[str] | None,
        typer.Option(help="A setting of ReFrame, as poll_rate_min=5: adds a way that has it."),
    ] = None,
    instance: Annotated[str, typer.Option("--instance", "-i", help="Its own lab.")] = "bench",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file as well.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Leave the runs' files in this new folder.")
    ] = None,
) -> None:
    """Measure what Seatrial costs, in a lab of its own, which is taken down at the end."""
    wanted = part or (["ways", "backends"] if quick else list(PARTS))
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise typer.BadParameter(f"no part {', '.join(unknown)}: {', '.join(PARTS)}")
    repeats_of_run = repeats or (1 if quick else 2)
    rounds = rounds or (1 if quick else 3)
    checks = tuple(check or ("npb", "netpipe"))
    transports = tuple(transport or ("openmpi-tcp", "mpich-ofi", "intelmpi-tcp"))
    selection = Selection(checks, transports, (), repeats_of_run)
    names = [
        name
        for name in ways.WAYS
        if (general or name != ways.CHANGED) and (not way or ways.SHORT[name] in way)
    ]
    if ways.LOOP in names and ways.OURS not in names:
        raise typer.BadParameter("the sbatch loop runs the job scripts that Seatrial wrote")
    signal.signal(signal.SIGTERM, interrupt)
    provision_lab(required=True)
    original = site_file(site)
    if keep:
        keep.mkdir(parents=True)
    root = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="seatrial-bench-"))
    root.chmod(0o755)
    found: dict[str, Any] = {
        "seatrial": version_with_commit(), "host": host_facts(), "slurm_config": slurm_config or [],
        "general": numbers(general or []), "selection": [*checks, *transports],
        "repeats": repeats_of_run, "rounds": rounds,
    }  # fmt: skip
    host = found["host"]
    out.print(f"{host['processor']}, {host['cores']} cores, {host['operating system']}, "
              f"load {host['load']}")  # fmt: skip
    lines = slurm_config or []
    try:
        file = backends.overlay(original, root / "site", instance, None, lines)
        if "ways" in wanted:
            found["ways"] = run_ways(
                file, selection, instance, root, names, rounds, found["general"]
            )
            tables.show_ways(out, found["ways"])
            tables.show_gaps(out, found["ways"])
        if "backends" in wanted:
            found["backends"] = backends.compare(
                original, selection, instance, root, lines, rounds, quick, say
            )
            tables.show_backends(out, found["backends"])
        if "trial" in wanted:
            say("a whole trial (some minutes)")
            found["trial"] = whole_trial(file, instance, root, repeats)
            tables.show_trial(out, found["trial"])
    finally:
        if json_file:
            json_file.write_text(json.dumps(found, indent=1, default=plain) + "\n")
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        typer.run(main)
    except (SeatrialError, ValueError) as error:
        sys.exit(f"harness.py: {error}")
