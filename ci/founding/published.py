"""Published figures beside a trial's own: does a setting do here what it did there?

Absolute figures of other machines say little, so effects are compared: the ratio of a figure under
one setting to the same figure under another, published and measured. ``published.yaml`` beside a
site's requirements says which figures of which source stand beside which of the trial's.
This module reads and compares; ``side_by_side`` writes it down.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seatrial.base import yamlfile
from seatrial.base.yamlfile import InvalidValue
from seatrial.results.record import Case, Results

Agreement = Literal["size", "direction", "no", "not comparable", "unmeasured"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
#: effects below 3 per cent, either way, count as none: figures of the lab repeat within that
NO_EFFECT = 0.03
WITHIN = 2.0  # sizes agree where one effect is at most this many times the other


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Entry):
    """A figure of the trial: the median over the repeats (and locations, where it has some)."""

    check: str
    variant: str = ""
    transport: str = "tcp"
    profile: str
    nodes: int = 2
    metric: str


class Side(Entry):
    """One setting. ``published`` is its figure in the source."""

    name: str
    published: Finite | None = None
    measured: Figure


class Comparison(Entry):
    """One finding: two sides of an effect.

    A finding that no trial here can show has ``not_comparable`` and what was ``published``.
    """

    id: str
    finding: str
    source: str
    unit: str = ""
    first: Side | None = None
    second: Side | None = None
    ratio: Finite | None = Field(
        default=None, description="second / first, where only that is said"
    )
    direction: Literal["up", "down"] | None = Field(
        default=None, description="of second against first, where not even the ratio is said"
    )
    published: str = Field(default="", description="in words, of a finding that is not comparable")
    not_comparable: str = Field(default="", description="why no figure of the lab is the same")
    by_construction: str = Field(
        default="", description="why the lab cannot but agree; such a finding is not counted"
    )
    agrees: Literal["size", "direction", "no"] | None = Field(
        default=None, description="what the lab is held to; not of what is not comparable"
    )
    why: str = Field(default="", description="why the lab cannot show more than that")

    @model_validator(mode="after")
    def _whole(self) -> Comparison:
        if self.not_comparable:
            if not self.published or self.agrees or self.first or self.second:
                raise InvalidValue(
                    "not comparable, but with figures to compare", "give published alone"
                )
            return self
        if self.agrees is None:
            raise InvalidValue("agrees is missing", "size, direction, no, or not_comparable")
        if self.first is None or self.second is None:
            raise InvalidValue("an effect has two settings", "give first and second")
        said = self.ratio or self.direction
        if not said and None in (self.first.published, self.second.published):
            raise InvalidValue(
                "the published figures are missing", "give both, their ratio, or a direction"
            )
        if self.direction and self.agrees == "size":
            raise InvalidValue("agrees: size with a direction alone", "agrees: direction")
        if self.agrees != "size" and not self.why:
            raise InvalidValue(
                f"agrees: {self.agrees} without a why", "say why the lab shows no more"
            )
        return self

    @property
    def published_ratio(self) -> float:
        """Second over first, as published; NaN where only the direction is."""
        if self.ratio is not None:
            return self.ratio
        first, second = self.sides
        return (second.published or math.nan) / (first.published or math.nan)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both settings. Raises ValueError for what is not comparable."""
        if self.first is None or self.second is None:
            raise ValueError(f"{self.id} compares no two settings")
        return self.first, self.second


class Published(Entry):
    """The file as a whole."""

    schema_version: Literal[1] = Field(alias="schema")
    sources: dict[str, str] = Field(description="name -> title, authors, year")
    comparisons: list[Comparison]

    @model_validator(mode="after")
    def _known(self) -> Published:
        for one in self.comparisons:
            if one.source not in self.sources:
                raise InvalidValue(f"{one.id}: no source {one.source!r}", "name one of sources")
        return self


@dataclass(frozen=True)
class Outcome:
    """A comparison with what the trial measured.

    ``agrees`` is ``size``, ``direction``, ``no``, ``not comparable``, or ``unmeasured``
    (``missing`` says what).
    """

    comparison: Comparison
    agrees: Agreement
    first: float | None = None
    second: float | None = None
    ratio: float | None = None
    missing: str = ""

    @property
    def as_held(self) -> bool:
        """Whether it agrees at least as far as the file holds the lab to."""
        if self.comparison.agrees is None:
            return True
        order = ["unmeasured", "no", "direction", "size"]
        return order.index(self.agrees) >= order.index(self.comparison.agrees)

    @property
    def word(self) -> str:
        """What it counts as: its agreement, or ``by construction``."""
        measured = self.agrees in ("size", "direction", "no")
        return "by construction" if measured and self.comparison.by_construction else self.agrees


def load_published(path: Path | str) -> Published:
    """Raises InputError where the file is wrong, with file, line and field."""
    return yamlfile.load(path, Published)[0]


def compare(published: Published, trials: list[Results]) -> list[Outcome]:
    """Each comparison with the figures of the trials, of which the last that has one counts."""
    return [_compare(one, trials) for one in published.comparisons]


def _compare(one: Comparison, trials: list[Results]) -> Outcome:
    if one.not_comparable:
        return Outcome(one, "not comparable")
    first, second = (value_of(side.measured, trials) for side in one.sides)
    missing = [
        _named(side.measured)
        for side, value in zip(one.sides, (first, second), strict=True)
        if value is None
    ]
    if first is None or second is None or first <= 0 or second <= 0:
        return Outcome(one, "unmeasured", first, second, missing=", ".join(missing) or "zero")
    ratio = second / first
    if one.direction:
        way = "up" if ratio > 1 + NO_EFFECT else "down" if ratio < 1 / (1 + NO_EFFECT) else ""
        return Outcome(one, "direction" if way == one.direction else "no", first, second, ratio)
    return Outcome(one, agreement(one.published_ratio, ratio), first, second, ratio)


def agreement(published: float, measured: float) -> Literal["size", "direction", "no"]:
    """How far two ratios agree. No effect agrees with no effect alone, and in size.

    Sizes are those of the logarithms, so that a doubling and a halving count alike.
    """
    there, here = math.log(published), math.log(measured)
    none = math.log(1 + NO_EFFECT)
    if abs(there) <= none:
        return "size" if abs(here) <= none else "no"
    if abs(here) <= none or there * here < 0:
        return "no"
    return "size" if 1 / WITHIN <= here / there <= WITHIN else "direction"


def value_of(figure: Figure, trials: list[Results]) -> float | None:
    """Median over the repeats and locations of the last trial that has it; None: none has."""
    for results in reversed(trials):
        values = [
            metric.value
            for run in results.runs
            if _is(figure, run.case)
            for metric in run.metrics
            if metric.metric == figure.metric
        ]
        if values:
            return statistics.median(values)
    return None


def _is(figure: Figure, case: Case) -> bool:
    return (figure.check, figure.variant, figure.transport, figure.profile, figure.nodes) == (
        case.check, case.variant, case.transport, case.profile, case.nodes
    )  # fmt: skip


def _named(figure: Figure) -> str:
    case = Case(**figure.model_dump(exclude={"metric"}))
    return f"{figure.metric} of {case.id}"
