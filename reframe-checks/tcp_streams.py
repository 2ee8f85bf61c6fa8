"""Several TCP streams at once between two nodes, over each interface or through their bond."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class TCPStreams(Check):
    descr = "iperf3 streams at once between two nodes"
    benchmark = "tcp_streams"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+tcp_streams"]
    valid_prog_environs = ["+tcp_streams"]
    num_nodes = parameter(context.node_counts("tcp_streams"))
    streams = parameter(context.variants("tcp_streams"), fmt="+".join)
