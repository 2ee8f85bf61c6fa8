"""All cases that a trial of a site can have, and where each metric can be measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.base import globs
from seatrial.benchmarks.benchmark import DeclaredMetric
from seatrial.plan.model import Plan
from seatrial.results.locations import ARROW, direction
from seatrial.results.record import Case
from seatrial.results.requirements import Patterns, Select, fits, is_glob


class Places:
    """The names of the locations at which a metric can be measured, in their order.

    A cluster has as many directions as the square of its nodes: no list of them is made.
    ``nodes`` are in alphabetical order, and so are the two of a link.
    """

    def __init__(self, kind: str, nodes: list[str]):
        self._kind, self._nodes = kind, nodes
        self._known = frozenset(nodes)

    def __iter__(self) -> Iterator[str]:
        return self._beginning([""])

    def _beginning(self, texts: Sequence[str]) -> Iterator[str]:
        """The names that can begin with one of the texts, and others of the same first node."""
        if not self._kind:
            yield ""
            return
        for place, node in enumerate(self._nodes):
            if not any(node.startswith(text) or text.startswith(node) for text in texts):
                continue
            if self._kind == "node":
                yield node
            elif self._kind == "direction":
                yield from (direction(node, other) for other in self._nodes if other != node)
            else:
                yield from (f"{node}-{other}" for other in self._nodes[place + 1 :])

    def __contains__(self, name: str) -> bool:
        if self._kind == "node":
            return name in self._known
        if self._kind == "direction":
            sender, _, receiver = name.partition(ARROW)
            return sender != receiver and self._known.issuperset((sender, receiver))
        if self._kind == "link":
            return any(first < other for first, other in self._ends(name))
        return not name

    def has(self, patterns: Patterns | None) -> bool:
        """Whether one of the glob patterns matches a name."""
        return any(True for _ in self.matching(patterns))

    @property
    def first(self) -> str | None:
        """The first name; None if the metric belongs to the case as a whole."""
        return next(iter(self), "") or None

    def matching(self, patterns: Patterns | None) -> Iterator[str]:
        """The names that one of the glob patterns matches; all of them for None."""
        if patterns is None:
            return iter(self)
        several = [patterns] if isinstance(patterns, str) else list(dict.fromkeys(patterns))
        if is_glob(several):
            begins = [globs.literal_begin(pattern) for pattern in several]
            return (name for name in self._beginning(begins) if fits(several, name))
        return (name for name in several if name in self)

    def turned(self, location: str) -> list[str]:
        """The names of a link whose nodes are in the wrong order."""
        names = [f"{second}-{first}" for first, second in self._ends(location)]
        return [name for name in names if name in self]

    def _ends(self, name: str) -> Iterator[tuple[str, str]]:
        """What may be the two nodes of a link: the ``-`` that joins them may be in their names."""
        for at, character in enumerate(name):
            ends = (name[:at], name[at + 1 :])
            if character == "-" and self._known.issuperset(ends):
                yield ends


@dataclass
class Matrix:
    """All cases that a trial of a site can have, with the metrics of each check.

    ``nodes``: short names of the nodes that cases may run on.
    """

    cases: list[Case]
    metrics: Mapping[str, Mapping[str, DeclaredMetric]]
    nodes: list[str]
    _places: dict[str, Places] = dataclasses.field(default_factory=dict, repr=False)  # by kind

    @classmethod
    def of(cls, plan: Plan, nodes: Iterable[str]) -> Matrix:
        """The matrix of a plan that leaves nothing out."""
        metrics = {name: plan.benchmark(name).metrics() for name in plan.benchmarks}
        return cls(plan.cases, metrics, sorted(nodes))

    def metrics_of(self, case: Case) -> dict[str, DeclaredMetric]:
        """The metrics that the case's variant reports."""
        return {
            name: declared_metric
            for name, declared_metric in self.metrics[case.check].items()
            if not declared_metric.variants or case.variant in declared_metric.variants
        }

    def values(self, key: str, cases: Iterable[Case] | None = None) -> list[str]:
        """The values of a key of the cases, each once."""
        chosen = self.cases if cases is None else cases
        return list(dict.fromkeys(str(getattr(case, key)) for case in chosen))

    def places(self, metric: DeclaredMetric) -> Places:
        """The locations at which a metric can be measured."""
        kind = metric.location
        if kind not in self._places:
            self._places[kind] = Places(kind, self.nodes)
        return self._places[kind]

    def figures(
        self, select: Select, metric: Patterns, peers: bool = False
    ) -> Iterator[tuple[Case, str, DeclaredMetric]]:
        """Each selected case with each of its metrics that the patterns match.

        A metric whose locations the selection excludes is left out.
        """
        places: dict[tuple[str, str], bool] = {}
        for case in self.cases:
            if not select.matches_case(case):
                continue
            for name, declared in self.metrics_of(case).items():
                if not fits(metric, name) or (peers and not declared.location):
                    continue
                key = (case.check, name)
                if key not in places:
                    places[key] = self.places(declared).has(select.location)
                if places[key]:
                    yield case, name, declared
