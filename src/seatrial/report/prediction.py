"""A prediction in lines of text: what it was made from, its error, then its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from seatrial.predict.prediction import Calibrated, Comparison, Prediction
from seatrial.report.text import message_size
from seatrial.results.statistics import median
from seatrial.results.wording import number, plural, some

POOR = 0.25  # of a half round trip: its error is named with its size


def calibration(of: Calibrated) -> Iterator[str]:
    """The network, its own error, and the speed of the nodes."""
    network = of.network
    low, high = map(_size, network.measured)
    inputs = network.inputs
    yield (
        f"network: from {network.source}, {low} to {high}, trial"
        f"{'s' if len(inputs.trials) > 1 else ''} {some(inputs.trials)}; "
        f"{number(network.bandwidth_B_s / 1e6, 3)} MB/s, eager up to "
        f"{_size(network.eager_B)}"
    )
    errors = {size: abs(error) for size, error in of.round_trips.items()}
    worst = max(errors, key=lambda size: errors[size])
    middle = median(list(errors.values()))
    text = (
        f"the simulated half round trips miss the measured ones by {_percent(errors[worst])} at "
        f"most, at {_size(worst)}, and by {_percent(middle)} in the median"
    )
    poor = sum(error > POOR for error in errors.values())
    yield text + (f"; {poor} of {len(errors)} by more than {_percent(POOR)}" if poor else "")
    if of.speed_case:
        variant, nodes = of.speed_case
        yield (
            f"speed of the nodes: {number(of.speed, 3)} times this machine's, by npb {variant} on "
            f"{plural(nodes, 'node')}"
        )
    else:
        yield "speed of the nodes: this machine's, as no npb ep was measured"
    for name in of.skipped:
        yield f"not compared: {name}, and only one rank a node is simulated"


def comparisons(compared: Sequence[Comparison]) -> Iterator[str]:
    """Each measured case beside its prediction."""
    if not compared:
        yield "error: not known, as no measured case could be compared"
    for comparison in compared:
        name = f"npb {comparison.variant} " if comparison.variant else ""
        yield (
            f"measured {name}on {comparison.nodes} nodes: {number(comparison.measured_s, 4)} s "
            f"({plural(comparison.samples, 'sample')}), predicted "
            f"{number(comparison.predicted_s, 4)} s: "
            f"{100 * comparison.error:+.0f} %"
        )


def worst(compared: Sequence[Comparison]) -> float | None:
    """The largest error of the comparisons, a fraction; None without any."""
    return max((abs(comparison.error) for comparison in compared), default=None)


def predictions(made: Iterable[Prediction], compared: Sequence[Comparison]) -> Iterator[str]:
    """A line for each prediction with the largest error of the measured cases, and the number of
    each note that says why it is worth less.

    A note follows the first line that has it. The error is a part of the measured time: 50 % too
    fast means a run of twice the prediction. So the first note has the measured times as multiples
    of their predictions, too.
    """
    notes: list[str] = []
    error = worst(compared)
    about = []
    if error is not None:
        times = [each.measured_s / each.predicted_s for each in compared]
        span = " to ".join(dict.fromkeys(number(limit, 3) for limit in (min(times), max(times))))
        about = [f"the measured cases took {span} times the prediction"]
    for prediction in made:
        text = f"{plural(prediction.nodes, 'node')}: {number(prediction.time_s, 4)} s"
        if prediction.mops is not None:
            text += f", {number(prediction.mops, 4)} Mop/s"
        if prediction.alltoallv:
            text += f", MPI_Alltoallv {prediction.alltoallv}"
        known = f"error of the measured cases up to {_percent(error)}" if error is not None else ""
        flaws = [*about, *prediction.flaws]
        new = [note for note in dict.fromkeys(flaws) if note not in notes]
        notes += new
        marks = "".join(f" [{notes.index(note) + 1}]" for note in dict.fromkeys(flaws))
        yield f"{text}, {known or 'error not known'}{marks}"
        yield from (f"  [{notes.index(note) + 1}] {note}" for note in new)


def _size(size: float) -> str:
    return f"{message_size(round(size))} B".replace("i B", "iB")


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)} %"
