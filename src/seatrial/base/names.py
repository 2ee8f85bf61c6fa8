"""Names that sites, benchmarks, plans and job scripts use."""

from __future__ import annotations

PLAIN_SOCKETS = "tcp"  # the transport of checks without MPI
RAIL = "--"  # between transport and network in the name of an environment of ReFrame
NO_TRANSPORT = "none"  # the transport of checks that send nothing
VERBS = "verbs"  # the transport of checks without MPI that use RDMA
PSEUDO_TRANSPORTS = (PLAIN_SOCKETS, VERBS, NO_TRANSPORT)
