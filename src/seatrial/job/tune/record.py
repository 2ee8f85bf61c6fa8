"""The record of a tune: one JSON Lines file in its folder, to which lines are only added.

The first line is the request. Then come, for each run, a line before its submission, one with the
job, and one with the outcome; and a line for each look at the samples. All that a tune knows is
computed from these lines, so one that was interrupted continues where it stopped.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from seatrial.base.errors import InputError, Problem
from seatrial.nic.profile import DataPath
from seatrial.results.record import Counters
from seatrial.results.statistics import Better

SCHEMA = 1
RECORD_FILE = "record.jsonl"

#: why a run does not count: ``profile`` and ``transport`` say that it was not what it should be,
#: ``refused`` that Slurm does not start it, ``limit`` and ``interrupted`` that it was cancelled
Fault = Literal[
    "", "program", "timeout", "figure", "profile", "transport", "refused", "slurm", "limit",
    "interrupted",
]  # fmt: skip


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A NIC profile with a transport."""

    profile: str
    transport: str

    @property
    def name(self) -> str:
        return f"{self.profile} over {self.transport}"


class Chosen(Line):
    """A candidate, and where its messages must go."""

    candidate: Candidate
    feature: str  # Slurm's node feature of the profile; "" for default
    network: str
    interface: str
    data_path: DataPath
    family: str  # of its MPI: openmpi, mpich; "": none
    variant_of: str = ""  # the transport of the stack, whose variant this one is; "": none


class Tuned(Line):
    """What is tuned, and how: a tune with another request is another tune."""

    record: Literal["tune"] = "tune"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    id: str
    started: datetime
    seatrial: str
    site: str  # as the option gives it
    site_name: str
    program: list[str]
    cwd: str
    nodes: int
    ranks_per_node: int
    settings: dict[str, str] = {}  # values of the job template
    figure: str = ""  # regular expression; "": the wall time
    figure_unit: str = ""  # "": the user did not say it
    better: Better = "lower"
    run_limit_s: int
    candidates: list[Chosen]
    left_out: dict[str, str] = {}  # candidate -> why

    @property
    def names(self) -> dict[str, Candidate]:
        return {candidate.candidate.name: candidate.candidate for candidate in self.candidates}

    @property
    def unit(self) -> str:
        return self.figure_unit if self.figure else "s"

    def left_out_lines(self) -> list[str]:
        """What is left out and why, such as ``a, b over tcp: the reason``: a line for each reason
        of a transport."""
        alike: dict[tuple[str, str], list[str]] = {}
        for name, why in self.left_out.items():
            profile, _, transport = name.partition(" over ")
            alike.setdefault((transport, why), []).append(profile)
        return [f"{', '.join(names)} over {transport}: {why}"
                for (transport, why), names in alike.items()]  # fmt: skip

    def chosen(self, candidate: Candidate) -> Chosen:
        return next(chosen for chosen in self.candidates if chosen.candidate == candidate)


class Submitting(Line):
    """A run that is about to be submitted: if nothing follows, the command was killed then."""

    record: Literal["submitting"] = "submitting"
    number: int
    candidate: Candidate


class Submitted(Line):
    record: Literal["submitted"] = "submitted"
    number: int
    job: str


class Ran(Line):
    """The outcome of a run. It counts if ``fault`` is empty; ``value`` is then its figure."""

    record: Literal["run"] = "run"
    number: int
    candidate: Candidate
    job: str = ""
    nodes: list[str] = []
    started: datetime | None = None
    value: float | None = None
    wall_s: float | None = None
    fault: Fault = ""
    reason: str = ""  # a sentence
    node_hours: float
    counters: list[Counters] = []
    crossed: bool | None = None  # most bytes were on the network under test; None: few bytes
    path: str = ""  # a sentence on that
    libraries: list[str] = []  # of MPI, that the program had loaded


class Look(Line):
    """A decision on the samples so far, which is one of a limited number."""

    record: Literal["look"] = "look"
    runs: int  # number of outcomes before it
    answer: str
    leaders: list[str]


AnyLine = Tuned | Submitting | Submitted | Ran | Look
_LINE: TypeAdapter[AnyLine] = TypeAdapter(Annotated[AnyLine, Field(discriminator="record")])


class Book:
    """The record in a folder. ``tuned`` is None while it has no line."""

    def __init__(self, folder: Path):
        self.file = folder / RECORD_FILE
        self.tuned: Tuned | None = None
        self.runs: list[Ran] = []
        self.looks: list[Look] = []
        self.open: dict[int, tuple[Candidate, str]] = {}  # number -> candidate, job or ""

    def read(self) -> None:
        """Read the file, if there is one. A last line that a kill left incomplete is removed.

        Raises InputError for any other damage, OSError.
        """
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        for number, text in enumerate(whole.splitlines(), 1):
            try:
                self._take(_LINE.validate_json(text))
            except (ValidationError, ValueError) as error:
                what = error.errors(include_url=False)[0]["msg"] \
                    if isinstance(error, ValidationError) else str(error)  # fmt: skip
                correction = "the record was changed: begin again in another folder"
                raise InputError([Problem(self.file, number, "", what, correction)]) from None
        if len(whole) < len(content):
            os.truncate(self.file, len(whole))

    def add(self, line: AnyLine) -> None:
        """Write a line, which is on the disk when this returns. Raises OSError."""
        text = line.model_dump_json(by_alias=True, exclude_defaults=False) + "\n"
        with self.file.open("ab") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._take(line)

    def _take(self, line: AnyLine) -> None:
        if isinstance(line, Tuned):
            if self.tuned:
                raise ValueError("a second request")
            if line.schema_version != SCHEMA:
                raise ValueError(f"schema {line.schema_version}: another version of Seatrial")
            self.tuned = line
            return
        if self.tuned is None:
            raise ValueError("the first line is not the request")
        if isinstance(line, Submitting):
            if line.number in self.open or line.number < self.next_number:
                raise ValueError(f"run {line.number} is there already")
            self.open[line.number] = (line.candidate, "")
        elif isinstance(line, Submitted):
            if line.number not in self.open:
                raise ValueError(f"run {line.number} was not begun")
            self.open[line.number] = (self.open[line.number][0], line.job)
        elif isinstance(line, Ran):
            if line.number not in self.open:
                raise ValueError(f"run {line.number} has no beginning, or counts twice")
            del self.open[line.number]
            self.runs.append(line)
        else:
            self.looks.append(line)

    @property
    def next_number(self) -> int:
        return 1 + max([0, *self.open, *(run.number for run in self.runs)])
