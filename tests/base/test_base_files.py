import os
import stat
from pathlib import Path

import pytest

from hostile import deepen
from seatrial.base.files import folder_below, read_below, remove_tree, replacing, write_whole


def test_the_file_has_the_content_and_the_mode_and_no_draft_is_left(tmp_path):
    file = tmp_path / "a.json"
    write_whole(file, "größer\r\n", 0o640)
    assert file.read_bytes() == "größer\r\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    write_whole(file, b"\xff")
    assert file.read_bytes() == b"\xff"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_sees_the_old_content_until_the_block_ends(tmp_path):
    file = tmp_path / "a"
    file.write_text("old")
    with replacing(file) as stream:
        stream.write(b"new")
        stream.flush()
        assert file.read_text() == "old"
    assert file.read_text() == "new"


def test_an_exception_keeps_the_old_content_and_leaves_no_draft(tmp_path):
    file = tmp_path / "a"
    file.write_text("old")

    def write_half():
        with replacing(file) as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", ["file", "link", "fifo"])
def test_a_planted_draft_is_replaced_and_not_followed(tmp_path, kind):
    other = tmp_path / "other"
    other.write_text("kept")
    draft = tmp_path / f".a.{os.getpid()}.draft"
    if kind == "file":
        os.link(other, draft)
    elif kind == "link":
        draft.symlink_to(other)
    else:
        os.mkfifo(draft)
    write_whole(tmp_path / "a", "new")
    assert (other.read_text(), (tmp_path / "a").read_text()) == ("kept", "new")
    assert (tmp_path / "a").lstat().st_nlink == 1


def test_reading_below_a_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"12345")
    assert read_below(tmp_path, Path("a/b/file"), 5) == b"12345"
    with pytest.raises(OSError, match="too large"):
        read_below(tmp_path, Path("a/b/file"), 4)
    for outside in ("/etc/passwd", "../a", "a/../../x"):
        with pytest.raises(ValueError, match="not below"):
            read_below(tmp_path, Path(outside), 5)


@pytest.mark.parametrize("kind", ["link", "folder's link", "fifo", "device", "folder"])
def test_only_a_regular_file_is_read(tmp_path, kind):
    (tmp_path / "a").mkdir()
    (tmp_path / "secret").write_text("secret")
    file = tmp_path / "a" / "file"
    if kind == "link":
        file.symlink_to(tmp_path / "secret")
    elif kind == "folder's link":
        (tmp_path / "a").rmdir()
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "file").write_text("secret")
        (tmp_path / "a").symlink_to("b")
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file = Path("/dev/zero")
        with pytest.raises(OSError, match="not a regular file"):
            read_below(Path("/dev"), Path("zero"), 9)
        return
    with pytest.raises(OSError):
        read_below(tmp_path, Path("a/file"), 99)
    with folder_below(tmp_path, Path()) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), tmp_path.stat())


def test_what_is_removed_may_be_deep_and_is_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    inner = tmp_path / "tree"
    inner.mkdir()
    (inner / "link").symlink_to(tmp_path / "kept")
    deepen(inner)
    remove_tree(inner)
    remove_tree(inner)
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
