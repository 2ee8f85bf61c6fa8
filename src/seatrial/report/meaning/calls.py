"""The part of the chapter "What it means" on the times of sends and receives."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.analysis.conclusion import scaled
from seatrial.analysis.message_times import FEWEST_CALLS, CallTimes, Line, half_round_trip
from seatrial.report.chapter import (
    Cell,
    Grid,
    Section,
    Sentence,
    bytes_text,
    joined,
    made_from,
    percent,
)
from seatrial.report.estimates import amount_with_interval, with_interval
from seatrial.report.text import amount
from seatrial.results.wording import plural


def section(call_times: Sequence[CallTimes]) -> Section:
    """A sentence on each model, and a table of the lines."""
    return Section(
        "Times of sends and receives",
        [sentence for one in call_times for sentence in _call_times(one)],
        [_models(call_times)] if call_times else [],
        "models",
    )


def _call_times(call_times: CallTimes) -> list[Sentence]:
    name = f"{call_times.case.route} under {call_times.case.profile} on {call_times.hardware}"
    poor = [
        f"{call} (a measured time is missed by {percent(model.largest_error)})"
        for call, model in (("MPI_Send", call_times.send), ("MPI_Recv", call_times.recv))
        if model.poor
    ]
    text = f"{name}: "
    if not call_times.send.poor and call_times.send.lines[0].intercept.value > 0:
        small = amount_with_interval(call_times.send.lines[0].intercept, "us")
        text += f"an MPI_Send of a small message takes {small}. "
    if not poor:
        half = half_round_trip(call_times.send, call_times.recv, call_times.send.measured[0])
        text += f"Half of send and receive is {amount(half.us, 'us')} at "
        text += (
            f"{bytes_text(call_times.send.measured[0])}{f' ({half.flaw})' if half.flaw else ''}. "
        )
    else:
        text += f"No lines describe {joined(poor)}. "
    last = call_times.recv.lines[-1]
    if not call_times.recv.poor and last.slope.low > 0:
        ends = call_times.recv.thresholds
        above = f" above {bytes_text(ends[-1])}" if ends else ""
        text += f"An MPI_Recv{above} takes {amount_with_interval(last.intercept, 'us')} and for "
        text += f"each KiB {amount_with_interval(scaled(last.slope, 1024), 'us')}. "
    for call, name in (("recv", "MPI_Recv"), ("send", "MPI_Send")):
        if (apart := call_times.ranks.get(call)) and apart.is_much:
            text += f"{name} of {bytes_text(apart.size)} takes {amount(apart.low, 'us')} on one "
            text += f"rank and {amount(apart.high, 'us')} on the other: its time depends on more "
            text += "than the size, such as the state of the interrupt moderation of each node. "
            break
    if call_times.send.curved:
        text += (
            "No threshold shows: a smooth curve describes the times of a send better than lines."
        )
    elif call_times.send.thresholds:
        at = [f"{bytes_text(a)} and {bytes_text(b)}" for a, b in call_times.send.between]
        text += f"The time of a send changes its course between {'; between '.join(at)}."
        if call_times.eager is None:
            text += " The eager limit of the MPI is not on record."
        elif call_times.eager.between:
            low, high = map(bytes_text, call_times.eager.between)
            agree = (
                "lies"
                if call_times.eager.agrees
                else "does not lie, so another limit is behind it,"
            )
            text += (
                f" The MPI's eager limit, {bytes_text(call_times.eager.bytes)} "
                f"({call_times.eager.source}), "
                f"{agree} in the nearest of these steps ({low} to {high})."
            )
        if call_times.synchronised:
            text += " Above the last a send waits for its receive: both take the same time."
    else:
        text += "No threshold shows at the measured sizes, "
        text += f"{' to '.join(map(bytes_text, call_times.send.measured))}."
    key = word = ""
    change = "sizes outside the measured range, more sizes per decade"
    if call_times.few:
        known = "a number of repetitions that is not on record" if call_times.calls is None else \
            f"{plural(call_times.calls, 'repetition')} of each size"  # fmt: skip
        said = call_times.send.thresholds and not call_times.send.curved
        what = "thresholds are" if said else "the absence of a threshold is"
        text += f" These times rest on {known}: below {FEWEST_CALLS} {what} not to be trusted."
        change = f"benchmarks.comms.repetitions: {FEWEST_CALLS} in site.yaml; {change}"
        key, word = "inconclusive", "doubtful"
    error = max(call_times.send.largest_error, call_times.recv.largest_error)
    basis = made_from(call_times.inputs)
    basis += f"; the lines miss a measured time by {percent(error)} at most"
    return [Sentence(text, basis, change, key, word)]


def _models(models: Sequence[CallTimes]) -> Grid:
    rows = []
    for call_times in models:
        for call, model in (("send", call_times.send), ("receive", call_times.recv)):
            start = model.measured[0]
            for line in () if model.poor else model.lines:
                end = line.last if line.last is not None else model.measured[1]
                rows.append(_model_row(call_times, call, line, start, end))
                start = end
    header = ["transport and profile", "call", "sizes", "intercept (us)", "slope (us per KiB)"]
    title = "Lines t = intercept + slope x size, with 95 % intervals"
    return Grid(title, header, rows, folded=True)


def _model_row(
    call_times: CallTimes, call: str, line: Line, start: float, end: float
) -> list[Cell]:
    """A line that falls is no time of a message: its two coefficients say nothing by themselves."""
    if line.slope.value < 0:
        certain = line.slope.high < 0
        why = "falls: larger messages took less" if certain else "flat: no slope is certain"
        coefficients = [Cell("–", "quiet"), Cell("–", "quiet", why)]
    else:
        note = "" if line.slope.low > 0 else "not told apart from zero"
        slope = with_interval(scaled(line.slope, 1024))
        coefficients = [Cell(with_interval(line.intercept)), Cell(slope, note=note)]
    above = "from" if start == call_times.send.measured[0] else "above"
    return [
        Cell(f"{call_times.case.route}, {call_times.case.profile}"),
        Cell(call),
        Cell(f"{above} {bytes_text(start)} to {bytes_text(end)}"),
        *coefficients,
    ]
