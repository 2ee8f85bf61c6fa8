"""Names that sites, benchmarks, plans and job scripts share."""

from __future__ import annotations

PLAIN_SOCKETS = "tcp"  # the transport of checks that use no MPI
NO_TRANSPORT = "none"  # of checks that send nothing
