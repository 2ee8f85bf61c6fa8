"""Raw evidence of a trial that was removed because it is older than the site keeps it.

``pruned.json`` in a trial's folder says when and by whom. Its sum is in the manifest, which goes on
to list each file that was removed. This module says what is raw evidence, and reads and makes the
record. It removes nothing (see ``seatrial.history.prune``).
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, ValidationError

from seatrial.base.errors import InputError, Problem
from seatrial.base.files import read_below
from seatrial.results.record import Record, Time
from seatrial.results.wording import plural

PRUNED_FILE = "pruned.json"
_LIMIT_B = 1 << 20
_EVIDENCE = re.compile(
    r"(cases|allocations(-(rerun|round)\d+)?)/.*|reframe(-[^/]*)?\.(out|log|json)", re.DOTALL
)


class Pruned(Record):
    """The record of a removal: begun, and complete unless the process was killed."""

    schema_version: int = Field(default=1, alias="schema")
    pruned: Time  # when it began
    user: str
    command: list[str]
    seatrial: str  # version, with the commit where known
    days: int = Field(ge=0)  # for which the site keeps evidence
    files: int = Field(ge=0)
    bytes: int = Field(ge=0)

    def __str__(self) -> str:
        return (
            f"pruned {self.pruned:%Y-%m-%d %H:%M} UTC by {self.user}: {plural(self.files, 'file')} "
            f"of raw evidence, {megabytes(self.bytes)}, kept for {plural(self.days, 'day')}"
        )


def megabytes(size_b: int) -> str:
    """A size in MB of 10^6 bytes."""
    return f"{size_b / 1e6:.1f} MB"


def is_evidence(name: str) -> bool:
    """Whether a file, by its name relative to the trial's folder, is raw evidence.

    Results, judgements, reports, the site and the requirements are none.
    """
    return _EVIDENCE.fullmatch(name) is not None


def read_pruned(folder: Path) -> Pruned | None:
    """The record of a trial's folder; None without one. Raises InputError if it is damaged.

    Only its sum in the manifest shows that nobody changed it.
    """
    file = folder / PRUNED_FILE
    try:
        return Pruned.model_validate_json(read_below(folder, Path(PRUNED_FILE), _LIMIT_B))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError([Problem(file, None, "", f"cannot be read: {error}")]) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise InputError([Problem(file, None, at, first["msg"])]) from None
