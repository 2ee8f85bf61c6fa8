"""What a user asks a template for, and what is known of the cluster it is to run on."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.job.header import Template
from seatrial.results.requirements import Requirements
from seatrial.site.model import Site
from seatrial.stack.model import Stack


@dataclass(frozen=True)
class Request:
    """What a user asked for; None and {} are left to the site and the template."""

    template: Template
    kind: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    transport: str | None = None
    profile: str | None = None
    launcher: str | None = None
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """What is known of the cluster. ``stack`` is None where none is provisioned here."""

    site: Site
    stack: Stack | None = None
    modules: dict[str, str] = field(default_factory=dict)  # transport -> folder of its modulefile
    requirements: Requirements | None = None
