"""The files of this machine that a guest has in its memory."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_support import BASE

from seatrial_lab.common.programs import find
from seatrial_lab.virtual import image
from seatrial_lab.virtual.cpio import Archive
from seatrial_lab.virtual.hot_files import FOLDERS, OTHERS, PLUGINS, PROGRAMS, HotFiles, hot_files


@pytest.fixture
def made(tmp_path: Path) -> HotFiles:
    """A program, a link to it, and a folder with a module, a private file and a cold folder."""
    (tmp_path / "program").write_text("echo\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "link").symlink_to("program")
    folder = tmp_path / "library"
    (folder / "config-1").mkdir(parents=True)
    (folder / "config-1" / "large.a").write_text("static")
    (folder / "module.py").write_text("pass\n")
    os.utime(folder / "module.py", (1e9, 1e9))
    (folder / "version").symlink_to("config-1")
    (folder / "private").touch(mode=0o600)
    return HotFiles((tmp_path / "link", tmp_path / "program"), (folder,))


def test_the_archive_has_what_every_user_may_read(made: HotFiles, tmp_path: Path) -> None:
    (folder,) = made.folders
    with tarfile.open(fileobj=io.BytesIO(made.packed())) as archive:
        entries = {f"/{entry.name}": entry for entry in archive}
    below = (folder, folder / "config-1", folder / "module.py", folder / "version")
    assert list(entries) == sorted(map(str, (*made.files, *below)))
    assert made.cold == [folder / "config-1"]
    assert {(entry.uid, entry.gid, entry.uname) for entry in entries.values()} == {(0, 0, "")}
    link, program = (entries[str(path)] for path in made.files)
    assert (link.issym(), link.linkname, program.mode) == (True, "program", 0o755)
    # Python reads a compiled module only if its source has the time that it was compiled from.
    assert entries[f"{folder}/module.py"].mtime == 1e9


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "module.py").write_text("True\n"),
        lambda folder: os.utime(folder / "module.py", (1e9, 1e9 + 1)),
        lambda folder: (folder / "private").chmod(0o644),
        lambda folder: (folder / "new").touch(),
        lambda folder: (folder / "module.py").unlink(),
        lambda folder: (folder / "module.py").chmod(0o755),
        lambda folder: (folder / "version").unlink() or (folder / "version").symlink_to("new"),
    ],
)
def test_a_change_of_a_file_changes_the_facts(
    made: HotFiles, change: Callable[[Path], object]
) -> None:
    before = made.facts()
    again = HotFiles(made.files, made.folders)
    assert again.facts() == before
    change(made.folders[0])
    assert HotFiles(made.files, made.folders).facts() != before


def test_what_is_closed_or_gone_is_left_out(made: HotFiles, tmp_path: Path) -> None:
    (folder,) = made.folders
    (folder / "closed").mkdir(mode=0o700)
    (folder / "closed" / "public").touch(mode=0o644)
    (tmp_path / "program").chmod(0o4755)
    gone = HotFiles((*made.files, tmp_path / "gone"), made.folders)
    assert not {folder / "closed" / "public", tmp_path / "gone"} & {*gone.entries}
    (folder / "module.py").unlink()
    with tarfile.open(fileobj=io.BytesIO(gone.packed())) as archive:
        modes = {f"/{entry.name}": entry.mode for entry in archive}
    assert modes[str(tmp_path / "program")] == 0o755
    assert str(folder / "module.py") not in modes


@pytest.mark.parametrize("target", ["lib.so.1", "gone.so"])
def test_a_link_that_leads_nowhere_is_no_trouble(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib.so.1").symlink_to(target)
    pattern = str((tmp_path / "lib.so.*").relative_to("/"))
    monkeypatch.setattr("seatrial_lab.virtual.hot_files.PLUGINS", (pattern,))
    assert tmp_path / "lib.so.1" in hot_files().entries


def test_an_image_is_made_again_when_a_file_changes(
    made: HotFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "hot_files", lambda: HotFiles(made.files, made.folders))
    monkeypatch.setattr(image, "archive", lambda *_: Archive())
    (tmp_path / "busybox").write_bytes(b"#!")
    base, cache = replace(BASE, busybox=tmp_path / "busybox"), tmp_path / "cache"
    cache.mkdir()
    first = image.initramfs(base, cache)
    assert image.initramfs(base, cache) == first
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])  # as after a power cut
    assert image.initramfs(base, cache) == first
    assert first.read_bytes() == whole
    (made.folders[0] / "module.py").write_text("True\n")
    assert image.initramfs(base, cache) != first
    assert first.exists()  # another start may be about to read it
    for number in range(image.KEPT):
        os.utime(made.folders[0] / "module.py", (1, number))
        image.initramfs(base, cache)
    assert not first.exists()
    assert len(list(cache.glob("*.cpio"))) == len(list(cache.glob("*.sha256"))) == image.KEPT


#: of Debian's package locales, which a lab does not need
OF_LOCALES = {"usr/share/locale/locale.alias"}


@pytest.mark.slurm
@pytest.mark.stack
@pytest.mark.parametrize("pattern", sorted({*OTHERS, *PLUGINS, *FOLDERS} - OF_LOCALES))
def test_each_pattern_is_of_something(pattern: str) -> None:
    """On a machine with the lab's packages."""
    assert list(Path("/").glob(pattern))


def test_programs_of_this_machine_come_with_their_links_and_libraries() -> None:
    found = hot_files()
    shell = Path("/bin/sh")
    while shell.is_symlink():
        shell = shell.parent.resolve() / shell.name
        assert shell in found.files
        shell = shell.parent / shell.readlink()
    assert shell in found.files
    names = {path.name for path in found.files}
    assert {"python3", "libc.so.6", "ld.so.cache", *filter(find, PROGRAMS)} <= names
    assert not [path for path in found.files if path.parent != path.parent.resolve()]
    python = Path("/usr/bin/python3").resolve().name
    assert Path("/usr/lib", python) in found.folders
    assert not [path for path in found.files if {*path.parents} & {*found.folders}]
