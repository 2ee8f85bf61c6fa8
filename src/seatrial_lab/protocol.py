"""What the command line and the trials may ask of a lab: both engines satisfy it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from seatrial.site.model import Site
from seatrial.trial.machine import Machine
from seatrial_lab.common.paths import LabPaths
from seatrial_lab.common.spec import LabSpec
from seatrial_lab.common.state import Fault


class Lab(Protocol):
    """A cluster that Seatrial makes. Its methods raise LabError with a reason."""

    spec: LabSpec
    paths: LabPaths

    def is_up(self) -> bool: ...
    def up(self, progress: Callable[[str], None] = ...) -> bool: ...
    def down(self, progress: Callable[[str], None] = ...) -> bool: ...
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
    """What makes labs of one kind."""

    def of_site(self, file: Path, site: Site, instance: str, accounting: bool) -> Lab:
        """The lab that plays a site, started or not. Raises InputError."""
        ...

    def attach(self, instance: str) -> Lab:
        """The running lab of that name. Raises LabError where there is none."""
        ...

    def end(self, instance: str) -> bool:
        """End the lab of that name, also a broken one; False if there was nothing."""
        ...

    def machine(self, lab: Any) -> Machine:
        """The login node of a running lab, for a trial."""
        ...

    def status(self, instance: str) -> dict[str, Any]:
        """What the lab looks like now, as data for JSON."""
        ...
