"""Every node by itself: NPB EP on one core, to find a node that computes slowly."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import npb, programs
from seatrial.checks import context
from seatrial.checks.base import Check, Step


@rfm.simple_test
class NodeCompute(Check):
    descr = "NPB EP on each node by itself"
    benchmark = "node_compute"
    valid_systems = ["+node_compute"]
    valid_prog_environs = ["+node_compute"]
    num_nodes = parameter(context.node_counts("node_compute"))
    proves_path = False  # it sends nothing

    def steps(self):
        command = programs.npb(self.programs, f"ep.{self.settings.problem_class}", 1)
        return [
            Step(f"ep-{node}-{run}", command, nodes=1, nodelist=f"$SEATRIAL_NODE_{node}",
                 location="nodes")
            for run in range(self.settings.runs)
            for node in range(self.num_nodes)
        ]  # fmt: skip

    def parse(self, step, folder):
        return npb.parse((folder / f"{step.name}.out").read_text(errors="replace"))
