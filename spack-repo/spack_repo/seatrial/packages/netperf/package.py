from spack_repo.builtin.packages.netperf.package import Netperf as BuiltinNetperf
from spack_repo.seatrial.standalone import LoopbackTests, check_rate, free_port, run

from spack.package import depends_on, license, maintainers


class Netperf(BuiltinNetperf, LoopbackTests):
    """Netperf: streams and request/response transactions over TCP and UDP between netperf and
    netserver, with the processor time that each end spends on them.

    Rick Jones, Hewlett-Packard, from 1993. It is the instrument of Celebioglu, Leng and
    Mashayekhi, "Optimizing Linux Cluster Performance by Exploring the Correlation between
    Application Characteristics and Gigabit Ethernet Device Parameters", 2004, for the processor
    time that two drivers of one adapter take.

    The licence of 2.7.0 and older is Hewlett-Packard's own, for non-commercial distribution.

    Against Spack's own recipe: builds with GCC 10 and later, and says where the processor time
    comes from (/proc/stat) instead of having configure guess."""

    maintainers("seatrial-developers")

    license("LicenseRef-Hewlett-Packard-netperf", checked_by="seatrial-developers")

    depends_on("gmake", type="build")

    def flag_handler(self, name, flags):
        if name == "cflags":
            # Variables are defined in several files: one each since GCC 10.
            flags.append("-fcommon")
        return (flags, None, None)

    def configure_args(self):
        return ["--enable-cpuutil=procstat"] if self.spec.satisfies("platform=linux") else []

    def _omni(self, kind, *options):
        """The figures of a test of one second over the loopback, by netperf's names."""
        port = free_port()
        server = [self.prefix.bin.netserver, "-D", "-4", "-L", "127.0.0.1", "-p", port]
        wanted = "THROUGHPUT,THROUGHPUT_UNITS,LOCAL_CPU_UTIL,REMOTE_CPU_UTIL,ELAPSED_TIME"
        client = [self.prefix.bin.netperf, "-4", "-H", "127.0.0.1", "-p", port, "-l", 1, *options]
        with self.server(*server, port=port):
            text = run(
                *client, "-t", "omni", "--", "-H", "127.0.0.1", *kind, "-k", wanted, timeout=60
            )
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def test_stream(self):
        """a TCP stream over the loopback: a rate, and the processor time of both ends"""
        figures = self._omni(["-d", "stream"], "-c", "-C")
        if figures["THROUGHPUT_UNITS"] != "10^6bits/s":
            raise RuntimeError(f"the unit is {figures['THROUGHPUT_UNITS']}")
        check_rate(float(figures["THROUGHPUT"]), "TCP stream", "Mb/s")
        for end in ("LOCAL_CPU_UTIL", "REMOTE_CPU_UTIL"):
            if not 0 < float(figures[end]) <= 100:
                raise RuntimeError(f"{end} is {figures[end]} %")

    def test_transactions(self):
        """TCP request/response of one byte over the loopback: transactions per second"""
        figures = self._omni(["-d", "rr"])
        if figures["THROUGHPUT_UNITS"] != "Trans/s":
            raise RuntimeError(f"the unit is {figures['THROUGHPUT_UNITS']}")
        check_rate(float(figures["THROUGHPUT"]), "TCP request/response", "1/s")
