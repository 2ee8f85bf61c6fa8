"""MPBench of LLCBench: point to point and collectives, as the founding documents used it."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class MPBench(Check):
    descr = "MPBench, one rank on each node"
    benchmark = "mpbench"
    valid_systems = ["+mpbench"]
    valid_prog_environs = ["+mpbench"]
    num_nodes = parameter(context.node_counts("mpbench"))
