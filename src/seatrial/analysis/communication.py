"""The share of an application's run time that is in MPI, and whether its response follows it.

The share is that of Celebioglu et al. (2004), section 4: the sum of the time in MPI over that of
the run time, over all ranks, from runs with the library ``mpi_time``. A response is of the part of
the run that the program's figure times, so the share of that part counts where it is known. Its
relation to the response of applications to a NIC profile is Spearman's rank correlation. The p
value is the share of all orders of the responses that are correlated at least as much: exact for up
to eight programs, of random orders for more. Classes of one kernel are alike, so they count as one
program, with the means of their shares and of the logarithms of their responses. Responses of less
than 3 % are none, and equal: else chance would order the programs that do not respond. The p values
of several profiles are corrected (Holm 1979). The performance of a run with the library is not that
of the application; where the library slows it, the share is of a slower run, and flagged. The
sample of a share is a block of runs (``seatrial.analysis.conclusion``).

Not here: the share of one call in another program, or of a mix of programs. Nothing extrapolates.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from statistics import fmean, geometric_mean, median
from typing import Any

import numpy as np

from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Unit,
    blocks_of,
    inputs_of,
    merged,
    unit_of,
)
from seatrial.analysis.decision import SMALLEST, fault, gain
from seatrial.analysis.ranks import of_median
from seatrial.analysis.response import Response, performance
from seatrial.benchmarks import mpi_time
from seatrial.benchmarks.hpl_output import flops
from seatrial.benchmarks.mpi_time import MpiTime
from seatrial.results.record import Metric
from seatrial.results.statistics import Better

#: a library that slows a run by more than this changes what it measures
MOST_OVERHEAD = 0.03
FEWEST = 5  # applications for a p value
#: Where the share of what a program's figure times is not known, that part must be at least this of
#: the run. Below, its share can be any: 0 to 100 % of a run that it times half of, and that is in
#: MPI for half
LEAST_TIMED = 0.5
_CLASS = re.compile(r"\.[A-Z]$")  # of a kernel of NPB
_ALL_ORDERS = 8  # applications up to which all orders are counted
_ORDERS = 20_000  # random ones of more applications


@dataclass(frozen=True)
class Share:
    """Of one application under one profile.

    ``share``: a fraction of the run time. ``by_call``: call -> its fraction of the time in MPI, the
    longest first. ``message_B``: bytes per call, of the calls that move some; None if none does.
    ``calls_per_s``: of one rank. ``computing_s``, ``in_mpi_s``: medians, means over the ranks.
    ``slowdown``: the performance without the library over that with it; None if it is not known.
    ``timed``: the part of the run that the program's own figure times, a fraction; the rest is its
    set-up and its checks. None where the program does not say how long it timed. ``of_timed``: the
    share of that part, of the runs that show where it is; None if none does. ``unit``: what a
    sample of the shares and of the slowdown is.
    """

    application: str
    route: str
    profile: str
    nodes: int
    hardware: str
    share: Estimate
    by_call: Mapping[str, float]
    message_B: float | None
    calls_per_s: float
    slowdown: Estimate | None
    inputs: Inputs
    timed: float | None = None
    of_timed: Estimate | None = None
    unit: Unit = "repeat"

    @property
    def counted(self) -> Estimate | None:
        """The share of what responds to a profile; None if it is not known."""
        return self.of_timed or (None if self.of_setup else self.share)

    @property
    def of_setup(self) -> bool:
        """Whether most of the run is set-up and checks, of which the response is not."""
        return self.timed is not None and self.timed < LEAST_TIMED

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest share of the part that is timed, if the rest is all in MPI, or
        never."""
        part = self.timed or 1.0
        share = min(1.0, self.share.value)
        return max(0.0, share - (1 - part)) / part, min(1.0, share / part)

    @property
    def flagged(self) -> bool:
        """Whether the library slowed the run by more than it may."""
        return self.slowdown is not None and self.slowdown.value > 1 + MOST_OVERHEAD


@dataclass(frozen=True)
class Relation:
    """Between the share of communication under the base and the response to a profile.

    ``points``: application, share, response. ``correlation``: Spearman's over the ``programs``,
    None where all shares or all responses are equal; ``p``: two-sided, corrected for the number of
    profiles; None of fewer than five programs.
    """

    profile: str
    base: str
    route: str
    nodes: int
    hardware: str
    points: Sequence[tuple[str, Estimate, Estimate]]
    correlation: float | None
    p: float | None
    programs: int
    inputs: Inputs  # of the shares and the responses
    left_out: Sequence[Share] = ()  # of most set-up, without a share of the rest


@dataclass
class _Runs:
    """The runs of one application under one profile, and the facts of those with the library."""

    runs: list[Measured] = field(default_factory=list)
    facts: list[MpiTime] = field(default_factory=list)
    # run and its performance without and with the library
    plain: list[tuple[Measured, float]] = field(default_factory=list)
    timed: list[tuple[Measured, float]] = field(default_factory=list)
    better: Better = "higher"
    parts: list[float] = field(default_factory=list)  # of the run, that the program timed


def shares(measured: Iterable[Measured]) -> list[Share]:
    """The share of each case whose runs have the facts of the library."""
    groups: dict[tuple[str, str, str, int, str], _Runs] = defaultdict(_Runs)
    for sample in measured:
        case, fact = sample.run.case, mpi_time.measured(sample.run.facts)
        if fact is None:
            continue
        name = f"{case.check} {case.variant}".rstrip()
        group = groups[name, case.route, case.profile, case.nodes, sample.run.hardware]
        group.runs.append(sample)
        group.facts.append(fact)
        plain = [m for m in sample.run.metrics if m.metric == performance(case)]
        if plain and fact.performance is not None:
            group.better = plain[0].better
            group.plain += [(sample, m.value) for m in plain]
            group.timed.append((sample, fact.performance))
            if part := _timed(sample, plain[0], fact):
                group.parts.append(part)
    return [_share(*subject, group) for subject, group in groups.items()]


def _timed(sample: Measured, plain: Metric, fact: MpiTime) -> float | None:
    """The part of the run with the library that the program timed, at most 1; None: not known.

    Where the library did not find it, the seconds are those of the run without the library, times
    the slowdown by it.
    """
    if fact.timed_s is not None:
        return min(1.0, fact.timed_s / fact.run_s)
    seconds = [m.value for m in sample.run.metrics if m.metric == "time_s"]
    order = sample.run.facts.get("N")
    if not seconds and plain.metric == "hpl_GFLOPS" and isinstance(order, int):
        seconds = [flops(order) / plain.value / 1e9] if plain.value > 0 else []
    if fault(seconds) or fault([plain.value]) or fault([fact.performance or 0.0]):
        return None
    assert fact.performance
    slower = plain.value / fact.performance
    slower = 1 / slower if plain.better == "lower" else slower
    return min(1.0, seconds[0] * slower / fact.run_s)


def _share(name: str, route: str, profile: str, nodes: int, hardware: str, group: _Runs) -> Share:
    facts = group.facts
    calls: dict[str, float] = defaultdict(float)
    moving = moved = 0
    for fact in facts:
        for call, call_time in fact.by_call.items():
            calls[call] += call_time.s
            if call_time.bytes:
                moving += call_time.calls
                moved += call_time.bytes
    total = sum(calls.values())
    by_call = {call: calls[call] / total for call in sorted(calls, key=lambda c: -calls[c])} \
        if total > 0 else {}  # fmt: skip
    of_timed = [
        (sample, fact.timed_mpi_s / fact.timed_s)
        for sample, fact in zip(group.runs, facts, strict=True)
        if fact.timed_s is not None and fact.timed_mpi_s is not None
    ]
    slowdown = None
    plain, timed = ([value for _, value in runs] for runs in (group.plain, group.timed))
    if not fault(plain) and not fault(timed):
        slowdown = gain(blocks_of(group.plain), blocks_of(group.timed), group.better)
    in_mpi = [
        (sample, fact.mpi_s / fact.run_s) for sample, fact in zip(group.runs, facts, strict=True)
    ]
    return Share(
        name, route, profile, nodes, hardware,
        middle(blocks_of(in_mpi)), by_call,
        moved / moving if moving else None,
        median(fact.calls / fact.ranks / fact.run_s for fact in facts),
        slowdown, inputs_of(group.runs, len(facts)), median(group.parts) if group.parts else None,
        middle(blocks_of(of_timed)) if of_timed else None,
        unit_of(group.runs),
    )  # fmt: skip


def middle(values: Sequence[float]) -> Estimate:
    """The median with its 95 % interval; the interval is infinite if there are too few values."""
    value, low, high = of_median(values, (1 - CONFIDENCE) / 2)
    if low is None or high is None:
        low, high = -math.inf, math.inf
    return Estimate(value, low, high)


def relations(known: Sequence[Share], responses: Sequence[Response]) -> list[Relation]:
    """For each profile: the responses of the applications whose share under the base is known.

    Of at least three programs on the same route, hardware and number of nodes. Two always lie
    on a line. An application of which the share of what responds is not known is left out.
    """
    of_base = {(s.application, s.route, s.profile, s.nodes, s.hardware): s for s in known}
    groups: dict[tuple[str, str, str, int, str], list[tuple[str, Estimate, Estimate]]]
    groups = defaultdict(list)
    left_out: dict[tuple[str, str, str, int, str], list[Share]] = defaultdict(list)
    used: dict[tuple[str, str, str, int, str], list[Inputs]] = defaultdict(list)
    for of_profiles in responses:
        share = of_base.get(
            (
                of_profiles.application,
                of_profiles.route,
                of_profiles.base,
                of_profiles.nodes,
                of_profiles.hardware,
            )
        )
        for profile, response in of_profiles.ratios.items() if share else ():
            assert share is not None
            key = (
                profile,
                of_profiles.base,
                of_profiles.route,
                of_profiles.nodes,
                of_profiles.hardware,
            )
            if (counted := share.counted) is None:
                left_out[key].append(share)
            else:
                groups[key].append((of_profiles.application, counted, response))
                used[key] += share.inputs, of_profiles.inputs
    made = []
    for key, points in groups.items():
        programs = _programs(points)
        if len(programs) >= 3:
            r, p = rank_correlation(*zip(*programs, strict=True))
            made.append(
                Relation(*key, points, r, p, len(programs), merged(used[key]), left_out[key])
            )
    return _corrected(made)


def _programs(points: Sequence[tuple[str, Estimate, Estimate]]) -> list[tuple[float, float]]:
    """Share and response of each program: classes, as in ``npb ft.A``, are of one; a small response
    is 1."""
    by_program: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, share, response in points:
        by_program[_CLASS.sub("", name)].append((share.value, response.value))
    return [
        (fmean(share for share, _ in of), _counted(geometric_mean(response for _, response in of)))
        for of in by_program.values()
    ]


def _counted(response: float) -> float:
    return 1.0 if 1 / (1 + SMALLEST) < response < 1 + SMALLEST else response


def _corrected(relations: Sequence[Relation]) -> list[Relation]:
    """With the p values of Holm, over the profiles that are compared with one base."""
    families: dict[tuple[str, str, int, str], list[int]] = defaultdict(list)
    for i, relation in enumerate(relations):
        if relation.p is not None:
            families[relation.base, relation.route, relation.nodes, relation.hardware].append(i)
    made = list(relations)
    for family in families.values():
        largest = 0.0
        for rank, i in enumerate(sorted(family, key=lambda i: relations[i].p or 0.0)):
            p = (relations[i].p or 0.0) * (len(family) - rank)
            largest = max(largest, min(1.0, p))
            made[i] = replace(relations[i], p=largest)
    return made


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> tuple[float | None, float | None]:
    """Spearman's rank correlation and its two-sided p value, as in ``Relation``.

    Equal values have the mean of their ranks. Of up to eight pairs the p value is exact. Of more it
    is that of a permutation test over ``_ORDERS`` random orders, always the same ones; the
    measured order counts as one, so that p is never below 1 / (``_ORDERS`` + 1) (Phipson and
    Smyth, Statistical Applications in Genetics and Molecular Biology 9 (2010), 39).
    """
    x, y = (_centred(values) for values in (a, b))
    norm = float(np.sqrt(np.sum(x**2) * np.sum(y**2)))
    n = len(a)
    if norm == 0:
        return None, None
    r = float(np.sum(x * y)) / norm
    if n < FEWEST:
        return r, None
    if n > _ALL_ORDERS:
        random = np.random.default_rng(0)
        found = sum(
            abs(float(random.permutation(y) @ x)) / norm >= abs(r) - 1e-9 for _ in range(_ORDERS)
        )
        return r, (found + 1) / (_ORDERS + 1)
    orders = np.array(list(permutations(y)))
    return r, float(np.mean(np.abs(orders @ x) / norm >= abs(r) - 1e-9))


def _centred(values: Sequence[float]) -> Any:
    """Ranks less their mean."""
    array = np.asarray(values, dtype=float)
    ranks = [float(np.sum(array < v) + (np.sum(array == v) + 1) / 2) for v in array]
    return np.array(ranks) - (len(array) + 1) / 2
