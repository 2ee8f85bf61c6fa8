"""``seatrial lab``: start, use and end a lab, and plant faults in it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from seatrial.base import lock
from seatrial.base.errors import InputError
from seatrial.base.paths import CHECKOUT
from seatrial.base.suggest import suggest
from seatrial.cli.provision import signals_as_interrupt, told_steps
from seatrial.cli.screen import open_console
from seatrial.site.load import load_site, site_file
from seatrial_lab import adapter
from seatrial_lab.adapter import attach, end, lab_of_site
from seatrial_lab.common import state
from seatrial_lab.common.paths import LabPaths, instance_of, named
from seatrial_lab.common.spec import LOGIN
from seatrial_lab.native import faults
from seatrial_lab.native.engine import Lab
from seatrial_lab.virtual import faults as virtual_faults
from seatrial_lab.virtual.engine import VirtualLab

app = typer.Typer(
    help="Start and use a lab: a Slurm cluster on this machine.\n\n"
    "Example: seatrial lab up --site lab-virtual",
    no_args_is_help=True,
)
fault_app = typer.Typer(
    help="Plant faults in the running lab.\n\nExample: seatrial lab fault link n3 --rate 100mbit",
    no_args_is_help=True,
)
app.add_typer(fault_app, name="fault")

OfSite = Annotated[str, typer.Option("--site", "-s", help="Site of the lab.")]
AnyInstance = Annotated[
    str | None,
    typer.Option("--instance", "-i", help="Name of the lab; default: of its site."),
]
Node = Annotated[str, typer.Argument(help="A compute node, such as n1.")]


def _instance(site: str, instance: str | None) -> str:
    """The name of a site's lab. A site with errors has one as well: it may be up."""
    return instance_of(site_file(site).parent.name, instance)


def _other_checkout(checkout: str) -> str:
    """``checkout``, which started a lab; empty if it is this one."""
    return "" if checkout == str(CHECKOUT) else checkout


def _native(site: str, instance: str | None) -> Lab:
    """The running lab. Raises InputError if it is virtual: there, only links have faults."""
    if load_site(site_file(site)).virtual:
        raise InputError(f"site {site}: in a virtual lab, only lab fault link plants faults")
    return Lab.attach(_instance(site, instance))


@app.command()
def up(
    site: OfSite = "lab",
    instance: AnyInstance = None,
    accounting: Annotated[bool, typer.Option(help="With slurmdbd, for sacct.")] = True,
) -> None:
    """Start the lab, or restart its dead daemons.

    Example: seatrial lab up --site lab-virtual
    """
    console = open_console(stderr=True)
    lab = lab_of_site(site, instance, accounting)
    with signals_as_interrupt(), told_steps(console, "starting the lab") as tell:
        started = lab.up(lambda step: tell(f"starting the lab: {step}"))
    names = f"{lab.spec.nodes[0]} to {lab.spec.nodes[-1]}"
    verb = "is up" if started else "was up already"
    console.print(f"lab {lab.spec.instance} {verb}: {len(lab.spec.nodes)} nodes, {names}")
    if processors := adapter.status(lab.spec.instance)["versions"].get("processors"):
        console.print(processors, markup=False)


@app.command()
def down(site: OfSite = "lab", instance: AnyInstance = None) -> None:
    """End the lab and remove all its parts, also after a crash.

    Example: seatrial lab down
    """
    console = open_console(stderr=True)
    name = _instance(site, instance)
    if not named(instance) and (other := _other_checkout(adapter.checkout_of(name))):
        raise InputError(
            f"lab {name} was started by the checkout {other}: end it in that folder, or here with "
            f"seatrial lab down --instance {name}"
        )
    with told_steps(console, "ending the lab") as tell:
        ended = end(name, lambda step: tell(f"ending the lab: {step}"))
    console.print(f"lab {name} {'is down' if ended else 'was not up'}")


@app.command()
def status(
    site: OfSite = "lab",
    instance: AnyInstance = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show nodes, daemons, versions and planted faults. Exit code 4: it is not up.

    Example: seatrial lab status
    """
    name = _instance(site, instance)
    lab_status = adapter.status(name)
    if as_json:
        typer.echo(json.dumps(lab_status, indent=1))
    else:
        _print_status(lab_status, site)
    if lab_status["state"] != "up":
        raise typer.Exit(4)


def _print_status(lab_status: dict[str, Any], site: str) -> None:
    console = open_console()
    name, in_work = lab_status["instance"], lock.is_held(LabPaths(lab_status["instance"]).lock)
    if in_work and not lab_status["hosts"]:
        console.print(f"lab {name}: another command starts or ends it now")
        return
    console.print(f"lab {name}: {lab_status['state']}", end="")
    if not lab_status["hosts"]:
        console.print(
            f" (start it with: {state.start_command(name, '' if site == 'lab' else site)})",
            markup=False,
        )
        others = [other for other in state.instances() if other != name]
        if others:
            console.print(f"other instances: {', '.join(others)}")
        return
    versions = dict(lab_status["versions"])
    told = [versions.pop(key) for key in ("processors", "wires") if key in versions]
    if "python" in versions:
        versions["python"] = f"Python {versions['python']}"
    console.print(f" for {lab_status['uptime_s']:.0f} s; {', '.join(versions.values())}")
    if other := _other_checkout(lab_status.get("checkout", "")):
        console.print(f"started by the checkout {other}", markup=False, soft_wrap=True)
    for text in told:
        console.print(text, markup=False)
    virtual = lab_status.get("engine") == "virtual"
    table = Table(
        "node", "Slurm", "eth0 (management)", "addresses under test",
        "cards" if virtual else "daemons",
    )  # fmt: skip
    for host in lab_status["hosts"]:
        shown = host["slurm_state"] or "-" if host["alive"] else "DEAD"
        table.add_row(
            host["name"],
            shown,
            host["mgmt_address"],
            host["test_address"] or "-",
            ", ".join(host["nics"]) if virtual else " ".join(host["daemons"]),
        )
    console.print(table)
    for port in lab_status.get("wires", []):
        if port["dropped"] or port["missed"]:
            console.print(
                f"{port['node']} {port['interface']}: received {port['received']} frames; "
                f"{port['queue']} had no room for {port['dropped']}, the card for {port['missed']}",
                soft_wrap=True,
            )
    for fault in lab_status["faults"]:
        console.print(f"planted fault: {fault['kind']} {fault['node']}: {fault['detail']}")


@app.command(context_settings={"allow_interspersed_args": False})
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command; default: a login shell.")
    ] = None,
    site: OfSite = "lab",
    instance: AnyInstance = None,
    node: Annotated[str, typer.Option("--node", "-w", help="Node.")] = LOGIN,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="User: root; default: the job user.")
    ] = None,
) -> None:
    """Run a command in the lab, or open a shell there.

    Example: seatrial lab shell -- srun -N4 hostname
    """
    lab = attach(_instance(site, instance))
    lab.exec(command or [], user=user, node=node)


@fault_app.command("link")
def fault_link(
    node: Node,
    rate: Annotated[
        str | None, typer.Option(help="In a native lab: limit of each direction, as 100mbit.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="In a virtual lab: hold each frame up to this, as 2ms.")
    ] = None,
    peer: Annotated[
        str | None, typer.Option("--with", help="In a native lab: only the traffic with this node.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Only one direction, as the node sees it: sends or receives.", metavar="DIRECTION"
        ),
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Cut the link.")] = False,
    cross: Annotated[
        bool,
        typer.Option(
            "--cross", help="In a native lab: exchange its cable with the first network's."
        ),
    ] = False,
    network: Annotated[
        str | None, typer.Option("--network", help="A test network; default: the first.")
    ] = None,
    site: OfSite = "lab",
    instance: AnyInstance = None,
) -> None:
    """Make a test link of a node slow, cut it or cross it.

    Example: seatrial lab fault link n3 --rate 100mbit --with n1 --only sends
    """
    if [rate is not None, delay is not None, down, cross].count(True) != 1:
        raise InputError("lab fault link: give one of --rate, --delay, --down and --cross")
    if rate is None and (peer or (only and delay is None)):
        raise InputError("lab fault link: --with is for --rate, --only for --rate and --delay")
    known = load_site(site_file(site))
    if network is not None and network not in known.test_networks:
        raise InputError(f"no test network {network!r} ({suggest(network, known.test_networks)})")
    interface = known.networks[network or known.test_networks[0]].interface
    if known.virtual:
        if rate is not None or cross:
            raise InputError(
                f"lab fault link: site {known.name} has a virtual lab, whose link faults have "
                "no rate and no switch: --delay or --down"
            )
        guest = VirtualLab.attach(_instance(site, instance))
        if delay is not None:
            virtual_faults.delay_link(guest, node, delay, interface, only)
        else:
            virtual_faults.cut_link(guest, node, interface)
        return
    if delay is not None:
        raise InputError(f"lab fault link: --delay is for a virtual lab; site {known.name}: --rate")
    lab = _native(site, instance)
    if rate is not None:
        faults.slow_link(lab, node, rate, interface, peer, only)
    elif cross:
        faults.cross_links(lab, node, interface)
    else:
        faults.cut_link(lab, node, interface)


@fault_app.command("cpu")
def fault_cpu(
    node: Node,
    percent: Annotated[float, typer.Option(help="Processor time that is left.")],
    site: OfSite = "lab",
    instance: AnyInstance = None,
) -> None:
    """Make the processors of a node slow.

    Example: seatrial lab fault cpu n3 --percent 30
    """
    faults.slow_cpu(_native(site, instance), node, percent)


@fault_app.command("kill")
def fault_kill(node: Node, site: OfSite = "lab", instance: AnyInstance = None) -> None:
    """Kill a node, as a power failure does.

    Example: seatrial lab fault kill n3
    """
    faults.kill_node(_native(site, instance), node)


@fault_app.command("slurmd")
def fault_slurmd(
    node: Node,
    start: Annotated[bool, typer.Option("--start/--kill", help="Start slurmd, or kill it.")],
    site: OfSite = "lab",
    instance: AnyInstance = None,
) -> None:
    """Kill slurmd of a node, or start it again. Jobs continue.

    Example: seatrial lab fault slurmd n3 --kill
    """
    lab = _native(site, instance)
    if start:
        faults.start_slurmd(lab, node)
    else:
        faults.kill_slurmd(lab, node)


@fault_app.command("clear")
def fault_clear(
    node: Annotated[str | None, typer.Argument(help="Node; default: all.")] = None,
    site: OfSite = "lab",
    instance: AnyInstance = None,
) -> None:
    """Remove planted faults and start dead nodes again.

    Example: seatrial lab fault clear
    """
    if load_site(site_file(site)).virtual:
        cleared = virtual_faults.clear(VirtualLab.attach(_instance(site, instance)), node)
    else:
        cleared = faults.clear(_native(site, instance), node)
    for fault in cleared:
        typer.echo(f"cleared: {fault.kind} {fault.node}: {fault.detail}")
