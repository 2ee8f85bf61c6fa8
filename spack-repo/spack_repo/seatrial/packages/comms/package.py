from pathlib import Path

from spack_repo.builtin.build_systems.generic import Package
from spack_repo.seatrial.standalone import MpiTests, check_table, table

from spack.package import Executable, depends_on, install, license, maintainers, mkdirp, version

#: Message sizes of a run from 1 to 1000 B with three per decade.
SIZES = [1, 2, 5, 10, 22, 46, 100, 215, 464, 1000]
REPETITIONS = 50


class Comms(Package, MpiTests):
    """comms times each MPI_Send, MPI_Isend and MPI_Recv of a ping-pong between two ranks, on both,
    for messages of 1 B to 10 MB; also an MPI_Recv whose message is already there. Standard output
    is a table of medians, and a file keeps every time. It verifies each message whole.

    The method is that of comms1 of ParkBench, the instrument of Tessera, "Performance Analysis of
    an IBM supercluster", where the time of a send and of a receive is a piecewise linear function
    of the message size with a step at the eager limit. No source of comms1 is to be had: this is
    the project's own program, and the head of comms.c says how it measures.

    The source is the file beside this recipe. Its checksum is here, so that the hash of a spec
    changes with it, and so that a mirror can hold it."""

    homepage = "https://github.com/seatrial/seatrial"
    url = Path(__file__).with_name("comms.c").as_uri()

    maintainers("seatrial-developers")

    license("Apache-2.0", checked_by="seatrial-developers")

    version(
        "1.0",
        sha256="ebda07125e32e78355d15a6dec7c521447bffc18b2f96d9a6b16ae610b0d3718",
        expand=False,
    )

    depends_on("c", type="build")
    depends_on("mpi")

    def install(self, spec, prefix):
        Executable(spec["mpi"].mpicc)("-O2", "-o", "comms", "comms.c", "-lm")
        mkdirp(prefix.bin)
        install("comms", prefix.bin)

    def test_times(self):
        """the table has every size and positive figures, the file every time"""
        options = ["-u", SIZES[-1], "-p", 3, "-r", REPETITIONS, "-o", "times.raw"]
        text = self.run_mpi(2, self.prefix.bin.comms, *options)
        check_table(table(text, 12), SIZES, "comms", positive_from=SIZES[-1])
        if "# crc32 " not in text.splitlines()[-1]:
            raise RuntimeError("comms: the table does not end in its checksum")
        # header, sizes, 2 ranks x 4 calls, checksum; 8 B each but for the first and the last
        due = 128 + 8 * len(SIZES) * (1 + 8 * REPETITIONS) + 4
        found = Path("times.raw").read_bytes()
        if found[:8] != b"COMMSRAW" or len(found) != due:
            raise RuntimeError(f"comms: expected a file of {due} B, found {len(found)} B")
