"""Published figures beside the lab's own: does a setting do here what it did there?

Absolute figures of other machines say little, so effects are compared: the ratio of a figure under
one setting to the same figure under another, published and measured. Where a paper names a message
size (from which one network is faster, say), the size is compared. ``published.yaml`` says which
figures of which source stand beside which of the lab's.
This module reads and compares; ``figures`` has the lab's figures, ``side_by_side`` writes it down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from figures import Entry, Figure, Finite, Measured, from_trials
from pydantic import Field, model_validator

from seatrial.analysis.crossover import TOGETHER, knee, parting
from seatrial.base import yamlfile
from seatrial.base.yamlfile import InvalidValue
from seatrial.results.folder import Results

Measure = Literal["size", "direction", "no"]
Agreement = Literal["size", "direction", "no", "not comparable", "unmeasured"]
ORDER: tuple[Agreement, ...] = ("unmeasured", "no", "direction", "size")
#: effects below 3 per cent, either way, count as none, as ``seatrial.analysis.decision.SMALLEST``.
#: How far the lab's figures repeat is on the page (``side_by_side.repeated``).
NO_EFFECT = 0.03
WITHIN = 2.0  # sizes agree where one effect is at most this many times the other


class Side(Entry):
    """One setting. ``published`` is its figure in the source."""

    name: str
    published: Finite | None = None
    measured: Figure


class Sizes(Entry):
    """A message size that the source names: between ``from_B`` and ``to_B``.

    ``parting``: where the second side begins to be faster than the first. ``knee``: where the time
    of the first side rises most from a size to its double (``seatrial.analysis.crossover``).
    """

    rule: Literal["parting", "knee"]
    from_B: int = Field(ge=1)
    to_B: int = Field(ge=1)


class Comparison(Entry):
    """One finding: two sides of an effect, or a message size.

    A finding that no trial here can show has ``not_comparable`` and what was ``published``; its
    sides, if it has any, are what the lab measures in its place.
    """

    id: str
    finding: str = Field(max_length=75, description="fits beside the picture")
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
    sizes: Sizes | None = None
    published: str = Field(default="", description="in words, of a finding that is not comparable")
    not_comparable: str = Field(default="", description="why no figure of the lab is the same")
    by_construction: str = Field(
        default="", description="why the lab cannot but agree; such a finding is not counted"
    )
    agrees: Measure | None = Field(
        default=None, description="what the lab is held to; not of what is not comparable"
    )
    why: str = Field(default="", description="why the lab shows no more than that, or differs")
    note: str = Field(default="", description="what limits the figures, also where they agree")

    @model_validator(mode="after")
    def _whole(self) -> Comparison:
        if self.not_comparable:
            if not self.published or self.agrees or self.ratio or self.direction or self.sizes:
                raise InvalidValue(
                    "not comparable, but with an effect to compare",
                    "give published in words; sides are measured and not compared",
                )
            if bool(self.first) != bool(self.second):
                raise InvalidValue("one setting alone", "give first and second, or neither")
            return self
        if self.agrees is None:
            raise InvalidValue("agrees is missing", "size, direction, no, or not_comparable")
        if self.first is None or (self.second is None) != (self.is_knee):
            raise InvalidValue(
                "an effect and a parting have two settings, a knee has one", "first and second"
            )
        curves = [side.measured.curve and side.measured.at_B is None for side in self.sides]
        if any(curves) != bool(self.sizes) or any(curves) != all(curves):
            raise InvalidValue("sizes are compared of whole curves", "curve without at_B")
        if not self.sizes:
            self._has_an_effect()
        if self.direction and self.agrees == "size":
            raise InvalidValue("agrees: size with a direction alone", "agrees: direction")
        if self.agrees != "size" and not self.why:
            raise InvalidValue(
                f"agrees: {self.agrees} without a why", "say why the lab shows no more"
            )
        return self

    def _has_an_effect(self) -> None:
        said = self.ratio or self.direction
        if not said and None in [side.published for side in self.sides]:
            raise InvalidValue(
                "the published figures are missing", "give both, their ratio, or a direction"
            )

    @property
    def is_knee(self) -> bool:
        return self.sizes is not None and self.sizes.rule == "knee"

    @property
    def published_ratio(self) -> float:
        """Second over first, as published; NaN where only the direction is."""
        if self.ratio is not None:
            return self.ratio
        first, second = self.sides
        return (second.published or math.nan) / (first.published or math.nan)

    @property
    def sides(self) -> list[Side]:
        """The settings: two of an effect or a parting, one of a knee, none if not comparable."""
        return [side for side in (self.first, self.second) if side]


class Published(Entry):
    """The file as a whole. ``trials``: the options of the trials that measure all figures."""

    schema_version: Literal[1] = Field(alias="schema")
    sources: dict[str, str] = Field(description="name -> title, authors, year")
    trials: tuple[str, ...] = ()
    comparisons: list[Comparison]

    @model_validator(mode="after")
    def _known(self) -> Published:
        for comparison in self.comparisons:
            if comparison.source not in self.sources:
                raise InvalidValue(
                    f"{comparison.id}: no source {comparison.source!r}", "name one of sources"
                )
        return self

    def figures(self) -> Iterator[Figure]:
        """The figures of the lab that the page needs, whole curves of sizes; some repeat."""
        for comparison in self.comparisons:
            for side in comparison.sides:
                yield side.measured.whole


@dataclass(frozen=True)
class Outcome:
    """A comparison with what the trials measured.

    ``agrees`` is ``size``, ``direction``, ``no``, ``not comparable``, or ``unmeasured``
    (``missing`` says what). ``measured``: of each side. ``low``, ``high``: the ratio over all
    pairs of their runs. ``sizes``: between which message sizes in B curves part or rise; the first
    is 0 if they are apart from the smallest size on.
    """

    comparison: Comparison
    agrees: Agreement
    measured: tuple[Measured, ...] = ()
    ratio: float | None = None
    low: float = math.nan
    high: float = math.nan
    sizes: tuple[float, float] | None = None
    missing: str = ""

    @property
    def as_held(self) -> bool:
        """Whether it agrees at least as far as the file holds the lab to."""
        if self.comparison.agrees is None:
            return True
        return ORDER.index(self.agrees) >= ORDER.index(self.comparison.agrees)

    @property
    def word(self) -> str:
        """What it counts as: its agreement, or ``by construction``."""
        measured = self.agrees in ("size", "direction", "no")
        return "by construction" if measured and self.comparison.by_construction else self.agrees


def load_published(path: Path | str) -> Published:
    """Raises InputError where the file is wrong, with file, line and field."""
    return yamlfile.load(path, Published)[0]


def measured_in(published: Published, trials: Sequence[Results]) -> dict[Figure, Measured]:
    """The figures that the page needs, as far as the trials have them: of the last that does."""
    found = {figure: from_trials(figure, trials) for figure in published.figures()}
    return {figure: one for figure, one in found.items() if one}


def compare(published: Published, measured: Mapping[Figure, Measured]) -> list[Outcome]:
    """Each comparison with the lab's figures, which are by ``Figure.whole``."""
    return [_compare(comparison, measured) for comparison in published.comparisons]


def _compare(comparison: Comparison, all_measured: Mapping[Figure, Measured]) -> Outcome:
    if comparison.not_comparable and not comparison.sides:
        return Outcome(comparison, "not comparable")
    found = [_found(side.measured, all_measured) for side in comparison.sides]
    missing = [
        str(side.measured)
        for side, own in zip(comparison.sides, found, strict=True)
        if own is None or not (own.values or own.curves)
    ]
    measured = tuple(each for each in found if each is not None)
    if missing:
        return Outcome(comparison, "unmeasured", missing=", ".join(missing))
    if comparison.sizes:
        return _sizes(comparison, comparison.sizes, measured)
    if any(value <= 0 for each in measured for value in each.values):
        return Outcome(comparison, "unmeasured", measured, missing="a figure is zero")
    first, second = measured
    ratio = second.median / first.median
    low = min(second.values) / max(first.values)
    high = max(second.values) / min(first.values)
    if comparison.not_comparable:
        return Outcome(comparison, "not comparable", measured, ratio, low, high)
    agrees = min((_effect(comparison, each) for each in (low, ratio, high)), key=ORDER.index)
    return Outcome(comparison, agrees, measured, ratio, low, high)


def _found(figure: Figure, measured: Mapping[Figure, Measured]) -> Measured | None:
    own = measured.get(figure.whole)
    return own.at(figure.at_B) if own and figure.at_B is not None else own


def _effect(comparison: Comparison, ratio: float) -> Agreement:
    if comparison.direction:
        way = "up" if ratio > 1 + NO_EFFECT else "down" if ratio < 1 / (1 + NO_EFFECT) else ""
        return "direction" if way == comparison.direction else "no"
    return agreement(comparison.published_ratio, ratio)


def _sizes(comparison: Comparison, said: Sizes, measured: tuple[Measured, ...]) -> Outcome:
    """Raises ValueError if the curves have no size in common."""
    curves = [each.curve() for each in measured]
    if said.rule == "knee":
        rise = knee(curves[0])
        at = (rise[0], 2 * rise[0]) if rise else None
    else:
        at = _parting(*curves)
    if at is None:
        return Outcome(comparison, "no", measured)
    near = 1 / WITHIN <= at[1] / said.to_B <= WITHIN
    return Outcome(comparison, "size" if near else "direction", measured, sizes=at)


def _parting(
    slow: Mapping[float, float], fast: Mapping[float, float]
) -> tuple[float, float] | None:
    """The last size at which ``fast`` is not faster (0: none), the first from which it stays so.

    None if it does not stay so.
    """
    part = parting(("slow", slow), ("fast", fast))
    if part.apart is None or part.faster != "fast":
        return None
    # Not ``part.together``: curves that cross before they part are together at their crossing only.
    before = [n for n in slow if n in fast and n < part.apart and slow[n] / fast[n] < TOGETHER]
    return max(before, default=0.0), part.apart


def agreement(published: float, measured: float) -> Measure:
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
