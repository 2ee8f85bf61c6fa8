import stat

import pytest

from seatrial.base.files import replacing, write_whole


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
