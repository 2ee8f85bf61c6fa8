"""Installs the files of the Slurm side on this machine or in a node image, and removes them.

A file of another origin is only replaced with --force. Each file, and the package of the node side
as a whole, is replaced in one atomic step, so a Prolog that starts meanwhile reads the old or the
new version. This module does not change slurm.conf and starts no service.

Root runs what is installed: whatever the umask of the caller is, nobody else can write to it.
"""

from __future__ import annotations

import ctypes
import difflib
import errno
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from seatrial.base.errors import InputError, LabError
from seatrial.base.files import read_below, remove_tree, write_whole
from seatrial.base.trust import exposed
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import INSTALLED, MARKER, File

State = Literal["new", "changed", "same", "foreign"]
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_LARGEST = 1 << 20  # bytes; ours have less than 100 kB
# A link, a FIFO or device, a large file, a socket: nothing that was installed.
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENXIO)


@dataclass(frozen=True)
class Step:
    """One file, its path below the root, and the state of the file at that path."""

    file: File
    target: Path
    state: State
    old: str = ""

    def diff(self) -> str:
        """The change as a unified diff; empty if the file is the same."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.file.text.splitlines(keepends=True),
            f"{self.file.path} (installed)" if self.state != "new" else "/dev/null",
            f"{self.file.path} (of this site)",
        )  # fmt: skip
        return "".join(lines)


def plan(files: list[File], root: Path, layout: Layout, force: bool = False) -> list[Step]:
    """The steps of an installation. Changes nothing.

    A job_submit.lua of the site stays, and ours gets another name. Raises InputError if a symbolic
    link leads out of the image.
    """
    steps = [_step(file, root, layout) for file in files]
    planned = []
    for step in steps:
        if step.state == "foreign" and step.file.path == layout.job_submit and not force:
            beside = replace(
                step.file,
                path=layout.job_submit_beside,
                purpose="for your job_submit.lua to call",
            )
            step = _step(beside, root, layout)
        if force and step.state == "foreign":
            step = replace(step, state="changed")
        planned.append(step)
    return planned


def _step(file: File, root: Path, layout: Layout) -> Step:
    target = _below(root, file.path)
    try:
        content = read_below(target.parent.resolve(), Path(target.name), _LARGEST)
        status = target.lstat()
    except FileNotFoundError:
        package = _below(root, layout.package)
        if target.is_relative_to(package) and package.exists() and not _is_ours(target, "", layout):
            return Step(file, target, "foreign")
        return Step(file, target, "new")
    except OSError as error:
        if error.errno in _NO_FILE and not target.is_dir():
            return Step(file, target, "foreign")
        raise InputError(f"{target}: {error.strerror}") from None
    old = content.decode(errors="replace")
    if not _is_ours(target, old, layout):
        return Step(file, target, "foreign", old)
    same = (old, status.st_mode & 0o7777) == (file.text, file.mode)
    return Step(file, target, "same" if same and _is_trusted(status, root) else "changed", old)


def _is_trusted(status: os.stat_result, root: Path) -> bool:
    """Whether root owns a file; in an image also the user who builds it."""
    return status.st_uid == 0 or (root != Path("/") and status.st_uid == os.geteuid())


def _below(root: Path, path: str) -> Path:
    target = root / path.lstrip("/")
    if root != Path("/") and not target.parent.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{target.parent} leads out of {root}, to {target.parent.resolve()}")
    return target


def _is_ours(target: Path, text: str, layout: Layout) -> bool:
    if target.parent.name == Path(layout.package).name:
        return (target.parent / INSTALLED).is_file()
    if target.name == Path(layout.policy).name:
        try:
            return {"digest", "feature_prefix", "state_folder"} <= set(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            return False
    return MARKER in text[:1000]


def install(steps: list[Step], layout: Layout) -> None:
    """Execute the steps. Raises InputError for files that are not ours, LabError, OSError."""
    foreign = [str(step.target) for step in steps if step.state == "foreign"]
    if foreign:
        raise InputError(
            f"not installed by seatrial: {', '.join(foreign)}; move the file, or replace it with "
            "--force"
        )
    _refuse_while_in_force(steps, layout)
    todo = [step for step in steps if step.state in ("new", "changed")]
    package = [step for step in steps if step.target.parent.name == Path(layout.package).name]
    _refuse_writable_folders(steps, layout)
    umask = os.umask(0o022)
    try:
        if any(step in todo for step in package) or _differs(package):
            _install_package(package, layout)
        for step in todo:
            if step not in package:
                _write(step.target, step.file)
    except PermissionError as error:
        raise LabError(f"{error.filename}: {error.strerror}: run this as root") from None
    finally:
        os.umask(umask)


def _refuse_writable_folders(steps: list[Step], layout: Layout) -> None:
    """Raise InputError if somebody but root can exchange what is installed, or a folder above it.

    That holds for an image, too: its owner could lead root out of it by a link. If an ordinary user
    builds an image, only the folders inside it count: that user may own them, and its group may
    write to them.
    """
    root_runs = os.geteuid() == 0
    for step in steps:
        root = step.target.parents[len(PurePosixPath(step.file.path).parts) - 2]
        everywhere = root_runs or root == Path("/")
        folder = step.target.parent
        if folder.name == Path(layout.package).name:
            folder = folder.parent  # the package is replaced as a whole
        for one in exposed(folder, {0} if everywhere else {0, os.geteuid()}, group=everywhere):
            if everywhere or root.resolve() in one.path.parents:
                why = f"and root runs or reads what is in {step.target.parent}"
                raise InputError(f"{one.path}: {one.who}, {why}: {one.correction}")


def _refuse_while_in_force(steps: list[Step], layout: Layout) -> None:
    """Raise InputError if the state folder changes while a profile is in force."""
    for step in steps:
        if step.file.path == layout.policy and _is_ours(step.target, step.old, layout):
            old, new = json.loads(step.old), json.loads(step.file.text)
            if old["state_folder"] != new["state_folder"]:
                refuse_in_force(str(step.target).removesuffix(layout.policy), old["state_folder"])


def refuse_in_force(root: str, folder: str) -> None:
    """Raise InputError if the state folder of a node says that a NIC profile is in force."""
    pattern = f"{root}{folder}/journal*.json".replace("%n", "*")
    for file in Path("/").glob(pattern.lstrip("/")):
        raise InputError(
            f"{file}: a NIC profile is in force, and the earlier settings would be lost: wait "
            "until its job has ended, or run seatrial-nic recover"
        )


def _differs(package: list[Step]) -> bool:
    """Whether the installed package has modules that this version does not have, or anything that
    others can write to."""
    names = {step.target.name for step in package}
    inside = [
        path
        for folder in {step.target.parent for step in package}
        if folder.is_dir()
        for path in (folder, *folder.rglob("*"))
    ]
    return any(
        _is_open(path) or (path.suffix == ".py" and path.name not in names) for path in inside
    )


def _is_open(path: Path) -> bool:
    """Whether another user can write to a file or folder, or could when it was made."""
    status = path.lstat()
    return bool(status.st_mode & 0o022) or status.st_uid not in (0, os.geteuid())


def _write(target: Path, file: File) -> None:
    # By the umask of install: users of jobs read the policy, slurmctld's user the Lua script.
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, file.text, file.mode)


def _install_package(steps: list[Step], layout: Layout) -> None:
    folder = steps[0].target.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.seatrial-*"):
        remove_tree(left)  # from an installation that was killed
    draft = _new_folder(folder)
    draft.chmod(0o755)
    for step in steps:
        _write(draft / step.target.name, step.file)
    _compile(draft, layout)
    if folder.exists():
        _exchange(draft, folder)
        remove_tree(draft)
    else:
        draft.rename(folder)


def _new_folder(folder: Path) -> Path:
    """Make a folder beside another, with a name that nobody can have put a link at."""
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.seatrial-", dir=folder.parent))


def _compile(folder: Path, layout: Layout) -> None:
    """Compile the package, so that it starts fast from a read-only file system. Ignores errors."""
    command = [layout.python, "-I", "-m", "compileall", "-q", "-d", layout.package]
    # Hash-based files stay valid in an image that is copied without times. Not in Python 3.6.
    for options in (["--invalidation-mode", "checked-hash"], []):
        try:
            answer = subprocess.run([*command, *options, str(folder)], capture_output=True)
        except OSError:
            return
        if answer.returncode == 0:
            break


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders atomically, or in three renames if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    try:
        done = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0
    except AttributeError:
        done = False
    if not done:
        aside = _new_folder(other) / other.name
        other.rename(aside)
        one.rename(other)
        aside.rename(one)
        aside.parent.rmdir()


def remove(steps: list[Step], layout: Layout, dry_run: bool = False) -> list[Path]:
    """Remove our files of a plan, and folders that are then empty. Returns the files.

    The state folder stays, because it may be needed to restore settings. Raises InputError, also as
    ``install`` if others can exchange a folder.
    """
    ours = [step for step in steps if step.state in ("same", "changed") and step.target.exists()]
    for step in ours:
        if step.file.path == layout.policy:
            root = str(step.target).removesuffix(layout.policy)
            refuse_in_force(root, json.loads(step.old or step.file.text)["state_folder"])
    if dry_run:
        return [step.target for step in ours]
    _refuse_writable_folders(ours, layout)
    for step in ours:
        step.target.unlink()
    for folder in {step.target.parent for step in ours}:
        if folder.name == Path(layout.package).name:
            remove_tree(folder)
    for folder in {step.target.parent for step in ours} | {
        step.target.parent.parent for step in ours
    }:
        if str(folder).endswith((layout.libexec, layout.conf)) and not any(folder.iterdir()):
            folder.rmdir()
    return [step.target for step in ours]
