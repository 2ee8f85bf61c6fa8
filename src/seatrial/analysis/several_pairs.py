"""Several pairs of ranks at once: what each further interface adds, and bonded or independent.

The input is ``mpi_pairs``, the measurement of Strazdins et al. (2006): pair i has its own processor
and interface, and all pairs send at once. The figure of a run is the median over its repetitions.
The scatter of these is a figure of its own, because they share what happens to the run as a whole.
A sample is a block of runs (``seatrial.analysis.conclusion``).

A bond of m members is compared at m pairs with m pairs on as many independent interfaces; a bond at
fewer pairs has more wires than they. The efficiency of k pairs is B_k / (k B_1), of B_1 the rate of
one pair on one interface: what a bond gives a single pair is no B_1.

The intervals of all patterns of a sentence hold together with 95 %. Runs of one profile over other
interfaces than its first run are left out: a member of a bond may have been lost.

Not here: streams without MPI (``tcp_streams``), whose members of a bond are not on record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.analysis.answer import NOTHING_LOST, Lost, answer
from seatrial.analysis.axis import PROFILE
from seatrial.analysis.communication import middle
from seatrial.analysis.conclusion import (
    Estimate,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    scaled,
    unit_of,
)
from seatrial.analysis.decision import Decision, fault, ratio
from seatrial.analysis.response import BASE
from seatrial.benchmarks.mpi_pairs import PATTERNS, WITHIN, MPIPairs
from seatrial.results.record import Run
from seatrial.results.statistics import Better

UNITS = {name: "us" if name == "latency" else "MB/s" for name in PATTERNS}
BETTER: dict[str, Better] = {
    name: "lower" if unit == "us" else "higher" for name, unit in UNITS.items()
}

_RATES = sum(unit == "MB/s" for unit in UNITS.values())  # a sentence has one of each

_Finite = Annotated[float, Field(allow_inf_nan=False, ge=0)]


class _Facts(BaseModel):
    """The facts of a run that are used; a job user may have written others."""

    model_config = ConfigDict(extra="ignore")

    pairs: int = Field(ge=1)
    repetitions: int = Field(ge=1)
    cores: list[list[int]]
    pairs_MB_s: dict[str, list[_Finite]]
    scatter_percent: dict[str, _Finite | None]
    through: list[str] = []
    members: dict[str, int] = {}
    within_node: str = ""


@dataclass(frozen=True)
class Layout:
    """How many interfaces carry the pairs, and how many members the widest one has."""

    interfaces: int
    members: int

    @property
    def bonded(self) -> bool:
        return self.members > 1


@dataclass(frozen=True)
class Point:
    """So many pairs under one profile, in one pattern.

    ``total``: sum over the pairs in MB/s, or the mean latency in us. ``efficiency``: None of a
    latency, of one pair and where one pair on one interface was not measured. ``balance``: the
    slowest pair over the fastest. ``scatter``: coefficient of variation over ``repetitions``, in
    per cent. Both are medians over the runs. ``own_core``: each rank has a core to itself.
    """

    pairs: int
    total: Estimate
    layout: Layout
    efficiency: Estimate | None
    balance: float | None
    scatter: float | None
    repetitions: int
    own_core: bool


@dataclass(frozen=True)
class BondAgainst:
    """A bond beside as many independent interfaces. ``ratio``: bond over independent."""

    pattern: str
    pairs: int
    bond: str
    independent: str
    ratio: Estimate
    decision: Decision


@dataclass(frozen=True)
class Within:
    """Pairs inside one node: pattern -> MB/s, and us of ``latency``. ``how`` their messages go.

    ``over_best``: in one direction over the best of as many pairs between nodes, if there are any.
    """

    pairs: int
    how: str
    figures: Mapping[str, Estimate]
    own_core: bool
    over_best: Estimate | None = None


@dataclass(frozen=True)
class SeveralPairs:
    """Of one transport and hardware.

    ``points``: (profile, pattern) -> by the number of pairs; profiles with a bond are the last.
    ``unit``: what a sample is of.
    """

    route: str
    hardware: str
    nodes: int
    message_B: float
    points: Mapping[tuple[str, str], tuple[Point, ...]]
    bonds: tuple[BondAgainst, ...]
    within: tuple[Within, ...]
    inputs: Inputs
    unit: Unit = "repeat"


@dataclass
class _Runs:
    """The runs of one number of pairs under one profile: pattern -> a sample of each run."""

    facts: list[_Facts] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    measured: dict[str, list[Measured]] = field(default_factory=lambda: defaultdict(list))

    def blocks(self, pattern: str) -> list[float]:
        """The sample of each block of runs."""
        return blocks_of(zip(self.measured[pattern], self.samples[pattern], strict=True))

    @property
    def layout(self) -> Layout:
        return _layout(self.facts[0])

    @property
    def own_core(self) -> bool:
        """Whether no two ranks of a node share a core, as far as it is on record."""
        ends = list(zip(*self.facts[0].cores, strict=False))
        return all(-1 not in end and len(set(end)) == len(end) for end in ends)


def _layout(facts: _Facts) -> Layout:
    through = set(facts.through)
    return Layout(len(through), max((facts.members.get(name, 1) for name in through), default=1))


def several_pairs(measured: Iterable[Measured], lost: Lost = NOTHING_LOST) -> list[SeveralPairs]:
    """The conclusions of each transport, hardware and size of messages."""
    known = [(sample, facts) for sample in measured if (facts := _facts(sample.run))]
    drivers = _drivers(sample for sample, _ in known)
    groups: dict[tuple[str, str, int, float], list[tuple[Measured, _Facts]]] = defaultdict(list)
    for sample, facts in known:
        run = sample.run
        names = sorted({name for node in run.job.nodes for name in drivers.get(node, ())})
        hardware = f"driver {', '.join(names)}" if names else "?"
        size = run.facts.get("message_B")
        size = float(size) if isinstance(size, int) else 0.0
        groups[run.case.route, hardware, run.case.nodes, size].append((sample, facts))
    return [_of_group(*key, samples, lost) for key, samples in groups.items()]


def _facts(run: Run) -> _Facts | None:
    if run.case.check != MPIPairs.name:
        return None
    try:
        return _Facts.model_validate(run.facts)
    except ValidationError:
        return None


def _drivers(measured: Iterable[Measured]) -> dict[str, set[str]]:
    """Node -> the drivers of its interfaces under test, as far as runs without a bond have them.

    The members of a bond are not on record under its profile.
    """
    drivers: dict[str, set[str]] = defaultdict(set)
    for sample in measured:
        used = sample.run.facts.get("through")
        for node, name, before in sample.run.nic_before():
            driver = before.get("driver")
            if isinstance(used, list) and name in used and isinstance(driver, str):
                drivers[node] |= {driver} - {"bonding"}
    return drivers


def _of_group(
    route: str,
    hardware: str,
    nodes: int,
    size: float,
    known: Sequence[tuple[Measured, _Facts]],
    lost: Lost,
) -> SeveralPairs:
    by_profile: dict[str, list[Measured]] = defaultdict(list)
    for sample, _ in known:
        by_profile[sample.run.case.profile].append(sample)
    kept = {id(sample) for runs in comparable(by_profile).values() for sample in runs}
    between: dict[tuple[str, int], _Runs] = defaultdict(_Runs)
    inside: dict[int, _Runs] = defaultdict(_Runs)
    used = []
    for sample, facts in known:
        if id(sample) not in kept:
            continue
        case = sample.run.case
        within = case.variant.endswith(WITHIN)
        runs = inside[facts.pairs] if within else between[case.profile, facts.pairs]
        if runs.facts and not within and _layout(facts) != runs.layout:
            continue
        runs.facts.append(facts)
        for pattern in PATTERNS:
            unit = UNITS[pattern].replace("/", "_")
            name = f"{'within_' if within else ''}{pattern}_{unit}"
            values = [m.value for m in sample.run.metrics if m.metric == name]
            if values and not fault(values):
                runs.samples[pattern].append(values[0])
                runs.measured[pattern].append(sample)
        used.append(sample)
    return SeveralPairs(
        route, hardware, nodes, size,
        _points(between),
        tuple(_bonds(between, lost)),
        tuple(
            Within(pairs, runs.facts[0].within_node,
                   {p: middle(runs.blocks(p)) for p in runs.samples}, runs.own_core,
                   _over_best(between, pairs, runs.blocks("uni")))
            for pairs, runs in sorted(inside.items())
        ),
        inputs_of(used, len(used)),
        unit_of(used),
    )  # fmt: skip


def _first_independent(between: Mapping[tuple[str, int], _Runs], pairs: int) -> str:
    """The profile under which so many pairs had an interface each; "": none."""
    names = [
        profile
        for (profile, count), runs in between.items()
        if count == pairs and not runs.layout.bonded and runs.layout.interfaces == pairs
    ]
    return BASE if BASE in names else next(iter(names), "")


def _points(
    between: Mapping[tuple[str, int], _Runs],
) -> dict[tuple[str, str], tuple[Point, ...]]:
    made: dict[tuple[str, str], list[Point]] = defaultdict(list)
    independent = _first_independent(between, 1)
    for (profile, pairs), runs in sorted(between.items(), key=lambda item: item[0][1]):
        single = between.get((profile, 1))
        if single is None or single.layout.bonded:
            single = between.get((independent, 1))
        for pattern in runs.samples:
            samples = runs.blocks(pattern)
            efficiency = None
            if single and pairs > 1 and UNITS[pattern] == "MB/s" and single.samples[pattern]:
                one_pair = single.blocks(pattern)
                efficiency = scaled(ratio(samples, one_pair, _RATES + 1), 1 / pairs)
            balances = [
                min(rates) / max(rates)
                for facts in runs.facts
                if (rates := facts.pairs_MB_s.get(pattern)) and max(rates) > 0
            ]
            scatters = [
                scatter
                for facts in runs.facts
                if (scatter := facts.scatter_percent.get(pattern)) is not None
            ]
            made[profile, pattern].append(
                Point(
                    pairs, middle(samples), runs.layout, efficiency,
                    median(balances) if balances else None,
                    median(scatters) if scatters else None,
                    min(facts.repetitions for facts in runs.facts), runs.own_core,
                )
            )  # fmt: skip
    of_bonds = {profile for (profile, _), runs in between.items() if runs.layout.bonded}
    ordered = sorted(made, key=lambda key: (key[0] in of_bonds, key[0]))
    return {key: tuple(made[key]) for key in ordered}


def _over_best(
    between: Mapping[tuple[str, int], _Runs], pairs: int, inside: Sequence[float]
) -> Estimate | None:
    """How many times faster pairs inside a node are than the best of as many between nodes."""
    rates = [runs.blocks("uni") for (_, k), runs in between.items() if k == pairs]
    rates = [samples for samples in rates if samples]
    if not rates or not inside:
        return None
    return ratio(inside, max(rates, key=median), len(rates) + 1)


def _bonds(between: Mapping[tuple[str, int], _Runs], lost: Lost) -> Iterable[BondAgainst]:
    """Each bond of as many members as pairs, beside the same number of independent interfaces.

    That a third profile was disturbed changes nothing between the two.
    """
    lost = replace(lost, disturbed={})
    for (profile, pairs), runs in between.items():
        layout = runs.layout
        if layout.interfaces != 1 or layout.members != pairs or pairs < 2:
            continue
        independent = _first_independent(between, pairs)
        if not independent:
            continue
        others = between[independent, pairs]
        for pattern in runs.samples:
            if others.samples[pattern]:
                own, other = runs.blocks(pattern), others.blocks(pattern)
                samples = {
                    name: list(zip(own_runs.measured[pattern], own_runs.samples[pattern],
                                   strict=True))
                    for name, own_runs in ((profile, runs), (independent, others))
                }  # fmt: skip
                unit = unit_of([*runs.measured[pattern], *others.measured[pattern]])
                if not (of_trials := lost.beside(samples, PROFILE)):
                    continue  # in no trial together
                decision = answer(of_trials, BETTER[pattern], PROFILE, unit, looks=_RATES)
                yield BondAgainst(
                    pattern, pairs, profile, independent, ratio(own, other, looks=_RATES),
                    decision,
                )  # fmt: skip
