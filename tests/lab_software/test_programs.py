"""The provisioned stack: complete, readable for everybody, and provisioned at no cost again."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from seatrial.benchmarks.hpl_input import render
from seatrial_lab.software import provision

pytestmark = pytest.mark.stack


def test_every_program_is_there_for_everybody(real_stack):
    paths = {
        word
        for name in real_stack.transports
        for command in real_stack.programs(name).values()
        for word in command
        if word.startswith("/")
    }
    assert len(paths) > 10
    for path in map(Path, paths):
        mode = path.stat().st_mode
        assert mode & stat.S_IROTH, path
        assert path.suffix == ".py" or mode & stat.S_IXOTH, path
    for folder in Path(real_stack.prefix).rglob("*"):
        if folder.is_dir():
            assert folder.stat().st_mode & 0o005 == 0o005, folder


def test_a_second_provisioning_does_nothing(real_stack, monkeypatch):
    monkeypatch.setattr(provision, "carry_out", lambda *_: pytest.fail("a step was carried out"))
    before = (Path(real_stack.prefix) / "stack.json").stat().st_mtime_ns
    said = []
    stack = provision.provision(said.append)
    assert said == []
    assert stack == real_stack
    assert (Path(real_stack.prefix) / "stack.json").stat().st_mtime_ns == before


def test_programs_hold_no_search_path(real_stack):
    for family in ("openmpi", "mpich"):
        for name in ("NPmpi", "comms", "mpi_pairs", "mpi_time.so", "mpi_bench", "hpcc", "is", "ep"):
            file = f"{real_stack.prefix}/bench/{family}/{name}"
            dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True)
            assert "PATH" not in dynamic.stdout
            soname = "libmpi.so.40" if family == "openmpi" else "libmpi.so.12"
            assert soname in dynamic.stdout


@pytest.mark.parametrize("blas", ["atlas", "blis", "openblas", "reference"])
def test_hpcc_takes_the_blas_of_the_search_path(real_stack, blas):
    folder = real_stack.blas().get(blas)
    if not folder:
        pytest.skip(f"this release has no {blas}")
    part = real_stack.transport("openmpi-tcp")
    listing = subprocess.run(
        ["ldd", part.programs["hpcc_all"][0]],
        env={**os.environ, "LD_LIBRARY_PATH": folder},
        capture_output=True,
        text=True,
    )
    assert f"libblas.so.3 => {folder}/" in listing.stdout


def test_an_unknown_hpcc_test_is_refused(real_stack, tmp_path):
    (tmp_path / "hpccinf.txt").write_text(render(64, 8, 1, 1))
    part = real_stack.transport("none")
    program = real_stack.programs("openmpi-tcp")["hpcc_all"]
    done = subprocess.run(
        program,
        cwd=tmp_path,
        env={**part.env, "PATH": "/usr/bin:/bin", "HPCC_TESTS": "HLP"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert "no test is named HLP" in done.stderr
