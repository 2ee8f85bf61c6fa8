"""MPBench of LLCBench: point to point and collectives, as the founding documents used it."""

import math

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import mpbench
from seatrial.checks import context
from seatrial.checks.base import Check, Step


@rfm.simple_test
class MPBench(Check):
    descr = "MPBench, one rank on each node"
    benchmark = "mpbench"
    valid_systems = ["+mpbench"]
    valid_prog_environs = ["+mpbench"]
    num_nodes = parameter(context.node_counts("mpbench"))

    def steps(self):
        settings = self.settings
        options = [
            "-i", str(settings.iterations), "-e", str(settings.passes),
            "-m", str(int(math.log2(settings.max_bytes))), "-x", "0",
        ]  # fmt: skip
        return [
            Step(f"mpbench-{mode}", [*self.program("mpbench"), mpbench.OPTIONS[mode], *options])
            for mode in settings.modes
        ]

    def parse(self, step, folder):
        settings = self.settings
        return mpbench.parse(
            (folder / f"{step.name}.out").read_text(errors="replace"),
            step.name.partition("-")[2],
            largest=settings.max_bytes,
            iterations=settings.iterations,
            repeats=settings.passes,
            ranks=self.num_nodes * step.tasks_per_node,
        )
