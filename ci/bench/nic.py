#!/usr/bin/env python3
"""What NIC profiles cost: on a node, at the start of a job, with many nodes and jobs, in a trial.
See docs/dev/benchmarks.md.

    .venv/bin/python ci/bench/nic.py [--quick] [-p PART]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import nic_jobs
import nic_labs
import nic_node
import nic_tables
import nic_trial
import typer
from rich.console import Console

from seatrial.base.errors import SeatrialError
from seatrial.cli.provision import provision_lab
from seatrial.site.load import site_file
from seatrial.trial.host import host_facts, version_with_commit

PARTS = ("node", "start", "nodes", "jobs", "trial")
IN_LABS = ("start", "nodes", "jobs")
#: of the site 'lab': one setting of one interface, and four of two
SMALL, LARGE = "jumbo", "bulk"
NODES = (1, 2, 4, 8, 16)
JOBS = (1, 2, 4, 8)
TRIED = ["jumbo", "multi-queue"]
CHECKS = ["netpipe", "tcp_stream"]
#: tables are wide; what is not a terminal has no width of its own
WIDTH = None if sys.stdout.isatty() else 120
out = Console(highlight=False, soft_wrap=True, width=WIDTH)


def say(text: str) -> None:
    out.print(f"  {time.strftime('%H:%M:%S')} {text}", style="dim", markup=False)


@contextmanager
def all_labs(file: Path, instance: str) -> Iterator[nic_jobs.Bench]:
    """The labs side by side, so that their jobs can take turns."""
    with ExitStack() as stack:
        labs = {}
        for kind, meaning in nic_labs.LABS.items():
            spec = nic_labs.spec_of(kind, file, instance)
            say(f"lab {spec.instance}, {len(spec.nodes)} nodes: {meaning}")
            labs[kind] = stack.enter_context(nic_labs.running(spec))
        yield nic_jobs.Bench(labs)


def in_labs(
    wanted: list[str], file: Path, instance: str, rounds: int
) -> dict[str, list[nic_jobs.Series]]:
    """The parts that start jobs, each as a table and by name."""
    bare, flags, empty = nic_jobs.NOT_INSTALLED, nic_jobs.ONLY_FLAGS, nic_jobs.NO_PROFILE
    small, large = nic_jobs.with_profile(SMALL), nic_jobs.with_profile(LARGE)
    found: dict[str, list[nic_jobs.Series]] = {}
    few = max(1, rounds // 2)
    with all_labs(file, instance) as bench:
        if "start" in wanted:
            series = [nic_jobs.Series(way) for way in (bare, flags, empty, small, large)]
            found["start"] = bench.measure(series, rounds, say, srun=True)
            nic_tables.show_start(out, series)
        ways = (bare, empty, large)
        if "nodes" in wanted:
            series = [nic_jobs.Series(way, 1, nodes) for nodes in NODES for way in ways]
            found["nodes"] = bench.measure(series, few, say)
            title = "One job on more nodes"
            nic_tables.show_growth(out, title, "nodes", series)
        if "jobs" in wanted:
            series = [nic_jobs.Series(way, jobs) for jobs in JOBS for way in ways]
            found["jobs"] = bench.measure(series, few, say)
            title = "More jobs at once, each on one node"
            nic_tables.show_growth(out, title, "jobs", series)
    if {"nodes", "jobs"} & set(wanted):
        out.print(
            f"All nodes of a lab share the {os.cpu_count()} cores of this machine: with more "
            "Prologs at once than cores the times show how they wait for cores, which nodes of a "
            "cluster do not. CPU time per node does not depend on that."
        )
    return found


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds.")] = False,
    site: Annotated[
        str, typer.Option("--site", "-s", help=f"A site with a lab, {SMALL} and {LARGE}.")
    ] = "lab",
    rounds: Annotated[int | None, typer.Option(min=1, help="Of each; growth half as many.")] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", "-p", help=f"Only these: {', '.join(PARTS)}.")
    ] = None,
    instance: Annotated[
        str, typer.Option("--instance", "-i", help="How its own labs' names begin.")
    ] = "benchnic",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file as well.")
    ] = None,
) -> None:
    """Measure what NIC profiles cost, in labs of its own, which are taken down at the end."""
    wanted = part or list(PARTS)
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise typer.BadParameter(f"no part {', '.join(unknown)}: {', '.join(PARTS)}")
    rounds = rounds or (4 if quick else 12)
    signal.signal(signal.SIGTERM, interrupt)
    provision_lab(required=True)
    original = site_file(site)
    root = Path(tempfile.mkdtemp(prefix="seatrial-bench-"))
    root.chmod(0o755)
    host = host_facts()
    found: dict[str, Any] = {"seatrial": version_with_commit(), "host": host, "rounds": rounds}
    out.print(f"{host['processor']}, {host['cores']} cores, {host['operating system']}, "
              f"load {host['load']}")  # fmt: skip
    try:
        file = nic_labs.sized_site(original, root / "site", max(NODES))
        if "node" in wanted:
            fixed, scenarios = nic_node.measure(file, instance, root, rounds, say)
            found["node"] = [asdict(scenario) for scenario in (fixed, *scenarios)]
            nic_tables.show_node(out, fixed, scenarios)
        if set(IN_LABS) & set(wanted):
            measured = in_labs(wanted, file, instance, rounds)
            found |= {name: [asdict(one) for one in series] for name, series in measured.items()}
        if "trial" in wanted:
            say(f"a trial with profiles {', '.join(TRIED)}")
            switches = nic_trial.count(original, instance, root, TRIED, CHECKS)
            found["trial"] = [asdict(switch) for switch in switches]
            nic_tables.show_trial(out, switches)
        found["load at the end"] = host_facts()["load"]
        out.print(f"load at the end {found['load at the end']}")
    finally:
        if json_file:
            json_file.write_text(json.dumps(found, indent=1) + "\n")
        shutil.rmtree(root, ignore_errors=True)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        typer.run(main)
    except (SeatrialError, ValueError) as error:
        sys.exit(f"nic.py: {error}")
