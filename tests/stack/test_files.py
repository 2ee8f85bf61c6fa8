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


def archive_of(tmp_path, *members):
    """An archive with entries of name, mode and type, as an account with number 4242 packs it."""
    archive = tmp_path / "made.tar"
    with tarfile.open(archive, "w") as tar:
        for name, mode, kind in members:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.type, entry.uid, entry.gid = mode, kind, 4242, 4242
            entry.uname, entry.gname, entry.mtime = "nobody", "nogroup", 1_000_000_000
            entry.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            tar.addfile(entry)
    return archive


def test_the_owner_and_the_modes_of_an_archive_are_not_taken(tmp_path):
    archive = archive_of(
        tmp_path, ("top", 0o777, tarfile.DIRTYPE), ("top/run", 0o6777, tarfile.REGTYPE),
        ("top/a.c", 0o666, tarfile.REGTYPE), ("top/link", 0o777, tarfile.SYMTYPE),
        ("top/hard", 0o777, tarfile.LNKTYPE), ("top/fifo", 0o666, tarfile.FIFOTYPE),
    )  # fmt: skip
    top = files.unpack_tar(archive, tmp_path / "out")
    states = {path.name: path.lstat() for path in (top, *top.iterdir())}
    assert {name: state.st_mode & 0o7777 for name, state in states.items()} == {
        "top": 0o755, "run": 0o755, "a.c": 0o644,
    }  # fmt: skip
    assert {(state.st_uid, state.st_gid) for state in states.values()} == {
        (os.getuid(), os.getgid())
    }
    assert states["a.c"].st_mtime == 1_000_000_000


@pytest.mark.parametrize("name", ["/top/a.c", "top/../../a.c"])
def test_an_archive_that_leads_out_is_refused(tmp_path, name):
    archive = archive_of(
        tmp_path, ("top/b.c", 0o644, tarfile.REGTYPE), (name, 0o644, tarfile.REGTYPE)
    )
    with pytest.raises(LabError, match="leads out"):
        files.unpack_tar(archive, tmp_path / "deep" / "out")


def test_digest_tells_where_parts_end():
    assert files.digest(["ab", "c"]) != files.digest(["a", "bc"])
