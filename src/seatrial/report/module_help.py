"""The figures of a trial, as text for the help of each transport's module.

It reads results.jsonl and judges nothing.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

from seatrial.base.errors import InputError, Problem
from seatrial.report.text import profile_name
from seatrial.results.figures import Figure, collect
from seatrial.results.folder import RESULTS_FILE, Results, read_results
from seatrial.results.record import Trial

#: the (metric, check) pairs in the help, in this order; only of cases with two nodes
SHOWN = (
    ("latency_us", "netpipe"),
    ("latency_us", "osu"),
    ("bandwidth_MB_s", "netpipe"),
    ("bw_MB_s", "osu"),
)
NODES = 2


def read(given: Path) -> Results:
    """The results in a trial's folder or file. Raises InputError if there are none."""
    file = given / RESULTS_FILE if given.is_dir() else given
    if not file.is_file():
        text = "there are no results of a trial"
        raise InputError([Problem(file, None, "", text, "give the folder of a trial")])
    return read_results(file)


def texts(results: Results) -> dict[str, str]:
    """Transport -> text for the help of its module; only transports that have figures."""
    figures = collect(results.trial, results.runs)
    shown: dict[str, list[Figure]] = defaultdict(list)
    for case, each in figures.items():
        for figure in (figure for alike in each.values() for figure in alike.values()):
            listed = (figure.metric, case.check) in SHOWN and case.nodes == NODES
            if listed and figure.location is None and figure.samples and not figure.fault:
                shown[case.transport].append(figure)
    return {name: _text(each, results.trial) for name, each in sorted(shown.items())}


def _text(figures: list[Figure], trial: Trial) -> str:
    order = {pair: index for index, pair in enumerate(SHOWN)}
    figures = sorted(figures, key=lambda f: (order[f.metric, f.case.check], f.case.profile))
    lines = [f"Figures of trial {trial.trial} (medians, between {NODES} nodes):"]
    for figure in figures:
        middle = statistics.median(figure.values)
        what = "latency" if figure.metric == "latency_us" else "bandwidth"
        count = len(figure.values)
        lines.append(
            f"  {what:<10}{figure.case.check:<9}{middle:>10.4g} {figure.unit:<5}"
            f"NIC profile {profile_name(figure.case)}, {count} run{'s' * (count > 1)}"
        )
    for what, metrics in (
        ("latency", ["latency_us"]),
        ("bandwidth", ["bandwidth_MB_s", "bw_MB_s"]),
    ):
        best = _best([f for f in figures if f.metric in metrics])
        if best:
            lines.append(f"NIC profile for best {what}: {best}")
    return "\n".join(lines) + "\n"


def _best(figures: list[Figure]) -> str:
    """The profile with the best figure of the first check in the list."""
    if not figures:
        return ""
    same = [f for f in figures if f.case.check == figures[0].case.check]
    pick = min if same[0].better == "lower" else max
    best: Figure = pick(same, key=lambda f: f.median)
    tried = len({profile_name(f.case) for f in same})
    return (
        f"{profile_name(best.case)} ({'the only one tried' if tried == 1 else f'of {tried} tried'})"
    )
