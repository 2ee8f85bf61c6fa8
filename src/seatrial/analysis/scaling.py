"""How a program of fixed size gains from more processes.

The model is the one of seed 004, section 5: t(p) = a0 + a1 / p, with a further - a2 / p^2 where
Akaike's criterion for small samples (AICc, Hurvich and Tsai 1989) prefers it. It describes the
computation; the time of the whole run has the communication in it as well, and then a0 is not a
serial part alone. Weights are 1 / t^2. A slowdown is what the times show, not the model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from seatrial.analysis import decision
from seatrial.analysis.conclusion import (
    CONFIDENCE,
    Estimate,
    Inputs,
    Measured,
    Missing,
    inputs_of,
)

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


@dataclass(frozen=True)
class Step:
    """From p to more processes: the ratio of the times, above 1 if more processes are slower."""

    start: int
    end: int
    ratio: Estimate

    @property
    def certain(self) -> bool:
        """Whether the interval excludes that the times are equal."""
        return self.ratio.low > 1 or self.ratio.high < 1


@dataclass(frozen=True)
class Scaling:
    """``times``: p -> median in s. ``efficiency``: relative to the smallest p; above 1 is possible.

    ``slowdown``: the first step on which the time grows, None if there is none.
    """

    name: str
    times: Mapping[int, float]
    efficiency: Mapping[int, float]
    steps: tuple[Step, ...]
    model: Model | None
    no_model: str  # why there is no model
    inputs: Inputs

    @property
    def slowdown(self) -> Step | None:
        return next((step for step in self.steps if step.ratio.value > 1), None)


def scaling(name: str, samples: Mapping[int, Sequence[float]], inputs: Inputs) -> Scaling:
    """Speed-up and model of times in s by the number of processes.

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
    steps = tuple(Step(a, b, decision.ratio(samples[b], samples[a])) for a, b in pairwise(counts))
    model, why = None, f"{len(counts)} numbers of processes are too few, {POINTS} are needed"
    if len(counts) >= POINTS:
        model, why = fit(samples), ""
    return Scaling(name, times, efficiency, steps, model, why, inputs)


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
        factor = student.ppf((1 + CONFIDENCE) / 2, freedom)
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

    Classes are never mixed: the class is in the variant.
    """
    groups: dict[tuple[str, str, str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        case = one.run.case
        if case.check == "npb":
            groups[case.variant, case.route, case.profile, one.run.hardware].append(one)
    good, missing = [], []
    for (variant, route, profile, _), runs in groups.items():
        samples: dict[int, list[float]] = defaultdict(list)
        for one in runs:
            processes = one.run.facts.get("processes")
            times = [m.value for m in one.run.metrics if m.metric == "time_s"]
            if isinstance(processes, int):
                samples[processes] += times
        name = f"npb {variant}, {route}, {profile}"
        try:
            count = sum(map(len, samples.values()))
            good.append(scaling(name, samples, inputs_of(runs, count)))
        except ValueError as error:
            takes = "runs of npb with more numbers of nodes (benchmarks.npb.nodes in site.yaml)"
            missing.append(Missing("scaling", name, str(error), takes))
    return good, missing
