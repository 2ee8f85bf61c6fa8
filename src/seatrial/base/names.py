"""Names that sites, benchmarks, plans and job scripts use."""

from __future__ import annotations

PLAIN_SOCKETS = "tcp"  # the transport of checks without MPI
NO_TRANSPORT = "none"  # the transport of checks that send nothing
