"""Every node by itself: NPB EP on one core, to find a node that computes slowly."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class NodeCompute(Check):
    descr = "NPB EP on each node by itself"
    benchmark = "node_compute"
    tags = {"acceptance", "nightly", "production", "maintenance"}
    valid_systems = ["+node_compute"]
    valid_prog_environs = ["+node_compute"]
    num_nodes = parameter(context.node_counts("node_compute"))
