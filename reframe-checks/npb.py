"""NAS Parallel Benchmarks: from IS (communication-bound) to EP (compute-bound)."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class NPB(Check):
    descr = "NPB kernels"
    benchmark = "npb"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+npb"]
    valid_prog_environs = ["+npb"]
    num_nodes = parameter(context.node_counts("npb"))
    kernels = parameter(context.variants("npb"), fmt="+".join)
