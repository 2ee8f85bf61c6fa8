"""Putting the files of the Slurm side on this machine or into a node image, and taking them away.

Files that somebody else made are never replaced unasked. Each file changes in one move, and the
node side's package as a whole, so that a Prolog that starts meanwhile finds the old or the new.
Nothing here changes Slurm's own slurm.conf or starts anything.
"""

from __future__ import annotations

import ctypes
import difflib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from seatrial.base.errors import InputError, LabError
from seatrial.base.files import write_whole
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import INSTALLED, MARKER, File

State = Literal["new", "changed", "same", "foreign"]
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Step:
    """One file, where it goes below the root, and how what is there differs from it."""

    file: File
    target: Path
    state: State
    old: str = ""

    def diff(self) -> str:
        """What would change, as a unified diff; empty where nothing would."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.file.text.splitlines(keepends=True),
            f"{self.file.path} (installed)" if self.state != "new" else "/dev/null",
            f"{self.file.path} (of this site)",
        )  # fmt: skip
        return "".join(lines)


def plan(files: list[File], root: Path, layout: Layout, force: bool = False) -> list[Step]:
    """What installing would do; changes nothing.

    A job_submit.lua of the site's own stays, and ours is put beside it. Raises InputError where
    a folder of an image leads out of it.
    """
    steps = [_step(file, root, layout) for file in files]
    found = []
    for step in steps:
        if step.state == "foreign" and step.file.path == layout.job_submit and not force:
            beside = replace(
                step.file,
                path=layout.job_submit_beside,
                purpose="to be asked by your own job_submit.lua",
            )
            step = _step(beside, root, layout)
        found.append(replace(step, state="changed") if force and step.state == "foreign" else step)
    return found


def _step(file: File, root: Path, layout: Layout) -> Step:
    target = _below(root, file.path)
    try:
        old = target.read_text(errors="replace")
        mode = target.stat().st_mode & 0o7777
    except FileNotFoundError:
        package = _below(root, layout.package)
        if target.is_relative_to(package) and package.exists() and not _is_ours(target, "", layout):
            return Step(file, target, "foreign")
        return Step(file, target, "new")
    except OSError as error:
        raise InputError(f"{target}: {error.strerror}") from None
    if not _is_ours(target, old, layout):
        return Step(file, target, "foreign", old)
    return Step(file, target, "same" if (old, mode) == (file.text, file.mode) else "changed", old)


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
        except (ValueError, TypeError):
            return False
    return MARKER in text[:1000]


def install(steps: list[Step], layout: Layout) -> None:
    """Do what a plan says. Raises InputError for files that are not ours, LabError, OSError."""
    foreign = [str(step.target) for step in steps if step.state == "foreign"]
    if foreign:
        raise InputError(
            f"not installed by seatrial: {', '.join(foreign)}; move it away, or --force replaces it"
        )
    _refuse_while_in_force(steps, layout)
    todo = [step for step in steps if step.state in ("new", "changed")]
    package = [step for step in steps if step.target.parent.name == Path(layout.package).name]
    try:
        if any(step in todo for step in package) or _has_more(package):
            _install_package(package, layout)
        for step in todo:
            if step not in package:
                _write(step.target, step.file)
    except PermissionError as error:
        raise LabError(f"{error.filename}: {error.strerror}: run this as root") from None


def _refuse_while_in_force(steps: list[Step], layout: Layout) -> None:
    """Raise InputError where a profile in force would be forgotten with its state folder."""
    for step in steps:
        if step.file.path == layout.policy and _is_ours(step.target, step.old, layout):
            old, new = json.loads(step.old), json.loads(step.file.text)
            if old["state_folder"] != new["state_folder"]:
                refuse_in_force(str(step.target).removesuffix(layout.policy), old["state_folder"])


def refuse_in_force(root: str, folder: str) -> None:
    """Raise InputError if a NIC profile is in force on a node, which remembers it in ``folder``."""
    pattern = f"{root}{folder}/journal*.json".replace("%n", "*")
    for file in Path("/").glob(pattern.lstrip("/")):
        raise InputError(
            f"{file}: a NIC profile is in force, and would be forgotten: wait until its job has "
            "ended, or seatrial-nic recover"
        )


def _has_more(package: list[Step]) -> bool:
    """Whether modules of an earlier version are there that this one does not have."""
    names = {step.target.name for step in package}
    folders = {step.target.parent for step in package}
    return any(path.name not in names for folder in folders for path in folder.glob("*.py"))


def _write(target: Path, file: File) -> None:
    _make_folder(target.parent)
    write_whole(target, file.text, file.mode)


def _make_folder(folder: Path) -> None:
    # Not by the caller's umask: jobs' users read the policy, slurmctld's user the script.
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        path.chmod(0o755)


def _install_package(steps: list[Step], layout: Layout) -> None:
    folder = steps[0].target.parent
    draft = folder.with_name(f".{folder.name}.seatrial-new")
    shutil.rmtree(draft, ignore_errors=True)  # of one that was killed, or the version before
    _make_folder(draft)
    for step in steps:
        _write(draft / step.target.name, step.file)
    _compile(draft, layout)
    if folder.exists():
        _exchange(draft, folder)
        shutil.rmtree(draft)
    else:
        draft.rename(folder)


def _compile(folder: Path, layout: Layout) -> None:
    """So that the node side starts fast also where it may not write. None is no error."""
    command = [layout.python, "-m", "compileall", "-q", "-d", layout.package]
    # Checked by content: an image that is copied without times stays valid. Python 3.6 has not it.
    for options in (["--invalidation-mode", "checked-hash"], []):
        try:
            answer = subprocess.run([*command, *options, str(folder)], capture_output=True)
        except OSError:
            return
        if answer.returncode == 0:
            break


def _exchange(one: Path, other: Path) -> None:
    """Two folders change their names at once; where the file system cannot, in two moves."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    try:
        done = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0
    except AttributeError:
        done = False
    if not done:
        aside = other.with_name(f".{other.name}.seatrial-old")
        shutil.rmtree(aside, ignore_errors=True)
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


def remove(steps: list[Step], layout: Layout, dry_run: bool = False) -> list[Path]:
    """Take away what is ours of a plan, with folders that this leaves empty; returns the files.

    What nodes remember (the state folder) stays: it may be needed to put something back.
    """
    ours = [step for step in steps if step.state in ("same", "changed") and step.target.exists()]
    for step in ours:
        if step.file.path == layout.policy:
            root = str(step.target).removesuffix(layout.policy)
            refuse_in_force(root, json.loads(step.old or step.file.text)["state_folder"])
    if dry_run:
        return [step.target for step in ours]
    for step in ours:
        step.target.unlink()
    for folder in {step.target.parent for step in ours}:
        if folder.name == Path(layout.package).name:
            shutil.rmtree(folder)
    for folder in {step.target.parent for step in ours} | {
        step.target.parent.parent for step in ours
    }:
        if str(folder).endswith((layout.libexec, layout.conf)) and not any(folder.iterdir()):
            folder.rmdir()
    return [step.target for step in ours]
