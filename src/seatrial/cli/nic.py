"""``seatrial nic``: show and change the NIC profile of one node by hand."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from seatrial.base.errors import InputError
from seatrial.nic.node import cli as node_side
from seatrial.nic.node.policy import DEFAULT_FILE, short_hostname
from seatrial.site.load import load_site, site_file
from seatrial.site.nic_policy import compile_policy
from seatrial_lab.common.slurm_files import lab_layout
from seatrial_lab.native.engine import Lab
from seatrial_lab.native.site import spec_for_site

app = typer.Typer(
    help="Show, compare, apply and restore NIC settings on a node.\n\n"
    "Example: seatrial nic show --node n1",
    epilog="Exit codes: 0 done or equal, 1 differs, 2 refused, 3 bad input, 4 not restored, or the "
    "lab is not up.",
    no_args_is_help=True,
)

Site = Annotated[
    str, typer.Option("--site", "-s", help="Site of the profiles; default: as installed.")
]
Node = Annotated[
    str, typer.Option("--node", "-w", help="Node of a running native lab; default: this machine.")
]
Instance = Annotated[
    str, typer.Option("--instance", "-i", help="Name of the lab; default: of its site.")
]
Interfaces = Annotated[
    list[str] | None,
    typer.Option("--interface", "-I", help="Only this interface; repeatable."),
]
Profile = Annotated[str, typer.Option("--profile", "-p", help="A NIC profile of the site.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands; change nothing.")]


def _run(site: str, node: str, instance: str, words: list[str]) -> None:
    """Run a command of the node side, here or on a node of a lab. Exits with its exit code."""
    code = (_in_lab if node else _here)(site, node, instance, words)
    raise typer.Exit(code)


def _in_lab(site: str, node: str, instance: str, words: list[str]) -> int:
    spec = spec_for_site(site or "lab", instance or None)
    lab = Lab.attach(spec.instance)
    command = lab_layout(lab.spec.instance).command
    answer = lab.run([command, *words], user="root", node=node, timeout=120)
    sys.stdout.write(answer.stdout)
    sys.stderr.write(answer.stderr)
    return answer.returncode


def _here(site: str, _: str, __: str, words: list[str]) -> int:
    """With the policy that is installed on this node, or else compiled from the site file."""
    if not site and Path(DEFAULT_FILE).exists():
        return node_side.main(words)
    loaded = load_site(site_file(site or "lab"))
    policy = compile_policy(loaded)
    host = short_hostname()
    if host not in policy["nodes"]:
        nodes = ", ".join(list(policy["nodes"])[:8])
        raise InputError(
            f"this machine ({host}) is no node of site {loaded.name} (nodes: {nodes}): name a node "
            "of its running lab by --node, or run it on a node"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(policy, file)
        file.flush()
        return node_side.main(["--policy", file.name, *words])


def _words(
    verb: str, profile: str = "", interfaces: list[str] | None = None, **flags: bool
) -> list[str]:
    words = [verb]
    if profile:
        words += ["--profile", profile]
    for interface in interfaces or []:
        words += ["--interface", interface]
    return words + [f"--{name.replace('_', '-')}" for name, on in flags.items() if on]


@app.command()
def show(
    site: Site = "",
    node: Node = "",
    instance: Instance = "",
    interface: Interfaces = None,
    as_json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also settings that no interface has.")
    ] = False,
) -> None:
    """Show the settings of the interfaces under test.

    Example: seatrial nic show --node n1
    """
    _run(site, node, instance, _words("show", "", interface, json=as_json, all=everything))


@app.command()
def diff(
    profile: Profile,
    site: Site = "",
    node: Node = "",
    instance: Instance = "",
    interface: Interfaces = None,
    as_json: Json = False,
) -> None:
    """Show the settings that a profile changes. Exit code 1: there are some.

    Example: seatrial nic diff --profile jumbo --node n1
    """
    _run(site, node, instance, _words("diff", profile, interface, json=as_json))


@app.command()
def apply(
    profile: Profile,
    site: Site = "",
    node: Node = "",
    instance: Instance = "",
    interface: Interfaces = None,
    dry_run: DryRun = False,
) -> None:
    """Apply a profile by hand, until `restore`.

    Drain the node first: until `restore` it refuses every job, and Slurm drains it.

    Example: seatrial nic apply --profile jumbo --node n1 --dry-run
    """
    words = _words("apply", profile, interface, dry_run=dry_run)
    where = {"--site": site, "--node": node, "--instance": instance}
    back = ["seatrial", "nic", "restore"]
    back += [word for option, value in where.items() if value for word in (option, value)]
    _run(site, node, instance, [*words, "--restore-command", shlex.join(back)])


@app.command()
def verify(
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="A NIC profile; default: the one in force.")
    ] = "",
    site: Site = "",
    node: Node = "",
    instance: Instance = "",
    interface: Interfaces = None,
    as_json: Json = False,
) -> None:
    """Compare the settings with a profile. Exit code 1: they differ.

    Example: seatrial nic verify --profile jumbo --node n1
    """
    _run(site, node, instance, _words("verify", profile, interface, json=as_json))


@app.command()
def restore(
    site: Site = "",
    node: Node = "",
    instance: Instance = "",
    dry_run: DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also the profile of a running job.")
    ] = False,
) -> None:
    """Restore the settings after `apply`.

    Example: seatrial nic restore
    """
    _run(site, node, instance, _words("restore", dry_run=dry_run, force=force))


def _plain(verb: str, text: str) -> Callable[..., None]:
    def command(site: Site = "", node: Node = "", instance: Instance = "") -> None:
        _run(site, node, instance, [verb])

    command.__doc__ = text
    return command


app.command("recover")(
    _plain(
        "recover", "Restore the settings after a job that died.\n\nExample: seatrial nic recover"
    )
)
app.command("accept")(
    _plain(
        "accept", "Record the present settings as those at boot.\n\nExample: seatrial nic accept"
    )
)
