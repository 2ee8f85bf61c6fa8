"""``seatrial job tune``: which NIC profile and transport suit a user's own program."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from seatrial.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, InputError, LabError
from seatrial.base.paths import CHECKOUT
from seatrial.cli.job import Nodes, Ranks, SiteName, surroundings_of, values_of
from seatrial.cli.screen import open_console, out, say
from seatrial.cli.selection import ProfileOption, TransportOption
from seatrial.job.request import Surroundings
from seatrial.job.submit import run_here
from seatrial.job.tune import job as slurm
from seatrial.job.tune.record import Candidate, Tuned
from seatrial.job.tune.request import Wish, limit_h, script, tuned_of
from seatrial.job.tune.session import RUNS_FOLDER, Session, opened
from seatrial.job.tune.study import LOOKS, Limits, Study
from seatrial.report.text import clean
from seatrial.results.statistics import Better
from seatrial.results.wording import number, plural
from seatrial.trial.machine import ThisMachine

#: what a command on its own may use
NODE_HOURS, MINUTES, RUN_LIMIT_S = 8.0, 120.0, 600


def tune(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="PROGRAM ARGUMENT", hidden=True)
    ] = None,
    site: SiteName = "lab",
    nodes: Nodes = 2,
    ranks_per_node: Ranks = None,
    profile: ProfileOption = None,
    transport: TransportOption = None,
    figure: Annotated[
        str, typer.Option(metavar="REGEX", help="Number in the output; default: wall time.")
    ] = "",
    better: Annotated[
        str | None, typer.Option(metavar="WAY", help="Of the figure: higher or lower.")
    ] = None,
    unit: Annotated[str, typer.Option(metavar="UNIT", help="Of the figure, such as s.")] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As account, partition, mem, module."),
    ] = None,
    run_limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="Limit of a run; default: 600."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="MINUTES", help="Limit of this command.")
    ] = MINUTES,
    node_hours: Annotated[
        float, typer.Option(metavar="N", help="Limit of all runs together.")
    ] = NODE_HOURS,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the result, or of a tune to continue."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan and its node hours.")
    ] = False,
) -> None:
    """Find the NIC profile and transport that suit your program.

    srun starts PROGRAM on all ranks; each run is a job of yours. Ctrl-C cancels it, and keeps
    what was measured.

    Example: seatrial job tune --nodes 4 --node-hours 2 -- ./app input.dat
    """
    limits = Limits(
        _above_zero("--node-hours", node_hours), _above_zero("--time-limit", time_limit) * 60
    )
    way = _way(figure, better, unit)
    asked = (figure, better, unit, settings, run_limit, profile, transport, ranks_per_node)
    if not program and output and (output / "record.jsonl").exists():
        if any(option for option in asked):
            raise InputError(
                f"--output {output}: a tune is continued as it began; without PROGRAM only "
                "--node-hours and --time-limit can be given"
            )
        wish = None
    else:
        wish = Wish(
            str(Path(site).resolve()) if "/" in site else site, list(program or []), Path.cwd(),
            2 if nodes is None else nodes, ranks_per_node,
            profile or [], transport or [], values_of(settings), figure, way,
            run_limit or RUN_LIMIT_S, unit,
        )  # fmt: skip
    if dry_run:
        if wish is None:
            raise InputError("--dry-run: name PROGRAM: this is for the plan of a tune that is new")
        around = surroundings_of(site)
        tuned = tuned_of(wish, around)
        _print_plan(tuned, limits, _refused(tuned, around) if _has_sbatch(around) else None)
        _check_budget(tuned, limits)
        return
    if wish:  # before there is a folder
        around = surroundings_of(site)
        tuned = tuned_of(wish, around)
        _check_budget(tuned, limits)
        _need_sbatch(site, around)
    folder = (output or _new_folder(wish)).absolute()
    with opened(folder) as book:
        if wish and book.tuned:
            _check_same(book.tuned, tuned, folder)
        elif wish:
            book.add(_without(tuned, _refused(tuned, around)))
        assert book.tuned
        if not wish:
            around = surroundings_of(book.tuned.site)
            _check_budget(book.tuned, limits)
            _need_sbatch(book.tuned.site, around)
        _print_plan(book.tuned, limits, {}, Study(book.tuned, book.runs, book.looks))
        say(f"folder: {folder}")
        with open_console(stderr=True).status("") as status:
            session = Session(
                folder, book, around, ThisMachine(), run_here, limits, say,
                lambda text: status.update(escape(text)),
            )  # fmt: skip
            answer = session.work()
    out.print()
    out.print(answer.text(), markup=False, end="")
    say(f"kept in {folder}: record.jsonl, answer.json, answer.txt, runs/")
    if session.signals:
        raise typer.Exit(EXIT_INTERRUPTED)
    if answer.decision.answer == "measure more":
        raise typer.Exit(EXIT_INCOMPLETE)


def _above_zero(option: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{option}: {value:g}; it must be above zero")
    return value


def _way(figure: str, better: str | None, unit: str) -> Better:
    if better not in (None, "higher", "lower"):
        raise InputError(f"--better: {better!r} is neither higher nor lower")
    if figure and better is None:
        raise InputError("--figure needs --better higher or --better lower")
    if better and not figure:
        raise InputError("--better is of a --figure: of the wall time, lower is better")
    if unit and not figure:
        raise InputError("--unit is of a --figure: the wall time is in s")
    if clean(unit) != unit or len(unit) > 20 or "\n" in unit:
        raise InputError(f"--unit: {clean(unit)!r}; give up to 20 letters, such as s or ns/day")
    return "higher" if better == "higher" else "lower"


def _new_folder(wish: Wish | None) -> Path:
    name = Path(wish.program[0]).name if wish and wish.program else "program"
    name = "".join(letter if letter.isalnum() else "-" for letter in name)[:40]
    return Path.cwd() / f"tune-{name}-{datetime.now():%Y%m%d-%H%M%S}"


def _check_same(before: Tuned, now: Tuned, folder: Path) -> None:
    """Refuse to continue a tune of another request. Raises InputError, which names the field."""
    for name in ("site_name", "program", "cwd", "nodes", "ranks_per_node", "settings", "figure",
                 "figure_unit", "better", "run_limit_s"):  # fmt: skip
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            raise InputError(
                f"--output {folder}: it has a tune with {name} {old!r}, not {new!r} (name another "
                "folder, or leave PROGRAM and its options out)"
            )
    added = {candidate.candidate for candidate in now.candidates} - {
        candidate.candidate for candidate in before.candidates
    }
    added = {candidate for candidate in added if candidate.name not in before.left_out}
    if added:
        names = ", ".join(sorted(candidate.name for candidate in added))
        raise InputError(f"--output {folder}: its tune does not compare {names}")


# -- Slurm


def _has_sbatch(around: Surroundings) -> bool:
    """Whether this user can submit jobs here: those of a lab are of its user, and not of root."""
    return shutil.which("sbatch") is not None and not (around.site.lab and os.geteuid() == 0)


def _need_sbatch(site: str, around: Surroundings) -> None:
    if _has_sbatch(around):
        return
    if around.site.lab:
        launcher = str(CHECKOUT / "seatrial")
        words = [launcher, "lab", "shell", "--site", site, "--", launcher, "job", "tune"]
        words += ["--site", site]
        raise LabError(f"jobs of a lab are submitted by its user: {shlex.join(words)} ...")
    raise LabError("sbatch is not installed here: run this on a login node of the cluster")


def _refused(tuned: Tuned, around: Surroundings) -> dict[Candidate, str]:
    """Candidate -> why Slurm takes no job of it. Raises LabError if Slurm does not answer."""
    refused = {}
    for chosen in tuned.candidates:
        folder = Path(tuned.cwd) / RUNS_FOLDER / "0"
        text = script(tuned, chosen.candidate, around, folder, "tune-test")
        if why := slurm.refusal(text, run_here):
            refused[chosen.candidate] = f"Slurm takes no such job: {why}"
    return refused


def _without(tuned: Tuned, refused: dict[Candidate, str]) -> Tuned:
    """The request without candidates that Slurm refuses. Raises InputError if too few are left."""
    left = [candidate for candidate in tuned.candidates if candidate.candidate not in refused]
    reasons = {candidate.name: why for candidate, why in refused.items()}
    if len(left) < 2:
        listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        raise InputError(f"there is nothing to compare: {listed}")
    return tuned.model_copy(update={"candidates": left, "left_out": {**tuned.left_out, **reasons}})


# -- the plan


def _check_budget(tuned: Tuned, limits: Limits) -> None:
    """Raise InputError if not even one run is within the node hours."""
    each = limit_h(tuned)
    if each > limits.node_hours:
        raise InputError(
            f"one run may take {number(each, 3)} node hours, and the limit is "
            f"{limits.node_hours:g}: raise --node-hours, or lower --run-limit or --nodes"
        )


def _print_plan(
    tuned: Tuned, limits: Limits, refused: dict[Candidate, str] | None, study: Study | None = None
) -> None:
    """What will run. ``refused`` None: there is no Slurm here that could be asked."""
    study = study or Study(tuned, [], [])
    ranks = tuned.nodes * tuned.ranks_per_node
    unit = f" ({tuned.unit})" if tuned.unit else ""
    figure = (
        f"figure {tuned.figure}{unit}, {tuned.better} is better" if tuned.figure else "wall time"
    )
    say(f"{shlex.join(tuned.program)}: {plural(tuned.nodes, 'node')}, {plural(ranks, 'rank')}, "
        f"{figure}")  # fmt: skip
    for chosen in tuned.candidates:
        candidate = chosen.candidate
        done = len(study.samples(candidate))
        how = f"--constraint={chosen.feature}" if chosen.feature else "no constraint"
        notes = [how, f"network {chosen.network} ({chosen.interface})"]
        notes += [f"{plural(done, 'run')} so far"] if done else []
        notes += [refused[candidate]] if refused and candidate in refused else []
        say(f"  {candidate.name}: {', '.join(notes)}")
    for text in tuned.left_out_lines():
        say(f"  left out: {text}")
    count = len(tuned.candidates) - len(refused or {})
    if count < 2:
        raise InputError("there is nothing to compare: Slurm takes too few of these jobs")
    each = limit_h(tuned)
    first = study.least * count
    say(
        f"each run: one job of {plural(tuned.nodes, 'whole node')}, at most {tuned.run_limit_s} s "
        f"and {number(each, 3)} node hours"
    )
    say(
        f"first look after {study.least} runs of each: {plural(first, 'run')}, at most "
        f"{number(first * each, 3)} node hours; then up to {LOOKS - 1} times twice as many"
    )
    say(
        f"limits: {number(limits.node_hours, 4)} node hours, {number(limits.seconds / 60, 4)} "
        "minutes with the time in the queue"
    )
    affordable = int(limits.node_hours / each)
    if affordable < first:
        say(f"note: for runs as long as their limit the node hours suffice for {affordable} runs; "
            "an answer needs shorter ones, or more node hours")  # fmt: skip
    if refused is None:
        say("note: there is no sbatch here, so Slurm was not asked whether it takes these jobs")
