"""Every link: NetPIPE over plain TCP between all pairs of nodes, one after the other."""

from itertools import combinations

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import PORT, Check, Step
from seatrial.results.parsers import netpipe


@rfm.simple_test
class Pairs(Check):
    descr = "NetPIPE between all pairs of nodes, in one allocation"
    benchmark = "pairs"
    valid_systems = ["+pairs"]
    valid_prog_environs = ["+pairs"]
    num_nodes = parameter(context.node_counts("pairs"))

    def steps(self):
        steps = []
        for number, (one, other) in enumerate(combinations(range(self.num_nodes), 2)):
            name, port = f"pair-{one}-{other}", PORT + number
            receiver = [
                *self.program("nptcp"), "-P", str(port), "-u", str(self.settings.max_bytes),
                "-p", "0", "-o", f"{name}.np",
            ]  # fmt: skip
            command = self.pair(name, receiver, [*receiver, "-h", "{address}"], port)
            steps.append(
                Step(
                    name,
                    command,
                    nodes=2,
                    place="nodes",
                    nodelist=f"$SEATRIAL_NODE_{one},$SEATRIAL_NODE_{other}",
                )  # fmt: skip
            )
        return steps

    def parse(self, step, folder):
        return netpipe.parse(
            (folder / f"{step.name}.err").read_text(errors="replace"), self.settings.max_bytes
        )
