"""The spread of each figure of the virtual lab over several trials, and bounds from it.

    .venv/bin/python ci/founding/virtual_bounds.py TRIAL_FOLDER ... [--newer TRIAL_FOLDER ...]
        [--write REQUIREMENTS_FILE]

Prints the spread of each figure over the trials, (highest - lowest) / median. Prints for each trial
how many of its figures break bounds that are computed from the other trials.

``--write`` replaces the entries below the mark in the file. A bound is the median plus and minus
the largest of: 1.5 times the spread, and the least width of its metric (``LEAST``; 1.5 times that
width with fewer than four samples). Latency changes by the phase in which frames and timers meet,
so a figure may go further than it did yet. Of eight samples, the one farthest from the median does
not count if its trial ran the case again and no rerun was nearer to it than to the median: of such
three runs the majority decides. Of 16 samples two need not count, and so on. A figure with a spread
above 12 % gets no bound. It is written below the mark at the end of the file, among the informative
metrics. A figure of a single trial gets neither, so the trial is incomplete until there is another.
Reruns are no samples, because they are not a random choice.

``--newer`` names trials since a change of the lab. A figure that has no bound by all trials gets
one by these alone, if they have eight samples. This program measures nothing and judges nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from seatrial.results.folder import read_results

#: The least width of a bound, by the end of the metric's name. With these, about one figure in a
#: hundred breaks the bound of the other trials, and almost none breaks it a second time.
LEAST = {"_us": 0.10, "_percent": 0.12, "_MB_s": 0.06, "_GFLOPS": 0.06, "": 0.06}
LEAST_OF = {("netpipe", "bandwidth_MB_s"): 0.03}
OF_FEW = 1.5  # times as wide with fewer than MANY samples
MANY = 4
FACTOR = 1.5
ENOUGH = 8  # samples, of which one need not count for the spread
MOST_SPREAD = 0.12
BELOW = "  # below: written by ci/founding/virtual_bounds.py\n"
MARK = "  # these did not repeat, as ci/founding/virtual_bounds.py found\n"
TRIALS = 2
JUDGED = {
    "netpipe": ("latency_us", "bandwidth_MB_s"),
    "tcp_stream": ("bandwidth_MB_s", "cpu_sender_percent", "cpu_receiver_percent"),
    "tcp_streams": ("bandwidth_MB_s", "slowest_stream_MB_s"),
    "imb": ("pingpong_latency_us", "pingpong_bandwidth_MB_s", "allreduce_*", "alltoall_*"),
    "npb": ("mops",),
    "hpl": ("hpl_GFLOPS",),
}


class Key(NamedTuple):
    check: str
    variant: str
    transport: str
    profile: str
    metric: str
    location: str


class Sample(NamedTuple):
    """A figure of one run, with those of the reruns that its trial made of the case."""

    value: float
    unit: str
    again: tuple[float, ...] = ()

    def is_refuted(self, centre: float) -> bool:
        """Whether there were reruns, and none was nearer to it than to ``centre``."""
        return bool(self.again) and all(
            abs(one - centre) <= abs(one - self.value) for one in self.again
        )


#: judged figure -> its samples
Figures = dict[Key, list[Sample]]


def figures(folder: Path) -> Figures:
    """Every judged figure of a trial, a sample of each run."""
    samples: Figures = defaultdict(list)
    again: dict[Key, list[float]] = defaultdict(list)
    results = read_results(folder)
    for run in results.runs:
        if run.outcome != "ran":
            print(f"{folder}: {run.case.id}: {run.outcome}: {run.reason}", file=sys.stderr)
            continue
        case = run.case
        for metric in run.metrics:
            if any(fnmatchcase(metric.metric, name) for name in JUDGED.get(case.check, ())):
                location = metric.location or ""
                key = Key(
                    case.check, case.variant, case.transport, case.profile, metric.metric, location
                )  # fmt: skip
                if results.trial.is_rerun(run):
                    again[key].append(metric.value)
                else:
                    samples[key].append(Sample(metric.value, metric.unit))
    return {
        key: [sample._replace(again=tuple(again[key])) for sample in several]
        for key, several in samples.items()
    }


def together(trials: Iterable[Figures]) -> Figures:
    """The samples of all trials."""
    samples: Figures = defaultdict(list)
    for trial in trials:
        for key, metrics in trial.items():
            samples[key] += metrics
    return samples


def middle(metrics: list[Sample]) -> float:
    return statistics.median(metric.value for metric in metrics)


def spread(metrics: list[Sample]) -> float:
    """(highest - lowest) / median; 0 where all are 0."""
    values = [metric.value for metric in metrics]
    return (max(values) - min(values)) / abs(middle(metrics)) if middle(metrics) else 0.0


def usual_spread(metrics: list[Sample]) -> float:
    """The same without the farthest samples that reruns refuted, at most one of eight."""
    centre = middle(metrics)
    counted = sorted(metrics, key=lambda sample: abs(sample.value - centre))
    for _ in range(len(metrics) // ENOUGH):
        if counted[-1].is_refuted(centre):
            counted.pop()
    return spread(counted)


def bound(key: Key, metrics: list[Sample]) -> float:
    """Half the width of the bound, relative to the median."""
    usual = next(least for end, least in LEAST.items() if key.metric.endswith(end))
    least = LEAST_OF.get((key.check, key.metric), usual)
    return max(least if len(metrics) >= MANY else OF_FEW * least, FACTOR * usual_spread(metrics))


class LeftOut(NamedTuple):
    """The figures of a trial for which the others have a bound.

    ``broken``: the figures that break it. ``expected``: how many of these break it again in one of
    two further runs, if these are distributed as the samples of the other trials.
    """

    judged: int
    broken: list[str]
    expected: float


def left_out(older: list[Figures], newer: list[Figures]) -> list[LeftOut]:
    """Each trial against the bounds of the others."""
    results = []
    trials = [*older, *newer]
    for index, mine in enumerate(trials):
        judged, broken, expected = 0, [], 0.0
        rest = together(trial for trial in trials if trial is not mine)
        by_newer = chosen(rest, together(one for one in newer if one is not mine))
        for key, metrics in mine.items():
            others = (rest if index < len(older) else by_newer).get(key)
            if not others or not bounded(others):
                continue
            judged += 1
            centre, width = middle(others), bound(key, others)
            off = middle(metrics) / centre - 1
            if abs(off) > width:
                broken.append(f"{key.check} {key.transport} {key.profile} {key.metric} {off:+.1%}")
                share = statistics.mean(abs(sample.value / centre - 1) > width for sample in others)
                expected += 1 - (1 - share) ** 2
        results.append(LeftOut(judged, broken, expected))
    return results


def selected(key: Key) -> str:
    """The fields of a requirement's ``select``."""
    select = f"check: {key.check}"
    if key.variant:
        select += f", variant: {key.variant}"
    select += f", transport: {key.transport}, profile: {key.profile}"
    if key.location:
        select += f", location: {key.location}"
    return select


def entry(key: Key, metrics: list[Sample]) -> str:
    """One line of a requirements file."""
    width = bound(key, metrics)
    reference = middle(metrics)
    return (
        f"  - {{select: {{{selected(key)}}}, metric: {key.metric}, basis: baseline, "
        f'unit: "{metrics[0].unit}", reference: {reference:.5g}, '
        f"lower: -{width:.3f}, upper: {width:.3f}}}\n"
    )


def bounded(metrics: list[Sample]) -> bool:
    return len(metrics) >= TRIALS and usual_spread(metrics) <= MOST_SPREAD and middle(metrics) > 0


def chosen(samples: Figures, newer: Figures) -> Figures:
    """All samples of each figure, or the newer ones alone where only these give a bound.

    That needs eight: a figure with two regimes may be in one of them four times in a row.
    """
    samples = dict(samples)
    for key, metrics in samples.items():
        own = newer.get(key, [])
        if not bounded(metrics) and bounded(own) and len(own) >= ENOUGH:
            samples[key] = own
    return samples


def unbounded(key: Key, metrics: list[Sample]) -> str:
    """The lines that say why a figure has no bound."""
    values = ", ".join(f"{value:.4g}" for value in sorted(metric.value for metric in metrics))
    return (
        f"  - select: {{{selected(key)}}}\n"
        f"    metric: {key.metric}\n"
        f'    reason: "does not repeat: {values} {metrics[0].unit} in {len(metrics)} trials"\n'
    )


def write(file: Path, samples: Figures) -> None:
    """Put the entries in place of the file's own."""
    before, below, rest = file.read_text().partition(BELOW)
    if not below:
        raise SystemExit(f"{file} has no line {BELOW.strip()!r} among its requirements")
    _, mark, after = rest.partition("informative:")
    after = after.partition(MARK)[0] + MARK
    after += "".join(
        unbounded(key, metrics)
        for key, metrics in samples.items()
        if len(metrics) >= TRIALS and not bounded(metrics)
    )
    lines, last = [], ""
    for key, metrics in samples.items():
        if bounded(metrics):
            if key.profile != last:
                lines.append(f"  # {key.profile}\n")
                last = key.profile
            lines.append(entry(key, metrics))
    file.write_text(f"{before}{below}{''.join(lines)}\n{mark}{after}")


def table(samples: Figures) -> None:
    """Print each figure's spread, and the median and largest of each metric in Markdown."""
    of_metric: dict[tuple[str, str], list[tuple[float, Key]]] = defaultdict(list)
    for key, metrics in samples.items():
        far = spread(metrics)
        of_metric[key.check, key.metric].append((far, key))
        name = ".".join(word for word in key[:4] if word)
        values = " ".join(f"{sample.value:.5g}" for sample in metrics)
        note = "" if bounded(metrics) else "  NO BOUND"
        print(f"{name:34} {key.metric:22} {key.location:6} {100 * far:6.2f} %  {values}{note}")
    print("\n| figure | cases | median spread | largest spread |\n| --- | --- | --- | --- |")
    for (check, metric), several in of_metric.items():
        far, key = max(several)
        usual = statistics.median(one for one, _ in several)
        print(
            f"| {check} {metric} | {len(several)} | {100 * usual:.2f} % "
            f"| {100 * far:.2f} % ({key.profile}) |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="+", type=Path, metavar="TRIAL_FOLDER")
    parser.add_argument("--newer", nargs="+", type=Path, metavar="TRIAL_FOLDER", default=[])
    parser.add_argument("--write", type=Path, metavar="REQUIREMENTS_FILE")
    given = parser.parse_args()
    folders = [*given.trials, *given.newer]
    trials = [figures(folder) for folder in folders]
    older, newer = trials[: len(given.trials)], trials[len(given.trials) :]
    samples = dict(sorted(together(trials).items(), key=lambda item: (item[0].profile, item[0])))
    samples = chosen(samples, together(newer))
    table(samples)
    print()
    tried = left_out(older, newer)
    for folder, (judged, broken, _) in zip(folders, tried, strict=True):
        words = f": {', '.join(broken)}" if broken else ""
        print(f"{folder.name}: {len(broken)} of {judged} break the bounds of the others{words}")
    print(
        f"all: {sum(len(one.broken) for one in tried)} of {sum(one.judged for one in tried)}; "
        f"{sum(one.expected for one in tried):.2f} expected to be confirmed by two further runs"
    )
    if given.write:
        write(given.write, samples)


if __name__ == "__main__":
    main()
