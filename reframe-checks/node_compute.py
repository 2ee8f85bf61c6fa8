"""Every node by itself: NPB EP on one core, to find a node that computes slowly."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class NodeCompute(Check):
    descr = "NPB EP on each node by itself"
    benchmark = "node_compute"
    valid_systems = ["+node_compute"]
    valid_prog_environs = ["+node_compute"]
    num_nodes = parameter(context.node_counts("node_compute"))
