"""NetPIPE: latency and bandwidth over the message size, over plain TCP and over each MPI."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class NetPIPE(Check):
    descr = "NetPIPE between two nodes"
    benchmark = "netpipe"
    tags = {"acceptance", "nightly", "production", "maintenance"}
    valid_systems = ["+netpipe"]
    valid_prog_environs = ["+netpipe"]
    num_nodes = parameter(context.node_counts("netpipe"))
