"""OSU mbw_mr: bandwidth and message rate of several pairs of ranks at once."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class OSUMultiPair(Check):
    descr = "OSU mbw_mr between two nodes"
    benchmark = "osu_mbw_mr"
    valid_systems = ["+osu_mbw_mr"]
    valid_prog_environs = ["+osu_mbw_mr"]
    num_nodes = parameter(context.node_counts("osu_mbw_mr"))
