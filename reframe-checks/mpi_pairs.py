"""Pairs of MPI ranks at once: over each interface or their bond, and inside one node."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class MPIPairs(Check):
    descr = "pairs of MPI ranks at once"
    benchmark = "mpi_pairs"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+mpi_pairs"]
    valid_prog_environs = ["+mpi_pairs"]
    num_nodes = parameter(context.node_counts("mpi_pairs"))
    pairs = parameter(context.variants("mpi_pairs"), fmt="+".join)
