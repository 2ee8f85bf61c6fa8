"""How a step's ranks find each other while they start."""

from __future__ import annotations

from collections.abc import Sequence


def variables(launcher: Sequence[str], nodes: int, job_nodes: int) -> dict[str, str]:
    """What srun must have in its environment, for a step on ``nodes`` of its job's nodes.

    The servers of Slurm's PMIx plugin connect directly by default. Those of Slurm
    22.05 then hand a rank its peer's first message too early now and then (3 of 40 starts ended
    by SIGSEGV; by Slurm's own protocol none of 150). But by that a step on a part of its job's
    nodes stands still, always (docs/dev/stack.md).
    """
    pmix = any(word.startswith("--mpi=pmix") for word in launcher)
    return {"SLURM_PMIX_DIRECT_CONN": "false"} if pmix and nodes == job_nodes else {}
