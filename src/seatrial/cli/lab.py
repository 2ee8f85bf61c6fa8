"""``seatrial lab``: the labs on the command line."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from seatrial.base.errors import InputError
from seatrial.site.load import load_site, site_file
from seatrial_lab import adapter
from seatrial_lab.adapter import attach, end, lab_of_site
from seatrial_lab.common import state
from seatrial_lab.common.paths import instance_of
from seatrial_lab.common.spec import LOGIN
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab

app = typer.Typer(
    help="A Slurm cluster on this machine, native or emulated: no hardware needed.",
    no_args_is_help=True,
)
fault_app = typer.Typer(
    help="Plant faults in the running lab, to see them found.", no_args_is_help=True
)
app.add_typer(fault_app, name="fault")

Instance = Annotated[
    str, typer.Option("--instance", "-i", help="Which lab: several may run at once.")
]
OfSite = Annotated[str, typer.Option("--site", "-s", help="The site that describes it.")]
AnyInstance = Annotated[
    str | None,
    typer.Option("--instance", "-i", help="Which lab, where it is not named after its site."),
]
Node = Annotated[str, typer.Argument(help="A compute node, such as n1.")]


def _instance(site: str, instance: str | None) -> str:
    return instance or instance_of(load_site(site_file(site)).name)


@app.command()
def up(
    site: OfSite = "lab",
    instance: AnyInstance = None,
    accounting: Annotated[
        bool, typer.Option(help="Run slurmdbd and its database, for sacct.")
    ] = True,
) -> None:
    """Start the lab, or revive what is dead in it. Does no harm when it is up."""
    console = Console(stderr=True)
    lab = lab_of_site(site, instance, accounting)
    with console.status("starting the lab") as line:
        started = lab.up(lambda step: line.update(f"starting the lab: {step}"))
    names = f"{lab.spec.nodes[0]} to {lab.spec.nodes[-1]}"
    verb = "is up" if started else "was up already"
    console.print(f"lab {lab.spec.instance} {verb}: {len(lab.spec.nodes)} nodes, {names}")


@app.command()
def down(site: OfSite = "lab", instance: AnyInstance = None) -> None:
    """End the lab and remove everything of it, also after a crash."""
    console = Console(stderr=True)
    name = _instance(site, instance)
    with console.status("ending the lab"):
        ended = end(name)
    console.print(f"lab {name} {'is down' if ended else 'was not up'}")


@app.command()
def status(
    site: OfSite = "lab",
    instance: AnyInstance = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show nodes, daemons, versions and planted faults. Exit code 4 if the lab is not up."""
    name = _instance(site, instance)
    found = adapter.status(name)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _print_status(found)
    if found["state"] != "up":
        raise typer.Exit(4)


def _print_status(found: dict[str, Any]) -> None:
    console = Console()
    console.print(f"lab {found['instance']}: {found['state']}", end="")
    if not found["hosts"]:
        console.print(" (seatrial lab up)")
        others = [name for name in state.instances() if name != found["instance"]]
        if others:
            console.print(f"other instances: {', '.join(others)}")
        return
    console.print(f" for {found['uptime_s']:.0f} s; {', '.join(found['versions'].values())}")
    table = Table("node", "Slurm", "eth0 (management)", "eth1 (test)", "daemons")
    for host in found["hosts"]:
        shown = host["slurm_state"] or "-" if host["alive"] else "DEAD"
        table.add_row(
            host["name"],
            shown,
            host["mgmt_address"],
            host["test_address"] or "-",
            " ".join(host["daemons"]),
        )
    console.print(table)
    for fault in found["faults"]:
        console.print(f"planted fault: {fault['kind']} {fault['node']}: {fault['detail']}")


@app.command(context_settings={"allow_interspersed_args": False})
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(help="What to run; nothing: a login shell.")
    ] = None,
    site: OfSite = "lab",
    instance: AnyInstance = None,
    node: Annotated[str, typer.Option("--node", "-n", help="Where to run it.")] = LOGIN,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Who runs it: the job user, or root.")
    ] = None,
) -> None:
    """Run a command in the lab, with its input, output and exit code; or open a shell."""
    lab = attach(_instance(site, instance))
    lab.exec(command or [], user=user, node=node)


@fault_app.command("link")
def fault_link(
    node: Node,
    rate: Annotated[
        str | None, typer.Option(help="Limit both directions, such as 100mbit.")
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Pull the cable.")] = False,
    instance: Instance = "lab",
) -> None:
    """Make a node's test link slow, or cut it."""
    if (rate is None) == (not down):
        raise InputError("lab fault link: give either --rate or --down")
    lab = Lab.attach(instance)
    if rate is not None:
        faults.slow_link(lab, node, rate)
    else:
        faults.cut_link(lab, node)


@fault_app.command("cpu")
def fault_cpu(
    node: Node,
    percent: Annotated[float, typer.Option(help="What is left of the processor time.")],
    instance: Instance = "lab",
) -> None:
    """Make a node's processors slow, for its later jobs too."""
    faults.slow_cpu(Lab.attach(instance), node, percent)


@fault_app.command("kill")
def fault_kill(node: Node, instance: Instance = "lab") -> None:
    """Let a node die, as by a power cut."""
    faults.kill_node(Lab.attach(instance), node)


@fault_app.command("slurmd")
def fault_slurmd(
    node: Node,
    start: Annotated[bool, typer.Option("--start/--kill", help="Kill slurmd, or start it again.")],
    instance: Instance = "lab",
) -> None:
    """Kill the slurmd of a node (its jobs go on), or start it again."""
    lab = Lab.attach(instance)
    if start:
        faults.start_slurmd(lab, node)
    else:
        faults.kill_slurmd(lab, node)


@fault_app.command("clear")
def fault_clear(
    node: Annotated[str | None, typer.Argument(help="Only this node's faults.")] = None,
    instance: Instance = "lab",
) -> None:
    """Take all planted faults away and bring dead nodes back."""
    cleared = faults.clear(Lab.attach(instance), node)
    for fault in cleared:
        typer.echo(f"cleared: {fault.kind} {fault.node}: {fault.detail}")
