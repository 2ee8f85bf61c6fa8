"""The ABI bridge, by a program that calls all it carries and checks the results.

The same program under MPICH and Intel MPI shows that the checks themselves hold.
"""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.stack
SOURCE = Path(__file__).parent / "bridge_check.c"
#: messages go over the loopback interface, by TCP
ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    # Open MPI 4's mpirun loses messages when it merges those of several ranks
    "OMPI_MCA_orte_base_help_aggregate": "0",
    "FI_TCP_IFACE": "lo", "PATH": "/usr/bin:/bin",
}  # fmt: skip


@pytest.fixture(scope="module")
def program(real_stack, tmp_path_factory):
    built = tmp_path_factory.mktemp("bridge") / "check"
    mpich = f"{real_stack.prefix}/mpich"
    command = ["gcc", "-Wall", "-Werror", "-O1", f"-I{mpich}/include", str(SOURCE),
               f"{mpich}/lib/libmpi.so.12", "-o", str(built)]  # fmt: skip
    subprocess.run(command, check=True)
    return built


def start(stack, transport, program, *arguments, ranks=2, env=None):
    part = stack.transport(transport, report=False)
    home = Path(stack.prefix)
    mpiexec = {
        "openmpi-tcp": ["/usr/bin/mpirun.openmpi", "--oversubscribe"],
        "mpich-ofi": [home / "mpich/bin/mpiexec"],
        "intelmpi-tcp": [home / "intelmpi/bin/mpiexec.hydra"],
    }[transport]
    given = {**ENV, **part.env, **(env or {})}
    given.pop("I_MPI_PMI_LIBRARY", None)  # Slurm's
    given.pop("I_MPI_PMI", None)
    return subprocess.run(
        [*mpiexec, "-n", str(ranks), program, *arguments],
        env={**given, "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("transport", ["openmpi-tcp", "mpich-ofi", "intelmpi-tcp"])
def test_every_function_returns_what_mpi_says(real_stack, program, transport, ranks):
    done = start(real_stack, transport, program, ranks=ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checks passed" in done.stdout


def test_init_thread_promises_no_more_than_the_tables_can_bear(real_stack, program):
    done = start(real_stack, "openmpi-tcp", program, "threads")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unsupported_call_ends_the_program_with_its_name(real_stack, program):
    done = start(real_stack, "openmpi-tcp", program, "unsupported")
    assert done.returncode != 0
    assert "seatrial ABI bridge: MPI_Comm_dup is not supported" in done.stderr


# Even so it drops what a rank said, now and then, on a busy machine.
@pytest.mark.flaky(reruns=2, only_rerun="ORTE_ERROR_LOG")
def test_a_handle_nobody_gave_out_is_refused(real_stack, program):
    done = start(real_stack, "openmpi-tcp", program, "wrong-handle")
    assert done.returncode != 0
    assert "MPI_ERR_TYPE" in done.stdout + done.stderr


def test_imb_runs_all_its_benchmarks_over_the_bridge(real_stack):
    imb = real_stack.programs("openmpi-tcp")["imb"][0]
    done = start(real_stack, "openmpi-tcp", imb, "-iter", "10", "-msglog", "0:6", "-time", "0.5")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("Benchmarking ") >= 18
    assert "All processes entering MPI_Finalize" in done.stdout
