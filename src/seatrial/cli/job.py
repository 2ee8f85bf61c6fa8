"""``seatrial job``: job scripts for users, from the templates of ``slurm-templates/jobs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base.errors import InputError, LabError
from seatrial.job import header
from seatrial.job.plan import plan
from seatrial.job.render import render as render_script
from seatrial.job.request import Request, Surroundings
from seatrial.job.submit import submit as submit_script
from seatrial.results.requirements import load_requirements
from seatrial.site.load import load_site, site_file
from seatrial.stack import load_stack

app = typer.Typer(
    help="Job scripts for users: the tuned MPI, the right launcher, the NIC profile that suits.",
    no_args_is_help=True,
)
out = Console(highlight=False, soft_wrap=True)

TemplateName = Annotated[str, typer.Argument(metavar="TEMPLATE", help="See seatrial job list.")]
SiteName = Annotated[str, typer.Option("--site", "-s", help="A site, or a path to its file.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--kind", "-k", metavar="communication-bound|compute-bound|latency-bound",
        help="What the application is: chooses the transport and the NIC profile.",
    ),
]  # fmt: skip
Nodes = Annotated[int | None, typer.Option("--nodes", "-N", help="How many nodes.")]
Ranks = Annotated[int | None, typer.Option("--ranks-per-node", "-n", help="Ranks on each node.")]
TransportName = Annotated[
    str | None, typer.Option("--transport", "-t", help="Instead of the one chosen.")
]
Profile = Annotated[
    str | None, typer.Option("--profile", "-p", help="NIC profile, instead of the one chosen.")
]
LauncherName = Annotated[
    str | None,
    typer.Option("--launcher", "-l", metavar="srun|mpirun|mpiexec", help="What starts the ranks."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A value of the template (job list TEMPLATE)."),
]


def _script(
    template: str,
    site: str,
    kind: str | None,
    nodes: int | None,
    ranks_per_node: int | None,
    transport: str | None,
    profile: str | None,
    launcher: str | None,
    settings: list[str] | None,
) -> str:
    values = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write KEY=VALUE")
        values[key] = value
    request = Request(
        header.template(template), kind, nodes, ranks_per_node, transport, profile, launcher, values
    )
    named: dict[str, str | int | None] = {
        "--kind": kind, "--nodes": nodes, "--ranks-per-node": ranks_per_node,
        "--transport": transport, "--profile": profile, "--launcher": launcher,
    }  # fmt: skip
    command = ["seatrial", "job", "render", template, "--site", site]
    for option, given in named.items():
        command += [option, str(given)] if given is not None else []
    for setting in settings or []:
        command += ["--set", setting]
    return render_script(plan(request, _surroundings(site)), command)


def _surroundings(name: str) -> Surroundings:
    file = site_file(name)
    site = load_site(file)
    try:
        stack = load_stack(site)
    except LabError:
        stack = None  # then programs and modules must be named
    modules = {}
    if stack:
        folder = Path(stack.prefix) / "modules"
        modules = {found.stem: str(folder) for found in folder.glob("*.lua")}
    bounds = file.with_name("requirements.yaml")
    requirements = load_requirements(bounds) if bounds.is_file() else None
    return Surroundings(site, stack, modules, requirements)


@app.command("list")
def list_templates(
    template: Annotated[
        str | None, typer.Argument(help="Show the values that this one takes.")
    ] = None,
) -> None:
    """List the templates, or the values that one of them takes."""
    if template is None:
        table = Table("template", "application", "MPI", "launcher", "what it runs")
        for name, one in header.templates().items():
            head = one.header
            kinds = [head.kind] if head.kind else sorted(set(head.kinds.values()))
            mpi = "any" if len(head.mpi) == 3 else ", ".join(head.mpi)
            launchers = "any" if len(head.launchers) == 3 else ", ".join(head.launchers)
            table.add_row(name, ", ".join(kinds) or "--kind", mpi, launchers, head.description)
        out.print(table)
        return
    chosen = header.template(template)
    out.print(f"{chosen.name}: {chosen.header.description}", markup=False)
    table = Table("value", "default", "what it is")
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
    kind: KindOption = None,
    nodes: Nodes = None,
    ranks_per_node: Ranks = None,
    transport: TransportName = None,
    profile: Profile = None,
    launcher: LauncherName = None,
    settings: Set = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
) -> None:
    """Print a job script, or write it to a file. It needs no Seatrial where it runs."""
    text = _script(
        template, site, kind, nodes, ranks_per_node, transport, profile, launcher, settings
    )
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text)
        output.chmod(0o755)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from None
    out.print(f"wrote {output}; next: sbatch {output}", markup=False)


@app.command()
def submit(
    template: TemplateName,
    site: SiteName = "lab",
    kind: KindOption = None,
    nodes: Nodes = None,
    ranks_per_node: Ranks = None,
    transport: TransportName = None,
    profile: Profile = None,
    launcher: LauncherName = None,
    settings: Set = None,
    test_only: Annotated[
        bool, typer.Option("--test-only", help="Let sbatch check the job, but not queue it.")
    ] = False,
    instance: Annotated[
        str | None, typer.Option("--instance", "-i", help="Which lab, where the site is one.")
    ] = None,
) -> None:
    """Print a job script and submit it with sbatch; for a lab, on its login node."""
    text = _script(
        template, site, kind, nodes, ranks_per_node, transport, profile, launcher, settings
    )
    typer.echo(text)
    sys.stdout.flush()
    said = submit_script(
        load_site(site_file(site)), text, ["--test-only"] if test_only else [], instance
    )
    out.print(said, markup=False)
