from pathlib import Path

from spack_repo.builtin.build_systems.generic import Package
from spack_repo.seatrial.standalone import MpiTests

from spack.package import (
    Executable,
    depends_on,
    install,
    join_path,
    license,
    maintainers,
    mkdirp,
    version,
    which,
)

#: messages of the ring that the test runs
MESSAGES = 25


class MpiTime(Package, MpiTests):
    """mpi_time sums how long each rank of a program is in MPI, by call, with the number of calls
    and their bytes: the share of communication that Celebioglu, Leng and Mashayekhi (2004) hold
    against the response of an application to a driver. A program need not be rebuilt: LD_PRELOAD
    names lib/libmpi_time.so, on the ranks only, and MPI_TIME_FILE the file that rank 0 writes.

    mpiP says more, as the place of each call. This library has one short format with a checksum,
    which the checks read, and builds where there is nothing but the MPI: the labs' stack of a
    distribution has it, too.

    The source is the file beside this recipe. Its checksum is here, so that the hash of a spec
    changes with it, and so that a mirror can hold it."""

    homepage = "https://github.com/seatrial/seatrial"
    url = Path(__file__).with_name("mpi_time.c").as_uri()

    maintainers("seatrial-developers")

    license("Apache-2.0", checked_by="seatrial-developers")

    version(
        "1.1",
        sha256="fca9d31f585dcf3a28370f63b2872ec34cf164a5ffdc5dbfafd6f6cd4a6d59e8",
        expand=False,
    )

    depends_on("c", type="build")
    depends_on("mpi")

    def install(self, spec, prefix):
        mpicc = Executable(spec["mpi"].mpicc)
        mpicc("-O2", "-shared", "-fPIC", "-o", "libmpi_time.so", "mpi_time.c")
        mkdirp(prefix.lib)
        install("libmpi_time.so", prefix.lib)
        mkdirp(prefix.libexec)
        mpicc("-o", prefix.libexec.ring, join_path(self.package_dir, "ring.c"))

    def test_times(self):
        """the file has both ranks, and the sends of the ring with their bytes"""
        words = [
            f"LD_PRELOAD={self.prefix.lib.join('libmpi_time.so')}",
            "MPI_TIME_FILE=times.txt",
            self.prefix.libexec.ring,
        ]
        self.run_mpi(2, which("env", required=True).path, *words)
        text = Path("times.txt").read_text()
        print(text)
        for rank in range(2):
            if f"\n{rank} MPI_Send {MESSAGES} " not in text or f"\n{rank} run 1 " not in text:
                raise RuntimeError(f"mpi_time: rank {rank} lacks {MESSAGES} sends of the ring")
        if not text.splitlines()[-1].startswith("# crc32 "):
            raise RuntimeError("mpi_time: the file does not end in its checksum")
