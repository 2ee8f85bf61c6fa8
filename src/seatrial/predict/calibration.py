"""A simulated network from the message times of a trial: SMPI's overheads, latency and bandwidth.

For messages of each range of sizes SMPI takes five times: what a send and an isend cost the sender,
what a receive costs the receiver, and latency and time per byte in the network. The method is that
of SimGrid's ``docs/source/tuto_network_calibration``: a send costs what MPI_Send of an eager
message takes; a receive what MPI_Recv of a message that is already there takes; the network has the
rest of half a round trip. Of a message above the eager limit SMPI counts neither, so that the
network has all. A byte takes on the link what it takes in the largest messages, which messages at
one time share: smaller ones may be faster in a ping-pong, by the burst of a shaper or a cache, but
not when there are many. SMPI's default factors were fitted on another machine, and none of them
stays.

Each time is a line with no negative coefficient (non-negative least squares, relative errors), as
a simulator cannot take one. The ranges are those between the thresholds of half the round trip
(``seatrial.analysis.message_times``), and the eager limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from seatrial.analysis.conclusion import Inputs, Measured, inputs_of
from seatrial.analysis.message_times import fit

Points = Mapping[float, float]  # size in B -> us

#: sends and receives of one message may overlap with its transfer: together they have at most this
#: part of half a round trip, so that the network has some
MOST_OVERHEAD = 0.9
#: check -> name of its curve of half round trips, the best first
SOURCES = {"comms": "comms", "netpipe": "netpipe", "osu": "osu_latency"}
_TINY_S = 1e-9
#: by so many bytes a message of SMPI is larger in the network; seen with SimGrid 3.32
_HEADER_B = 16


@dataclass(frozen=True)
class Part:
    """Of one message: ``fixed_s`` and ``s_per_B``."""

    fixed_s: float
    s_per_B: float

    def at(self, size: float) -> float:
        return self.fixed_s + self.s_per_B * size


@dataclass(frozen=True)
class Range:
    """Times of messages above ``above`` bytes, up to the next range."""

    above: float
    send: Part
    isend: Part
    receive: Part
    network: Part

    def half_round_trip_s(self, size: float) -> float:
        return sum(part.at(size) for part in (self.send, self.receive, self.network))


@dataclass(frozen=True)
class Network:
    """``eager_B``: up to this size a send does not wait for its receive. ``measured``: first and
    last size in B. ``half_round_trips``: the measured ones, size in B -> s.
    """

    ranges: Sequence[Range]
    eager_B: float
    measured: tuple[float, float]
    half_round_trips: Mapping[float, float]
    source: str  # the check
    inputs: Inputs

    @property
    def bandwidth_B_s(self) -> float:
        """Of the link."""
        return 1 / min(part.network.s_per_B for part in self.ranges)

    @property
    def latency_s(self) -> float:
        """Of the network, the longest of all ranges."""
        return max(_TINY_S, *(part.network.fixed_s for part in self.ranges))

    def options(self) -> dict[str, str]:
        """SMPI's options of the network, for SimGrid 3.32 and later."""
        listed = [(part.above, part) for part in self.ranges]
        beyond = [(part.above + _HEADER_B * (part.above > 0), part) for part in self.ranges]
        bandwidth, latency = self.bandwidth_B_s, self.latency_s

        def costs(name: str) -> str:
            parts = [(at, getattr(part, name)) for at, part in listed]
            return ";".join(f"{at:.0f}:{p.fixed_s:.9g}:{p.s_per_B:.9g}" for at, p in parts)

        eager = f"{self.eager_B:.0f}"
        return {
            "smpi/os": costs("send"),
            "smpi/ois": costs("isend"),
            "smpi/or": costs("receive"),
            "smpi/lat-factor": ";".join(
                f"{at:.0f}:{part.network.fixed_s / latency:.9g}" for at, part in beyond
            ),
            "smpi/bw-factor": ";".join(
                f"{at:.0f}:{1 / part.network.s_per_B / bandwidth:.9g}" for at, part in beyond
            ),
            "smpi/send-is-detached-thresh": eager,
            # A message that is sent before its receive would share the receiver's link with the one
            # that is awaited there, and hold its sender's link meanwhile, as if the switch had no
            # memory: ranks that drift apart then wait for one another (docs/dev/predictions.md).
            "smpi/async-small-thresh": "0",
            # what the ranges have already, or a full-duplex link has not
            "network/TCP-gamma": "0",
            "network/crosstraffic": "0",
        }


def calibrate(measured: Iterable[Measured]) -> Network:
    """The network of runs of one transport under one profile: of ``comms``, else of another source.

    Raises ValueError with the reason if there are no runs, or too few sizes.
    """
    by_check: dict[str, list[Measured]] = defaultdict(list)
    for sample in measured:
        name = SOURCES.get(sample.run.case.check)
        if any(curve.name == name and curve.y_name == "latency" for curve in sample.run.curves):
            by_check[sample.run.case.check].append(sample)
    for check, name in SOURCES.items():
        if runs := by_check.get(check):
            half = _points(runs, [name], "latency")
            calls = {
                call: _points(runs, [f"comms {call}_us rank {rank}" for rank in (0, 1)], "time")
                for call in ("send", "isend", "recv_ready")
            }
            made = network(half, calls, _eager(runs))
            count = sum(len(half) for _ in runs)
            return Network(*made, {n: us / 1e6 for n, us in half.items()}, check,
                           inputs_of(runs, count))  # fmt: skip
    raise ValueError(f"no run of {', '.join(SOURCES)} has a curve of half round trips")


def _points(runs: Sequence[Measured], names: Sequence[str], kind: str) -> dict[float, float]:
    """Size in B -> median in us over the runs and the curves of these names."""
    times: dict[float, list[float]] = defaultdict(list)
    for sample in runs:
        for curve in sample.run.curves:
            if curve.name in names and curve.y_name == kind:
                for size, us in curve.points:
                    if size > 0:
                        times[size].append(us)
    return {size: median(times[size]) for size in sorted(times)}


def _eager(runs: Sequence[Measured]) -> float | None:
    limit = runs[0].run.facts.get("eager_limit_B")
    return float(limit) if isinstance(limit, int | float) else None


def network(
    half: Points, calls: Mapping[str, Points], eager_B: float | None
) -> tuple[list[Range], float, tuple[float, float]]:
    """Ranges, eager limit in B and measured sizes, from half round trips and call times in us.

    ``calls``: ``send``, ``isend`` and ``recv_ready``; where one is empty, all is in the network.
    Without a known eager limit the last threshold of half the round trip takes its place.
    """
    sizes = sorted(half)
    thresholds = list(fit([(n, half[n]) for n in sizes]).thresholds)
    limit = eager_B if eager_B is not None else (thresholds[-1] if thresholds else sizes[-1])
    edge = max((n for n in sizes if n <= limit), default=0.0)
    cuts = sorted({0.0, *thresholds, edge, sizes[-1]})
    # a range of one size has no line
    cuts = [c for i, c in enumerate(cuts) if not i or sum(cuts[i - 1] < n <= c for n in sizes) >= 2]
    cuts[-1] = sizes[-1]
    sends, receives = (
        {n: us for n, us in calls[call].items() if n <= limit} for call in ("send", "recv_ready")
    )
    largest = [n for n in sizes if n > cuts[-2]]
    # with any intercept: of a curve that bends up it is negative, and the slope is right
    relative = [1 / half[n] for n in largest]
    least = float(np.polyfit(largest, [half[n] / 1e6 for n in largest], 1, w=relative)[0])
    if least <= 0:
        least = half[sizes[-1]] / sizes[-1] / 1e6
    made = []
    for low, high in pairwise(cuts):
        inside = [n for n in sizes if low < n <= high]
        send, isend, receive = (
            _line(inside, [times.get(n, 0.0) / 1e6 for n in inside])
            for times in (sends, calls["isend"], receives)
        )
        whole = _line(inside, [half[n] / 1e6 for n in inside], least)
        made.append(_range(low, whole, send, isend, receive, least))
    return made, limit, (sizes[0], sizes[-1])


def _line(sizes: Sequence[float], times: Sequence[float], least: float = 0.0) -> Part:
    """The line of times in s with the least relative errors, no negative coefficient, and at least
    so many s per B."""
    from scipy.optimize import nnls  # takes long to import

    if max(times) <= 0:
        return Part(0.0, 0.0)
    weights = 1 / np.maximum(np.array(times), _TINY_S)
    # columns of one magnitude: nnls has an absolute tolerance
    unit_s, unit_B = max(times), max(sizes)
    rows = np.column_stack([np.ones(len(sizes)), np.array(sizes) / unit_B]) * weights[:, None]
    coefficients, _ = nnls(rows * unit_s, np.array(times) * weights)
    made = Part(float(coefficients[0]) * unit_s, float(coefficients[1]) * unit_s / unit_B)
    if made.s_per_B >= least:
        return made
    rest = (np.array(times) - least * np.array(sizes)) * weights
    return Part(max(0.0, float(np.sum(rest * weights) / np.sum(weights**2))), least)


def _range(
    above: float, whole: Part, send: Part, isend: Part, receive: Part, least: float
) -> Range:
    """Half a round trip without what sender and receiver have; the link keeps its bandwidth."""

    def part(of_both: float, room: float) -> float:
        return min(1.0, room / of_both) if of_both > 0 else 1.0

    fixed = part(send.fixed_s + receive.fixed_s, MOST_OVERHEAD * whole.fixed_s)
    per_B = part(send.s_per_B + receive.s_per_B, whole.s_per_B - least)
    send, isend, receive = (
        Part(one.fixed_s * fixed, one.s_per_B * per_B) for one in (send, isend, receive)
    )
    return Range(above, send, isend, receive, Part(
        whole.fixed_s - send.fixed_s - receive.fixed_s,
        max(least, whole.s_per_B - send.s_per_B - receive.s_per_B),
    ))  # fmt: skip
