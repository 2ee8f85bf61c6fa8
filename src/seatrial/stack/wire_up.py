"""The exchange of addresses between the ranks of a step while they start (wire-up)."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.base.paths import CHECKOUT

#: lines of bash that set VARIABLES of srun, for steps over Slurm's PMIx on all nodes of their job:
#: others may hang. The job templates include them. What was measured: docs/dev/stack.md
SCRIPT = CHECKOUT / "slurm-templates" / "jobs" / "_wire_up.sh"
VARIABLES = ("SLURM_PMIX_FENCE", "SLURM_PMIX_DIRECT_CONN")


def over_pmix(launcher: Sequence[str]) -> bool:
    """Return whether srun with these options starts its ranks over Slurm's PMIx."""
    return any(word.startswith("--mpi=pmix") for word in launcher)


def unsuited(launcher: Sequence[str], nodes: int, job_nodes: int) -> Sequence[str]:
    """Return the variables that a step on ``nodes`` of its job's ``job_nodes`` must not have."""
    return VARIABLES if over_pmix(launcher) and nodes != job_nodes else ()
