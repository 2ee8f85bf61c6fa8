import os
from pathlib import Path

from spack_repo.builtin.build_systems.makefile import MakefilePackage
from spack_repo.seatrial.standalone import MpiTests, check_table, free_port, run_pair, table

from spack.package import (
    SkipTest,
    Version,
    conflicts,
    depends_on,
    install,
    license,
    maintainers,
    mkdirp,
    variant,
    version,
)

#: Message sizes of a run from 1 to 1024 B without perturbations, by doubling and by half steps.
SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


class Netpipe(MakefilePackage, MpiTests):
    """NetPIPE bounces messages of growing size between two processes and gives the bandwidth
    and half the round trip of each, over MPI (NPmpi), TCP (NPtcp) or, from version 5, InfiniBand
    verbs (NPibverbs).

    Snell, Mikler and Gustafson, "NetPIPE: A Network Protocol Independent Performance
    Evaluator", 1996. It is the instrument of "Tweak your Interconnect" (ClusterMonkey), where
    turning off InterruptThrottleRate and RxIntDelay of an Intel adapter takes Gigabit Ethernet's
    latency to 29 us.

    3.7.2 is the last of the Ames line, and the one whose output this project's checks read.
    5.1.4 is the rewrite by Dave Turner at Kansas State University: other options, another
    table, several pairs at once; all its modules start through MPI, NPtcp among them, whose two
    ends listen on the same port and so need two nodes. No checksum of 5.1.4 is published by its
    author; the one here is that of EasyBuild's NetPIPE-5.1.4-gompi-2020b.eb."""

    homepage = "https://netpipe.cs.ksu.edu/"
    url = "http://bitspjoule.org/netpipe/code/NetPIPE-3.7.2.tar.gz"

    maintainers("seatrial-developers")

    license("GPL-1.0-or-later", checked_by="seatrial-developers")

    version("5.1.4", sha256="738abeb9665877332d4b0cada2f15f766259809d0e31a29e327bfbf86b7e0183")
    version(
        "3.7.2",
        sha256="13dac884ff52951636f651c421f5ff4a853218a95aa28a4a852402ee385a2ab8",
        preferred=True,
    )

    variant("mpi", default=True, description="Build NPmpi")
    variant("tcp", default=True, description="Build NPtcp")
    variant("ib", default=False, when="@5:", description="Build NPibverbs")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("mpi", when="@5: +tcp")
    depends_on("mpi", when="+ib")
    depends_on("rdma-core", when="+ib")

    conflicts("~mpi ~tcp", when="@:4", msg="nothing to build: ask for +mpi or +tcp")
    conflicts("~mpi ~tcp ~ib", when="@5:", msg="nothing to build: ask for +mpi, +tcp or +ib")

    def url_for_version(self, version):
        if version < Version("5"):
            return f"http://bitspjoule.org/netpipe/code/NetPIPE-{version}.tar.gz"
        return f"https://netpipe.cs.ksu.edu/download/NetPIPE-{version}.tar.gz"

    @property
    def programs(self):
        """Make target and program of each module that was asked for."""
        modules = {"mpi": "NPmpi", "tcp": "NPtcp", "ib": "NPibverbs"}
        return {
            {"ib": "ibverbs"}.get(variant, variant): program
            for variant, program in modules.items()
            if self.spec.satisfies(f"+{variant}")
        }

    @property
    def build_targets(self):
        # Tentative definitions in a header are one variable each since GCC 10.
        arguments = ["CFLAGS=-O2 -fcommon", f"CC={os.environ['CC']}"]
        if self.spec.satisfies("@5:"):
            # -lrt stands before the sources in the makefile's CFLAGS; terminal colours would
            # be among the figures.
            arguments.append("DEFS=-DNOCOLOR")
        if "mpi" in self.spec:
            arguments.append(f"MPICC={self.spec['mpi'].mpicc}")
        return [*arguments, *self.programs]

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for program in self.programs.values():
            install(program, prefix.bin)

    def check_curve(self, path):
        text = Path(path).read_text()
        print(text)
        if self.spec.satisfies("@5:"):  # bytes, Gb/s: average, least, most; us
            rows = [(row[0], row[1], row[4]) for row in table(text, 5)]
        else:  # bytes, Mb/s, s
            rows = table(text, 3)
        check_table(rows, SIZES, path, positive_from=SIZES[-1])

    def options(self, out):
        # A fixed number of repeats: the one that NetPIPE works out from the size before is too
        # large by orders of magnitude where ranks wait for each other's core.
        if self.spec.satisfies("@5:"):
            return ["--pert", 0, "--repeats", 50, "--start", 1, "--end", 1024, "--outfile", out]
        return ["-p", 0, "-n", 50, "-l", 1, "-u", 1024, "-o", out]

    def test_mpi(self):
        """the curve over MPI has every size and positive figures"""
        if not self.spec.satisfies("+mpi"):
            raise SkipTest("built without MPI")
        self.run_mpi(2, self.prefix.bin.NPmpi, *self.options("mpi.out"))
        self.check_curve("mpi.out")

    def test_tcp(self):
        """the curve over TCP on the loopback has every size and positive figures"""
        if not self.spec.satisfies("+tcp"):
            raise SkipTest("built without TCP")
        if self.spec.satisfies("@5:"):
            raise SkipTest("both ends listen on one port: NPtcp of version 5 needs two nodes")
        port = free_port()
        run_pair(self.prefix.bin.NPtcp, *self.options("tcp.out"), "-P", port, port=port)
        self.check_curve("tcp.out")
