"""How a program of fixed size gains from more processes.

The model is the one of seed 004, section 5: t(p) = a0 + a1 / p, with a further - a2 / p^2 where
Akaike's criterion for small samples (AICc, Hurvich and Tsai 1989) prefers it. It describes the
computation: the run time less the time in MPI, where the library ``mpi_time`` recorded it with each
number of processes. Without it the model is of the time of the whole run, and a0 is not a serial
part alone. The time in MPI has no model. Weights are 1 / t^2. A slowdown is what the times show,
not the model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # quantiles of Student's t; scipy.stats takes long to import

from seatrial.analysis import decision
from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Missing,
    comparable,
    inputs_of,
)
from seatrial.analysis.decision import SMALLEST
from seatrial.benchmarks import mpi_time

POINTS = 3  # least number of values of p for the model
POINTS_OF_SQUARE = 4


@dataclass(frozen=True)
class Model:
    """Coefficients in seconds. ``flaw``: why they mean nothing, such as a negative serial part."""

    a0: Estimate
    a1: Estimate
    a2: Estimate | None = None
    largest_error: float = 0.0
    flaw: str = ""

    @property
    def serial_share(self) -> float | None:
        """a0 / (a0 + a1); None where the model is flawed."""
        return None if self.flaw else self.a0.value / (self.a0.value + self.a1.value)


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
    """``times``: p -> median in s. ``efficiency``: relative to the smallest p; above 1 is possible.

    ``apart``: p -> medians in s of computing and of MPI, means over the processes; empty where they
    are not known.
    ``model`` is that of the computation if it is there.
    """

    name: str
    times: Mapping[int, float]
    efficiency: Mapping[int, float]
    steps: tuple[Step, ...]
    model: Model | None
    no_model: str  # why there is no model
    inputs: Inputs
    apart: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def overtaken(self) -> int | None:
        """The first p at which the time in MPI exceeds that of computing; None if there is none."""
        return next((p for p in sorted(self.apart) if self.apart[p][1] > self.apart[p][0]), None)


def scaling(
    name: str,
    samples: Mapping[int, Sequence[float]],
    inputs: Inputs,
    apart: Mapping[int, Sequence[tuple[float, float]]] | None = None,
) -> Scaling:
    """Speed-up and model of times in s by the number of processes.

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
    efficiency = {p: times[first] * first / (times[p] * p) for p in counts}
    steps = tuple(
        Step(a, b, decision.ratio(samples[b], samples[a], len(counts))) for a, b in pairwise(counts)
    )
    model, why = None, f"{len(counts)} numbers of processes are too few, {POINTS} are needed"
    apart = apart if apart and all(apart.get(p) for p in counts) else {}
    if len(counts) >= POINTS:
        computing = {p: [own for own, _ in values] for p, values in apart.items()}
        model, why = fit(computing or samples), ""
    middles = {
        p: (median(own for own, _ in values), median(mpi for _, mpi in values))
        for p, values in apart.items()
    }
    return Scaling(name, times, efficiency, steps, model, why, inputs, middles)


def fit(samples: Mapping[int, Sequence[float]]) -> Model:
    """The model of times in s, of at least three values of p."""
    p = np.array([p for p, values in samples.items() for _ in values], dtype=float)
    times = np.array([x for values in samples.values() for x in values], dtype=float)
    model, criterion = _solve(p, times, 2)
    if len(samples) >= POINTS_OF_SQUARE:
        longer, other = _solve(p, times, 3)
        if other < criterion:
            return longer
    return model


def _solve(p: NDArray[np.float64], times: NDArray[np.float64], terms: int) -> tuple[Model, float]:
    """The model of two or three terms, and its AICc."""
    count = len(times)
    rows = np.column_stack([np.ones(count), 1 / p, -1 / p**2][:terms]) / times[:, None]
    inverse = np.linalg.pinv(rows)
    coefficients = inverse @ np.ones(count)
    residuals = rows @ coefficients - 1
    squares = max(float(np.sum(residuals**2)), 1e-18 * count)
    freedom = count - terms
    halves = np.full(terms, math.inf)
    if freedom:
        factor = stdtrit(freedom, (1 + CONFIDENCE) / 2)
        halves = factor * np.sqrt(squares / freedom * np.diag(inverse @ inverse.T))
    known = terms + 1  # with the variance
    penalty = 2 * known * (known + 1) / (count - known - 1) if count > known + 1 else math.inf
    pairs = [
        Estimate(float(x), float(x - half), float(x + half))
        for x, half in zip(coefficients, halves, strict=True)
    ]
    flaw = "the part that does not shrink is negative" if coefficients[0] < 0 else ""
    if coefficients[1] < 0:
        flaw = "the part that shrinks is negative: the time grows with the processes"
    model = Model(
        pairs[0], pairs[1], pairs[2] if terms > 2 else None,
        float(np.max(np.abs(residuals))), flaw,
    )  # fmt: skip
    return model, count * math.log(squares / count) + 2 * known + penalty


def series(measured: Iterable[Measured]) -> tuple[list[Scaling], list[Missing]]:
    """The scaling of each kernel of NPB over the numbers of processes, of one profile and route.

    Classes are never mixed: the class is in the variant. Trials are pooled only if each has all the
    numbers of processes.
    """
    groups: dict[tuple[str, str, str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        case = one.run.case
        if case.check == "npb":
            groups[case.variant, case.route, case.profile, one.run.hardware].append(one)
    good, missing = [], []
    for (variant, route, profile, _), of_case in groups.items():
        name = f"npb {variant}, {route}, {profile}"
        by_count: dict[int, list[Measured]] = defaultdict(list)
        for one in of_case:
            processes = one.run.facts.get("processes")
            if isinstance(processes, int):
                by_count[processes].append(one)
        kept = comparable(by_count)
        runs = [one for own in kept.values() for one in own]
        if lost := sorted(by_count.keys() - kept.keys()):
            why = "it was not measured in one trial with the other numbers of processes"
            subject = f"{name}, {' and '.join(map(str, lost))} processes"
            missing.append(Missing("scaling", subject, why, "a trial with all of them"))
        samples: dict[int, list[float]] = defaultdict(list)
        apart: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for one in runs:
            processes = one.run.facts.get("processes")
            times = [m.value for m in one.run.metrics if m.metric == "time_s"]
            if isinstance(processes, int):
                samples[processes] += times
                fact = mpi_time.measured(one.run.facts)
                if fact is not None and fact.run_s > fact.mpi_s:
                    apart[processes].append((fact.run_s - fact.mpi_s, fact.mpi_s))
        try:
            count = sum(map(len, samples.values()))
            good.append(scaling(name, samples, inputs_of(runs, count), apart))
        except ValueError as error:
            takes = "runs of npb with more numbers of nodes (benchmarks.npb.nodes in site.yaml)"
            missing.append(Missing("scaling", name, str(error), takes))
    return good, missing
