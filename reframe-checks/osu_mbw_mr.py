"""OSU mbw_mr: bandwidth and message rate of several pairs of ranks at once."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class OSUMultiPair(Check):
    descr = "OSU mbw_mr between two nodes"
    benchmark = "osu_mbw_mr"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+osu_mbw_mr"]
    valid_prog_environs = ["+osu_mbw_mr"]
    num_nodes = parameter(context.node_counts("osu_mbw_mr"))
