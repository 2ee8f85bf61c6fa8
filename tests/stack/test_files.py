"""Unpacking puts files where an installer would, and nowhere else."""

import os
import tarfile
import zipfile

import pytest

from seatrial.base.errors import LabError
from seatrial.stack import files


def test_a_wheels_data_is_unpacked_with_programs_executable(tmp_path):
    wheel = tmp_path / "x-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.data/data/bin/mpicc", "#!/bin/sh\n")
        archive.writestr("x-1.data/data/lib/libmpi.so.12", "elf")
        archive.writestr("x-1.dist-info/RECORD", "")
    old = tmp_path / "x"
    old.mkdir()
    (old / "stale").touch()
    files.unpack_wheel_data(wheel, old)
    assert sorted(p.name for p in old.rglob("*")) == ["bin", "lib", "libmpi.so.12", "mpicc"]
    assert os.access(old / "bin" / "mpicc", os.X_OK)
    assert not (old / "lib" / "libmpi.so.12").stat().st_mode & 0o111


def test_a_wheel_that_leads_out_is_refused(tmp_path):
    wheel = tmp_path / "x-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.data/data/../../../evil", "")
    with pytest.raises(LabError, match="leads out"):
        files.unpack_wheel_data(wheel, tmp_path / "deep" / "x")


def test_part_of_an_archive(tmp_path):
    (tmp_path / "top" / "src").mkdir(parents=True)
    (tmp_path / "top" / "srcother").mkdir()
    (tmp_path / "top" / "src" / "a.c").touch()
    (tmp_path / "top" / "srcother" / "b.c").touch()
    archive = tmp_path / "top.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "top", "top")
    top = files.unpack_tar(archive, tmp_path / "out", "src")
    assert [p.relative_to(top).as_posix() for p in top.rglob("*.c")] == ["src/a.c"]


def test_digest_tells_where_parts_end():
    assert files.digest(["ab", "c"]) != files.digest(["a", "bc"])
