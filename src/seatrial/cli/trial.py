"""``seatrial trial``, and the commands that read its results: report, judge, baseline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seatrial.base.errors import EXIT_ACCEPTED, EXIT_INCOMPLETE, EXIT_REJECTED, InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.cli.provision import lab_for, provision_lab
from seatrial.cli.selection import (
    CheckOption,
    ProfileOption,
    RepeatsOption,
    RerunsOption,
    SiteOption,
    TransportOption,
)
from seatrial.plan.check import check_site
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.report import terminal, write_all
from seatrial.results.baseline import make_baseline
from seatrial.results.record import Results, read_results
from seatrial.results.requirements import load_requirements
from seatrial.site.load import load_site, site_file
from seatrial.trial.run import finish, run_trial
from seatrial_lab.common.programs import check_root

out = Console(highlight=False, soft_wrap=True)
VERDICT_CODES = {"accept": EXIT_ACCEPTED, "reject": EXIT_REJECTED, "incomplete": EXIT_INCOMPLETE}
TRIALS = CHECKOUT / "trials"

PARAMETER = re.compile(r"%(\w+)=(\d+)")


class Bar:
    """Progress of a trial on the terminal; plain lines where it is not one."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=out, disable=not out.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting ReFrame", total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def started(self, folder: Path, cases: int) -> None:
        self.said(f"{cases} runs of cases, several in a job; evidence goes to {folder}")

    def line(self, word: str, done: int, total: int, name: str) -> None:
        # such as: NetPIPE %repeat=0 %num_nodes=2 /1a2b3c4d @lab:compute+openmpi-tcp
        short, parameters = name.split(" ")[0], dict(PARAMETER.findall(name))
        where = name.rsplit("+", 1)[-1].split(" ")[0] if "+" in name else ""
        if "repeat" in parameters:
            where += f", repeat {int(parameters['repeat']) + 1}"
        if total:
            self.bar.update(self.task, completed=done, total=total)
        # ReFrame's FAIL may be a figure that its references reject or do not know: the judge
        # decides later, so this shows only that the check is done.
        if out.is_terminal:
            self.bar.update(self.task, description=f"{short} {where}"[:60])
        elif total:
            out.print(f"  {done}/{total} {short} {where}", markup=False)

    def said(self, text: str) -> None:
        out.print(text)


def trial(
    site: SiteOption = "lab",
    check: CheckOption = None,
    transport: TransportOption = None,
    profile: ProfileOption = None,
    repeats: RepeatsOption = None,
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

    Example: seatrial trial --site harbour --check netpipe --transport 'openmpi-*'
    """
    file = site_file(site)
    description = load_site(file)
    selection = Selection(
        tuple(check or ()), tuple(transport or ()), tuple(profile or ()), repeats, reruns
    )
    check_site(file, selection)
    if description.lab:
        check_root()
        provision_lab(required=True)
    plan = plan_trial(file, selection)
    with lab_for(description, file, output, keep_lab) as machine, Bar() as bar:
        results = run_trial(plan, file, machine, bar, output)
    show(results)
    assert results.verdict
    raise typer.Exit(VERDICT_CODES[results.verdict.verdict])


def show(results: Results) -> None:
    """Write the report beside the results, and the summary to the terminal."""
    try:
        write_all(results)
    except OSError as error:
        raise LabError(f"the results are kept, the report is not: {error}") from None
    terminal.print_summary(results, out)


def newest(folder: Path | None) -> Path:
    """The folder given, or the newest trial. Raises InputError where there is none."""
    if folder:
        return folder
    results_files = sorted(TRIALS.glob("*/results.jsonl"), key=lambda path: path.stat().st_mtime)
    if not results_files:
        raise InputError(f"{TRIALS} has no trial: run seatrial trial, or name a folder")
    return results_files[-1].parent


def report(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a trial; default: the newest.")
    ] = None,
) -> None:
    """Print the summary of a trial, and write its report again.

    Example: seatrial report trials/lab-20261120-1200
    """
    show(read_results(newest(folder)))


def judge_again(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a trial; default: the newest.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(help="File; default: the requirements of the trial.")
    ] = None,
) -> None:
    """Judge a trial again, against its own or other requirements.

    Example: seatrial judge --requirements site-configs/harbour/requirements.yaml
    """
    results = read_results(newest(folder))
    kept = results.folder / "config" / results.trial.site / "requirements.yaml"
    ended = results.verdict.ended if results.verdict else None
    finish(results, load_requirements(requirements or kept), results.folder, ended)
    show(results)
    assert results.verdict
    raise typer.Exit(VERDICT_CODES[results.verdict.verdict])


def baseline(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of trials; default: the newest.")
    ] = None,
    site: SiteOption = "lab",
    write: Annotated[
        Path | None, typer.Option(help="File to write; default: requirements.yaml of the site.")
    ] = None,
) -> None:
    """Write requirements from the figures of trials. Contracts stay as they are.

    Example: seatrial baseline --site harbour trials/harbour-20261120-1200
    """
    results = [read_results(folder) for folder in folders or [newest(None)]]
    existing = site_file(site).with_name("requirements.yaml")
    made = make_baseline(results, existing)
    made.write(write)
    for change in made.changes:
        out.print(str(change), markup=False)
