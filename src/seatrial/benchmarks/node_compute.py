"""Each node by itself: NPB EP on one core, to find a node that computes slowly."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from seatrial.base.names import NO_TRANSPORT
from seatrial.benchmarks import npb
from seatrial.benchmarks.benchmark import (
    Benchmark,
    DeclaredMetric,
    Job,
    Programs,
    Settings,
    Step,
    output,
)
from seatrial.benchmarks.parsing import Parsed


class NodeComputeSettings(Settings):
    """The same computation on each node by itself, to find a slow one."""

    nodes: list[Annotated[int, Field(ge=1)]] = [4]
    problem_class: Literal["S", "W", "A", "B"] = "S"
    runs: int = Field(default=3, ge=1, description="on each node; the best is taken")


class NodeCompute(Benchmark[NodeComputeSettings]):
    name = "node_compute"
    Settings = NodeComputeSettings
    pseudo_transport = NO_TRANSPORT
    proves_path = False  # it sends nothing

    def has_program(self, variant: str, programs: Programs, blas: Collection[str]) -> bool:
        return npb.command(programs, f"ep.{self.settings.problem_class}", 1) is not None

    def steps(self, job: Job) -> list[Step]:
        command = npb.command(job.programs, f"ep.{self.settings.problem_class}", 1)
        assert command is not None  # ``has_program``
        return [
            Step(f"ep-{node}-{run}", command, nodes=1, node_numbers=[node],
                 location="nodes")
            for run in range(self.settings.runs)
            for node in range(job.nodes)
        ]  # fmt: skip

    def parse(self, step: Step, folder: Path, job: Job) -> Parsed:
        return npb.parse(output(step, folder))

    def metrics(self) -> dict[str, DeclaredMetric]:
        return {name: metric._replace(location="node") for name, metric in npb.METRICS.items()}
