"""The state folder of a node: journal, tombstones, the record of the boot, reason and history.

The journal is written and synced before the first change. It is removed after the last change is
undone and verified. So a profile may be in force if and only if there is a journal. It exists
twice, each copy with a checksum: one damaged copy loses nothing.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from . import programs
from .errors import Refused

JOURNAL = "journal.json"
SECOND = "journal.bak.json"
SCHEMA = 1
#: given up when the disk is full, so that the reason can still be written
SPARE = ".spare"
SPARE_B = 8192
HISTORY_B = 1 << 20
#: a Prolog that is older leaves nothing applied, so that no older tombstone is needed. Far longer
#: than Slurm lets a Prolog run (PrologEpilogTimeout)
TOMBSTONES_KEPT_S = 1800.0
#: files that one command removes at most, while others wait for the lock
REMOVED_AT_ONCE = 1000
LOCK_POLL_S = 0.02

#: A damaged tombstone says at least that an Epilog ran: as if just now.
DAMAGED_AT = float("inf")
Tombstone = NamedTuple("Tombstone", [("at", float), ("boot_id", str)])


class Damaged(Exception):
    """There is a journal, and neither copy can be read."""


class Busy(Refused):
    """The lock is held by somebody else."""


def _checksum(data: Dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _for_root_only_to_write(path: str, flags: int) -> int:
    """For ``open``: a umask of 0 must not let anybody else write, not even for a moment."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.fchmod(descriptor, 0o644)
    return descriptor


def _remove(old: Any, most: int) -> int:
    """Remove a file, or a folder of files; at most so many files. Returns how many it tried.

    What cannot be removed stays, such as a folder in the folder. Raises nothing.
    """
    tried = 0
    with contextlib.suppress(OSError):
        if not old.is_dir(follow_symlinks=False):  # of an earlier release
            tried = 1
            os.unlink(old.path)
            return tried
        with os.scandir(old.path) as entries:
            for entry in entries:
                if tried == most:
                    return tried
                tried += 1
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        os.rmdir(old.path)
    return tried


def _tombstone_names(job: str, restart: str, cluster: str) -> List[str]:
    """Names of the file of a start of a job: the last one names no cluster, as earlier releases."""
    name = "%s.%s" % (job, restart)
    return ["%s@%s" % (name, cluster), name] if cluster else [name]


class Store:
    """The state folder of one node. Methods raise OSError where the disk refuses."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def prepare(self) -> None:
        """Make the folder, for root to write and all to read."""
        for folder in (self.folder, self.path("tombstones")):
            if not os.path.isdir(folder):
                os.makedirs(folder, mode=0o755, exist_ok=True)
                os.chmod(folder, 0o755)  # whatever the umask is that Slurm's daemon has
            status = os.stat(folder)
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
                raise Refused("%s can be written by others than root" % folder)

    # -- the lock

    @contextlib.contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        """Hold the node's lock; with timeout 0, try once. Raises Busy.

        The programs that are started meanwhile inherit it: it is free only when they have ended,
        also if this process is killed.
        """
        self.prepare()
        path, flags = self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # A disk that turned read-only must not prevent restoring.
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise error  # the reason is the disk, not the missing lock
        deadline = time.monotonic() + timeout
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                        raise Refused(
                            "the file system of %s has no locks (%s): the policy's state_folder is "
                            "a folder of a local disk" % (self.folder, error.strerror)
                        )
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                if time.monotonic() >= deadline:
                    raise Busy("another of Seatrial's commands works on this node's NICs")
                time.sleep(LOCK_POLL_S)
            programs.inherited.append(descriptor)
            try:
                yield
            finally:
                programs.inherited.remove(descriptor)
        finally:
            os.close(descriptor)

    # -- files

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole, on disk when this returns."""
        path = self.path(name)
        draft = path + ".new"
        try:
            with open(draft, "w", opener=_for_root_only_to_write) as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def _read(self, name: str) -> Optional[str]:
        try:
            with open(self.path(name), errors="replace") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    # -- the journal

    def save_journal(self, journal: Dict[str, Any]) -> None:
        text = json.dumps(
            {"schema": SCHEMA, "sum": _checksum(journal), "journal": journal}, indent=1
        )
        self.write(JOURNAL, text + "\n")
        self.write(SECOND, text + "\n")

    def journal(self) -> Optional[Dict[str, Any]]:
        """The journal, or None where nothing is in force. Raises Damaged."""
        there = False
        for name in (JOURNAL, SECOND):
            text = self._read(name)
            if text is None:
                continue
            there = True
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                data = json.loads(text)
                if data["schema"] == SCHEMA and data["sum"] == _checksum(data["journal"]):
                    return data["journal"]
        if there:
            raise Damaged()
        return None

    def has_journal(self) -> bool:
        return any(os.path.exists(self.path(name)) for name in (JOURNAL, SECOND))

    def drop_journal(self) -> None:
        # The second copy goes first: a first one alone is whole, for it was written first.
        self.remove(SECOND)
        self.remove(JOURNAL)
        self._sync_folder()

    def set_aside(self) -> None:
        """Rename a damaged journal, so that an operator can read it and no program does."""
        for name in (SECOND, JOURNAL):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path(name), self.path("damaged-" + name))
        self._sync_folder()

    # -- tombstones: this job's Epilog has been here

    # A folder for each boot and half hour, so that a Prolog looks for one file in two folders, and
    # old ones are removed without reading them.

    def _tombstones_of(self, tombstone: Tombstone) -> str:
        period = int(tombstone.at // TOMBSTONES_KEPT_S)
        return "tombstones/%s-%d" % (tombstone.boot_id or "boot", period)

    def _young(self, now: float, boot_id: str) -> List[str]:
        """The folders whose tombstones may be needed."""
        times = (now, now - TOMBSTONES_KEPT_S)
        return [self._tombstones_of(Tombstone(at, boot_id)) for at in times]

    def write_tombstone(
        self, job: str, restart: str, tombstone: Tombstone, cluster: str = ""
    ) -> None:
        """Write it, unless there is a later one: an Epilog of a dead slurmd may come late."""
        self.prepare()
        folder = self._tombstones_of(tombstone)
        if not os.path.isdir(self.path(folder)):
            os.makedirs(self.path(folder), mode=0o755, exist_ok=True)
            os.chmod(self.path(folder), 0o755)
        name = "%s/%s" % (folder, _tombstone_names(job, restart, cluster)[0])
        present = self._tombstone_at(name, tombstone.boot_id)
        if present is None or present.at <= tombstone.at or present.at == DAMAGED_AT:
            text = json.dumps({"at": tombstone.at, "boot_id": tombstone.boot_id})
            self.write(name, text)

    def tombstone(
        self, job: str, restart: str, now: float, boot_id: str, cluster: str = ""
    ) -> Optional[Tombstone]:
        """The tombstone of a start of a job in this boot, if it is not old."""
        for folder in self._young(now, boot_id):
            for name in _tombstone_names(job, restart, cluster):
                tombstone = self._tombstone_at("%s/%s" % (folder, name), boot_id)
                if tombstone:
                    return tombstone
        return None

    def _tombstone_at(self, name: str, boot_id: str) -> Optional[Tombstone]:
        text = self._read(name)
        if text is None:
            return None
        try:
            data = json.loads(text)
            return Tombstone(float(data["at"]), str(data["boot_id"]))
        except (ValueError, KeyError, TypeError):
            return Tombstone(DAMAGED_AT, boot_id)

    def remove_old_tombstones(self, now: float, boot_id: str) -> None:
        """Remove tombstones that no Prolog can still need: a part of them, where there are many."""
        young = {os.path.basename(folder) for folder in self._young(now, boot_id)}
        left = REMOVED_AT_ONCE
        folder = self.path("tombstones")
        # A Prolog does not fail by them.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if left <= 0:
                    break
                if entry.name not in young:
                    left -= _remove(entry, left)

    # -- reason, baseline and history

    def reason(self) -> Optional[str]:
        text = self._read("reason")
        return text.strip() if text is not None else None

    def write_reason(self, reason: str) -> str:
        """Write the reason file. Returns why it cannot be written, else nothing. Raises nothing."""
        line = programs.one_line(reason) + "\n"
        try:
            try:
                self.write("reason", line)
            except OSError:
                self.remove(SPARE)
                self.write("reason", line)
        except OSError as error:  # also of a disk that is read-only
            return "the reason cannot be written to %s: %s" % (self.folder, error.strerror)
        return ""

    def reserve_space(self) -> str:
        """Keep room for a reason. Returns why that cannot be done, else nothing. Raises nothing."""
        path = self.path(SPARE)
        try:
            if not os.path.exists(path) or os.path.getsize(path) < SPARE_B:
                with open(path, "wb", opener=_for_root_only_to_write) as stream:
                    stream.write(os.urandom(SPARE_B))  # file systems store zeros in less room
                    stream.flush()
                    os.fsync(stream.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self.remove(SPARE)
            return "%s has no room for the reason of a failure: %s" % (self.folder, error.strerror)
        return ""

    def baseline(self) -> Optional[Dict[str, Any]]:
        try:
            text = self._read("baseline.json")
            data = json.loads(text) if text else None
            if data and data["sum"] == _checksum(data["baseline"]):
                return data["baseline"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def save_baseline(self, baseline: Dict[str, Any]) -> None:
        self.write("baseline.json", json.dumps({"sum": _checksum(baseline), "baseline": baseline}))

    def note(self, **entry: Any) -> None:
        """Add a line to the node's history; a full disk loses it and nothing else."""
        path = self.path("history.jsonl")
        with contextlib.suppress(OSError):
            if os.path.exists(path) and os.path.getsize(path) > HISTORY_B:
                os.rename(path, path + ".1")
            with open(path, "a", opener=_for_root_only_to_write) as stream:
                stream.write(
                    json.dumps(dict(entry, time=round(time.time(), 3)), sort_keys=True) + "\n"
                )

    def history(self) -> List[Dict[str, Any]]:
        events = []
        for line in (self._read("history.jsonl") or "").splitlines():
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return events
