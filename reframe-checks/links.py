"""Every link: NetPIPE over plain TCP between all pairs of nodes, one after the other."""

from itertools import combinations

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import netpipe
from seatrial.checks import context
from seatrial.checks.base import PORT, Check, Step, text_of


@rfm.simple_test
class Links(Check):
    descr = "NetPIPE between all pairs of nodes, in one allocation"
    benchmark = "links"
    valid_systems = ["+links"]
    valid_prog_environs = ["+links"]
    num_nodes = parameter(context.node_counts("links"))

    def steps(self):
        steps = []
        for number, (one, other) in enumerate(combinations(range(self.num_nodes), 2)):
            name, port = f"pair-{one}-{other}", PORT + number
            options = ["-P", str(port), "-u", str(self.settings.max_bytes), "-p", "0"]
            if self.settings.repetitions:
                options += ["-n", str(self.settings.repetitions)]
            receiver = [*self.program("nptcp"), *options, "-o", f"{name}.np"]
            command = self.pair(name, receiver, [*receiver, "-h", "{address}"], port)
            nodes = f"$SEATRIAL_NODE_{one},$SEATRIAL_NODE_{other}"
            steps.append(Step(name, command, nodes=2, location="nodes", nodelist=nodes))
        return steps

    def parse(self, step, folder):
        return netpipe.parse(text_of(step, folder), self.settings.max_bytes)
