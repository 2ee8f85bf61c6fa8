"""perftest's ib_write_lat, ib_send_lat and ib_write_bw: RDMA between two nodes, without MPI.

The programs exchange addresses over TCP and then use the RDMA port of the network under test. Not
here: other operations of perftest, several queue pairs, and tests that take a time, not a number.
Format: perftest 4.5 and 24, ``src/perftest_parameters.h`` (RESULT_LINE, RESULT_LINE_LAT,
REPORT_FMT_LAT).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.names import VERBS
from seatrial.benchmarks.benchmark import (
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    SeveralNodes,
    Step,
    output,
)
from seatrial.benchmarks.limits import Bandwidth, Latency
from seatrial.benchmarks.parsing import Parsed, ParseError, figure, higher, lower, whole

Operation = Literal["write_lat", "send_lat", "write_bw"]
_TITLES = {
    "write_lat": "RDMA_Write Latency Test",
    "send_lat": "Send Latency Test",
    "write_bw": "RDMA_Write BW Test",
}
_LATENCY_COLUMNS = (
    "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
    "t_stdev[usec]", "99%", "percentile[usec]", "99.9%", "percentile[usec]",
)  # fmt: skip
_BANDWIDTH_COLUMNS = (
    "#bytes", "#iterations", "BW", "peak[MB/sec]", "BW", "average[MB/sec]", "MsgRate[Mpps]"
)  # fmt: skip
MIB = 1 << 20  # perftest's MB
_DEVICE = re.compile(r"Device +: (\S+)")


class PerftestSettings(Settings):
    """RDMA verbs by perftest: latency of write and send, bandwidth of write."""

    nodes: SeveralNodes = [2]
    operations: list[Operation] = Field(default=["write_lat", "send_lat", "write_bw"], min_length=1)
    latency_bytes: Size = 8
    bandwidth_bytes: Size = 64 << 10
    iterations: int = Field(default=1000, ge=5, description="messages of a test")
    gid_index: int | None = Field(
        default=None, ge=0, le=255, description="of the RDMA port; perftest chooses without it"
    )


class Perftest(Benchmark[PerftestSettings]):
    """perftest: latency and bandwidth of RDMA between two nodes."""

    name = "perftest"
    Settings = PerftestSettings
    chooses = ("operations",)
    pseudo_transport = VERBS
    limits = (Latency("latency_us"), Bandwidth("bandwidth_MB_s"))

    def variants(self) -> list[str]:
        return list(dict.fromkeys(self.settings.operations))

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return f"ib_{variant}" in programs

    def available(
        self, transport: str, programs: Programs, blas: Collection[str] = ()
    ) -> list[str]:
        return [variant for variant in self.variants() if self.has_program(variant, programs, blas)]

    def steps(self, job: Job) -> list[Step]:
        device, _, number = job.rdma_port.replace("%n", "{node}").partition(":")
        gid = self.settings.gid_index
        gid_words = [] if gid is None else ["-x", str(gid)]
        steps = []
        for at, variant in enumerate(self.available(job.transport, job.programs)):
            size = self._size(variant)
            # Its own port for each test: a server of the one before may still hold it.
            port = PORT + at
            server = [
                *job.program(f"ib_{variant}"), "-d", device, "-i", number, "-p", str(port),
                "-s", str(size), "-n", str(self.settings.iterations), "-F", *gid_words,
            ]  # fmt: skip
            command = job.pair(variant, server, [*server, "{address}"], port)
            steps.append(Step(variant, command, variant=variant, nodes=2))
        return steps

    def _size(self, variant: str) -> int:
        if variant == "write_bw":
            return int(self.settings.bandwidth_bytes)
        return int(self.settings.latency_bytes)

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        parsed = parse(output(step, folder), step.variant)
        asked = (self._size(step.variant), self.settings.iterations)
        if (parsed.facts["bytes"], parsed.facts["iterations"]) != asked:
            raise ParseError(f"expected the result of {asked[1]} messages of {asked[0]} B")
        return parsed

    def metrics(self) -> dict[str, DeclaredMetric]:
        latency = tuple(variant for variant in self.variants() if variant.endswith("_lat"))
        bandwidth = tuple(variant for variant in self.variants() if variant.endswith("_bw"))
        declared = {
            "latency_us": DeclaredMetric("us", "lower", variants=latency),
            "latency_p99_us": DeclaredMetric("us", "lower", variants=latency),
            "bandwidth_MB_s": DeclaredMetric("MB/s", "higher", variants=bandwidth),
        }
        return {
            name: declared_metric
            for name, declared_metric in declared.items()
            if declared_metric.variants
        }


def parse(text: str, operation: str) -> Parsed:
    """Read the client's report of one test with one message size.

    Metrics of a latency test: ``latency_us``, t_typical, the median of half of the round trip;
    ``latency_p99_us``. Of a bandwidth test: ``bandwidth_MB_s``, the average in 10^6 B/s, where
    perftest's MB are 2^20 bytes. Facts: bytes, iterations, device.

    ``moved_bytes``: in a latency test each node sends and receives each message, 2 x size x
    iterations. In a bandwidth test each crosses once: size x iterations. Warm-up is not counted.

    Raises ParseError.
    """
    lines = text.splitlines()
    if not any(line.strip() == _TITLES[operation] for line in lines):
        raise ParseError(f"expected the title {_TITLES[operation]!r} of perftest")
    bandwidth = operation == "write_bw"
    columns = _BANDWIDTH_COLUMNS if bandwidth else _LATENCY_COLUMNS
    starts = [i for i, line in enumerate(lines) if tuple(line.split()) == columns]
    if len(starts) != 1:
        raise ParseError(f"expected one table of results, found {len(starts)}")
    rows = []
    ended = False
    for number, line in enumerate(lines[starts[0] + 1 :], starts[0] + 2):
        if line.startswith("---"):
            ended = True
            break
        if line.strip() and not line.startswith("Conflicting CPU frequency"):
            rows.append((number, line.split()))
    if len(rows) != 1 or not ended:
        raise ParseError("expected one row of results, and a line of dashes after it")
    at, words = rows[0]
    wanted = 5 if bandwidth else 9
    if len(words) != wanted:
        raise ParseError(f"expected {wanted} numbers, found {len(words)}", at)
    size, iterations = whole(words[0], at, "the size"), whole(words[1], at, "the iterations")
    device = _DEVICE.search(text)
    if size == 0 or iterations == 0 or not device:
        raise ParseError("expected a device, a size and iterations above zero", at)
    facts = {"bytes": size, "iterations": iterations, "device": device[1]}
    if bandwidth:
        peak, average, rate = (figure(word, at, "a rate") for word in words[2:])
        # MsgRate x size is the average; it has six decimals, the average two.
        if abs(average - rate * 1e6 * size / MIB) > 0.006 + 0.51 * size / MIB:
            raise ParseError(f"BW average {average} is not MsgRate {rate} times the size", at)
        if peak < average - 0.01 and peak > 0:
            raise ParseError(f"BW peak {peak} is below BW average {average}", at)
        value = average * MIB / 1e6
        return Parsed(
            metrics=[higher("bandwidth_MB_s", value, "MB/s")],
            facts=facts,
            moved_bytes=size * iterations,
        )
    least, most, typical, average, _, p99, p999 = (
        figure(word, at, "a time", zero=True) for word in words[2:]
    )
    if not least <= typical <= p99 <= p999 <= most or not least <= average <= most or typical == 0:
        raise ParseError("the times are not in order: min, typical, 99 %, 99.9 %, max", at)
    return Parsed(
        metrics=[lower("latency_us", typical, "us"), lower("latency_p99_us", p99, "us")],
        facts=facts,
        moved_bytes=2 * size * iterations,
    )
