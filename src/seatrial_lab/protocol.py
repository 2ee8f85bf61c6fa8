"""The interface of a lab and of an engine, for the command line and the trials.

Both engines implement it. This module has no implementation of its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from seatrial.base.say import Say
from seatrial.site.model import Site
from seatrial.trial.machine import Machine
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.common.state import Fault


class Lab(Protocol):
    """A cluster that Seatrial makes. Its methods raise LabError with the reason."""

    spec: LabSpec
    paths: LabPaths

    def is_up(self) -> bool: ...
    def up(self, progress: Say = ...) -> bool: ...
    def down(self, progress: Say = ...) -> bool: ...
    def add_bind(self, path: Path) -> None: ...
    def node_states(self) -> dict[str, str]: ...
    def faults(self) -> list[Fault]: ...
    def run(
        self, argv: Sequence[str], user: str | None = ..., node: str = ...,
        env: Mapping[str, str] | None = ..., cwd: str | Path | None = ...,
        timeout: float | None = ..., check: bool = ..., stdin: str | None = ...,
    ) -> subprocess.CompletedProcess[str]: ...  # fmt: skip
    def exec(self, argv: Sequence[str], user: str | None = ..., node: str = ...) -> None: ...


class Engine(Protocol):
    """Creates, finds and ends labs of one kind."""

    def of_site(self, file: Path, site: Site, instance: str, accounting: bool) -> Lab:
        """Return the lab of a site, started or not. Raises InputError."""
        ...

    def attach(self, instance: str) -> Lab:
        """Return the running lab of that name. Raises LabError if there is none."""
        ...

    def end(self, instance: str, progress: Say) -> bool:
        """End the lab of that name, also a broken one. Returns False if there is no such lab."""
        ...

    def machine(self, lab: Any) -> Machine:
        """Return the login node of a running lab, for a trial."""
        ...

    def status(self, instance: str) -> dict[str, Any]:
        """Return the state of the lab as data for JSON."""
        ...
