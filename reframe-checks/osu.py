"""OSU micro-benchmarks: latency, bandwidth both ways, and several pairs at once."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import osu
from seatrial.checks import context
from seatrial.checks.base import Check, Step


@rfm.simple_test
class OSU(Check):
    descr = "OSU micro-benchmarks between two nodes"
    benchmark = "osu"
    valid_systems = ["+osu"]
    valid_prog_environs = ["+osu"]
    num_nodes = parameter(context.node_counts("osu"))

    def steps(self):
        options = [
            "-m", str(self.settings.max_bytes), "-i", str(self.settings.iterations),
            "-x", str(max(1, self.settings.iterations // 10)),
        ]  # fmt: skip
        return [
            Step(
                f"osu-{test}",
                [*self.program(f"osu_{test}"), *options],
                nodes=2,
                tasks_per_node=self.settings.pairs if test.startswith("m") else 1,
            )
            for test in self.settings.tests
        ]

    def parse(self, step, folder):
        settings = self.settings
        return osu.parse(
            (folder / f"{step.name}.out").read_text(errors="replace"),
            largest=settings.max_bytes,
            iterations=(settings.iterations, max(2, settings.iterations // 10)),
            processes=2 * step.tasks_per_node,
        )
