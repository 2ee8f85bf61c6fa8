"""Which of several options is best, from repeated measurements: one, none, or measure more.

The comparison is distribution-free, because figures of a network have outliers and regimes. The
ratio of two options is estimated by the shift between the logarithms of their samples, with the
interval by ranks (``seatrial.analysis.ranks``).

Of k options each interval has the confidence 1 - 0.05 / (k - 1), by Bonferroni: all intervals
against one option hold together with 95 %. An option that is no better than the others is thus
called the best in at most 5 % of decisions, if the samples are independent: one of each block of
runs (``seatrial.analysis.conclusion``). A caller that decides several times while the samples
grow gives the number of ``looks``. A look then has the error 5 % / ``looks``, and all of them 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Literal

import numpy as np

from seatrial.analysis.conclusion import CONFIDENCE, Estimate, Unit, beyond_measure
from seatrial.analysis.ranks import hodges_lehmann
from seatrial.results import statistics
from seatrial.results.statistics import Better

#: A difference below 3 % changes no choice of a profile, however certain it is.
SMALLEST = 0.03
#: Samples of each option for an answer. The rank test takes options to scatter alike: of four
#: samples each, one with a scatter of 0.2 % and one of 20 %, a best is named in 8 % of decisions
#: where the medians are equal, of five in 4 %.
FEWEST = 5
MOST_REPEATS = 1000  # a larger number of repeats is not proposed

Answer = Literal["best", "no difference", "measure more"]


@dataclass(frozen=True)
class Decision:
    """The answer on some options.

    ``leaders``: the best option alone, or the options at the top of which none is certainly
    better, the one with the highest estimate first. ``worse``: options that are worse than the
    first leader. ``ahead``: option -> how many times better the first leader is. ``margin``: the
    smallest difference that counts, a fraction: 3 %, or the spread of the samples if that is
    larger. ``needs``: samples of each option for an answer; None if it is there; ``unit``: what a
    sample is. ``reason``: of "measure more". ``refused``: option -> why its samples cannot be
    compared. ``takes``: of an answer that is withheld because of how the samples were measured,
    what would allow one.
    ``uneven``: of "no difference", which leader's single runs scatter more, or have one that is
    much worse; "" if all are alike.
    """

    answer: Answer
    leaders: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    ahead: Mapping[str, Estimate] = field(default_factory=dict)
    margin: float = SMALLEST
    repeats: int = 0  # least number of samples of an option
    needs: int | None = None
    reason: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    takes: str = ""
    uneven: str = ""
    unit: Unit = "repeat"

    @property
    def behind(self) -> tuple[str, ...]:
        """The leaders that are certainly worse than the first, perhaps by more than 3 %, but by
        less than single runs scatter."""
        return tuple(
            p
            for p in self.leaders[1:]
            if self.ahead[p].low > 1 and self.ahead[p].high >= 1 + SMALLEST
        )

    @property
    def apart(self) -> float:
        """The largest difference of two leaders that the intervals allow, a fraction.

        Two leaders that are not the first are compared by their intervals against it: all of these
        hold together.
        """
        intervals = [
            (1.0, 1.0),
            *((self.ahead[p].low, self.ahead[p].high) for p in self.leaders[1:]),
        ]
        return max(a[1] / b[0] if b[0] > 0 else math.inf for a, b in permutations(intervals, 2)) - 1


def fault(samples: Sequence[float]) -> str:
    """Why samples have no logarithm, or ""."""
    if len(samples) == 0:
        return "it has no sample"
    for value in samples:
        if not math.isfinite(value):
            return f"a sample is {value}, which is not a finite number"
        if value <= 0:
            return f"a sample is {value:g}, and must be above zero"
        if why := beyond_measure(value):
            return f"a sample {why}, which no measurement gives"
    return ""


def least_repeats(options: int, looks: int = 1) -> int:
    """The number of samples from which the best of so many options can be named.

    The interval of two options of n samples each is finite from the n at which all samples of the
    one exceed all of the other by chance in at most 0.05 / (k - 1) / 2 / looks of experiments; at
    least ``FEWEST``.
    """
    return next(n for n in range(FEWEST, 100) if 1 / math.comb(2 * n, n) <= _tail(options, looks))


def _tail(options: int, looks: int) -> float:
    """Probability on each side of an interval."""
    return (1 - CONFIDENCE) / max(1, options - 1) / 2 / looks


def ratio(a: Sequence[float], b: Sequence[float], options: int = 2, looks: int = 1) -> Estimate:
    """How many times larger a is than b; ``options``: the number of options of the decision.

    The interval is from 0 to infinity if there are too few samples, such as fewer than ``FEWEST``
    of one of the two. Raises ValueError if a sample is not above zero.
    """
    if why := fault(a) or fault(b):
        raise ValueError(why)
    shift, low, high = hodges_lehmann(np.log(b), np.log(a), _tail(options, looks))
    if low is None or high is None or min(len(a), len(b)) < FEWEST:
        low, high = -math.inf, math.inf
    return Estimate(*(float(np.exp(end)) for end in (shift, low, high)))


def gain(
    a: Sequence[float], b: Sequence[float], better: Better, options: int = 2, looks: int = 1
) -> Estimate:
    """How many times better a is than b: as ``ratio``, above 1 if a is better."""
    return ratio(*((a, b) if better == "higher" else (b, a)), options, looks)


def _spread(samples: Sequence[float]) -> float:
    """Relative spread of the samples of an option, a fraction."""
    return statistics.spread([math.log(value) for value in samples]) or 0.0


def decide(
    options: Mapping[str, Sequence[float]],
    better: Better,
    looks: int = 1,
    unit: Unit = "repeat",
    what: str = "profile",
) -> Decision:
    """The best of some options, each with the samples of its performance.

    ``looks``: how often at most a decision is made on these samples while they grow. ``unit``: what
    a sample is; ``what`` an option is.

    1. Options whose samples have no logarithm are refused; of fewer than two others there is no
       decision.
    2. The leader is the option with the best median. Another option is worse if the whole interval
       of the ratio is on one side of 1 and the difference is at least the margin.
    3. All others are worse: "best". Else the others are leaders, too: "no difference" if each
       interval is at most twice the margin wide, so that a difference that counts would have been
       seen; "measure more" if not, with the number of repeats that should do.
    """
    refused = {name: why for name, samples in options.items() if (why := fault(samples))}
    usable = {name: list(samples) for name, samples in options.items() if name not in refused}
    repeats = min(map(len, usable.values()), default=0)
    k = len(usable)
    if k < 2:
        why = "there is nothing to compare it with" if k else "no option has samples"
        return Decision(
            "measure more", tuple(usable), repeats=repeats, reason=why, refused=refused, unit=unit
        )
    sign = 1 if better == "higher" else -1
    leader = max(usable, key=lambda name: sign * statistics.median(usable[name]))
    ahead: dict[str, Estimate] = {}
    ties, worse = [leader], []
    open_: dict[str, float] = {}  # option -> width of its interval over that which is allowed
    margins = [SMALLEST]
    for name, samples in usable.items():
        if name == leader:
            continue
        ahead[name] = estimate = gain(usable[leader], samples, better, k, looks)
        margin = max(SMALLEST, _spread(samples), _spread(usable[leader]))
        if estimate.low > 1 and estimate.value >= 1 + margin:
            worse.append(name)
            continue
        ties.append(name)
        margins.append(margin)
        open_[name] = _width(estimate) / (2 * math.log1p(margin))
    made = Decision(
        "best", tuple(ties), tuple(worse), ahead, max(margins), repeats, refused=refused, unit=unit
    )
    if not open_:
        return made
    widest, least = max(open_.values()), least_repeats(k, looks)
    if widest <= 1:
        uneven = _uneven({name: usable[name] for name in ties}, better, made.margin, looks)
        return replace(made, answer="no difference", uneven=uneven)
    if repeats < least:
        why = f"a {what} {_times(repeats, unit)}, and {k} {what}s need {least} {unit}s each"
        return replace(made, answer="measure more", needs=least, reason=why)
    # Options that are worse may have been left out of later repeats.
    fewest = min(len(usable[name]) for name in ties)
    needs = max(fewest + 1, min(MOST_REPEATS, math.ceil(fewest * widest**2)))
    why = f"the {unit}s scatter too much to see a difference that counts"
    return replace(made, answer="measure more", needs=needs, reason=why)


def _times(count: int, unit: Unit) -> str:
    if unit == "repeat":
        return "was measured once" if count == 1 else f"has {count} repeats"
    if count > 1:
        return f"has {count} rounds"
    return (
        "was measured in one round alone: what its job met, such as its place, other users or the "
        "hour, cannot be told from its effect"
    )


def withheld(made: Decision, reason: str, takes: str) -> Decision:
    """The decision without its answer, which the samples do not support; "" of a reason: as it is.

    The estimates stay. None of the options is called worse.
    """
    if not reason:
        return made
    if made.answer == "measure more":  # for two reasons
        reason = "; ".join(filter(None, [made.reason, reason]))
        takes = "; ".join(filter(None, [made.takes, takes]))
    return replace(
        made, answer="measure more", leaders=(*made.leaders, *made.worse), worse=(),
        reason=reason, takes=takes,
    )  # fmt: skip


def _uneven(
    options: Mapping[str, Sequence[float]], better: Better, margin: float, looks: int
) -> str:
    """How options of like medians differ in their single samples, or "".

    Scatter is the distance from the own median, compared by ranks as the samples are. Of a few runs
    that are much worse ranks say nothing: the worst counts if it is off by more than 10 %, or four
    margins, than the worst of the steadiest option.
    """
    off = {p: [abs(math.log(x / statistics.median(v))) for x in v] for p, v in options.items()}
    worst = {
        p: statistics.median(v) / min(v) if better == "higher" else max(v) / statistics.median(v)
        for p, v in options.items()
    }
    steady, wild = (f(options, key=lambda p: statistics.median(off[p])) for f in (min, max))
    shift, low, _ = hodges_lehmann(off[steady], off[wild], _tail(len(options), looks))
    if low is not None and low > 0 and shift > SMALLEST / 2:
        sizes = [100 * math.expm1(statistics.median(off[p])) for p in (wild, steady)]
        return (
            f"single runs under {wild} are {sizes[0]:.2g} % from their median in the median, under "
            f"{steady} {sizes[1]:.2g} %"
        )
    steady, wild = (f(worst, key=worst.__getitem__) for f in (min, max))
    if worst[wild] / worst[steady] > 1 + max(0.1, 4 * margin):
        return (
            f"the worst run under {wild} is {worst[wild]:.3g} times worse than its median, under "
            f"{steady} {worst[steady]:.3g} times"
        )
    return ""


def disagreement(
    made: Decision, trials: Mapping[str, Mapping[str, Sequence[float]]], better: Better
) -> str:
    """Why the samples of several trials cannot be pooled, or "": they contradict each other.

    ``trials``: trial -> option -> samples. Two trials contradict each other if their intervals of a
    ratio to the first leader are apart, with 95 % for all pairs of trials together. Ratios in the
    same direction, or less than 3 % apart, do not contradict each other. Trials of few repeats have
    no interval and show no contradiction.
    """
    names = (*made.leaders, *made.worse)
    pairs = max(1, math.comb(len(trials), 2))
    for other in names[1:]:
        ratios = {
            trial: gain(samples[names[0]], samples[other], better, len(names), pairs)
            for trial, samples in trials.items()
        }
        for (a, x), (b, y) in permutations(ratios.items(), 2):
            if x.low > y.high and x.low > 1 and y.value < 1 and x.value > y.value * (1 + SMALLEST):
                return (
                    f"the trials disagree: {names[0]} has {x.value:.3g} times ({x.low:.3g} to "
                    f"{x.high:.3g}) the performance of {other} in {a}, and {y.value:.3g} times "
                    f"({y.low:.3g} to {y.high:.3g}) in {b}"
                )
    return ""


def failing(made: Decision, lost: Mapping[str, tuple[int, int]], verb: str = "failed") -> str:
    """Why the leaders are not known to be better than the others, or "": their runs fail more.

    A run that fails, or reaches its limit of time, is slower than any that ends, and has no sample.
    ``lost``: option -> number of runs that failed, and of all runs.
    """
    shares = {p: lost[p][0] / lost[p][1] for p in (*made.leaders, *made.worse) if lost.get(p)}
    if not shares:
        return ""
    most = max((p for p in made.leaders if p in shares), key=shares.__getitem__, default="")
    least = min(shares, key=shares.__getitem__)
    if not most or shares[most] <= shares[least]:
        return ""
    return (
        f"{lost[most][0]} of {lost[most][1]} runs under {most} {verb}, of {least} "
        f"{lost[least][0]} of {lost[least][1]}, and a run that fails is slower than any other"
    )


def _width(estimate: Estimate) -> float:
    """Width of an interval on the scale of logarithms."""
    return math.log(estimate.high / estimate.low) if estimate.low > 0 else math.inf
