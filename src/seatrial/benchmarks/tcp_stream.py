"""iperf3's JSON (``iperf3 -c HOST -J``), TCP, one direction.

Not for UDP and --bidir, whose sums have another meaning. Format: iperf3 3.12, ``iperf_api.c`` and
``iperf_client_api.c``.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.benchmarks.benchmark import (
    ACTIVITY_METRICS,
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    SeveralNodes,
    Step,
    output,
)
from seatrial.benchmarks.limits import StreamBandwidth
from seatrial.benchmarks.parsing import Parsed, ParseError, higher, lower

_READ = {"error", "start", "test_start", "protocol", "bidir", "reverse", "num_streams", "version"}
_READ |= {"end", "sum_sent", "sum_received", "bits_per_second", "bytes", "seconds", "retransmits"}
_READ |= {"cpu_utilization_percent", "host_total", "remote_total"}


class TCPStreamSettings(Settings):
    """iperf3 over TCP: bandwidth, and CPU use at both ends."""

    nodes: SeveralNodes = [2]
    seconds: int = Field(default=2, ge=1, description="an integer: iperf3 treats 0.5 as endless")
    total_bytes: Size | None = Field(
        default=None, description="ends the stream after so many bytes, instead of ``seconds``"
    )
    message_bytes: Size = 128 << 10


class TCPStream(Benchmark[TCPStreamSettings]):
    """One TCP stream by iperf3: bandwidth, and CPU time and interrupts at both ends."""

    name = "tcp_stream"
    Settings = TCPStreamSettings
    pseudo_transport = PLAIN_SOCKETS
    activity_metrics = True
    limits = (StreamBandwidth("bandwidth_MB_s"),)

    def steps(self, job: Job) -> list[Step]:
        settings = self.settings
        server = [*job.program("iperf3"), "-s", "-1", "-p", str(PORT)]
        total = settings.total_bytes
        length = ["-t", str(settings.seconds)] if total is None else ["-n", str(total)]
        client = [
            *job.program("iperf3"), "-c", "{address}", "-p", str(PORT), "-J",
            *length, "-l", str(settings.message_bytes),
        ]  # fmt: skip
        return [Step("tcp_stream", job.pair("tcp_stream", server, client, PORT), nodes=2)]

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return parse(output(step, folder))

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {
            "bandwidth_MB_s": DeclaredMetric("MB/s", "higher"),
            "cpu_sender_percent": DeclaredMetric("percent", "lower"),
            "cpu_receiver_percent": DeclaredMetric("percent", "lower"),
            **ACTIVITY_METRICS,
        }


def parse(text: str) -> Parsed:
    """Read the client's report.

    Metrics: ``bandwidth_MB_s``, payload at the receiver (end.sum_received) in 10^6 B/s;
    ``cpu_sender_percent`` and ``cpu_receiver_percent``, of one processor. In the report
    ``host_total`` is the client and ``remote_total`` the server. The client sends; with -R it
    receives. Retransmits are a fact.

    ``moved_bytes`` is end.sum_received.bytes: the payload crosses the interfaces of both nodes
    once. Bytes sent under --omit are not counted.

    Raises ParseError, with the message of iperf3 if the report has one.
    """
    try:
        data = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise ParseError(f"expected iperf3's JSON: {error}", line) from None
    if not isinstance(data, dict):
        raise ParseError("expected iperf3's JSON as one object")
    if "error" in data:
        raise ParseError(f"iperf3 reported an error: {data['error']}")

    test = _get(data, "start", "test_start", kind=dict)
    if _get(test, "protocol", kind=str) != "TCP":
        raise ParseError(f"expected a TCP test, found {test['protocol']}")
    if test.get("bidir"):
        raise ParseError("expected a test in one direction, found --bidir")
    # Required: without it, sender and receiver could be exchanged.
    reverse = _number(test, "reverse")
    received = _get(data, "end", "sum_received", kind=dict)
    rate = _number(received, "bits_per_second", positive=True)
    moved = _number(received, "bytes", positive=True)
    seconds = _number(received, "seconds", positive=True)
    if not math.isclose(rate, moved * 8 / seconds, rel_tol=1e-3):
        raise ParseError(
            f"end.sum_received: bits_per_second is {rate:g}, but bytes and seconds give "
            f"{moved * 8 / seconds:g}: a number is damaged"
        )
    cpu = _get(data, "end", "cpu_utilization_percent", kind=dict)
    host, remote = _number(cpu, "host_total"), _number(cpu, "remote_total")
    sender, receiver = (remote, host) if reverse else (host, remote)
    facts: dict[str, Any] = {
        "streams": int(_number(test, "num_streams", positive=True)),
        "seconds": seconds,
        "reverse": bool(reverse),
        "version": _get(data, "start", "version", kind=str),
    }
    sent = data["end"].get("sum_sent")
    if isinstance(sent, dict) and "retransmits" in sent:  # absent if the kernel does not count them
        facts["retransmits"] = int(_number(sent, "retransmits"))
    return Parsed(
        metrics=[
            replace(higher("bandwidth_MB_s", rate / 8e6, "MB/s"), seconds=seconds),
            lower("cpu_sender_percent", sender, "percent"),
            lower("cpu_receiver_percent", receiver, "percent"),
        ],
        facts=facts,
        moved_bytes=int(moved),
    )


def _get(data: dict[str, Any], *path: str, kind: type) -> Any:
    value: Any = data
    for depth, key in enumerate(path, 1):
        value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            raise ParseError(f"expected {'.'.join(path[:depth])} in iperf3's report")
    if not isinstance(value, kind):
        article = "an object" if kind is dict else "a string"
        raise ParseError(f"expected {'.'.join(path)} as {article}, found {value!r}")
    return value


def _number(data: dict[str, Any], key: str, *, positive: bool = False) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ParseError(f"expected {key} as a finite number of at least 0, found {value!r}")
    if positive and value == 0:
        raise ParseError(f"expected {key} above zero")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject a repeated key that is read here. With -P, iperf3 repeats some other keys."""
    names = [key for key, _ in pairs]
    twice = [key for key in names if key in _READ and names.count(key) > 1]
    if twice:
        raise ValueError(f"an object names {twice[0]} twice")
    return dict(pairs)


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a figure")
