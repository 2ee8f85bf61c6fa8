"""The machine that runs a trial of a virtual lab, for ``seatrial.trial.run``.

ReFrame runs on this machine, at its own speed. Slurm and the jobs run in the guest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from seatrial.base.paths import SOURCE
from seatrial.results.record import PLANTED
from seatrial_lab.common import access
from seatrial_lab.common.owner import give, take
from seatrial_lab.virtual.engine import QUERY_TIMEOUT_S, VirtualLab


class VirtualMachine:
    """The login node of a virtual lab."""

    def __init__(self, lab: VirtualLab):
        self.lab = lab

    @property
    def uid(self) -> int:
        return self.lab.spec.uid

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        """Start a program on this machine, with the guest's Slurm commands in its PATH."""
        spec, run = self.lab.spec, self.lab.paths.run
        own = access.environment(spec, spec.user, env)
        own.pop("BASH_ENV", None)
        own |= {
            "PATH": f"{run / 'bin'}:{own['PATH']}",
            "HOME": str(run / "home"),
            "PYTHONPATH": str(SOURCE),
        }
        paths = [*spec.visible_paths(), cwd, run]
        given = {
            "argv": argv, "uid": spec.uid, "gid": spec.gid, "cwd": str(cwd),
            "paths": [str(path) for path in paths],
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-P", "-S", "-m", "seatrial_lab.virtual.run_as_user",
             json.dumps(given)],
            env=own, cwd="/", stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return self.lab.run(argv, timeout=QUERY_TIMEOUT_S)

    def give(self, path: Path) -> None:
        give(path, self.lab.spec.uid, self.lab.spec.gid)

    def take(self, folder: Path) -> dict[str, int]:
        return take(folder)

    def notes(self) -> list[str]:
        facts = self.lab.facts()
        return [
            *(f"{PLANTED}{fault}" for fault in self.lab.faults()),
            (
                "figures are in virtual time: an emulated machine whose clock counts instructions "
                f"(QEMU {facts['qemu']}, Linux {facts['kernel_version']}); they hold for what the "
                "driver and the kernel cost in instructions, not for wires, caches or memory"
            ),
        ]
