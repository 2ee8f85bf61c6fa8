"""Start of a check's steps over Slurm's PMIx: by Slurm's protocol, if that is possible."""

from __future__ import annotations

import pytest

from seatrial.stack import wire_up


@pytest.mark.parametrize(
    ("mpi", "nodes", "job", "slurms_own"),
    [
        ("pmix", 4, 4, True),
        ("pmix_v4", 2, 2, True),
        ("pmix", 2, 4, False),  # such a step would hang
        ("pmi2", 4, 4, False),
    ],
)
def test_slurms_own_protocol_if_a_step_has_all_nodes_of_its_job(mpi, nodes, job, slurms_own):
    variables = wire_up.variables(["srun", f"--mpi={mpi}"], nodes, job)
    assert variables == ({"SLURM_PMIX_DIRECT_CONN": "false"} if slurms_own else {})
