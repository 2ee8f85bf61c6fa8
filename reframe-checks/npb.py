"""NAS Parallel Benchmarks: IS (communication-bound) and EP (compute-bound)."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, Step
from seatrial.results.parsers import npb


@rfm.simple_test
class NPB(Check):
    descr = "NPB kernels"
    benchmark = "npb"
    valid_systems = ["+npb"]
    valid_prog_environs = ["+npb"]
    num_nodes = parameter(context.node_counts("npb"))

    def steps(self):
        settings = self.settings
        ranks = self.num_nodes * settings.ranks_per_node
        return [
            Step(
                f"npb-{kernel}",
                [*self.program(f"npb_{kernel}"), str(ranks), settings.problem_class],
                variant=f"{kernel}.{settings.problem_class}",
                tasks_per_node=settings.ranks_per_node,
            )
            for kernel in settings.kernels
        ]

    def parse(self, step, folder):
        return npb.parse((folder / f"{step.name}.out").read_text(errors="replace"))
