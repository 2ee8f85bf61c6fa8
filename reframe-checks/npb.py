"""NAS Parallel Benchmarks: from IS (communication-bound) to EP (compute-bound)."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import npb, programs
from seatrial.checks import context
from seatrial.checks.base import Check, Step


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
                f"npb-{variant.partition('.')[0]}",
                programs.npb(self.programs, variant, ranks),
                variant=variant,
                tasks_per_node=settings.ranks_per_node,
            )
            for variant in self.variants()
        ]

    def parse(self, step, folder):
        return npb.parse((folder / f"{step.name}.out").read_text(errors="replace"))
