"""``seatrial site``: write, check and list site descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from seatrial.base.errors import InputError, Problem
from seatrial.cli.plan import print_clauses
from seatrial.cli.screen import out
from seatrial.cli.trial_folders import writing
from seatrial.plan.check import CheckedSite, check_site
from seatrial.results.wording import plural
from seatrial.site.load import configs_folder, load_site, site_file, site_names
from seatrial.site.model import Site
from seatrial.site.new import write_starting_point
from seatrial_lab.adapter import lab_of_site

app = typer.Typer(
    help="Write, check and list site descriptions (site.yaml).\n\n"
    "Example: seatrial site check harbour",
    no_args_is_help=True,
)


@app.command("list")
def list_sites() -> None:
    """List the sites.

    Example: seatrial site list
    """
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
        list[str] | None, typer.Argument(help="Sites or paths of their files; default: all.")
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", "-s", help="The same as SITES; other commands have it, too."),
    ] = None,
) -> None:
    """Check the files of sites. It runs nothing.

    Prints each error with file, line, field and correction, and the cases that each clause
    judges.

    Example: seatrial site check harbour
    """
    problems: list[Problem] = []
    checked: dict[str, CheckedSite] = {}
    names = [*(sites or []), *(site or [])] or site_names()
    for name in names:
        try:
            checked[name] = check_site(site_file(name))
            if checked[name].site.lab:
                lab_of_site(name)  # an error where no engine can make this lab
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    for name, checked_site in checked.items():
        out.print(f"{name}: no errors, {plural(len(checked_site.plan.cases), 'case')}")
        for sentence in [
            *([checked_site.stack_missing] if checked_site.stack_missing else []),
            *checked_site.notes,
        ]:
            out.print(f"{name}: note: {sentence}", markup=False)
        print_clauses(checked_site, prefix=f"{name}: ")


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Name of the site: lower-case letters, digits, _ and -.")
    ],
    nodes: Annotated[str, typer.Option(help="Node list as in slurm.conf.")] = "node[01-04]",
    interface: Annotated[str, typer.Option(help="Interface of the network under test.")] = "eth1",
) -> None:
    """Write the files of a new site.

    They are site.yaml, requirements.yaml and settings.py.

    Example: seatrial site new harbour --nodes 'node[01-16]' --interface eth1
    """
    folder = write_starting_point(configs_folder() / name, name, nodes, interface)
    out.print(f"wrote {folder}; next: edit site.yaml, then seatrial site check {name}")


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option(help="File; default: standard output.")] = None,
) -> None:
    """Print the JSON Schema of site.yaml, for editors.

    Example: seatrial site schema --output site-configs/site.schema.json
    """
    text = json.dumps(site_schema(), indent=2) + "\n"
    if output:
        with writing(output, "--output", "the schema"):
            output.write_text(text)
    else:
        print(text, end="")


def site_schema() -> dict:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Seatrial site",
        **Site.model_json_schema(by_alias=True),
    }
