"""The state of a running lab between commands, and the lock of a lab."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from seatrial.base import lock
from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.base.say import Say, say_nothing
from seatrial.site.load import site_names
from seatrial_lab.common.network import TEST
from seatrial_lab.common.paths import RUN_ROOT, LabPaths, of_site
from seatrial_lab.common.spec import LabSpec

#: in the detail of a fault of a cable, before the interface, if it is not that of the test network
ON = " on "
#: states of a node in Slurm once its slurmd has registered
READY_STATES = ("idle", "mixed", "allocated", "completing", "drained", "draining")


@dataclass
class Fault:
    """A planted fault. ``kind`` is link, cpu, node or slurmd; ``detail`` is its setting."""

    kind: str
    node: str
    detail: str
    planted_at: float = field(default_factory=time.time)

    def __str__(self) -> str:
        return f"{self.kind} {self.node}: {self.detail}"


def interface_of(detail: str) -> str:
    """Return the interface of the cable that a detail is of."""
    return detail.partition(ON)[2] or TEST


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


def claim(instance: str, engine: str) -> None:
    """Write the mark of an engine, the first file of its lab. The caller holds the lab's lock.

    Raises LabError if the other engine has a lab of that name, complete or not.
    """
    if (other := engine_of(instance)) not in ("", engine):
        raise LabError(
            f"the lab {instance!r} is a {other} one, up or not ended: first seatrial lab down, "
            "or choose another name with --instance"
        )
    write_whole(LabPaths(instance).engine, engine, durable=False)


def engine_of(instance: str) -> str:
    """Return the name of the engine that has a lab of that name; empty if none has."""
    with suppress(FileNotFoundError):
        return LabPaths(instance).engine.read_text()
    return ""


def differs(running: LabSpec, names: Sequence[str]) -> str:
    """The error of a start of a lab that is up already and differs in the settings ``names``."""
    name = running.instance
    if "checkout" in names:  # so other settings differ, too: the folder of the modules
        return (
            f"lab {name} is up for the checkout {running.checkout}: first seatrial lab down in "
            "that folder, or choose another name with --instance"
        )
    down = start_command(name).replace("lab up", "lab down", 1)
    return f"lab {name} is up with other settings ({', '.join(names)}): {down}, then up again"


def not_up(instance: str) -> str:
    """The error of a command that needs a running lab."""
    return f"the lab {instance!r} is not up; start it with: {start_command(instance)}"


def start_command(instance: str, site: str = "") -> str:
    """The command that starts a lab; without ``site``, for a site whose lab has that name."""
    known = site or next((name for name in site_names() if of_site(name) == instance), "")
    words = ["seatrial lab up"]
    if known not in ("", "lab"):
        words.append(f"--site {shlex.quote(known)}")
    if of_site(known) != instance:
        words.append(f"--instance {shlex.quote(instance)}")
    return " ".join(words) + ("" if known else ", and --site for another site than lab")


def instances() -> list[str]:
    """Return the names of the instances that have a folder in RUN_ROOT."""
    if not RUN_ROOT.is_dir():
        return []
    return sorted(entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir())


def locked(instance: str, say: Say = say_nothing) -> AbstractContextManager[int]:
    """Hold the instance's lock, a file in the run folder; yields its descriptor.

    ``down`` removes the file and the folder while it holds the lock.
    """
    return lock.locked(LabPaths(instance).lock, say)
