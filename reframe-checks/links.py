"""Every link: NetPIPE over plain TCP between all pairs of nodes, one after the other."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class Links(Check):
    descr = "NetPIPE between all pairs of nodes, in one allocation"
    benchmark = "links"
    tags = {"acceptance", "nightly", "production", "maintenance"}
    valid_systems = ["+links"]
    valid_prog_environs = ["+links"]
    num_nodes = parameter(context.node_counts("links"))
