from spack_repo.builtin.packages.intel_mpi_benchmarks.package import (
    IntelMpiBenchmarks as BuiltinIntelMpiBenchmarks,
)
from spack_repo.seatrial.standalone import MpiTests, check_table, table

from spack.package import (
    FileFilter,
    SkipTest,
    install,
    join_path,
    maintainers,
    mkdirp,
    version,
    when,
)


class IntelMpiBenchmarks(BuiltinIntelMpiBenchmarks, MpiTests):
    """Intel MPI Benchmarks: PingPong, Exchange, the collectives, one-sided operations, file
    access and threads of MPI.

    IMB-MPI1 is the Pallas MPI Benchmarks (PMB) carried on: Intel took over Pallas's part for
    high-performance computing in 2003 and renamed the suite with version 2.3. PMB's PingPong is
    the instrument of Celebioglu, Leng and Mashayekhi, "Optimizing Linux Cluster Performance by
    Exploring the Correlation between Application Characteristics and Gigabit Ethernet Device
    Parameters", 2004. The source of PMB 2.2.1 is not to be had any more, so that this is what
    runs in its place; PingPong still gives half the round trip.

    Against Spack's own recipe: built with -O2 instead of the makefile's -g -O0; OpenMP for
    IMB-MT whatever the path of the compiler (the makefile of 2021.11 compares it with "mpicxx"
    and builds a program without threads otherwise); -Werror taken out, which makes each new
    compiler's warning an error; the programs are made one after the other, because they share
    objects. Version 2021.11 with the checksum of EasyBuild's IMB-2021.11-gompi-2025b.eb."""

    maintainers("seatrial-developers")

    version("2021.11", sha256="728b522b3bb05580c26e374bfae2a262bf8007b3b2c7d4c9480e4363953270c7")

    #: Variants, each the name of a program; only IMB-MT needs threads.
    components = ("mpi1", "ext", "io", "nbc", "rma", "mt", "p2p")

    @when("@2021:")
    def edit(self, spec, prefix):
        optimise = FileFilter(join_path("src_cpp", "Makefile"))
        optimise.filter("-g -O0", "-O2", string=True)
        flag = self.compiler.openmp_flag
        optimise.filter(
            r"^ifdef WITH_OPENMP$",
            f"ifdef WITH_OPENMP\noverride CFLAGS += {flag}\noverride CXXFLAGS += {flag}",
        )
        for makefile in (join_path("src_cpp", "Makefile"), join_path("src_c", "P2P", "Makefile")):
            FileFilter(makefile).filter(r" -Werror\b", "")

    @when("@2021:")
    def build(self, spec, prefix):
        compilers = [f"CC={spec['mpi'].mpicc}", f"CXX={spec['mpi'].mpicxx}"]
        if spec.satisfies("+check"):
            compilers.append("CPPFLAGS=-DCHECK")
        for component in self.components:
            if spec.satisfies(f"+{component}"):
                folder = join_path("src_c", "P2P") if component == "p2p" else "src_cpp"
                self.module.make("-C", folder, f"TARGET={component.upper()}", *compilers)

    @when("@2021:")
    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for component in self.components:
            if spec.satisfies(f"+{component}"):
                folder = join_path("src_c", "P2P") if component == "p2p" else "src_cpp"
                install(join_path(folder, f"IMB-{component.upper()}"), prefix.bin)

    def _mpi1(self, benchmark):
        return self.run_mpi(
            2, join_path(self.prefix.bin, "IMB-MPI1"), "-msglog", "2:10", "-iter", 200, benchmark
        )

    def test_pingpong(self):
        """IMB-MPI1 PingPong: time in us and MB/s by size"""
        if not self.spec.satisfies("+mpi1"):
            raise SkipTest("built without IMB-MPI1")
        rows = [row for row in table(self._mpi1("PingPong"), 4) if row[0] > 0]
        check_table(rows, [2**n for n in range(2, 11)], "PingPong", positive_from=1024)

    def test_allreduce(self):
        """IMB-MPI1 Allreduce: least, most and average time in us by size"""
        if not self.spec.satisfies("+mpi1"):
            raise SkipTest("built without IMB-MPI1")
        rows = [row for row in table(self._mpi1("Allreduce"), 5) if row[0] > 0]
        check_table(rows, [2**n for n in range(2, 11)], "Allreduce")

    def test_threads(self):
        """IMB-MT PingPongMT with two threads per rank: OpenMP is really there"""
        if not self.spec.satisfies("+mt"):
            raise SkipTest("built without IMB-MT")
        text = self.run_mpi(
            2,
            join_path(self.prefix.bin, "IMB-MT"),
            *("-thread_level", "multiple", "-count", "1,256", "-repeat", 100),
            "PingPongMT",
            extra_env={"OMP_NUM_THREADS": "2"},
        )
        if "#processes = 2 (threads: 2)" not in text:
            raise RuntimeError("IMB-MT did not run with two threads per rank")
        # Of two threads with 1 and 256 ints each.
        check_table(table(text, 6), [8, 2048], "PingPongMT", positive_from=2048)
