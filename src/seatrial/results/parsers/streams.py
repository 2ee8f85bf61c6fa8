"""Several iperf3 streams that ran at once: their sum, and the slowest.

Reads what ``checks/node/streams.py`` left: which stream went through which interface, and the
report of each (``iperf3`` reads one).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seatrial.results.parsers import iperf3
from seatrial.results.parsers.base import Parsed, ParseError, higher


def parse(plan: str, reports: Sequence[str], interface: str) -> Parsed:
    """``plan`` is the JSON of the streams, ``reports`` is iperf3's JSON of each, in its order.

    Metrics: ``bandwidth_MB_s``, the sum over the streams of what each receiver got;
    ``slowest_stream_MB_s``. ``moved_bytes`` is for ``interface``: the payload of the streams that
    went through it, which is a bond where the stream's own interface is a member of one.

    Raises ParseError.
    """
    streams = _streams(plan)
    if len(reports) != len(streams):
        raise ParseError(f"{len(streams)} streams were started, {len(reports)} reports are there")
    parsed = [iperf3.parse(text) for text in reports]
    rates = [one.value("bandwidth_MB_s") for one in parsed]
    moved = 0
    for stream, one in zip(streams, parsed, strict=True):
        if stream["through"] == interface:
            moved += one.moved_bytes
    return Parsed(
        metrics=[
            higher("bandwidth_MB_s", sum(rates), "MB/s"),
            higher("slowest_stream_MB_s", min(rates), "MB/s"),
        ],
        facts={"through": [one["through"] for one in streams], "streams_MB_s": rates},
        moved_bytes=moved,
    )


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
