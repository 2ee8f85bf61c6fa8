"""How numbers and judgements read: significant digits, and the explanation of a judgement.

Explanations are built from a decision that was made elsewhere (``seatrial.results.judge``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.results import statistics
from seatrial.results.requirements import Rule
from seatrial.results.statistics import Limit

MAX_NAMED = 6  # cases, locations or requirements that a sentence lists one by one


def number(value: float | None, digits: int = 4) -> str:
    """So many significant digits, without an exponent from 1e-5 to 1e13; a dash for None."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if power < -5 or power > 12:
        return f"{value:.{digits}g}"
    text = f"{value:.{max(0, digits - 1 - power)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def distinct(value: float, *others: float) -> list[str]:
    """``value`` and ``others`` with as many digits as distinguish the first from each other."""
    texts: list[str] = []
    for digits in range(4, 13):
        texts = [number(x, digits) for x in (value, *others)]
        if all(
            text != texts[0] or other == value
            for text, other in zip(texts[1:], others, strict=True)
        ):
            break
    return texts


def some(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and the number of the others."""
    if len(names) <= MAX_NAMED:
        return separator.join(names)
    return f"{separator.join(names[: MAX_NAMED - 1])} and {len(names) - MAX_NAMED + 1} more"


def plural(count: int, word: str) -> str:
    """``1 node`` or ``2 nodes``."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def volume(count: float) -> str:
    """Bytes with three digits: ``100 B``, ``1.5 MB``."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{number(count / unit, 3)} {name}"
    return f"{number(count, 3)} B"


def requirement(rule: Rule) -> str:
    """Such as ``contract (requirements.yaml:12)``."""
    return f"{rule.kind} ({rule.id})"


@dataclass(frozen=True)
class Explanation:
    """The sentences on one figure that was compared with the limits of one requirement."""

    name: str  # of the figure: case, metric, location
    unit: str
    samples: Sequence[float]
    value: float  # the statistic over the samples
    rule: Rule
    reference: tuple[str, float] | None  # name and value of the figure that a ratio is taken of

    def within(self, limits: Sequence[Limit]) -> str:
        head, bounds = self._measured(*(limit.bound for limit in limits))
        if len(limits) == 2:
            return f"{head}, between {bounds[1]} and {bounds[0]}, the limits of {self._source()}"
        return f"{head}, within {self._limit(limits[0], bounds[0])}"

    def beyond(self, limit: Limit, disturbance: str, of_location: bool) -> str:
        """``disturbance``, if any, does not excuse the value: it does not explain it, or the
        location is the same one each time (``of_location``)."""
        text = self._beyond(limit)
        if not disturbance:
            return text
        if of_location:
            return (
                f"{text}; {disturbance}. That is no excuse, because it is the same location each "
                "time: a program that keeps one node busy is a fault of that node"
            )
        return f"{text}; {disturbance}, which does not explain the figure"

    def excused(self, limit: Limit, disturbance: str) -> str:
        return f"{self._beyond(limit)}, but cannot be judged: {disturbance}"

    def by_disturbed_reference(self, limit: Limit, disturbance: str) -> str:
        head, (bound,) = self._measured(limit.bound)
        return (
            f"{head}, within {self._limit(limit, bound)}, but cannot be judged: {disturbance}, so "
            "the limit may be too wide"
        )

    def by_few_samples(self, limit: Limit, within: int, undisturbed: int) -> str:
        """``within``: how many samples are within the bound; ``undisturbed``: how many are not,
        although no other program disturbed them."""
        head, (bound,) = self._measured(limit.bound)
        few = f"only {within} of its {len(self.samples)} samples {'is' if within == 1 else 'are'}"
        least = "at least 2"
        if undisturbed > 1:
            few += f", and {undisturbed} that no program disturbed are not"
            least = f"more than {undisturbed}"
        return (
            f"{head}, within {self._limit(limit, bound)}, but {few}: {least} must be; it takes "
            "more repeats or a quieter machine"
        )

    def scattered(self, limit: Limit) -> str:
        head, (bound,) = self._measured(limit.bound)
        low, high = distinct(min(self.samples), max(self.samples))
        return (
            f"{head}, and cannot be distinguished from {self._limit(limit, bound)}: the samples "
            f"range from {low} to {high} {self.unit}; it takes more repeats or a quieter machine"
        )

    def _beyond(self, limit: Limit) -> str:
        head, (bound,) = self._measured(limit.bound)
        word = "above" if limit.side == "most" else "below"
        return f"{head}, {word} {self._limit(limit, bound)}"

    def _measured(self, *bounds: float) -> tuple[str, list[str]]:
        """The figure with its value and spread; the bounds with enough digits to differ from it."""
        value, *others = distinct(self.value, *bounds)
        spread = statistics.spread(self.samples)
        how = "measured once"
        if spread is not None:
            by_majority = self.rule.statistic == "majority"
            statistic = "median" if by_majority else self.rule.statistic
            wide = f"{number(spread, 2)} {self.unit}".strip()
            how = f"{statistic} of {len(self.samples)}, spread {wide}"
            how += ", decided by majority" if by_majority else ""
        head = f"{self.name} is {value} {self.unit} ({how})"
        return head, [f"{bound} {self.unit}".strip() for bound in others]

    def _limit(self, limit: Limit, bound: str) -> str:
        side = "upper" if limit.side == "most" else "lower"
        return f"the {side} limit of {bound} of {self._source()}"

    def _source(self) -> str:
        if self.reference is None:
            return f"the {requirement(self.rule)}"
        name, value = self.reference
        measured = f"{number(value)} {self.unit}".strip()
        return f"the {self.rule.kind} ({self.rule.id}: {self.rule.text()}; {name} is {measured})"
