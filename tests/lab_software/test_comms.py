"""The program ``comms``: the order of its calls, what it verifies, its options, its two outputs."""

import re
from functools import partial

import numpy as np
import pytest

from seatrial.base.files import sha256
from seatrial.benchmarks import comms, comms_times
from seatrial_lab.software import describe
from seatrial_lab.software.packages import RELEASES
from seatrial_lab.software.steps import COMMS

GO, DATA, DONE, SENT = 1, 2, 3, 4  # tags


def test_the_recipe_has_the_checksum_and_the_version_of_the_source(tmp_path):
    recipe = COMMS.with_name("package.py").read_text()
    assert re.search(r'sha256="(\w+)"', recipe)[1] == sha256(COMMS)
    version = re.search(r'#define VERSION "(\S+)"', COMMS.read_text())[1]
    assert re.search(r'version\(\s*"(\S+)"', recipe)[1] == version
    stack = describe.describe(tmp_path, "12", RELEASES["12"], dict.fromkeys(["libucx0"], "1"))
    assert stack.versions["comms"] == version


@pytest.fixture
def run(start):
    """Runs comms: options, ranks and further variables."""
    return partial(start, "comms", ranks=2)


@pytest.mark.stack
def test_table_and_file_agree(run, tmp_path):
    done = run("-u", 200_000, "-p", 2, "-r", 11, "-w", 3, "-o", "times.raw")
    assert done.returncode == 0, done.stderr
    table, times = comms.parse(done.stdout), comms_times.read_times(tmp_path / "times.raw")
    assert times.sizes.tolist() == comms.schedule(1, 200_000, 2)
    assert times.ns.shape == (12, 2, 4, 11)
    assert times.warmup == table.facts["warmup"] == 3
    assert table.facts["clock"] == times.clock == "CLOCK_MONOTONIC"
    assert table.facts["clock_step_ns"] == list(times.step_ns)
    assert table.facts["clock_cost_ns"] == [round(cost, 1) for cost in times.cost_ns]
    latency = np.median(times.round_trip_us(0), axis=1) / 2
    assert [y for _, y in table.curves[0].points] == pytest.approx(latency, abs=1e-4)
    for call in comms.CALLS:
        for rank in range(2):
            name = f"comms {call}_us rank {rank}"
            curve = next(curve for curve in table.curves if curve.name == name)
            middle = np.median(times.us(call, rank), axis=1)
            assert [y for _, y in curve.points] == pytest.approx(middle, abs=1e-4)


@pytest.mark.stack
def test_calls_are_those_of_the_method(run, preload, tmp_path):
    """Each timed call follows what it must follow, and as much is moved as the parser says."""
    repetitions, warmup, size = 3, 2, 1000
    options = ["-l", size, "-u", size, "-r", repetitions, "-w", warmup]
    done = run(*options, LD_PRELOAD=preload, MPI_CALLS_FILE=tmp_path / "calls")
    assert done.returncode == 0, done.stderr
    moved = comms.parse(done.stdout).moved_bytes
    assert moved == 5 * repetitions * size
    sends, receives = f"Send {DATA} {size}", f"Recv {DATA} {size}"
    ping_pong = [
        [f"Send {GO} 1", receives, sends, receives, f"Send {DONE} 1"],
        [f"Recv {GO} 1", sends, receives, sends, f"Recv {DONE} 1"],
    ]
    first = [f"Isend {DATA} {size}", f"Send {SENT} 1", "Wait 0 0"]
    then = [f"Recv {SENT} 1", f"Iprobe-there {DATA} 0", receives]
    ready = [first + then, then + first]
    for rank in range(2):
        lines = (tmp_path / f"calls.{rank}").read_text().splitlines()
        calls: list[str] = []
        for line in lines:
            call, tag, _ = line.split()
            seen_again = call == "Iprobe-there" and calls[-1] == line
            if call != "Iprobe" and int(tag) <= SENT and not seen_again:
                calls.append(line)
        times = repetitions + warmup
        assert calls == ping_pong[rank] * times + ready[rank] * times
        carried = [int(line.split()[2]) for line in calls if line.split()[1] == str(DATA)]
        assert sum(carried) == 5 * times * size >= moved


@pytest.mark.stack
@pytest.mark.parametrize(
    ("rank", "slow", "calls"),
    [(0, "Send", ["send"]), (1, "Isend", ["isend"]), (1, "Recv", ["recv", "recv_ready"])],
)
def test_each_time_is_that_of_its_call(run, preload, tmp_path, rank, slow, calls):
    """A call that is made to last 3 ms longer does so in its own times, on its own rank."""
    options = ["-l", 8, "-u", 8, "-r", 6, "-w", 1, "-o", "times.raw"]
    done = run(*options, LD_PRELOAD=preload, MPI_CALLS_SLOW=f"{rank} {slow}")
    assert done.returncode == 0, done.stderr
    times = comms_times.read_times(tmp_path / "times.raw")
    for call in calls:
        assert times.us(call, rank).min() >= 3000


@pytest.mark.stack
@pytest.mark.parametrize(("size", "rank", "nth"), [(1, 1, 12), (100, 0, 4), (10_001, 1, 3)])
@pytest.mark.parametrize("kind", ["flip", "lost", "short"])
def test_a_message_that_differs_ends_the_run(run, preload, size, rank, nth, kind):
    damage = f"{rank} {DATA} {nth} {kind}"  # the 12th is of the ready part
    options = ["-l", size, "-u", size, "-r", 8, "-w", 2]
    done = run(*options, LD_PRELOAD=preload, MPI_CALLS_DAMAGE=damage)
    assert done.returncode == 3
    if kind == "short":
        said = f"expected a message of {size} bytes, received {size - 1}"
    elif kind == "flip":
        said = rf"byte {size - 1} was sent as 0x\w\w and received as 0x\w\w"
    else:
        said = r"byte 0 was sent as 0x\w\w and received as 0x\w\w"
    assert re.search(rf"comms: rank {rank}: repetition \d+ of {size} bytes: {said}", done.stderr)
    assert "crc32" not in done.stdout


@pytest.mark.stack
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-x"], "there is no option -x"),
        (["-r"], "option -r needs a value"),
        (["-r", "0"], "option -r does not take '0'"),
        (["-r", "100001"], "option -r does not take '100001'"),
        (["-w", "0"], "option -w does not take '0'"),
        (["-p", "101"], "option -p does not take '101'"),
        (["-u", "1e6"], "option -u does not take '1e6'"),
        (["-u", "1073741825"], "option -u does not take '1073741825'"),
        (["-l", "-5"], "option -l does not take '-5'"),
        (["-l", "99999999999999999999"], "option -l does not take '99999999999999999999'"),
        (["-l", "10", "-u", "9"], "the smallest message (-l 10) is larger than the largest (-u 9)"),
        (["-o", ""], "option -o does not take ''"),
        (["more"], "'more' is not an option"),
        ([], "expected two ranks, started with 1"),
    ],
)
def test_wrong_options_are_explained(run, options, said):
    done = run(*options, ranks=1)
    assert done.returncode == 2
    assert f"comms: {said}\nusage: comms " in done.stderr
    assert done.stdout == ""


@pytest.mark.stack
def test_two_ranks_and_no_other_number(run):
    done = run(ranks=3)
    assert done.returncode == 2
    assert done.stderr.count("comms: expected two ranks, started with 3\n") == 1


@pytest.mark.stack
def test_help_is_no_error(run):
    done = run("-h", ranks=1)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: comms ")


@pytest.mark.stack
@pytest.mark.parametrize("file", ["/dev/full", "missing/times.raw"])
def test_a_file_that_cannot_be_written_ends_the_run(run, file):
    done = run("-u", 10, "-r", 2000, "-o", file)
    assert done.returncode == 4
    assert re.search(rf"comms: rank 0: cannot (open|write) {file}: No s", done.stderr)
