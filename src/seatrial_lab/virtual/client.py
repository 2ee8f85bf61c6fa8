"""Run a command in the guest from the host.

:class:`Connection` is the client of the broker. As a program, this file replaces Slurm's commands
in a trial's ReFrame:

    python3 -IS client.py BROKER_SOCKET USER HOME PATH PROGRAM [ARGUMENT ...]

It imports only a few modules of the standard library, because each srun of a trial starts it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(__file__).rsplit("/seatrial_lab/", 1)[0])  # noqa: PTH100

from seatrial_lab.virtual.frames import (
    BUSY,
    CHUNK,
    ERROR,
    EXIT,
    INPUT,
    OUTPUT,
    RUN,
    SIGNAL,
    Reader,
    frame,
    request_data,
)

#: programs that query Slurm; the broker refuses them while a step runs
QUERY_PROGRAMS = ("squeue", "sinfo", "scontrol", "sacct", "sstat")
STEP_PROGRAM = "srun"
#: variables of the host that have no meaning in the guest
HOST_VARIABLES = ("PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_")


class Busy(Exception):
    """A step is being measured, and the command would disturb it."""


class NoGuest(Exception):
    """The guest has ended or was never started."""


def kind_of(argv: Sequence[str]) -> str:
    """Return the kind of a command: ``step`` (measured), ``query`` or empty."""
    name = argv[0].rpartition("/")[2]
    return "step" if name == STEP_PROGRAM else "query" if name in QUERY_PROGRAMS else ""


class Connection:
    """One command in the guest.

    Each wait, also of the constructor, takes at most ``timeout`` seconds, which ``set_timeout``
    changes; None: as long as the broker needs. Raises NoGuest if there is no guest, TimeoutError.
    """

    def __init__(
        self,
        place: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        user: str,
        node: str,
        timeout: float | None = None,
    ):
        self.socket = socket.socket(socket.AF_UNIX)
        request = {
            "argv": list(argv), "env": dict(env), "cwd": cwd, "user": user, "node": node,
            "kind": kind_of(argv),
        }  # fmt: skip
        self.reader = Reader()
        try:
            self._connect(place, timeout)
            self._send(RUN, request_data(request))
        except BaseException:
            self.socket.close()
            raise

    def _connect(self, place: str, timeout: float | None) -> None:
        deadline = time.monotonic() + (timeout or 0)
        self.set_timeout(timeout)
        while True:
            try:
                self.socket.connect(place)
                return
            except TimeoutError:
                raise
            except BlockingIOError:  # too many wait for the broker: connect(2), EAGAIN
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(0.01)
            except OSError as error:
                raise NoGuest(f"{place}: {error.strerror}") from None

    def set_timeout(self, seconds: float | None) -> None:
        """Set how long a wait may take from now on. Raises TimeoutError if no time is left."""
        if seconds is not None and seconds <= 0:
            raise TimeoutError
        self.socket.settimeout(seconds)

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return the guest's next frames as (kind, data). Raises Busy, NoGuest."""
        try:
            data = self.socket.recv(CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            raise NoGuest("the guest has ended")
        frames = [(kind, content) for _, kind, content in self.reader.feed(data)]
        if any(kind == BUSY for kind, _ in frames):
            raise Busy
        return frames

    def send_input(self, data: bytes) -> None:
        """Send input to the command. Empty input is the end of its input."""
        self._send(INPUT, data)

    def send_signal(self, number: int) -> None:
        self._send(SIGNAL, b"%d" % number)

    def _send(self, kind: bytes, data: bytes) -> None:
        # If the broker has closed the socket, its last frames are still to be read.
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(frame(0, kind, data))


def serve(connection: Connection, stdin: bool) -> int:
    """Connect the command's streams to this process's streams. Returns its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: connection.send_signal(received))
    selector = selectors.DefaultSelector()
    selector.register(connection.socket, selectors.EVENT_READ)
    if stdin:
        try:
            selector.register(0, selectors.EVENT_READ)
        except PermissionError:  # a file or /dev/null: always ready
            while data := os.read(0, CHUNK):
                connection.send_input(data)
            stdin = False
    if not stdin:
        connection.send_input(b"")
    while True:
        for key, _ in selector.select():
            if key.fd == 0:
                data = os.read(0, CHUNK)
                connection.send_input(data)
                if not data:
                    selector.unregister(0)
                continue
            for kind, content in connection.receive():
                if kind == EXIT:
                    return exit_code(content)
                write_all(1 if kind == OUTPUT else 2, content)


def exit_code(content: bytes) -> int:
    """The exit code in the guest's last frame. Raises NoGuest if it is no number."""
    if not content.isdigit() or len(content) > 3:
        raise NoGuest(f"the guest sent the exit code {content[:20]!r}")
    return int(content)


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main(arguments: list[str]) -> int:
    place, user, home, path, *argv = arguments
    env = {name: value for name, value in os.environ.items() if name not in HOST_VARIABLES}
    env |= {"PATH": path, "HOME": home}
    try:
        return serve(Connection(place, argv, env, os.getcwd(), user, "login"), stdin=True)  # noqa: PTH109
    except Busy:
        print(f"{argv[0]}: a step is being measured", file=sys.stderr)
        return 75  # EX_TEMPFAIL
    except (NoGuest, BrokenPipeError) as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 69  # EX_UNAVAILABLE


__all__ = ["ERROR", "OUTPUT", "Busy", "Connection", "NoGuest", "exit_code", "serve"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
