"""Options that select a part of a site's matrix, for ``trial``, ``plan`` and ``history``."""

from __future__ import annotations

from typing import Annotated

import typer

from seatrial.plan.selection import Selection

SiteOption = Annotated[str, typer.Option("--site", "-s", help="A site, or a path to its file.")]
CheckOption = Annotated[
    list[str] | None, typer.Option("--check", "-c", metavar="GLOB", help="Only these checks.")
]
TransportOption = Annotated[
    list[str] | None,
    typer.Option("--transport", "-t", metavar="GLOB", help="Only these transports."),
]
NetworkOption = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="GLOB", help="Only these networks."),
]
ProfileOption = Annotated[
    list[str] | None,
    typer.Option("--profile", "-p", metavar="GLOB", help="Only these NIC profiles."),
]
RepeatsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Runs of each case; default: site.yaml.")
]
RerunsOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Reruns of a case that fails; default: site.yaml."),
]


def selection_of(
    check: list[str] | None,
    transport: list[str] | None,
    network: list[str] | None,
    profile: list[str] | None,
    repeats: int | None,
    reruns: int | None,
) -> Selection:
    """The selection of these options."""
    return Selection(
        checks=tuple(check or ()),
        transports=tuple(transport or ()),
        profiles=tuple(profile or ()),
        networks=tuple(network or ()),
        repeats=repeats,
        reruns=reruns,
    )
