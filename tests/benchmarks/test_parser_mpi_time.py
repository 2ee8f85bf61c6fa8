"""The file of the library mpi_time, and the steps of NPB that run with it."""

from __future__ import annotations

import re
import shutil
import zlib

import parser_cases as cases
import pytest

from seatrial.benchmarks import mpi_time
from seatrial.benchmarks.benchmark import Job
from seatrial.benchmarks.hpcc import HPCC, HPCCSettings
from seatrial.benchmarks.hpl import HPL, HPLSettings
from seatrial.benchmarks.npb import NPB, NPBSettings
from seatrial.benchmarks.parsing import ParseError

FILE = "mpi_time_is_S2.txt"
PROGRAMS = {"npb_is": ["/b/is"], "npb_ep": ["/b/ep"], "mpi_time": ["/b/mpi_time.so"]}


def sealed(text: str) -> str:
    own = text[: text.rindex("# crc32")]
    return f"{own}# crc32 {zlib.crc32(own.encode()):08x}\n"


def test_the_figures_of_a_recorded_run():
    parsed = cases.read(FILE)
    mpi = 6049 + 28673 + 9139476 + 98286 + 543562 + 1532 + 9114 + 22284 + 440498 + 95163 + 493365
    run = 13909236 + 13607236
    assert parsed.value("mpi_percent") == pytest.approx(100 * mpi / run)
    fact = parsed.facts["mpi"]
    assert fact["ranks"] == 2
    assert fact["run_s"] == pytest.approx(run / 2e9)
    assert fact["mpi_s"] == pytest.approx(mpi / 2e9)
    assert fact["calls"] == 73
    assert fact["bytes"] == 4 + 12 + 2 * 22748 + 2 * 88 + 1446636 + 1436948
    assert fact["by_call"]["MPI_Alltoallv"] == {
        "calls": 22, "s": pytest.approx(1.036927e-3), "bytes": 2883584
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("1 run 1 13607236 0\n", "", "run time of 2 ranks, found 1"),
        (": 2 ranks", ": 3 ranks", "run time of 3 ranks, found 2"),
        ("MPI_Alltoall 11 98286", "MPI_Alltoall 11 98286000000", "the run time"),
        ("MPI_Alltoall 11", "MPI_Alltoall x", "line 7: expected 'RANK CALL"),
        ("# rank call", "# call", "line 2"),
        ("1 run", "0 clock 2 90 9\n0 clock 2 91 9\n1 run", "a reading of the clock after the one"),
        ("1 run", "0 clock 1 90 9\n0 clock 2 89 9\n1 run", "a reading of the clock after the one"),
        ("1 run", "0 clock 1 90 9\n0 clock 2 91 8\n1 run", "a reading of the clock after the one"),
        ("1 run", "0 clock 1 15000000 9\n1 run", "line 9: expected a reading .* within the run"),
        ("1 run", "0 clock 1 10 9\n0 clock 2 5000 9000\n1 run", "line 10: expected at most 4990"),
        ("1 run", "0 run 1 14000000 0\n1 run", "line 9: a second row run of rank 0"),
        ("1 run", "0 MPI_Send 1 5 4\n1 run", "line 9: a second row MPI_Send of rank 0"),
        ("1 run", "7 MPI_Send 1 5 4\n1 run", "line 9: expected a rank below 2, found 7"),
        (": 2 ranks", ": 99999999999 ranks", "run time of 99999999999 ranks, found 2"),
    ],
)
def test_a_file_that_contradicts_itself(old, new, reason):
    text = cases.text(FILE)
    assert old in text
    with pytest.raises(ParseError, match=reason):
        mpi_time.parse(sealed(text.replace(old, new, 1)))


def test_more_readings_than_the_library_keeps():
    """The parts are as many as their square."""
    rows = "".join(f"0 clock {i} {i} 0\n" for i in range(1, 502))
    text = cases.text(FILE)
    most = text.replace("1 run", rows[: rows.index("0 clock 501")] + "1 run")
    assert mpi_time.parse(sealed(most)).facts["mpi"]["ranks"] == 2
    with pytest.raises(ParseError, match="line 509: expected at most 500 readings"):
        mpi_time.parse(sealed(text.replace("1 run", f"{rows}1 run")))


@pytest.mark.parametrize(
    "changed",
    [
        {"mpi_s": 2.1}, {"timed_s": 2.1}, {"timed_mpi_s": 0.6}, {"run_s": float("inf")},
        {"calls": 10**400}, {"bytes": 10**400}, {"ranks": 10**400},
        {"by_call": {"MPI_Send": {"calls": 10**400, "s": 0.1, "bytes": 1}}},
    ],
)  # fmt: skip
def test_a_record_that_contradicts_itself_is_not_measured(changed):
    fact = {
        "ranks": 2, "run_s": 2.0, "mpi_s": 2.0, "calls": 1, "bytes": 1, "by_call": {},
        "timed_s": 0.5, "timed_mpi_s": 0.5,
    }  # fmt: skip
    assert mpi_time.measured({"mpi": fact})
    assert mpi_time.measured({"mpi": fact | {"timed_mpi_s": 0.5 + 1e-9}})
    assert mpi_time.measured({"mpi": fact | changed}) is None


def with_clock(*ranks: list[tuple[float, float]]) -> str:
    """The recorded run, of 40 ms, with readings of the clock in ms: of the run, of these in MPI."""
    rows = [
        f"{rank} clock {number} {round(ms * 10**6)} {round(mpi_ms * 10**6)}\n"
        for rank, own in enumerate(ranks)
        for number, (ms, mpi_ms) in enumerate(own, 1)
    ]
    text = re.sub(r"run 1 \d+", "run 1 40000000", cases.text(FILE))
    return sealed(text.replace("# crc32", f"{''.join(rows)}# crc32"))


def part(text: str, seconds: float | None, rounding: float = 5e-6) -> tuple[float, float] | None:
    fact = mpi_time.measured(mpi_time.parse(text, seconds, rounding).facts)
    assert fact
    return fact.timed_s and (fact.timed_s, fact.timed_mpi_s)


def test_the_part_that_is_as_long_as_the_program_says():
    """Of the second rank, as programs print the longest time; both ranks count."""
    text = with_clock([(1, 1), (3, 2), (7, 4), (9, 5)], [(1, 1), (3, 1), (8, 2), (9, 3)])
    assert part(text, 0.005) == pytest.approx((0.0045, 0.0015))
    assert part(text, 0.00501, 0.003) == pytest.approx((0.0045, 0.0015))  # as it is printed
    assert part(text, 0.00501, 0.001) is None
    assert part(text, None) is None
    assert part(cases.text(FILE), 0.005) is None


def test_a_part_that_is_not_certain_is_none():
    """Two parts of one length, of which one is in MPI."""
    text = with_clock([(1, 0), (3, 0), (5, 2)], [(1, 0), (3, 0), (5, 2)])
    assert part(text, 0.002) is None
    assert part(text, 0.004) == pytest.approx((0.004, 0.002))
    alike = with_clock([(1, 0), (3, 1), (5, 2)], [(1, 0), (3, 1), (5, 2)])
    assert part(alike, 0.002) == pytest.approx((0.002, 0.001))


def test_all_parts_within_the_rounding_must_agree():
    """Of 2 and 2.004 ms, the second one in MPI; the figure may be of either if it is 2.00 ms."""
    own = [(1, 0), (3, 0), (5.004, 2.004)]
    text = with_clock(own, own)
    assert part(text, 0.002, 0.0025) is None
    assert part(text, 0.002, 0.001) == (pytest.approx(0.002), 0)
    assert part(text, 0.002004, 0.001) == pytest.approx((0.002004, 0.002004))


@pytest.mark.parametrize(
    ("ns", "known"),
    [(39_612_000, True), (39_634_000, True), (39_640_000, False)],
)
def test_the_part_of_IS_is_within_the_two_decimals_of_its_rate(tmp_path, ns, known):
    """16.54 Mop/s of 655360 keys are 39.611 to 39.635 ms."""
    benchmark, job = npb(mpi_time=["openmpi-*"])
    _, step = benchmark.steps(job)
    printed = cases.text("npb_is_S2.txt")
    for name, value in (("Time in seconds", "0.04"), ("Mop/s total", "16.54"),
                        ("Mop/s/process", "8.27")):  # fmt: skip
        printed, count = re.subn(rf"({name} *= *)\S+", rf"\g<1>{value}", printed)
        assert count == 1
    (tmp_path / f"{step.name}.out").write_text(printed)
    own = [(0.1, 0), (0.1 + ns / 1e6, 2)]
    (tmp_path / mpi_time.file_of(step.name)).write_text(with_clock(own, own))
    fact = benchmark.parse(step, tmp_path, job).facts["mpi"]
    assert ("timed_s" in fact) == known


def test_a_file_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(mpi_time, "_MOST_BYTES", 100)
    benchmark, job = npb(mpi_time=["openmpi-*"])
    _, step = benchmark.steps(job)
    shutil.copy(cases.DATA / "npb_is_S2.txt", tmp_path / f"{step.name}.out")
    shutil.copy(cases.DATA / FILE, tmp_path / mpi_time.file_of(step.name))
    with pytest.raises(ParseError, match=r"npb-is-mpi\.calls\.out: expected at most 100 bytes"):
        benchmark.parse(step, tmp_path, job)


def test_ranks_with_more_readings_before_the_part():
    """Readings are counted from the last one; the part must be alike on all ranks."""
    few, more = [(10, 1), (20, 2), (22, 3)], [(1, 0), (2, 0), (10, 1), (19, 3), (22, 3)]
    assert part(with_clock(few, more), 0.01) == pytest.approx((0.0095, 0.0015))
    late = [*more, (32, 3)]  # the second rank has a further reading after the part
    assert part(with_clock(few, late), 0.01) is None
    assert part(with_clock(few, []), 0.01) is None


def npb(**settings) -> tuple[NPB, Job]:
    return NPB(NPBSettings(kernels=["is"], **settings)), Job(2, "openmpi-tcp", PROGRAMS)


def test_a_kernel_runs_once_more_with_the_library():
    benchmark, job = npb(mpi_time=["openmpi-*"])
    plain, timed = benchmark.steps(job)
    assert plain.command == ["/b/is", "2", "S"]
    assert timed.command[-3:] == plain.command
    assert "/b/mpi_time.so" in timed.command
    assert (plain.variant, timed.variant) == ("is.S", "is.S")
    assert benchmark.metrics()["mpi_percent"].unit == "percent"
    benchmark, job = npb()
    assert len(benchmark.steps(job)) == 1
    assert "mpi_percent" not in benchmark.metrics()


def test_a_stack_without_the_library_says_so_and_runs_the_kernel():
    benchmark, _ = npb(mpi_time=["openmpi-*"])
    without = {"npb_is": ["/b/is"]}
    assert len(benchmark.steps(Job(2, "openmpi-tcp", without))) == 1
    assert "no library mpi_time" in benchmark.not_measured("openmpi-tcp", without)
    assert benchmark.not_measured("openmpi-tcp", PROGRAMS) == ""
    assert benchmark.not_measured("mpich-ofi", without) == ""  # not asked for
    assert len(benchmark.steps(Job(2, "mpich-ofi", PROGRAMS))) == 1
    assert npb()[0].not_measured("openmpi-tcp", without) == ""


def test_a_run_with_the_library_gives_the_share_alone(tmp_path):
    """Its rate is not that of the program without the library."""
    benchmark, job = npb(mpi_time=["openmpi-*"])
    _, step = benchmark.steps(job)
    shutil.copy(cases.DATA / "npb_is_S2.txt", tmp_path / f"{step.name}.out")
    with pytest.raises(ParseError, match=r"mpi_time wrote no npb-is-mpi\.calls\.out"):
        benchmark.parse(step, tmp_path, job)
    file = tmp_path / step.command[step.command.index("/b/mpi_time.so") + 1]
    shutil.copy(cases.DATA / FILE, file)
    parsed = benchmark.parse(step, tmp_path, job)
    assert [metric.metric for metric in parsed.metrics] == ["mpi_percent"]
    plain = cases.read("npb_is_S2.txt")
    assert parsed.facts["mpi"]["performance"] == plain.value("mops")
    assert parsed.moved_bytes == plain.moved_bytes
    file.write_text(file.read_text()[:-20])
    with pytest.raises(ParseError, match=r"npb-is-mpi\.calls\.out: .*cut off"):
        benchmark.parse(step, tmp_path, job)


HPL_PROGRAMS = {
    "hpcc": ["/usr/bin/env", "HPCC_TESTS=SingleDGEMM,StarDGEMM,HPL", "/b/hpcc"],
    "mpi_time": ["/b/mpi_time.so"],
}


def test_HPL_is_the_only_test_of_hpcc_with_the_library(tmp_path):
    """In the others ranks wait for one, which is no communication of HPL."""
    benchmark = HPL(HPLSettings(blas=["openblas"], mpi_time=["openmpi-*"]))
    job = Job(2, "openmpi-tcp", HPL_PROGRAMS, blas={"openblas": "/blas"})
    *plain, timed = benchmark.steps(job)
    assert [step.name for step in plain] == [
        "dgemm-openblas-before", "hpl-openblas", "dgemm-openblas-after",
    ]  # fmt: skip
    assert timed.command[-2:] == ["/usr/bin/env", "/b/hpcc"]
    assert timed.env["HPCC_TESTS"] == "HPL"
    assert timed.env["LD_LIBRARY_PATH"] == "/blas"
    folder = tmp_path / timed.name
    folder.mkdir()
    shutil.copy(cases.DATA / "hpccoutf_hpl.txt", folder / "hpccoutf.txt")
    shutil.copy(cases.DATA / FILE, folder / mpi_time.file_of(timed.name))
    parsed = benchmark.parse(timed, tmp_path, job)
    assert [metric.metric for metric in parsed.metrics] == ["mpi_percent"]
    assert parsed.facts["mpi"]["performance"] == cases.read("hpccoutf_hpl.txt").value("hpl_GFLOPS")
    assert parsed.moved_bytes > 0
    assert benchmark.not_measured("openmpi-tcp", {"hpcc": ["/b/hpcc"]}).endswith(
        "no library mpi_time"
    )
    assert len(HPL(HPLSettings(blas=["openblas"])).steps(job)) == 3


def test_xhpl_runs_with_the_library():
    benchmark = HPL(HPLSettings(blas=["openblas"], mpi_time=["openmpi-*"]))
    programs = {"xhpl.openblas": ["/b/xhpl"], "mpi_time": ["/b/mpi_time.so"]}
    job = Job(2, "openmpi-tcp", programs, blas={"openblas": "/blas"})
    timed = benchmark.steps(job)[-1]
    assert timed.command[-1] == "/b/xhpl"
    assert any("HPL.dat" in line for line in timed.setup)


def test_each_test_of_hpcc_runs_once_more_with_the_library(tmp_path):
    benchmark = HPCC(HPCCSettings(tests=["mpifft", "ptrans"], mpi_time=["openmpi-*"]))
    programs = {"hpcc_all": ["/b/hpcc"], "mpi_time": ["/b/mpi_time.so"]}
    job = Job(2, "openmpi-tcp", programs)
    steps = benchmark.steps(job)
    assert [(step.name, step.variant) for step in steps] == [
        ("hpcc-mpifft", "mpifft"), ("hpcc-mpifft-mpi", "mpifft"),
        ("hpcc-ptrans", "ptrans"), ("hpcc-ptrans-mpi", "ptrans"),
    ]  # fmt: skip
    timed = steps[1]
    assert timed.env["HPCC_TESTS"] == "MPIFFT"
    folder = tmp_path / timed.name
    folder.mkdir()
    shutil.copy(cases.DATA / "hpccoutf_mpifft.txt", folder / "hpccoutf.txt")
    shutil.copy(cases.DATA / FILE, folder / mpi_time.file_of(timed.name))
    parsed = benchmark.parse(timed, tmp_path, job)
    assert [metric.metric for metric in parsed.metrics] == ["mpi_percent"]
    assert parsed.facts["mpi"]["performance"] == cases.read("hpccoutf_mpifft.txt").value("time_s")
    assert "mpi_percent" in benchmark.metrics()
    assert benchmark.not_measured("openmpi-tcp", {"hpcc_all": ["/b/hpcc"]})
