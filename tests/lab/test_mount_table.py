"""The table of mounts, of which any user writes a part: the source of a mount of FUSE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial_lab.common import mount_table
from seatrial_lab.native import slowdown

#: blanks and ends of lines of Python, but not of the kernel
ODD = "\u2003", "\u2028", "\x85", "\x0b", "\x1c", "\r"


def in_a_namespace(code: str, *arguments: object) -> str:
    """Output of Python code that changes mounts, in a mount namespace of its own."""
    start = "import os, sys, subprocess\nfrom pathlib import Path\n"
    start += "from seatrial_lab.common import mount_table, mounts, leftovers\n"
    start += "bind = lambda one, other: mounts.mount(str(one), str(other), '', mounts.MS_BIND)\n"
    words = ["unshare", "--mount", sys.executable, "-c", start + code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


HIERARCHIES = """
from seatrial_lab.native import slowdown
place, source = Path(sys.argv[1]), os.fsencode(sys.argv[2])
def show():
    with slowdown._hierarchies() as found:
        print(sorted(one.place for one in found))
show()
mounts.check(mounts.LIBC.mount(source, bytes(place), b"tmpfs", 0, None), "mount")
assert place in [one.place for one in mount_table.mounted()]
show()
"""


@pytest.mark.root
@pytest.mark.parametrize("odd", [*ODD, "\udcff"], ids=ascii)
def test_no_source_of_a_mount_becomes_a_hierarchy(tmp_path: Path, odd: str) -> None:
    """The kernel escapes blanks and newlines of ASCII only."""
    evil = tmp_path / "evil"
    evil.mkdir()
    words = ("x", str(evil), "cgroup", "rw,cpu", "0")
    line = ("32", "31", "0:29", "/", str(evil), "rw", "-", "cgroup", "cgroup", "rw,cpu")
    source = odd + odd.join(words) + odd + odd.join(line) + odd
    before, after = in_a_namespace(HIERARCHIES, tmp_path, source).splitlines()
    assert before == after


def table_with(file: Path, *rows: tuple[str, Path]) -> Path:
    lines = [f"32 31 0:29 / {place} rw - {kind} {kind} rw,cpu\n" for kind, place in rows]
    file.write_text("".join(lines))
    return file


def test_what_the_table_calls_cgroups_must_be_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may mount another file system on the same place."""
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    rows = [("cgroup", tmp_path), ("cgroup2", tmp_path), ("cgroup", tmp_path / "gone")]
    monkeypatch.setattr(mount_table, "TABLE", table_with(tmp_path / "mountinfo", *rows))
    with slowdown.controller() as controller:
        assert controller is None
    assert slowdown.prioritise("some", "n1", os.getpid()) is False
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cgroup.controllers", "mountinfo"]


@pytest.fixture
def folder_as_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for a hierarchy."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "cgroup.procs").touch()
    monkeypatch.setattr(mount_table, "TABLE", table_with(tmp_path / "mountinfo", ("cgroup", root)))
    monkeypatch.setattr(slowdown.mounts, "file_system", lambda _: slowdown._MAGIC["cgroup"])
    return root


@pytest.mark.root
def test_a_hierarchy_of_a_user_is_none(folder_as_cgroup: Path) -> None:
    with slowdown.controller() as controller:
        assert controller is not None
    os.chown(folder_as_cgroup, 65534, 65534)
    with slowdown.controller() as controller:
        assert controller is None


@pytest.mark.root
@pytest.mark.parametrize("linked", ["group", "file"])
def test_no_link_in_a_hierarchy_is_followed(folder_as_cgroup: Path, linked: str) -> None:
    group, victims = folder_as_cgroup / "seatrial-some-n1", folder_as_cgroup.parent / "victims"
    files = ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cgroup.procs")
    victims.mkdir()
    for name in files:
        (victims / name).write_text("1")
    if linked == "group":
        group.symlink_to(victims)
    else:
        group.mkdir()
        for name in files:
            (group / name).symlink_to(victims / name)
    attempts = (
        lambda: slowdown.prioritise("some", "n1", os.getpid()),
        lambda: slowdown.slow_down("some", "n1", os.getpid(), 50, 1),
        lambda: slowdown.remove_quota("some", "n1"),
        lambda: slowdown.remove_all("some"),
    )
    for attempt in attempts:
        try:
            attempt()
        except Exception as error:
            assert isinstance(error, (OSError, slowdown.LabError))  # noqa: PT017
    assert {(victims / name).read_text() for name in files} == {"1"}
    assert (folder_as_cgroup / "cgroup.procs").read_text() == ""


def test_the_path_of_a_mount_is_read_as_the_kernel_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"32 31 0:29 / /a\\040b\\134c\xff\xe2\x80\x83 rw - tmpfs x\\040y rw\n")
    monkeypatch.setattr(mount_table, "TABLE", table)
    assert [bytes(one.place) for one in mount_table.mounted()] == [b"/a b\\c\xff\xe2\x80\x83"]


DETACH = """
folder, outside = Path(sys.argv[1]), Path(sys.argv[2])
(outside / "kept").write_text("kept")
for name in ("a b/c", "\\u2003", "top"):
    place = folder / name
    place.mkdir(parents=True)
    bind(outside, place)
    bind(outside, place)
(outside / "in").mkdir()
bind(folder, folder / "top/in")
mount_table.detach_below(folder)
print(len([one for one in mount_table.mounted() if folder in one.place.parents]),
      sorted(path.name for path in folder.rglob("*")), (outside / "kept").read_text())
"""


@pytest.mark.root
def test_all_mounts_below_a_folder_are_detached(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    shown = in_a_namespace(DETACH, folder, outside)
    assert shown == f"0 {sorted(['a b', 'c', chr(0x2003), 'top'])} kept\n"


EXCHANGED = """
folder, other = Path(sys.argv[1]), Path(sys.argv[2])
bind(other, other / "mounted")
rows = mount_table.mounted
fake = mount_table.Mount(folder / "user/mounted", "fuse", "rw")
mount_table.mounted = lambda: [fake]
try:
    mount_table.detach_below(folder)
except Exception as error:
    print(error)
print(other / "mounted" in [one.place for one in rows()])
"""


@pytest.mark.root
def test_a_link_on_the_way_to_a_mount_leads_to_no_other_mount(tmp_path: Path) -> None:
    """Its user exchanges folders between the reading of the table and the unmount."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    (other / "mounted").mkdir(parents=True)
    (folder / "user").symlink_to(other)
    message, kept = in_a_namespace(EXCHANGED, folder, other).splitlines()
    assert "user/mounted is mounted and cannot be unmounted" in message
    assert kept == "True"
