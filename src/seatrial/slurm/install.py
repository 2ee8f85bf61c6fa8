"""Installs the files of the Slurm side on this machine or in a node image, and removes them.

A file of another origin is only replaced with --force. Each file is replaced in one atomic step.
The package of the node side and its policy are in a folder of their own for each version
(``seatrial.slurm.versions``), and the launcher that names one is replaced when that is whole. This
module does not change slurm.conf and starts no service.

Root runs what is installed: whatever the umask of the caller is, nobody else can write to it.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from seatrial.base.errors import InputError, LabError
from seatrial.base.files import read_below, write_whole
from seatrial.base.say import Say, say_nothing
from seatrial.base.trust import exposed
from seatrial.nic.node.consumers import FILE_SYSTEMS
from seatrial.slurm import versions
from seatrial.slurm.layout import Layout
from seatrial.slurm.render import MARKER, POLICY, File

State = Literal["new", "changed", "same", "foreign"]
_LARGEST = 1 << 20  # bytes; ours have less than 100 kB
# A link, a FIFO or device, a large file, a socket: nothing that was installed.
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENXIO)


@dataclass(frozen=True)
class Step:
    """One file, its path below the root, and the state of the file at that path.

    ``old``: the text there, or of the same module in the version that is in use. ``forced``: a file
    of another origin is replaced.
    """

    file: File
    root: Path
    target: Path
    state: State
    old: str = ""
    forced: bool = False

    def diff(self) -> str:
        """The change as a unified diff; empty if the file is the same."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.file.text.splitlines(keepends=True),
            f"{self.file.path} (installed)" if self.old or self.state != "new" else "/dev/null",
            f"{self.file.path} (of this site)",
        )  # fmt: skip
        return "".join(lines)


def plan(files: list[File], root: Path, layout: Layout, force: bool = False) -> list[Step]:
    """The steps of an installation. Changes nothing.

    A job_submit.lua of the site stays, and ours gets another name. Raises InputError if a symbolic
    link leads out of the image.
    """
    planned = []
    for step in _look(files, root, layout):
        if step.state == "foreign" and step.file.path == layout.job_submit and not force:
            beside = replace(
                step.file,
                path=layout.job_submit_beside,
                purpose="for your job_submit.lua to call",
            )
            step = _step(beside, root, layout)
        if force and step.state == "foreign":
            step = replace(step, state="changed", forced=True)
        planned.append(step)
    return planned


def in_version(step: Step, layout: Layout) -> str:
    """The name of a file inside its version of the node side; empty if it is not in one."""
    path = PurePosixPath(step.file.path)
    if not path.is_relative_to(layout.versions):
        return ""
    return str(PurePosixPath(*path.relative_to(layout.versions).parts[1:]))


def _version(step: Step, layout: Layout) -> Path:
    """The folder of the version that a file is in."""
    return step.target.parents[len(PurePosixPath(in_version(step, layout)).parts) - 1]


def _texts(steps: list[Step], layout: Layout) -> dict[str, str]:
    return {inner: step.file.text for step in steps if (inner := in_version(step, layout))}


def _look(files: list[File], root: Path, layout: Layout) -> list[Step]:
    steps = [_step(file, root, layout) for file in files]
    names = _texts(steps, layout)
    folders = {_version(step, layout) for step in steps if in_version(step, layout)}
    foreign = {
        folder
        for folder in folders
        if os.path.lexists(folder) and not versions.is_ours(folder, names)
    }
    return [
        replace(step, state="foreign")
        if in_version(step, layout) and _version(step, layout) in foreign
        else step
        for step in steps
    ]


def _step(file: File, root: Path, layout: Layout) -> Step:
    target = _below(root, file.path)
    step = Step(file, root, target, "new")
    inner = in_version(step, layout)
    try:
        content = read_below(target.parent.resolve(), Path(target.name), _LARGEST)
        status = target.lstat()
    except FileNotFoundError:
        return replace(step, old=_in_use(inner, root, layout)) if inner else step
    except OSError as error:
        if inner:
            return replace(step, state="changed")  # whatever it is: the version is replaced
        if error.errno in _NO_FILE and not target.is_dir():
            return replace(step, state="foreign")
        raise InputError(f"{target}: {error.strerror}") from None
    old = content.decode(errors="replace")
    if not inner and not _is_ours(target, old, layout):
        return replace(step, state="foreign", old=old)
    same = (old, status.st_mode & 0o7777) == (file.text, file.mode)
    state: State = "same" if same and _is_trusted(status, root) else "changed"
    return replace(step, state=state, old=old)


def _in_use(inner: str, root: Path, layout: Layout) -> str:
    """The text of a module in the version that is in use, for the difference. The policy has its
    own file, in which the difference is shown."""
    version = versions.in_use(root, layout)
    if not version or inner == POLICY:
        return ""
    try:
        return read_below(version, Path(inner), _LARGEST).decode(errors="replace")
    except OSError:
        return ""


def _is_trusted(status: os.stat_result, root: Path) -> bool:
    """Whether root owns a file; in an image also the user who builds it."""
    return status.st_uid == 0 or (root != Path("/") and status.st_uid == os.geteuid())


def _below(root: Path, path: str) -> Path:
    target = root / path.lstrip("/")
    if root != Path("/") and not target.parent.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{target.parent} leads out of {root}, to {target.parent.resolve()}")
    return target


def _is_ours(target: Path, text: str, layout: Layout) -> bool:
    if target.name == Path(layout.policy).name:
        try:
            return {"digest", "feature_prefix", "state_folder"} <= set(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            return False
    return MARKER in text[:1000]


def install(steps: list[Step], layout: Layout, say: Say = say_nothing) -> list[Step]:
    """Execute the steps. Returns them with the states that the files had just before.

    One process at a time installs. The launcher is written when its version is whole. Raises
    InputError for files that are not ours, LabError, OSError.
    """
    _refuse(steps, layout)
    umask = os.umask(0o022)
    try:
        texts = _texts(steps, layout)
        if not texts:
            return _write_all(steps, layout)
        root = steps[0].root
        libexec = root / layout.libexec.lstrip("/")
        with versions.lock(libexec, say):
            # Another process may have installed since the plan was made.
            steps = _again(steps, layout)
            _refuse(steps, layout)
            done = _write_all(steps, layout)
            versions.sweep(root, layout, texts)
            return done
    except PermissionError as error:
        raise LabError(f"{error.filename}: {error.strerror}: run this as root") from None
    finally:
        os.umask(umask)


def _again(steps: list[Step], layout: Layout) -> list[Step]:
    """The same steps with the states that the files have now."""
    files, root = [step.file for step in steps], steps[0].root
    return [
        replace(now, forced=True, state="changed" if now.state == "foreign" else now.state)
        if before.forced
        else now
        for before, now in zip(steps, _look(files, root, layout), strict=True)
    ]


def _write_all(steps: list[Step], layout: Layout) -> list[Step]:
    todo = [step for step in steps if step.state in ("new", "changed")]
    inside = [step for step in steps if in_version(step, layout)]
    for version in {_version(step, layout) for step in inside}:
        texts = _texts(inside, layout)
        if any(step in todo for step in inside) or versions.differs(version, texts):
            versions.make(version, texts, layout)
        used = versions.in_use(inside[0].root, layout)
        if used != version:
            versions.keep(used)
    for step in todo:
        if step not in inside:
            # By the umask of install: users of jobs read the policy, slurmctld's user the script.
            step.target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(step.target, step.file.text, step.file.mode, writer=versions.writer())
    return steps


def _refuse(steps: list[Step], layout: Layout) -> None:
    foreign = [str(step.target) for step in steps if step.state == "foreign"]
    if foreign:
        raise InputError(
            f"not installed by seatrial: {', '.join(foreign)}; move the file, or replace it with "
            "--force"
        )
    _refuse_while_in_force(steps, layout)
    _refuse_writable_folders(steps, layout)


def _refuse_writable_folders(steps: list[Step], layout: Layout) -> None:
    """Raise InputError if somebody but root can exchange what is installed, or a folder above it.

    That holds for an image, too: its owner could lead root out of it by a link. If an ordinary user
    builds an image, only the folders inside it count: that user may own them, and its group may
    write to them.
    """
    root_runs = os.geteuid() == 0
    for step in steps:
        root = step.root
        everywhere = root_runs or root == Path("/")
        folder = step.target.parent
        if in_version(step, layout):
            folder = _version(step, layout).parent  # a version is replaced as a whole
        for exposure in exposed(folder, {0} if everywhere else {0, os.geteuid()}, group=everywhere):
            if everywhere or root.resolve() in exposure.path.parents:
                why = f"and root runs or reads what is in {step.target.parent}"
                raise InputError(f"{exposure.path}: {exposure.who}, {why}: {exposure.correction}")


def _refuse_while_in_force(steps: list[Step], layout: Layout) -> None:
    """Raise InputError if the state folder changes while a profile is in force, or may be."""
    for step in steps:
        if step.file.path != layout.policy:
            continue
        new = json.loads(step.file.text)["state_folder"]
        for old in sorted(_state_folders(step, layout) - {new}):
            refuse_in_force(step.root, old)
            if kind := _shared(step.root, layout):
                raise InputError(
                    f"{layout.libexec} is on {kind}, so other nodes use it too, and a NIC profile "
                    f"that is in force there has its state in {old}, not in {new}: run "
                    "slurm uninstall first, as its documentation says"
                )


def _state_folders(step: Step, layout: Layout) -> set[str]:
    """The state folders of the policies that are installed: the nodes' and that for jobs."""
    policies = [versions.policy_in_use(step.root, layout)]
    if step.old and _is_ours(step.target, step.old, layout):
        policies.append(json.loads(step.old))
    return {
        str(policy["state_folder"])
        for policy in policies
        if isinstance(policy, dict) and "state_folder" in policy
    }


def _shared(root: Path, layout: Layout) -> str:
    """The type of the file system of ``libexec`` if nodes may share it, else empty."""
    libexec = root / layout.libexec.lstrip("/")
    if root != Path("/") or not libexec.exists():
        return ""
    number = libexec.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == device and kind.split()[0] in FILE_SYSTEMS:
            return kind.split()[0]
    return ""


def refuse_in_force(root: Path, folder: str) -> None:
    """Raise InputError if the state folder of a node says that a NIC profile is in force."""
    pattern = f"{folder}/journal*.json".replace("%n", "*")
    for file in root.glob(pattern.lstrip("/")):
        raise InputError(
            f"{file}: a NIC profile is in force, and the earlier settings would be lost: wait "
            "until its job has ended, or run seatrial-nic recover"
        )


def remove(
    steps: list[Step],
    layout: Layout,
    dry_run: bool = False,
    say: Say = say_nothing,
) -> list[Path]:
    """Remove our files of a plan, all versions, and folders that are then empty. Returns the files.

    The state folder stays, because it may be needed to restore settings. Raises InputError, also as
    ``install`` if others can exchange a folder.
    """
    root = steps[0].root
    texts = _texts(steps, layout)
    if dry_run:
        return _remove(steps, layout, dry_run)
    libexec = root / layout.libexec.lstrip("/")
    if not texts or not libexec.is_dir():
        return _remove(steps, layout)
    _refuse_writable_folders(steps, layout)
    with versions.lock(libexec, say):
        removed = _remove(_again(steps, layout), layout)
        (libexec / versions.LOCK).unlink(missing_ok=True)
        for folder in (root / layout.versions.lstrip("/"), libexec):
            _remove_empty(folder)
    return removed


def _remove(steps: list[Step], layout: Layout, dry_run: bool = False) -> list[Path]:
    texts, root = _texts(steps, layout), steps[0].root
    ours = [
        step
        for step in steps
        if not in_version(step, layout)
        and step.state in ("same", "changed")
        and step.target.exists()
    ]
    folders = versions.installed(root, layout, texts) if texts else []
    inside = [
        file
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.suffix != ".pyc" and not file.is_dir()
    ]
    for step in steps:
        if step.file.path == layout.policy:
            for state in sorted(_state_folders(step, layout)):
                refuse_in_force(root, state)
    if dry_run:
        return [*(step.target for step in ours), *inside]
    _refuse_writable_folders(ours, layout)
    for step in ours:
        step.target.unlink()
    for folder in folders:
        versions.discard(folder)
    for folder in {step.target.parent for step in ours}:
        if str(folder).endswith(layout.conf):
            _remove_empty(folder)
    return [*(step.target for step in ours), *inside]


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
