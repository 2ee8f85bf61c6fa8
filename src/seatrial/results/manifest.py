"""``SHA256SUMS``: the SHA-256 sum of each file of a trial's folder, to find what was changed since.

The format is that of ``sha256sum``: ``sha256sum -c SHA256SUMS`` in the folder checks it without
Seatrial. The file only grows: a later judgement adds lines for its own files. A manifest finds
accidents. Who changes a file on purpose can write its sum again; a signature finds that, too
(``seatrial.results.signature``).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import replacing

MANIFEST = "SHA256SUMS"
LOCK_FILE = ".lock"  # held while a trial runs or is judged; empty
#: A signature's name holds the number of lines that it covers, and a count if there are several.
SIGNATURE = re.compile(rf"{MANIFEST}\.(?P<lines>[1-9]\d*)(-[1-9]\d*)?\.sig")
_LINE = re.compile(r"(?P<escaped>\\?)(?P<sum>[0-9a-f]{64})  (?P<name>[^\0\n]+)\n")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}  # as sha256sum writes them
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_FORM = "a line is a SHA-256 sum, two spaces and the name of a file"


@dataclass(frozen=True)
class Difference:
    """One file that is not as the manifest says."""

    kind: str  # changed, removed, added, damaged
    name: str  # relative to the trial's folder
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}{f' ({self.reason})' if self.reason else ''}"


def sums_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 sum of each file, by its name relative to the folder. Raises OSError."""
    return {name: sha256(folder / name) for name in names}


def sha256(file: Path) -> str:
    """Raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files(folder: Path) -> list[str]:
    """The names of all files that a manifest of the folder covers: all but itself and its
    signatures. An empty lock file does not count."""
    return [name for name, is_file in _walk(folder) if is_file]


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    """Everything but directories, and whether it is a regular file or a link to one."""
    for root, directories, names in os.walk(folder):
        links = [name for name in directories if (Path(root) / name).is_symlink()]
        for name in [*names, *links]:
            path = Path(root) / name
            short = str(path.relative_to(folder))
            if short == MANIFEST or SIGNATURE.fullmatch(short):
                continue
            if short == LOCK_FILE and path.is_file() and not path.stat().st_size:
                continue
            yield short, path.is_file()


def extend(folder: Path, names: Iterable[str]) -> None:
    """Add the sums of files that the manifest does not have yet. See ``extending``."""
    listed = read(folder) if (folder / MANIFEST).exists() else {}
    with extending(folder, sums_of(folder, (name for name in names if name not in listed))):
        pass


@contextmanager
def extending(folder: Path, sums: Mapping[str, str]) -> Iterator[None]:
    """Add sums to the manifest of a folder, or make one; the lines before them stay.

    The new text is on the disk when the block begins, and becomes the manifest when it ends. If
    the block raises, or on OSError, the manifest is as it was. Raises InputError if it is damaged.
    """
    file = folder / MANIFEST
    before = b""
    if file.exists():
        read(folder)
        before = file.read_bytes()
    with replacing(file) as stream:
        stream.write(before + b"".join(_row(name, sums[name]) for name in sorted(sums)))
        stream.flush()
        os.fsync(stream.fileno())
        yield


def read(folder: Path) -> dict[str, str]:
    """The sum of each file, by its name relative to the folder.

    Raises InputError if there is no folder or no manifest, or if a line of the manifest is not as
    Seatrial writes it.
    """
    sums, damaged = _parse(folder)
    if damaged:
        problems = [Problem(folder / MANIFEST, line, "", "damaged", _FORM) for line in damaged]
        raise InputError(problems)
    return sums


def _parse(folder: Path) -> tuple[dict[str, str], list[int]]:
    """The sums, and the numbers of the lines that are damaged."""
    file = folder / MANIFEST
    if not folder.is_dir():
        raise InputError([Problem(folder, None, "", "no such folder", "name a trial's folder")])
    if not file.is_file():
        text = "there is no manifest: the trial did not end, or the file was removed"
        correction = "'seatrial judge' writes one of the files as they are now"
        raise InputError([Problem(file, None, "", text, correction)])
    sums: dict[str, str] = {}
    damaged = []
    for number, row in enumerate(file.read_bytes().splitlines(keepends=True), 1):
        match = _LINE.fullmatch(os.fsdecode(row))
        name = _name(match) if match else ""
        # Only the form that Seatrial writes: sha256sum itself accepts others.
        if not match or name in sums or _row(name, match["sum"]) != row:
            damaged.append(number)
        else:
            sums[name] = match["sum"]
    return sums, damaged


def _row(name: str, sum: str) -> bytes:
    escaped = "".join(_ESCAPES.get(character, character) for character in name)
    mark = "\\" if escaped != name else ""
    return os.fsencode(f"{mark}{sum}  {escaped}\n")


def _name(match: re.Match[str]) -> str:
    if not match["escaped"]:
        return match["name"]
    return re.sub(r"\\.", lambda escape: _CHARACTERS.get(escape[0], escape[0]), match["name"])


def check(folder: Path) -> list[Difference]:
    """What was changed, removed or added since the manifest was written, in the order of names.

    Raises InputError if there is no folder or no manifest.
    """
    listed, damaged = _parse(folder)
    differences = [Difference("damaged", MANIFEST, f"line {line}: {_FORM}") for line in damaged]
    there = dict(_walk(folder))
    for name in sorted(listed.keys() | there.keys(), key=os.fsencode):
        if name not in there:
            differences.append(Difference("removed", name))
        elif name not in listed:
            reason = "" if there[name] else "not a regular file"
            differences.append(Difference("added", name, reason))
        else:
            try:
                same = there[name] and sha256(folder / name) == listed[name]
            except OSError as error:
                differences.append(Difference("changed", name, f"cannot be read: {error}"))
            else:
                differences += [] if same else [Difference("changed", name)]
    return differences
