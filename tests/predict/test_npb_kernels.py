"""The kernels of NPB built from a source of NPB 3.4: where it is looked for, how it is built."""

from __future__ import annotations

import re
import tarfile

import pytest

from seatrial.analysis.conclusion import Inputs
from seatrial.base.errors import InputError, LabError
from seatrial.benchmarks import npb
from seatrial.predict import programs, simulation
from seatrial.predict.calibration import Network, Part, Range
from suite_maker import make_suite

needs_simgrid = pytest.mark.simgrid
NOTHING = Part(0.0, 0.0)
#: 100 MB/s
NETWORK = Network(
    [Range(0, NOTHING, NOTHING, NOTHING, Part(1e-5, 1e-8))], 1e4, (1.0, 1e6), {}, "comms",
    Inputs((), (), 0),
)  # fmt: skip


def no_archive():
    raise AssertionError("the archive of SimGrid is not needed")


@pytest.mark.parametrize("below", ["", "NPB3.4-MPI", "NPB3.4.3/NPB3.4-MPI", "a/b/NPB3.4-MPI"])
def test_the_source_is_found_below_the_folder_that_is_named(tmp_path, below):
    suite = make_suite(tmp_path / "source" / below)
    assert programs.suite_in(tmp_path / "source", tmp_path) == suite


def test_the_source_may_be_an_archive(tmp_path):
    make_suite(tmp_path / "NPB3.4.3/NPB3.4-MPI")
    archive = tmp_path / "npb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "NPB3.4.3", "NPB3.4.3")
    found = programs.suite_in(archive, tmp_path / "unpacked")
    assert found == tmp_path / "unpacked/npb/NPB3.4.3/NPB3.4-MPI"
    assert (found / "FT/Makefile").is_file()


def test_what_is_no_source_of_NPB_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such folder or archive"):
        programs.suite_in(tmp_path / "nowhere", tmp_path)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(InputError, match="text: it is no archive"):
        programs.suite_in(tmp_path / "text", tmp_path)
    (tmp_path / "NPB3.4-MPI").mkdir()
    with pytest.raises(InputError, match=r"no NPB3.4-MPI of NPB 3.4 in it \(sys/make.common"):
        programs.suite_in(tmp_path, tmp_path)


def test_a_kernel_without_a_source_says_where_it_is_had(tmp_path):
    kernels = programs.Kernels(tmp_path, no_archive)
    with pytest.raises(InputError, match=r"npb-lu .*spack stage --path FOLDER .*--source"):
        kernels.command("lu.A", 4)


def test_the_archive_that_Spack_has_is_the_default(tmp_path):
    assert programs.kept_archive(tmp_path) is None
    checksum = re.search(r'"3\.4\.3", sha256="(\w+)"', programs.RECIPE.read_text())[1]
    folder = tmp_path / "sources/_source-cache/archive" / checksum[:2]
    folder.mkdir(parents=True)
    archive = folder / f"{checksum}.tar.gz"
    archive.touch()
    (folder / f"{checksum[:2]}0.tar.gz").touch()
    assert programs.kept_archive(tmp_path) == archive


def test_gfortran_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "make").write_text("#!/bin/sh\n")
    (tmp_path / "make").chmod(0o755)
    suite = make_suite(tmp_path / "NPB3.4-MPI")
    with pytest.raises(LabError, match=r"npb-ft is built with gfortran.*apt-get install gfortran"):
        programs.build_suite(suite, "ft", "S")


@needs_simgrid
def test_a_kernel_in_Fortran_is_built_once_a_class_and_runs(tmp_path):
    suite = make_suite(tmp_path / "source/NPB3.4-MPI")
    (suite / "FT/left.o").write_text("of another compiler")
    before = sorted(suite.rglob("*"))
    kernels = programs.Kernels(tmp_path, no_archive, suite)
    command = kernels.command("ft.S", 4)
    assert kernels.command("ft.S", 2) == command
    assert kernels.command("ft.W", 2) != command
    assert sorted(suite.rglob("*")) == before  # the user's source stays as it is
    counter = programs.build_counter(tmp_path)
    # nodes so fast that a busy machine's computing does not count
    done = simulation.simulate(command, 4, NETWORK, speed=1e4, counter=(counter, 1e4))
    parsed = npb.parse(done.output)
    assert parsed.facts["processes"] == 4
    assert parsed.facts["class"] == "S"
    assert parsed.value("time_s") == pytest.approx(0.3, rel=0.1)
    # 10 MB to each of three others, at 100 MB/s
    assert done.messages == simulation.Messages(12, 12 * 10**7, 10**7, 12 * 10**7)


@needs_simgrid
def test_a_kernel_that_does_not_build_shows_the_compilers_message(tmp_path):
    suite = make_suite(tmp_path / "source/NPB3.4-MPI")
    (suite / "FT/ft.f90").write_text("program ft\n  this is wrong\nend program\n")
    kernels = programs.Kernels(tmp_path, no_archive, suite)
    with pytest.raises(LabError, match=r"(?s)building npb-ft of class S with smpif90.*Error"):
        kernels.command("ft.S", 4)
    with pytest.raises(InputError, match=r"NPB3.4-MPI has no LU/Makefile"):
        kernels.command("lu.S", 4)
