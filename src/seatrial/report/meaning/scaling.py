"""The part of the chapter "What it means" on more nodes."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.analysis.scaling import Scaling
from seatrial.report.chapter import Section, Sentence, joined, made_from
from seatrial.report.estimates import amount_with_interval, percent_with_interval, times
from seatrial.report.text import amount


def section(scalings: Sequence[Scaling]) -> Section:
    """What more nodes do to each program."""
    return Section("More nodes", [_scaling(one) for one in scalings], figures="scaling")


_EFFECTS = {
    "costs": "More nodes cost time",
    "saves": "More nodes save time",
    "none": "More nodes make no difference",
    "not certain": "It is not certain what more nodes do",
}


def _scaling(one: Scaling) -> Sentence:
    counts = sorted(one.times)
    efficiency = ", ".join(
        f"{percent_with_interval(one.efficiency[p])} with {p}" for p in counts[1:]
    )
    fewest = "one process" if counts[0] == 1 else f"{counts[0]} processes"
    text = f"{one.name}: efficiency relative to {fewest} is {efficiency} processes."
    for effect, words in _EFFECTS.items():
        own = [step for step in one.steps if step.effect == effect]
        if own:
            listed = [f"from {s.start} to {s.end} processes {times(s.ratio)} as long" for s in own]
            text += f" {words}: {'; '.join(listed)}."
    text += _apart(one)
    what = "computing" if one.apart else "the run"
    if one.model is None:
        text += f" No model of the time: {one.no_model}."
    elif one.model.flaw:
        text += f" The model a0 + a1/p says nothing about a serial part: {one.model.flaw}."
    else:
        text += (
            f" {percent_with_interval(one.model.share)} of the time of {what} with one process "
            f"does not shrink with more: {amount_with_interval(one.model.a0, 's')}, by the model "
            "a0 + a1/p."
        )
        if not one.model.tested:
            text += f" Whether the model fits takes several {one.unit}s."
    change = f"more {one.unit}s of each number of nodes, and more numbers"
    return Sentence(text, made_from(one.inputs), change)


def _apart(one: Scaling) -> str:
    """Computing and communication with the fewest and the most processes."""
    if not one.apart:
        return ""
    first, last = min(one.apart), max(one.apart)
    parts = [
        f"computing from {amount(one.apart[first][0], 's')} to {amount(one.apart[last][0], 's')}",
        f"MPI from {amount(one.apart[first][1], 's')} to {amount(one.apart[last][1], 's')}",
    ]
    text = f" From {first} to {last} processes {joined(parts)} a process."
    if one.overtaken is not None:
        text += f" From {one.overtaken} processes on MPI takes longer than computing."
    elif one.seems_overtaken is not None:
        text += f" In the medians MPI takes longer than computing from {one.seems_overtaken} "
        text += "processes on, which may be chance."
    return text
