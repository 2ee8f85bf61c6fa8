"""The NAS Parallel Benchmarks; see the class."""

import os
import re
from pathlib import Path

from spack_repo.builtin.packages.npb.package import Npb as BuiltinNpb
from spack_repo.seatrial.standalone import MpiTests

from spack.package import (
    Executable,
    InstallError,
    SkipTest,
    conflicts,
    filter_file,
    join_path,
    license,
    maintainers,
    mkdirp,
    test_part,
    variant,
    version,
    working_dir,
)

#: Suffix of the program of DT, whose number of ranks follows from its graph also in NPB 3.3.
ANY_RANKS = "x"


class Npb(BuiltinNpb, MpiTests):
    """The NAS Parallel Benchmarks, MPI version: five kernels and three solvers of computational
    fluid dynamics, and DT (data traffic), in classes of fixed size.

    The programs whose response to NIC settings Celebioglu, Leng and Mashayekhi ("Optimizing
    Linux Cluster Performance by Exploring the Correlation between Application Characteristics
    and Gigabit Ethernet Device Parameters", 2004) measured, and the workload of Sokolowski and
    Grosu ("Performance Considerations for Network Switch Fabrics on Linux Clusters", 2004).

    Different from builtin: a program that does not build fails the installation by its name
    (`make suite` hides failures), compiler flags are the site's, DT can be asked for, gfortran
    builds every version, and there is a test. NPB 2.4.1 is left out: no checksum of its
    archive is published where we could find it.

    NPB 3.4 installs <kernel>.<class>.x, for any number of ranks; NPB 3.3 installs
    <kernel>.<class>.<ranks>, for those numbers in `nprocs` that the kernel can use.
    """

    homepage = "https://www.nas.nasa.gov/software/npb.html"

    maintainers("seatrial-developers")

    # "Permission to use, copy, distribute and modify this software for any purpose with or
    # without fee is hereby granted [...] provided as is" (head of every source file)
    license("LicenseRef-NPB", checked_by="seatrial-developers")

    version("3.4.3", sha256="a97c03d7e87ab826fba79c754415a13632c5273877abad270c85201db0f86aeb")

    valid_names = (*BuiltinNpb.valid_names, "dt")  # dt: data traffic through a graph

    variant(
        "names",
        default=",".join(BuiltinNpb.valid_names),
        values=valid_names,
        multi=True,
        description="Benchmark names (comma separated list)",
    )
    variant(
        "classes",
        default="S,W,A,B,C",
        values=BuiltinNpb.valid_classes,
        multi=True,
        description="Benchmark classes (comma separated list)",
    )

    for size in ("C", "D", "E", "F"):
        conflicts("names=dt", when=f"classes={size}", msg="DT has no result to check beyond B")
    conflicts("names=is", when="classes=F", msg="IS has no class F")
    conflicts("names=is", when="@:3.3 classes=E", msg="IS has no class E before NPB 3.4")
    conflicts("classes=F", when="@:3.3", msg="NPB has class F since 3.4")
    conflicts("names=dt", when="implementation=openmp", msg="DT exists for MPI only")
    conflicts("names=dt", when="implementation=serial", msg="DT exists for MPI only")

    def flag_handler(self, name, flags):
        # They go to make.def, where -O3 stands when there are none.
        return (None, None, flags)

    def flags_to_build_system_args(self, flags):
        """Nothing: ``edit`` writes them to make.def."""

    def flags(self, language):
        """Compiler flags for make.def: the spec's (``npb fflags="-O2"``), else -O3."""
        flags = list(self.spec.compiler_flags[language]) or ["-O3"]
        if language == "fflags" and self.spec.satisfies("%gcc@10:"):
            flags.append("-fallow-argument-mismatch")  # one buffer for several types
            if self.spec.satisfies("@:3.3"):
                flags.append("-fallow-invalid-boz")  # randi8.f
        if self.spec.satisfies("implementation=openmp"):
            flags.append(self.compiler.openmp_flag)
        return " ".join(flags)

    def edit(self, spec, prefix):
        super().edit(spec, prefix)
        later = {
            "FFLAGS": self.flags("fflags"),
            "FLINKFLAGS": self.flags("fflags"),
            "CFLAGS": self.flags("cflags"),
            "CLINKFLAGS": self.flags("cflags"),
        }
        if spec.satisfies("implementation=serial"):
            later["FC"] = self.module.spack_fc  # NPB 3.4's name for it
        # make takes the last definition, so these replace builtin's.
        with Path(self.build_directory, "config", "make.def").open("a") as make_def:
            make_def.writelines(f"{name} = {value}\n" for name, value in later.items())

        if spec.satisfies("@:3.3 names=dt"):
            # DT ends with code 1 after success, too, which every launcher takes for a failure.
            source = join_path(self.build_directory, "DT", "dt.c")
            filter_file(r"^  return 1;$", "  return 0;", source, start_at="CLINKFLAGS );")

    def build(self, spec, prefix):
        """Nothing: NPB's makefiles build into the prefix, see ``install``."""

    def usable(self, kernel, ranks):
        """Whether NPB 3.3 can be built with this kernel for so many ranks."""
        if kernel in ("bt", "sp"):
            return int(ranks**0.5 + 0.5) ** 2 == ranks
        return kernel == "ep" or ranks & (ranks - 1) == 0

    def programs(self):
        """What was asked for: (kernel, class, name of the program, arguments of make)."""
        # Builtin's default is one value with commas in it, not several values.
        ranks = sorted(map(int, ",".join(self.spec.variants["nprocs"].value).split(",")))
        fixed = self.spec.satisfies("@:3.3 implementation=mpi")
        for kernel in self.spec.variants["names"].value:
            if not fixed or kernel == "dt":
                suffixes = [ANY_RANKS]
            else:
                suffixes = [number for number in ranks if self.usable(kernel, number)]
            if not suffixes:
                raise InstallError(
                    f"NPB {self.version}: none of nprocs={','.join(map(str, ranks))} can run "
                    f"{kernel}, which needs a "
                    + ("square" if kernel in ("bt", "sp") else "power of two")
                )
            for size in self.spec.variants["classes"].value:
                for suffix in suffixes:
                    arguments = [f"CLASS={size}"]
                    if suffix != ANY_RANKS:
                        arguments.append(f"NPROCS={suffix}")
                    yield kernel, size, f"{kernel}.{size}.{suffix}", arguments

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        missing = []
        with working_dir(self.build_directory):
            for kernel, _, program, arguments in self.programs():
                # Objects depend on the class, which the makefiles do not see.
                self.module.make("-C", kernel.upper(), "clean", parallel=False)
                self.module.make(kernel, *arguments, parallel=False, fail_on_error=False)
                path = join_path(prefix.bin, program)
                if self.module.make.returncode != 0 or not os.access(path, os.X_OK):
                    missing.append(program)
        if missing:
            raise InstallError(
                f"NPB {self.version}: {len(missing)} programs were asked for and not built: "
                + ", ".join(missing),
                long_msg="The compiler's messages are in the build log.",
            )

    def test_verification(self):
        """run each kernel's smallest program and let it verify its own result"""
        smallest = {}
        order = self.valid_classes
        for kernel, size, program, _ in self.programs():
            best = smallest.get(kernel)
            if best is None or order.index(size) < order.index(best[0]):
                smallest[kernel] = (size, program)
        for kernel, (size, program) in smallest.items():
            with test_part(self, f"test_verification_{kernel}", purpose=f"run {program}"):
                if order.index(size) > order.index("A"):
                    raise SkipTest(f"the smallest {kernel} is class {size}: a job for a cluster")
                self.verify(kernel, size, program)

    def verify(self, kernel, size, program):
        """Run one program and check what it says of itself."""
        path = join_path(self.prefix.bin, program)
        if not self.spec.satisfies("implementation=mpi"):
            text = Executable(path)(output=str.split)
            ranks = None
        else:
            suffix = program.rpartition(".")[2]
            ranks = int(suffix) if suffix != ANY_RANKS else {"bt": 4, "sp": 4}.get(kernel, 2)
            arguments = []
            if kernel == "dt":
                # A black hole: `sources` of 4 in class S, doubling, reach one sink through a tree.
                arguments = ["BH"]
                ranks = {"S": 5, "W": 11, "A": 21}[size]
            text = self.run_mpi(ranks, path, *arguments)
        check_result(text, program, size, None if kernel == "dt" else ranks)


def check_result(text, program, size, ranks):
    """Fail unless ``text`` is one verified result of this class on so many ranks."""
    found = re.findall(r"Verification\s*=\s*(\w+)", text)
    if found != ["SUCCESSFUL"]:
        raise RuntimeError(f"{program}: verification says {found or 'nothing'}, once SUCCESSFUL")
    classes = re.findall(r"^\s*Class\s*=\s*(\w)\s*$", text, re.M)
    if classes != [size]:
        raise RuntimeError(f"{program}: expected class {size}, it says {classes}")
    if ranks is not None:
        active = re.findall(r"(?:Active|Total) process(?:es|ors?)\s*=\s*(\d+)", text)
        if str(ranks) not in active:
            raise RuntimeError(f"{program}: expected {ranks} active processes, it says {active}")
