"""The library that is preloaded into MPICH's programs changes one answer, and nothing else."""

import os
import shutil
import subprocess

import pytest

from seatrial_lab.software import pmi

READ = "import os, sys; sys.stdout.buffer.write(os.read(0, 1023))"
MAXES = b"cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=%s\n"


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing")
@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (MAXES % b"1024", MAXES % b"900"),
        (MAXES % b"512", MAXES % b"512"),
        (b"cmd=get_result rc=0 value=vallen_max=1024\n",) * 2,
        (b"", b""),
    ],
)
def test_values_are_kept_shorter_than_slurm_reads(tmp_path, said, heard):
    work = tmp_path / "work"
    work.mkdir()
    pmi.build(tmp_path, work)
    env = {**os.environ, "LD_PRELOAD": str(tmp_path / pmi.LIBRARY)}
    done = subprocess.run(
        ["/usr/bin/python3", "-IS", "-c", READ], input=said, env=env, capture_output=True
    )
    assert (done.stdout, done.stderr) == (heard, b"")
