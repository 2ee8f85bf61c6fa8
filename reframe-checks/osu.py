"""OSU micro-benchmarks: latency, bandwidth both ways, and several pairs at once."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class OSU(Check):
    descr = "OSU micro-benchmarks between two nodes"
    benchmark = "osu"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+osu"]
    valid_prog_environs = ["+osu"]
    num_nodes = parameter(context.node_counts("osu"))
