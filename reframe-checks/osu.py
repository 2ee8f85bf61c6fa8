"""OSU micro-benchmarks: latency, bandwidth both ways, and several pairs at once."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class OSU(Check):
    descr = "OSU micro-benchmarks between two nodes"
    benchmark = "osu"
    valid_systems = ["+osu"]
    valid_prog_environs = ["+osu"]
    num_nodes = parameter(context.node_counts("osu"))
