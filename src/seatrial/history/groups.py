"""Which trials a user means: by name, by date, or by what they were measured with.

| text | the trials |
| --- | --- |
| ``lab-20261120-120000``, a path, or a glob | of that name or folder |
| ``a,b`` | both |
| ``2026-11-01..2026-11-07``, ``2026-11-01..``, ``2026-11-05`` | that began on these days, in UTC |
| ``kernel=6.1*``, ``driver=igb 5.1``, ``coalesce.rx-usecs=125`` | whose cases had that condition |

Globs are those of ``seatrial.base.globs``. A name or value that is written as it is needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from seatrial.base import globs
from seatrial.base.errors import InputError
from seatrial.base.suggest import suggest
from seatrial.history.conditions import plain_name
from seatrial.history.series import KnownTrial

_DAY = r"\d{4}-\d{2}-\d{2}"
_RANGE = re.compile(rf"({_DAY})?\.\.({_DAY})?|({_DAY})")
_CONDITION = re.compile(r"([^=/]+)=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition of cases: ``kernel=6.1*``."""

    name: str
    pattern: str

    def matches(self, conditions: Mapping[str, str]) -> bool:
        """``igb-5.1`` stands for ``igb 5.1``."""
        values = [value for name, value in conditions.items() if self.is_of(name)]
        if self.pattern in values:
            return True
        exact = globs.matcher(self.pattern)
        plain = globs.matcher(globs.folded(self.pattern, "-", " "))
        return any(exact(value) or plain(value.replace("-", " ")) for value in values)

    def is_of(self, name: str) -> bool:
        """``driver`` stands for ``driver of eth1``, and ``coalesce.rx-usecs`` for ``setting
        coalesce.rx-usecs of eth1``, and ``hpl.size`` for ``benchmark hpl.size``."""
        names = name, plain_name(name)
        return self.name in names or self.name in map(_of_all_interfaces, names)


def _of_all_interfaces(name: str) -> str:
    """``driver`` of ``driver of eth1``. The name of an interface has no space: ``kernel of the
    host`` is another condition than ``kernel``."""
    kind, of, interface = name.rpartition(" of ")
    return kind if of and " " not in interface else name


def condition_of(text: str) -> Condition | None:
    """The condition that a text names; None if it names trials."""
    match = _CONDITION.fullmatch(text)
    return Condition(match[1], match[2]) if match else None


def trials_of(text: str, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
    """The trials of names or dates, in their order. Raises InputError if there is none."""
    if match := _RANGE.fullmatch(text):
        first, last, day = match.groups()
        if day:
            first = last = day
        chosen = [t for t in trials if _begins(t.started, _day(first), _day(last))]
        if not chosen:
            span = f"{trials[0].started:%Y-%m-%d} to {trials[-1].started:%Y-%m-%d}"
            raise InputError(f"{text}: no trial began on these days (those known: {span}, UTC)")
        return chosen
    wanted: set[int] = set()
    for name in globs.split(text):
        named = [trial.id for trial in trials if _is_named(trial, name)]
        if not named:
            globs.check([name])
            hint = suggest(name, [trial.folder.name for trial in trials])
            text = f"{name}: no trial has this name or folder, and it is no date or condition"
            raise InputError(f"{text}{f' ({hint})' if hint else ''}")
        wanted.update(named)
    return [trial for trial in trials if trial.id in wanted]


def _is_named(trial: KnownTrial, name: str) -> bool:
    if name in (trial.folder.name, trial.name):
        return True
    if "/" in name:
        return Path(name).resolve() == trial.folder.resolve()
    matches = globs.matcher(name)
    return matches(trial.folder.name) or matches(trial.name)


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise InputError(f"{text}: no such day: {error}") from None


def _begins(started: datetime, first: date | None, last: date | None) -> bool:
    day = started.astimezone(UTC).date()
    return (first is None or day >= first) and (last is None or day - last <= timedelta(0))


def known_conditions(all_conditions: Iterable[Mapping[str, str]], name: str) -> str:
    """For an error: the values that a condition has in the trials, or the nearest name."""
    condition = Condition(name, "*")
    known = {(n, v) for conditions in all_conditions for n, v in conditions.items()}
    if values := sorted({v for n, v in known if condition.is_of(n)}):
        return f"known values: {' | '.join(values)}"
    names = {_of_all_interfaces(plain_name(n)) for n, _ in known}
    return f"no case has {name}; {suggest(name, names)}"
