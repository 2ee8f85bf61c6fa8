"""The program ``mpi_bench``: what each mode sends and times, what it verifies, and its options."""

from functools import partial

import pytest

from seatrial.benchmarks import mpbench

pytestmark = pytest.mark.stack

LARGEST, COUNT, ROWS = 64, 3, 2
TABLE = ["-i", COUNT, "-e", ROWS, "-m", 6, "-x", 0]
PAUSE_US = 3000  # of MPI_CALLS_SLOW (mpi_calls.c)


@pytest.fixture
def run(start):
    """Runs mpi_bench: options, ranks and further variables."""
    return partial(start, "mpbench", ranks=2)


def parsed(mode, text, ranks=2):
    return mpbench.parse(
        text, mode, largest=LARGEST, iterations=COUNT, repeats=ROWS, ranks=ranks
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("mode", mpbench.OPTIONS)
def test_the_table_is_that_of_mpbench(run, mode, ranks):
    done = run(mpbench.OPTIONS[mode], *TABLE, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert set(parsed(mode, done.stdout, ranks).curves[0].points)


@pytest.mark.parametrize("mode", ["gap", "roundtrip", "bandwidth", "bidirectional"])
def test_it_sends_what_the_parser_counts(run, preload, tmp_path, mode):
    done = run(mpbench.OPTIONS[mode], *TABLE, LD_PRELOAD=preload, MPI_CALLS_FILE=tmp_path / "calls")
    assert done.returncode == 0, done.stderr
    sent = 0
    for rank in range(2):
        for line in (tmp_path / f"calls.{rank}").read_text().splitlines():
            call, tag, count = line.split()
            if call in ("Send", "Isend") and int(tag) == 1:
                sent += int(count)
    volume = parsed(mode, done.stdout).moved_bytes
    # one message of each size is sent before its rows and is not counted
    assert sent == volume + volume // (COUNT * ROWS)


def test_the_gap_is_the_time_of_the_sends_alone(run, preload):
    slow = partial(run, *TABLE, LD_PRELOAD=preload)
    receiver = {
        mode: slow(mpbench.OPTIONS[mode], MPI_CALLS_SLOW="1 Recv").stdout
        for mode in ("gap", "bandwidth", "roundtrip")
    }
    # the least of all sizes: a busy machine may stop the sender for as long
    assert min(time for _, time in parsed("gap", receiver["gap"]).curves[0].points) < PAUSE_US
    # the other modes end when the receiver has all
    rate = parsed("bandwidth", receiver["bandwidth"]).value("bandwidth_MB_s")
    assert LARGEST / rate > PAUSE_US
    assert 2 * parsed("roundtrip", receiver["roundtrip"]).value("latency_us") > PAUSE_US
    sender = slow("-l", MPI_CALLS_SLOW="0 Send").stdout
    assert parsed("gap", sender).value("gap_us") > PAUSE_US


@pytest.mark.parametrize(("mode", "nth"), [("-l", 1 + COUNT), ("-r", 1 + COUNT), ("-b", 1 + COUNT)])
def test_a_message_that_differs_ends_the_program(run, preload, mode, nth):
    done = run(mode, *TABLE, LD_PRELOAD=preload, MPI_CALLS_DAMAGE=f"1 1 {nth} flip")
    assert done.returncode != 0
    assert "byte 3 of a message of 4 bytes differs" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-l"], "expected two ranks or more, started with 1"),
        ([], "no mode is chosen"),
        (["-l", "-r"], "-l and -r: one mode at a time"),
        (["-l", "-i", 0], "option -i does not take '0'"),
        (["-l", "-m", 31], "option -m does not take '31'"),
        (["-l", "-x", 1], "option -x does not take '1'"),
        (["-l", "-e"], "option -e needs a value"),
        (["-q"], "there is no option -q"),
        (["-l", "more"], "'more' is not an option"),
    ],
)
def test_wrong_use_is_named(run, options, words):
    done = run(*options, ranks=1)
    assert done.returncode == 2
    assert f"mpi_bench: {words}\n" in done.stderr
    assert "usage: mpi_bench" in done.stderr
