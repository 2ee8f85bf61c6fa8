"""Several iperf3 streams that ran at once: their sum, and the slowest.

Reads what ``checks/node/streams.py`` left: which stream went through which interface, the report
of each (``iperf3`` reads one), and when each ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from seatrial.base.fields import Name, Size
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.base.suggest import FieldProblem, suggest
from seatrial.benchmarks import tcp_stream as iperf3
from seatrial.benchmarks.benchmark import (
    NODE_PYTHON,
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SiteFacts,
    Step,
)
from seatrial.benchmarks.parsing import Parsed, ParseError, higher

#: percent of the longest stream's time in which all must have run, for their rates to be added
AT_ONCE = 90


class TCPStreamsSettings(Settings):
    """Several iperf3 streams at once, spread over the interfaces of several networks."""

    streams: list[Annotated[int, Field(ge=1, le=16)]] = [1, 2, 4]
    networks: list[Name] = Field(min_length=1, description="of role test; each stream's in turn")
    seconds: int = Field(default=2, ge=1)
    message_bytes: Size = 128 << 10


class TCPStreams(Benchmark[TCPStreamsSettings]):
    """Several TCP streams at once between two nodes, over each interface or their bond."""

    name = "tcp_streams"
    Settings = TCPStreamsSettings
    pseudo_transport = PLAIN_SOCKETS

    def variants(self) -> list[str]:
        return [f"{count}-streams" for count in self.settings.streams]

    def problems(self, site: SiteFacts) -> Iterator[FieldProblem]:
        tests = site.test_networks
        for index, network in enumerate(self.settings.networks):
            if network not in tests:
                yield FieldProblem(
                    f"networks.{index}",
                    f"{network!r} is no network of role test",
                    suggest(network, tests),
                )

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
        )

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {
            "bandwidth_MB_s": DeclaredMetric("MB/s"),
            "slowest_stream_MB_s": DeclaredMetric("MB/s"),
        }


def parse(plan: str, reports: Sequence[str], ended: str, interface: str) -> Parsed:
    """``plan`` is the JSON of the streams, ``reports`` is iperf3's JSON of each, in its order;
    ``ended`` is the JSON of their ends, in seconds of one clock.

    Metrics: ``bandwidth_MB_s``, the sum over the streams of what each receiver got;
    ``slowest_stream_MB_s``. ``moved_bytes`` is for ``interface``: the payload of the streams that
    went through it, which is a bond where the stream's own interface is a member of one.

    Raises ParseError, also where the streams shared less than ``AT_ONCE`` percent of their time:
    then the sum of their rates is none that the network ever carried.
    """
    streams = _streams(plan)
    if len(reports) != len(streams):
        raise ParseError(f"{len(streams)} streams were started, {len(reports)} reports are there")
    parsed = [iperf3.parse(text) for text in reports]
    rates = [one.value("bandwidth_MB_s") for one in parsed]
    together = _together(ended, [float(one.facts["seconds"]) for one in parsed])
    if together < AT_ONCE:
        raise ParseError(
            f"the streams did not run at once: of the longest one's time they share "
            f"{together:.0f} %, and less than {AT_ONCE} % makes no sum"
        )
    moved = 0
    for stream, one in zip(streams, parsed, strict=True):
        if stream["through"] == interface:
            moved += one.moved_bytes
    return Parsed(
        metrics=[
            higher("bandwidth_MB_s", sum(rates), "MB/s"),
            higher("slowest_stream_MB_s", min(rates), "MB/s"),
        ],
        facts={
            "through": [one["through"] for one in streams],
            "streams_MB_s": rates,
            "together_percent": together,
        },
        moved_bytes=moved,
    )


def _together(ended: str, seconds: Sequence[float]) -> float:
    """Percent of the longest stream's time in which all ran."""
    try:
        ends = json.loads(ended)
    except ValueError as error:
        raise ParseError(f"expected the streams' ends as JSON: {error}") from None
    if not isinstance(ends, list) or len(ends) != len(seconds):
        raise ParseError(f"expected {len(seconds)} streams' ends, found {ends!r}")
    for one in ends:
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            raise ParseError(f"expected a stream's end in seconds, found {one!r}")
    starts = [end - length for end, length in zip(ends, seconds, strict=True)]
    return 100 * max(0.0, min(ends) - max(starts)) / max(seconds)


def _streams(plan: str) -> list[dict[str, Any]]:
    try:
        streams = json.loads(plan)
    except ValueError as error:
        raise ParseError(f"expected the list of streams as JSON: {error}") from None
    if not isinstance(streams, list) or not streams:
        raise ParseError("expected the list of streams, found none")
    for one in streams:
        if not isinstance(one, dict) or not all(
            isinstance(one.get(key), str) for key in ("interface", "through")
        ):
            raise ParseError(f"expected a stream with interface and through, found {one!r}")
    return streams
