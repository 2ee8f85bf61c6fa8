"""``seatrial stack``: what the lab's software is, what is missing of it, and making it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.stack import load_stack
from seatrial.stack.provision import plan as make_plan
from seatrial.stack.provision import provision as make_stack

app = typer.Typer(help="The lab's MPI libraries and benchmarks.", no_args_is_help=True)
console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def status(as_json: Json = False) -> None:
    """What the stack consists of."""
    stack = load_stack()
    if as_json:
        typer.echo(stack.model_dump_json(indent=1))
        return
    console.print(f"stack {stack.id} ({stack.source}, {stack.distribution}) in {stack.prefix}")
    table = Table("transport", "what", "versions", "programs")
    for name, part in stack.transports.items():
        versions = ", ".join(f"{key} {value}" for key, value in part.versions.items())
        table.add_row(name, part.description, versions, " ".join(part.programs))
    console.print(table)
    table = Table("BLAS", "version", "folder of libblas.so.3")
    for name, library in stack.blas_libraries.items():
        table.add_row(name, library.version, library.folder)
    console.print(table)


@app.command()
def plan(as_json: Json = False) -> None:
    """What `provision` would do."""
    found = make_plan()
    if as_json:
        fields = {
            "prefix": str(found.prefix),
            "distribution": found.distribution,
            "debian_packages": found.packages,
            "pypi": found.pins,
            "steps": [step.name for step in found.steps],
            "current": found.empty,
        }
        typer.echo(json.dumps(fields, indent=1))
    else:
        _print_plan(found.lines())


@app.command()
def provision() -> None:
    """Install and build what is missing (needs root where Debian packages are)."""
    found = make_plan()
    _print_plan(found.lines())
    if not found.empty:
        stack = make_stack(lambda line: console.print(line, style="dim", highlight=False))
        console.print(f"stack {stack.id} is ready in {stack.prefix}")


def _print_plan(lines: list[str]) -> None:
    for line in lines or ["the stack is complete: nothing to do"]:
        typer.echo(line)
