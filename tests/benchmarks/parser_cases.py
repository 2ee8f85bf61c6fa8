"""All recorded and constructed outputs, each with its parser."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from seatrial.benchmarks import (
    comms,
    imb,
    mpbench,
    mpi_pairs,
    mpi_time,
    netpipe,
    npb,
    osu,
    osu_mbw_mr,
    perftest,
)
from seatrial.benchmarks import (
    hpcc_output as hpcc,
)
from seatrial.benchmarks import (
    hpl_output as hpl,
)
from seatrial.benchmarks import tcp_stream as iperf3
from seatrial.benchmarks.hpcc import TESTS
from seatrial.benchmarks.parsing import Parsed

DATA = Path(__file__).parent / "data"
MSGLEN = [0, 8, 1000, 65536]

CASES: dict[str, Callable[[str], Parsed]] = {
    "nptcp_u65536.txt": partial(netpipe.parse, upper=65536),
    "npmpi_u65536.txt": partial(netpipe.parse, upper=65536),
    "nptcp_p0.txt": partial(netpipe.parse, upper=1000),
    "comms_openmpi.txt": comms.parse,
    "comms_mpich.txt": comms.parse,
    "imb_2.txt": imb.parse,
    "imb_4.txt": imb.parse,
    "imb_38.txt": imb.parse,
    "imb_len.txt": partial(imb.parse, sizes=MSGLEN),
    "hpccoutf.txt": hpcc.parse,
    "hpccoutf_dgemm.txt": hpcc.parse_dgemm,
    "hpccoutf_hpl.txt": hpcc.parse_hpl,
    "hpccoutf_hpl_3.txt": hpcc.parse_hpl,
    **{
        f"hpccoutf_{variant}.txt": partial(hpcc.parse_test, test=test)
        for variant, test in TESTS.items()
    },
    "iperf3_fwd.json": iperf3.parse,
    "iperf3_rev.json": iperf3.parse,
    **{
        f"perftest_{one}.txt": partial(perftest.parse, operation=one)
        for one in ("write_lat", "send_lat", "write_bw")
    },
    "mpi_pairs_openmpi.txt": partial(
        mpi_pairs.parse, pairs=2, size=65536, window=4, repetitions=3, within=True
    ),
    "mpi_pairs_mpich.txt": partial(mpi_pairs.parse, pairs=2, size=65536, window=2, repetitions=3),
    "mpi_time_is_S2.txt": mpi_time.parse,
    "npb_is_S2.txt": npb.parse,
    "npb_is_W2.txt": npb.parse,
    "npb_ep_S2.txt": npb.parse,
    "osu_py_latency.txt": osu.parse,
    "osu_py_bw.txt": osu.parse,
    "osu_py_bibw.txt": osu.parse,
    "osu_py_multi_lat.txt": osu.parse,
    "osu_py_alltoall.txt": osu.parse,
    "osu_py_barrier.txt": osu.parse,
    **{
        f"mpbench_{option[1]}.txt": partial(
            mpbench.parse, mode=mode, largest=4096, iterations=20, repeats=2, ranks=2
        )
        for mode, option in mpbench.OPTIONS.items()
    },
    "mpbench_l_lab.txt": partial(
        mpbench.parse, mode="gap", largest=1 << 20, iterations=100, repeats=1, ranks=2
    ),
    "constructed_xhpl.txt": hpl.parse,
    "constructed_npb_ft_A4.txt": npb.parse,
    "constructed_npb_cg_A4.txt": npb.parse,
    # Without its 0 B row, an older C latency looks like a later version: hence the smallest size.
    "constructed_osu_c_latency.txt": partial(osu.parse, smallest=1),
    "constructed_osu_c_old_latency.txt": partial(osu.parse, smallest=0),
    "constructed_osu_c_mbw_mr.txt": partial(
        osu_mbw_mr.parse, settings=osu_mbw_mr.MultiPairSettings(pairs=1, max_bytes=4 << 20)
    ),
    "constructed_osu_c_allreduce_full.txt": osu.parse,
    "constructed_osu_c_barrier.txt": osu.parse,
}


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def read(name: str) -> Parsed:
    return CASES[name](text(name))


def figures(parsed: Parsed) -> tuple[object, ...]:
    """The figures that damage must not change."""
    return parsed.metrics, parsed.curves, parsed.moved_bytes
