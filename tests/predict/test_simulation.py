"""SimGrid itself: the calibrated network in a simulation, a program in C, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from analysis_maker import (
    ETHERNET_RECV,
    ETHERNET_SEND,
    MYRINET_RECV,
    MYRINET_SEND,
    SIZES,
    K,
    measured,
    npb_time,
    trial,
)
from seatrial.analysis.conclusion import Inputs, Measured
from seatrial.base.errors import InputError, LabError
from seatrial.base.run import run
from seatrial.benchmarks.parsing import latency_curve
from seatrial.cli import app
from seatrial.cli.predict import _counts as counts
from seatrial.predict import programs, simulation
from seatrial.predict.calibration import Network, calibrate
from seatrial.predict.calibration import network as network_of
from seatrial.predict.programs import build_counter, build_pingpong, check_program
from seatrial.predict.simulation import Messages
from seatrial.results.folder import RESULTS_FILE, write_results
from seatrial.results.record import Curve
from suite_maker import make_suite

needs_simgrid = pytest.mark.simgrid
EAGER = 10_240
ALLTOALL = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int ranks, size = atoi(argv[1]), times = argc > 2 ? atoi(argv[2]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc(ranks, size), *in = calloc(ranks, size);
    for (int i = 0; i < times; i++)
        MPI_Alltoall(out, size, MPI_CHAR, in, size, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Finalize();
    return times == 0;
}
"""

#: each with each, one partner after the other, 6 kB to 10 kB a message, ten times
IN_STEPS = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, ranks, most = 10000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc(most, 1), *in = calloc(most, 1);
    srand(rank + 1);
    for (int i = 0; i < 10; i++)
        for (int step = 1; step < ranks; step++)
            MPI_Sendrecv(out, 6000 + rand() % 4001, MPI_CHAR, rank ^ step, 0, in, most, MPI_CHAR,
                         rank ^ step, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"""

PRINTS = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    puts("Loop time of 12.5 on 2 procs");
    MPI_Finalize();
    return 0;
}
"""

SUM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int one = 7, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    printf("%d\\n", sum);
    MPI_Finalize();
    return 0;
}
"""

#: of the same number of bytes to each
ALLTOALLV = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int ranks, size = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc(ranks, size), *in = calloc(ranks, size);
    int *sizes = calloc(ranks, sizeof *sizes), *at = calloc(ranks, sizeof *at);
    for (int i = 0; i < ranks; i++) {
        sizes[i] = size;
        at[i] = i * size;
    }
    MPI_Alltoallv(out, sizes, at, MPI_CHAR, in, sizes, at, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def run_of_comms():
    run = measured(MYRINET_SEND, MYRINET_RECV, {"eager_limit_B": EAGER}).run
    half = [(n, 30 + n / 100 + (40 if n > EAGER else 0)) for n in SIZES]
    run.curves.append(latency_curve("comms", half))
    for call, us in (("isend", 3.0), ("recv_ready", 5.0)):
        points = [(float(n), us + n / 2000) for n in SIZES]
        for rank in (0, 1):
            name = f"comms {call}_us rank {rank}"
            run.curves.append(Curve(name=name, y_name="time", y_unit="us", points=points))
    return run


@pytest.fixture
def network():
    return calibrate([Measured("t1", run_of_comms())])


@needs_simgrid
def test_the_simulated_round_trips_are_the_measured_ones(network, tmp_path):
    pingpong = build_pingpong(tmp_path)
    sizes = list(network.half_round_trips)
    simulated = simulation.half_round_trips(pingpong, network, sizes, 60)
    for size, seconds in network.half_round_trips.items():
        assert simulated[size] == pytest.approx(seconds, rel=0.02), size


@needs_simgrid
def test_messages_at_one_time_share_the_link_of_a_node(network, tmp_path):
    """100 MB/s: of eight nodes each sends 7 MB, however the messages follow one another."""
    source = tmp_path / "alltoall.c"
    source.write_text(ALLTOALL)
    program = simulation.compile_c([source], tmp_path / "alltoall")
    done = simulation.simulate([program, 10**6], 8, network, speed=1e6)
    assert done.seconds == pytest.approx(0.07, rel=0.1)
    with pytest.raises(LabError, match="simulating alltoall on 2 nodes failed"):
        simulation.simulate([program, 10, 0], 2, network)


#: messages of ten sizes and kinds, 1 kB to 10 kB, and what is no message
KINDS = """
#include <mpi.h>
int main(int argc, char **argv)
{
    static char out[40000], in[40000];
    int rank, counts[] = {4000, 4000, 4000, 4000}, at[] = {0, 10000, 20000, 30000};
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm world = MPI_COMM_WORLD;
    int next = (rank + 1) % 4, last = (rank + 3) % 4;
    MPI_Isend(out, 500, MPI_SHORT, next, 0, world, &request);
    MPI_Recv(in, 500, MPI_SHORT, last, 0, world, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Sendrecv(out, 2000, MPI_CHAR, next, 0, in, 2000, MPI_CHAR, last, 0, world,
                 MPI_STATUS_IGNORE);
    MPI_Send(out, 9999, MPI_CHAR, MPI_PROC_NULL, 0, world);
    MPI_Bcast(out, 3000, MPI_CHAR, 0, world);
    MPI_Alltoallv(out, counts, at, MPI_CHAR, in, counts, at, MPI_CHAR, world);
    MPI_Gather(out, 5000, MPI_CHAR, in, 5000, MPI_CHAR, 0, world);
    MPI_Allreduce(out, in, 750, MPI_DOUBLE, MPI_SUM, world);
    MPI_Allgather(out, 7000, MPI_CHAR, in, 7000, MPI_CHAR, world);
    MPI_Barrier(world);
    MPI_Finalize();
    return 0;
}
"""


@needs_simgrid
def test_messages_are_counted_by_what_one_partner_gets(network, tmp_path):
    source = tmp_path / "kinds.c"
    source.write_text(KINDS)
    program = simulation.compile_c([source], tmp_path / "kinds")
    assert simulation.simulate([program], 4, network).messages is None
    counter = build_counter(tmp_path)
    done = simulation.simulate([program], 4, network, counter=(counter, 5000))
    # size -> number: to others, but of Alltoallv to itself, too
    sizes = {1000: 4, 2000: 4, 3000: 3, 4000: 16, 5000: 3, 6000: 4, 7000: 12}
    total = sum(size * times for size, times in sizes.items())
    beyond = 6000 * 4 + 7000 * 12
    assert done.messages == Messages(sum(sizes.values()), total, 7000, beyond)


@needs_simgrid
def test_ranks_that_drift_apart_do_not_stop_one_another(tmp_path):
    """1 MB/s, messages below the eager limit: little slower than if each took the longest time."""
    half = {float(n): 10.0 + n for n in SIZES}
    no_calls = {"send": {}, "isend": {}, "recv_ready": {}}
    ranges, eager, sizes = network_of(half, no_calls, 64 * K)
    source = tmp_path / "steps.c"
    source.write_text(IN_STEPS)
    program = simulation.compile_c([source], tmp_path / "steps")
    slow = Network(ranges, eager, sizes, {}, "made up", Inputs((), (), 0))
    done = simulation.simulate([program], 16, slow, speed=1e6)
    steps = 10 * 15
    assert steps * 0.008 < done.seconds < steps * 0.0115


@pytest.mark.parametrize(
    ("selector", "ranks", "algorithm"),
    [
        *(("ompi", ranks, "pairwise") for ranks in (2, 3, 64, 127, 256, 1023)),
        *(("ompi", ranks, "linear") for ranks in (4, 63, 128, 255, 1024, 4096)),
        ("mpich", 32, "linear"),
        ("mpich", 33, ""),
        ("impi", 8, ""),
    ],
)
def test_the_algorithm_of_alltoallv_is_that_of_the_MPI(selector, ranks, algorithm):
    assert simulation.own_alltoallv(selector, ranks) == algorithm


@needs_simgrid
def test_alltoallv_runs_on_any_number_of_ranks_and_by_either_algorithm(network, tmp_path):
    """100 MB/s, 1 MB to each: SMPI's own choice for three ranks of Open MPI stops the program."""
    source = tmp_path / "alltoallv.c"
    source.write_text(ALLTOALLV)
    program = simulation.compile_c([source], tmp_path / "alltoallv")
    for ranks, asked, algorithm in ((3, "", "pairwise"), (6, "", "linear"), (6, "pairwise", "")):
        done = simulation.simulate([program, 10**6], ranks, network, speed=1e6, alltoallv=asked)
        assert done.seconds == pytest.approx((ranks - 1) * 0.01, rel=0.1)
        assert (done.alltoallv, done.asked) == (algorithm or asked, bool(asked))


@needs_simgrid
def test_the_published_slowdown_of_FT_is_not_in_the_published_models(tmp_path):
    """Tessera: 8.90 s on 32 processes and 11.21 s on 64, computing 1.72 and 0.90 s.

    Its transposes (16 B a point, all with all, seven times) over the published models of Fast
    Ethernet take less time on 64 and not more: the slowdown is of the fabric or of two processes a
    node. docs/what-figures-mean.md says so.
    """
    half = {float(n): (ETHERNET_SEND.at(n).us + ETHERNET_RECV.at(n).us) / 2 for n in SIZES}
    no_calls = {"send": {}, "isend": {}, "recv_ready": {}}
    ranges, eager, sizes = network_of(half, no_calls, 256 * K)
    fabric = Network(ranges, eager, sizes, {}, "Tessera", Inputs((), (), 0))
    source = tmp_path / "alltoall.c"
    source.write_text(ALLTOALL)
    program = simulation.compile_c([source], tmp_path / "alltoall")
    points = 256 * 256 * 128
    total = {
        p: computing
        + simulation.simulate([program, 16 * points // p**2, 7], p, fabric, speed=1e6).seconds
        for p, computing in ((32, 1.72), (64, 0.90))
    }
    assert total[32] == pytest.approx(4.6, rel=0.05)
    assert total[64] == pytest.approx(2.4, rel=0.05)


@needs_simgrid
def test_a_simulation_that_takes_too_long_is_ended(network, tmp_path):
    source = tmp_path / "endless.c"
    source.write_text("#include <mpi.h>\nint main(int c, char **v)\n{ for (;;); }\n")
    program = simulation.compile_c([source], tmp_path / "endless")
    for nodes, hint in (
        (2, "such as --limit 10"),
        (4, "its 12 messages at once.* --alltoallv pair"),
    ):
        with pytest.raises(LabError, match=f"longer than 1 s of a processor.*{hint}") as error:
            simulation.simulate([program], nodes, network, limit_s=1)
    assert "--limit 10." in str(error.value)


@needs_simgrid
def test_a_simulation_that_waits_is_ended(network, tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "_PATIENCE", 1)
    source = tmp_path / "waits.c"
    source.write_text("#include <unistd.h>\nint main(int c, char **v)\n{ for (;;) pause(); }\n")
    program = simulation.compile_c([source], tmp_path / "waits")
    with pytest.raises(LabError, match="did not use 1 s of a processor in 1 s"):
        simulation.simulate([program], 2, network, limit_s=1)


def folder_of(tmp_path, runs):
    results = trial(runs, "t1")
    folder = tmp_path / "t1"
    folder.mkdir()
    write_results(folder / RESULTS_FILE, [results.trial, *results.runs])
    return folder


def with_notes(output):
    """Number of nodes -> its prediction with its notes."""
    notes = dict(re.findall(r"^  (\[\d+\]) (.*)", output, re.M))
    predictions = re.findall(r"^(\d+) nodes: (.*)", output, re.M)
    return {n: re.sub(r"\[\d+\]", lambda m: notes[m[0]], text) for n, text in predictions}


def predict(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words)])


@needs_simgrid
@pytest.mark.stack
def test_the_command_predicts_and_compares(tmp_path):
    runs = [run_of_comms(), *(npb_time("is.S", 2, 0.02).run for _ in range(3))]
    done = predict(folder_of(tmp_path, runs), "--class", "S", "--nodes", "2,4,16")
    assert done.exit_code == 0, done.output
    assert "openmpi-tcp under default, SimGrid 3." in done.output
    assert "network: from comms, 10 B to 10000000 B, trial t1" in done.output
    assert "speed of the nodes: this machine's, as no npb ep was measured" in done.output
    assert "measured npb is.S on 2 nodes: 0.02 s (3 samples), predicted 0.0" in done.output
    lines = with_notes(done.output)
    assert "error of the measured cases up to " in lines["4"]
    assert "beyond" not in lines["4"]
    assert "MPI_Alltoallv linear" in lines["4"]
    assert "MPI_Alltoallv had another algorithm in all measured cases" in lines["4"]
    assert "another algorithm" not in lines["2"]
    assert "beyond twice the calibrated range: measured on at most 2 nodes" in lines["16"]


@needs_simgrid
@pytest.mark.stack
def test_a_program_of_ones_own(tmp_path):
    source = tmp_path / "alltoall.c"
    source.write_text(ALLTOALL)
    program = simulation.compile_c([source], tmp_path / "alltoall")
    folder = folder_of(tmp_path, [run_of_comms()])
    done = predict(folder, "--program", f"{program} 1000000", "--nodes", "4")
    assert done.exit_code == 0, done.output
    assert "4 nodes: 0.03" in done.output
    assert "error not known" in done.output
    assert "no measured case says how good it is" in done.output
    words = ("--program", f"{program} 21000000", "--nodes", "4,9", "--measured", "2=0.14, 4=1.26")
    done = predict(folder, *words)
    assert "measured on 2 nodes: 0.14 s (1 sample), predicted 0.2" in done.output
    lines = with_notes(done.output)
    for count in ("4", "9"):
        assert "error of the measured cases up to 5" in lines[count]
        assert "21000000 B have 100 % of its bytes, measured were 10 to 10000000" in lines[count]
    assert "measured on at most 4 nodes" in lines["9"]
    assert "measured on" not in lines["4"]


@needs_simgrid
@pytest.mark.stack
def test_the_time_of_a_program_may_be_what_it_prints(tmp_path):
    source = tmp_path / "prints.c"
    source.write_text(PRINTS)
    program = simulation.compile_c([source], tmp_path / "prints")
    folder = folder_of(tmp_path, [run_of_comms()])
    words = (folder, "--program", program, "--nodes", "2")
    done = predict(*words, "--figure", "Loop time of ([0-9.]+)")
    assert "2 nodes: 12.5 s" in done.output, done.output
    done = predict(*words, "--figure", "Loop time: (.*)")
    assert isinstance(done.exception, LabError)
    assert "its output does not match --figure" in str(done.exception)
    done = predict(*words, "--figure", "(")
    assert isinstance(done.exception, InputError)


@needs_simgrid
@pytest.mark.nightly(reason="a kernel of NPB, built and simulated")
@pytest.mark.stack
def test_a_kernel_of_the_source_of_NPB(tmp_path):
    make_suite(tmp_path / "NPB3.4.3/NPB3.4-MPI")
    runs = [run_of_comms(), npb_time("ft.S", 2, 0.2).run, npb_time("ft.W", 4, 0.2).run]
    folder = folder_of(tmp_path, runs)
    words = ("--benchmark", "npb-ft", "--class", "S", "--nodes", "4,16", "--source", tmp_path)
    done = predict(folder, *words)
    assert done.exit_code == 0, done.output
    assert "measured npb ft.S on 2 nodes: 0.2 s (1 sample), predicted 0.1" in done.output
    assert "measured npb ft.W on 4 nodes: 0.2 s (1 sample), predicted 0.3" in done.output
    lines = with_notes(done.output)
    assert "error of the measured cases up to " in lines["4"]
    assert "beyond" not in lines["4"]
    assert "beyond twice the calibrated range: measured on at most 4 nodes" in lines["16"]


@needs_simgrid
@pytest.mark.parametrize("selector", ["ompi", "mpich", "impi"])
def test_one_node_runs_with_the_collective_operations_of_each_MPI(network, tmp_path, selector):
    source = tmp_path / "sum.c"
    source.write_text(SUM)
    program = simulation.compile_c([source], tmp_path / "sum")
    assert simulation.simulate([program], 1, network, selector=selector).output == "7\n"


def test_numbers_of_nodes_may_be_those_that_double():
    assert counts("2,4,...,256") == [2, 4, 8, 16, 32, 64, 128, 256]
    assert counts("1, 4, ..., 64,100") == [1, 4, 16, 64, 100]


@needs_simgrid
def test_it_says_how_long_a_simulation_has_taken(network, tmp_path):
    source = tmp_path / "works.c"
    source.write_text(
        "#include <time.h>\nint main(int c, char **v)\n"
        "{ while (clock() < 3 * CLOCKS_PER_SEC); return 0; }\n"
    )
    program = simulation.compile_c([source], tmp_path / "works")
    said = []
    simulation.simulate([program], 2, network, limit_s=60, progress=said.append)
    assert said == sorted(said)
    assert 0 < said[-1] < 60


def test_without_SimGrid_it_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"there is no smpirun in PATH; .*apt-get install"):
        simulation.require()
    done = predict(tmp_path)
    assert isinstance(done.exception, LabError)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--nodes", "2,x"), "'x' is no number of nodes from 1 to 4096"),
        (("--nodes", "0"), "'0' is no number"),
        (("--nodes", "2,...,8"), "'...' is no number of nodes"),
        (("--nodes", "2,4,..."), "'...' is no number of nodes"),
        (("--nodes", "2,4,...,100"), "'2,4,...,100': 100 is no multiple that follows 2,4"),
        (("--nodes", "4,2,...,8"), "8 is no multiple that follows 4,2"),
        (("--nodes", "6"), "npb-is does not run on 6 ranks: it needs a power of two"),
        (
            ("--benchmark", "npb-bt", "--nodes", "8"),
            "npb-bt does not run on 8 ranks: it needs a sq",
        ),
        (("--benchmark", "npb-ft"), "npb-ft is built from the source of NPB 3.4"),
        (("--benchmark", "npb-dt"), "'npb-dt' cannot be predicted"),
        (("--measured", "4=1"), "--measured is of a --program"),
        (("--program", "true", "--measured", "4"), "'4' is not NODES=SECONDS"),
        (("--program", "true", "--measured", "4=-1"), "'4=-1' is not NODES=SECONDS"),
        (("--program", "true", "--measured", "x=1"), "--measured: 'x' is no number of nodes"),
        (("--figure", "x"), "--figure is of a --program"),
        (("--program", "true", "--benchmark", "npb-is"), "--benchmark is of the kernels of NPB"),
        (("--program", "true", "--class", "A"), "--class is of the kernels of NPB"),
        (("--class", "X"), "'X' is no class of NPB"),
        (("--alltoallv", "pair"), "'pair' is no algorithm (did you mean 'pairwise'?"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(words, reason, monkeypatch):
    monkeypatch.setattr(programs, "kept_archive", lambda: None)
    done = predict("nowhere", *words)
    assert isinstance(done.exception, InputError)
    assert reason in str(done.exception)


@needs_simgrid
def test_a_trial_without_message_times_names_what_to_measure(tmp_path):
    folder = folder_of(tmp_path, [npb_time("is.S", 2, 1.0).run])
    done = predict(folder)
    assert "no transport of MPI has message times under default" in str(done.exception)
    assert "seatrial trial -c comms -c npb" in str(done.exception)


@needs_simgrid
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--transport", "nope"), "--transport: no run is of 'nope' (known here: openmpi-tcp)"),
        (("--profile", "tnued"), "--profile: no run is of 'tnued' (did you mean 'tuned'?)"),
        (("--network", "nope"), "--network: no run is of 'nope' (known here: none)"),
        ((), "no run is under the profile default: name another one (known here: tuned, other)"),
    ],
)
def test_what_the_trial_has_not_is_refused_with_what_it_has(tmp_path, words, reason):
    runs = [npb_time("is.S", 2, 1.0).run for _ in range(2)]
    named = [
        run.model_copy(update={"case": replace(run.case, profile=profile)})
        for run, profile in zip(runs, ("tuned", "other"), strict=True)
    ]
    done = predict(folder_of(tmp_path, named), *words)
    assert isinstance(done.exception, InputError)
    assert reason in str(done.exception)


@needs_simgrid
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (["gcc"], "no shared library with a main"),
        (["gcc", "-static"], "no shared library with a main"),
        (["gcc", "-shared", "-fPIC", "-Dmain=other"], "no shared library with a main"),
        pytest.param(["mpicc"], "linked with libmpi", marks=pytest.mark.stack),
        ([], "no ELF file"),
    ],
)
def test_a_program_that_is_not_built_for_SMPI_is_named_with_how_to_build_it(
    tmp_path, build, reason
):
    (tmp_path / "solver.c").write_text(
        "extern int MPI_Init(int *, char ***);\n"
        f"int main(int c, char **v) {{ return {'MPI_Init(&c, &v)' if 'mpicc' in build else 0}; }}\n"
    )
    program = tmp_path / "solver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if build:
        run([*build, tmp_path / "solver.c", "-o", program], "building the program")
    done = predict(folder_of(tmp_path, [run_of_comms()]), "--program", program)
    assert isinstance(done.exception, InputError)
    assert f"--program: {program} is not built for SMPI: it is {reason}" in str(done.exception)
    assert "smpicc -O3 -o solver SOURCE.c" in str(done.exception)


@needs_simgrid
@pytest.mark.stack
def test_programs_of_SimGrids_compilers_are_taken(tmp_path):
    (tmp_path / "one.c").write_text("int main(int c, char **v) { return 0; }\n")
    check_program(simulation.compile_c([tmp_path / "one.c"], tmp_path / "one"))
    (tmp_path / "two.f90").write_text("program two\nend program\n")
    run(["smpif90", tmp_path / "two.f90", "-o", tmp_path / "two"], "building two")
    check_program(tmp_path / "two")
