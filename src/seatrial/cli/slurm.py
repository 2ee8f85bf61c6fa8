"""``seatrial slurm``: install, check and remove the Slurm scripts of NIC profiles."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.syntax import Syntax
from rich.table import Table

from seatrial.base.errors import EXIT_REJECTED, InputError, LabError, Problem
from seatrial.cli.screen import open_console, out
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Site
from seatrial.slurm import install as installing
from seatrial.slurm import running, versions
from seatrial.slurm.check import check as check_slurm
from seatrial.slurm.check import mentions, names_ours, parse_config
from seatrial.slurm.layout import Layout
from seatrial.slurm.policy import policy_of
from seatrial.slurm.render import render
from seatrial_lab.common.paths import instance_of
from seatrial_lab.common.slurm_files import lab_layout

app = typer.Typer(
    help="Install and check the Slurm scripts of NIC profiles.\n\n"
    "Example: seatrial slurm check --site harbour",
    no_args_is_help=True,
)
DEFAULT = Layout()

SiteOption = Annotated[str, typer.Option("--site", "-s", help="A site, or a path to its file.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes; write nothing.")]
Root = Annotated[Path, typer.Option(help="Folder of a node image; default: this machine.")]
Only = Annotated[
    Literal["both", "nodes", "controller"],
    typer.Option(metavar="PART", help="both, nodes or controller."),
]
Libexec = Annotated[str, typer.Option(metavar="FOLDER", help="Of the scripts.")]
SlurmFolder = Annotated[str, typer.Option(metavar="FOLDER", help="Of slurm.conf.")]
Units = Annotated[str, typer.Option(metavar="FOLDER", help="Of systemd units.")]
State = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="State of nodes; default: site.yaml.")
]
Python = Annotated[str, typer.Option(help="Python 3.6 or later on the nodes.")]


def _plan(
    site: str, layout: Layout, root: Path, only: str, force: bool = False
) -> list[installing.Step]:
    if not root.is_dir():
        raise InputError(f"--root {root} is no folder")
    files = render(policy_of(_site(site), layout), layout)
    if only != "both":
        files = [file for file in files if file.where in (only, "both")]
    return installing.plan(files, root, layout, force)


def _site(name: str) -> Site:
    site = load_site(site_file(name))
    if set(site.nic_profiles) <= {"default"}:
        raise InputError(
            f"site {name} has no NIC profile but default: there is nothing to install for it"
        )
    return site


@app.command()
def install(
    site: SiteOption = "lab",
    dry_run: DryRun = False,
    root: Root = Path("/"),
    only: Only = "both",
    libexec: Libexec = DEFAULT.libexec,
    slurm_conf: SlurmFolder = DEFAULT.slurm,
    units: Units = DEFAULT.units,
    state: State = None,
    python: Python = DEFAULT.python,
    force: Annotated[bool, typer.Option("--force", help="Replace files of others too.")] = False,
) -> None:
    """Install the Slurm scripts on this machine or into an image. slurm.conf is not changed.

    Example: seatrial slurm install --site harbour --dry-run
    """
    layout = Layout(libexec=libexec, slurm=slurm_conf, units=units, python=python, state=state)
    if _site(site).lab and root == Path("/") and not dry_run:
        raise InputError(
            f"site {site} is a lab, which gets these files by itself: --site names a cluster "
            "(--dry-run shows them, --root writes them elsewhere)"
        )
    steps = _plan(site, layout, root, only, force)
    _show(steps, layout)
    if dry_run:
        for step in steps:
            if step.old or step.state in ("changed", "foreign"):
                _print_diff(step.diff())
        out.print("nothing was written (--dry-run)")
        return
    steps = installing.install(steps, layout, _say)
    changed = sum(step.state in ("new", "changed") for step in steps)
    out.print(f"{changed} files written, {len(steps) - changed} were so already")
    _next_steps(steps, layout, site, root)


def _show(steps: list[installing.Step], layout: Layout) -> None:
    table = Table("file", "mode", "state", "where", "purpose", box=None, pad_edge=False)
    package = [step for step in steps if installing.in_version(step, layout)]
    if package:
        states = {step.state for step in package}
        worst = "foreign" if "foreign" in states else "changed"
        state = states.pop() if len(states) == 1 else worst
        folder = package[0].file.path.removesuffix(installing.in_version(package[0], layout))
        purpose = f"the node side, {len(package)} files, and its policy"
        table.add_row(folder, "0755", state, "nodes", purpose)
    for step in steps:
        if step not in package:
            file = step.file
            table.add_row(file.path, f"{file.mode:04o}", step.state, file.where, file.purpose)
    # Paths are there to be copied: rather a wide table than a shortened one.
    open_console(width=max(out.width, 140)).print(table)


def _say(text: str) -> None:
    out.print(text, markup=False)


def _print_diff(text: str) -> None:
    if out.is_terminal:
        out.print(Syntax(text, "diff", background_color="default"))
    else:
        print(text, end="")


def _next_steps(steps: list[installing.Step], layout: Layout, site: str, root: Path) -> None:
    paths = [step.file.path for step in steps]
    lines = []
    if layout.job_submit_beside in paths:
        lines.append(
            f"{layout.job_submit} is your own: let it ask ours, as the first lines of "
            f"{layout.job_submit_beside} say"
        )
    lines.append(f"in slurm.conf, as the last line: Include {layout.slurm_conf}")
    lines.append(f"in slurm.conf, in NodeName lines: the features that {layout.slurm_conf} lists")
    if layout.unit in paths:
        inside = "" if root == Path("/") else f" --root={root}"
        lines.append(f"on nodes: systemctl{inside} enable {Path(layout.unit).name}")
    lines.append(
        "on the controller: scontrol reconfigure; the first time, restart slurmctld, and slurmd on "
        "the nodes"
    )
    lines.append(f"then: seatrial slurm check --site {site}")
    out.print("Next:")
    for number, line in enumerate(lines, 1):
        out.print(f"  {number}. {line}", markup=False)


@app.command()
def uninstall(
    site: SiteOption = "lab",
    dry_run: DryRun = False,
    root: Root = Path("/"),
    only: Only = "both",
    libexec: Libexec = DEFAULT.libexec,
    slurm_conf: SlurmFolder = DEFAULT.slurm,
    units: Units = DEFAULT.units,
    not_in_use: Annotated[
        bool,
        typer.Option(
            "--not-in-use", help="Also if scontrol does not answer: Slurm does not use the files."
        ),
    ] = False,
) -> None:
    """Remove the installed files. First remove the Include line from slurm.conf.

    Refuses while Slurm names one of the files, because each job would drain its nodes; also if
    Slurm runs here and cannot be asked.

    Example: seatrial slurm uninstall --site harbour --dry-run
    """
    layout = Layout(libexec=libexec, slurm=slurm_conf, units=units)
    if not dry_run:
        _refuse_in_use(root, layout, not_in_use)
    try:
        gone = installing.remove(_plan(site, layout, root, only), layout, dry_run, _say)
    except PermissionError as error:
        raise LabError(f"{error.filename}: {error.strerror}: run this as root") from None
    for path in gone:
        _say(str(path))
    out.print(f"{len(gone)} files {'would be' if dry_run else 'were'} removed")


@app.command()
def check(
    site: SiteOption = "lab",
    instance: Annotated[
        str | None, typer.Option("--instance", "-i", help="Name of the lab, if the site is a lab.")
    ] = None,
    libexec: Libexec = DEFAULT.libexec,
    slurm_conf: SlurmFolder = DEFAULT.slurm,
) -> None:
    """Check that the running Slurm fits the NIC profiles. Exit code 1: it does not.

    Example: seatrial slurm check --site harbour
    """
    loaded_site = _site(site)
    lab = instance_of(loaded_site.name, instance) if loaded_site.lab else None
    layout = lab_layout(lab) if lab else Layout(libexec=libexec, slurm=slurm_conf)
    policy = policy_of(loaded_site, layout)
    findings = check_slurm(lambda words: _scontrol(words, lab), policy, layout)
    for finding in findings:
        out.print(f"{'ok   ' if finding.good else 'wrong'} {finding.sentence}", markup=False)
        if not finding.good:
            out.print(f"      -> {finding.fix}", markup=False)
    here = [] if lab else list(_wrong_here(layout, policy["digest"]))
    for sentence in here:
        _say(f"wrong {sentence}")
        _say(f"      -> seatrial slurm install --site {site}")
    if here or not all(finding.good for finding in findings):
        raise typer.Exit(EXIT_REJECTED)


def _wrong_here(layout: Layout, digest: str) -> Iterator[str]:
    """What is wrong with the files on this host, if it has any."""
    other = "on this host is of another version of the site file"
    if _differs(Path(layout.policy), digest):
        yield f"{layout.policy} {other}"
    version = versions.in_use(Path("/"), layout)
    if version in (None, Path(layout.libexec)):  # not on nodes; or without versions yet
        return
    used = versions.policy_in_use(Path("/"), layout)
    if used is None:
        yield f"{layout.command} starts {version}, which has no policy: a version is incomplete"
    elif used.get("digest") != digest:
        yield f"{version}, which {layout.command} starts, {other}"


def _refuse_in_use(root: Path, layout: Layout, not_in_use: bool = False) -> None:
    """Raise InputError if slurm.conf or the running Slurm of this machine names our files, or if
    that is unknown and the caller does not say that they are ``not_in_use``."""
    named, unread = mentions(root, layout)
    if named:
        text = "it names our files: {}; without them each job drains its nodes"
        fix = "remove the line, then: scontrol reconfigure"
        raise InputError(
            [
                Problem(mention.file, mention.number, "", text.format(mention.line), fix)
                for mention in named
            ]
        )
    file = root / layout.slurm.lstrip("/") / "slurm.conf"
    if root != Path("/"):
        for path in unread if os.path.lexists(file) else []:
            out.print(f"not read, so it may name our files: {path}", markup=False)
        return
    try:
        config = parse_config(_scontrol(["show", "config"], None))
    except LabError as error:
        present = os.path.lexists(file)
        unknown = [f"not read: {path}" for path in unread if present]
        unknown += [*running.daemons(), *([] if present else running.configless())]
        if unknown and not not_in_use:
            raise InputError(
                f"whether Slurm uses our files is unknown: {error}; {'; '.join(unknown)}: put "
                "scontrol in PATH, with SLURM_CONF if slurm.conf is elsewhere; or give "
                "--not-in-use if slurm.conf has none of our files"
            ) from None
        if present:
            _say(f"{file} names none of our files; the running Slurm: {error}")
        return
    if keys := names_ours(config, layout):
        raise InputError(
            f"the running Slurm has our files in {', '.join(keys)}: without them each job drains "
            "its nodes; remove the Include line from slurm.conf, then: scontrol reconfigure"
        )


def _scontrol(words: list[str], lab: str | None) -> str:
    command = ["scontrol", *words]
    if lab:
        from seatrial_lab.native.engine import Lab

        return Lab.attach(lab).run(command, user="root", timeout=60, check=True).stdout
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise LabError("scontrol cannot be asked: it is not in PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"scontrol cannot be asked: {error}") from None
    if answer.returncode:
        raise LabError(f"{' '.join(command)}: {running.complaint(answer.stderr)}")
    return answer.stdout


def _differs(file: Path, digest: str) -> bool:
    try:
        return json.loads(file.read_text()).get("digest") != digest
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
