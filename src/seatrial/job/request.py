"""What a user asks of a template, and what is known of the cluster that the job runs on."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.job.measured import SiteTrials
from seatrial.job.template import Template
from seatrial.results.requirements import Requirements
from seatrial.site.model import Site
from seatrial.stack.model import Stack


@dataclass(frozen=True)
class Request:
    """What a user asks for. The site and the template decide what is None or {}."""

    template: Template
    mpi: str | None = None
    launcher: str | None = None
    kind: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    transport: str | None = None
    profile: str | None = None
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """What is known of the cluster. ``stack`` is None where no stack is installed."""

    site: Site
    stack: Stack | None = None
    modules: dict[str, str] = field(default_factory=dict)  # transport -> folder of its modulefile
    requirements: Requirements | None = None
    trials: SiteTrials | None = None  # None: no trial of the site can be read here
