#!/usr/bin/env python3
"""What ``seatrial compare`` and the comparison of NIC profiles find, and how often they are wrong.

    .venv/bin/python ci/bench/comparing.py [--rounds 40] [--trials 500]
    .venv/bin/python ci/bench/comparing.py --measured trials/NAME [--measured ...]

On simulated nights: each round draws figures of some series for two groups of trials; up to five
series of the second group are slower. Beside the test of Seatrial it runs the usual one, Mann and
Whitney's with the correction of Benjamini and Hochberg.

On simulated trials of NIC profiles (``--trials``): each job has an effect on all of its runs, such
as its place and its hour. Profiles are compared by single runs, as if these were independent, and
by the median of each round, as Seatrial does.

Of real trials with several rounds of several repeats, ``--measured`` prints the scatter of the runs
within a round and the share of rounds in the variance, by the analysis of variance of one factor.

Exit code 1: Seatrial named a series that had not changed, or a best profile that is none, in more
rounds or trials than its level explains.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table
from scipy import stats

from seatrial.analysis.conclusion import CONFIDENCE, by_block
from seatrial.analysis.decision import decide
from seatrial.analysis.response import performance
from seatrial.history.compare import LEVEL, rows_of
from seatrial.history.series import Series
from seatrial.results.figures import valid_runs
from seatrial.results.folder import read_results
from seatrial.results.record import Case

CASE = Case(check="links", transport="tcp", nodes=2)
NAMES = [Series("s", CASE, f"m{at}_us", "", "us", "lower") for at in range(300)]


class Way(NamedTuple):
    """Two groups of trials, and what differs between them."""

    first: int  # trials
    second: int
    changed: int  # the first series of the second group are slower
    step: float  # by this fraction
    noise: float = 0.01  # standard deviation, of the logarithm
    shape: str = "normal"
    series: int = 100
    others: float = 0.0  # noise of the series that do not change; 0: the same
    ratio: float = 1.0  # of the noise of the last series to that of the first


GROUPS = ((3, 4), (7, 7), (9, 6), (27, 3))
WAYS = (
    Way(4, 4, 5, 0.05),
    Way(5, 5, 5, 0.05),
    Way(7, 7, 5, 0.05),
    Way(7, 7, 5, 0.05, 0.03),
    Way(14, 14, 5, 0.05, 0.03),
    Way(30, 1, 5, 0.10),
    Way(30, 3, 5, 0.05),
    Way(7, 7, 5, 0.05, shape="heavy tails"),
    Way(14, 14, 5, 0.05, shape="heavy tails"),
    Way(14, 14, 5, 0.05, shape="bad nights"),
    *(
        Way(a, b, 1, step, 0.001, series=20, others=0.1)
        for a, b in (*GROUPS, (20, 6))
        for step in (0.1, 1.67, 9.0)
    ),
    *(
        Way(a, b, 0, 0.0, 0.001, shape, series, ratio=100)
        for series in (20, 300)
        for shape in ("normal", "t3", "skewed")
        for a, b in GROUPS
    ),
)


class Day(NamedTuple):
    """A trial of NIC profiles, of which the first may be better."""

    profiles: int
    rounds: int
    repeats: int
    gain: float = 0.0  # of the first profile, a fraction
    of_job: float = 0.04  # standard deviation of the effect of a job, of the logarithm
    noise: float = 0.01  # of a run
    drift: float = 0.0  # of all jobs from round to round


DAYS = (
    *(Day(2, rounds, 10 // rounds) for rounds in (1, 5, 10)),
    *(Day(4, rounds, 10 // rounds) for rounds in (1, 5, 10)),
    Day(4, 5, 2, of_job=0.0),
    Day(4, 5, 2, of_job=0.1),
    Day(4, 6, 2, of_job=0.01, drift=0.02),
    Day(2, 30, 1),
    *(Day(4, rounds, 2, gain) for gain in (0.05, 0.15) for rounds in (5, 10, 20)),
)
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)


def drawn(draw: np.random.Generator, way: Way, count: int) -> np.ndarray:
    """Series x trials about 100. Heavy tails: Student's t of 2 degrees of freedom; t3: of 3.
    Skewed: exponential. Bad nights: in one of ten, all series are 3 % slower."""
    size = (way.series, count)
    if way.shape in ("heavy tails", "t3"):
        z = draw.standard_t(2 if way.shape == "heavy tails" else 3, size)
    else:
        z = draw.exponential(size=size) if way.shape == "skewed" else draw.normal(size=size)
    noise = np.geomspace(way.noise, way.noise * way.ratio, way.series)
    noise[way.changed :] = way.others or noise[way.changed :]
    figures = noise[:, None] * z
    if way.shape == "bad nights":
        figures += 0.03 * (draw.random(count) < 0.1)
    return np.asarray(100 * np.exp(figures))


def by_ranks(a: np.ndarray, b: np.ndarray) -> set[int]:
    p = stats.mannwhitneyu(a, b, axis=1).pvalue
    return set(np.flatnonzero(stats.false_discovery_control(p) <= LEVEL).tolist())


def compared(draw: np.random.Generator, day: Day) -> tuple[str, str]:
    """The answers by single runs and by rounds: best, false (a best that is none), no difference or
    measure more."""
    runs, blocks = {}, {}
    for at in range(day.profiles):
        jobs = draw.normal(0, day.of_job, (day.rounds, 1)) if day.of_job else 0
        logs = draw.normal(0, day.noise, (day.rounds, day.repeats)) + jobs
        logs = logs + day.drift * np.arange(day.rounds)[:, None]
        figures = (1 + day.gain * (at == 0)) * np.exp(logs)
        runs[f"p{at}"] = figures.ravel().tolist()
        blocks[f"p{at}"] = by_block((n, x) for n, own in enumerate(figures) for x in own.tolist())
    answers = []
    for samples in (runs, blocks):
        made = decide(samples, "higher")
        wrong = made.answer == "best" and (day.gain == 0 or made.leaders != ("p0",))
        answers.append("false" if wrong else made.answer)
    return answers[0], answers[1]


def compare_profiles(trials: int) -> bool:
    """Print how often each answer comes. Returns whether too many are wrong."""
    table = Table("profiles", "rounds", "repeats", "gain", "effect of a job", "noise", "by",
                  "best, and is", "best, and is not", "no difference", "measure more",
                  title=f"NIC profiles: {trials} trials each")  # fmt: skip
    missed = False
    draw = np.random.default_rng(16)
    for day in DAYS:
        answers = [compared(draw, day) for _ in range(trials)]
        for word, own in zip(("runs", "rounds"), zip(*answers, strict=True), strict=True):
            counts = [own.count(one) for one in ("best", "false", "no difference", "measure more")]
            job = f"{day.of_job:.0%}" + (f", drift {day.drift:.0%}" if day.drift else "")
            table.add_row(
                str(day.profiles), str(day.rounds), str(day.repeats), f"{day.gain:.0%}", job,
                f"{day.noise:.0%}", word, *(f"{count / trials:.1%}" for count in counts),
            )  # fmt: skip
        level = stats.binomtest(counts[1], trials, 1 - CONFIDENCE, "greater").pvalue
        missed |= level < 0.001 / len(DAYS)
    out.print(table)
    out.print(
        "goal: by rounds a best that is none in at most 5 % of the trials: "
        f"{'MISSED' if missed else 'kept'}"
    )
    return bool(missed)


def by_rounds(folder: Path) -> dict[tuple[str, str], list[np.ndarray]]:
    """Case and metric -> the logarithms of the runs of each round, of at least two rounds and two
    runs in one of them. Reruns do not count."""
    results = read_results(folder)
    figures: dict[tuple[str, str], dict[int, list[float]]] = {}
    for valid_run in valid_runs(results.runs):
        for m in valid_run.metrics:
            wanted = m.metric in (performance(valid_run.case), "latency_us", "bandwidth_MB_s")
            if wanted and not m.location and m.value > 0 and not results.trial.is_rerun(valid_run):
                own = figures.setdefault((valid_run.case.id, m.metric), {})
                own.setdefault(valid_run.round, []).append(math.log(m.value))
    made = {name: [np.array(values) for values in own.values()] for name, own in figures.items()}
    return {name: own for name, own in made.items() if len(own) > 1 and max(map(len, own)) > 1}


class Effect(NamedTuple):
    """The analysis of variance of one figure by rounds, on the scale of logarithms.

    ``f``: mean square between rounds over that within, NaN where the runs of a round are all equal.
    ``runs``: of a round, on average.
    """

    between_df: int
    within_df: int
    f: float
    within: float  # standard deviation
    runs: float

    @property
    def share(self) -> float:
        """The part of the variance that is of rounds."""
        return share_of(self.f, self.runs)

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share: exact for normal noise and rounds of the same number of runs."""
        low, high = (
            share_of(self.f / stats.f.isf(tail, self.between_df, self.within_df), self.runs)
            for tail in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
        )
        return low, high


def share_of(f: float, runs: float) -> float:
    return max(0.0, (f - 1) / (f - 1 + runs)) if math.isfinite(f) else math.nan


def effect_of(groups: Sequence[np.ndarray]) -> Effect:
    count = sum(map(len, groups))
    a, b = len(groups) - 1, count - len(groups)
    within = sum(float(np.sum((g - g.mean()) ** 2)) for g in groups) / b
    whole = np.concatenate(groups).mean()
    between = sum(len(g) * float(g.mean() - whole) ** 2 for g in groups) / a
    return Effect(a, b, between / within if within else math.nan, within**0.5, count / len(groups))


def common_share(effects: Sequence[Effect]) -> tuple[float, float, float]:
    """The part of the variance that is of rounds, if it is the same for all figures, and its 95 %
    interval: by the likelihood of their ratios of mean squares under normal noise."""
    shares = np.linspace(0, 0.99, 991)
    likelihood = np.zeros(len(shares))
    for effect in effects:
        scale = 1 + effect.runs * shares / (1 - shares)
        own = stats.f.logpdf(effect.f / scale, effect.between_df, effect.within_df) - np.log(scale)
        likelihood += own
    inside = shares[likelihood >= likelihood.max() - stats.chi2.isf(1 - CONFIDENCE, 1) / 2]
    return float(shares[likelihood.argmax()]), float(inside[0]), float(inside[-1])


def by_chance(figures: Sequence[Sequence[np.ndarray]], draws: int = 9999) -> float:
    """How often runs that are dealt to the rounds by chance differ as much between these: the sum
    over the figures of the part of the squares that is between rounds. Holds for any noise."""
    draw = np.random.default_rng(18)
    sums = np.zeros(draws + 1)  # the first one: as measured
    for groups in figures:
        values = np.concatenate(groups)
        values = values - values.mean()
        if not values.any():
            continue
        edges = np.cumsum([0, *map(len, groups)][:-1])
        dealt = np.vstack([values, draw.permuted(np.tile(values, (draws, 1)), axis=1)])
        between = np.add.reduceat(dealt, edges, axis=1) ** 2 / [len(g) for g in groups]
        sums += between.sum(axis=1) / float(values @ values)
    return float(np.mean(sums >= sums[0] - 1e-9))


def of_trials(folders: Sequence[Path]) -> None:
    """Print the scatter within rounds and the effect of a round, of each figure of performance."""
    table = Table(Column("case", overflow="fold"), "metric", "rounds", "runs", "scatter",
                  "F", "of rounds", "95 %", "p",
                  title="Scatter in a round, share of rounds in the variance, p by dealing: "
                  + ", ".join(folder.name for folder in folders))  # fmt: skip
    known = [own for folder in folders for own in by_rounds(folder).items()]
    if not known:
        out.print("no figure of several rounds of several repeats")
        return
    effects = []
    for (case, metric), groups in known:
        effect = effect_of(groups)
        low, high = effect.interval
        words = ["equal", "", ""]  # all runs of a round
        if math.isfinite(effect.f):
            effects.append(effect)
            words = [f"{effect.f:.2f}", f"{effect.share:.0%}", f"{low:.0%} to {high:.0%}"]
        table.add_row(case, metric, str(len(groups)), str(sum(map(len, groups))),
                      f"{effect.within:.2%}", *words, f"{by_chance([groups]):.2f}")  # fmt: skip
    out.print(table)
    if effects:
        share, low, high = common_share(effects)
        out.print(
            f"the share of rounds in the variance, over {len(effects)} figures: {share:.0%} "
            f"({low:.0%} to {high:.0%}); median F {np.median([one.f for one in effects]):.2f}"
        )
    out.print(
        f"rounds that differ as much by dealing runs to them: p = "
        f"{by_chance([groups for _, groups in known]):.4f}"
    )


def main(
    rounds: Annotated[int, typer.Option(min=0, help="Draws of each way; 0: none.")] = 40,
    trials: Annotated[int, typer.Option(min=0, help="Trials of NIC profiles; 0: none.")] = 500,
    measured: Annotated[
        list[Path] | None,
        typer.Option(metavar="TRIAL", help="A trial with rounds; nothing is drawn."),
    ] = None,
) -> None:
    """Draw, compare, count."""
    if measured:
        of_trials(measured)
        raise typer.Exit
    wrong = [compare_nights(rounds)] if rounds else []
    wrong += [compare_profiles(trials)] if trials else []
    raise typer.Exit(1 if any(wrong) else 0)


def compare_nights(rounds: int) -> bool:
    """Print what is found, and how often wrongly. Returns whether it is too often."""
    table = Table("A", "B", "series", "step", "noise", "shape", "found", "rounds with a false one",
                  "found by ranks", "false by ranks", title=f"{rounds} rounds each")  # fmt: skip
    missed = False
    draw = np.random.default_rng(17)
    for way in WAYS:
        names, changed = NAMES[: way.series], set(range(way.changed))
        hits, false = [0, 0], [0, 0]
        for _ in range(rounds):
            a, b = (drawn(draw, way, count) for count in (way.first, way.second))
            b[: way.changed] *= 1 + way.step
            rows = rows_of(names, a, b)
            named = {names.index(r.series) for r in rows if r.verdict in ("worse", "better")}
            for at, one in enumerate((named, by_ranks(a, b))):
                hits[at] += len(one & changed)
                false[at] += bool(one - changed)
        missed |= stats.binomtest(false[0], rounds, LEVEL, "greater").pvalue < 0.001 / len(WAYS)
        noise = f"{way.noise:.1%}"
        if way.others:
            noise += f", others {way.others:.0%}"
        if way.ratio != 1:
            noise += f" to {way.noise * way.ratio:.0%}"
        part = [f"{n / rounds / way.changed:.0%}" if way.changed else "" for n in hits]
        table.add_row(
            str(way.first), str(way.second), str(way.series), f"{way.step:.1%}", noise, way.shape,
            part[0], f"{false[0] / rounds:.0%}", part[1], f"{false[1] / rounds:.0%}",
        )  # fmt: skip
    out.print(table)
    out.print(f"goal: false in at most {LEVEL:.0%} of the rounds: {'MISSED' if missed else 'kept'}")
    return bool(missed)


if __name__ == "__main__":
    typer.run(main)
