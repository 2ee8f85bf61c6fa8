"""``seatrial job``: job scripts for users, from the templates of ``slurm-templates/jobs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from seatrial.base.errors import InputError, LabError
from seatrial.base.paths import TRIALS
from seatrial.cli.screen import open_console, out
from seatrial.cli.trial_folders import writing
from seatrial.job.measured import SiteTrials
from seatrial.job.plan import plan
from seatrial.job.render import render as render_script
from seatrial.job.request import Request, Surroundings
from seatrial.job.submit import TIMEOUT_S, Run, run_here
from seatrial.job.submit import submit as submit_script
from seatrial.job.template import load_template, load_templates
from seatrial.report.text import line
from seatrial.results.requirements import load_requirements
from seatrial.site.load import load_site, site_file
from seatrial.site.model import Site
from seatrial.stack import load_stack
from seatrial_lab.adapter import attach
from seatrial_lab.common.paths import instance_of

app = typer.Typer(
    help="Write and submit job scripts from templates.\n\n"
    "Example: seatrial job render npb --nodes 4 --set kernel=is",
    no_args_is_help=True,
)
errors = open_console(stderr=True, highlight=False, soft_wrap=True)

TemplateName = Annotated[
    str, typer.Argument(metavar="TEMPLATE", help="Name of a template; see seatrial job list.")
]
SiteName = Annotated[str, typer.Option("--site", "-s", help="A site, or a path to its file.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--kind", "-k", metavar="KIND",
        help="communication-bound, compute-bound or latency-bound.",
    ),
]  # fmt: skip
Nodes = Annotated[int | None, typer.Option("--nodes", "-N", help="Number of nodes.")]
Ranks = Annotated[int | None, typer.Option("--ranks-per-node", "-n", help="Ranks on each node.")]
TransportName = Annotated[
    str | None, typer.Option("--transport", "-t", help="MPI and path of its messages.")
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="NIC profile; default: by trials, else by the kind."),
]
Mpi = Annotated[
    str | None, typer.Option("--mpi", metavar="MPI", help="openmpi, mpich or intelmpi.")
]
LauncherName = Annotated[
    str | None,
    typer.Option(
        "--launcher", "-l", metavar="NAME", help="srun, mpirun or mpiexec; default: srun."
    ),
]
Trials = Annotated[
    Path | None, typer.Option("--trials", help="Folder of the site's trials; default: trials/.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Value of the template; repeatable."),
]


def _script(
    template: str, site: str, settings: list[str] | None, trials: Path | None, **options: Any
) -> str:
    """The script for the options of ``render`` and ``submit``, which are fields of Request."""
    request = Request(load_template(template), values=values_of(settings), **options)
    command = ["seatrial", "job", "render", template, "--site", site]
    for option, given in options.items():
        command += [f"--{option.replace('_', '-')}", str(given)] if given is not None else []
    for setting in settings or []:
        command += ["--set", setting]
    if trials:
        command += ["--trials", str(trials)]
    return render_script(plan(request, surroundings_of(site, trials)), command)


def values_of(settings: list[str] | None) -> dict[str, str]:
    """The values that ``--set`` gives. Raises InputError."""
    values = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write KEY=VALUE")
        values[key] = value
    return values


def surroundings_of(name: str, trials: Path | None = None) -> Surroundings:
    """What is known of a site. ``trials``: the folder of its trials, if it is not the usual one."""
    file = site_file(name)
    site = load_site(file)
    try:
        stack = load_stack(site)
    except LabError:
        stack = None  # then programs and modules must be named
    modules = {}
    if stack:
        folder = Path(stack.prefix) / "modules"
        modules = {module.stem: str(folder) for module in folder.glob("*.lua")}
    bounds = file.with_name("requirements.yaml")
    requirements = load_requirements(bounds) if bounds.is_file() else None
    place = trials or (TRIALS if TRIALS.is_dir() else None)
    site_trials = SiteTrials(place, site.name, _remark) if place else None
    return Surroundings(site, stack, modules, requirements, site_trials)


def _remark(text: str) -> None:
    """Standard output is the script's."""
    errors.print(line(text), markup=False)


def _sbatch_of(site: Site, instance: str | None) -> Run:
    """Where sbatch of a site runs: on the login node of a lab, else on this machine."""
    if not site.lab:
        return run_here
    lab = attach(instance_of(site.name, instance))
    return lambda argv, stdin: lab.run(argv, stdin=stdin, timeout=TIMEOUT_S)


@app.command("list")
def list_templates(
    template: Annotated[
        str | None, typer.Argument(help="Show the values of this template.")
    ] = None,
) -> None:
    """List the templates, or the values of one template.

    Example: seatrial job list hpl
    """
    if template is None:
        table = Table("template", "application", "launcher", "what it runs")
        for name, one in load_templates().items():
            head = one.header
            kinds = [head.kind] if head.kind else sorted(set(head.kinds.values()))
            launchers = "any" if len(head.launchers) == 3 else ", ".join(head.launchers)
            table.add_row(name, ", ".join(kinds) or "--kind", launchers, head.description)
        out.print(table)
        return
    chosen = load_template(template)
    out.print(f"{chosen.name}: {chosen.header.description}", markup=False)
    table = Table("value", "default", "meaning")
    for name, parameter in chosen.parameters.items():
        default = f"the stack's {parameter.program}" if parameter.program else parameter.default
        shown = "required" if parameter.required else "" if default is None else str(default)
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        table.add_row(name, shown, parameter.help + choices)
    out.print(table)


@app.command()
def render(
    template: TemplateName,
    site: SiteName = "lab",
    mpi: Mpi = None,
    launcher: LauncherName = None,
    kind: KindOption = None,
    nodes: Nodes = None,
    ranks_per_node: Ranks = None,
    transport: TransportName = None,
    profile: Profile = None,
    trials: Trials = None,
    settings: Set = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
) -> None:
    """Print a job script, or write it to a file. The script needs no Seatrial where it runs.

    Example: seatrial job render mpi --mpi openmpi --set program=./app -o app.sh
    """
    text = _script(
        template, site, settings, trials, mpi=mpi, launcher=launcher, kind=kind, nodes=nodes,
        ranks_per_node=ranks_per_node, transport=transport, profile=profile,
    )  # fmt: skip
    if output is None:
        typer.echo(text, nl=False)
        return
    with writing(output, "--output", "the job script"):
        output.write_text(text)
        output.chmod(0o755)
    out.print(f"wrote {output}; next: sbatch {output}", markup=False)


@app.command()
def submit(
    template: TemplateName,
    site: SiteName = "lab",
    mpi: Mpi = None,
    launcher: LauncherName = None,
    kind: KindOption = None,
    nodes: Nodes = None,
    ranks_per_node: Ranks = None,
    transport: TransportName = None,
    profile: Profile = None,
    trials: Trials = None,
    settings: Set = None,
    test_only: Annotated[
        bool, typer.Option("--test-only", help="Let sbatch check the job, but not queue it.")
    ] = False,
    instance: Annotated[
        str | None, typer.Option("--instance", "-i", help="Name of the lab, if the site is a lab.")
    ] = None,
) -> None:
    """Print a job script and submit it; in a lab, on its login node.

    Example: seatrial job submit npb --nodes 4 --set kernel=is --test-only
    """
    text = _script(
        template, site, settings, trials, mpi=mpi, launcher=launcher, kind=kind, nodes=nodes,
        ranks_per_node=ranks_per_node, transport=transport, profile=profile,
    )  # fmt: skip
    typer.echo(text)
    sys.stdout.flush()
    sbatch = _sbatch_of(load_site(site_file(site)), instance)
    answer = submit_script(text, ["--test-only"] if test_only else [], sbatch)
    out.print(answer, markup=False)
