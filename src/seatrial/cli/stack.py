"""``seatrial stack``: show and build the software stack of a site.

``plan`` and ``provision`` are for the distribution's stack; ``build``, ``lock``, ``modules``,
``mirror`` and ``cache`` are for a stack of Spack.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from seatrial.base.errors import LabError
from seatrial.cli.screen import open_console
from seatrial.site.load import load_site, site_file
from seatrial.stack import Stack, load_stack
from seatrial_lab.software.provision import plan as make_plan
from seatrial_lab.software.provision import provision as make_stack

app = typer.Typer(
    help="Build and show the MPI libraries and benchmarks of a site.\n\n"
    "Example: seatrial stack status --site harbour",
    no_args_is_help=True,
)
console = open_console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SpackSite = Annotated[
    str, typer.Option("--site", "-s", help="A site whose stack is built by Spack.")
]


@app.command()
def status(
    as_json: Json = False,
    site: Annotated[
        str, typer.Option("--site", "-s", help="A site; default: the distribution's stack.")
    ] = "",
) -> None:
    """Show transports, programs and packages of a stack.

    Example: seatrial stack status --site mysite
    """
    stack = load_stack(load_site(site_file(site)) if site else None)
    if as_json:
        typer.echo(stack.model_dump_json(indent=1))
        return
    console.print(f"stack {stack.id} ({stack.source}, {stack.distribution}) in {stack.prefix}")
    _print_stack(stack)
    if stack.spack:
        _print_spack(stack)
        _print_missing(site)


def _print_stack(stack: Stack) -> None:
    table = Table("transport", "what", "versions", "programs")
    for name, part in stack.transports.items():
        versions = ", ".join(f"{key} {value}" for key, value in part.versions.items())
        table.add_row(name, part.description, versions, " ".join(part.programs))
    console.print(table)
    table = Table("BLAS", "version", "folder of libblas.so.3" if not stack.spack else "folder")
    for name, library in stack.blas_libraries.items():
        table.add_row(name, library.version, library.folder)
    console.print(table)


def _print_spack(stack: Stack) -> None:
    assert stack.spack is not None
    table = Table("package", "version", "spec", "hash")
    packages = {p.hash: p for part in stack.transports.values() for p in part.packages.values()}
    for part in sorted(packages.values(), key=lambda p: (p.name, p.spec)):
        spec = part.spec.removeprefix(f"{part.name}@{part.version} ")
        table.add_row(part.name, part.version, spec, part.hash[:7])
    console.print(table)
    facts = stack.spack
    console.print(
        f"Spack {facts.version} in {facts.root}, builtin packages {facts.builtin_version}"
    )
    for folder in stack.modulepath:
        typer.echo(f"module use {folder}")


def _print_drift(site: str) -> None:
    from seatrial.stack import portable
    from seatrial.stack.paths import site_paths

    file = site_file(site)
    paths = site_paths(load_site(file), file)
    if changed := portable.differences(paths):
        count = sum(line.startswith("+") for line in changed)
        typer.echo(f"{count} packages differ from {paths.portable_lock} (seatrial stack lock)")


def _print_missing(site: str) -> None:
    from seatrial.stack import build
    from seatrial.stack.paths import site_paths

    file = site_file(site)
    paths = site_paths(load_site(file), file)
    graph = build.nodes(paths)
    if absent := build.missing(paths):
        names = " ".join(build.label(graph[key], graph) for key in absent)
        typer.echo(f"{len(absent)} packages are not built: {names}")


@app.command()
def plan(as_json: Json = False) -> None:
    """Show what `provision` would do.

    Example: seatrial stack plan
    """
    todo = make_plan()
    if as_json:
        fields = {
            "prefix": str(todo.prefix),
            "distribution": todo.distribution,
            "debian_packages": todo.packages,
            "pypi": todo.pins,
            "steps": [step.name for step in todo.steps],
            "current": todo.empty,
        }
        typer.echo(json.dumps(fields, indent=1))
    else:
        _print_plan(todo.lines())


@app.command()
def provision() -> None:
    """Install and build what the distribution's stack lacks.

    Debian packages need root.

    Example: seatrial stack provision
    """
    todo = make_plan()
    _print_plan(todo.lines())
    if not todo.empty:
        stack = make_stack(_say)
        console.print(f"stack {stack.id} is ready in {stack.prefix}")


def _print_plan(lines: list[str]) -> None:
    for line in lines or ["the stack is complete: nothing to do"]:
        typer.echo(line)


@app.command()
def build(
    site: SpackSite,
    mirror: Annotated[
        Path | None, typer.Option(help="Folder of sources, from `stack mirror`.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of binaries, from `stack cache`.")
    ] = None,
) -> None:
    """Build the missing packages of a site's Spack environment.

    Example: seatrial stack build --site mysite
    """
    from seatrial.stack.make import build_stack

    file = site_file(site)
    start = time.monotonic()
    outcome, stack = build_stack(load_site(file), file, _say, mirror=mirror, cache=cache)
    if not outcome.built and not outcome.failures:
        took = time.monotonic() - start
        typer.echo(f"nothing to build: {outcome.present} packages are installed ({took:.1f} s)")
    else:
        for line in outcome.summary():
            typer.echo(line)
    _print_drift(site)
    if stack:
        console.print(f"stack {stack.id}: {' '.join(stack.names())}", highlight=False)
    if outcome.failures:
        raise LabError(f"{len(outcome.failures)} packages were not built")


@app.command()
def lock(site: SpackSite) -> None:
    """Write matrix.lock, and show what changed.

    It is the concretized environment without paths of the machine.

    Example: seatrial stack lock --site mysite
    """
    from seatrial.stack import portable
    from seatrial.stack.make import prepare

    file = site_file(site)
    paths = prepare(load_site(file), file, _say)
    for line in portable.differences(paths):
        typer.echo(line)
    typer.echo(f"{portable.write(paths)} is written")


@app.command()
def modules(
    site: SpackSite,
    figures: Annotated[
        Path | None, typer.Option(help="Folder of a trial; its figures go into `module help`.")
    ] = None,
) -> None:
    """Write the module files of a site.

    Example: seatrial stack modules --site mysite --figures trials/mysite-1
    """
    from seatrial.report import module_help
    from seatrial.stack import modules as trees
    from seatrial.stack.make import prepare

    file = site_file(site)
    results = module_help.read(figures) if figures else None
    paths = prepare(load_site(file), file, _say)
    if results:
        texts = module_help.texts(results)
        trees.save_figures(paths, texts)
        typer.echo(f"figures of {results.trial.trial}: {' '.join(texts) or 'none of a transport'}")
    written = trees.refresh(paths, _say, force=results is not None)
    typer.echo("modules are written" if written else "modules are up to date")
    for kind in trees.KINDS:
        typer.echo(f"{kind}: {paths.module_root(kind)}")


@app.command()
def mirror(
    site: SpackSite, folder: Annotated[Path, typer.Argument(help="Folder to write.")]
) -> None:
    """Write the sources of all packages into a folder.

    Example: seatrial stack mirror --site mysite /srv/sources
    """
    from seatrial.stack import transfer
    from seatrial.stack.make import prepare

    file = site_file(site)
    count = transfer.mirror(prepare(load_site(file), file, _say), folder.resolve(), _say)
    typer.echo(f"{count} files in {folder}; use: seatrial stack build --site {site} --mirror ...")


@app.command()
def cache(
    site: SpackSite, folder: Annotated[Path, typer.Argument(help="Folder to write.")]
) -> None:
    """Write the binaries of all packages into a folder.

    They are not signed.

    Example: seatrial stack cache --site mysite /srv/binaries
    """
    from seatrial.stack import transfer
    from seatrial.stack.make import prepare

    file = site_file(site)
    count = transfer.cache(prepare(load_site(file), file, _say), folder.resolve(), _say)
    typer.echo(f"{count} packages in {folder}; use: seatrial stack build --site {site} --cache ...")


def _say(line: str) -> None:
    console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
