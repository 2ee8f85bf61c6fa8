"""The host's process beside a guest: starts QEMU, passes commands on, and stops the guest's clock
whenever nobody waits for it.

Runs as ``python -S -m seatrial_lab.virtual.broker RUN`` with only the standard library; RUN is the
lab's run folder with ``qemu.json`` (argv, env). Commands come over ``broker.sock``, see ``client``.
A guest that nobody asks anything is stopped: else its idle hours would fly by, since virtual time
jumps from event to event. So nothing outside can change what is measured inside, but by a command
that comes meanwhile: those that only look are refused while a step runs.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from seatrial.base.files import write_whole
from seatrial_lab.virtual.frames import (
    BUSY,
    CHUNK,
    ERROR,
    EXIT,
    FAILED,
    INPUT,
    OUTPUT,
    QUIET,
    READY,
    RUN,
    SIGNAL,
    Reader,
    frame,
)
from seatrial_lab.virtual.warm import connected


class Client:
    """One command's connection."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.reader = Reader()
        self.number = 0


class Broker:
    """Between the clients' sockets and the guest's serial line."""

    def __init__(self, run: Path):
        self.run = run
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, Client] = {}  # by the number of their command
        self.active: dict[int, str] = {}  # number -> kind, of commands in the guest
        self.number = 0
        self.running = True
        self.reader = Reader()
        self.started = time.monotonic()

    def start(self) -> None:
        """Start QEMU and connect to it. Raises OSError, or LabError with QEMU's words."""
        given = json.loads((self.run / "qemu.json").read_text())
        log = (self.run / "qemu.log").open("wb")
        self.qemu = subprocess.Popen(
            given["argv"], env=given["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd="/",
        )  # fmt: skip
        self.line = connected(self.run / "line.sock", self.qemu)
        self.qmp = connected(self.run / "qmp.sock", self.qemu)
        self.qmp.sendall(b'{"execute": "qmp_capabilities"}\n')
        # What the guest's init waits for (guest/init.sh).
        self.line.sendall(given["go"].encode() + b"\n")
        self.selector.register(self.line, selectors.EVENT_READ, self.from_guest)
        self.selector.register(self.qmp, selectors.EVENT_READ, self.from_qmp)
        place = self.run / "broker.sock"
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(place))
        place.chmod(0o666)  # who may enter the run folder's socket is the job user as well
        self.door.listen(64)
        self.selector.register(self.door, selectors.EVENT_READ, self.accept)

    def serve(self) -> None:
        """Serve until QEMU ends."""
        while self.qemu.poll() is None:
            for key, _ in self.selector.select(timeout=1.0):
                key.data(key.fileobj)

    # -- from the guest

    def from_qmp(self, connection: socket.socket) -> None:
        if not connection.recv(CHUNK):
            self.selector.unregister(connection)

    def from_guest(self, line: socket.socket) -> None:
        data = line.recv(CHUNK)
        if not data:
            self.selector.unregister(line)
            return
        for number, kind, content in self.reader.feed(data):
            if kind in (OUTPUT, ERROR, EXIT):
                self.answer(number, kind, content)
            elif kind in (READY, FAILED):
                self.booted(kind, content)
            elif kind == QUIET and number == self.number and not self.active:
                self.pause(True)

    def booted(self, kind: bytes, content: bytes) -> None:
        facts = {
            "ok": kind == READY,
            "text": content.decode(errors="replace"),
            "seconds": round(time.monotonic() - self.started, 2),
        }
        write_whole(self.run / "booted.json", json.dumps(facts), durable=False)

    def answer(self, number: int, kind: bytes, content: bytes) -> None:
        client = self.clients.get(number)
        if kind == EXIT:
            self.active.pop(number, None)
        if client is None:
            return
        with contextlib.suppress(OSError):
            client.connection.setblocking(True)
            client.connection.sendall(frame(number, kind, content))
        if kind == EXIT:
            self.forget(client)

    # -- from clients

    def accept(self, door: socket.socket) -> None:
        connection, _ = door.accept()
        client = Client(connection)
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self.from_client(client))

    def from_client(self, client: Client) -> None:
        try:
            data = client.connection.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            self.gone(client)
            return
        for _, kind, content in client.reader.feed(data):
            if kind == RUN and not client.number:
                self.begin(client, content)
            elif kind in (INPUT, SIGNAL) and client.number in self.active:
                self.line.sendall(frame(client.number, kind, content))

    def begin(self, client: Client, content: bytes) -> None:
        request: dict[str, Any] = json.loads(content)
        kind = request.pop("kind", "")
        if kind == "look" and "step" in self.active.values():
            with contextlib.suppress(OSError):
                client.connection.sendall(frame(0, BUSY))
            self.forget(client)
            return
        self.number += 1
        client.number = self.number
        self.clients[self.number] = client
        self.active[self.number] = kind
        self.pause(False)
        self.line.sendall(frame(self.number, RUN, json.dumps(request).encode()))

    def gone(self, client: Client) -> None:
        """A client that ended before its command: the command is ended too."""
        if client.number in self.active:
            self.line.sendall(frame(client.number, SIGNAL, b"%d" % signal.SIGTERM))
        self.forget(client)

    def forget(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(client.connection)
        client.connection.close()

    # -- the guest's clock

    def pause(self, on: bool) -> None:
        if on == self.running:
            self.running = not on
            self.qmp.sendall(b'{"execute": "%s"}\n' % (b"stop" if on else b"cont"))


def main(arguments: list[str]) -> int:
    """Serve one guest to its end."""
    broker = Broker(Path(arguments[0]))
    signal.signal(signal.SIGTERM, lambda *_: broker.qemu.kill())
    broker.start()
    try:
        broker.serve()
    finally:
        if broker.qemu.poll() is None:
            broker.qemu.kill()
        broker.qemu.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
