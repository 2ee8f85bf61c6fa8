import json

from spack_repo.builtin.packages.iperf3.package import Iperf3 as BuiltinIperf3
from spack_repo.seatrial.standalone import LoopbackTests, check_rate, free_port, run

from spack.package import depends_on, maintainers, variant


class Iperf3(BuiltinIperf3, LoopbackTests):
    """iperf3: throughput of TCP, UDP and SCTP streams between two hosts, with retransmissions
    and processor time, as JSON.

    ESnet and Lawrence Berkeley National Laboratory. None of the founding papers has it; it is
    here because the raw rate of the link is the bound that the MPI figures are held against,
    and because several parallel streams are what loads a bond of interfaces.

    Against Spack's own recipe: OpenSSL, which only serves to name users, is a variant, off by
    default, and no longer taken from the system when it happens to be there; the same for
    SCTP."""

    maintainers("seatrial-developers")

    variant("openssl", default=False, description="Allow clients to be authenticated")
    variant("sctp", default=False, description="Measure SCTP too; the system has the headers")

    depends_on("gmake", type="build")
    depends_on("openssl", when="+openssl")

    def configure_args(self):
        args = self.with_or_without("sctp")
        if self.spec.satisfies("+openssl"):
            return [*args, f"--with-openssl={self.spec['openssl'].prefix}"]
        return [*args, "--without-openssl"]

    def _run(self, *options):
        """The report of a run of one second over the loopback."""
        port = free_port()
        program = self.prefix.bin.iperf3
        # -1: the server ends after its first client.
        with self.server(program, "-s", "-1", "-B", "127.0.0.1", "-p", port, port=port):
            text = run(program, "-c", "127.0.0.1", "-p", port, "-t", 1, "-J", *options, timeout=60)
        return json.loads(text)["end"]

    def test_tcp(self):
        """two TCP streams over the loopback: what was received, as a rate"""
        end = self._run("-P", 2)
        if len(end["streams"]) != 2:
            raise RuntimeError(f"expected 2 streams, found {len(end['streams'])}")
        check_rate(end["sum_received"]["bits_per_second"], "TCP", "b/s")

    def test_udp(self):
        """UDP at 10 Mb/s over the loopback: a rate, and not more than what was asked for"""
        rate = self._run("-u", "-b", "10M", "-l", 1400)["sum"]["bits_per_second"] / 1e6
        check_rate(rate, "UDP", "Mb/s")
        if rate > 11:  # less is a busy node's
            raise RuntimeError(f"expected 10 Mb/s at most, found {rate:.1f}")
