import re
from pathlib import Path

from spack_repo.builtin.packages.mpip.package import Mpip as BuiltinMpip
from spack_repo.seatrial.standalone import MpiTests

from spack.package import (
    Executable,
    InstallError,
    depends_on,
    find,
    join_path,
    maintainers,
    mkdirp,
    run_after,
    variant,
    which,
)


class Mpip(BuiltinMpip, MpiTests):
    """mpiP, the light-weight MPI profiler: how much of a program's time is spent in MPI, by
    call and by place of the call, from the profiling interface alone. A program need not be
    rebuilt: LD_PRELOAD names lib/libmpiP.so, on the ranks only, not on the launcher.

    Vetter and McCracken, "Statistical Scalability Analysis of Communication Operations in
    Distributed Applications", PPoPP 2001. Here it tells what Celebioglu, Leng and Mashayekhi
    (2004) and Tessera ("Performance Analysis of an IBM supercluster") ask of an application
    before its network is tuned: does it communicate much, with which calls, in which sizes.

    Against Spack's own recipe: ~bfd, ~demangling, ~libunwind and the ~mpi_* variants take
    effect (there, "-bfd" in spec never matches); without bfd and libunwind as the default, which
    builds with nothing but the MPI and gives addresses in place of source lines; +bfd brings
    binutils, which it needs but did not ask for. Its licence is BSD-3-Clause with the Department
    of Energy's notice; that recipe calls it Unlicense, which a recipe on top can't correct."""

    maintainers("seatrial-developers")

    variant("bfd", default=False, description="Name source lines by GNU binutils' libbfd")
    variant("libunwind", default=False, description="Take stack traces by libunwind, not glibc")
    variant("demangling", default=False, description="Give C++ functions their names")

    depends_on("gmake", type="build")
    depends_on("binutils +libiberty +headers", when="+bfd")
    depends_on("binutils +libiberty +headers", when="+demangling")

    #: Variants that configure has on by default; its name for each has hyphens.
    switches = ("bfd", "demangling", "libunwind", "mpi_io", "mpi_rma", "mpi_nbc")

    def setup_build_environment(self, env):
        # The generator of the wrappers names its user, whom a batch system may not have set.
        env.set("LOGNAME", "spack")

    def configure_args(self):
        spec = self.spec
        args = [
            f"--with-cc={spec['mpi'].mpicc}",
            f"--with-cxx={spec['mpi'].mpicxx}",
            f"--with-f77={spec['mpi'].mpif77}",
        ]
        off = {name.replace("_", "-") for name in self.switches if spec.satisfies(f"~{name}")}
        if spec.satisfies("+setjmp"):
            args.append("--enable-setjmp")
            off.add("libunwind")  # it would be used in setjmp's place
        args += [f"--disable-{switch}" for switch in sorted(off)]
        # glibc's backtrace() counts mpiP's own recording function, libunwind does not. One frame
        # short, and every MPI_Send of a program seems to come from one place, in mpiP.
        own = int(spec.variants["internal_stackdepth"].value) + ("libunwind" in off)
        for name in ("maxargs", "stackdepth"):
            args.append(f"--enable-{name}={spec.variants[name].value}")
        args.append(f"--enable-internal-stackdepth={own}")
        return args

    @run_after("install")
    def build_example(self):
        """A program whose profile is known, for the stand-alone test."""
        source = join_path(self.package_dir, "ring.c")
        mkdirp(self.prefix.libexec.mpip)
        Executable(self.spec["mpi"].mpicc)("-O1", "-o", self.prefix.libexec.mpip.ring, source)

    @run_after("install")
    def library_exists(self):
        if not Path(self.prefix.lib, "libmpiP.so").is_file():
            raise InstallError("lib/libmpiP.so, which LD_PRELOAD needs, was not installed")

    def test_profile(self):
        """the report of a preloaded 2-rank program names its calls, counts and sizes"""
        preload = f"LD_PRELOAD={self.prefix.lib.join('libmpiP.so')}"
        folder = str(Path("report").resolve())
        mkdirp(folder)
        env_program = which("env", required=True)
        words = [preload, f"MPIP=-f {folder}", self.prefix.libexec.mpip.ring]
        self.run_mpi(2, env_program.path, *words)
        reports = find(folder, "*.mpiP")
        if len(reports) != 1:
            raise RuntimeError(f"expected one report in {folder}, found {reports}")
        report = Path(reports[0]).read_text()
        print(report)
        if not re.search(r"^@ MPI Task Assignment\s*: 1 ", report, re.M):
            raise RuntimeError("the report does not have both ranks")
        # Call, place, count, total, average. Each rank has two places of its own.
        section = report.partition("Aggregate Sent Message Size")[2].partition("@---")[0]
        sent = re.findall(r"^Send +\d+ +(\d+) +(\S+) +\S+ ", section, re.M)
        counts = {int(count) for count, _ in sent}
        total = sum(float(size) for _, size in sent)
        if counts != {25, 5} or abs(total - 240_000) > 0.01 * 240_000:
            raise RuntimeError(
                f"expected 25 sends per rank from one place and 5 from another, 240000 B in all; "
                f"found {sorted(counts)}, {total} B"
            )
        if not re.search(r"^ +\d+ +0 .*\bRecv$", report, re.M):
            raise RuntimeError("the report's call sites do not name MPI_Recv")
