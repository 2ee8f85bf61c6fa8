"""Who can hold a lock file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from seatrial.base.errors import explained
from seatrial.base.lock import locked

HOLD = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """Two labs that start at once in a new checkout would take each other's drafts away."""
    file = tmp_path / "folder" / "lock"
    attempt = [sys.executable, "-c", HOLD, str(file)]
    with locked(file, print):
        assert b"BlockingIOError" in subprocess.run(attempt, capture_output=True).stderr
    assert subprocess.run(attempt).returncode == 0


def test_who_waits_is_told(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def note(text: str) -> None:
            assert str(file) in text
            fcntl.flock(held, fcntl.LOCK_UN)

        with locked(file, note):
            pass


@pytest.mark.root
@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_no_other_user_holds_it(mode: int | None) -> None:
    """Also one that an older version made, for all to open."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        file = Path(name) / "lock"
        if mode:
            file.touch()
            file.chmod(mode)
        before = os.umask(0)
        with locked(file, print):
            pass
        os.umask(before)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        attempt = ["/usr/bin/python3", "-I", "-c", HOLD, str(file)]
        done = subprocess.run(attempt, user=65534, group=65534, capture_output=True, cwd="/")
        assert b"PermissionError" in done.stderr


def test_a_link_is_no_lock_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path / "lock", print):
        pass
    assert other.read_text() == "kept"


def test_a_lock_is_a_regular_file_whose_content_stays(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    os.mkfifo(file)
    with pytest.raises(OSError, match="regular file"), locked(file, print):
        pass
    file.unlink()
    file.mkdir()
    with pytest.raises(IsADirectoryError), locked(file, print):
        pass
    file.rmdir()
    file.write_text("kept")
    with locked(file, print):
        pass
    assert file.read_text() == "kept"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """NFS without its lock daemon, Lustre without the option flock."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    file = tmp_path / "lock"
    with pytest.raises(OSError, match="has no locks") as caught, locked(file, print):
        pass
    assert str(file) in str(caught.value)
    assert "Lustre: flock" in str(caught.value)


@pytest.mark.root
def test_a_folder_that_root_may_not_write_is_explained(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "lock"))
    assert "root_squash" in explained(error)
    assert str(tmp_path) in explained(error)
    assert "root" not in explained(FileNotFoundError(errno.ENOENT, "No such file", "x"))


def test_who_waited_for_a_removed_file_takes_the_lock_of_the_new_one(tmp_path: Path) -> None:
    """Else two processes would hold "the" lock."""
    file = tmp_path / "folder" / "lock"
    file.parent.mkdir()
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def remove(_: str) -> None:
            file.unlink()
            file.parent.rmdir()
            fcntl.flock(held, fcntl.LOCK_UN)

        with locked(file, remove) as descriptor:
            assert os.path.samestat(os.fstat(descriptor), file.stat())
