"""The node side of several pairs: each rank gets its core and its rail."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from seatrial.base.paths import CHECKOUT

PIN = CHECKOUT / "src" / "seatrial" / "checks" / "node" / "pin.py"
SHOW = "import os; print(os.environ.get('RAIL'), sorted(os.sched_getaffinity(0)))"
ALLOWED = sorted(os.sched_getaffinity(0))


def started(rank, pairs, rails, index="SLURM_LOCALID", command=(sys.executable, "-c", SHOW)):
    """A rank of 2 x pairs, by blocks on two nodes."""
    place = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % pairs)}
    env = {**os.environ, **place, "SLURMD_NODENAME": "n7.site", "RAIL": "of the job"}
    words = [sys.executable, "-IS", PIN, str(pairs), json.dumps(rails), index, "--", *command]
    return subprocess.run(words, env=env, capture_output=True, text=True)


def test_ranks_of_a_pair_have_one_rail_and_pairs_use_them_in_turn():
    rails = [{}, {"RAIL": "eth2"}, {"RAIL": "port_{node}:1"}]
    of_rank = [started(rank, 4, rails).stdout.split()[:-1] for rank in range(8)]
    words = [" ".join(one).partition(" [")[0] for one in of_rank]
    assert words[:4] == words[4:] == ["of the job", "eth2", "port_n7:1", "of the job"]


def test_each_rank_has_one_core():
    for rank in range(4):
        local = started(rank, 2, [{}]).stdout
        assert local.endswith(f"[{ALLOWED[rank % 2 % len(ALLOWED)]}]\n")
        shared = started(rank, 2, [{}], "SLURM_PROCID").stdout
        assert shared.endswith(f"[{ALLOWED[rank % len(ALLOWED)]}]\n")


def test_a_program_that_does_not_exist_is_named():
    done = started(0, 1, [{}], command=["/no/such/program"])
    assert done.returncode == 1
    assert "pin.py: /no/such/program: No such file" in done.stderr


@pytest.mark.skipif(len(ALLOWED) < 2, reason="the machine has one core")
def test_a_core_that_slurm_gave_is_kept():
    command = ["taskset", "-c", str(ALLOWED[1]), sys.executable, "-IS", PIN, "1", "[{}]",
               "SLURM_LOCALID", "--", sys.executable, "-c", SHOW]  # fmt: skip
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"[{ALLOWED[1]}]\n")
