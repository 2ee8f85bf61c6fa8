"""Predictions of programs on more nodes, and their error: measured cases are predicted, too.

The network is calibrated by message times, the speed of the nodes by one measured case: of the
predicted kernel on one node, which communicates nothing, else of EP, which hardly does. No other
measured case is used: each case of the predicted kernel of NPB with one rank a node, of any class,
is predicted and compared; of another program, the times that its user measured. The largest of
these errors is that of the predictions. A prediction says so where nothing can be compared, or
where it is beyond twice the calibrated range of nodes or message sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from seatrial.analysis.conclusion import Measured
from seatrial.benchmarks import npb
from seatrial.predict.calibration import Network, calibrate
from seatrial.predict.simulation import Messages, Simulated, half_round_trips, simulate

#: beyond this multiple of the calibrated range a prediction says so
FAR = 2
#: if messages of more than so much of the bytes are beyond it
FEW = 0.1
#: speed at which a case is simulated to find the speed of the nodes: its time, which NPB prints
#: with two decimals, is then long, also of the smallest class
_SLOW = 0.01
#: measured: docs/dev/predictions.md
RENDEZVOUS = (
    "some of its messages are above the eager limit: by Open MPI's own TCP (btl tcp) they can take "
    "twice as long where both sides send"
)


@dataclass(frozen=True)
class Comparison:
    """A measured case, median over its ``samples``, and what is predicted for it, with the
    algorithm of MPI_Alltoallv. ``variant``: a kernel of NPB, such as ``is.A``; "" of a program of
    the user.
    """

    variant: str
    nodes: int
    measured_s: float
    predicted_s: float
    samples: int
    alltoallv: str = ""

    @property
    def error(self) -> float:
        """Relative to what was measured; above 0: predicted slower."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Prediction:
    """``time_s`` is what the program prints, ``mops`` its rate (None: it prints none).

    ``flaws``: why it is worth less than its error says. ``alltoallv``: the algorithm of
    MPI_Alltoallv, of a program that is known to call it.
    """

    nodes: int
    time_s: float
    mops: float | None
    flaws: Sequence[str]
    alltoallv: str = ""


@dataclass(frozen=True)
class Calibrated:
    """What predictions are made with.

    ``speed``: of a node's core over that of this machine, by the case ``speed_case`` (variant and
    nodes); 1 and None if no such case was measured. ``round_trips``: size in B -> relative error of
    half a simulated round trip.
    """

    network: Network
    round_trips: Mapping[float, float]
    speed: float = 1.0
    speed_case: tuple[str, int] | None = None
    skipped: Sequence[str] = field(default_factory=list)  # measured cases that cannot be compared


#: runs a kernel of a class, such as ``is.A``, on so many nodes with a speed of their cores
Simulate = Callable[[str, int, float], Simulated]


def selected(
    measured: Iterable[Measured], transport: str, profile: str, network: str = ""
) -> list[Measured]:
    """The runs of a transport under a profile; with ``network`` of one rail alone.

    Raises ValueError if they are of several rails or drivers.
    """
    chosen_samples = [
        sample
        for sample in measured
        if (sample.run.case.transport, sample.run.case.profile) == (transport, profile)
        and network in ("", sample.run.case.network)
    ]
    kinds = sorted({sample.run.hardware for sample in chosen_samples if sample.run.path})
    if len(kinds) > 1:
        raise ValueError(f"the runs are of several networks or drivers: {', '.join(kinds)}")
    return chosen_samples


def cases_of_npb(
    measured: Iterable[Measured],
) -> tuple[dict[tuple[str, int], list[float]], list[str]]:
    """(variant, nodes) -> times in s, of cases with one rank a node; and the others' names."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    skipped: dict[str, None] = {}
    for sample in measured:
        case = sample.run.case
        if case.check != "npb":
            continue
        seconds = [m.value for m in sample.run.metrics if m.metric == "time_s"]
        processes = sample.run.facts.get("processes")
        if processes == case.nodes:
            times[case.variant, case.nodes] += seconds
        else:
            skipped[f"npb {case.variant} on {case.nodes} nodes has {processes} ranks"] = None
    return {key: own for key, own in sorted(times.items()) if own}, list(skipped)


def calibrated(
    measured: Sequence[Measured], pingpong: Path, run: Callable[[Network], Simulate],
    limit_s: float, variant: str = "",
) -> Calibrated:  # fmt: skip
    """The network and the speed of the nodes, from the runs of one transport under one profile.

    ``variant``: what will be predicted, such as ``ft.A``; "" of a program of the user. Raises
    ValueError with the reason if there is no network, LabError if SimGrid fails.
    """
    network = calibrate(measured)
    simulated = half_round_trips(pingpong, network, list(network.half_round_trips), limit_s)
    errors = {
        size: simulated[float(f"{size:.0f}")] / seconds - 1
        for size, seconds in network.half_round_trips.items()
    }
    times, skipped = cases_of_npb(measured)
    case = _speed_case(times, variant)
    if case is None:
        return Calibrated(network, errors, skipped=skipped)
    here = _SLOW * npb.parse(run(network)(*case, _SLOW).output).value("time_s")
    return Calibrated(network, errors, here / median(times[case]), case, skipped)


def _speed_case(
    times: Mapping[tuple[str, int], Sequence[float]], variant: str
) -> tuple[str, int] | None:
    """The measured case that gives the speed of the nodes, if there is one.

    How fast a core is differs between kernels, so the kernel itself on one node comes first: of the
    same class, else the longest. Then comes EP, on the fewest nodes, as those of a lab share
    processors; of these the longest, for the least noise.
    """
    kernel = variant.partition(".")[0]
    alone = [key for key in times if key[1] == 1 and key[0].partition(".")[0] == kernel]
    if alone:
        return max(alone, key=lambda key: (key[0] == variant, median(times[key])))
    of_EP = [key for key in times if key[0].startswith("ep.")]
    return min(of_EP, key=lambda key: (key[1], -median(times[key])), default=None)


def compare(
    of: Calibrated, measured: Sequence[Measured], kernel: str, simulate_one: Simulate
) -> list[Comparison]:
    """Each measured case of a kernel that the calibration did not use. Raises LabError."""
    times, _ = cases_of_npb(measured)
    made = []
    for (variant, nodes), seconds in times.items():
        if variant.startswith(f"{kernel}.") and (variant, nodes) != of.speed_case and nodes > 1:
            run = simulate_one(variant, nodes, of.speed)
            time_s = npb.parse(run.output).value("time_s")
            made.append(
                Comparison(variant, nodes, median(seconds), time_s, len(seconds), run.alltoallv)
            )
    return made


def predict(
    of: Calibrated,
    compared: Sequence[Comparison],
    kernel: str,
    problem_class: str,
    nodes: int,
    simulate_one: Simulate,
) -> Prediction:
    """The time of a kernel of NPB on so many nodes. Raises LabError."""
    run = simulate_one(f"{kernel}.{problem_class}", nodes, of.speed)
    done = npb.parse(run.output)
    flaws = [*of_class(problem_class, compared), *of_speed(of, kernel)]
    flaws += flaws_of(of, compared, nodes, run)
    if kernel == "is":
        flaws += of_alltoallv(run, [comparison.alltoallv for comparison in compared])
    return Prediction(
        nodes, done.value("time_s"), done.value("mops"), flaws,
        run.alltoallv if kernel == "is" else "",
    )  # fmt: skip


def of_class(problem_class: str, compared: Sequence[Comparison]) -> list[str]:
    """That the measured cases are of other classes, if they are."""
    classes = sorted({comparison.variant.rpartition(".")[2] for comparison in compared})
    if not classes or problem_class in classes:
        return []
    return [f"the measured cases are of class {' and '.join(classes)}, and not {problem_class}"]


def of_speed(of: Calibrated, kernel: str) -> list[str]:
    """That the speed of the nodes is that of another kernel, if it is."""
    if of.speed_case is None or of.speed_case[0].startswith(f"{kernel}."):
        return []
    return [f"the nodes may compute {kernel} at another speed: npb {kernel} on 1 node shows it"]


def compare_program(
    measured_s: Mapping[int, float], time_of: Callable[[int], float]
) -> list[Comparison]:
    """Measured times of a program, number of nodes -> s, beside what ``time_of`` predicts for them.
    Raises LabError."""
    return [
        Comparison("", nodes, seconds, time_of(nodes), 1)
        for nodes, seconds in sorted(measured_s.items())
    ]


def flaws_of(
    of: Calibrated, compared: Sequence[Comparison], nodes: int, run: Simulated
) -> list[str]:
    """Why a prediction of any program is worth less than its error says."""
    flaws = far(nodes, [comparison.nodes for comparison in compared])
    if nodes > 1:
        flaws += outside(run.messages, of.network.measured)
        if run.selector == "ompi" and run.messages and run.messages.largest > of.network.eager_B:
            flaws.append(RENDEZVOUS)
    return flaws


def far(nodes: int, compared: Sequence[int]) -> list[str]:
    """Whether a number of nodes is beyond twice those of the compared cases."""
    if not compared:
        return ["no measured case says how good it is"]
    most = max(compared)
    if nodes > FAR * most:
        return [f"beyond twice the calibrated range: measured on at most {most} nodes"]
    return []


def of_alltoallv(run: Simulated, compared: Sequence[str]) -> list[str]:
    """Whether the algorithm of MPI_Alltoallv is not the MPI's, or in no compared case."""
    if run.asked:
        return ["the MPI itself chooses another algorithm of MPI_Alltoallv"]
    if compared and run.alltoallv not in compared:
        return ["MPI_Alltoallv had another algorithm in all measured cases"]
    return []


def outside(messages: Messages | None, measured: tuple[float, float]) -> list[str]:
    """Whether the messages of a program are beyond twice the sizes of the calibration, in B.

    ``messages`` have the bytes beyond ``FAR`` times the largest of these sizes.
    """
    if messages is None:
        return ["its messages could not be counted, so their sizes may be beyond the calibration"]
    low, high = measured
    share, mean = messages.beyond / max(1, messages.bytes), messages.bytes / messages.count
    if share > FEW:
        what = f"messages of up to {messages.largest} B have {100 * share:.0f} % of its bytes"
    elif mean < low / FAR:
        what = f"its mean message has {mean:.3g} B"
    else:
        return []
    return [f"beyond twice the calibrated range: {what}, measured were {low:.0f} to {high:.0f} B"]


def runner(
    command: Callable[[str, int], Sequence[str | Path]], selector: str, limit_s: float,
    alltoallv: str = "", counter: Path | None = None,
    progress: Callable[[int, float], None] = lambda *_: None,
) -> Callable[[Network], Simulate]:  # fmt: skip
    """How to run what is simulated: ``command`` of a variant, such as ``is.A``, on so many nodes.

    ``alltoallv``: the algorithm of MPI_Alltoallv, if not that of the MPI. ``counter``: the library
    that counts messages; without it ``Simulated.messages`` is None. ``progress`` is called every
    second with the number of nodes and the processor time so far, in s.
    """

    def over(network: Network) -> Simulate:
        beyond = FAR * network.measured[1]

        def one(variant: str, nodes: int, speed: float) -> Simulated:
            return simulate(
                command(variant, nodes), nodes, network, speed=speed, selector=selector,
                alltoallv=alltoallv, counter=(counter, beyond) if counter else None,
                limit_s=limit_s, progress=partial(progress, nodes),
            )  # fmt: skip

        return one

    return over
