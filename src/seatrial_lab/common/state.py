"""The state of a running lab between commands, and the lock of a lab."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.base.lock import hold, open_lock
from seatrial_lab.common.paths import RUN_ROOT, LabPaths
from seatrial_lab.common.spec import LabSpec


@dataclass
class Fault:
    """A planted fault. ``kind`` is link, cpu, node or slurmd; ``detail`` is its setting."""

    kind: str
    node: str
    detail: str
    planted_at: float = field(default_factory=time.time)

    def __str__(self) -> str:
        return f"{self.kind} {self.node}: {self.detail}"


@dataclass
class LabState:
    """The content of state.json, which exists once the lab is up.

    ``started_at`` is in seconds since 1970.
    """

    spec: LabSpec
    started_at: float
    faults: list[Fault] = field(default_factory=list)

    def save(self) -> None:
        """Write the file atomically."""
        path = LabPaths(self.spec.instance).state
        document = {
            "spec": json.loads(self.spec.to_json()),
            "started_at": self.started_at,
            "faults": [asdict(fault) for fault in self.faults],
        }
        write_whole(path, json.dumps(document, indent=1), durable=False)


def load(instance: str) -> LabState | None:
    """Return the state of a lab that is up, else None. Raises LabError if it is unreadable."""
    path = LabPaths(instance).state
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        return LabState(
            spec=LabSpec.from_json(json.dumps(document["spec"])),
            started_at=float(document["started_at"]),
            faults=[Fault(**fault) for fault in document["faults"]],
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} cannot be read ({error}): seatrial lab down") from error


def not_up(instance: str) -> str:
    """The error of a command that needs a running lab."""
    return f"the lab {instance!r} is not up; start it with: seatrial lab up"


def instances() -> list[str]:
    """Return the names of the instances that have a folder in RUN_ROOT."""
    if not RUN_ROOT.is_dir():
        return []
    return sorted(entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir())


@contextlib.contextmanager
def locked(instance: str) -> Iterator[int]:
    """Hold the instance's lock; yields its descriptor. The lock is a file in the run folder.

    ``down`` removes the file and the folder while it holds the lock. A process that waited for
    the lock then holds a removed file, and tries again with the new one.
    """
    file = LabPaths(instance).lock
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_lock(file)
        except FileNotFoundError:
            continue
        try:
            hold(descriptor, file)
            if _is_same_file(descriptor, file):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_same_file(descriptor: int, file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), file.stat())
    return False
