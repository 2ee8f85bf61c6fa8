"""The provisioned stack of this checkout, for the tests that run its programs."""

import os
import signal
import subprocess
import warnings
from pathlib import Path

import pytest

from seatrial.stack import load_stack
from seatrial_lab.software import build


@pytest.fixture(scope="session")
def real_stack():
    """The stack; tests that ask for it carry the marker ``stack``."""
    return load_stack()


@pytest.fixture
def start(real_stack, tmp_path):
    """Runs a program of the stack on this machine with Open MPI: options, ranks and variables.

    Also one rank is started by mpirun: without it, Open MPI 4.1.4 ends by SIGSEGV after
    MPI_Finalize in 1 of 1000 runs. With it that was seen once in a whole run of the tests, and
    not in 1800 runs by hand (comms, one rank). MPI_Finalize can also wait for ever for a thread of
    Open MPI that waits for a lock of libevent (mpi_bench -q, once in nine runs of the tests). So a
    program that ends or hangs like that is started a second time, with a warning.
    """

    def started(program, *options, ranks, **variables):
        part = real_stack.transport("openmpi-tcp", lab=True)
        env = {"PATH": os.environ["PATH"], **part.env}
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        launcher = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        # The variables are the ranks', not the launcher's.
        words = ["env", *(f"{name}={value}" for name, value in variables.items())]
        command = [*launcher, *words, *part.programs[program], *map(str, options)]

        def run(seconds):
            with subprocess.Popen(
                command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as launched:  # fmt: skip
                try:
                    output, errors = launched.communicate(timeout=seconds)
                except subprocess.TimeoutExpired:
                    launched.terminate()  # mpirun ends its ranks
                    raise
            return subprocess.CompletedProcess(command, launched.returncode, output, errors)

        try:
            done = run(450)
            why = f"ended by SIGSEGV: {done.stderr}"
            again = done.returncode == 128 + signal.SIGSEGV
        except subprocess.TimeoutExpired as hang:
            if not (hang.output or hang.stderr):
                raise  # not in MPI_Finalize: by then each program has printed something
            why, again = "did not end in 450 s", True
        if again:
            warnings.warn(f"{program} {options} {why}", stacklevel=2)
            done = run(900)
        return done

    return started


@pytest.fixture(scope="session")
def preload(real_stack, tmp_path_factory):
    """The library that notes and damages messages (mpi_calls.c)."""
    source = Path(__file__).with_name("mpi_calls.c")
    library = tmp_path_factory.mktemp("preload") / "mpi_calls.so"
    flags = build.mpi("openmpi", Path(real_stack.prefix))
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", *flags.compile_flags]
    subprocess.run([*command, source, "-o", library, *flags.link_flags], check=True)
    return library
