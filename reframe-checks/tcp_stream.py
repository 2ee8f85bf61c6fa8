"""One TCP stream by iperf3: bandwidth, and what it costs at both ends: CPU time, interrupts."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import tcp_stream as iperf3
from seatrial.checks import context
from seatrial.checks.base import PORT, Check, Step


@rfm.simple_test
class TCPStream(Check):
    descr = "iperf3 between two nodes"
    benchmark = "tcp_stream"
    valid_systems = ["+tcp_stream"]
    valid_prog_environs = ["+tcp_stream"]
    num_nodes = parameter(context.node_counts("tcp_stream"))
    tells_activity = True

    def steps(self):
        settings = self.settings
        server = [*self.program("iperf3"), "-s", "-1", "-p", str(PORT)]
        total = settings.total_bytes
        length = ["-t", str(settings.seconds)] if total is None else ["-n", str(total)]
        client = [
            *self.program("iperf3"), "-c", "{address}", "-p", str(PORT), "-J",
            *length, "-l", str(settings.message_bytes),
        ]  # fmt: skip
        return [Step("tcp_stream", self.pair("tcp_stream", server, client, PORT), nodes=2)]

    def parse(self, step, folder):
        return iperf3.parse((folder / "tcp_stream.out").read_text(errors="replace"))
