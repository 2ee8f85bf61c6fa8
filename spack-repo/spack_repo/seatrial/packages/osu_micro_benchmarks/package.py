from spack_repo.builtin.packages.osu_micro_benchmarks.package import (
    OsuMicroBenchmarks as BuiltinOsuMicroBenchmarks,
)
from spack_repo.seatrial.standalone import MpiTests, check_table, table

from spack.package import join_path, license, maintainers, version


class OsuMicroBenchmarks(BuiltinOsuMicroBenchmarks, MpiTests):
    """OSU Micro-Benchmarks: latency, bandwidth, message rate, one-sided and collective
    operations of MPI, one program each, by the MVAPICH group of the Ohio State University.

    The multiple-pair latency and bandwidth programs are the instruments of Strazdins, Alexander
    and Barr, "Performance Enhancement of SMP Clusters with Multiple Network Interfaces using
    Virtualization", 2006.

    Nothing is changed against Spack's own recipe: version 7.5.2 with the checksum of its later
    releases (v2026.06.0) and the stand-alone tests are new."""

    maintainers("seatrial-developers")

    license("BSD-3-Clause", checked_by="seatrial-developers")

    version("7.5.2", sha256="618de3d0b1122f73a9229177d2da1e5cd62e431190580cb915f2605849cbbbdc")

    sizes = tuple(2**n for n in range(11))

    def _program(self, kind, name):
        return join_path(self.prefix.libexec, "osu-micro-benchmarks", "mpi", kind, name)

    def _check(self, kind, name, sizes):
        text = self.run_mpi(
            2, self._program(kind, name), "-m", f"{sizes[0]}:{sizes[-1]}", "-i", 200, "-x", 20
        )
        check_table(table(text, 2), sizes, name, positive_from=sizes[-1])

    def test_latency(self):
        """osu_latency: half the round trip, in us"""
        self._check("pt2pt", "osu_latency", self.sizes)

    def test_bandwidth(self):
        """osu_bw: MB/s of a window of messages"""
        self._check("pt2pt", "osu_bw", self.sizes)

    def test_multiple_pairs(self):
        """osu_multi_lat: half the round trip of several pairs at once"""
        self._check("pt2pt", "osu_multi_lat", self.sizes)

    def test_allreduce(self):
        """osu_allreduce: time of a sum over all ranks, in us"""
        self._check("collective", "osu_allreduce", [s for s in self.sizes if s >= 4])
