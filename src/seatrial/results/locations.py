"""Locations of figures: which names are nodes, and which are links between two nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from seatrial.results.record import Run

Ends = tuple[str, str] | tuple[()]

#: joins sender and receiver of a figure of one direction of a link
ARROW = ">"
Side = Literal["", "sends", "receives"]
End = tuple[Side, str]  # of a link: what the node does there, and the node
_NUMBER = re.compile("([0-9]{1,18})")


class Locations:
    """Distinguishes nodes from links. Node names may contain the ``-`` that joins a link."""

    def __init__(self, runs: Iterable[Run], nodes: Iterable[str] = ()):
        self.nodes = set(nodes)
        for run in runs:
            self.nodes.update(run.job.nodes)
            self.nodes.update(c.node for c in (run.path.counters if run.path else ()))
        self._longest = max(map(len, self.nodes), default=0)  # in characters
        self._known: dict[str, Ends] = {}

    def ends(self, location: str) -> Ends:
        """The two nodes of a link, of a directed one the sender first; () for anything else.

        Nodes on record decide. For unknown nodes, a name with one hyphen is a link, and so is a
        name whose halves begin alike (``node-1-node-12``).
        """
        ends = self._known.get(location)
        if ends is None:
            ends = self._known[location] = self._ends(location)
        return ends

    def _ends(self, location: str) -> Ends:
        if location in self.nodes:
            return ()
        sender, arrow, receiver = location.partition(ARROW)
        if arrow:
            return (sender, receiver) if sender and receiver else ()
        # Only where both halves may be names: a job user can write a name of many hyphens.
        first = max(0, len(location) - 1 - self._longest)
        for at in range(first, min(len(location), self._longest + 1)):
            if location[at] == "-" and self.nodes.issuperset(
                split := (location[:at], location[at + 1 :])
            ):
                return split
        hyphens = location.count("-")
        if hyphens == 1:
            begin, _, end = location.partition("-")
            return (begin, end) if begin and end else ()
        if hyphens % 2 == 0:
            return ()
        parts = location.split("-")
        half = len(parts) // 2
        return ("-".join(parts[:half]), "-".join(parts[half:])) if parts[0] == parts[half] else ()

    def sides(self, location: str) -> tuple[End, ...]:
        """The ends of a link, each with what it does; () for anything else."""
        nodes = self.ends(location)
        does: tuple[Side, ...] = ("sends", "receives") if ARROW in location else ("", "")
        return tuple(zip(does, nodes, strict=False))

    def itself_and_ends(self, location: str) -> list[End]:
        """A location as an end of no direction, and its ends if it is a link."""
        return [("", location), *self.sides(location)]

    def nodes_of(self, location: str | None) -> tuple[str, ...]:
        """The nodes of a location; () for the case as a whole and for an unknown name."""
        if not location:
            return ()
        return self.ends(location) or ((location,) if location in self.nodes else ())

    def renamed(self, location: str, names: Mapping[str, str]) -> list[str]:
        """A location with other names of its nodes; [] if it has none of these. The names of a
        link without direction can be in either order."""
        if location in names:
            return [names[location]]
        ends = self.ends(location)
        if not set(ends) & names.keys():
            return []
        first, second = (names.get(end, end) for end in ends)
        if ARROW in location:
            return [f"{first}{ARROW}{second}"]
        return [f"{first}-{second}", f"{second}-{first}"]

    def on(self, location: str | None) -> str:
        """`` on node n3``, `` on link n1-n3``, `` from n1 to n3``, or nothing for a whole case."""
        if not location:
            return ""
        if ARROW in location:
            return " from {} to {}".format(*location.split(ARROW, 1))
        return f" on {'link' if self.ends(location) else 'node'} {location}"


def direction(sender: str, receiver: str) -> str:
    """The location of a figure of one direction of a link, such as ``n1>n2``."""
    return f"{sender}{ARROW}{receiver}"


def natural(name: str) -> tuple[str | int, ...]:
    """Sort key that puts n2 before n10: text and numbers in turn.

    Only ASCII digits count as numbers, at most 18 in a row: ``int`` refuses some characters that
    ``str.isdigit`` accepts, and very long numbers.
    """
    parts: list[str | int] = [*_NUMBER.split(name)]
    parts[1::2] = map(int, parts[1::2])
    return tuple(parts)
