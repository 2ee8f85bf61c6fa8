"""HPL, and the same ranks' DGEMM in the same job, for each BLAS library."""

import reframe as rfm
from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check


@rfm.simple_test
class HPL(Check):
    descr = "HPL and DGEMM with each BLAS"
    benchmark = "hpl"
    valid_systems = ["+hpl"]
    valid_prog_environs = ["+hpl"]
    num_nodes = parameter(context.node_counts("hpl"))
