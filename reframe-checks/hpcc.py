"""HPC Challenge between nodes: a transposition, an FFT and random updates."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class HPCC(Check):
    descr = "PTRANS, MPIFFT and MPIRandomAccess of HPC Challenge"
    benchmark = "hpcc"
    tags = {"acceptance", "nightly"}
    valid_systems = ["+hpcc"]
    valid_prog_environs = ["+hpcc"]
    num_nodes = parameter(context.node_counts("hpcc"))
    tests = parameter(context.variants("hpcc"), fmt="+".join)
