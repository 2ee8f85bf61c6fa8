"""One TCP stream by iperf3: bandwidth, and what it costs at both ends: CPU time, interrupts."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class TCPStream(Check):
    descr = "iperf3 between two nodes"
    benchmark = "tcp_stream"
    tags = {"acceptance", "nightly", "production", "maintenance"}
    valid_systems = ["+tcp_stream"]
    valid_prog_environs = ["+tcp_stream"]
    num_nodes = parameter(context.node_counts("tcp_stream"))
