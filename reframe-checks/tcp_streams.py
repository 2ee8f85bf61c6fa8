"""Several TCP streams at once between two nodes, over each interface or through their bond."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.benchmarks import tcp_streams as streams
from seatrial.checks import context
from seatrial.checks.base import NODE_PYTHON, PORT, Check, Step


@rfm.simple_test
class TCPStreams(Check):
    descr = "iperf3 streams at once between two nodes"
    benchmark = "tcp_streams"
    valid_systems = ["+tcp_streams"]
    valid_prog_environs = ["+tcp_streams"]
    num_nodes = parameter(context.node_counts("tcp_streams"))

    def steps(self):
        networks = context.site().networks
        interfaces = [networks[name].interface for name in self.settings.networks]
        options = ["-t", str(self.settings.seconds), "-l", str(self.settings.message_bytes)]
        return [
            Step(
                f"streams-{count}",
                [
                    *NODE_PYTHON, "streams.py", f"streams-{count}", ",".join(interfaces),
                    str(PORT + 20 * count), str(count), *self.program("iperf3"), "--", *options,
                ],
                variant=f"{count}-streams",
                nodes=2,
            )
            for count in self.settings.streams
        ]  # fmt: skip

    def parse(self, step, folder):
        names = [f"{step.name}.{number}.json" for number in self.streams_of(step)]
        return streams.parse(
            (folder / f"{step.name}.streams.json").read_text(errors="replace"),
            [(folder / name).read_text(errors="replace") for name in names],
            (folder / f"{step.name}.ended.json").read_text(errors="replace"),
            self.interface,
        )

    @staticmethod
    def streams_of(step):
        """The numbers of the step's streams."""
        return range(int(step.variant.partition("-")[0]))
