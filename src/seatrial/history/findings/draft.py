"""A finding while it is made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from seatrial.history.drift import Span
from seatrial.history.findings.cause import Cause
from seatrial.history.findings.levels_of_series import Part
from seatrial.history.findings.record import Condition, Finding, Scope
from seatrial.history.findings.site_changes import SiteChanges
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column
from seatrial.results import statistics


@dataclass(eq=False)
class Draft:
    """A finding, with its changes and what the steps that make it know of its cause."""

    night: int
    found: int  # the night that showed it
    finding: Finding
    cause: Cause
    parts: list[Part]
    drift: Span | None = None  # numbers of the site's trials
    rollout: list[Condition] = field(default_factory=list)
    until: int = 0  # the night of the last step of a rollout
    apart: list[Cause] = field(default_factory=list)  # places with findings beside this one

    @property
    def is_worse(self) -> bool:
        return statistics.median([part.change.gain for part in self.parts]) < 0

    @property
    def columns(self) -> set[Column]:
        return {part.column for part in self.parts}

    def compared(self, site: SiteChanges) -> list[Column]:
        """The series that could have changed with it: without those of places apart."""
        known = site.compared(self.night)
        return [column for column in known if not any(cause.fits(column) for cause in self.apart)]


def named(table: SiteTable, night: int, found: int, key: str) -> Finding:
    """A finding without changes. ``key``: no other one of the night has it."""
    first = table.trials[night]
    digest = hashlib.sha256(f"{table.site} {first.name} {key}".encode(errors="replace"))
    return Finding(
        f"{first.started:%Y-%m-%d}-{digest.hexdigest()[:4]}", table.site,
        table.trial_before(night), first, table.trials[found], Scope(""), [], None, [], 0,
    )  # fmt: skip
