"""High-Performance Linpack; see the class."""

import re
from pathlib import Path

from spack_repo.builtin.packages.hpl.package import Hpl as BuiltinHpl
from spack_repo.seatrial.blas import check_blas
from spack_repo.seatrial.standalone import MpiTests, check_rate

from spack.package import filter_file, join_path, license, maintainers, run_after


class Hpl(BuiltinHpl, MpiTests):
    """High-Performance Linpack: the solution of one dense linear system on all ranks.

    "Tweak your Interconnect" (ClusterMonkey's series on the Kronos cluster, 2005) is where
    this suite's question comes from: HPL rose from 12.74 to 13.26 GFLOPS when the NIC's
    interrupt throttling was turned off, and changed again with the BLAS (ATLAS, then ACML).

    Different from builtin: the BLAS is the spec's. HPL's configure asks for OpenBLAS, ATLAS,
    MKL and ACML in this order and takes the first that links, so on a node that has a
    distribution's OpenBLAS every build used that. What xhpl loads is checked after the
    installation. And there is a test.
    """

    maintainers("seatrial-developers")

    license("BSD-4-Clause", checked_by="seatrial-developers")

    def configure_args(self):
        arguments = super().configure_args()
        only_this_blas("configure", self.spec["blas"].libs.ld_flags)
        return arguments

    @run_after("install")
    def uses_the_blas_of_the_spec(self):
        check_blas(self.spec, join_path(self.prefix.bin, "xhpl"))

    def test_residual(self):
        """solve a small system on two ranks and check its residual"""
        text = Path(__file__).with_name("HPL.dat").read_text()
        Path("HPL.dat").write_text(text.format(problems=1, n=500, nb=64, p=1, q=2))
        text = self.run_mpi(
            2, join_path(self.prefix.bin, "xhpl"), extra_env={"OMP_NUM_THREADS": "1"}
        )
        rows = re.findall(r"^W\S+\s+500\s+64\s+1\s+2\s+[0-9.]+\s+(\S+)\s*$", text, re.M)
        if len(rows) != 1:
            raise RuntimeError(f"expected one result of N=500, NB=64 on 1 x 2 ranks, found {rows}")
        check_rate(float(rows[0]), "HPL", "GFLOPS")
        residuals = re.findall(r"=\s*(\S+)\s*\.{3,}\s*(\w+)\s*$", text, re.M)
        if [verdict for _, verdict in residuals] != ["PASSED"]:
            raise RuntimeError(f"expected one residual that PASSED, found {residuals}")


def only_this_blas(configure, flags):
    """Make every BLAS that HPL's configure tries the one of these flags."""
    filter_file(r"^(libs[0-9]+)=.*", rf"\1={flags}", configure)
    filter_file('BLAS_LIBS="-lopenblas"', f'BLAS_LIBS="{flags}"', configure, string=True)
