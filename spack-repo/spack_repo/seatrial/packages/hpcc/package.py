"""HPC Challenge; see the class."""

import re
from pathlib import Path

from spack_repo.builtin.packages.hpcc.package import Hpcc as BuiltinHpcc
from spack_repo.seatrial.blas import check_blas
from spack_repo.seatrial.standalone import MpiTests, check_rate

from spack.package import (
    Executable,
    filter_file,
    join_path,
    license,
    maintainers,
    run_after,
    run_before,
    variant,
)

#: As in select.c: every function of hpcc that it stands in front of.
WRAPPED = r"X\(\w+, (\w+)\)|__wrap_(\w+)\("


class Hpcc(BuiltinHpcc, MpiTests):
    """HPC Challenge: HPL, DGEMM, STREAM, PTRANS, RandomAccess, FFT and latency/bandwidth in one
    program, so that HPL can be held against the DGEMM and the network of the same job.

    HPL's and DGEMM's response to NIC settings and BLAS is the question of "Tweak your
    Interconnect" (ClusterMonkey's series on the Kronos cluster, 2005).

    Different from builtin: `+select` runs only the tests that the environment variable
    HPCC_TESTS names (HPCC_TESTS=HPL,SingleDGEMM; all without it); what one spec's build sets
    is not seen by the next one's (`config` was one dictionary for all); it builds with an MPI
    that has no MPI-1 names left; the BLAS that hpcc loads is checked. And there is a test.
    """

    maintainers("seatrial-developers")

    # HPL's, the only licence in the archive besides STREAM's (results under its run rules).
    license("BSD-4-Clause", checked_by="seatrial-developers")

    variant("select", default=True, description="HPCC_TESTS chooses tests at run time")

    @run_before("edit")
    def successors_of_mpi1_names(self):
        """HPL 2.0 inside hpcc calls two functions that MPI 3.0 removed."""
        for name, successor in (
            ("MPI_Address", "MPI_Get_address"),
            ("MPI_Type_struct", "MPI_Type_create_struct"),
        ):
            filter_file(rf"\b{name}\b", successor, join_path("hpl", "src", "comm", "HPL_packL.c"))

    def edit(self, spec, prefix):
        self.config = dict(type(self).config)
        super().edit(spec, prefix)

    def _write_make_arch(self, spec, prefix):
        if spec.satisfies("+select"):
            source = Path(__file__).with_name("select.c")
            compiled = join_path(self.stage.source_path, "select.o")
            Executable(self.module.spack_cc)("-O2", "-c", str(source), "-o", compiled)
            # libhpl.a twice: select.o stands between HPL's caller and HPL.
            self.config["@LALIB@"] = f"{compiled} $(HPLlib) {self.config['@LALIB@']}"
            wraps = " ".join(f"-Wl,--wrap={name}" for name in wrapped_functions(source))
            self.config["@LINKFLAGS@"] += " " + wraps
        super()._write_make_arch(spec, prefix)

    @run_after("install")
    def uses_the_blas_of_the_spec(self):
        check_blas(self.spec, join_path(self.prefix.bin, "hpcc"))

    def test_hpl_and_dgemm(self):
        """solve HPL's system and multiply matrices on two ranks, check both"""
        write_input(join_path(self.prefix.share.hpcc, "hpccinf.txt"), "hpccinf.txt")
        results = Path("hpccoutf.txt")
        results.unlink(missing_ok=True)  # hpcc appends
        environment = {"OMP_NUM_THREADS": "1"}
        if self.spec.satisfies("+select"):
            environment["HPCC_TESTS"] = "HPL,StarDGEMM"
        self.run_mpi(2, join_path(self.prefix.bin, "hpcc"), extra_env=environment)
        text = results.read_text()
        summary = dict(re.findall(r"^(\w+)=(\S+)\s*$", text, re.M))
        if summary.get("Success") != "1":
            raise RuntimeError(f"expected Success=1, hpcc says {summary.get('Success')}")
        if summary.get("CommWorldProcs") != "2":
            raise RuntimeError(f"expected 2 ranks, hpcc saw {summary.get('CommWorldProcs')}")
        verdicts = re.findall(r"\|\|Ax-b\|\|.*\.{3,}\s*(\w+)\s*$", text, re.M)
        if verdicts != ["PASSED"]:
            raise RuntimeError(f"expected HPL's residual PASSED, found {verdicts}")
        check_rate(float(summary["HPL_Tflops"]) * 1e3, "HPL", "GFLOPS")
        check_rate(float(summary["StarDGEMM_Gflops"]), "DGEMM", "GFLOPS")
        ran = float(summary["StarSTREAM_Triad"]) > 0
        if ran == self.spec.satisfies("+select"):
            raise RuntimeError(
                f"STREAM {'ran' if ran else 'did not run'}: HPCC_TESTS has no effect"
            )


def wrapped_functions(path):
    """The functions that select.c stands in front of, sorted."""
    found = re.findall(WRAPPED, Path(path).read_text())
    names = {first or second for first, second in found}
    return sorted(names - {"function", "", "##function"})


def write_input(example, path):
    """hpcc's example input with one process grid of two ranks, in ``path``."""
    lines = Path(example).read_text().splitlines()
    for number, value in ((10, "1            Ps"), (11, "2            Qs")):
        if not re.search(rf"\b{value[-2:]}\b", lines[number]):
            raise RuntimeError(f"{example}, line {number + 1}: expected {value[-2:]}")
        lines[number] = value
    Path(path).write_text("\n".join(lines) + "\n")
