"""What each case was measured under, night by night, and what of it changed with a night."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from seatrial.history.conditions import NODES, value_in
from seatrial.history.findings.record import Condition
from seatrial.history.series import KnownTrial
from seatrial.results.record import Case

AROUND = 10  # nights before and after a change whose versions are compared
_KEPT = 3  # nights, as a level needs, for which a value that comes back later was the same

#: number of a trial and case -> what the case was measured with
Under = Mapping[tuple[int, str], dict[str, str]]


class Conditions:
    """The versions, settings and nodes of each case on each night.

    ``nights``: of each case, those on which it ran.
    """

    def __init__(
        self,
        trials: Sequence[KnownTrial],
        under: Under,
        nights: Mapping[Case, NDArray[np.int64]],
    ):
        self._trials, self._under, self._nights = trials, under, nights
        self._changed: dict[tuple[Case, int], list[Condition]] = {}

    def at(self, case: Case, night: int) -> dict[str, str]:
        return self._under.get((self._trials[night].id, case.id), {})

    def before(self, case: Case, night: int) -> dict[str, str]:
        """Those of the last night of a case before one."""
        nights = self._nights[case]
        return self.at(case, int(nights[int(np.searchsorted(nights, night)) - 1]))

    def nodes(self, case: Case, night: int) -> set[str]:
        return set(self.at(case, night).get(NODES, "").split(", ")) - {""}

    def changed(self, case: Case, night: int) -> list[Condition]:
        """What changed with a night (``_has_changed``)."""
        if (case, night) not in self._changed:
            self._changed[case, night] = self._compare(case, night)
        return self._changed[case, night]

    def _compare(self, case: Case, night: int) -> list[Condition]:
        nights = self._nights[case]
        cut = int(np.searchsorted(nights, night))
        sides = [
            [self.at(case, int(at)) for at in part]
            for part in (nights[max(0, cut - AROUND) : cut], nights[cut : cut + AROUND])
        ]
        if not all(sides) or sides[0][-1] == sides[1][0]:
            return []
        result = []
        for name in sorted({*sides[0][-1], *sides[1][0]}):
            old, new = (
                [value for of_night in side if (value := value_in(of_night, name)) is not None]
                for side in sides
            )
            if old and new and _has_changed(old, new):
                result.append(Condition(name, old[-1], new[0]))
        return result

    def by_night(self, cases: Iterable[Case]) -> dict[int, dict[Condition, list[Case]]]:
        """What changed on which night, and in which of the cases."""
        result: dict[int, dict[Condition, list[Case]]] = {}
        for case in cases:
            for before, night in pairwise(self._nights[case].tolist()):
                if self.at(case, before) != self.at(case, night):
                    for condition in self.changed(case, night):
                        result.setdefault(night, {}).setdefault(condition, []).append(case)
        return dict(sorted(result.items()))


def _has_changed(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether a version is another one from a night on, by its values on the nights before and
    since: they have none in common, or else it is one that was taken back later, or is taken back.

    That one is the same for ``_KEPT`` nights before and since, as far as there are as many, and as
    long on average: a value that differs every few nights, such as the nodes of an allocation, says
    nothing of a night.
    """
    if not set(old) & set(new):
        return True
    kept = [len(list(next(groupby(side))[1])) for side in (old[::-1], new)]
    values = len(list(groupby([*old, *new])))
    return (
        old[-1] != new[0]
        and all(n >= min(_KEPT, len(side)) for n, side in zip(kept, (old, new), strict=True))
        and len(old) + len(new) >= _KEPT * values
    )
