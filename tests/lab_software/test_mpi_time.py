"""The library mpi_time: counts and bytes of known calls, in C and Fortran, and what it refuses."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from seatrial.base.files import sha256
from seatrial.benchmarks import mpi_time
from seatrial_lab.software import build
from seatrial_lab.software.steps import MPI_TIME

#: in C, and in Fortran with the same calls
C = """
#include <mpi.h>
int main(int argc, char **argv)
{
    double x[100] = {0}, y[200];
    int rank, level, counts[2] = {100, 100}, starts[2] = {0, 100}, half[2] = {50, 50};
    MPI_Init_thread(&argc, &argv, LEVEL, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 5; i++) {
        if (rank == 0)
            MPI_Send(x, 100, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
        else
            MPI_Recv(y, 100, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(x, y, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(x, 100, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Alltoall(x, 50, MPI_DOUBLE, y, 50, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Alltoallv(x, half, starts, MPI_DOUBLE, y, half, starts, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, y, counts, starts, MPI_DOUBLE,
                   MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return rank == 0 ? CODE : 0;
}
"""
FORTRAN = """
program f
  include 'mpif.h'
  real*8 x(100), y(200)
  integer ierr, rank, level, i, s(MPI_STATUS_SIZE), counts(2), starts(2), half(2)
  counts = (/100, 100/)
  starts = (/0, 100/)
  half = (/50, 50/)
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  do i = 1, 5
    if (rank == 0) call mpi_send(x, 100, MPI_DOUBLE_PRECISION, 1, 7, MPI_COMM_WORLD, ierr)
    if (rank == 1) call mpi_recv(x, 100, MPI_DOUBLE_PRECISION, 0, 7, MPI_COMM_WORLD, s, ierr)
  end do
  call mpi_allreduce(x, y, 100, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_bcast(x, 100, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
  call mpi_alltoall(x, 50, MPI_DOUBLE_PRECISION, y, 50, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
  call mpi_alltoallv(x, half, starts, MPI_DOUBLE_PRECISION, y, half, starts, &
                     MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
  call mpi_allgatherv(MPI_IN_PLACE, 0, MPI_DOUBLE_PRECISION, y, counts, starts, &
                      MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
  call mpi_barrier(MPI_COMM_WORLD, ierr)
  call mpi_finalize(ierr)
end program f
"""
CALLS = {
    "MPI_Send": (5, 5 * 800),
    "MPI_Recv": (5, 0),
    "MPI_Allreduce": (2, 2 * 800),
    "MPI_Bcast": (2, 800),
    "MPI_Alltoall": (2, 2 * 800),
    "MPI_Alltoallv": (2, 2 * 800),
    "MPI_Allgatherv": (2, 2 * 800),
    "MPI_Barrier": (2, 0),
}


def test_the_recipe_has_the_checksum_and_the_version_of_the_source():
    recipe = MPI_TIME.with_name("package.py").read_text()
    assert re.search(r'sha256="(\w+)"', recipe)[1] == sha256(MPI_TIME)
    version = re.search(r'#define VERSION "(\S+)"', MPI_TIME.read_text())[1]
    assert re.search(r'version\(\s*"(\S+)"', recipe)[1] == version


@pytest.fixture(scope="module")
def library(real_stack, tmp_path_factory):
    """Family of an MPI -> the library, built as the lab builds it."""
    folder = tmp_path_factory.mktemp("library")
    made = {}
    for family in build.FAMILIES:
        target = build.mpi(family, Path(real_stack.prefix))
        build.mpi_time(MPI_TIME, target, folder / family, folder)
        made[family] = folder / family / "mpi_time.so"
    return made


@pytest.fixture
def timed(real_stack, library, tmp_path):
    """Compiles a program and runs it on two ranks with the library: text and compiler."""

    def start(text, suffix, *defines, family="openmpi"):
        source, program = tmp_path / f"program{suffix}", tmp_path / "program"
        source.write_text(text)
        if suffix == ".f90":
            command = ["mpif90.openmpi", source, "-o", program]
        else:
            target = build.mpi(family, Path(real_stack.prefix))
            command = ["gcc", *defines, *target.compile_flags, source, "-o", program]
            command += target.link_flags
        subprocess.run(command, check=True)
        name = {"openmpi": "openmpi-tcp", "mpich": "mpich-ofi"}[family]
        env = {"PATH": os.environ["PATH"], **real_stack.transport(name, lab=True).env}
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        env.pop("LD_PRELOAD", None)  # of Slurm's PMI server
        launcher = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        if family == "mpich":
            launcher = [f"{real_stack.prefix}/mpich/bin/mpiexec", "-n", "2"]
        words = mpi_time.with_library([str(library[family])], "times.txt", [str(program)])
        done = subprocess.run(
            [*launcher, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900
        )
        return done, tmp_path / "times.txt"

    return start


#: Rank 1 is 100 ms late, then 50 ms late in the part that is timed, which has 1000 further readings
#: of the clock. Each rank prints its number, the length of the part, and of the barrier in it.
TIMED_C = """
#include <mpi.h>
#include <stdio.h>
#include <time.h>
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
static double late(int rank, long ms)
{
    struct timespec wait = {0, ms * 1000000};
    double start;
    if (rank == 1)
        nanosleep(&wait, NULL);
    start = seconds();
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds() - start;
}
int main(int argc, char **argv)
{
    int rank;
    double time, barrier, last = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    late(rank, 100);
    time = -MPI_Wtime();
    for (int i = 0; i < 1000; i++)
        last += MPI_Wtime();
    barrier = late(rank, 50);
    time += MPI_Wtime();
    printf("%d %.9f %.9f\\n", rank, last < 0 ? 0 : time, barrier);
    MPI_Finalize();
}
"""
TIMED_FORTRAN = """
program f
  include 'mpif.h'
  integer ierr, rank, i
  real*8 time, last, barrier
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  barrier = late(100)
  last = 0
  time = -mpi_wtime()
  do i = 1, 1000
    last = last + mpi_wtime()
  end do
  barrier = late(50)
  time = time + mpi_wtime()
  if (last > 0) print '(i1, 2f13.9)', rank, time, barrier
  call mpi_finalize(ierr)
contains
  real*8 function late(ms)
    integer, intent(in) :: ms
    integer*8 now, start, rate
    call system_clock(start, rate)
    now = start
    do while (rank == 1 .and. now - start < rate * ms / 1000)
      call system_clock(now)
    end do
    call system_clock(start)
    call mpi_barrier(MPI_COMM_WORLD, ierr)
    call system_clock(now)
    late = real(now - start, 8) / rate
  end function
end program f
"""

SINGLE = ("-DLEVEL=MPI_THREAD_SINGLE", "-DCODE=0")


@pytest.mark.stack
@pytest.mark.parametrize(
    ("text", "suffix", "family"),
    [(C, ".c", "openmpi"), (C, ".c", "mpich"), (FORTRAN, ".f90", "openmpi")],
)
def test_known_calls_are_counted_once(timed, text, suffix, family):
    done, file = timed(text, suffix, *SINGLE, family=family)
    assert done.returncode == 0, done.stderr
    parsed = mpi_time.parse(file.read_text())
    by_call = parsed.facts["mpi"]["by_call"]
    assert {name: (one["calls"], one["bytes"]) for name, one in by_call.items()} == CALLS
    assert all(one["s"] > 0 for one in by_call.values())
    assert 0 < parsed.value("mpi_percent") <= 100


@pytest.mark.stack
@pytest.mark.parametrize(
    ("text", "suffix", "family"),
    [(TIMED_C, ".c", "openmpi"), (TIMED_C, ".c", "mpich"), (TIMED_FORTRAN, ".f90", "openmpi")],
)
def test_the_part_that_a_program_times_and_its_share(timed, text, suffix, family):
    """Between the first reading and the last one, of more than are kept."""
    done, file = timed(text, suffix, family=family)
    assert done.returncode == 0, done.stderr
    rows = sorted(done.stdout.split("\n"))[-2:]
    seconds, barriers = zip(*[map(float, row.split()[1:]) for row in rows], strict=True)
    fact = mpi_time.parse(file.read_text(), seconds[0]).facts["mpi"]
    assert file.read_text().count("\n0 clock ") == 500
    # The ranks leave MPI_Init and the first barrier at different times.
    assert 2 * fact["run_s"] > 0.15
    assert fact["timed_s"] == pytest.approx(sum(seconds) / 2, rel=0.01)
    assert fact["timed_mpi_s"] == pytest.approx(sum(barriers) / 2, rel=0.2, abs=1e-4)
    assert fact["mpi_s"] > fact["timed_mpi_s"]


@pytest.mark.stack
def test_threads_that_all_call_are_refused_and_the_exit_code_stays(timed):
    done, file = timed(C, ".c", "-DLEVEL=MPI_THREAD_MULTIPLE", "-DCODE=3")
    assert done.returncode == 3
    assert "mpi_time: the program has MPI_THREAD_MULTIPLE" in done.stderr
    assert not file.exists()
