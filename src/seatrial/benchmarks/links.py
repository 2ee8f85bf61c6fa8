"""All links: NetPIPE over plain TCP between all pairs of nodes, one pair after the other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Annotated

from pydantic import Field

from seatrial.base.fields import Size
from seatrial.base.names import PLAIN_SOCKETS
from seatrial.benchmarks import netpipe
from seatrial.benchmarks.benchmark import (
    PORT,
    Benchmark,
    DeclaredMetric,
    Job,
    Settings,
    Step,
    output_and_errors,
)
from seatrial.benchmarks.parsing import Parsed


class LinksSettings(Settings):
    """NetPIPE over plain TCP between all pairs of the nodes, in one allocation."""

    nodes: list[Annotated[int, Field(ge=2)]] = [4]
    max_bytes: Size = 256 << 10
    repetitions: int | None = Field(default=None, ge=1, description="NetPIPE's -n, per size")


class Links(Benchmark[LinksSettings]):
    name = "links"
    Settings = LinksSettings
    pseudo_transport = PLAIN_SOCKETS
    limits = netpipe.NetPIPE.limits

    def steps(self, job: Job) -> list[Step]:
        steps = []
        for number, pair in enumerate(combinations(range(job.nodes), 2)):
            name, port = f"link-{pair[0]}-{pair[1]}", PORT + number
            options = ["-P", str(port), "-u", str(self.settings.max_bytes), "-p", "0"]
            if self.settings.repetitions:
                options += ["-n", str(self.settings.repetitions)]
            receiver = [*job.program("nptcp"), *options, "-o", f"{name}.np"]
            command = job.pair(name, receiver, [*receiver, "-h", "{address}"], port)
            steps.append(Step(name, command, nodes=2, location="nodes", node_numbers=[*pair]))
        return steps

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return netpipe.parse(output_and_errors(step, folder), int(self.settings.max_bytes))

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {name: one._replace(location="link") for name, one in netpipe.METRICS.items()}
