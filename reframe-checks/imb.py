"""Intel MPI Benchmarks (the successor of Pallas' PMB): point to point and collectives."""

import math

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import imb
from seatrial.checks import context
from seatrial.checks.base import Check, Step


@rfm.simple_test
class IMB(Check):
    descr = "IMB-MPI1, one rank on each node"
    benchmark = "imb"
    valid_systems = ["+imb"]
    valid_prog_environs = ["+imb"]
    num_nodes = parameter(context.node_counts("imb"))

    def steps(self):
        options = [
            # The same number of repetitions for every size, whatever the time they take: else a
            # disturbed moment would change what is measured. The step's own limit ends a hang.
            "-iter", str(self.settings.iterations), "-iter_policy", "off",
            "-time", str(self.settings.time_limit_s),
            "-msglog", f"0:{int(math.log2(self.settings.max_bytes))}",
            "-npmin", str(self.num_nodes),
        ]  # fmt: skip
        return [Step("imb", [*self.program("imb"), *self.settings.benchmarks, *options])]

    def parse(self, step, folder):
        return imb.parse((folder / "imb.out").read_text(errors="replace"))
