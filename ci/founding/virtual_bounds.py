"""The spread of each figure of the virtual-time lab over repeated trials, and bounds from it.

    .venv/bin/python ci/founding/virtual_bounds.py TRIAL_FOLDER ... [--anew TRIAL_FOLDER ...]
        [--write REQUIREMENTS_FILE]

Prints per metric how far the trials of a case lie apart, (highest - lowest) / median, and how many
figures of each trial would break bounds that the other trials give (leave one out). With
``--write`` the entries below the mark among the requirements of the file are made anew: about the
median of each figure, both ways, by one and a half times its spread or by the least that figures of
its kind get (``LEAST``; half as much again where fewer than four trials have it), whichever is
more. That is what a figure that has repeated well so far may still do: latency falls into another
regime now and then, by the phase in which frames and timers meet. Of eight samples or more the one
that lies farthest from the median does not count for the spread: the lab runs a case again that is
in such a regime, and the majority of three decides. A figure that spreads by more than 12 % gets no
bound: it is written below the mark at the end of the file, among what is informative, with its
spread. One that one trial alone has gets neither, so that a trial is incomplete until there is
another. Runs that a trial repeated because a bound was broken are left out, for they are not drawn
by chance. ``--anew`` names trials since the lab was changed: a figure that has no bound by all
trials together has one by these alone, if eight samples of theirs give one. It measures nothing
and judges nothing.
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

from seatrial.results.record import Metric, read_results

#: The least width of a bound, by what the metric's name ends in: chosen so that leave-one-out finds
#: one figure in some hundred beyond its bound, and next to none of them a second time.
LEAST = {"_us": 0.10, "_percent": 0.12, "_MB_s": 0.06, "_GFLOPS": 0.06, "": 0.06}
LEAST_OF = {("netpipe", "bandwidth_MB_s"): 0.03, ("hpl", "dgemm_GFLOPS"): 0.15}
OF_FEW = 1.5  # times as wide where fewer than MANY trials tell the spread
MANY = 4
FACTOR = 1.5
ALL_BUT_ONE = 8  # from so many samples on, one does not count for the spread
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
    "hpl": ("hpl_GFLOPS", "dgemm_GFLOPS"),
}


class Key(NamedTuple):
    check: str
    variant: str
    transport: str
    profile: str
    metric: str
    location: str


#: judged figure -> its samples
Figures = dict[Key, list[Metric]]


def figures(folder: Path) -> Figures:
    """Every judged figure of a trial, a sample of each run."""
    found: Figures = defaultdict(list)
    results = read_results(folder)
    for run in results.runs:
        if results.trial.is_rerun(run):
            continue
        if run.outcome != "ran":
            print(f"{folder}: {run.case.id}: {run.outcome}: {run.reason}", file=sys.stderr)
            continue
        case = run.case
        for one in run.metrics:
            if any(fnmatchcase(one.metric, name) for name in JUDGED.get(case.check, ())):
                location = one.location or ""
                key = Key(
                    case.check, case.variant, case.transport, case.profile, one.metric, location
                )  # fmt: skip
                found[key].append(one)
    return found


def together(trials: Iterable[Figures]) -> Figures:
    """The samples of all trials."""
    found: Figures = defaultdict(list)
    for trial in trials:
        for key, metrics in trial.items():
            found[key] += metrics
    return found


def middle(metrics: list[Metric]) -> float:
    return statistics.median(one.value for one in metrics)


def spread(metrics: list[Metric]) -> float:
    """(highest - lowest) / median; 0 where all are 0."""
    values = [one.value for one in metrics]
    return (max(values) - min(values)) / abs(middle(metrics)) if middle(metrics) else 0.0


def usual_spread(metrics: list[Metric]) -> float:
    """The same without the farthest sample, where there are enough."""
    if len(metrics) < ALL_BUT_ONE:
        return spread(metrics)
    centre = middle(metrics)
    return spread(sorted(metrics, key=lambda one: abs(one.value - centre))[:-1])


def bound(key: Key, metrics: list[Metric]) -> float:
    """Half the width of the bound, relative to the median."""
    usual = next(least for end, least in LEAST.items() if key.metric.endswith(end))
    least = LEAST_OF.get((key.check, key.metric), usual)
    return max(least if len(metrics) >= MANY else OF_FEW * least, FACTOR * usual_spread(metrics))


class LeftOut(NamedTuple):
    """What of a trial's figures the others give a bound, which break it, and how many of these
    are expected to do so in one of two further runs, if these are as those of the others."""

    judged: int
    broken: list[str]
    expected: float


def left_out(older: list[Figures], anew: list[Figures]) -> list[LeftOut]:
    """Each trial against the bounds of the others."""
    found = []
    trials = [*older, *anew]
    for index, mine in enumerate(trials):
        judged, broken, expected = 0, [], 0.0
        rest = together(one for one in trials if one is not mine)
        by_anew = chosen(rest, together(one for one in anew if one is not mine))
        for key, metrics in mine.items():
            others = (rest if index < len(older) else by_anew).get(key)
            if not others or not bounded(others):
                continue
            judged += 1
            centre, width = middle(others), bound(key, others)
            off = middle(metrics) / centre - 1
            if abs(off) > width:
                broken.append(f"{key.check} {key.transport} {key.profile} {key.metric} {off:+.1%}")
                share = statistics.mean(abs(one.value / centre - 1) > width for one in others)
                expected += 1 - (1 - share) ** 2
        found.append(LeftOut(judged, broken, expected))
    return found


def selected(key: Key) -> str:
    """The fields of a requirement's ``select``."""
    select = f"check: {key.check}"
    if key.variant:
        select += f", variant: {key.variant}"
    select += f", transport: {key.transport}, profile: {key.profile}"
    if key.location:
        select += f", location: {key.location}"
    return select


def entry(key: Key, metrics: list[Metric]) -> str:
    """One line of a requirements file."""
    width = bound(key, metrics)
    reference = middle(metrics)
    return (
        f"  - {{select: {{{selected(key)}}}, metric: {key.metric}, basis: baseline, "
        f'unit: "{metrics[0].unit}", reference: {reference:.5g}, '
        f"lower: -{width:.3f}, upper: {width:.3f}}}\n"
    )


def bounded(metrics: list[Metric]) -> bool:
    return len(metrics) >= TRIALS and usual_spread(metrics) <= MOST_SPREAD and middle(metrics) > 0


def chosen(found: Figures, anew: Figures) -> Figures:
    """All samples of each figure; of one that they give no bound, those anew where these do.

    Eight at least: a figure that was in two regimes may be in one of them four times in turn.
    """
    found = dict(found)
    for key, metrics in found.items():
        own = anew.get(key, [])
        if not bounded(metrics) and bounded(own) and len(own) >= ALL_BUT_ONE:
            found[key] = own
    return found


def unbounded(key: Key, metrics: list[Metric]) -> str:
    """The lines that say why a figure has no bound."""
    values = ", ".join(f"{value:.4g}" for value in sorted(one.value for one in metrics))
    return (
        f"  - select: {{{selected(key)}}}\n"
        f"    metric: {key.metric}\n"
        f'    reason: "does not repeat: {values} {metrics[0].unit} in {len(metrics)} trials"\n'
    )


def write(file: Path, found: Figures) -> None:
    """Put the entries in place of the file's own."""
    before, below, rest = file.read_text().partition(BELOW)
    if not below:
        raise SystemExit(f"{file} has no line {BELOW.strip()!r} among its requirements")
    _, mark, after = rest.partition("informative:")
    after = after.partition(MARK)[0] + MARK
    after += "".join(
        unbounded(key, metrics)
        for key, metrics in found.items()
        if len(metrics) >= TRIALS and not bounded(metrics)
    )
    lines, last = [], ""
    for key, metrics in found.items():
        if bounded(metrics):
            if key.profile != last:
                lines.append(f"  # {key.profile}\n")
                last = key.profile
            lines.append(entry(key, metrics))
    file.write_text(f"{before}{below}{''.join(lines)}\n{mark}{after}")


def table(found: Figures) -> None:
    """Print each figure's spread, and the median and largest of each metric in Markdown."""
    of_metric: dict[tuple[str, str], list[tuple[float, Key]]] = defaultdict(list)
    for key, metrics in found.items():
        far = spread(metrics)
        of_metric[key.check, key.metric].append((far, key))
        name = ".".join(word for word in key[:4] if word)
        values = " ".join(f"{one.value:.5g}" for one in metrics)
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
    parser.add_argument("--anew", nargs="+", type=Path, metavar="TRIAL_FOLDER", default=[])
    parser.add_argument("--write", type=Path, metavar="REQUIREMENTS_FILE")
    given = parser.parse_args()
    folders = [*given.trials, *given.anew]
    trials = [figures(folder) for folder in folders]
    older, anew = trials[: len(given.trials)], trials[len(given.trials) :]
    found = dict(sorted(together(trials).items(), key=lambda item: (item[0].profile, item[0])))
    found = chosen(found, together(anew))
    table(found)
    print()
    tried = left_out(older, anew)
    for folder, (judged, broken, _) in zip(folders, tried, strict=True):
        words = f": {', '.join(broken)}" if broken else ""
        print(f"{folder.name}: {len(broken)} of {judged} break the bounds of the others{words}")
    print(
        f"all: {sum(len(one.broken) for one in tried)} of {sum(one.judged for one in tried)}; "
        f"{sum(one.expected for one in tried):.2f} expected to be confirmed by two further runs"
    )
    if given.write:
        write(given.write, found)


if __name__ == "__main__":
    main()
