"""Taking back what a job user wrote: as root, with a user who is hostile and still there."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile import deepen
from seatrial_lab.common.owner import MAX_DEPTH, MAX_FILE_B, MAX_PATH_B, MAX_TOTAL_B, give, take

pytestmark = pytest.mark.root
JOB_USER = 2000


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_job_user(script: str, *words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", script, *map(str, words)], user=JOB_USER, group=JOB_USER,
        extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip


def test_only_files_and_folders_of_root_are_left(place: Path) -> None:
    """A link is removed and not followed, and nobody else's file changes its owner."""
    foreign = place / "foreign"
    foreign.mkdir()
    (foreign / "letter").write_text("kept")
    for path in (foreign, foreign / "letter"):
        os.chown(path, 65534, 65534)
    evidence = place / "evidence"
    (evidence / "inner").mkdir(parents=True)
    (evidence / "file").write_text("figures")
    (evidence / "file").chmod(0o6777)
    (evidence / "inner" / "file").write_text("figures")
    (evidence / "link").symlink_to(foreign / "letter")
    (evidence / "allocations").symlink_to(foreign)
    os.link(foreign / "letter", evidence / "second-name")
    os.mkfifo(evidence / "evidence.json")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(evidence / "socket"))
    for path in (evidence, *evidence.rglob("*")):
        if path.name not in ("second-name", "allocations", "link", "letter"):
            os.chown(path, JOB_USER, JOB_USER)
    (evidence / "inner").chmod(0o777)
    take(evidence)
    left = {str(path.relative_to(evidence)): path.lstat() for path in evidence.rglob("*")}
    assert sorted(left) == ["file", "inner", "inner/file"]
    assert {(status.st_uid, status.st_gid) for status in left.values()} == {(0, 0)}
    assert not any(status.st_mode & 0o6022 for status in left.values())
    assert foreign.stat().st_uid == (foreign / "letter").stat().st_uid == 65534
    assert (foreign / "letter").read_text() == "kept"


def acl(uid: int, rights: int) -> bytes:
    """An ACL by which a user has rights, as acl(5) and linux/posix_acl_xattr.h write it."""
    entries = [(0x01, 7, -1), (0x02, rights, uid), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def test_no_acl_is_left(place: Path) -> None:
    """By a default ACL of a folder, the job user could write what root makes there later."""
    evidence = place / "evidence"
    (evidence / "inner").mkdir(parents=True)
    (evidence / "file").write_text("figures")
    for folder in (evidence, evidence / "inner"):
        os.setxattr(folder, "system.posix_acl_default", acl(JOB_USER, 7))
    for path in (evidence, evidence / "file"):
        os.setxattr(path, "system.posix_acl_access", acl(JOB_USER, 7))
    for path in (evidence, *evidence.rglob("*")):
        os.chown(path, JOB_USER, JOB_USER)
    take(evidence)
    for path in (evidence, *evidence.rglob("*")):
        assert os.listxattr(path) == []
    (evidence / "later").write_text("root's")
    (evidence / "later").chmod(0o666 & ~0o002)
    script = "import sys; open(sys.argv[1], 'a')"
    assert as_job_user(script, evidence / "later").wait() == 1


EXCHANGE = """
import contextlib, os, sys
folder, target = sys.argv[1:]
os.chdir(folder)
print("up", flush=True)
while True:
    with contextlib.suppress(OSError):
        os.rename("inner", "aside")
        os.symlink(target, "inner")
    with contextlib.suppress(OSError):
        os.unlink("inner")
    with contextlib.suppress(OSError):
        os.rename("aside", "inner")
"""


def test_a_folder_that_is_exchanged_meanwhile_leads_nowhere(place: Path) -> None:
    """The job user puts a link to a foreign tree in the place of a folder, again and again."""
    foreign = place / "foreign"
    foreign.mkdir()
    for number in range(20):
        (foreign / f"f{number}").touch()
        os.chown(foreign / f"f{number}", 65534, 65534)
    for number in range(100):
        evidence = place / f"evidence{number}"
        (evidence / "inner").mkdir(parents=True)
        for name in range(20):
            (evidence / "inner" / f"f{name}").touch()
        for path in (evidence, *evidence.rglob("*")):
            os.chown(path, JOB_USER, JOB_USER)
        with as_job_user(EXCHANGE, evidence, foreign) as hostile:
            assert hostile.stdout
            hostile.stdout.readline()
            take(evidence)
            hostile.kill()
        assert {path.lstat().st_uid for path in evidence.rglob("*")} <= {0}
    assert {path.stat().st_uid for path in foreign.iterdir()} == {65534}


def test_a_tree_that_is_too_deep_is_removed(place: Path) -> None:
    evidence = place / "evidence"
    evidence.mkdir()
    (evidence / "file").touch()
    deepen(evidence)
    take(evidence)
    assert (evidence / "file").exists()
    assert max(len(path.relative_to(evidence).parts) for path in evidence.rglob("*")) <= MAX_DEPTH


def test_folders_whose_path_is_too_long_are_removed(place: Path) -> None:
    """Fewer than MAX_DEPTH, but longer than a path may be."""
    evidence = place / "evidence"
    evidence.mkdir()
    (evidence / "file").touch()
    deepen(evidence, 20, "d" * 250)
    take(evidence)
    assert (evidence / "file").exists()
    left = [path.relative_to(evidence) for path in evidence.rglob("*")]
    assert MAX_PATH_B - 251 < max(len(str(path)) for path in left) <= MAX_PATH_B


def test_files_that_take_hours_to_hash_are_removed(place: Path) -> None:
    """A sparse file costs its owner nothing."""
    for name, size in (("core", MAX_FILE_B + 1), ("largest", MAX_FILE_B), ("output", 5)):
        with (place / name).open("wb") as file:
            file.truncate(size)
        os.chown(place / name, JOB_USER, JOB_USER)
    sizes = take(place)
    left = {path.name: path.stat().st_size for path in place.iterdir()}
    assert sizes == left
    assert left == {"largest": MAX_FILE_B, "output": 5}
    for number in range(MAX_TOTAL_B // MAX_FILE_B):
        with (place / f"many{number}").open("wb") as file:
            file.truncate(MAX_FILE_B)
        os.chown(place / f"many{number}", JOB_USER, JOB_USER)
    os.chown(place, JOB_USER, JOB_USER)
    take(place)
    assert sum(path.stat().st_size for path in place.iterdir()) <= MAX_TOTAL_B


def test_a_trial_of_several_cases_loses_none_of_its_files(place: Path) -> None:
    """The total is of a case; what root wrote itself stays, however much evidence there is."""
    count = MAX_TOTAL_B // MAX_FILE_B
    trial = place / "trial"
    kept = [trial / "config" / "lab" / "requirements.yaml", trial / "results.jsonl"]
    for case in ("netpipe.tcp", "links.tcp"):
        kept += [trial / "cases" / case / "r0" / f"output{number}" for number in range(count)]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        size = MAX_FILE_B if file.parent.name == "r0" else 10
        file.touch()
        os.truncate(file, MAX_FILE_B + 1 if file.name == "results.jsonl" else size)
        if file.parent.name == "r0":
            for path in (file.parent, file):
                os.chown(path, JOB_USER, JOB_USER)
    for case in (trial / "cases").iterdir():
        take(case / "r0")
    leftover = trial / "stage" / "core"
    leftover.parent.mkdir()
    leftover.touch()
    os.truncate(leftover, MAX_FILE_B + 1)
    os.chown(leftover, JOB_USER, JOB_USER)
    grown = trial / "cases" / "links.tcp" / "r0" / "output0"
    os.truncate(grown, MAX_FILE_B + 1)  # by a process that has it open
    assert sorted(take(trial)) == sorted(
        str(file.relative_to(trial)) for file in kept if file != grown
    )
    assert all(file.exists() for file in kept if file != grown)
    assert not grown.exists()
    assert not leftover.exists()


def test_a_link_is_not_taken_nor_given(place: Path) -> None:
    foreign = place / "foreign"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    (place / "allocations").symlink_to(foreign)
    give(place / "allocations", JOB_USER, JOB_USER)
    with pytest.raises(OSError):
        take(place / "allocations")
    assert foreign.stat().st_uid == 65534
