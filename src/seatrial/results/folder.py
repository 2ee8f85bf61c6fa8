"""A trial's folder: reads and writes its records (``seatrial.results.record``).

``results.jsonl`` is not changed when the trial has ended. A later judgement has a file of its own,
``judgements/2/judgement.jsonl`` and so on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import names_below, regular_below, replacing
from seatrial.base.memory import no_collections, release_free_memory
from seatrial.base.suggest import suggest
from seatrial.results.record import (
    SCHEMA,
    Case,
    Judgement,
    Line,
    Requirement,
    Run,
    Trial,
    Verdict,
)

RESULTS_FILE = "results.jsonl"
JUDGEMENTS_FOLDER = "judgements"  # of later judgements, each in a folder with its number
JUDGEMENT_FILE = "judgement.jsonl"
#: largest line that is read: a run with a million figures has 200 MB
LINE_LIMIT_B = 1 << 29
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="record")])
_JUDGEMENT = TypeAdapter(Judgement)
# Without the choice among all kinds, pydantic need not hold a long line as a tree.
_ADAPTERS: dict[bytes, TypeAdapter[Any]] = {b"judgement": _JUDGEMENT, b"run": TypeAdapter(Run)}
_KIND = re.compile(rb'\{"record":"(\w+)"')
_KINDS: tuple[str, ...] = ("trial", "run", "judgement", "verdict")
_LATER_KINDS = ("judgement", "verdict")  # of a later judgement's file


class Results(BaseModel):
    """A trial's folder in memory. ``verdict`` is None for an interrupted trial.

    ``judgements`` and ``verdict`` are of one judgement of the trial, the last unless another was
    asked for. Of the judgements before it only the verdicts are held.
    """

    trial: Trial
    runs: list[Run] = []
    judgements: list[Judgement] = []
    verdict: Verdict | None = None
    earlier: list[Verdict] = []
    folder: Path = Path()

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts up to ``verdict``, in their order. Number 1 is the trial's own."""
        return [*self.earlier, *([self.verdict] if self.verdict else [])]

    @property
    def ended(self) -> datetime | None:
        """The end of the trial. Without a verdict of its own: the end of its last job."""
        if self.verdicts:
            return self.verdicts[0].ended
        ends = [run.job.ended for run in self.runs if run.job.ended]
        return max(ends, default=None)

    @property
    def output(self) -> Path:
        """The folder of the report on ``verdict``."""
        return judgement_folder(self.folder, self.verdict.number if self.verdict else 1)

    def above(self, file: Path) -> Path | None:
        """The trial's folder if a file is in it, for the argument ``below`` of who writes it."""
        inside = file.is_relative_to(self.folder)
        return self.folder if inside and ".." not in file.relative_to(self.folder).parts else None


def judgement_folder(trial: Path, number: int) -> Path:
    """Where a judgement of a trial is kept: number 1 in the trial's own folder."""
    return trial if number == 1 else trial / JUDGEMENTS_FOLDER / str(number)


def write_results(path: Path, lines: Iterable[Line], below: Path | None = None) -> None:
    """Write the file atomically; ``below`` as in ``replacing``. Raises OSError."""
    with replacing(path, below=below) as stream:
        for line in lines:
            if isinstance(line, Judgement):
                text = _JUDGEMENT.dump_json(line)
            else:
                text = line.model_dump_json(by_alias=True).encode()
            stream.write(text + b"\n")


def numbered(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file of records, from 1. Raises InputError at one that is too long."""
    for number, text in enumerate(iter(lambda: stream.readline(LINE_LIMIT_B), b""), 1):
        if len(text) == LINE_LIMIT_B:
            what = f"the line has {LINE_LIMIT_B} bytes or more, and a record never has"
            raise InputError([Problem(path, number, "", what)])
        yield number, text


def read_lines(
    path: Path, kinds: Sequence[str] = _KINDS, below: Path | None = None
) -> Iterator[Line]:
    """Yield the lines of a regular file, one in memory at a time.

    No symbolic link below the folder ``below`` is followed; the default is that of the file.
    Raises InputError with file and line if a line does not match the schema, if it is not of one
    of ``kinds``, or if it is a second ``trial`` or ``verdict``; also if the file cannot be read.
    """
    schema = SCHEMA
    first_of: dict[str, int] = {}  # kind -> line, of the kinds that a file has once
    cases: dict[Case, Case] = {}
    requirements: dict[Requirement, Requirement] = {}
    root = below or path.parent
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(regular_below(root, path.relative_to(root)))
        except OSError as error:
            raise InputError([Problem(path, None, "", f"cannot be read: {error}")]) from None
        for number, text in numbered(stream, path):
            kind = _KIND.match(text)
            adapter = _ADAPTERS.get(kind[1]) if kind else None
            try:
                line = (adapter or _LINE).validate_json(text)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                if first["type"] == "union_tag_invalid":
                    if schema > SCHEMA:
                        continue  # a kind of a later version
                    tag = first["ctx"]["tag"]
                    what = f"there is no record of the kind {tag!r}"
                    raise InputError(
                        [Problem(path, number, "record", what, suggest(tag, _KINDS))]
                    ) from None
                if not text.strip():
                    raise InputError([Problem(path, number, "", "the line is empty")]) from None
                parts = [kind[1].decode()] if kind and adapter else []
                field = ".".join([*parts, *map(str, first["loc"])])
                unknown = first["type"] in ("extra_forbidden", "unexpected_keyword_argument")
                what = "there is no such field" if unknown else first["msg"]
                raise InputError([Problem(path, number, field, what)]) from None
            if line.record not in kinds:
                what = f"a {line.record!r} line does not belong in this file"
                correction = f"only {' and '.join(kinds)} lines do"
                raise InputError([Problem(path, number, "record", what, correction)])
            if isinstance(line, Trial):
                schema = line.schema_version
            if isinstance(line, (Trial, Verdict)):
                if before := first_of.get(line.record):
                    what = f"a second '{line.record}' line: the first is line {before}"
                    raise InputError([Problem(path, number, "record", what, "a file has one")])
                first_of[line.record] = number
            if isinstance(line, Judgement):  # a million lines share a few cases
                line.case = cases.setdefault(line.case, line.case)
                if line.requirement:
                    line.requirement = requirements.setdefault(line.requirement, line.requirement)
            yield line


@no_collections()
def read_results(path: Path, number: int | None = None) -> Results:
    """Read a trial's folder, or its ``results.jsonl`` without the later judgements.

    ``number`` is the judgement to read; the last by default. Raises InputError if a file is
    missing or damaged, if there is no ``trial`` line, or no such judgement.
    """
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        correction = "name a trial's folder, or its results.jsonl"
        raise InputError([Problem(file, None, "", "no such results file", correction)])
    later = later_judgements(path) if path.is_dir() else []
    last = max([1, *later]) if number is None else number
    if last not in (1, *later):
        text = f"there is no judgement {last}"
        raise InputError([Problem(file, None, "", text, f"the last is {max([1, *later])}")])
    trial: Trial | None = None
    runs: list[Run] = []
    judgements: list[Judgement] = []
    verdicts: list[Verdict] = []
    for judgement in (1, *(one for one in later if one <= last)):
        records, kinds = file, _KINDS
        if judgement > 1:
            records, kinds = judgement_folder(path, judgement) / JUDGEMENT_FILE, _LATER_KINDS
        for line in read_lines(records, kinds, below=file.parent):
            if isinstance(line, Trial):
                trial = line
            elif isinstance(line, Run):
                runs.append(line)
            elif isinstance(line, Verdict):
                verdicts.append(line)
            elif judgement == last:
                judgements.append(line)
    release_free_memory()
    if trial is None:
        raise InputError([Problem(file, 1, "record", "the file has no 'trial' line")])
    if last > 1 and (not verdicts or verdicts[-1].number != last):
        file = judgement_folder(path, last) / JUDGEMENT_FILE
        raise InputError([Problem(file, None, "record", f"it has no 'verdict' line number {last}")])
    return Results(
        trial=trial, runs=runs, judgements=judgements, folder=file.parent,
        verdict=verdicts[-1] if verdicts else None, earlier=verdicts[:-1],
    )  # fmt: skip


def trial_of(path: Path) -> Path | None:
    """The trial whose folder a path is or is in, through links as well; None if there is none."""
    real = Path(os.path.realpath(path))
    return next((parent for parent in (real, *real.parents) if _has_results(parent)), None)


def _has_results(folder: Path) -> bool:
    try:
        return (folder / RESULTS_FILE).is_file()
    except OSError:  # such as a name that is too long
        return False


def later_judgements(folder: Path) -> list[int]:
    """The numbers of a trial's later judgements, ascending.

    Raises InputError if there is something else in the place of their folders, such as a link.
    """
    numbers = []
    at = Path(JUDGEMENTS_FOLDER)
    try:
        for name in names_below(folder, at):
            if re.fullmatch(r"[1-9][0-9]*", name) and name != "1":
                at = Path(JUDGEMENTS_FOLDER, name)
                with suppress(NotADirectoryError):  # a file or a link that is nobody's judgement
                    if JUDGEMENT_FILE in names_below(folder, at):
                        numbers.append(int(name))
    except OSError as error:
        problem = Problem(folder / at, None, "", f"no folder of judgements: {error}")
        raise InputError([problem]) from None
    return sorted(numbers)
