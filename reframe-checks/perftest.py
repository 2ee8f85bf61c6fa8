"""perftest: latency and bandwidth of RDMA between two nodes, without MPI."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class Perftest(Check):
    descr = "latency and bandwidth of RDMA"
    benchmark = "perftest"
    valid_systems = ["+perftest"]
    valid_prog_environs = ["+perftest"]
    num_nodes = parameter(context.node_counts("perftest"))
