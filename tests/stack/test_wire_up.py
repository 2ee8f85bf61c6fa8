"""Start of a step's ranks over Slurm's PMIx: the variables of srun that suit its version."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from seatrial.stack import wire_up

VARIABLE = re.compile(r"export (\w+)=")


@pytest.mark.parametrize(
    ("mpi", "nodes", "over", "suited"),
    [
        ("pmix", 4, True, True),
        ("pmix_v4", 4, True, True),
        ("pmix", 2, True, False),  # such a step would hang
        ("pmi2", 4, False, True),
        ("pmi2", 2, False, True),
    ],
)
def test_the_variables_are_for_steps_over_pmix_on_all_nodes(mpi, nodes, over, suited):
    launcher = ["srun", f"--mpi={mpi}"]
    assert wire_up.over_pmix(launcher) == over
    unsuited = wire_up.unsuited(launcher, nodes, 4)
    assert set(unsuited) == (set() if suited else set(VARIABLE.findall(wire_up.SCRIPT.read_text())))


@pytest.mark.parametrize(
    ("version", "slurms_own"),
    [
        ("slurm-wlm 22.05.8", True),
        ("slurm 22.05.8", True),
        ("slurm 20.11.9", True),
        ("slurm-wlm 24.11.5", False),
        ("slurm 23.02.0", False),
        ("", False),
    ],
)
def test_the_servers_use_slurms_own_protocol_in_old_versions(tmp_path, version, slurms_own):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{version}'\n")
    scontrol.chmod(0o755)
    script = f"set -euo pipefail\n{wire_up.SCRIPT.read_text()}env"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(
        ["bash", "-c", script], env=env, text=True, check=True, capture_output=True
    )
    variables = {line for line in said.stdout.splitlines() if line.startswith("SLURM_")}
    # Without direct connections slurmstepd cannot use "ring", and prints that amid the output.
    assert variables == {"SLURM_PMIX_DIRECT_CONN=false" if slurms_own else "SLURM_PMIX_FENCE=ring"}
