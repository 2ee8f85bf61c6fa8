"""Waiting for many requests one after the other: the simulated times are SimGrid's own."""

from __future__ import annotations

import pytest

from seatrial.analysis.conclusion import Inputs
from seatrial.predict import simulation
from seatrial.predict.calibration import Network, Part, Range
from seatrial.predict.programs import build_counter

NOTHING = Part(0.0, 0.0)
#: 1 MB/s, eager up to 64 KiB, and a time of each receive
NETWORK = Network(
    [Range(0, NOTHING, NOTHING, Part(1e-6, 0.0), Part(1e-4, 1e-6))], 65_536, (1.0, 1e6), {},
    "comms", Inputs((), (), 0),
)  # fmt: skip

#: each with each, once by the collective operation and once by MPI_Waitall. The ranks begin one
#: after the other, so that messages end at many moments; what arrives is checked.
DRIFTING = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, ranks, n = 500;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *out = calloc(ranks * n, 4), *in = calloc(ranks * n, 4);
    MPI_Request *requests = calloc(2 * ranks, sizeof *requests);
    for (int i = 0; i < ranks * n; i++)
        out[i] = rank * ranks + i / n;
    for (int how = 0; how < 2; how++) {
        double start = MPI_Wtime();
        usleep(37 * rank);
        if (how) {
            for (int i = 0; i < ranks; i++)
                MPI_Irecv(in + i * n, n, MPI_INT, i, 0, MPI_COMM_WORLD, &requests[i]);
            for (int i = 0; i < ranks; i++)
                MPI_Isend(out + i * n, n, MPI_INT, i, 0, MPI_COMM_WORLD, &requests[ranks + i]);
            MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
        } else
            MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < ranks * n; i++)
            if (in[i] != i / n * ranks + rank)
                MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 0; how && i < 2 * ranks; i++)
            if (requests[i] != MPI_REQUEST_NULL)
                MPI_Abort(MPI_COMM_WORLD, 2);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("%.9f\\n", MPI_Wtime() - start);
    }
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.simgrid
def test_the_times_are_those_of_SimGrid(tmp_path):
    """48 ranks: 94 requests of a rank."""
    source = tmp_path / "drifting.c"
    source.write_text(DRIFTING)
    program = simulation.compile_c([source], tmp_path / "drifting")
    times = []
    for counter in (None, (build_counter(tmp_path), 1e9)):
        done = simulation.simulate([program], 48, NETWORK, speed=1e6, counter=counter)
        times.append([float(word) for word in done.output.split()])
    # 47 messages of 2000 B
    assert times[0] == pytest.approx([0.1, 0.1], rel=0.2)
    assert times[1] == pytest.approx(times[0], rel=0.001)


@pytest.mark.simgrid
def test_SimGrids_collective_operations_call_it(tmp_path, monkeypatch):
    """Else an all-to-all of 128 ranks takes minutes (ci/bench/prediction_all_to_all.py)."""
    source = tmp_path / "drifting.c"
    source.write_text(DRIFTING)
    program = simulation.compile_c([source], tmp_path / "drifting")
    monkeypatch.setenv("LD_DEBUG", "bindings")
    monkeypatch.setenv("LD_DEBUG_OUTPUT", str(tmp_path / "bindings"))
    counter = build_counter(tmp_path)
    simulation.simulate([program], 4, NETWORK, speed=1e6, counter=(counter, 1e9))
    lines = "".join(file.read_text() for file in tmp_path.glob("bindings.*")).splitlines()
    assert any(
        "binding file" in line and "libsimgrid" in line and f"to {counter} " in line
        and "Request7waitall" in line
        for line in lines
    )  # fmt: skip
