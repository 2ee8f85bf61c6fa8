"""``seatrial site``: look at, check and start site descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base.errors import InputError, Problem
from seatrial.results.requirements import load_requirements
from seatrial.site.effects import statements
from seatrial.site.load import configs_folder, load_site, site_file, site_names
from seatrial.site.model import Site
from seatrial.site.new import write_starting_point

app = typer.Typer(help="Look at, check and start site descriptions.", no_args_is_help=True)
out = Console(highlight=False, soft_wrap=True)


@app.command("list")
def list_sites() -> None:
    """List the sites there are."""
    table = Table("site", "nodes", "transports", "description")
    for name in site_names():
        try:
            site = load_site(site_file(name))
        except InputError as error:
            table.add_row(
                name, "-", "-", f"{len(error.problems)} errors: seatrial site check {name}"
            )
            continue
        table.add_row(name, str(len(site.node_names)), str(len(site.transports)), site.description)
    out.print(table)


@app.command()
def check(
    sites: Annotated[
        list[str] | None, typer.Argument(help="Sites or files; all where none.")
    ] = None,
) -> None:
    """Print every error of a site's files, with file, line, field and a correction."""
    problems: list[Problem] = []
    names = sites or site_names()
    for name in names:
        try:
            file = site_file(name)
            load_site(file)
        except InputError as error:
            problems += error.problems
            continue
        try:
            load_requirements(file.with_name("requirements.yaml"))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    out.print(f"{', '.join(names)}: no errors")
    for name in names:
        for sentence in statements(load_site(site_file(name))):
            out.print(f"{name}: note: {sentence}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The site's name: lower-case letters, digits, _ -.")],
    nodes: Annotated[str, typer.Option(help="Node list, as Slurm writes it.")] = "node[01-04]",
    interface: Annotated[str, typer.Option(help="Interface of the network under test.")] = "eth1",
) -> None:
    """Write a commented starting point: site.yaml, requirements.yaml and settings.py."""
    folder = write_starting_point(configs_folder() / name, name, nodes, interface)
    out.print(f"wrote {folder}; next: edit site.yaml, then seatrial site check {name}")


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option(help="Write here instead of standard output.")
    ] = None,
) -> None:
    """Print the JSON Schema of site.yaml, for editors."""
    text = json.dumps(site_schema(), indent=2) + "\n"
    if output:
        output.write_text(text)
    else:
        print(text, end="")


def site_schema() -> dict:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Seatrial site",
        **Site.model_json_schema(by_alias=True),
    }
