"""The exchange of addresses between the ranks of a step while they start (wire-up)."""

from __future__ import annotations

from collections.abc import Sequence


def variables(launcher: Sequence[str], nodes: int, job_nodes: int) -> dict[str, str]:
    """Variables of srun for a step on ``nodes`` of the ``job_nodes`` nodes of its job.

    By default the servers of Slurm's PMIx plugin connect directly. In Slurm 22.05 they sometimes
    deliver a message to a rank too early (3 of 40 starts ended by SIGSEGV; with Slurm's own
    protocol none of 150). With Slurm's own protocol, a step on only some of the nodes of its job
    hangs (docs/dev/stack.md).
    """
    pmix = any(word.startswith("--mpi=pmix") for word in launcher)
    return {"SLURM_PMIX_DIRECT_CONN": "false"} if pmix and nodes == job_nodes else {}
