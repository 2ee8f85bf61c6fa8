"""How a program of fixed size gains from more processes.

The model is the one of Tessera, section 5: t(p) = a0 + a1 / p, with a further - a2 / p^2 where
Akaike's criterion for small samples (AICc, Hurvich and Tsai 1989) prefers it. It describes the
computation: the run time less the time in MPI, where the library ``mpi_time`` recorded it with each
number of processes; of the part that the program times, if the library found it in all runs.
Without it the model is of the time of the whole run, and a0 is not a serial part alone. The time in
MPI has no model. Weights are 1 / t^2. A slowdown is what the times show, not the model.

The sample is a block of runs (``seatrial.analysis.conclusion``): repeats of one round share a job.
The lines go through the medians of the numbers of processes, so that an outlier moves nothing. What
they miss beyond the scatter of the samples is tested (lack of fit; Draper and Smith, Applied
Regression Analysis, 3rd edition, 2.2). A model that fails the test has no coefficients that mean
anything. An interval is the wider one of two: by the scatter of the samples, and by what the model
misses. It holds both models where AICc does not tell them apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtrit  # of F and Student's t; scipy.stats takes long to import

from seatrial.analysis import decision
from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Missing,
    Unit,
    blocks_of,
    comparable,
    inputs_of,
    scaled,
    unit_of,
)
from seatrial.analysis.decision import SMALLEST
from seatrial.analysis.ranks import of_median
from seatrial.benchmarks import mpi_time
from seatrial.results import statistics

POINTS = 3  # least number of values of p for the model
POINTS_OF_SQUARE = 4
#: models whose AICc differ by less than this are both plausible (Burnham and Anderson, Model
#: Selection and Multimodel Inference, 2nd edition, 2.6)
ALIKE = 4.0
#: relative error below which what a model misses is rounding
_EXACT = 1e-9


@dataclass(frozen=True)
class Model:
    """Coefficients in seconds. ``flaw``: why they mean nothing, such as a negative serial part.

    ``share``: a0 / (a0 + a1), the part of the time of one process that does not shrink. ``tested``:
    whether there are several samples, which could show that the model does not fit.
    """

    a0: Estimate
    a1: Estimate
    share: Estimate
    a2: Estimate | None = None
    largest_error: float = 0.0
    flaw: str = ""
    tested: bool = True


#: what more processes do to the time
Effect = Literal["costs", "saves", "none", "not certain"]


@dataclass(frozen=True)
class Step:
    """From p to more processes: the ratio of the times, above 1 if more processes are slower.

    The intervals of all steps hold together with 95 %.
    """

    start: int
    end: int
    ratio: Estimate

    @property
    def effect(self) -> Effect:
        """ "none": the interval has no difference of 3 % or more."""
        if self.ratio.low > 1 / (1 + SMALLEST) and self.ratio.high < 1 + SMALLEST:
            return "none"
        if self.ratio.low > 1:
            return "costs"
        return "saves" if self.ratio.high < 1 else "not certain"


@dataclass(frozen=True)
class Scaling:
    """``times``: p -> median in s. ``efficiency``: relative to the smallest p; above 1 is possible,
    and the intervals hold together.

    ``apart``: p -> medians in s of computing and of MPI, means over the processes; empty where they
    are not known. ``overtaken``: from this p on the time in MPI exceeds that of computing for
    certain; ``seems_overtaken``: in the medians. None if there is none.
    ``model`` is that of the computation if it is there. ``unit``: what a sample is of.
    """

    name: str
    times: Mapping[int, float]
    efficiency: Mapping[int, Estimate]
    steps: tuple[Step, ...]
    model: Model | None
    no_model: str  # why there is no model
    inputs: Inputs
    apart: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    overtaken: int | None = None
    seems_overtaken: int | None = None
    unit: Unit = "repeat"


def scaling(
    name: str,
    samples: Mapping[int, Sequence[float]],
    inputs: Inputs,
    apart: Mapping[int, Sequence[tuple[float, float]]] | None = None,
    unit: Unit = "repeat",
) -> Scaling:
    """Speed-up and model of times in s by the number of processes. The samples are independent.

    ``apart``: times of computing and of MPI; they count if each number of processes has some.

    Raises ValueError if there are fewer than two values of p, or a time is not above zero.
    """
    counts = sorted(samples)
    for p in counts:
        if why := decision.fault(samples[p]):
            raise ValueError(f"{p} processes: {why}")
    if len(counts) < 2:
        raise ValueError("it was measured with one number of processes, two are needed")
    times = {p: median(samples[p]) for p in counts}
    first = counts[0]
    efficiency = {
        p: scaled(decision.ratio(samples[first], samples[p], len(counts)), first / p)
        for p in counts[1:]
    }
    steps = tuple(
        Step(a, b, decision.ratio(samples[b], samples[a], len(counts))) for a, b in pairwise(counts)
    )
    model, why = None, f"{len(counts)} numbers of processes are too few, {POINTS} are needed"
    apart = apart if apart and all(apart.get(p) for p in counts) else {}
    if len(counts) >= POINTS:
        computing = {p: [computing_s for computing_s, _ in values] for p, values in apart.items()}
        model, why = fit(computing or samples), ""
    middles = {
        p: (median(computing_s for computing_s, _ in values), median(mpi for _, mpi in values))
        for p, values in apart.items()
    }
    logs = {
        p: [math.log(mpi / computing_s) if mpi > 0 else -math.inf for computing_s, mpi in values]
        for p, values in apart.items()
    }
    # The largest p is tested first, and each other one after all above it: no correction is due.
    certain = _from_here_on(
        counts, {p for p, x in logs.items() if (of_median(x, 1 - CONFIDENCE)[1] or 0) > 0}
    )
    seems = _from_here_on(counts, {p for p, x in logs.items() if median(x) > 0})
    return Scaling(
        name, times, efficiency, steps, model, why, inputs, middles, certain, seems, unit
    )  # fmt: skip


def _from_here_on(counts: Sequence[int], chosen: Set[int]) -> int | None:
    """The smallest of ``counts`` from which on all are chosen; None if the largest is not."""
    first = None
    for p in reversed(counts):
        if p not in chosen:
            break
        first = p
    return first


def fit(samples: Mapping[int, Sequence[float]]) -> Model:
    """The model of times in s, of at least three values of p."""
    made, criterion = _solve(samples, 2)
    if len(samples) < POINTS_OF_SQUARE:
        return made
    longer, other = _solve(samples, 3)
    short, chosen = (made, longer) if other < criterion else (longer, made)
    if abs(other - criterion) >= ALIKE or short.flaw:
        return chosen
    a0, a1, share = (
        _around(own, other)
        for own, other in (
            (chosen.a0, short.a0), (chosen.a1, short.a1), (chosen.share, short.share),
        )
    )  # fmt: skip
    return replace(chosen, a0=a0, a1=a1, share=share)


def _around(estimate: Estimate, other: Estimate) -> Estimate:
    """An estimate with an interval that holds that of another one, too."""
    return Estimate(estimate.value, min(estimate.low, other.low), max(estimate.high, other.high))


def _solve(samples: Mapping[int, Sequence[float]], terms: int) -> tuple[Model, float]:
    """The model of two or three terms, and the AICc of all samples."""
    points = {p: median(values) for p, values in samples.items()}
    p, times = (np.array(list(column), dtype=float) for column in (points, points.values()))
    rows = np.column_stack([np.ones(len(p)), 1 / p, -1 / p**2][:terms]) / times[:, None]
    inverse = np.linalg.pinv(rows)
    coefficients = inverse @ np.ones(len(p))
    missed = rows @ coefficients - 1
    normal = inverse @ inverse.T
    # squares of the standard error of a median by what the model misses and by the samples
    freedom = len(p) - terms
    by_model = float(np.sum(missed**2)) / freedom
    off = [[x / points[p] - 1 for x in values] for p, values in samples.items()]
    repeated = sum(len(values) - 1 for values in off)
    half, flaw = stdtrit(freedom, (1 + CONFIDENCE) / 2) * math.sqrt(by_model), ""
    if repeated:
        within = sum(float(np.var(values)) * len(values) for values in off) / repeated
        by_samples = float(np.mean([_of_median(within, len(values)) for values in off]))
        half = max(half, stdtrit(repeated, (1 + CONFIDENCE) / 2) * math.sqrt(by_samples))
        if fdtrc(freedom, repeated, by_model / max(by_samples, _EXACT**2)) < 1 - CONFIDENCE:
            flaw = "the times miss it by more than the samples scatter"
    a0, a1, *a2 = (
        Estimate(float(x), float(x - width), float(x + width))
        for x, width in zip(coefficients, half * np.sqrt(np.diag(normal)), strict=True)
    )
    share = _share(coefficients, normal * half**2)
    if a1.value < 0:
        flaw = "the part that shrinks is negative: the time grows with the processes"
    elif not flaw and a0.value < 0:
        flaw = "the part that does not shrink is negative"
        if a0.high >= 0:
            flaw += f", and may be zero or up to {100 * share.high:.2g} % of the time"
    model = Model(a0, a1, share, a2[0] if a2 else None, float(np.max(np.abs(missed))), flaw,
                  repeated > 0)  # fmt: skip
    return model, _criterion(samples, coefficients)


def _of_median(variance: float, n: int) -> float:
    """Square of the standard error of the median of n samples of this variance."""
    return statistics.median_error(math.sqrt(variance), n) ** 2


def _share(coefficients: NDArray[np.float64], covariance: NDArray[np.float64]) -> Estimate:
    """a0 / (a0 + a1) with the interval of Fieller (1954): of all s with |a0 - s (a0 + a1)| within
    its own half width. ``covariance``: times the square of the quantile."""
    u, v = coefficients[0], coefficients[0] + coefficients[1]
    uu, vv = covariance[0, 0], float(np.sum(covariance[:2, :2]))
    uv = covariance[0, 0] + covariance[0, 1]
    a, b, c = v**2 - vv, u * v - uv, u**2 - uu
    if a <= 0:
        return Estimate(float(u / v), -math.inf, math.inf)
    root = math.sqrt(max(0.0, b**2 - a * c))
    return Estimate(float(u / v), float((b - root) / a), float((b + root) / a))


def _criterion(samples: Mapping[int, Sequence[float]], coefficients: NDArray[np.float64]) -> float:
    """AICc of the relative errors of all samples."""
    terms = len(coefficients)
    errors = [
        (coefficients @ [1, 1 / p, -1 / p**2][:terms]) / x - 1
        for p, values in samples.items()
        for x in values
    ]
    count = len(errors)
    known = terms + 1  # with the variance
    penalty = 2 * known * (known + 1) / (count - known - 1) if count > known + 1 else math.inf
    squares = max(sum(float(x) ** 2 for x in errors) / count, _EXACT**2)
    return count * math.log(squares) + 2 * known + penalty


def series(measured: Iterable[Measured]) -> tuple[list[Scaling], list[Missing]]:
    """The scaling of each kernel of NPB over the numbers of processes, of one profile and route.

    Classes are never mixed: the class is in the variant. Trials are pooled only if each has all the
    numbers of processes.
    """
    groups: dict[tuple[str, str, str, str], list[Measured]] = defaultdict(list)
    for sample in measured:
        case = sample.run.case
        if case.check == "npb":
            groups[case.variant, case.route, case.profile, sample.run.hardware].append(sample)
    good, missing = [], []
    for (variant, route, profile, _), of_case in groups.items():
        name = f"npb {variant}, {route}, {profile}"
        by_count: dict[int, list[Measured]] = defaultdict(list)
        for sample in of_case:
            if count := _processes(sample):
                by_count[count].append(sample)
        kept = comparable(by_count)
        runs = [sample for of_nodes in kept.values() for sample in of_nodes]
        if lost := sorted(by_count.keys() - kept.keys()):
            why = "it was not measured in one trial with the other numbers of processes"
            subject = f"{name}, {' and '.join(map(str, lost))} processes"
            missing.append(Missing("scaling", subject, why, "a trial with all of them"))
        units = {m.unit for sample in runs for m in sample.run.metrics if m.metric == "time_s"}
        if units - {"s"}:
            why = f"its times are in {' and '.join(sorted(units))}, and must be in s"
            missing.append(Missing("scaling", name, why, "records in s"))
            continue
        times = {p: _times(of_nodes) for p, of_nodes in kept.items()}
        samples = {p: blocks_of(values) for p, values in times.items()}
        facts = [mpi_time.measured(sample.run.facts) for sample in runs]
        of_timed = all(fact is not None and fact.timed_s is not None for fact in facts)
        apart = {p: _apart(of_nodes, of_timed) for p, of_nodes in kept.items()}
        try:
            count = sum(map(len, times.values()))
            made = scaling(name, samples, inputs_of(runs, count), apart, unit_of(runs))
            good.append(made)
        except ValueError as error:
            takes = "runs of npb with more numbers of nodes (benchmarks.npb.nodes in site.yaml)"
            missing.append(Missing("scaling", name, str(error), takes))
    return good, missing


def _times(runs: Sequence[Measured]) -> list[tuple[Measured, float]]:
    """Each run with its time in s."""
    return [
        (sample, m.value) for sample in runs for m in sample.run.metrics if m.metric == "time_s"
    ]


def _apart(runs: Sequence[Measured], of_timed: bool) -> list[tuple[float, float]]:
    """The time of computing and that in MPI in s, of each block; empty if they are not known.

    ``of_timed``: of the part that the program times, else of the whole run.
    """
    known = []
    for sample in runs:
        if fact := mpi_time.measured(sample.run.facts):
            whole, mpi = fact.run_s, fact.mpi_s
            if of_timed and fact.timed_s is not None:
                whole, mpi = fact.timed_s, fact.timed_mpi_s or 0.0
            if whole > mpi:
                known.append((sample, whole - mpi, mpi))
    computing_blocks = blocks_of((sample, computing) for sample, computing, _ in known)
    return list(
        zip(computing_blocks, blocks_of((sample, mpi) for sample, _, mpi in known), strict=True)
    )


def _processes(sample: Measured) -> int:
    """The number of processes of a run; 0 if it is not known."""
    count = sample.run.facts.get("processes")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0
