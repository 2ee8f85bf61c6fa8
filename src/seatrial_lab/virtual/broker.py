"""The broker of a guest: starts QEMU, forwards commands, and stops the guest's clock when idle.

Runs as ``python -S -m seatrial_lab.virtual.broker RUN`` with only the standard library. RUN is the
lab's run folder with ``qemu.json`` (argv, env, go). Commands arrive at ``broker.sock``; see
``client``. The broker does not know Slurm or trials.

The broker stops a guest without a command, because virtual time jumps from event to event and an
idle guest's clock would run far ahead. Only a command can disturb a measurement in the guest, so
the broker refuses queries while a step runs.
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
from seatrial_lab.virtual.snapshot import connect_to_qemu


class Client:
    """The connection of one command's client."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.reader = Reader()
        self.number = 0


class Broker:
    """Forwards frames between the clients' sockets and the guest's serial line."""

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
        """Start QEMU and connect to it. Raises OSError, or LabError with QEMU's message."""
        given = json.loads((self.run / "qemu.json").read_text())
        log = (self.run / "qemu.log").open("wb")
        self.qemu = subprocess.Popen(
            given["argv"], env=given["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd="/",
        )  # fmt: skip
        self.guest_line = connect_to_qemu(self.run / "line.sock", self.qemu)
        self.qmp = connect_to_qemu(self.run / "qmp.sock", self.qemu)
        self.qmp.sendall(b'{"execute": "qmp_capabilities"}\n')
        # The guest's init waits for this line (guest/init.sh).
        self.guest_line.sendall(given["go"].encode() + b"\n")
        self.selector.register(self.guest_line, selectors.EVENT_READ, self.read_guest)
        self.selector.register(self.qmp, selectors.EVENT_READ, self.read_qmp)
        socket_path = self.run / "broker.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(socket_path))
        socket_path.chmod(0o666)  # the job user connects to it too
        self.listener.listen(64)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def serve(self) -> None:
        """Serve until QEMU ends."""
        while self.qemu.poll() is None:
            for key, _ in self.selector.select(timeout=1.0):
                key.data(key.fileobj)

    # -- from the guest

    def read_qmp(self, connection: socket.socket) -> None:
        if not connection.recv(CHUNK):
            self.selector.unregister(connection)

    def read_guest(self, guest_line: socket.socket) -> None:
        data = guest_line.recv(CHUNK)
        if not data:
            self.selector.unregister(guest_line)
            return
        for number, kind, content in self.reader.feed(data):
            if kind in (OUTPUT, ERROR, EXIT):
                self.forward_answer(number, kind, content)
            elif kind in (READY, FAILED):
                self.write_boot_result(kind, content)
            elif kind == QUIET and number == self.number and not self.active:
                self.pause(True)

    def write_boot_result(self, kind: bytes, content: bytes) -> None:
        facts = {
            "ok": kind == READY,
            "text": content.decode(errors="replace"),
            "seconds": round(time.monotonic() - self.started, 2),
        }
        write_whole(self.run / "booted.json", json.dumps(facts), durable=False)

    def forward_answer(self, number: int, kind: bytes, content: bytes) -> None:
        client = self.clients.get(number)
        if kind == EXIT:
            self.active.pop(number, None)
        if client is None:
            return
        with contextlib.suppress(OSError):
            client.connection.setblocking(True)
            client.connection.sendall(frame(number, kind, content))
        if kind == EXIT:
            self.remove_client(client)

    # -- from clients

    def accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        client = Client(connection)
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self.read_client(client))

    def read_client(self, client: Client) -> None:
        try:
            data = client.connection.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            self.client_closed(client)
            return
        for _, kind, content in client.reader.feed(data):
            if kind == RUN and not client.number:
                self.start_command(client, content)
            elif kind in (INPUT, SIGNAL) and client.number in self.active:
                self.guest_line.sendall(frame(client.number, kind, content))

    def start_command(self, client: Client, content: bytes) -> None:
        request: dict[str, Any] = json.loads(content)
        kind = request.pop("kind", "")
        if kind == "query" and "step" in self.active.values():
            with contextlib.suppress(OSError):
                client.connection.sendall(frame(0, BUSY))
            self.remove_client(client)
            return
        self.number += 1
        client.number = self.number
        self.clients[self.number] = client
        self.active[self.number] = kind
        self.pause(False)
        self.guest_line.sendall(frame(self.number, RUN, json.dumps(request).encode()))

    def client_closed(self, client: Client) -> None:
        """End the command of a client that ended before it."""
        if client.number in self.active:
            self.guest_line.sendall(frame(client.number, SIGNAL, b"%d" % signal.SIGTERM))
        self.remove_client(client)

    def remove_client(self, client: Client) -> None:
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
