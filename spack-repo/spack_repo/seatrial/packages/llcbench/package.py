from spack_repo.builtin.build_systems.makefile import MakefilePackage
from spack_repo.seatrial.standalone import MpiTests, check_table, table

from spack.package import depends_on, install, license, maintainers, mkdirp, touch, version


class Llcbench(MakefilePackage, MpiTests):
    """MPBench of LLCbench, the Low-Level Characterization Benchmarks of the Innovative
    Computing Laboratory: gap, round trip, one- and two-way bandwidth, broadcast, reduction,
    all-reduction and all-to-all of MPI as functions of the message size, by one program,
    mpi_bench.

    Mucci, London and Thurman, "The MPBench Report", 1998. It is the instrument of Sokolowski
    and Grosu, "Performance Considerations for Network Switch Fabrics on Linux Clusters", 2004
    (there the release of 10/23/03), for the latency and bandwidth of Fast and Gigabit Ethernet
    and of Myrinet.

    The archive bears no version: it is named here by the day as of which Arch Linux's package
    of it (cachebench 20080523) has the same file; its programs' last change is of July 2000.
    Its two other benchmarks, BlasBench and CacheBench, have nothing to do with the network and
    are not built.

    The columns are size in bytes and figure, without a heading: us for -l, transactions per
    second for -r, KB/s of 1024 B for all others."""

    homepage = "http://icl.cs.utk.edu/projects/llcbench/"
    url = "http://icl.cs.utk.edu/projects/llcbench/llcbench.tar.gz"

    maintainers("seatrial-developers")

    license("GPL-3.0-only", checked_by="seatrial-developers")

    version("20080523", sha256="4f01a7acd162105ed85bb953c33edffdf7c9333b85672596a393dedfd0e8b070")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("mpi")

    build_directory = "mpbench"

    @property
    def build_targets(self):
        # MPI_Init is called within assert(): NDEBUG would leave it out.
        return [
            "mpi_bench",
            f"MP_MPI_CC={self.spec['mpi'].mpicc}",
            "MP_CFLAGS=-O2 -UNDEBUG",
            "MP_LDFLAGS=",
            "MPI_INC=",
            "MPI_LIBS=",
            "XTRALIBS=",
        ]

    def edit(self, spec, prefix):
        # The makefile includes ../sys.def, which is one of its conf/ by hand; all that it would
        # define is in the command above.
        touch("sys.def")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install("mpbench/mpi_bench", prefix.bin)

    def _check_mode(self, option):
        # As many messages as the clock's microsecond needs, or figures may be 0 or infinite.
        text = self.run_mpi(
            2, self.prefix.bin.mpi_bench, option, "-i", 2000, "-e", 1, "-x", 0, "-m", 10
        )
        check_table(table(text, 2), [2**n for n in range(2, 11)], f"mpi_bench {option}")

    def test_gap(self):
        """-l: time of MPI_Send alone, in us"""
        self._check_mode("-l")

    def test_roundtrip(self):
        """-r: transactions per second"""
        self._check_mode("-r")

    def test_bandwidth(self):
        """-b: one-way bandwidth"""
        self._check_mode("-b")

    def test_bidirectional(self):
        """-d: bandwidth of both directions at once"""
        self._check_mode("-d")

    def test_broadcast(self):
        """-c: rate of MPI_Bcast"""
        self._check_mode("-c")

    def test_reduce(self):
        """-y: rate of MPI_Reduce"""
        self._check_mode("-y")

    def test_allreduce(self):
        """-z: rate of MPI_Allreduce"""
        self._check_mode("-z")

    def test_alltoall(self):
        """-a: rate of MPI_Alltoall"""
        self._check_mode("-a")
