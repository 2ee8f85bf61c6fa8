"""NetPIPE: latency and bandwidth over the message size, over plain TCP and over each MPI."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class NetPIPE(Check):
    descr = "NetPIPE between two nodes"
    benchmark = "netpipe"
    valid_systems = ["+netpipe"]
    valid_prog_environs = ["+netpipe"]
    num_nodes = parameter(context.node_counts("netpipe"))
