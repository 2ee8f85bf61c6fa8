"""NAS Parallel Benchmarks: from IS (communication-bound) to EP (compute-bound)."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class NPB(Check):
    descr = "NPB kernels"
    benchmark = "npb"
    valid_systems = ["+npb"]
    valid_prog_environs = ["+npb"]
    num_nodes = parameter(context.node_counts("npb"))
