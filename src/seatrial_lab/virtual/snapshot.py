"""Save the state of a guest that has loaded its drivers, so that a start takes about 1 s.

The saved state does not depend on an instance: it has the kernel, the drivers and their cards. It
has no nodes and no Slurm.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.base.errors import LabError
from seatrial.base.files import sha256
from seatrial.base.say import Say
from seatrial_lab.common import processes
from seatrial_lab.virtual import share
from seatrial_lab.virtual.cache import is_whole, outdated, sum_file

BOOT_TIMEOUT_S = 900.0  # for a boot without a saved state, on a busy machine
SAVE_TIMEOUT_S = 600.0
KEPT = 6  # saved guests, of 100 to 400 MB: of a few sites, or of a site with a few kernels
DRIVERS_LOADED = b"warm\n"
#: control sockets (QMP), which serve one client each: the broker, and who plants faults
BROKER_SOCKET, FAULTS_SOCKET = "qmp.sock", "faults.sock"


def key(argv: list[str], run: Path, versions: tuple[str, ...]) -> str:
    """Return the hash of QEMU's command line, without the instance's paths, and ``versions``."""
    text = json.dumps([[word.replace(str(run), "RUN") for word in argv], *versions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provide(
    folder: Path,
    argv: list[str],
    env: Mapping[str, str],
    run: Path,
    name: str,
    progress: Say,
) -> Path:
    """Return the saved state of the guest of ``argv``; create it if it is missing or damaged.

    Raises LabError, with the last lines of the console, if the guest does not boot.
    """
    file = folder / f"guest-{name}.state"
    if not is_whole(file):
        damaged = f"{file.name} is damaged: " if file.exists() else ""
        progress(
            f"{damaged}booting a guest to save (about a minute): none is saved for these NICs and "
            "this machine's programs"
        )
        for left in (*folder.glob("guest-*.new"), file, sum_file(file)):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)  # "new": of a start that was killed
        draft = file.with_suffix(".new")
        try:
            _save(argv, env, run, draft)
            sum_file(file).write_text(sha256(draft))
            draft.rename(file)
        finally:
            draft.unlink(missing_ok=True)
    for old in outdated(file, "guest-*.state", KEPT):
        old.unlink()
        sum_file(old).unlink(missing_ok=True)
    return file


def _save(argv: list[str], env: Mapping[str, str], run: Path, file: Path) -> None:
    guest = start_qemu(argv, env, run)
    try:
        line = connect_to_qemu(run / "line.sock", guest)
        _wait_for_drivers(line, run)
        qmp = QmpConnection(connect_to_qemu(run / BROKER_SOCKET, guest))
        qmp.execute("migrate", uri=f"file:{file}")
        deadline = time.monotonic() + SAVE_TIMEOUT_S
        while (state := qmp.execute("query-migrate")).get("status") != "completed":
            if state.get("status") in ("failed", "cancelled") or time.monotonic() > deadline:
                why = state.get("error-desc") or state.get("status")
                raise LabError(f"the guest cannot be saved in {file.parent}: {why}")
            time.sleep(0.1)
    finally:
        guest.kill()
        guest.wait()
        for name in ("line.sock", BROKER_SOCKET, FAULTS_SOCKET, share.QEMU_PID):
            (run / name).unlink(missing_ok=True)


def start_qemu(argv: list[str], env: Mapping[str, str], run: Path) -> subprocess.Popen:
    """Start QEMU, which writes its output and its pid file to ``run``."""
    with (run / "qemu.log").open("wb") as log:
        return subprocess.Popen(
            argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            umask=0o077, preexec_fn=partial(processes.write_pid_file, run / share.QEMU_PID),
        )  # fmt: skip


def _wait_for_drivers(line: socket.socket, run: Path) -> None:
    line.settimeout(BOOT_TIMEOUT_S)
    received = b""
    while DRIVERS_LOADED not in received:
        try:
            data = line.recv(4096)
        except TimeoutError:
            raise LabError(f"the guest has not booted after {BOOT_TIMEOUT_S:.0f} s") from None
        except ConnectionError:  # QEMU ended
            data = b""
        if not data:
            raise LabError(f"the guest ended while it booted: {share.why_ended(run)}")
        received += data


def connect_to_qemu(place: Path, guest: subprocess.Popen) -> socket.socket:
    """Return a connection to a socket of QEMU. Raises LabError if QEMU does not answer."""
    deadline = time.monotonic() + 20
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(place))
            return connection
        except OSError as error:
            connection.close()
            if guest.poll() is not None or time.monotonic() > deadline:
                log = place.with_name("qemu.log")
                words = log.read_text(errors="replace").strip() if log.exists() else ""
                raise LabError(f"QEMU does not answer ({error}): {words[-500:]}") from None
            time.sleep(0.02)


class QmpConnection:
    """QEMU's control socket (QMP)."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(SAVE_TIMEOUT_S)
        self.stream = connection.makefile("rw", encoding="utf-8")
        self.stream.readline()  # its greeting
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Execute a command and return its result. Raises LabError with QEMU's message."""
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            if "error" in answer:
                raise LabError(f"QEMU: {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
