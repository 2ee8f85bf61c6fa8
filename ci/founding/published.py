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

Finite = Annotated[float, Field(allow_inf_nan=False)]
NO_EFFECT = 0.03  # effects below 3 per cent, either way, count as none
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


class Parting(Entry):
    """Where two curves part: the least size from which on ``second`` is quicker by ``factor``."""

    check: str
    curve: str
    transport: str = "tcp"
    nodes: int = 2
    first: str = Field(description="NIC profile")
    second: str = Field(description="NIC profile")
    factor: float = Field(default=1.5, gt=1)
    published_B: tuple[Finite, Finite]


class Comparison(Entry):
    """One finding. Either two sides of an effect, or the size at which curves part."""

    id: str
    finding: str
    source: str
    unit: str = ""
    first: Side | None = None
    second: Side | None = None
    ratio: Finite | None = Field(
        default=None, description="second / first, where only that is said"
    )
    parting: Parting | None = None
    agrees: Literal["size", "direction", "no"] = Field(description="what the lab is held to")
    why: str = Field(default="", description="why the lab cannot show more than that")

    @model_validator(mode="after")
    def _whole(self) -> Comparison:
        if self.parting is None:
            if self.first is None or self.second is None:
                raise InvalidValue(
                    "neither an effect nor a parting", "give first and second, or parting"
                )
            if self.ratio is None and None in (self.first.published, self.second.published):
                raise InvalidValue("the published figures are missing", "give both, or their ratio")
        if self.agrees != "size" and not self.why:
            raise InvalidValue(
                f"agrees: {self.agrees} without a why", "say why the lab shows no more"
            )
        return self

    @property
    def published_ratio(self) -> float:
        """Second over first, as published."""
        if self.ratio is not None:
            return self.ratio
        first, second = self.sides
        return (second.published or math.nan) / (first.published or math.nan)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both settings. Raises ValueError for a parting."""
        if self.first is None or self.second is None:
            raise ValueError(f"{self.id} compares no two settings")
        return self.first, self.second

    def cases(self) -> list[tuple[str, str, str, str, int]]:
        """(check, variant, transport, profile, nodes) of every case that it needs."""
        if self.parting:
            p = self.parting
            return [(p.check, "", p.transport, name, p.nodes) for name in (p.first, p.second)]
        sides = [side.measured for side in self.sides]
        return [(f.check, f.variant, f.transport, f.profile, f.nodes) for f in sides]


class Published(Entry):
    """The file as a whole."""

    schema_version: Literal[1] = Field(alias="schema")
    sources: dict[str, str] = Field(description="name -> title, authors, year")
    no_effect: float = Field(
        default=NO_EFFECT, gt=0, lt=1, description="what the trial's own spread can hide"
    )
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

    ``agrees`` is ``size``, ``direction``, ``no``, or ``unmeasured`` (``missing`` says what).
    For a parting ``ratio`` is its size in bytes.
    """

    comparison: Comparison
    agrees: Literal["size", "direction", "no", "unmeasured"]
    first: float | None = None
    second: float | None = None
    ratio: float | None = None
    missing: str = ""

    @property
    def as_held(self) -> bool:
        """Whether it agrees at least as far as the file holds the lab to."""
        order = ["unmeasured", "no", "direction", "size"]
        return order.index(self.agrees) >= order.index(self.comparison.agrees)


def load_published(path: Path | str) -> Published:
    """Raises InputError where the file is wrong, with file, line and field."""
    return yamlfile.load(path, Published)[0]


def compare(published: Published, trials: list[Results]) -> list[Outcome]:
    """Each comparison with the figures of the trials, of which the last that has one counts."""
    return [_compare(one, trials, published.no_effect) for one in published.comparisons]


def _compare(one: Comparison, trials: list[Results], no_effect: float) -> Outcome:
    if one.parting:
        return _parting(one, one.parting, trials)
    first, second = (value_of(side.measured, trials) for side in one.sides)
    missing = [
        _named(side.measured)
        for side, value in zip(one.sides, (first, second), strict=True)
        if value is None
    ]
    if first is None or second is None or first <= 0 or second <= 0:
        return Outcome(one, "unmeasured", first, second, missing=", ".join(missing) or "zero")
    ratio = second / first
    agrees = agreement(one.published_ratio, ratio, no_effect)
    return Outcome(one, agrees, first, second, ratio)


def agreement(
    published: float, measured: float, no_effect: float = NO_EFFECT
) -> Literal["size", "direction", "no"]:
    """How far two ratios agree. No effect agrees with no effect alone, and in size.

    A published effect is none within 3 %, a measured one within ``no_effect``. Sizes are those of
    the logarithms, so that a doubling and a halving count alike.
    """
    there, here = math.log(published), math.log(measured)
    nothing = abs(there) <= math.log(1 + NO_EFFECT)
    if nothing:
        return "size" if abs(here) <= math.log(1 + max(no_effect, NO_EFFECT)) else "no"
    if abs(here) <= math.log(1 + no_effect) or there * here < 0:
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


def _parting(one: Comparison, parting: Parting, trials: list[Results]) -> Outcome:
    curves = [curve_of(parting, profile, trials) for profile in (parting.first, parting.second)]
    if not all(curves):
        absent = [p for p, c in zip((parting.first, parting.second), curves, strict=True) if not c]
        what = f"curve {parting.curve} of {parting.check} under {', '.join(absent)}"
        return Outcome(one, "unmeasured", missing=what)
    size = parts_at(curves[0], curves[1], parting.factor)
    if size is None:
        return Outcome(one, "no", ratio=None)
    low, high = parting.published_B
    if low / WITHIN <= size <= high * WITHIN:
        return Outcome(one, "size", ratio=size)
    return Outcome(one, "direction", ratio=size)


def curve_of(parting: Parting, profile: str, trials: list[Results]) -> dict[float, float]:
    """Size -> median latency in us over the repeats; empty where no trial has it."""
    for results in reversed(trials):
        points: dict[float, list[float]] = {}
        for run in results.runs:
            key = (run.case.check, run.case.transport, run.case.profile, run.case.nodes)
            if key != (parting.check, parting.transport, profile, parting.nodes):
                continue
            for curve in run.curves:
                if curve.name == parting.curve and curve.y_name == "latency":
                    for x, y in curve.points:
                        points.setdefault(x, []).append(y)
        if points:
            return {x: statistics.median(ys) for x, ys in points.items()}
    return {}


def parts_at(first: dict[float, float], second: dict[float, float], factor: float) -> float | None:
    """The least size from which on ``first`` takes at least ``factor`` times as long as
    ``second``; None: never."""
    found = None
    for size in sorted(first.keys() & second.keys(), reverse=True):
        if first[size] < factor * second[size]:
            break
        found = size
    return found
