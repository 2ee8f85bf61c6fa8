"""``seatrial trial``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.paths import TRIALS
from seatrial.cli.history_page import keep_history
from seatrial.cli.provision import lab_for, provision_lab
from seatrial.cli.report import keep_report
from seatrial.cli.screen import out, say
from seatrial.cli.selection import (
    CheckOption,
    NetworkOption,
    ProfileOption,
    RepeatsOption,
    RerunsOption,
    RoundsOption,
    SiteOption,
    TransportOption,
    selection_of,
)
from seatrial.cli.trial_folders import held, verdict_code
from seatrial.plan.check import check_site
from seatrial.plan.model import Plan
from seatrial.plan.resolve import plan_trial
from seatrial.report import terminal
from seatrial.report.text import line
from seatrial.results import manifest
from seatrial.site.load import site_file
from seatrial.trial.run import run_trial
from seatrial.trial.session import Interrupted, noted_signals, obeyed_signals
from seatrial_lab.common.programs import check_root

#: one of ReFrame's test cases: NetPIPE %repeat=0 %num_nodes=2 /1a2b3c4d @lab:compute+openmpi-tcp
TEST = re.compile(r"(\w+) .*%repeat=(\d+) %num_nodes=(\d+) .*@\w[\w-]*:([\w-]+)\+([\w-]+)")

#: ReFrame's word for the end of a test -> what it says. ReFrame knows no reruns and no noise.
RESULTS = {
    "OK": "ran",
    "FAIL": "not passed at first; the verdict at the end says why",
    "ABORT": "aborted",
    "SKIP": "skipped",
}


def test_name(plan: Plan, name: str) -> str:
    """A test case of ReFrame in the words of the plan, with the variants that it runs."""
    match = TEST.match(name)
    if not match:
        return name
    short, repeat, nodes, partition, environment = match.groups()
    transport, network = plan.environments.get(environment, (environment, ""))
    by_partition = {plan.partition_name(profile): profile for profile in plan.profiles}
    profile = by_partition.get(partition, partition)
    variants = [
        case.variant
        for case in plan.cases
        if case.check.replace("_", "") == short.lower() and case.variant
        if (case.transport, case.network) == (transport, network)
        if (case.profile, case.nodes) == (profile, int(nodes))
    ]
    check = f"{short} ({', '.join(variants)})" if variants else short
    route = f"{transport}@{network}" if network else transport
    number = f"{nodes} node{'s' * (nodes != '1')}"
    return f"{check}, {route}, {profile}, {number}, {numbered(plan, int(repeat))}"


def numbered(plan: Plan, repeat: int) -> str:
    """The number of a run as people count it: ``repeat 1``, ``round 2, repeat 1``."""
    before, in_round = divmod(repeat, plan.repeats)
    if plan.rounds == 1 or before >= plan.rounds:
        return f"repeat {repeat + 1}"
    return f"round {before + 1}, repeat {in_round + 1}"


class Bar:
    """Progress of a trial on the terminal; plain lines where it is not one."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=out, disable=not out.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting ReFrame", total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def line(self, word: str, done: int, total: int, name: str) -> None:
        text = line(test_name(self.plan, name))
        if total:
            self.bar.update(self.task, completed=done, total=total)
        if out.is_terminal:
            self.bar.update(self.task, description=text[:60])
        elif total:
            say(f"  {done}/{total} {text}: {RESULTS.get(word, word)}")

    def said(self, text: str) -> None:
        say(text)


def trial(
    site: SiteOption = "lab",
    check: CheckOption = None,
    transport: TransportOption = None,
    network: NetworkOption = None,
    profile: ProfileOption = None,
    repeats: RepeatsOption = None,
    rounds: RoundsOption = None,
    reruns: RerunsOption = None,
    output: Annotated[
        Path, typer.Option(help="Folder for trials; default: trials/.", show_default=False)
    ] = TRIALS,
    keep_lab: Annotated[
        bool, typer.Option("--keep-lab", help="Leave the lab up after the trial.")
    ] = False,
) -> None:
    """Test a site: run its benchmarks, judge them, write the report.

    Without options it tests the site 'lab', a Slurm cluster of four nodes on this machine, and
    first installs the software of the lab. A glob pattern selects; give the option again for more.

    Example: seatrial trial --site harbour --check netpipe -t 'openmpi-*'
    """
    file = site_file(site)
    selection = selection_of(check, transport, network, profile, repeats, rounds, reruns)
    description = check_site(file, selection).site
    if description.lab:
        check_root()
        provision_lab(required=True)
    plan = plan_trial(file, selection)
    check_place(output)
    with (
        lab_for(description, file, output, keep_lab, plan) as (machine, *further),
        Bar(plan) as bar,
    ):
        results = run_trial(plan, file, machine, bar, output, further)
    terminal.print_summary(results, out)  # first: a report that fails does not hide the verdict
    try:
        with noted_signals() as signals, obeyed_signals(signals), held(results.folder):
            keep_report(results)
    except Interrupted as signal:
        raise LabError(
            f"interrupted by {signal} while the report was written: the results are in "
            f"{results.folder}; 'seatrial report {results.folder}' writes it"
        ) from None
    terminal.print_page(results, out)
    keep_history(output)
    raise typer.Exit(verdict_code(results))


def check_place(output: Path) -> None:
    """Refuse a folder for trials that another user could exchange while root writes to it.

    Raises InputError.
    """
    if os.geteuid() == 0 and (exposed := manifest.exposure(output)):
        text = f"{exposed.who}, and could lead what root writes in {output} to another folder"
        raise InputError([Problem(exposed.path, None, "--output", text, "name a folder of root")])
