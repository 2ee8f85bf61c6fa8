"""Every link: NetPIPE over plain TCP between all pairs of nodes, one after the other."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class Links(Check):
    descr = "NetPIPE between all pairs of nodes, in one allocation"
    benchmark = "links"
    valid_systems = ["+links"]
    valid_prog_environs = ["+links"]
    num_nodes = parameter(context.node_counts("links"))
