"""The versions of the node side that are beside each other on a machine, and the one in use.

A version is a folder with the package and the policy, named by its content. It is whole before the
launcher names it, and stays as it is. So whatever starts while another version is installed runs
one version, and not modules of two. Versions that are no longer in use are removed a day later.

Which files a version has is in ``seatrial.slurm.render``; this module knows their names and texts.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from seatrial.base.errors import LabError
from seatrial.base.files import read_below, remove_tree, write_whole
from seatrial.base.lock import NO_LOCKS, locked
from seatrial.base.say import Say
from seatrial.slurm.layout import PACKAGE, Layout
from seatrial.slurm.render import INSTALLED, MARKER, POLICY

#: A version stays so long after the launcher named it last. A process needs its folder until it has
#: imported the package, at its start. slurmd kills a Prolog after minutes, and a node sees a new
#: launcher on NFS after ``acdirmax`` (60 s) or ``actimeo``.
KEPT_S = 24 * 3600
LOCK = ".lock"
_DRAFT = ".draft-"
_NAME = re.compile(r"[0-9a-f]{16}")
_NAMED = re.compile(r'"versions", "([0-9a-f]{16})"')  # in the launcher
_DRAFT_BEFORE = f".{PACKAGE}.seatrial-"  # of installations that have no versions yet
_LARGEST = 1 << 20  # bytes; ours have less than 100 kB
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def writer() -> str:
    """This process in the names of drafts. Another node has other host names, and may have the same
    process ids."""
    return f"{os.uname().nodename}.{os.getpid()}"


@contextmanager
def lock(libexec: Path, say: Say) -> Iterator[None]:
    """Let one installation or removal at a time change ``libexec``, as far as its file system can.

    Without locks (NFS with nolock, Lustre without flock) nothing breaks, because no draft has the
    name of another; the version of the one that ends last is in use. Raises OSError.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(libexec / LOCK, say))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            say(f"the file system of {libexec} has no locks: install on one node at a time")
        yield


def in_use(root: Path, layout: Layout) -> Path | None:
    """The folder with the package that the installed launcher starts; None if there is none."""
    launcher = root / layout.command.lstrip("/")
    try:
        text = read_below(launcher.parent, Path(launcher.name), _LARGEST).decode(errors="replace")
    except OSError:
        return None
    if MARKER not in text:
        return None
    named = _NAMED.search(text)
    return root / layout.versions.lstrip("/") / named[1] if named else launcher.parent


def policy_in_use(root: Path, layout: Layout) -> dict[str, object] | None:
    """The policy that the nodes' command reads; None if it reads none, or one that is damaged."""
    version = in_use(root, layout)
    try:
        policy = json.loads(read_below(version, Path(POLICY), _LARGEST)) if version else None
    except (OSError, ValueError, RecursionError):
        return None
    return policy if isinstance(policy, dict) else None


def is_ours(folder: Path, names: Collection[str]) -> bool:
    """Whether a version, or a package of an installation without versions, may be replaced.

    It has the marker; or, if an installation or removal was killed, only files of ``names``.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    with suppress(OSError):
        if stat.S_ISREG((folder / INSTALLED).lstat().st_mode):
            return True
    return not list(_others(folder, names))


def _others(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """What is in a folder beside the files ``names`` and their byte code."""
    known = {*names, *(str(Path(name).parent) for name in names)}
    for path in _inside(folder):
        if "__pycache__" in path.parts[:-1] and path.suffix == ".pyc":
            continue
        if path.name != "__pycache__" and str(path) not in known:
            yield path


def _inside(folder: Path) -> Iterator[Path]:
    """All that is below a folder, relative to it. It follows no link."""
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(top, name).relative_to(folder)


def differs(folder: Path, texts: Mapping[str, str]) -> bool:
    """Whether a version is there and has more files than ``texts``, or what others can write to."""
    if not folder.is_dir():
        return False
    opened = (_is_open(folder / path) for path in (Path(), *_inside(folder)))
    return any(_others(folder, texts)) or any(opened)


def _is_open(path: Path) -> bool:
    """Whether another user can write to a file or folder, or could when it was made; or a link."""
    status = path.lstat()
    return bool(status.st_mode & 0o022) or status.st_uid not in (0, os.geteuid())


def make(folder: Path, texts: Mapping[str, str], layout: Layout) -> None:
    """Make a version, or replace what is at its place, in one step. Raises OSError, and LabError if
    the draft is not whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = _new_folder(folder.parent)
    try:
        draft.chmod(0o755)
        for name, text in texts.items():
            file = draft / name
            file.parent.mkdir(exist_ok=True)
            write_whole(file, text, durable=False, writer=writer())
        _compile(draft / PACKAGE, f"{layout.versions}/{folder.name}/{PACKAGE}", layout.python)
        lacking = [name for name, text in texts.items() if not _has(draft, name, text)]
        if lacking or differs(draft, texts):
            raise LabError(f"{draft} was changed while it was written: {', '.join(lacking)}")
        # All are written before the first is synced: the disk then has little to do for each.
        for path in (*(draft / name for name in texts), draft / PACKAGE, draft):
            _sync(path)
        try:
            draft.rename(folder)
        except OSError:
            if not os.path.lexists(folder):
                raise
            _exchange(draft, folder)
        _sync(folder.parent)
    finally:
        remove_tree(draft)  # what was at its place, or what is not whole


def _has(folder: Path, name: str, text: str) -> bool:
    try:
        return read_below(folder, Path(name), _LARGEST) == text.encode()
    except OSError:
        return False


def _sync(path: Path) -> None:
    """Have a file, or the entries of a folder, on the disk before the launcher names them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _new_folder(beside: Path) -> Path:
    """A new folder, with a name that no other process has or can have put a link at."""
    return Path(tempfile.mkdtemp(prefix=f"{_DRAFT}{writer()}.", dir=beside))


def _compile(package: Path, shown: str, python: str) -> None:
    """Compile the package, so that it starts fast from a read-only file system. Ignores errors."""
    command = [python, "-I", "-m", "compileall", "-q", "-d", shown]
    # Hash-based files stay valid in an image that is copied without times. Not in Python 3.6.
    for options in (["--invalidation-mode", "checked-hash"], []):
        try:
            answer = subprocess.run([*command, *options, str(package)], capture_output=True)
        except OSError:
            return
        if answer.returncode == 0:
            break


def _exchange(path: Path, other: Path) -> None:
    """Exchange two folders atomically, or in three renames if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(path), os.fsencode(other))
    try:
        done = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0
    except AttributeError:
        done = False
    if not done:
        aside = _new_folder(other.parent) / other.name
        other.rename(aside)
        path.rename(other)
        aside.rename(path)
        aside.parent.rmdir()


def keep(version: Path | None) -> None:
    """Let the time for which a version stays begin now: it is about to be replaced."""
    if version and (version / PACKAGE).is_dir():
        os.utime(version / PACKAGE)


def installed(root: Path, layout: Layout, names: Collection[str]) -> list[Path]:
    """The folders of all versions that are ours, and the package of an installation without."""
    folders = [
        path
        for path in _listed(root / layout.versions.lstrip("/"))
        if _NAME.fullmatch(path.name) and is_ours(path, names)
    ]
    before = root / layout.package_before.lstrip("/")
    modules = [INSTALLED, *(Path(name).name for name in names)]
    return [*folders, before] if is_ours(before, modules) else folders


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sweep(root: Path, layout: Layout, names: Collection[str]) -> None:
    """Remove versions and drafts that nobody has used for KEPT_S. Raises OSError.

    Times are those of the file system's server: the clock of this machine may be another.
    """
    libexec = root / layout.libexec.lstrip("/")
    (libexec / LOCK).touch(mode=0o600)
    before = (libexec / LOCK).stat().st_mtime - KEPT_S
    used = in_use(root, layout)
    drafts = [
        path
        for folder in (libexec, root / layout.versions.lstrip("/"))
        for path in _listed(folder)
        if path.name.startswith((_DRAFT, _DRAFT_BEFORE))
    ]
    for path in drafts:
        with suppress(FileNotFoundError):  # of another installation, which has ended
            if path.lstat().st_mtime < before:
                remove_tree(path)
    for version in installed(root, layout, names):
        package = version if version.name == PACKAGE else version / PACKAGE
        if used and package == used / PACKAGE:
            continue
        with suppress(FileNotFoundError):
            last = (package if package.is_dir() else version).stat().st_mtime
            if last < before:
                discard(version)


def discard(version: Path) -> None:
    """Remove a version. Its name is gone at once, and not file by file."""
    aside = _new_folder(version.parent)
    version.rename(aside / version.name)
    remove_tree(aside)
