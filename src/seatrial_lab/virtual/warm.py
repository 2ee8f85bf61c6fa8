"""A guest that has loaded its drivers, saved once: starting from there takes a second.

The saved state holds what does not depend on an instance: the kernel, the drivers and their cards.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError

COLD_S = 900.0  # for a cold boot on a busy machine
SAVE_S = 600.0
WARM = b"warm\n"


def key(argv: list[str], run: Path, versions: tuple[str, ...]) -> str:
    """What tells one saved state from another: QEMU's command line but for the instance's paths."""
    text = json.dumps([[word.replace(str(run), "RUN") for word in argv], *versions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def saved(folder: Path, argv: list[str], env: Mapping[str, str], run: Path, name: str) -> Path:
    """The saved state of the guest that ``argv`` starts, made where it is missing.

    Raises LabError, with the guest's last words, where it does not come so far.
    """
    file = folder / f"guest-{name}.state"
    if not file.is_file():
        draft = file.with_suffix(".new")
        _save(argv, env, run, draft)
        draft.rename(file)
    file.touch()  # by which the least used are known
    for old in sorted(folder.glob("guest-*.state"), key=lambda path: path.stat().st_mtime)[:-3]:
        old.unlink()
    return file


def _save(argv: list[str], env: Mapping[str, str], run: Path, file: Path) -> None:
    with (run / "qemu.log").open("wb") as log:
        guest = subprocess.Popen(
            argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
        )
    try:
        line = connected(run / "line.sock", guest)
        _until_warm(line, guest, run)
        control = Control(connected(run / "qmp.sock", guest))
        control.do("migrate", uri=f"file:{file}")
        deadline = time.monotonic() + SAVE_S
        while (status := control.do("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise LabError(f"the guest cannot be saved: {status}")
            time.sleep(0.1)
    finally:
        guest.kill()
        guest.wait()
        for name in ("line.sock", "qmp.sock"):
            (run / name).unlink(missing_ok=True)


def _until_warm(line: socket.socket, guest: subprocess.Popen, run: Path) -> None:
    line.settimeout(COLD_S)
    heard = b""
    while WARM not in heard:
        try:
            data = line.recv(4096)
        except TimeoutError:
            raise LabError(f"the guest has not booted after {COLD_S:.0f} s") from None
        if not data:
            words = (run / "console.log").read_text(errors="replace").splitlines()[-3:]
            raise LabError(f"the guest ended while it booted: {' | '.join(words)}")
        heard += data


def connected(place: Path, guest: subprocess.Popen) -> socket.socket:
    """A connection to one of QEMU's sockets. Raises LabError where QEMU ended."""
    deadline = time.monotonic() + 20
    while True:
        found = socket.socket(socket.AF_UNIX)
        try:
            found.connect(str(place))
            return found
        except OSError as error:
            found.close()
            if guest.poll() is not None or time.monotonic() > deadline:
                log = place.with_name("qemu.log")
                words = log.read_text(errors="replace").strip() if log.exists() else ""
                raise LabError(f"QEMU does not answer ({error}): {words[-500:]}") from None
            time.sleep(0.02)


class Control:
    """QEMU's control socket (QMP)."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(SAVE_S)
        self.stream = connection.makefile("rw", encoding="utf-8")
        self.stream.readline()  # its greeting
        self.do("qmp_capabilities")

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """What the command returns. Raises LabError with QEMU's words."""
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            if "error" in answer:
                raise LabError(f"QEMU: {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
