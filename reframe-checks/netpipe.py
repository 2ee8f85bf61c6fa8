"""NetPIPE: latency and bandwidth over the message size, over plain TCP and over each MPI."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.base.names import PLAIN_SOCKETS
from seatrial.benchmarks import netpipe
from seatrial.checks import context
from seatrial.checks.base import PORT, Check, Step, text_of


@rfm.simple_test
class NetPIPE(Check):
    descr = "NetPIPE between two nodes"
    benchmark = "netpipe"
    valid_systems = ["+netpipe"]
    valid_prog_environs = ["+netpipe"]
    num_nodes = parameter(context.node_counts("netpipe"))

    def steps(self):
        settings = self.settings
        options = ["-u", str(settings.max_bytes), "-p", str(settings.perturbation_bytes)]
        if settings.repetitions:
            options += ["-n", str(settings.repetitions)]
        options += ["-o", "netpipe.np"]
        if self.transport != PLAIN_SOCKETS:
            return [Step("netpipe", [*self.program("netpipe"), *options], nodes=2)]
        receiver = [*self.program("nptcp"), "-P", str(PORT), *options]
        transmitter = [*receiver, "-h", "{address}"]
        return [Step("netpipe", self.pair("netpipe", receiver, transmitter, PORT), nodes=2)]

    def parse(self, step, folder):
        return netpipe.parse(text_of(step, folder), self.settings.max_bytes)
