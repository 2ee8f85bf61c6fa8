"""Intel MPI Benchmarks (the successor of Pallas' PMB): point to point and collectives."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class IMB(Check):
    descr = "IMB-MPI1, one rank on each node"
    benchmark = "imb"
    valid_systems = ["+imb"]
    valid_prog_environs = ["+imb"]
    num_nodes = parameter(context.node_counts("imb"))
