"""comms: the time of each MPI_Send, MPI_Isend and MPI_Recv, over the message size."""

from reframe.core.builtins import parameter

from seatrial.checks import context
from seatrial.checks.base import Check, site_test


@site_test
class Comms(Check):
    descr = "comms between two nodes"
    benchmark = "comms"
    valid_systems = ["+comms"]
    valid_prog_environs = ["+comms"]
    num_nodes = parameter(context.node_counts("comms"))
