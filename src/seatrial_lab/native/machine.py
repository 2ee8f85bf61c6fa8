"""The machine that runs a trial of a native lab: the lab's login node."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from seatrial.results.record import PLANTED
from seatrial_lab.common.owner import give, take
from seatrial_lab.native.engine import Lab


class LabMachine:
    """The login node of a native lab."""

    def __init__(self, lab: Lab):
        self.lab = lab

    @property
    def uid(self) -> int:
        return self.lab.spec.uid

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        return self.lab.popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return self.lab.run(argv, timeout=60, check=False)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def give(self, path: Path) -> None:
        give(path, self.lab.spec.uid, self.lab.spec.gid)

    def take(self, folder: Path) -> dict[str, int]:
        return take(folder)

    def notes(self) -> list[str]:
        return [f"{PLANTED}{fault}" for fault in self.lab.faults()]

    def facts(self) -> dict[str, str]:
        return {}

    def losses(self, folder: Path) -> list[str]:
        return []
