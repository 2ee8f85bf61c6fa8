from pathlib import Path

from spack_repo.builtin.build_systems.generic import Package
from spack_repo.seatrial.standalone import MpiTests

from spack.package import Executable, depends_on, install, license, maintainers, mkdirp, version

REPETITIONS = 3


class MpiPairs(Package, MpiTests):
    """mpi_pairs measures several pairs of MPI ranks that send at once, each pair by itself:
    ping-pong, one direction and both, behind one barrier, and each while all others send.

    It is for clusters with several interfaces in a node: bonded or independent, as Strazdins,
    Alexander and Barr, "Performance Enhancement of SMP Clusters with Multiple Network Interfaces
    using Virtualization" (2006), compare them by a multiple-pair version of OSU's tests. Those of
    today report the sum of the pairs alone, and have no test of both directions with several.

    The source is the file beside this recipe. Its checksum is here, so that the hash of a spec
    changes with it, and so that a mirror can hold it."""

    homepage = "https://github.com/seatrial/seatrial"
    url = Path(__file__).with_name("mpi_pairs.c").as_uri()

    maintainers("seatrial-developers")

    license("Apache-2.0", checked_by="seatrial-developers")

    version(
        "1.0",
        sha256="a6db0f941c59b53870c6a52d386eed71c4666537231419f823c24da6ecc81ea9",
        expand=False,
    )

    depends_on("c", type="build")
    depends_on("mpi")

    def install(self, spec, prefix):
        Executable(spec["mpi"].mpicc)("-O2", "-o", "mpi_pairs", "mpi_pairs.c")
        mkdirp(prefix.bin)
        install("mpi_pairs", prefix.bin)

    def test_pairs(self):
        """two pairs have a row in each repetition of each pattern, and the table is whole"""
        options = ["-s", 1000, "-t", 5, "-r", REPETITIONS]
        lines = self.run_mpi(4, self.prefix.bin.mpi_pairs, *options).splitlines()
        for pattern in ("latency", "pingpong", "uni", "bi"):
            rows = [line.split() for line in lines if line.startswith(f"{pattern} ")]
            places = [(int(row[1]), int(row[2])) for row in rows]
            if places != [(i, pair) for i in range(REPETITIONS) for pair in range(2)]:
                raise RuntimeError(f"mpi_pairs: {pattern} has the rows {places}")
            if any(int(row[3]) < 1 for row in rows):
                raise RuntimeError(f"mpi_pairs: {pattern} has a row without rounds")
        if not any(line.startswith("# crc32 ") for line in lines):
            raise RuntimeError("mpi_pairs: the table does not end in its checksum")
