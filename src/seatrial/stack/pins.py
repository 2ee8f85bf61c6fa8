"""``pins.yaml`` beside an environment: the versions of Spack, builtin packages and concretizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from seatrial.base import yamlfile
from seatrial.base.fields import text_of

Commit = Annotated[
    str, *text_of(r"[0-9a-f]{40}", "a commit", "write all 40 digits of git rev-parse")
]


class Repository(BaseModel):
    """A tag, and its commit when it was pinned: a tag can be moved, a commit cannot."""

    model_config = ConfigDict(extra="forbid")

    git: str
    tag: str
    commit: Commit


class Pins(BaseModel):
    model_config = ConfigDict(extra="forbid")

    spack: Repository
    builtin: Repository
    python: dict[str, str]
    """PyPI project -> version, for the Python that runs Spack"""


def read(file: Path) -> Pins:
    """Raises InputError with file, line and field."""
    return yamlfile.load(file, Pins)[0]
