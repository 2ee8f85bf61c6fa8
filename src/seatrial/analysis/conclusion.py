"""What all conclusions have in common: their inputs, samples, and an estimate with its interval.

The sample of a comparison between profiles (or networks, or transports) is the median of a block of
runs: those of one option in one round of one trial. They share a job, its place and its hour, so
they are not independent. In virtual time a block is a single run: no other program is on the nodes,
and all jobs are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, TypeVar

from seatrial.analysis.axis import PROFILE, Axis
from seatrial.results.locations import natural
from seatrial.results.record import NAME_CHARACTERS, Case, Run
from seatrial.results.wording import some

CONFIDENCE = 0.95  # of every interval
#: Least and largest magnitude of a figure, in any unit of a record. A job user may write others,
#: whose squares, cubes and ratios are no floats.
LEAST, MOST = 1e-30, 1e30

Profile = TypeVar("Profile", bound=Hashable)
#: what a sample is of: a block of runs, or a single run
Unit = Literal["round", "repeat"]


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % interval, all in the same unit."""

    value: float
    low: float
    high: float


def scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)


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
    """A valid run with the identifier of its trial. ``virtual_time``: as in the trial's record."""

    trial: str
    run: Run
    virtual_time: bool = False

    @property
    def block(self) -> tuple[str, int]:
        """The block of the run: trial and number."""
        return self.trial, self.run.repeat if self.virtual_time else self.run.round


def beyond_measure(value: float) -> str:
    """Why a number is no figure that can have been measured, or ""."""
    if not -MOST <= value <= MOST:  # also of an int that is too large for a float
        return "is no number" if value != value else f"is beyond {MOST:g}"
    if 0 < abs(value) < LEAST:
        return f"is not zero, and less than {LEAST:g}"
    return ""


def absurd(run: Run) -> str:
    """Which number of a run cannot have been measured, and why, or ""."""
    for name, value in _numbers(run):
        if why := beyond_measure(value):
            return f"{name[:NAME_CHARACTERS]} {why}, which no measurement gives"
    return ""


def _numbers(run: Run) -> Iterator[tuple[str, float]]:
    """The metrics of a run, the points of its curves, and the numbers in its facts."""
    for metric in run.metrics:
        yield metric.metric, metric.value
    for curve in run.curves:
        for x, y in curve.points:
            yield f"a size of {curve.name}", x
            yield f"a point of {curve.name}", y
    left: list[tuple[str, Any]] = [(f"the fact {name}", value) for name, value in run.facts.items()]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{name}.{key}", part) for key, part in value.items()]
        elif isinstance(value, list):
            left += [(name, part) for part in value]
        elif isinstance(value, int | float):
            yield name, value


def by_block(samples: Iterable[tuple[Hashable, float]]) -> list[float]:
    """The median of each block, in the order of the blocks. ``samples``: block and figure."""
    blocks: dict[Hashable, list[float]] = defaultdict(list)
    for block, value in samples:
        blocks[block].append(value)
    return [median(values) for values in blocks.values()]


def blocks_of(samples: Iterable[tuple[Measured, float]]) -> list[float]:
    """``by_block`` of figures of runs."""
    return by_block((sample.block, value) for sample, value in samples)


def unit_of(measured: Iterable[Measured]) -> Unit:
    """What a block of some runs is: a single run only if all are in virtual time."""
    return "repeat" if all(sample.virtual_time for sample in measured) else "round"


def inputs_of(measured: Iterable[Measured], samples: int) -> Inputs:
    """The inputs of a conclusion from runs, in the order of the runs."""
    listed = list(measured)
    return Inputs(
        tuple(dict.fromkeys(sample.trial for sample in listed)),
        tuple(dict.fromkeys(sample.run.case for sample in listed)),
        samples,
    )


def merged(inputs: Iterable[Inputs]) -> Inputs:
    """The inputs of a conclusion from others: their samples add up."""
    listed = list(inputs)
    return Inputs(
        tuple(dict.fromkeys(trial for source in listed for trial in source.trials)),
        tuple(dict.fromkeys(case for source in listed for case in source.cases)),
        sum(source.samples for source in listed),
    )


def same_nodes(axis: Axis = PROFILE) -> str:
    """What an answer takes that the nodes leave open."""
    return f"runs of each {axis.name} on the same nodes"


def other_nodes(measured: Iterable[Measured], axis: Axis = PROFILE) -> str:
    """Why the effect of an option may be that of its nodes, or "": they differ within a trial.

    A run without nodes on record says nothing.
    """
    return different_nodes(nodes_by_option(measured, axis), axis)


def nodes_by_option(
    measured: Iterable[Measured], axis: Axis = PROFILE
) -> dict[str, dict[str, set[str]]]:
    """Trial -> option -> the nodes of its runs, as far as they are on record."""
    nodes: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for sample in measured:
        if sample.run.job.nodes:
            nodes[sample.trial][axis.option(sample.run.case)].update(sample.run.job.nodes)
    return nodes


def different_nodes(nodes: Mapping[str, Mapping[str, Set[str]]], axis: Axis = PROFILE) -> str:
    """As ``other_nodes``; trial -> option -> nodes."""
    for by_option in nodes.values():
        if not by_option:
            continue
        first = next(iter(by_option))
        for option, names in by_option.items():
            if names != by_option[first]:
                a, b = (f"{p}: {some(sorted(by_option[p], key=natural))}" for p in (first, option))
                return f"the {axis.name} cannot be told from the nodes, which differ ({a}; {b})"
    return ""


def comparable(by_profile: Mapping[Profile, Sequence[Measured]]) -> dict[Profile, list[Measured]]:
    """The runs of the trials that have all the profiles of the trial with the most, and of these
    the rounds that have all. Empty if no round has.

    If a profile was measured in other trials or rounds than the rest, what changed between them
    would look like its effect. In virtual time nothing changes between the rounds. A profile is a
    name, or what stands for one.
    """
    profiles: dict[str, set[Profile]] = defaultdict(set)
    for profile, runs in by_profile.items():
        for sample in runs:
            profiles[sample.trial].add(profile)
    widest = max(profiles.values(), key=len, default=set())
    trials = {trial for trial, options_of in profiles.items() if options_of >= widest}
    of_widest = {profile: runs for profile, runs in by_profile.items() if profile in widest}
    rounds = [{sample.block for sample in runs} for runs in of_widest.values()]
    whole = set.intersection(*rounds) if rounds else set()
    kept = {
        profile: [
            sample
            for sample in runs
            if sample.trial in trials and (sample.virtual_time or sample.block in whole)
        ]
        for profile, runs in of_widest.items()
    }
    return kept if all(kept.values()) else {}
