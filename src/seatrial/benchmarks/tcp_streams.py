"""Several iperf3 streams at the same time: the sum of their bandwidths, and the slowest.

Reads the files of ``checks/node/streams.py``: the interface of each stream, its end, and its
report, which ``tcp_stream`` parses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from seatrial.base.fields import Name, Size
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import FieldProblem
from seatrial.benchmarks import tcp_stream
from seatrial.benchmarks.benchmark import (
    NODE_PYTHON,
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    SiteFacts,
    Step,
    unknown_networks,
)
from seatrial.benchmarks.limits import StreamBandwidth
from seatrial.benchmarks.parsing import Parsed, ParseError, higher

#: the streams must overlap for at least this share of the longest one's time, in percent
LEAST_OVERLAP = 90


class TCPStreamsSettings(Settings):
    """Several iperf3 streams at once, spread over the interfaces of several networks."""

    nodes: SeveralNodes = [2]
    streams: list[Annotated[int, Field(ge=1, le=16)]] = [1, 2, 4]
    networks: list[Name] = Field(
        min_length=1, description="of role test; the streams use them in turn"
    )
    seconds: int = Field(default=2, ge=1)
    message_bytes: Size = 128 << 10


class TCPStreams(Benchmark[TCPStreamsSettings]):
    """Several TCP streams at once between two nodes, over each interface or their bond."""

    name = "tcp_streams"
    Settings = TCPStreamsSettings
    chooses = ("streams",)
    pseudo_transport = PLAIN_SOCKETS
    spans_networks = True
    limits = (StreamBandwidth("*_MB_s"),)

    def variants(self) -> list[str]:
        return [f"{count}-streams" for count in self.settings.streams]

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        yield from unknown_networks(self.settings.networks, site)

    def steps(self, job: Job) -> list[Step]:
        interfaces = ",".join(job.own_interfaces[name] for name in self.settings.networks)
        options = ["-t", str(self.settings.seconds), "-l", str(self.settings.message_bytes)]
        return [
            Step(
                f"streams-{count}",
                [
                    *NODE_PYTHON, "streams.py", f"streams-{count}", interfaces,
                    str(PORT + 20 * count), str(count), *job.program("iperf3"), "--", *options,
                ],
                variant=f"{count}-streams",
                nodes=2,
            )
            for count in self.settings.streams
        ]  # fmt: skip

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        count = int(step.variant.partition("-")[0])
        reports = [folder / f"{step.name}.{number}.json" for number in range(count)]
        return parse(
            (folder / f"{step.name}.streams.json").read_text(errors="replace"),
            [file.read_text(errors="replace") for file in reports],
            (folder / f"{step.name}.ended.json").read_text(errors="replace"),
            job.interface,
            {
                job.own_interfaces[name]: job.rails[name].network if name in job.rails else name
                for name in self.settings.networks
            },
        )

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {
            "bandwidth_MB_s": DeclaredMetric("MB/s", "higher"),
            "slowest_stream_MB_s": DeclaredMetric("MB/s", "higher"),
        }


def parse(
    plan: str, reports: Sequence[str], ended: str, interface: str, networks: Mapping[str, str]
) -> Parsed:
    """Read the files of a run.

    ``plan``: JSON, the list of streams. ``reports``: iperf3's JSON for each stream, in the same
    order. ``ended``: JSON, the ends of the streams in seconds of one clock. ``networks``: the own
    interface of a network -> the network that has its traffic, another one's for a member of a
    bond.

    Metrics: ``bandwidth_MB_s``, the sum of the bandwidths at the receivers;
    ``slowest_stream_MB_s``. ``moved_bytes``: the payload of the streams through ``interface``,
    which is under test; ``moved_beside``: that of the others. A stream through a member of a bond
    goes through the bond.

    Raises ParseError, also if the streams overlap for less than ``LEAST_OVERLAP`` percent: the
    network then never carried the sum of their rates.
    """
    streams = _streams(plan)
    if len(reports) != len(streams):
        raise ParseError(f"expected reports of {len(streams)} streams, found {len(reports)}")
    parsed = [tcp_stream.parse(text) for text in reports]
    rates = [report.value("bandwidth_MB_s") for report in parsed]
    overlap = _overlap(ended, [float(report.facts["seconds"]) for report in parsed])
    if overlap < LEAST_OVERLAP:
        raise ParseError(
            f"the streams did not run at the same time: they overlap for {overlap:.0f} % of the "
            f"longest one's time, and a sum needs at least {LEAST_OVERLAP} %"
        )
    moved, beside = 0, dict[str, int]()
    for stream, report in zip(streams, parsed, strict=True):
        if stream["through"] == interface:
            moved += report.moved_bytes
        elif (network := networks.get(stream["interface"])) is None:
            raise ParseError(f"a stream used {stream['interface']}, of no network of tcp_streams")
        else:
            beside[network] = beside.get(network, 0) + report.moved_bytes
    seconds = min(float(report.facts["seconds"]) for report in parsed)
    return Parsed(
        metrics=[
            replace(higher("bandwidth_MB_s", sum(rates), "MB/s"), seconds=seconds),
            replace(higher("slowest_stream_MB_s", min(rates), "MB/s"), seconds=seconds),
        ],
        facts={
            "through": [stream["through"] for stream in streams],
            "streams_MB_s": rates,
            "together_percent": overlap,
        },
        moved_bytes=moved,
        moved_beside=beside,
    )


def _overlap(ended: str, seconds: Sequence[float]) -> float:
    """The time in which all streams ran, in percent of the longest stream's time."""
    try:
        ends = json.loads(ended)
    except ValueError as error:
        raise ParseError(f"expected the ends of the streams as JSON: {error}") from None
    if not isinstance(ends, list) or len(ends) != len(seconds):
        raise ParseError(f"expected the ends of {len(seconds)} streams, found {ends!r}")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise ParseError(f"expected the end of a stream in seconds, found {end!r}")
    starts = [end - length for end, length in zip(ends, seconds, strict=True)]
    return 100 * max(0.0, min(ends) - max(starts)) / max(seconds)


def _streams(plan: str) -> list[dict[str, Any]]:
    try:
        streams = json.loads(plan)
    except ValueError as error:
        raise ParseError(f"expected the list of streams as JSON: {error}") from None
    if not isinstance(streams, list) or not streams:
        raise ParseError("expected the list of streams, found none")
    for stream in streams:
        if not isinstance(stream, dict) or not all(
            isinstance(stream.get(key), str) for key in ("interface", "through")
        ):
            raise ParseError(f"expected a stream with interface and through, found {stream!r}")
    return streams
