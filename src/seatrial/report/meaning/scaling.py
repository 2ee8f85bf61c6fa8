"""The part of the chapter "What it means" on more nodes."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.analysis.scaling import Scaling
from seatrial.report.chapter import Section, Sentence, joined, made_from
from seatrial.report.estimates import amount_with_interval, percent_with_interval, times
from seatrial.report.text import amount


def section(scalings: Sequence[Scaling]) -> Section:
    """What more nodes do to each program."""
    return Section("More nodes", [_scaling(scaling) for scaling in scalings], figures="scaling")


_EFFECTS = {
    "costs": "More nodes cost time",
    "saves": "More nodes save time",
    "none": "More nodes make no difference",
    "not certain": "It is not certain what more nodes do",
}


def _scaling(scaling: Scaling) -> Sentence:
    counts = sorted(scaling.times)
    efficiency = ", ".join(
        f"{percent_with_interval(scaling.efficiency[p])} with {p}" for p in counts[1:]
    )
    fewest = "one process" if counts[0] == 1 else f"{counts[0]} processes"
    text = f"{scaling.name}: efficiency relative to {fewest} is {efficiency} processes."
    for effect, words in _EFFECTS.items():
        steps = [step for step in scaling.steps if step.effect == effect]
        if steps:
            listed = [
                f"from {s.start} to {s.end} processes {times(s.ratio)} as long" for s in steps
            ]
            text += f" {words}: {'; '.join(listed)}."
    text += _apart(scaling)
    what = "computing" if scaling.apart else "the run"
    if scaling.model is None:
        text += f" No model of the time: {scaling.no_model}."
    elif scaling.model.flaw:
        text += f" The model a0 + a1/p says nothing about a serial part: {scaling.model.flaw}."
    else:
        text += (
            f" {percent_with_interval(scaling.model.share)} of the time of {what} with one process "
            f"does not shrink with more: {amount_with_interval(scaling.model.a0, 's')}, by the "
            "model "
            "a0 + a1/p."
        )
        if not scaling.model.tested:
            text += f" Whether the model fits takes several {scaling.unit}s."
    change = f"more {scaling.unit}s of each number of nodes, and more numbers"
    return Sentence(text, made_from(scaling.inputs), change)


def _apart(scaling: Scaling) -> str:
    """Computing and communication with the fewest and the most processes."""
    if not scaling.apart:
        return ""
    first, last = min(scaling.apart), max(scaling.apart)
    parts = [
        f"{part} from {amount(least, 's')} to {amount(most, 's')}"
        for part, least, most in zip(
            ("computing", "MPI"), scaling.apart[first], scaling.apart[last], strict=True
        )
    ]
    text = f" From {first} to {last} processes {joined(parts)} a process."
    if scaling.overtaken is not None:
        text += f" From {scaling.overtaken} processes on MPI takes longer than computing."
    elif scaling.seems_overtaken is not None:
        text += f" In the medians MPI takes longer than computing from {scaling.seems_overtaken} "
        text += "processes on, which may be chance."
    return text
