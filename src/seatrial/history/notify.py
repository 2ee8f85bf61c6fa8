"""Messages about what changed: which findings are new, and the command that sends the text.

``.history-sent.json`` beside the index has the last message about each site. A finding is new if
there was none of its name at that message: a trial that becomes readable late may show one of an
older night. It is sent once more if it was sent as not worse or as much less worse: series joined
since then, or its drift goes on. If the file is missing, a finding is new if the newest trial
showed it: at worst one night is sent twice. A folder that does not count, or a trial whose clock
was wrong, is new until a message about the site has named it with this reason. A finding that was
sent and is withdrawn is said once. The words are in ``seatrial.report.message``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from seatrial.base.errors import InputError, LabError, Problem
from seatrial.base.files import read_below, write_whole
from seatrial.base.lock import locked
from seatrial.base.say import Say
from seatrial.history.accept import loose
from seatrial.history.changes import Change, Finding, findings, much_more, untimed
from seatrial.history.index import Index
from seatrial.history.series import KnownTrial, in_time
from seatrial.results import manifest
from seatrial.results.record import Record, Time
from seatrial.results.requirements import Requirements
from seatrial.results.wording import number

SENT_FILE = ".history-sent.json"
LOCK_FILE = ".history-sent.lock"
TIME_LIMIT_S = 120  # of the command
_LIMIT_B = 16 << 20
_KEPT = 1000  # findings that are gone, and may be back once a folder is complete
_WITHDRAWN = 30  # newest trials of a site, of whose days a finding that is gone is said
_SAME = timedelta(days=7)  # between the begins of a finding and of one that has its series now
_MUCH_WORSE = 1.5  # times what was sent: the size of one change differs less from series to series


class Sent(Record):
    """The last message about a site."""

    began: Time  # of the newest trial when it was sent
    verdict: str  # of that trial
    #: of this and earlier messages: identifier -> the worst change that was sent, in per cent. 0:
    #: none was worse. None: an older file does not say
    findings: dict[str, float | None] = Field(default={})
    series: dict[str, str] = Field(default={})  # of the worst change of each of ``findings``
    #: the findings of that time that were not sent: they were older. None: an older file
    known: list[str] | None = Field(default=None)
    notes: list[str] = Field(default=[])  # as ``News.notes``
    not_counted: list[str] = Field(default=[])  # as ``Index.left_out``, when it was sent

    @field_validator("findings", mode="before")
    @classmethod
    def _names_only(cls, value: object) -> object:
        """An older file has a list of identifiers."""
        return dict.fromkeys(value) if isinstance(value, list) else value


class _State(Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    sites: dict[str, Sent] = Field(default={})


@dataclass(frozen=True)
class Joined:
    """What makes a finding worse than it was sent."""

    worst: float  # that was sent, in per cent; 0: none was worse
    changes: list[Change]  # that later trials showed; []: those that were sent are worse


@dataclass(frozen=True)
class News:
    """What is new about a site."""

    trial: KnownTrial  # the newest
    findings: list[Finding]
    joined: dict[str, Joined]  # by the identifier of a finding that was sent before
    verdict_before: str  # of the last message, else of the trial before; "": there was none
    after: Sent  # the last message, once this one is sent
    not_counted: list[str] = field(default_factory=list)  # sentences that no message had
    notes: list[str] = field(default_factory=list)  # the same, of what no finding says

    @property
    def is_new(self) -> bool:
        another = self.verdict_before not in ("", verdict_of(self.trial))
        return bool(self.findings or self.not_counted or self.notes) or another


def verdict_of(trial: KnownTrial) -> str:
    return trial.verdict or "interrupted"


def news(
    index: Index, site: str, sent: Sent | None, requirements: Requirements | None = None
) -> News:
    """What is new about a site since its last message. Raises InputError if it has no trial.

    A trial whose clock was wrong is not the newest, unless all are so. A folder that does not count
    may be of any site: each site has it once.
    """
    trials = in_time([trial for trial in index.trials() if trial.site == site])
    if not trials:
        raise InputError(f"{index.trials_folder} has no trial of the site {site} that can be read")
    newest = trials[-1]
    rules = requirements or Requirements()
    known_findings = [
        finding for finding in findings(index, {site: rules}, site=[site]) if finding.site == site
    ]
    names = dict(sent.findings) if sent else {}
    series = dict(sent.series) if sent else {}
    known_then = set((sent and sent.known) or [])

    def is_later(trial: KnownTrial) -> bool:
        return trial.started > sent.began if sent else trial.id == newest.id

    def is_new(finding: Finding) -> bool:
        if sent and sent.known is not None:
            return finding.id not in names and finding.id not in known_then
        return is_later(finding.found) and finding.id not in names

    new: list[Finding] = []
    joined: dict[str, Joined] = {}
    for finding in known_findings:
        if is_new(finding):
            new.append(finding)
        elif more := _joined(finding, names.get(finding.id), is_later):
            new.append(finding)
            joined[finding.id] = more
        else:
            continue
        names.pop(finding.id, None)
        names[finding.id] = _worst(finding.worse)
        if finding.changes:
            series[finding.id] = finding.changes[0].series.name
    before = sent.verdict if sent else verdict_of(trials[-2]) if len(trials) > 1 else ""
    now_known = [finding.id for finding in known_findings]
    gone = [name for name in (*names, *sorted(known_then)) if name not in set(now_known)][-_KEPT:]
    withdrawn = _withdrawn(sent, known_findings, trials) if sent else {}
    gone = [name for name in gone if name not in withdrawn]
    left_out, notes = index.left_out(), [*untimed(trials), *loose(known_findings, rules)]
    after = Sent(
        began=newest.started, verdict=verdict_of(newest), not_counted=left_out, notes=notes,
        findings={name: names[name] for name in names if name in {*gone, *now_known}},
        series={name: series[name] for name in series if name in {*gone, *now_known}},
        known=[name for name in (*gone, *now_known) if name not in names],
    )  # fmt: skip
    known_out = set(sent.not_counted) if sent else set()
    unsent = [name for name in left_out if name not in known_out]
    unsaid = [note for note in notes if not sent or note not in sent.notes]
    unsaid += [withdrawn[name] for name in sorted(withdrawn, reverse=True)]
    return News(newest, new, joined, before, after, unsent, unsaid)


def _withdrawn(
    sent: Sent, known_findings: Sequence[Finding], trials: Sequence[KnownTrial]
) -> dict[str, str]:
    """A sentence for each finding of late that was sent and is none any more, by its name. One that
    is a part of another finding now is not withdrawn."""
    begin = trials[-_WITHDRAWN:][0].started.date()
    known, changes = (
        {finding.id for finding in known_findings},
        [change for finding in known_findings for change in finding.changes],
    )
    result = {}
    for name, worst in sent.findings.items():
        series = sent.series.get(name, "")
        day = date.fromisoformat(name[:10])
        goes_on = any(
            change.series.name == series
            and (abs(change.first.started.date() - day) <= _SAME
                 or (change.drift and change.first.started.date() <= day))
            for change in changes
        )  # fmt: skip
        if name in known or not series or day < begin or goes_on:
            continue
        size = f"worse by {number(worst, 2)} %" if worst else "not worse"
        result[name] = (
            f"{series}: the change of {day}, sent as {size}, is withdrawn: later trials are of "
            "the old level, or a trial that showed it does not count any more"
        )
    return result


def _joined(
    finding: Finding, worst: float | None, is_later: Callable[[KnownTrial], bool]
) -> Joined | None:
    """The worse series, if they make it a matter of another message.

    ``worst``: what was sent of it; None: it is not known, and counts as known until then.
    """
    if worst is None:
        worst = _worst([change for change in finding.worse if not is_later(change.found)])
    later = [change for change in finding.worse if is_later(change.found)]
    grown = any(change.least > much_more(worst / 100) for change in finding.worse)
    if _worst(later) > _MUCH_WORSE * worst or (worst and grown):
        return Joined(worst, later)
    return None


def _worst(worse: Sequence[Change]) -> float:
    """In per cent; 0 of none."""
    return max((100 * change.size for change in worse), default=0.0)


# --- what was sent ---------------------------------------------------------------------


@contextmanager
def sending(trials: Path, say: Say) -> Iterator[None]:
    """Hold the lock of the last messages, so that two commands do not send the same one.

    Raises InputError if this user cannot write safely to the folder: the message could not be
    recorded, and each night would send it again.
    """
    if exposed := manifest.exposure(trials):
        text = f"{exposed.who}: messages sent cannot be recorded there"
        raise InputError([Problem(exposed.path, None, "", text, exposed.correction)])
    try:
        with locked(trials / LOCK_FILE, say):
            yield
    except PermissionError as error:
        text = f"messages sent cannot be recorded: {error.strerror}"
        raise InputError([Problem(trials, None, "", text, "run this as its owner")]) from None


def read_sent(trials: Path, say: Say) -> dict[str, Sent]:
    """Site -> last message. A damaged file counts as missing, and a line says so."""
    try:
        content = read_below(trials, Path(SENT_FILE), _LIMIT_B)
        return _State.model_validate_json(content).sites
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        say(f"{trials / SENT_FILE} cannot be read and is replaced: {_first_line(error)}")
        return {}


def write_sent(trials: Path, sent: dict[str, Sent]) -> None:
    """Write the last messages. The caller holds the lock. Raises LabError."""
    text = _State(sites=sent).model_dump_json(by_alias=True, indent=1) + "\n"
    try:
        write_whole(trials / SENT_FILE, text, below=trials)
    except OSError as error:
        raise LabError(f"the message was sent, but this cannot be recorded: {error}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# --- the command -----------------------------------------------------------------------


def send(command: Sequence[str], text: str) -> None:
    """Run a command with the text as its standard input, without a shell.

    Raises LabError if it is missing, fails, or takes longer than ``TIME_LIMIT_S``.
    """
    name = command[0]
    with tempfile.TemporaryFile() as output:  # a pipe would wait for what runs on in the background
        try:
            done = subprocess.run(
                command, input=text.encode(errors="replace"), stdout=output, stderr=output,
                timeout=TIME_LIMIT_S, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            why = f"there is no program {name}"
        except subprocess.TimeoutExpired:
            why = f"{name} took longer than {TIME_LIMIT_S} s"
        except OSError as error:
            why = f"{name}: {error.strerror}"
        else:
            if not done.returncode:
                return
            output.seek(0)
            last = output.read(_LIMIT_B).decode(errors="replace").strip().rpartition("\n")[2]
            why = f"{name} ended with {done.returncode}{f': {last}' if last else ''}"
    raise LabError(f"the message was not sent: {why}")
