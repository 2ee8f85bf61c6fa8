"""Exact figures of recorded and constructed outputs (see ``data/README.md`` for which is which)."""

from __future__ import annotations

import math
from functools import partial

import parser_cases as cases
import pytest

from seatrial.analysis.crossover import knee
from seatrial.benchmarks import (
    hpcc_output as hpcc,
)
from seatrial.benchmarks import (
    hpl_output as hpl,
)
from seatrial.benchmarks import (
    imb,
    mpbench,
    netpipe,
    npb,
    osu,
    osu_mbw_mr,
)
from seatrial.benchmarks import tcp_stream as iperf3
from seatrial.benchmarks.hpcc import TESTS
from seatrial.benchmarks.parsing import Parsed, ParseError
from seatrial.benchmarks.volume import per_repetition

read, text = cases.read, cases.text


def values(parsed: Parsed) -> dict[str, float]:
    return {metric.metric: metric.value for metric in parsed.metrics}


def test_netpipe_tcp() -> None:
    parsed = read("nptcp_u65536.txt")
    assert parsed.value("latency_us") == 6.20
    # 59797.51 Mbps of 2^20 bit/s
    assert parsed.value("bandwidth_MB_s") == pytest.approx(59797.51 * 2**20 / 8e6)
    assert parsed.value("n_half_B") == pytest.approx(18025.7186, abs=1e-3)
    assert parsed.facts["sizes"] == 82
    assert [curve.y_name for curve in parsed.curves] == ["latency", "bandwidth"]
    assert parsed.curves[0].points[0] == (1, 6.20)
    assert len(parsed.curves[1].points) == 82
    assert parsed.metrics[0].better == "lower"
    assert parsed.metrics[1].better == "higher"


def test_netpipe_mpi_and_no_perturbation() -> None:
    assert read("npmpi_u65536.txt").value("latency_us") == 0.44
    parsed = read("nptcp_p0.txt")
    assert parsed.value("bandwidth_MB_s") == pytest.approx(451.23 * 0.131072)
    # 2 directions x 3 trials, by hand from the first two lines and the total
    rows = [(8, 5333), (12, 6443), (16, 3661), (24, 4626), (32, 3374), (48, 4932), (64, 2918)]
    rows += [(96, 4102), (128, 3024), (192, 3833), (256, 2633), (384, 3911), (512, 2586)]
    rows += [(768, 3877)]
    assert parsed.moved_bytes == 6 * sum(size * times for size, times in rows)


def test_netpipe_measures_the_sizes_of_its_loop() -> None:
    sizes = list(netpipe.schedule(1, 10_000_000))
    assert sizes[:9] == [1, 2, 3, 4, 6, 8, 12, 13, 16]
    assert len(sizes) == 124
    assert sizes[-1] == 8388611
    assert list(netpipe.schedule(8, 100, 0)) == [8, 12, 16, 24, 32, 48, 64, 96]


def test_netpipe_ends_early_only_after_a_second() -> None:
    big = text("nptcp_u65536.txt").splitlines()
    row = next(i for i, line in enumerate(big) if line.startswith(" 80:"))
    slow = " 80:   65536 bytes      3 times -->      0.50 Mbps in 1000000.00 usec"
    parsed = netpipe.parse("\n".join([*big[:row], slow]), upper=10_000_000)
    assert parsed.facts["stopped_early"]


def test_netpipe_slow_network_has_more_digits_in_time() -> None:
    """4 ms per byte, as a spinning MPI on one processor: "0.00 Mbps" is no zero."""
    lines = ["Now starting the main loop"]
    for index, size in enumerate(netpipe.schedule(1, 16)):
        rate = size * 8 / 2**20 / 0.004
        lines.append(
            f"{index:3d}: {size:7d} bytes {3:6d} times --> {rate:8.2f} Mbps in    4000.00 usec"
        )
    parsed = netpipe.parse("\n".join(lines), upper=16)
    assert parsed.curves[1].points[0] == (1, 1 / 4000)
    assert parsed.value("bandwidth_MB_s") == 19 / 4000


def test_half_bandwidth_by_hand() -> None:
    # Half of 8 lies midway between 2 at 100 B and 6 at 400 B: the geometric mean, 200 B.
    points = [(10.0, 1.0), (100.0, 2.0), (400.0, 6.0), (1000.0, 8.0)]
    assert netpipe.half_bandwidth(points) == pytest.approx(200)
    assert netpipe.half_bandwidth([(64.0, 5.0), (128.0, 6.0)]) == 64


@pytest.mark.parametrize(
    ("mark", "option"),
    [
        ("Streaming in one direction only.", "-s"),
        ("Passing data in both directions simultaneously.", "-2"),
        ("Doing an integrity check instead of measuring performance", "-i"),
    ],
)
def test_netpipe_rejects_other_modes(mark: str, option: str) -> None:
    with pytest.raises(ParseError, match=option):
        netpipe.parse(mark + "\n" + text("nptcp_u65536.txt"), upper=65536)


def test_netpipe_beside_a_message_of_open_mpi() -> None:
    """Recorded on a busy lab: rank 1 ended before rank 0 had printed all of its table."""
    said = (
        "[n2:01043] ../../../../../../opal/mca/common/ucx/common_ucx.c:470  Error: "
        "ucp_disconnect_nb(0) failed: Endpoint timeout"
    )
    whole = text("nptcp_u65536.txt")
    lines = whole.split("\n")
    row = next(number for number, line in enumerate(lines) if line.startswith("  3:"))
    lines.insert(row, said)
    assert netpipe.parse("\n".join(lines), upper=65536) == netpipe.parse(whole, upper=65536)
    lines[row] = "[n2:01043] 3:       4 bytes     10 times"
    with pytest.raises(ParseError, match=f"line {row + 1}"):
        netpipe.parse("\n".join(lines), upper=65536)


def test_netpipe_detects_a_changed_digit() -> None:
    whole = text("nptcp_u65536.txt")
    good = next(line for line in whole.splitlines() if line.startswith("  0:"))
    for bad in (good.replace("6.20 ", "9.20 "), good.replace("1.23 ", "1.73 ")):
        assert bad != good
        with pytest.raises(ParseError, match="damaged"):
            netpipe.parse(whole.replace(good, bad), upper=65536)


def test_netpipe_names_the_line() -> None:
    lines = text("nptcp_p0.txt").splitlines()
    lines[6] = "mpirun: a warning"
    with pytest.raises(ParseError, match=r"^line 7: expected a line 'N: SIZE bytes") as caught:
        netpipe.parse("\n".join(lines), upper=1000)
    assert caught.value.line == 7


def test_imb_two_processes() -> None:
    parsed = read("imb_2.txt")
    assert values(parsed) == {
        "pingpong_latency_us": 0.49,
        "pingpong_bandwidth_MB_s": 10928.92,
        "pingping_latency_us": 0.71,
        "pingping_bandwidth_MB_s": 7560.09,
        "sendrecv_bandwidth_MB_s": 15304.97,
        "exchange_bandwidth_MB_s": 16081.46,
        "allreduce_8B_us": 1.12,
        "allreduce_4194304B_us": 1283.49,
        "alltoall_8B_us": 0.81,
        "alltoall_4194304B_us": 1460.26,
        "barrier_us": 0.76,
    }
    assert {curve.name for curve in parsed.curves} == {
        *("pingpong", "pingping", "sendrecv", "exchange", "allreduce", "alltoall")
    }
    assert parsed.facts["not_in_moved_bytes"] == []


def test_imb_takes_the_largest_group_only() -> None:
    parsed = read("imb_4.txt")
    assert parsed.value("sendrecv_bandwidth_MB_s") == 427.48  # 1170.34 with 2 of 4
    assert parsed.value("barrier_us") == 5.88  # 2.97 with 2 of 4
    assert parsed.value("reduce_1024B_us") == 3.10
    assert parsed.facts["processes"] == 4
    assert parsed.facts["not_in_moved_bytes"] == ["PingPong", "PingPing"]


def test_imb_volume_by_hand() -> None:
    sizes = [8, 16, 32, 64, 128, 256]
    # PingPong 2X and Allreduce 2X, 1000 repetitions each
    assert read("imb_38.txt").moved_bytes == 4 * 1000 * sum(sizes)


def test_imb_with_given_lengths() -> None:
    assert values(read("imb_len.txt"))["allreduce_65536B_us"] == 16.19
    with pytest.raises(ParseError, match="needs its sizes"):
        imb.parse(text("imb_len.txt"))
    with pytest.raises(ParseError, match="no row of 9 bytes"):
        imb.parse(text("imb_len.txt"), sizes=[0, 8, 9, 1000, 65536])


def test_imb_rejects_groups_at_once() -> None:
    with pytest.raises(ParseError, match="-multi"):
        imb.parse(text("imb_multi.txt"))


def test_imb_megabytes_are_decimal() -> None:
    """A table in units of 2^20 does not fit its own times."""
    row = "         1024         1000         0.48      2121.34"
    whole = text("imb_2.txt")
    pingpong = next(line for line in whole.splitlines() if line.split()[:1] == ["1024"])
    mbytes = pingpong.split()[-1]
    with pytest.raises(ParseError, match="Mbytes/sec"):
        imb.parse(
            whole.replace(pingpong, pingpong.replace(mbytes, f"{float(mbytes) / 1.048576:.2f}"))
        )
    assert len(row.split()) == len(pingpong.split())


@pytest.mark.parametrize(
    ("name", "processes", "bytes_"),
    [
        ("PingPong", 2, 2000),
        ("Sendrecv", 4, 2000),
        ("Exchange", 4, 4000),
        ("Allreduce", 8, 2000),
        ("Bcast", 8, 1000),
        ("Allgather", 8, 8000),
        ("Allgatherv", 8, 8000),
        ("Alltoall", 8, 14000),
        ("Alltoallv", 2, 2000),
        ("Reduce_scatter", 4, 1000),
        ("Barrier", 4, 0),
        ("Unknown", 4, 0),
    ],
)
def test_volume_of_a_repetition(name: str, processes: int, bytes_: int) -> None:
    assert per_repetition(name, 1000, processes) == bytes_


def test_hpcc() -> None:
    parsed = read("hpccoutf.txt")
    assert values(parsed) == pytest.approx(
        {
            "hpl_GFLOPS": 9.42182,
            "dgemm_GFLOPS": 8.72616,
            "hpl_percent_of_dgemm": 100 * 9.42182 / (2 * 8.72616),
            "stream_triad_GB_s": 37.5058,
        }
    )
    assert [parsed.facts[key] for key in ("N", "NB", "P", "Q", "processes")] == [256, 32, 1, 2, 2]
    assert parsed.facts["residual"] == 0.0070672
    assert parsed.facts["version"] == "1.5.0"
    assert parsed.facts["pingpong_latency_us"] == 0.461083
    assert parsed.moved_bytes == 4 * (256 - 32) ** 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("...... PASSED", "...... FAILED", "FAILED"),
        ("Success=1", "Success=0", "Success=1"),
        ("HPL_Tflops=0.00942182", "HPL_Tflops=0.00952182", "damaged"),
        ("StarDGEMM_Gflops=8.72616", "StarDGEMM_Gflops=8.82616", "damaged"),
        ("StarDGEMM_Gflops=8.72616", "StarDGEMM_Gflops=0", "figure is zero"),
        ("StarSTREAM_Triad=37.5058", "StarSTREAM_Triad=0", "above zero"),
        ("HPL_npcol=2", "HPL_npcol=4", "result line of HPL"),
        ("HPL_Tflops=0.00942182", "HPL_Tflops=-1", "finite number"),
        ("End of StarDGEMM section.\n", "End of StarDGEMM section.\n" * 2, "one section StarDGEMM"),
    ],
)
def test_hpcc_rejects(old: str, new: str, message: str) -> None:
    assert old in text("hpccoutf.txt")
    with pytest.raises(ParseError, match=message):
        hpcc.parse(text("hpccoutf.txt").replace(old, new))


def test_hpcc_takes_the_best_of_several_solves() -> None:
    """The first one opens the connection; all moved data."""
    parsed = read("hpccoutf_hpl_3.txt")
    assert values(parsed) == pytest.approx({"hpl_GFLOPS": 32.1664})
    assert parsed.facts["tests"] == 3
    assert parsed.moved_bytes == 3 * 4 * (200 - 32) ** 2


def test_hpcc_rejects_a_solve_without_its_residual() -> None:
    whole = text("hpccoutf_hpl_3.txt")
    residual = next(line for line in whole.splitlines() if line.endswith("PASSED"))
    with pytest.raises(ParseError, match="expected the residual check of the previous problem"):
        hpcc.parse_hpl(whole.replace(f"{residual}\n", "", 1))


def test_hpcc_rejects_a_result_that_is_missing_or_damaged() -> None:
    whole = text("hpccoutf_hpl_3.txt")
    rows = [line for line in whole.splitlines() if line.startswith("WR")]
    first, last = whole.index(rows[0]), whole.index(rows[1])
    with pytest.raises(ParseError, match="3 tests finished and 3 passed, but 2 results"):
        hpcc.parse_hpl(whole[:first] + whole[last:])
    best = rows[2].split()[-1]
    with pytest.raises(ParseError, match=r"HPL_Tflops .* the best result line of HPL"):
        hpcc.parse_hpl(whole.replace(best, best.replace("3", "2", 1)))


def test_hpcc_rejects_an_empty_section_of_hpl() -> None:
    whole = text("hpccoutf_hpl_3.txt")
    begin, end = "Begin of HPL section.\n", "End of HPL section.\n"
    first, last = whole.index(begin) + len(begin), whole.index(end)
    with pytest.raises(ParseError, match="the output was cut off"):
        hpcc.parse_hpl(whole[:first] + whole[last:])


def test_hpcc_between_nodes() -> None:
    ptrans, mpifft, random, stream = (read(f"hpccoutf_{name}.txt") for name in TESTS)
    seconds = 8 * 200**2 / 4.7009e9
    assert values(ptrans) == pytest.approx({"ptrans_MB_s": 4700.9, "time_s": seconds})
    # 6 whole blocks of 32 in each direction: half of the 36 change their rank, 18 out and in
    assert ptrans.moved_bytes == 18 * 32 * 32 * 8
    seconds = 5 * 16384 * 14 / 6.13079e9
    assert values(mpifft) == pytest.approx({"mpifft_GFLOPS": 6.13079, "time_s": seconds})
    assert mpifft.moved_bytes == 2 * 16 * 16384 // 4
    seconds = 524288 / 95.5288e6
    assert values(random) == pytest.approx({"random_access_Mops": 95.5288, "time_s": seconds})
    assert random.moved_bytes == 8 * 524288 // 4
    assert random.facts["updates"] == random.facts["recommended_updates"] == 4 * 131072
    seconds = 24 * 666666 / 24.5455e9
    assert values(stream) == pytest.approx({"stream_triad_GB_s": 24.5455, "time_s": seconds})
    assert (stream.moved_bytes, stream.facts["vector"]) == (0, 2000**2 // 3 // 2)


@pytest.mark.parametrize(
    ("p", "q", "blocks"),
    [
        (1, 1, 0), (1, 2, 32), (1, 4, 24), (2, 2, 0), (2, 4, 8),
    ],
)  # fmt: skip
def test_the_blocks_that_a_transposition_moves(p: int, q: int, blocks: int) -> None:
    """8 x 8 blocks, out and in, of the rank that moves fewest; counted by hand for 1 x 2."""
    assert hpcc.moved_by_ptrans(8 * 32, 32, p, q) == blocks * 8 * 32 * 32


@pytest.mark.parametrize(
    ("test", "old", "new", "message"),
    [
        ("ptrans", "0.00 PASSED", "0.00 FAILED", "FAILED"),
        ("ptrans", "PTRANS_GBs=4.7009", "PTRANS_GBs=4.8009", "damaged"),
        ("ptrans", "PTRANS_npcol=2", "PTRANS_npcol=1", "rows WALL"),
        ("ptrans", "    5 tests completed and passed", "    4 tests completed and passed",
         "5 tests completed"),
        ("mpifft", "MPIFFT_Gflops=6.13079", "MPIFFT_Gflops=7.13079", "damaged"),
        ("mpifft", "MPIFFT_maxErr=1.04738e-15", "MPIFFT_maxErr=1.04738e-05", "is wrong"),
        ("mpifft", "MPIFFT_N=16384", "MPIFFT_N=16385", "vector of 16385"),
        ("random_access", "MPIRandomAccess_Errors=0", "MPIRandomAccess_Errors=1311", "1 %"),
        ("random_access", "MPIRandomAccess_GUPs=0.0955288", "MPIRandomAccess_GUPs=0.0965288",
         "damaged"),
        ("random_access", "ExeUpdates=524288", "ExeUpdates=262144", "damaged"),
        ("star_stream", "StarSTREAM_Triad=24.5455", "StarSTREAM_Triad=24.6455", "damaged"),
        ("star_stream", "STREAM_VectorSize=666666", "STREAM_VectorSize=666667", "arrays of 666667"),
        ("star_stream", "Node(s) with error 0", "Node(s) with error 1", "error 0"),
        ("star_stream", "StarSTREAM_Triad=24.5455", "StarSTREAM_Triad=-1", "did not select it"),
    ],
)  # fmt: skip
def test_hpcc_between_nodes_rejects(test: str, old: str, new: str, message: str) -> None:
    output = text(f"hpccoutf_{test}.txt")
    assert old in output
    with pytest.raises(ParseError, match=message):
        hpcc.parse_test(output.replace(old, new), TESTS[test])


def test_a_test_of_hpcc_that_was_not_selected() -> None:
    with pytest.raises(ParseError, match="HPCC_TESTS did not select it"):
        hpcc.parse_test(text("hpccoutf_mpifft.txt"), "PTRANS")


def test_hpcc_rejects_an_appended_file() -> None:
    with pytest.raises(ParseError, match="twice"):
        hpcc.parse(text("hpccoutf.txt") * 2)


def test_hpl_constructed() -> None:
    parsed = read("constructed_xhpl.txt")
    work = 2 / 3 * 20000**3 + 1.5 * 20000**2
    assert parsed.value("hpl_GFLOPS") == pytest.approx(work / 61.25e9, rel=1e-4)
    assert parsed.facts["variant"] == "WR11C2R4"
    assert parsed.facts["tests"] == 2
    per_run = 4 * (20000 - 192) ** 2
    assert parsed.moved_bytes == per_run // 2 + per_run  # 2x2 splits rows in two; 1x4 has one row
    with pytest.raises(ParseError, match="FAILED"):
        hpl.parse(text("constructed_xhpl.txt").replace("PASSED", "FAILED", 1))


def test_iperf3_client_sends() -> None:
    parsed = read("iperf3_fwd.json")
    assert values(parsed) == pytest.approx(
        {
            "bandwidth_MB_s": 3914.345599571285,
            "cpu_sender_percent": 99.04481726960786,
            "cpu_receiver_percent": 74.3810031323516,
        }
    )
    assert parsed.moved_bytes == 3915120640
    assert parsed.facts["retransmits"] == 0


def test_iperf3_client_receives() -> None:
    parsed = read("iperf3_rev.json")
    assert parsed.value("cpu_sender_percent") == pytest.approx(99.66248124757006)  # remote_total
    assert parsed.value("cpu_receiver_percent") == pytest.approx(86.32706088807124)  # host_total
    assert parsed.facts["reverse"]
    assert parsed.facts["streams"] == 2
    assert parsed.moved_bytes == 4239392768


def test_iperf3_error_is_in_the_message() -> None:
    with pytest.raises(ParseError, match="unable to connect to server: Connection refused"):
        iperf3.parse(text("iperf3_err.json"))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e999", "-5", "null", '"7"', "true"])
def test_iperf3_rejects_other_values_than_numbers(word: str) -> None:
    whole = text("iperf3_fwd.json")
    assert "99.04481726960786" in whole
    with pytest.raises(ParseError):
        iperf3.parse(whole.replace("99.04481726960786", word))


def test_npb_is() -> None:
    parsed = read("npb_is_W2.txt")
    assert parsed.value("mops") == 268.26
    assert parsed.value("time_s") == pytest.approx(10 * 2**20 / 268.26e6)  # printed: 0.04
    assert parsed.moved_bytes == 4 * 10 * 2**20 // 4
    assert read("npb_is_S2.txt").value("time_s") == pytest.approx(0.0020655, rel=1e-4)


def test_npb_is_over_a_slow_network() -> None:
    """A run over wires of 4 Mbit/s: its time has four digits, its rate has two."""
    slow = text("npb_is_W2.txt").replace("268.26", "  0.62").replace("134.13", "  0.31")
    parsed = npb.parse(slow.replace(" 0.04", "16.78"))
    assert parsed.value("time_s") == 16.78
    assert parsed.value("mops") == pytest.approx(10 * 2**20 / 16.78e6)
    for damaged in ("16.60", "17.20", "61.78"):
        with pytest.raises(ParseError, match="size and Mop/s give"):
            npb.parse(slow.replace(" 0.04", damaged))


def test_npb_ep_of_simgrid_is_corrected() -> None:
    parsed = read("npb_ep_S2.txt")
    assert parsed.value("mops") == pytest.approx(71.38899)
    assert parsed.value("time_s") == pytest.approx(0.47, abs=0.005)
    assert "mops_corrected" in parsed.facts
    assert parsed.moved_bytes == 192


def test_npb_fortran_constructed() -> None:
    ft = read("constructed_npb_ft_A4.txt")
    assert values(ft)["mops"] == 2961.03
    # of the rate, which has more digits than the 2.41 s that it prints
    assert values(ft)["time_s"] == pytest.approx(2.410122, abs=1e-6)
    assert ft.moved_bytes == 2 * 16 * 6 * 256 * 256 * 128 * 3 // 16
    assert ft.facts["version"] == "3.4.2"
    assert read("constructed_npb_cg_A4.txt").moved_bytes == 2 * 8 * 25 * 15 * 3500


def test_npb_rejects_an_unverified_run() -> None:
    whole = text("npb_is_W2.txt")
    for word in ("UNSUCCESSFUL", "SUCCESS", "NOT PERFORMED"):
        with pytest.raises(ParseError, match="Verification"):
            npb.parse(whole.replace("  SUCCESSFUL", "  " + word))


@pytest.mark.parametrize("name", ["BT", "SP", "LU", "MG", "FT", "CG", "IS", "EP"])
@pytest.mark.parametrize("processes", [2, 4, 16, 64])
def test_npb_volumes_stay_below_the_whole_data(name: str, processes: int) -> None:
    size = (64, 64, 64) if name not in ("CG", "IS", "EP") else (14000,)
    volume = npb._volume(name, size, 1, processes)
    assert 0 <= volume <= 25 * 2 * 40 * math.prod(size)
    assert npb._volume(name, size, 1, 1) == 0


def test_osu_of_mpi4py() -> None:
    assert values(read("osu_py_latency.txt")) == {"latency_us": 0.87}
    assert values(read("osu_py_bw.txt")) == {"bw_MB_s": 18303.49}
    assert values(read("osu_py_bibw.txt")) == {"bibw_MB_s": 2 * 16871.47}  # it counts one direction
    assert values(read("osu_py_multi_lat.txt")) == {"multi_lat_us": 1.14}
    assert values(read("osu_py_barrier.txt")) == {"barrier_us": 1.34}
    assert values(read("osu_py_alltoall.txt")) == {
        "alltoall_8B_us": 1.97,
        "alltoall_1048576B_us": 245.40,
    }


def test_osu_volume_by_hand() -> None:
    small, large = sum(2**i for i in range(14)), sum(2**i for i in range(14, 23))
    assert read("osu_py_latency.txt").moved_bytes == 2 * (10000 * small + 100 * large)
    assert read("osu_py_bw.txt").moved_bytes == 64 * (100 * small + 20 * large)
    given = osu.parse(text("osu_py_bw.txt"), iterations=(10, 1), window=2)
    assert given.moved_bytes == 2 * (10 * small + large)
    assert read("constructed_osu_c_latency.txt").moved_bytes == 2 * (10000 * small + 1000 * large)


def test_osu_in_c_constructed() -> None:
    assert values(read("constructed_osu_c_latency.txt")) == {"latency_us": 1.50}
    assert values(read("constructed_osu_c_old_latency.txt")) == {"latency_us": 1.41}
    parsed = read("constructed_osu_c_allreduce_full.txt")
    assert values(parsed) == {"allreduce_8B_us": 3.00, "allreduce_1048576B_us": 236.02}
    assert values(read("constructed_osu_c_barrier.txt")) == {"barrier_us": 3.17}


def test_osu_of_several_pairs() -> None:
    parsed = read("constructed_osu_c_mbw_mr.txt")
    assert values(parsed) == {"mbw_mr_MB_s": 26913.38, "mbw_mr_messages_per_s": 1999851.86}
    assert parsed.moved_bytes == 64 * 100 * sum(2**i for i in range(23))
    four = osu_mbw_mr.MultiPairSettings(pairs=4, window=16, max_bytes=4 << 20, iterations=10)
    header = "# [ pairs: 1 ] [ window size: 64 ]"
    table = text("constructed_osu_c_mbw_mr.txt")
    moved = osu_mbw_mr.parse(
        table.replace(header, "# [ pairs: 4 ] [ window size: 16 ]"), four
    ).moved_bytes
    assert moved == 4 * 16 * 10 * sum(2**i for i in range(23))
    for other in (
        header,
        "# [ pairs: 4 ] [ window size: 64 ]",
        "# [ pairs: 2 ] [ window size: 16 ]",
        "",
    ):
        with pytest.raises(ParseError, match="expected pairs and window"):
            osu_mbw_mr.parse(table.replace(header, other), four)


def test_osu_needs_its_largest_size() -> None:
    with pytest.raises(ParseError, match="8388608 is missing"):
        osu.parse(text("osu_py_latency.txt"), largest=1 << 23)


def test_osu_validation_must_pass() -> None:
    head = "# OSU MPI Latency Test v7.5\n# Size       Avg Latency(us)   Validation\n"
    good = head + "1    1.50    Pass\n2    1.60    Pass\n"
    assert osu.parse(good, largest=2).value("latency_us") == 1.50
    with pytest.raises(ParseError, match="validation of 2 bytes says Fail"):
        osu.parse(good.replace("1.60    Pass", "1.60    Fail"), largest=2)


def test_netpipe_rejects_an_unexpected_size() -> None:
    lines = text("nptcp_p0.txt").splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("  7:"))
    # 95 B fit the printed 64.45 Mbps in 11.25 usec as well as 96 B do in 11.36.
    lines[row] = "  7:      95 bytes   4102 times -->     64.45 Mbps in      11.25 usec"
    with pytest.raises(ParseError, match="expected 96 bytes here, found 95"):
        netpipe.parse("\n".join(lines), upper=1000)


def test_mpbench_computes_times_from_rates() -> None:
    trip = read("mpbench_r.txt")
    # the rows of 4 B: 105820.109375 and 108108.109375 transactions per second
    assert trip.value("latency_us") == pytest.approx(0.5e6 / 106964.109375)
    sizes = sum(4 << i for i in range(11))  # 4 B to 4 KiB
    assert trip.moved_bytes == 2 * 20 * 2 * sizes
    assert read("mpbench_l.txt").value("gap_us") == pytest.approx((3.6 + 3.35) / 2)
    assert read("mpbench_l.txt").moved_bytes == 20 * 2 * sizes
    everyone = read("mpbench_a.txt")
    # 8 B at (1370.614014 + 1407.657715) / 2 KB/s of 1024 B
    assert everyone.value("alltoall_8B_us") == pytest.approx(8 / (1389.1358645 * 1024) * 1e6)
    assert set(values(everyone)) == {"alltoall_8B_us", "alltoall_4096B_us"}
    # half of each buffer goes to the other rank, and as much comes back
    assert everyone.moved_bytes == 20 * 2 * sizes
    assert everyone.curves[0].points[-1][0] == 4096


def test_the_gap_shows_the_eager_limit() -> None:
    """Open MPI's header belongs to its 64 KiB: a send of 64 KiB waits for its receiver."""
    times = dict(read("mpbench_l_lab.txt").curves[0].points)
    assert max(times[size] for size in times if size < 65536) < 25
    assert knee(times) == (32768, pytest.approx(620.90343 / 22.82653))


def test_mpbench_needs_every_row() -> None:
    rows = text("mpbench_b.txt").splitlines(keepends=True)
    kept = partial(mpbench.parse, mode="bandwidth", iterations=20, ranks=2)
    assert kept("".join(rows), largest=4096, repeats=2).value("bandwidth_MB_s") > 0
    for wrong in ({"largest": 8192, "repeats": 2}, {"largest": 4096, "repeats": 1}):
        with pytest.raises(ParseError):
            kept("".join(rows), **wrong)
    with pytest.raises(ParseError, match=r"line 1: .*above zero"):
        kept("4 0.000000\n" + "".join(rows[1:]), largest=4096, repeats=2)


def test_hpcc_with_dgemm_only() -> None:
    parsed = read("hpccoutf_dgemm.txt")
    assert values(parsed) == {"dgemm_GFLOPS": 27.4812}
    assert (parsed.facts["dgemm"], parsed.facts["dgemm_N"]) == ("StarDGEMM", 407)
    assert parsed.moved_bytes == 0
    with pytest.raises(ParseError, match="HPL"):
        hpcc.parse(text("hpccoutf_dgemm.txt"))


def test_mpbench_after_lines_of_the_mpi() -> None:
    lines_of_mpi = "[0] MPI startup(): PMI API: pmi2\nlibfabric provider: tcp\n"
    read_one = partial(mpbench.parse, mode="gap", largest=4096, iterations=20, repeats=2, ranks=2)
    rows = text("mpbench_l.txt")
    assert read_one(lines_of_mpi + rows).metrics == read("mpbench_l.txt").metrics
    with pytest.raises(ParseError, match="found"):
        read_one(rows.replace("\n", "\nlibfabric provider: tcp\n", 1))


def test_perftest() -> None:
    latency = read("perftest_write_lat.txt")
    assert [(m.metric, m.value) for m in latency.metrics] == [
        ("latency_us", 742.86), ("latency_p99_us", 4248.80)
    ]  # fmt: skip
    assert latency.moved_bytes == 2 * 8 * 100
    bandwidth = read("perftest_write_bw.txt")
    (metric,) = bandwidth.metrics
    assert metric.value == pytest.approx(40.81 * 1.048576)  # perftest's MB are 2^20 bytes
    assert bandwidth.moved_bytes == 65536 * 100
