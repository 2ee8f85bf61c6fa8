"""What all conclusions have in common: their inputs, and an estimate with its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.results.record import Case, Run

CONFIDENCE = 0.95  # of every interval


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % interval, all in the same unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Inputs:
    """What a conclusion was made from."""

    trials: tuple[str, ...]
    cases: tuple[Case, ...]
    samples: int


@dataclass(frozen=True)
class Missing:
    """A conclusion that the records do not allow.

    ``what`` it would be, such as "response"; of which ``subject``; why, and what it takes.
    """

    what: str
    subject: str
    reason: str
    takes: str


@dataclass(frozen=True)
class Measured:
    """A valid run with the identifier of its trial."""

    trial: str
    run: Run


def inputs_of(measured: Iterable[Measured], samples: int) -> Inputs:
    """The inputs of a conclusion from runs, in the order of the runs."""
    listed = list(measured)
    return Inputs(
        tuple(dict.fromkeys(one.trial for one in listed)),
        tuple(dict.fromkeys(one.run.case for one in listed)),
        samples,
    )


def comparable(by_profile: Mapping[str, Sequence[Measured]]) -> dict[str, list[Measured]]:
    """The runs of the trials that have all the profiles of the trial with the most.

    If a profile was measured in other trials than the rest, what changed between the trials would
    look like its effect.
    """
    profiles: dict[str, set[str]] = defaultdict(set)
    for profile, runs in by_profile.items():
        for one in runs:
            profiles[one.trial].add(profile)
    widest = max(profiles.values(), key=len, default=set())
    complete = {trial for trial, own in profiles.items() if own >= widest}
    return {
        profile: [one for one in runs if one.trial in complete]
        for profile, runs in by_profile.items()
        if profile in widest
    }
