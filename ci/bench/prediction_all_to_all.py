"""What a simulated all-to-all of eager messages costs, by SimGrid alone and with waitall.c.

    .venv/bin/python ci/bench/prediction_all_to_all.py [--ranks 32 64 96] [--bytes 8192]

With SimGrid (libsimgrid-dev); no lab. The ranks begin one after the other, so that messages end at
many moments, as those of a program do. It prints the simulated time and the processor time of
each. The network has 0.5 MB/s and 0.1 ms.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

from seatrial.analysis.conclusion import Inputs
from seatrial.predict import simulation
from seatrial.predict.calibration import Network, Part, Range

NOTHING = Part(0.0, 0.0)
NETWORK = Network(
    [Range(0, NOTHING, NOTHING, NOTHING, Part(1e-4, 2e-6))], 65_536, (1.0, 1e6), {}, "none",
    Inputs((), (), 0),
)  # fmt: skip
PROGRAM = """
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, ranks, size = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc(ranks, size), *in = calloc(ranks, size);
    usleep(37 * rank);
    MPI_Alltoall(out, size, MPI_CHAR, in, size, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 64, 96])
    parser.add_argument("--bytes", type=int, default=8192)
    parser.add_argument("--limit", type=float, default=1200, help="processor seconds of each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as text:
        folder = Path(text)
        (folder / "all.c").write_text(PROGRAM)
        program = simulation.compile_c([folder / "all.c"], folder / "all")
        library = simulation.compile_c(
            [simulation.WAITALL], folder / "waitall.so", "-shared", "-fPIC"
        )
        print("ranks  library     simulated s  processor s")
        for ranks in given.ranks:
            for name, loaded in (("none", None), ("waitall.c", (library, 0.0))):
                before = used_s()
                done = simulation.simulate(
                    [program, str(given.bytes)], ranks, NETWORK, speed=1e6, counter=loaded,
                    limit_s=given.limit,
                )  # fmt: skip
                cost = used_s() - before
                print(f"{ranks:5d}  {name:10s} {done.seconds:12.6f} {cost:12.1f}", flush=True)


def used_s() -> float:
    """Processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
