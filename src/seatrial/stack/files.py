"""Hashes, unpacking and replacing of files."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from seatrial.base.errors import LabError


def digest(parts: Iterable[str | bytes]) -> str:
    """Hex digest (16 characters) of a sequence; where one part ends matters."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:16]


def unpack_wheel_data(wheel: Path, into: Path) -> None:
    """The ``data`` tree of a wheel (programs, libraries, headers), as an installer would put it.

    Files in ``bin`` become executable. The folder is replaced. Raises LabError where the wheel
    holds a path that leads out of it.
    """
    partial = fresh(into.with_name(into.name + ".partial"))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if member.is_dir() or len(path.parts) < 3 or path.parts[1] != "data":
                continue
            if not path.parts[0].endswith(".data"):
                continue
            if ".." in path.parts or path.is_absolute():
                raise LabError(f"{wheel.name} holds a path that leads out of it: {path}")
            target = partial.joinpath(*path.parts[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
            target.chmod(0o755 if path.parts[2] == "bin" else 0o644)
    replace(partial, into)


def unpack_wheel_packages(wheel: Path, into: Path) -> None:
    """The importable packages of a wheel that installs nothing else. The folder is replaced."""
    partial = fresh(into.with_name(into.name + ".partial"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(partial)
    replace(partial, into)


def unpack_tar(archive: Path, into: Path, below: str = "") -> Path:
    """Unpack an archive whose files share one top folder; returns that folder.

    Only what is at or below ``below`` (inside that folder) is unpacked. Of an archive come names,
    contents, times and whether a file can be executed, and never an owner: an account of this
    machine may have the number of the person who made the archive. Links are left out.

    Raises LabError if a path leads out of the folder.
    """
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        top = PurePosixPath(members[0].name).parts[0]
        start = PurePosixPath(top, below)
        for member in members:
            path = PurePosixPath(member.name)
            if ".." in path.parts or path.is_absolute():
                raise LabError(f"{archive.name} holds a path that leads out of it: {path}")
            if not path.is_relative_to(start):
                continue
            target = into / path
            if member.isdir():
                target.mkdir(0o755, parents=True, exist_ok=True)
            elif member.isfile():
                target.parent.mkdir(0o755, parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None  # it is a file
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)
                os.utime(target, (member.mtime, member.mtime))
    return into / top


def fresh(folder: Path) -> Path:
    """An empty folder at that place."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def replace(new: Path, old: Path) -> None:
    """Put a file or folder in the place of another."""
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old)
    old.parent.mkdir(parents=True, exist_ok=True)
    new.replace(old)
