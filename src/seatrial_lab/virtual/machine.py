"""The machine that runs a trial of a virtual lab, for ``seatrial.trial.run``.

ReFrame runs on this machine, at its own speed. Slurm and the jobs run in the guest.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.base.files import write_whole
from seatrial.base.paths import SOURCE
from seatrial.results.record import (
    ENDED,
    IN_VIRTUAL_TIME,
    KERNEL_OF_LAB,
    NO_OWN_PROCESSORS,
    PLANTED,
    QEMU_OF_LAB,
)
from seatrial_lab.common import access
from seatrial_lab.common.owner import give, take
from seatrial_lab.virtual import share, wires
from seatrial_lab.virtual.engine import QUERY_TIMEOUT_S, VirtualLab
from seatrial_lab.virtual.spec import VirtualSpec

#: least pause between queries of Slurm, in which the Prologs and Epilogs of most NIC profiles end:
#: a query costs the emulator more than an idle guest's seconds
PAUSE_S = 3.0
LOSSES = ("dropped", "missed")  # counters of ``wires.counters``


class VirtualMachine:
    """The login node of a virtual lab."""

    def __init__(self, lab: VirtualLab):
        self.lab = lab
        self.lost: dict[tuple[str, str], dict[str, int]] = {}  # (node, interface) -> LOSSES

    @property
    def uid(self) -> int:
        return self.lab.spec.uid

    def popen(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen:
        """Start a program on this machine, with the guest's Slurm commands in its PATH."""
        spec, run = self.lab.spec, self.lab.paths.run
        env_of_user = access.environment(spec, spec.user, env)
        env_of_user.pop("BASH_ENV", None)
        env_of_user |= {
            "PATH": f"{run / 'bin'}:{env_of_user['PATH']}",
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
            env=env_of_user, cwd="/", stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        return self.lab.run(argv, timeout=QUERY_TIMEOUT_S)

    def pause(self, seconds: float) -> None:
        """Let the guest run on for ``PAUSE_S`` of its clock, or for ``seconds`` if that is more."""
        try:
            self.lab.run(["sleep", f"{max(seconds, PAUSE_S):g}"], timeout=QUERY_TIMEOUT_S)
        except LabError:  # the query says why
            time.sleep(seconds)

    def give(self, path: Path) -> None:
        give(path, self.lab.spec.uid, self.lab.spec.gid)

    def take(self, folder: Path) -> dict[str, int]:
        return take(folder)

    def losses(self, folder: Path) -> list[str]:
        """Name each NIC whose frames the switch or the NIC itself dropped since the last call. Say
        why the guest has ended, if it has, and copy its console to ``folder``."""
        ended = self._end(folder)
        try:
            return [*ended, *self._lost()]
        except LabError as error:
            return [*ended, f"frames that the wires dropped are not counted: {error}"]

    def _lost(self) -> list[str]:
        notes = []
        for row in wires.counters(self.lab):
            place = row["node"], row["interface"]
            before = self.lost.get(place, dict.fromkeys(LOSSES, 0))
            self.lost[place] = {name: row[name] for name in LOSSES}
            dropped, missed = (row[name] - before[name] for name in LOSSES)
            if dropped or missed:
                notes.append(
                    f"frames to {' '.join(place)} were lost in the runs: {row['queue']} "
                    f"had no room for {dropped}, the card for {missed}"
                )
        return notes

    def _end(self, folder: Path) -> list[str]:
        run = self.lab.paths.run
        if self.lab.is_up() or not (run / share.CONSOLE).exists():
            return []
        why = share.why_ended(run, paths=False)  # the lab is removed with its logs
        name = f"{self.lab.spec.instance}-{share.CONSOLE}"
        try:
            write_whole(folder / name, (run / share.CONSOLE).read_bytes())
        except OSError as error:
            where = f"its console was not kept: {error.strerror}"
        else:
            where = f"see {name}"
        return [f"{ENDED}{self.lab.spec.instance} has ended: {why}; {where}"]

    def facts(self) -> dict[str, str]:
        """The guest's kernel, with its package's version and the site's own drivers, and QEMU."""
        facts = self.lab.facts()
        kernel = kernel_note(facts).removeprefix("Linux ")
        return {KERNEL_OF_LAB: kernel, QEMU_OF_LAB: facts["qemu"]}

    def notes(self) -> list[str]:
        with contextlib.suppress(LabError):
            self._lost()  # those before the trial do not count
        facts = self.lab.facts()
        spec = self.lab.virtual_spec
        speeds = wires_note(spec, facts)
        # A host bus alone gives the wires no speed, and so does an emulator that is missing.
        timed = facts.get("processors") == "own" and any(card.wire for card in spec.cards)
        return [
            *(f"{PLANTED}{fault}" for fault in self.lab.faults()),
            (
                f"{IN_VIRTUAL_TIME}: an emulated machine whose clock counts instructions "
                f"(QEMU {facts['qemu']}, {kernel_note(facts)}); they hold for what the "
                "driver and the kernel cost in instructions, not for "
                f"{'' if timed else 'wires, '}caches or memory"
            ),
            processors_note(facts),
            *([speeds] if speeds else []),
        ]


def kernel_note(facts: dict[str, Any]) -> str:
    """Name the guest's kernel, with its version and the site's own drivers."""
    return f"Linux {facts['kernel']} ({facts['kernel_version']})"


def processors_note(facts: dict[str, Any]) -> str:
    """Say how many processors the nodes have, and why they share one if the site wants others."""
    if facts.get("processors") == "own":
        number = facts.get("processors_of_node", 1)
        many = "a processor" if number == 1 else f"{number} processors"
        window = f", {facts['window_ns']} ns apart at most" if "window_ns" in facts else ""
        return f"each node has {many} of its own: they run in parallel in virtual time{window}"
    wanted = facts.get("no_own_processors", "")
    if wanted:
        return f"{NO_OWN_PROCESSORS}: {wanted.splitlines()[0]}"
    return "all nodes share one processor"


def wires_note(spec: VirtualSpec, facts: dict[str, Any]) -> str:
    """Say which rates the wires and buses have; empty if the site asks for none."""
    text = wires.in_words(spec)
    if text and facts.get("processors") != "own":
        return f"wires have no speed, although the site wants {text}"
    return text
