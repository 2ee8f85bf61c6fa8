"""The program ``mpi_pairs``: its options, its table, what it sends and what it verifies."""

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from seatrial.base.files import sha256
from seatrial.benchmarks import mpi_pairs
from seatrial_lab.software import build
from seatrial_lab.software.steps import MPI_PAIRS

CALLS = Path(__file__).with_name("mpi_calls.c")
#: changes the last byte of each message of the last round of a repetition
DAMAGE = """
#include <mpi.h>
int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    int code = PMPI_Recv(data, count, type, from, tag, comm, status);
    if (count > 1 && status != MPI_STATUS_IGNORE && status->MPI_TAG == 2)
        ((char *)data)[count - 1] ^= 1;
    return code;
}
"""


def test_the_recipe_has_the_checksum_and_the_version_of_the_source():
    recipe = MPI_PAIRS.with_name("package.py").read_text()
    assert re.search(r'sha256="(\w+)"', recipe)[1] == sha256(MPI_PAIRS)
    version = re.search(r'#define VERSION "(\S+)"', MPI_PAIRS.read_text())[1]
    assert re.search(r'version\(\s*"(\S+)"', recipe)[1] == version


@pytest.fixture
def run(start):
    """Runs mpi_pairs: options, ranks and further variables."""
    return partial(start, "mpi_pairs", ranks=4)


@pytest.fixture
def library(real_stack, tmp_path):
    def made(source: Path) -> Path:
        flags = build.mpi("openmpi", Path(real_stack.prefix))
        command = ["gcc", "-shared", "-fPIC", *flags.compile_flags, source, "-o"]
        subprocess.run([*command, tmp_path / "preload.so", *flags.link_flags], check=True)
        return tmp_path / "preload.so"

    return made


@pytest.mark.stack
def test_each_pair_sends_what_the_parser_counts(run, library, tmp_path):
    options = ["-s", 3000, "-w", 2, "-t", 1, "-r", 2]
    done = run(*options, LD_PRELOAD=library(CALLS), MPI_CALLS_FILE=tmp_path / "calls")
    assert done.returncode == 0, done.stderr
    parsed = mpi_pairs.parse(done.stdout, pairs=2, size=3000, window=2, repetitions=2, within=True)
    for pair, volume in enumerate(parsed.facts["pairs_moved_B"]):
        sent = 0
        for rank in (pair, pair + 2):
            for line in (tmp_path / f"calls.{rank}").read_text().splitlines():
                call, tag, count = line.split()
                if call in ("Send", "Isend") and int(tag) in (1, 2):
                    assert int(count) in (1, 3000)
                    sent += int(count)
        # more than is counted: what is sent before and after the measurement, and the first one
        assert sent > volume > 0


@pytest.mark.stack
def test_a_damaged_message_ends_the_program(run, library, tmp_path):
    (tmp_path / "damage.c").write_text(DAMAGE)
    done = run("-s", 3000, "-t", 0, "-r", 1, LD_PRELOAD=library(tmp_path / "damage.c"))
    assert done.returncode != 0
    assert "byte 2999 of a message of 3000 bytes differs" in done.stderr


@pytest.mark.stack
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "expected an even number of ranks, started with 1"),
        (["-s", 1], "option -s does not take '1'"),
        (["-w", 1025], "option -w does not take '1025'"),
        (["-r", "3x"], "option -r does not take '3x'"),
        (["-t"], "option -t needs a value"),
        (["-q"], "there is no option -q"),
        (["more"], "'more' is not an option"),
    ],
)
def test_wrong_use_is_named(run, options, words):
    done = run(*options, ranks=1)
    assert done.returncode == 2
    assert f"mpi_pairs: {words}\n" in done.stderr
    assert "usage: mpi_pairs" in done.stderr
