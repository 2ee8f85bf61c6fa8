"""What the series that changed have in common, and the others lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from seatrial.history.beside import GAIN, likelihood
from seatrial.history.conditions import BENCHMARK, SETTING, TRANSPORT, VARIABLE
from seatrial.history.findings.record import Condition, Kind, Scope
from seatrial.history.findings.table import SiteTable
from seatrial.history.series import Column

KINDS: tuple[Kind, ...] = ("network", "profile", "transport", "check", "case", "metric")
PLACES: tuple[Kind, ...] = ("node", "link")
#: what all cases with a condition may have in common: of several that fit, the first one
_OF_CASES: tuple[Kind, ...] = ("case", "profile", "transport", "check", "network")
#: how the name of a setting begins -> what it is a setting of
_OWNERS: dict[str, Kind] = {
    SETTING: "profile", VARIABLE: "transport", TRANSPORT: "transport", BENCHMARK: "check",
}  # fmt: skip
_OF_NODE = 0.8  # of the series of a node that changed, if it is one of several
_Name = TypeVar("_Name", bound=Hashable)


def divided(
    known: Sequence[tuple[bool, Sequence[_Name]]], least: int = 0
) -> tuple[_Name | None, float]:
    """The name that divides best hits from others, and the logarithm of the likelihood ratio of two
    rates of hits, within and without, to one. (None, 0): none divides them well enough.

    ``known``: whether it is a hit, and its names. ``least``: hits that the name must have.
    """
    total, hits = Counter[_Name](), Counter[_Name]()
    for hit, names in known:
        total.update(names)
        hits.update(names if hit else ())
    every, all_hits = len(known), sum(hit for hit, _ in known)
    best, most = None, GAIN
    for name, of_name in sorted(hits.items(), key=lambda item: str(item[0])):
        rest, others = every - total[name], all_hits - of_name
        gain = (likelihood(of_name, total[name]) + likelihood(others, rest)
                - likelihood(all_hits, every))  # fmt: skip
        if of_name >= max(least, 2) and of_name * rest > others * total[name] and gain > most:
            best, most = name, gain
    return best, most if best is not None else 0.0


def explanation(
    table: SiteTable,
    compared: Sequence[Column],
    changed: set[Column],
    kinds: Iterable[Kind],
    whole: bool = False,
) -> tuple[Scope | None, float]:
    """The node, link, profile ... that divides best what changed from what did not, and how
    well. ``whole``: it has all that changed."""
    best, most = None, 0.0
    for kind in kinds:
        known = [(column in changed, table.names[column][kind]) for column in compared]
        name, gain = divided(
            [(hit, names) for hit, names in known if names], len(changed) if whole else 0
        )
        if name is not None and gain > most:
            best, most = Scope(kind, name), gain
    return best, most


def place(
    table: SiteTable, compared: Sequence[Column], moved: set[Column], changed: set[Column]
) -> tuple[Scope | None, float]:
    """The node or link that divides best what changed from what did not, and how well.

    Only metrics that moved count: another one, such as the rate of a full network, says nothing
    of the place of a longer delay. One series alone may have moved by chance."""
    metrics = Counter(column.series.metric for column in moved if column.series.location)
    metrics_of_several = {name for name, count in metrics.items() if count > 1}
    metrics_of_several |= {column.series.metric for column in changed}
    alike = [column for column in compared if column.series.metric in metrics_of_several]
    return explanation(table, alike, moved, PLACES)


def version(
    table: SiteTable, compared: Sequence[Column], moved: set[Column], changed: set[Column],
    night: int,
) -> tuple[Condition | None, float]:  # fmt: skip
    """The version, setting or set of nodes that explains what moved: the one that divides it
    best from what did not, or else the one that most of the changes had."""
    of_series = {column: table.possible_causes(column, night) for column in {*compared, *changed}}
    best, gain = divided([(column in moved, of_series[column]) for column in compared])
    counts = Counter(name for column in changed for name in of_series[column])
    if best not in counts:
        every = Counter(name for column in compared for name in of_series[column])
        best = max(
            counts,
            key=lambda condition: (counts[condition], -every[condition], condition.name),
            default=None,
        )
        gain = 0.0
    return best, gain


def scope_of_condition(
    table: SiteTable, condition: Condition, compared: Sequence[Column], night: int
) -> Scope:
    """What the series whose case had a condition have in common, and the others lack. It is
    known from the conditions: how many of them moved says nothing of it."""
    having = {column for column in compared if condition in table.changed_for(column, night)}
    if len(having) == 1:
        return Scope("series", next(iter(having)).series.name)
    if len(having) == len(compared):
        return Scope("site")
    owner = next((what for kind, what in _OWNERS.items() if condition.name.startswith(kind)), "")
    kinds = sorted(_OF_CASES, key=lambda kind: kind != owner)
    for kind in kinds:
        names = {table.names[column][kind] for column in having}
        others = {table.names[column][kind] for column in compared if column not in having}
        if len(names) == 1 and not names & others and (name := next(iter(names))):
            return Scope(kind, name[0])
    return Scope("condition", condition.name)


def common(table: SiteTable, compared: Sequence[Column], changed: set[Column]) -> Scope:
    """What all of the changes have in common."""
    if len(changed) == 1:
        return Scope("series", next(iter(changed)).series.name)
    if len(changed) > len(compared) / 2:
        return Scope("site")
    return explanation(table, compared, changed, KINDS, whole=True)[0] or Scope("")


def several_nodes(table: SiteTable, compared: Sequence[Column], changed: set[Column]) -> set[str]:
    """At most half of the nodes, which have all that changed. The other series that are at
    one node or between two did not, and of each of these nodes most did. {}: none."""
    metrics = {column.series.metric for column in changed}
    nodes_of = {
        column: at_nodes for column in compared
        if column.series.metric in metrics and (at_nodes := table.names[column]["node"])
    }  # fmt: skip
    every, hits = Counter[str](), Counter[str]()
    for column, at_nodes in nodes_of.items():
        every.update(at_nodes)
        hits.update(at_nodes if column in changed else ())
    nodes = {name for name in hits if hits[name] >= _OF_NODE * every[name]}
    if not 1 < len(nodes) <= len(every) / 2:
        return set()
    at = {column for column, names in nodes_of.items() if not nodes.isdisjoint(names)}
    return nodes if changed & nodes_of.keys() <= at else set()
