"""HPL, and the same ranks' DGEMM in the same job, for each BLAS library."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class HPL(Check):
    descr = "HPL and DGEMM with each BLAS"
    benchmark = "hpl"
    tags = {"acceptance", "maintenance"}
    valid_systems = ["+hpl"]
    valid_prog_environs = ["+hpl"]
    num_nodes = parameter(context.node_counts("hpl"))
    blas = parameter(context.variants("hpl"), fmt="+".join)
