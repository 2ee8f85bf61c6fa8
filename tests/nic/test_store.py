"""What a node remembers: after any damage to a file, on a full disk, with others at work."""

from __future__ import annotations

import builtins
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.nic.node import store as module
from seatrial.nic.node.errors import Refused
from seatrial.nic.node.store import JOURNAL, SECOND, Busy, Damaged, Store, Tombstone

JOURNAL_DATA: dict[str, Any] = {
    "job": "7", "profile": "jumbo", "phase": "applying", "at": 12.25, "boot_id": "b",
    "interfaces": {"eth1": {"before": {"mtu": 1500, "private.ä b": None}}},
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "state"))
    made.prepare()
    return made


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        made = Store(folder + "/state")
        made.prepare()
        yield made


def mode(path: Path | str) -> int:
    return Path(path).stat().st_mode & 0o777


def size() -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = Store(folder)
        made.save_journal(JOURNAL_DATA)
        return Path(made.path(JOURNAL)).stat().st_size


def test_a_journal_there_and_back(store: Store) -> None:
    assert store.journal() is None
    store.save_journal(JOURNAL_DATA)
    assert store.journal() == JOURNAL_DATA
    assert mode(store.path(JOURNAL)) == 0o644
    store.drop_journal()
    store.drop_journal()
    assert store.journal() is None


@given(st.sampled_from([(JOURNAL,), (SECOND,), (JOURNAL, SECOND)]), st.integers(0, size() - 1))
def test_cut_at_any_byte(shared: Store, which: tuple[str, ...], cut: int) -> None:
    """One whole copy is enough; without any, it is never taken for another one or for none."""
    shared.save_journal(JOURNAL_DATA)
    for name in which:
        os.truncate(shared.path(name), cut)
    whole = cut == size() - 1  # but for the line's end
    if len(which) == 2 and not whole:
        with pytest.raises(Damaged):
            shared.journal()
    else:
        assert shared.journal() == JOURNAL_DATA


@given(st.integers(0, size() - 2), st.binary(min_size=1, max_size=5))
def test_other_bytes_anywhere(shared: Store, at: int, garbage: bytes) -> None:
    shared.save_journal(JOURNAL_DATA)
    for name in (JOURNAL, SECOND):
        data = Path(shared.path(name)).read_bytes()
        Path(shared.path(name)).write_bytes(data[:at] + garbage + data[at + len(garbage) :])
    try:
        found = shared.journal()
    except Damaged:
        return
    assert found == JOURNAL_DATA


def test_a_value_changed_by_hand_is_damage(store: Store) -> None:
    store.save_journal(JOURNAL_DATA)
    for name in (JOURNAL, SECOND):
        file = Path(store.path(name))
        file.write_text(file.read_text().replace("1500", "1501"))
    with pytest.raises(Damaged):
        store.journal()


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '{"schema": 1}', "[" * 100_000, "\0" * 9])
def test_files_that_are_no_journal(store: Store, text: str) -> None:
    Path(store.path(JOURNAL)).write_text(text)
    with pytest.raises(Damaged):
        store.journal()


def test_the_first_copy_is_the_newer_one(store: Store) -> None:
    """Written first, removed last: whatever a death leaves, it is whole and not older."""
    store.save_journal(JOURNAL_DATA)
    names: list[str] = []
    real_write, real_unlink = store.write, os.unlink
    store.write = lambda name, text: (names.append(name), real_write(name, text))[1]  # type: ignore
    store.save_journal({**JOURNAL_DATA, "phase": "applied"})
    assert names == [JOURNAL, SECOND]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: (names.append(path), real_unlink(path))[1])
        store.drop_journal()
    assert [Path(name).name for name in names[2:]] == [SECOND, JOURNAL]


def test_a_damaged_journal_is_kept_for_a_look(store: Store) -> None:
    Path(store.path(JOURNAL)).write_text("x")
    store.set_aside()
    assert store.journal() is None
    assert Path(store.path("damaged-" + JOURNAL)).read_text() == "x"


# -- a full disk


@pytest.fixture
def full(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk on which so many bytes are left."""
    left = {"bytes": 0}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            room = left["bytes"]
            if not Path(store.path(module.SPARE)).exists():
                room += module.SPARE_B
            if status.st_size > room:
                raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return left


def test_a_full_disk_leaves_the_old_journal_whole(store: Store, full: dict[str, int]) -> None:
    full["bytes"] = 10**6
    store.reserve_space()
    store.save_journal(JOURNAL_DATA)
    full["bytes"] = 0
    with pytest.raises(OSError, match="No space"):
        store.save_journal({**JOURNAL_DATA, "phase": "applied"})
    assert store.journal() == JOURNAL_DATA
    assert not list(Path(store.folder).glob("*.new"))


def test_the_reason_is_written_on_a_full_disk(store: Store, full: dict[str, int]) -> None:
    full["bytes"] = module.SPARE_B
    assert store.reserve_space() == ""
    full["bytes"] = 0
    assert Path(store.path(module.SPARE)).stat().st_size == module.SPARE_B
    store.write_reason("job 7: no space\n  for the journal")
    assert store.reason() == "job 7: no space for the journal"
    store.write_reason("another")  # the spare is gone by now
    assert store.reason() is not None


def test_a_disk_without_room_for_a_reason_is_said(store: Store, full: dict[str, int]) -> None:
    full["bytes"] = -module.SPARE_B
    text = f"{store.folder} has no room for the reason of a failure: No space left on device"
    assert store.reserve_space() == text
    assert not Path(store.path(module.SPARE)).exists()
    text = f"the reason cannot be written to {store.folder}: No space left on device"
    assert store.write_reason("job 7") == text
    # The part of a file that an earlier release left is none.
    Path(store.path(module.SPARE)).write_bytes(b"x")
    full["bytes"] = 10**6
    assert store.reserve_space() == ""
    assert Path(store.path(module.SPARE)).stat().st_size == module.SPARE_B


# -- the lock

HOLDER = """
import subprocess, sys
sys.path.insert(0, {source!r})
from seatrial.nic.node import programs
from seatrial.nic.node.store import Store
with Store({folder!r}).lock(5):
    print("held", flush=True)
    programs.run({argv!r}, timeout=600)
    print("ended", flush=True)
    sys.stdin.read()
"""
SOURCE = str(Path(module.__file__).parents[3])


@pytest.fixture
def read_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A disk that turned read-only: nothing is written, renamed or removed."""

    def refuse(path: str, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    real = os.open

    def only_read(path: str, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", only_read)
    for name in ("unlink", "rename", "makedirs", "chmod"):
        monkeypatch.setattr(os, name, refuse)
    return store


def test_a_read_only_disk_hides_no_reason(read_only: Store) -> None:
    """The caller raises the reason that could not be written: Slurm and the log have it."""
    read_only.write_reason("job 7: eth1 has no coalescing")
    assert read_only.reason() is None


def test_old_tombstones_on_a_read_only_disk_stop_no_prolog(
    store: Store, request: pytest.FixtureRequest
) -> None:
    store.write_tombstone("7", "0", Tombstone(1.0, "earlier"))
    request.getfixturevalue("read_only")
    store.remove_old_tombstones(1e9, "now")
    assert store.tombstone("7", "0", 1.0, "earlier") is not None


def test_a_lock_that_a_read_only_disk_does_not_have(read_only: Store) -> None:
    with pytest.raises(OSError, match="Read-only file system"), read_only.lock(0.0):
        pass


def holder(store: Store, *argv: str) -> subprocess.Popen[str]:
    text = HOLDER.format(source=SOURCE, folder=store.folder, argv=list(argv))
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def taken(store: Store) -> bool:
    try:
        with store.lock(0):
            return False
    except Busy:
        return True


def test_one_at_a_time_and_free_after_a_death(store: Store) -> None:
    process = holder(store, "true")
    assert process.stdout
    process.stdout.readline()
    assert taken(store)
    begin = time.monotonic()
    with pytest.raises(Busy), store.lock(0.2):
        pass
    assert time.monotonic() - begin >= 0.2
    process.kill()
    process.wait()
    assert not taken(store)
    with store.lock(0):  # and it is given back after an error, too
        pass
    with pytest.raises(KeyError), store.lock(0):
        raise KeyError
    assert not taken(store)


def test_a_program_that_outlives_its_killed_parent_keeps_the_lock(
    store: Store, tmp_path: Path
) -> None:
    """What it does to the interface is not over yet."""
    pid_file = tmp_path / "pid"
    process = holder(store, "sh", "-c", f"echo $$ > {pid_file}; exec sleep 60")
    while not (pid_file.exists() and pid_file.read_text().strip()):
        time.sleep(0.01)
    child = int(pid_file.read_text())
    try:
        process.kill()
        process.wait()
        assert taken(store)
    finally:
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while taken(store):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- tombstones


KEPT_S = module.TOMBSTONES_KEPT_S


def test_a_late_epilog_does_not_replace_the_tombstone_of_a_later_one(store: Store) -> None:
    """Else the Prolog of the second start, which its Epilog overtook, would apply its profile."""
    now = 10 * KEPT_S
    store.write_tombstone("7", "0", Tombstone(now, "now"))
    store.write_tombstone("7", "0", Tombstone(now - 1, "now"))
    assert store.tombstone("7", "0", now, "now") == Tombstone(now, "now")
    store.write_tombstone("7", "0", Tombstone(now + 1, "now"))
    assert store.tombstone("7", "0", now, "now") == Tombstone(now + 1, "now")


def test_tombstones_and_their_sweeping(store: Store) -> None:
    now = 10 * KEPT_S + 1.0
    store.write_tombstone("1", "0", Tombstone(now - 1, "now"))
    store.write_tombstone("2", "0", Tombstone(now, "an earlier boot"))
    store.write_tombstone("3", "0", Tombstone(now - 2 * KEPT_S, "now"))
    store.write_tombstone("4", "0", Tombstone(now - KEPT_S, "now"))  # the youngest Prolog's oldest
    Path(store.path("tombstones/5.0")).write_text("{}")  # of an earlier release
    store.remove_old_tombstones(now, "now")
    assert store.tombstone("1", "0", now, "now") == Tombstone(now - 1, "now")
    assert store.tombstone("1", "1", now, "now") is None
    assert store.tombstone("2", "0", now, "now") is None
    assert store.tombstone("4", "0", now, "now") == Tombstone(now - KEPT_S, "now")
    folders = sorted(path.name for path in Path(store.path("tombstones")).iterdir())
    assert folders == ["now-10", "now-9"][: len(folders)]
    assert len(folders) == 2


def test_a_damaged_tombstone_is_one(store: Store) -> None:
    store.write_tombstone("7", "0", Tombstone(5.0, "now"))
    (file,) = Path(store.path("tombstones")).rglob("7.0")
    file.write_text('{"at": 1')
    draft = file.with_name("8.0.new")  # of a writer that was killed
    draft.touch()
    found = store.tombstone("7", "0", 6.0, "now")
    assert found is not None
    assert found.at == float("inf")
    store.remove_old_tombstones(6.0, "now")
    assert file.exists()
    store.remove_old_tombstones(3 * KEPT_S, "now")
    assert not list(Path(store.path("tombstones")).iterdir())


class Counted:
    """How often files were opened, removed and listed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 0
        for owner, name in ((builtins, "open"), (os, "unlink"), (os, "listdir"), (os, "stat")):
            patch.setattr(owner, name, self.counting(getattr(owner, name)))

    def counting(self, real: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            self.number += 1
            return real(*words, **more)

        return call


def test_many_tombstones_cost_a_prolog_no_more_than_few(store: Store) -> None:
    """Not measured in seconds: how many files it touches."""
    counts = []
    for number in (10, 3000):
        store.write_tombstone("0", "0", Tombstone(5.0, "now"))
        (first,) = Path(store.path("tombstones")).rglob("0.0")
        for job in range(number):
            first.with_name(f"{job}.1").write_text("{}")
        with pytest.MonkeyPatch.context() as patch:
            counted = Counted(patch)
            store.remove_old_tombstones(6.0, "now")
            assert store.tombstone("0", "0", 6.0, "now")
            counts.append(counted.number)
    assert counts[0] == counts[1]
    assert counts[0] < 5


def test_a_foreign_folder_does_not_end_the_sweeping(store: Store) -> None:
    tombstones = Path(store.path("tombstones"))
    for name in "abcdef":
        (tombstones / name / "inner" / "deep").mkdir(parents=True)
        (tombstones / name / "7.0").touch()
        (tombstones / f"{name}-old").mkdir()
    store.remove_old_tombstones(9 * KEPT_S, "now")
    assert sorted(path.name for path in tombstones.iterdir()) == list("abcdef")
    assert not list(tombstones.rglob("7.0"))


@pytest.mark.parametrize("flat", [False, True], ids=["old folders", "of an earlier release"])
def test_many_old_tombstones_go_a_part_at_a_time(store: Store, flat: bool) -> None:
    folder = Path(store.path("tombstones")) / ("" if flat else "now-0")
    folder.mkdir(exist_ok=True)
    total = 2 * module.REMOVED_AT_ONCE + 500
    for job in range(total):
        (folder / f"{job}.0").touch()
    for left in (total - module.REMOVED_AT_ONCE, 500, 0):
        with pytest.MonkeyPatch.context() as patch:
            counted = Counted(patch)
            store.remove_old_tombstones(9 * KEPT_S, "now")
        assert counted.number <= module.REMOVED_AT_ONCE + 3
        assert len(list(Path(store.path("tombstones")).rglob("*.0"))) == left
    assert not list(Path(store.path("tombstones")).iterdir())


# -- the folder


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_who_may_read_and_write(tmp_path: Path, umask: int) -> None:
    """Root writes and all read, whatever umask Slurm's daemon has."""
    store = Store(str(tmp_path / "state"))
    previous = os.umask(umask)
    try:
        store.prepare()
        store.save_journal(JOURNAL_DATA)
        store.write_tombstone("1", "0", Tombstone(1.0, "b"))
        store.save_baseline({"boot_id": "b"})
        store.write_reason("x")
        store.note(event="x")
        store.reserve_space()
    finally:
        os.umask(previous)
    for path in Path(store.folder).rglob("*"):
        assert mode(path) == (0o755 if path.is_dir() else 0o644), path
    assert mode(store.folder) == 0o755


def test_a_draft_is_never_open_to_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened it for writing before it has its name could change the journal."""
    seen = []
    real = os.open

    def spy(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = real(path, flags, mode, **more)
        if str(path).endswith(".new"):
            seen.append(os.fstat(descriptor).st_mode & 0o022)
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    previous = os.umask(0)
    try:
        store.save_journal(JOURNAL_DATA)
    finally:
        os.umask(previous)
    assert seen == [0, 0]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(Refused, match="written by others"):
        Store(str(tmp_path)).prepare()


@pytest.mark.root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 0)
    with pytest.raises(Refused, match="written by others"):
        Store(str(folder)).prepare()
    assert not any(folder.iterdir())


# -- what else is kept


def test_a_baseline_that_is_damaged_is_none(store: Store) -> None:
    store.save_baseline({"boot_id": "b", "interfaces": {}})
    assert store.baseline() == {"boot_id": "b", "interfaces": {}}
    text = Path(store.path("baseline.json")).read_text()
    for bad in (text[:-3], text.replace('"b"', '"c"'), "[]", "", "{}"):
        Path(store.path("baseline.json")).write_text(bad)
        assert store.baseline() is None


def test_history_is_lines_and_has_a_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY_B", 200)
    for number in range(9):
        store.note(event="applied", job=str(number))
    assert store.history()[-1]["job"] == "8"
    assert Path(store.path("history.jsonl")).stat().st_size < 400
    with Path(store.path("history.jsonl")).open("a") as stream:
        stream.write('{"event": "cut')
    assert store.history()[-1]["job"] == "8"
    first = Path(store.path("history.jsonl")).read_text().splitlines()[0]
    assert "time" in json.loads(first)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    with pytest.raises(Refused, match="has no locks") as caught, store.lock(0.0):
        pass
    assert store.folder in str(caught.value)
    assert "state_folder" in str(caught.value)
