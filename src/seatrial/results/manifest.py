"""``SHA256SUMS``: the SHA-256 sum of each file of a trial's folder, to find what was changed since.

The format is that of ``sha256sum``: ``sha256sum -c SHA256SUMS`` in the folder checks it without
Seatrial. The file only grows: a later judgement adds lines for its own files. A manifest finds
accidents. Who changes a file on purpose can write its sum again; a signature finds that, too
(``seatrial.results.signature``).

The manifest decides what a trial holds. New files are made in a folder for drafts, their sums are
added, and then they are moved to their places (``publishing``). A process that is killed leaves
drafts. ``settle`` moves those that the manifest lists, and removes the others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.files import folder_below, regular_below, write_whole
from seatrial.results.record import JUDGEMENTS_FOLDER, RESULTS_FILE, judgement_folder

MANIFEST = "SHA256SUMS"
LOCK_FILE = ".lock"  # held while a trial runs or is judged; empty
#: A signature's name holds the number of lines that it covers, and a count if there are several.
SIGNATURE = re.compile(rf"{MANIFEST}\.(?P<lines>[1-9]\d*)(-[1-9]\d*)?\.sig")
_DRAFT_FOLDER = re.compile(r"\.(?P<number>[1-9]\d*)\.draft")  # in the folder of judgements
_DRAFT = re.compile(  # also the names that ``seatrial.base.files.replacing`` gives
    rf"{JUDGEMENTS_FOLDER}/{_DRAFT_FOLDER.pattern}/.*"
    rf"|\.({MANIFEST}|{SIGNATURE.pattern}|{re.escape(RESULTS_FILE)})\.\d+\.draft",
    re.DOTALL,
)
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
    return {name: _sum_below(folder, name) for name in names}


def sha256(file: Path) -> str:
    """Raises OSError, also if the file is a symbolic link or not a regular file."""
    return _sum_below(file.parent, file.name)


def _sum_below(folder: Path, name: str) -> str:
    """No link is followed: a trial that was killed has folders that its job user can change."""
    with regular_below(folder, Path(name)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files(folder: Path) -> list[str]:
    """The names of all files that a manifest of the folder covers: all but itself, its signatures
    and drafts. An empty lock file does not count."""
    return [name for name, is_file in _walk(folder) if is_file and not _DRAFT.fullmatch(name)]


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    """Everything but directories, and whether it is a regular file: a link is none."""
    for root, directories, names in os.walk(folder):
        links = [name for name in directories if (Path(root) / name).is_symlink()]
        for name in [*names, *links]:
            path = Path(root) / name
            short = str(path.relative_to(folder))
            if (short == MANIFEST or SIGNATURE.fullmatch(short)) and path.is_file():
                continue
            if short == LOCK_FILE and path.is_file() and not path.lstat().st_size:
                continue
            yield short, _is_regular(path)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def extend(folder: Path, names: Iterable[str]) -> None:
    """Add the sums of files that the manifest does not have yet, or make a manifest.

    The lines before them stay. On OSError the manifest is as it was. Raises InputError if it is
    damaged.
    """
    listed = read(folder) if (folder / MANIFEST).exists() else {}
    _append(folder, sums_of(folder, (name for name in names if name not in listed)))


def _append(folder: Path, sums: Mapping[str, str]) -> None:
    file = folder / MANIFEST
    before = b""
    if file.exists():
        read(folder)
        before = file.read_bytes()
    write_whole(file, before + b"".join(_row(name, sums[name]) for name in sorted(sums)))


@contextmanager
def publishing(folder: Path, number: int) -> Iterator[Path]:
    """A folder for the new files of judgement ``number``. They are published when the block ends.

    A trial without a manifest gets one of all its files. If the block raises an error, the trial
    is as before. The caller holds the trial's lock. Raises OSError, and LabError if a file cannot
    be moved to its place: ``settle`` moves it later.
    """
    draft, target = folder / _draft(number), judgement_folder(Path(), number)
    try:
        draft.mkdir(parents=True)
        with folder_below(folder, _draft(number)):
            pass  # not through a link
        yield draft
        sums = {} if (folder / MANIFEST).exists() else sums_of(folder, files(folder))
        names = [file.name for file in draft.iterdir()]
        _append(folder, sums | {str(target / name): sha256(draft / name) for name in names})
    except BaseException:
        settle(folder)
        raise
    try:
        settle(folder)
    except OSError as error:
        text = f"{draft} is in {MANIFEST}, but cannot be moved to its place"
        raise LabError(f"{text}: {error}; 'seatrial report' moves it") from None


def settle(folder: Path) -> None:
    """Complete or undo what a killed process began. The caller holds the trial's lock.

    A damaged manifest decides nothing: all drafts stay. Raises OSError.
    """
    listed, damaged = _parse(folder) if (folder / MANIFEST).exists() else ({}, [])
    if damaged:
        return
    for file in list(folder.iterdir()):
        if _DRAFT.fullmatch(file.name) and file.name not in listed:
            with suppress(OSError):
                file.unlink()
    for number in _drafts(folder):
        draft, target = _draft(number), judgement_folder(Path(), number)
        names = _unmoved(folder, number, listed)
        if names:
            (folder / target).mkdir(exist_ok=True)
            with folder_below(folder, draft) as old, folder_below(folder, target) as new:
                for name in names:
                    os.replace(name, name, src_dir_fd=old, dst_dir_fd=new)
        with folder_below(folder, draft.parent) as parent:
            shutil.rmtree(draft.name, ignore_errors=True, dir_fd=parent)
    with suppress(OSError):
        (folder / JUDGEMENTS_FOLDER).rmdir()  # if nothing else is in it


def check_settled(folder: Path) -> None:
    """Raise InputError if ``settle`` is to complete a judgement."""
    listed, _ = _parse(folder) if (folder / MANIFEST).exists() else ({}, [])
    for number in _drafts(folder):
        if _unmoved(folder, number, listed):
            text = "its process was killed before these files were in their places"
            correction = "'seatrial report', by a user who can write to the trial, moves them"
            raise InputError([Problem(folder / _draft(number), None, "", text, correction)])


def _draft(number: int) -> Path:
    """The folder of the drafts of a judgement, relative to the trial's."""
    return Path(JUDGEMENTS_FOLDER, f".{number}.draft")


def _drafts(folder: Path) -> list[int]:
    """The numbers of the judgements that have a folder of drafts."""
    try:
        with folder_below(folder, Path(JUDGEMENTS_FOLDER)):
            entries = list((folder / JUDGEMENTS_FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):  # the latter also of a link
        return []
    matches = [
        _DRAFT_FOLDER.fullmatch(entry.name)
        for entry in entries
        if entry.is_dir() and not entry.is_symlink()
    ]
    return [int(match["number"]) for match in matches if match]


def _unmoved(folder: Path, number: int, listed: Mapping[str, str]) -> list[str]:
    """The names of the drafts that the manifest lists in another place, where they are not."""
    names = []
    for draft in sorted((folder / _draft(number)).iterdir()):
        final = str(judgement_folder(Path(), number) / draft.name)
        if final not in listed or draft.is_symlink() or not draft.is_file():
            continue
        if sha256(draft) != listed[final]:
            continue
        if not (folder / final).is_file() or sha256(folder / final) != listed[final]:
            names.append(draft.name)
    return names


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


def check_present(folder: Path) -> None:
    """Raise InputError if a folder has no manifest."""
    if not folder.is_dir():
        raise InputError([Problem(folder, None, "", "no such folder", "name a trial's folder")])
    if not (folder / MANIFEST).is_file():
        text = "there is no manifest: the trial did not end, or the file was removed"
        correction = "'seatrial judge' writes one of the files as they are now"
        raise InputError([Problem(folder / MANIFEST, None, "", text, correction)])


def _parse(folder: Path) -> tuple[dict[str, str], list[int]]:
    """The sums, and the numbers of the lines that are damaged."""
    check_present(folder)
    file = folder / MANIFEST
    try:
        rows = file.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError([Problem(file, None, "", f"cannot be read: {error}")]) from None
    sums: dict[str, str] = {}
    damaged = []
    for number, row in enumerate(rows, 1):
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


def check(folder: Path, only: Iterable[str] | None = None) -> list[Difference]:
    """What was changed, removed or added since the manifest was written, in the order of names.

    ``only``: the names of the files to compare; the others are not read.
    Raises InputError if there is no folder or no manifest.
    """
    listed, damaged = _parse(folder)
    differences = [Difference("damaged", MANIFEST, f"line {line}: {_FORM}") for line in damaged]
    if only is None:
        walked = _walk(folder)
    else:
        names = set(only)
        listed = {name: sum for name, sum in listed.items() if name in names}
        present = [name for name in names if os.path.lexists(folder / name)]
        walked = iter([(name, _is_regular(folder / name)) for name in present])
    there = {
        name: is_file for name, is_file in walked if name in listed or not _DRAFT.fullmatch(name)
    }
    for name in sorted(listed.keys() | there.keys(), key=os.fsencode):
        if name not in there:
            differences.append(Difference("removed", name))
        elif name not in listed:
            reason = "" if there[name] else "not a regular file"
            differences.append(Difference("added", name, reason))
        else:
            try:
                same = there[name] and _sum_below(folder, name) == listed[name]
            except OSError as error:
                differences.append(Difference("changed", name, f"cannot be read: {error}"))
            else:
                differences += [] if same else [Difference("changed", name)]
    return differences
