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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.files import (
    folder_below,
    names_below,
    read_below,
    regular_below,
    write_whole,
)
from seatrial.base.paths import CHECKOUT
from seatrial.base.trust import Exposed, exposed
from seatrial.results.folder import JUDGEMENTS_FOLDER, RESULTS_FILE, judgement_folder
from seatrial.results.pruned import PRUNED_FILE, is_evidence

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
LIMIT_B = 1 << 30  # largest manifest that is read: of about six million files
#: largest file, and all files, of a killed trial that are hashed; no benchmark writes as much
FILE_LIMIT_B, TOTAL_LIMIT_B = 1 << 30, 1 << 34
BLOCK_B = 1 << 20  # hashed at once
_FORM = "a line is a SHA-256 sum, two spaces and the name of a file"


@dataclass(frozen=True)
class Difference:
    """One file that is not as the manifest says."""

    kind: str  # changed, removed, added, damaged
    name: str  # relative to the trial's folder
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}{f' ({self.reason})' if self.reason else ''}"


def sums_of(
    folder: Path,
    names: Iterable[str],
    sizes: Mapping[str, int] | None = None,
    on_block: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """The SHA-256 sum of each file, by its name relative to the folder. Raises OSError.

    ``sizes``: the sizes in bytes that files must not exceed, by name. A file that has grown is
    left out. ``on_block`` is called before each block of BLOCK_B, and ends the work if it raises.
    """
    sums = {}
    for name in names:
        on_block()
        if sum := _sum_below(folder, name, (sizes or {}).get(name), on_block):
            sums[name] = sum
    return sums


def sha256(file: Path) -> str:
    """Raises OSError, also if the file is a symbolic link or not a regular file."""
    return _sum_below(file.parent, file.name)


def _sum_below(
    folder: Path,
    name: str,
    most_b: int | None = None,
    on_block: Callable[[], object] = lambda: None,
) -> str:
    """The sum of a file; "" if it is larger than ``most_b`` when its content is hashed.

    No more is read than the file has when it is opened: a process that still writes to it could
    keep this one for ever. No link is followed: a trial that was killed has folders that its job
    user can change.
    """
    with regular_below(folder, Path(name)) as stream:
        digest, left = hashlib.sha256(), _size(stream)
        if most_b is not None and left > most_b:
            return ""
        while left and (block := stream.read(min(left, BLOCK_B))):
            digest.update(block)
            left -= len(block)
            on_block()
        return "" if most_b is not None and _size(stream) > most_b else digest.hexdigest()


def _size(stream: BufferedReader) -> int:
    return os.fstat(stream.fileno()).st_size


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


def append(folder: Path, sums: Mapping[str, str]) -> None:
    """Add the sums of files to the manifest, or make a manifest.

    The lines before them stay. On OSError the manifest is as it was. Raises InputError if it is
    damaged.
    """
    before = b""
    if has_manifest(folder):
        before = content(folder)
        read(folder, before)
    rows = b"".join(_row(name, sums[name]) for name in sorted(sums))
    write_whole(folder / MANIFEST, before + rows)


def exposure(folder: Path) -> Exposed | None:
    """What lets another user lead elsewhere what this process writes in a trial's folder, if any.

    For root that is a folder or link on the way that is not root's, or that others can write to.
    An ordinary user must own the trial and its judgements, and may share them with a group. Who
    writes the checkout is trusted: root executes it.
    """
    places = (folder, folder / JUDGEMENTS_FOLDER)
    return next(filter(None, map(exposed_to_others, places)), None)


def exposed_to_others(place: Path) -> Exposed | None:
    """As ``exposure``, of one folder that need not be of a trial."""
    user = os.geteuid()
    trusted = {0, user, CHECKOUT.stat().st_uid}
    for path in exposed(place, trusted, group=user == 0):
        is_above = path.path != Path(os.path.realpath(place))
        if path.path not in (CHECKOUT, *CHECKOUT.parents) and not (user and is_above):
            return path
    return None


def check_own(folder: Path) -> None:
    """Raise InputError if there is an ``exposure`` of the trial's folder."""
    if exposed_path := exposure(folder):
        text = f"{exposed_path.who}, and could lead what you write in {folder} to another folder"
        mend = (
            exposed_path.correction
            if exposed_path.correction.startswith("chmod")
            else "run this as that user"
        )
        copy = f"or on a copy that only you can write to: cp -r {folder} COPY"
        elsewhere = "'seatrial report --output' writes elsewhere"
        raise InputError(
            [Problem(exposed_path.path, None, "", text, f"{mend}, {copy}; {elsewhere}")]
        )


@contextmanager
def publishing(folder: Path, number: int) -> Iterator[Path]:
    """A folder for the new files of judgement ``number``. They are published when the block ends.

    A trial without a manifest gets one of all its files. If the block raises an error, the trial
    is as before. The caller holds the trial's lock. Raises OSError, and LabError if a file cannot
    be moved to its place: ``settle`` moves it later.
    """
    draft, target = folder / _draft(number), judgement_folder(Path(), number)
    try:
        _make_folder(folder, _draft(number))
        yield draft
        sums = {} if has_manifest(folder) else _sums_of_killed(folder)
        names = names_below(folder, _draft(number))
        drafts = sums_of(folder, (str(_draft(number) / name) for name in names))
        sums |= {str(target / Path(name).name): sum for name, sum in drafts.items()}
        append(folder, sums)
    except BaseException:
        settle(folder)
        raise
    try:
        settle(folder)
    except OSError as error:
        text = f"{draft} is in {MANIFEST}, but cannot be moved to its place"
        raise LabError(f"{text}: {error}; 'seatrial report' moves it") from None


def _sums_of_killed(folder: Path) -> dict[str, str]:
    """The sums of all files of a trial that was killed, in which files may be its job user's.

    A hole costs its owner nothing, and a terabyte of it takes an hour to hash. Raises InputError
    with each file that is larger than FILE_LIMIT_B, or beyond TOTAL_LIMIT_B of all; OSError.
    """
    problems, names, total = [], files(folder), 0
    for name in names:
        size = (folder / name).lstat().st_size
        total += size
        if size > FILE_LIMIT_B or total > TOTAL_LIMIT_B:
            text = (
                f"it has {size} bytes: files of a killed trial may have {FILE_LIMIT_B} bytes each, "
                f"and {TOTAL_LIMIT_B} in all, to be hashed for its manifest"
            )
            problems.append(Problem(folder / name, None, "", text, "move or remove it"))
            total -= size
    if problems:
        raise InputError(problems)
    return sums_of(folder, names, dict.fromkeys(names, FILE_LIMIT_B))


def settle(folder: Path) -> None:
    """Complete or undo what a killed process began. The caller holds the trial's lock.

    A damaged manifest decides nothing: all drafts stay. Raises OSError.
    """
    listed, damaged = _parse(content(folder)) if has_manifest(folder) else ({}, [])
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
            if target.parts:  # not the trial's own folder
                _make_folder(folder, target, exist_ok=True)
            with folder_below(folder, draft) as old, folder_below(folder, target) as new:
                for name in names:
                    os.replace(name, name, src_dir_fd=old, dst_dir_fd=new)
        with folder_below(folder, draft.parent) as parent:
            shutil.rmtree(draft.name, ignore_errors=True, dir_fd=parent)
    with suppress(OSError):
        (folder / JUDGEMENTS_FOLDER).rmdir()  # if nothing else is in it


def check_settled(folder: Path) -> None:
    """Raise InputError if ``settle`` is to complete a judgement."""
    listed, _ = _parse(content(folder)) if has_manifest(folder) else ({}, [])
    for number in _drafts(folder):
        if _unmoved(folder, number, listed):
            text = "its process was killed before these files were in their places"
            correction = "'seatrial report', by a user who can write to the trial, moves them"
            raise InputError([Problem(folder / _draft(number), None, "", text, correction)])


def _draft(number: int) -> Path:
    """The folder of the drafts of a judgement, relative to the trial's."""
    return Path(JUDGEMENTS_FOLDER, f".{number}.draft")


def _make_folder(folder: Path, relative: Path, exist_ok: bool = False) -> None:
    """Make a folder below a trial's, and those above it, through no link. Raises OSError."""
    for above in reversed(relative.parents[:-1]):
        _make_folder(folder, above, exist_ok=True)
    with folder_below(folder, relative.parent) as parent:
        try:
            os.mkdir(relative.name, dir_fd=parent)
        except FileExistsError:
            if not exist_ok:
                raise


def _drafts(folder: Path) -> list[int]:
    """The numbers of the judgements that have a folder of drafts."""
    try:
        names = names_below(folder, Path(JUDGEMENTS_FOLDER))
    except NotADirectoryError:  # also of a link
        return []
    matches = filter(None, map(_DRAFT_FOLDER.fullmatch, names))
    numbers = [int(match["number"]) for match in matches]
    return [number for number in numbers if _is_folder(folder / _draft(number))]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _unmoved(folder: Path, number: int, listed: Mapping[str, str]) -> list[str]:
    """The names of the drafts that the manifest lists in another place, where they are not."""
    target = judgement_folder(Path(), number)
    names = []
    for name in names_below(folder, _draft(number)):
        final = str(target / name)
        if final not in listed or not _is_regular(folder / _draft(number) / name):
            continue
        if _sum_below(folder, str(_draft(number) / name)) != listed[final]:
            continue
        if not _is_regular(folder / final) or _sum_below(folder, final) != listed[final]:
            names.append(name)
    return names


def has_manifest(folder: Path) -> bool:
    """Whether there is a manifest, or something else with its name."""
    return os.path.lexists(folder / MANIFEST)


def content(folder: Path) -> bytes:
    """The manifest as it is. Who checks and then uses it reads it once: it may be exchanged.

    Raises InputError if there is no folder or no manifest.
    """
    check_present(folder)
    try:
        return read_below(folder, Path(MANIFEST), LIMIT_B)
    except OSError as error:
        problem = Problem(folder / MANIFEST, None, "", f"cannot be read: {error}")
        raise InputError([problem]) from None


def read(folder: Path, data: bytes | None = None) -> dict[str, str]:
    """The sum of each file, by its name relative to the folder.

    ``data``: the ``content`` of the manifest, if the caller has read it. Raises InputError as
    ``content``, and if a line of the manifest is not as Seatrial writes it.
    """
    sums, damaged = _parse(content(folder) if data is None else data)
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


def _parse(data: bytes) -> tuple[dict[str, str], list[int]]:
    """The sums, and the numbers of the lines that are damaged."""
    rows = data.splitlines(keepends=True)
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


def is_pruned(folder: Path, listed: Mapping[str, str]) -> bool:
    """Whether the folder has the record of a removal of raw evidence that a manifest lists."""
    try:
        return PRUNED_FILE in listed and _sum_below(folder, PRUNED_FILE) == listed[PRUNED_FILE]
    except OSError:
        return False


def check(
    folder: Path, only: Iterable[str] | None = None, data: bytes | None = None
) -> list[Difference]:
    """What was changed, removed or added since the manifest was written, in the order of names.

    Raw evidence that was pruned is no difference, if the record of that is as in the manifest.
    ``only``: the names of the files to compare; the others are not read. ``data``: the ``content``
    of the manifest, if the caller has read it. Raises InputError as ``content``.
    """
    listed, damaged = _parse(content(folder) if data is None else data)
    pruned = is_pruned(folder, listed)
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
            if not (pruned and is_evidence(name)):
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
