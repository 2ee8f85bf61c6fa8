"""How a check's steps start over Slurm's PMIx: by its own protocol, where that can be."""

from __future__ import annotations

import pytest

from seatrial.checks import wire_up


@pytest.mark.parametrize(
    ("mpi", "nodes", "job", "slurms_own"),
    [
        ("pmix", 4, 4, True),
        ("pmix_v4", 2, 2, True),
        ("pmix", 2, 4, False),  # such a step would stand still
        ("pmi2", 4, 4, False),
    ],
)
def test_slurms_own_protocol_where_a_step_has_all_nodes_of_its_job(mpi, nodes, job, slurms_own):
    found = wire_up.variables(["srun", f"--mpi={mpi}"], nodes, job)
    assert found == ({"SLURM_PMIX_DIRECT_CONN": "false"} if slurms_own else {})
