"""Options that select a part of a site's matrix, or of the series of its history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.plan.selection import Selection
from seatrial.site.model import MOST_RUNS

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
MetricOption = Annotated[
    list[str] | None, typer.Option("--metric", metavar="GLOB", help="Only these metrics.")
]
LocationOption = Annotated[
    list[str] | None, typer.Option("--location", metavar="GLOB", help="Only these nodes, links.")
]
TrialsOption = Annotated[
    Path, typer.Option(help="Folder of the trials; default: trials/.", show_default=False)
]
RepeatsOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_RUNS, metavar="N", help="Runs of each case in a round."),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_RUNS, metavar="N", help="Times through all profiles."),
]
RerunsOption = Annotated[
    int | None,
    typer.Option(min=0, max=MOST_RUNS, metavar="N", help="Reruns of a case out of bounds."),
]


def selection_of(
    check: list[str] | None,
    transport: list[str] | None,
    network: list[str] | None,
    profile: list[str] | None,
    repeats: int | None,
    rounds: int | None,
    reruns: int | None,
) -> Selection:
    """The selection of these options."""
    return Selection(
        checks=tuple(check or ()),
        transports=tuple(transport or ()),
        profiles=tuple(profile or ()),
        networks=tuple(network or ()),
        repeats=repeats,
        rounds=rounds,
        reruns=reruns,
    )


def patterns_of(
    check: list[str] | None,
    transport: list[str] | None,
    network: list[str] | None,
    profile: list[str] | None,
    metric: list[str] | None,
    location: list[str] | None,
) -> dict[str, list[str]]:
    """The series that these options select, as ``seatrial.history.index`` takes them."""
    given = {
        "check": check, "transport": transport, "network": network, "profile": profile,
        "metric": metric, "location": location,
    }  # fmt: skip
    return {name: globs or [] for name, globs in given.items()}
